#!/bin/sh
# What the machinery of a step takes with 2 and 4 host-device seats: of the CPU time of 25 s of steps,
# the share of samples in offload/, net/ (but its sums) and src/train, and all time in the kernel, which
# is switches between threads, page faults, and what other programs do to this one.
#
#   tests/bench/seats_overhead.sh BUILD [SECONDS]      needs perf and nm
build=$(cd "${1:?usage: seats_overhead.sh BUILD [SECONDS]}" && pwd) || exit 1
seconds=${2:-25}
work=$(mktemp -d) || exit 1
trap 'kill "$run" 2>/dev/null; rm -rf "$work"' EXIT
cd "$work" || exit 1
cat >config.json <<'END'
{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2, "bf16": {"enabled": true},
 "gradient_clipping": 1.0, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
 "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"},
  "offload_optimizer": {"device": "cpu"}}, "zinf": {"threads": 1}}
END
seq -f "line %g of a text that is long enough for some windows and a few words more" 4000 >text.txt
"$build/zinf" init --arch gpt2 --size small --layers 6 --hidden 512 --heads 8 --tokenizer bytes \
    --context 256 --output model >/dev/null || exit 1
find "$build/offload" "$build/net" "$build/src/train" -name '*.o' -exec nm --defined-only {} + \
    2>/dev/null | awk '$2 ~ /^[tT]$/ && $3 != "zinf_tree_sum" { print $3 }' >symbols

ticks() { # user and system time so far
    awk '{ print $14, $15 }' "/proc/$run/stat"
}
for seats in 2 4; do
    rm -rf out
    "$build/zinf" train --model model --data text.txt --seq-len 64 --device host \
        --config config.json --seats $seats --steps 100000 --no-final-checkpoint --progress none \
        --output out >said 2>&1 &
    run=$!
    # The first steps measure, and plan.
    while [ "$(cat out/log.jsonl 2>/dev/null | wc -l)" -lt 5 ] && kill -0 $run; do sleep 0.2; done
    ticks >before
    perf record -q -o samples -F 499 -p $run -- sleep "$seconds" || exit 1
    ticks >after
    kill -9 $run
    perf report -i samples --no-children --stdio -F overhead,sym 2>/dev/null |
        awk '$1 ~ /%/ { sub("%", "", $1); print $1, $2, $3 }' >shares
    own=$(awk 'NR == FNR { own[$1] = 1; next } $2 == "[.]" && $3 in own { sum += $1 }
        END { print sum + 0 }' symbols shares)
    paste before after | awk -v seats=$seats -v own="$own" '{
        user = $3 - $1; kernel = $4 - $2
        printf "%d seats: %.2f %% in the step program, %.2f %% in the kernel\n", seats, own,
            100 * kernel / (user + kernel) }'
done
