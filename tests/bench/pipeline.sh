#!/bin/sh
# How long ranks of a pipeline wait, on lanes that keep a rate: the waiting of the busiest rank over its
# work in a step, beside what the formula says of N ranks of the same work, with V ranges each and M
# micro-batches: (N - 1) / (V M). Ends with 1 where the two differ by more than 3 %. The formula has no
# time for what crosses between ranks, so blocks are wide: their work grows with the square of the
# width, and what crosses with the width. "one clock" is the prediction, which has all of it: of
# narrower blocks (WIDTH) it tells what transfers add. All runs are made at once, since they only sleep;
# a machine that wakes threads late makes the waiting longer, the less the longer a step takes: `chrt -f
# 10` in front of the command has them woken in time where others work.
#
#   tests/bench/pipeline.sh BUILD [SECONDS [WIDTH]]      seconds that a step takes by the clock: each of
#                                                        two steps, of which the second counts
build=$(cd "${1:?usage: pipeline.sh BUILD [SECONDS]}" && pwd) || exit 1
seconds=${2:-90}
width=${3:-8192}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
# Adapters, so that nearly all work is that of blocks, of which all ranges have as many.
"$build/zinf" init --arch llama --size 7b --layers 16 --hidden "$width" --heads $((width / 128)) --tokenizer bytes \
    --config-only --output model >/dev/null || exit 1
bench() { # ranges, micro-batches, layers of each range
    cat >"$1.$2.json" <<END
{"bf16": {"enabled": true}, "zero_optimization": {"stage": 1},
 "zinf": {"pipeline_ranges": $1, "pipeline_parts": [$3], "placement": "exact", "durability": "none",
          "activation_checkpointing": "never"}}
END
    "$build/zinf" bench schedule --model model --config "$1.$2.json" --lora-rank 1 --seq-len 512 \
        --micro-batch 4 --accumulate "$2" --machine cpu,threads=64,bf16=0.24,ram=2000G --ranks 4 \
        --pipeline-parallel 4 --schedule prefetch --seconds "$seconds" --repeat 1 --json >"$1.$2" &
}
for micro in 8 16; do
    bench 1 $micro 5,4,4,5
    bench 2 $micro 3,2,2,2,2,2,2,3
    bench 4 $micro 2,1,1,1,1,1,1,1,1,1,1,1,1,1,1,2
done
wait
number() { # of, key
    sed -n "s/.*\"$2\":[[:space:]]*\([-+.e0-9]*\).*/\1/p" "$1"
}
printf '%7s %13s %9s %9s %9s %8s\n' ranges micro-batches formula 'one clock' measured apart
failed=0
for ranges in 1 2 4; do
    for micro in 8 16; do
        of=$ranges.$micro
        awk -v step="$(number $of step_seconds)" -v busy="$(number $of pipe_busy_seconds)" \
            -v clock="$(number $of predicted_seconds)" -v v=$ranges -v m=$micro 'BEGIN {
                formula = 3 / (v * m); measured = step / busy - 1; apart = measured / formula - 1
                printf "%7d %13d %7.2f %% %7.2f %% %7.2f %% %+6.1f %%\n", v, m, 100 * formula,
                    100 * (clock / busy - 1), 100 * measured, 100 * apart
                exit !(apart > -0.03 && apart < 0.03) }' || failed=1
    done
done
exit $failed
