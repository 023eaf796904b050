#!/bin/sh
# What caps on memory cost a step of GPT-2 XL, by simulation, as the table of BENCHMARKS.md: a card of
# 24 GB in a machine with 64 GB of RAM, against the same machine without any cap. Nothing is trained.
#
#   tests/bench/capped.sh BUILD
zinf=${1:?usage: capped.sh BUILD}/zinf
folder=$(dirname "$0")/../../examples/gpt2-xl-24gb
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
"$zinf" init --arch gpt2 --size xl --config-only --output "$work/xl" >/dev/null || exit 1

seconds() { # RAM of the machine, sequences, micro-batches, budget of the device, of the host
    "$zinf" estimate --model "$work/xl" --config "$folder/xl.json" --seq-len 1024 --json \
        --machine "4090,ram=$1,nvme=7/6" --micro-batch "$2" --accumulate "$3" \
        --device-memory "$4" --host-memory "$5" 2>"$work/err" |
        sed -n 's/.*"step_seconds":[[:space:]]*\([^,]*\).*/\1/p' | head -n 1
}
echo "| tokens a step | device | without caps, s | with, s | without/with |"
echo "|---:|---|---:|---:|---:|"
for micros in 1 4; do
    free=$(seconds 1000G 16 $micros 1000GiB 900GiB)
    for device in 22GiB 24GiB; do
        capped=$(seconds 64G 16 $micros $device 60GiB)
        awk -v tokens=$((16384 * micros)) -v device=$device -v free="$free" -v capped="$capped" \
            'BEGIN { printf "| %d | %s | %.2f | %.2f | %.3f |\n", tokens, device, free, capped,
                     free / capped }'
    done
done
