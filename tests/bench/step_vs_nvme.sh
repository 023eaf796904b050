#!/usr/bin/env bash
# A training step against the drive: GPT-2 medium in bf16, parameters and optimizer state on the
# drive, so few tokens that the drive is the bottleneck. A drive's rate drifts by the second, so the
# two are taken in turns within one training: at the end of a step it is stopped, the benchmark of
# `zinf bench nvme` runs for two seconds (half reads, half writes, same block size and depth), and
# the training goes on for some steps. The rate of a training is all that it read and wrote, as the
# kernel counts it, over the whole time, compute and all; its ratio is to the mean of the benchmarks
# before and after. The first two steps plan and fill the pipeline: they do not count.
#
# step_vs_nvme.sh FOLDER [ROUNDS [STEPS_A_ROUND [SEQ_LEN]]]     ZINF, BENCH: paths of zinf and
# drive_bench; LAYERS of the model (default: 24); needs 16 GB in FOLDER
set -euo pipefail
folder=${1:?usage: step_vs_nvme.sh FOLDER [ROUNDS [STEPS_A_ROUND [SEQ_LEN]]]}
rounds=${2:-5} each=${3:-2} seq_len=${4:-16}
zinf=${ZINF:-${BUILDDIR:-.}/zinf} bench=${BENCH:-${BUILDDIR:-.}/tests/bench/drive_bench}
depth=${DEPTH:-32} work=$folder/step_vs_nvme.$$ pid=
finish() {
    [ -z "$pid" ] || { kill -KILL "$pid" && wait "$pid"; } 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 1' INT TERM
mkdir -p "$work/swap"

cat >"$work/config.json" <<END_OF_CONFIG
{
    "train_micro_batch_size_per_gpu": 1,
    "gradient_clipping": 1000,
    "bf16": {"enabled": true},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-6, "weight_decay": 0.1}},
    "aio": {"block_size": 1048576, "queue_depth": $depth},
    "zero_optimization": {
        "stage": 3,
        "offload_param": {"device": "nvme", "nvme_path": "$work/swap"},
        "offload_optimizer": {"device": "nvme", "nvme_path": "$work/swap"}
    },
    "zinf": {"schedule": "${SCHEDULE:-auto}"}
}
END_OF_CONFIG

drive_rate() { "$bench" "$work/file" mixed seq 1MiB "$depth" uring 2 | cut -d' ' -f1; }
transferred() { awk '/^(read|write)_bytes/ { sum += $2 } END { printf "%.0f", sum }' "/proc/$pid/io"; }

"$zinf" init --arch gpt2 --tokenizer bytes --vocab 50257 --size medium --layers "${LAYERS:-24}" --dtype bf16 --output "$work/model"
head -c 3000000 /dev/urandom | od -An -tx1 >"$work/text"
head -c 2G /dev/urandom | dd of="$work/file" bs=4M iflag=fullblock oflag=direct status=none
"$zinf" train --no-final-checkpoint --model "$work/model" --data "$work/text" --config "$work/config.json" \
    --seq-len "$seq_len" --steps "$((3 + rounds * each))" --progress none --output "$work/output" \
    --device-memory "${DEVICE_MEMORY:-768MiB}" --host-memory "${HOST_MEMORY:-1GiB}" \
    >"$work/result.json" 2>"$work/messages" &
pid=$!
while [ ! -e "$work/output/log.jsonl" ]; do
    kill -0 "$pid" 2>/dev/null || { pid=; cat "$work/messages" >&2; exit 1; }
    sleep 0.1
done
exec {log}< <(exec tail -n +1 -f -s 0.02 --pid="$pid" "$work/output/log.jsonl")

await() { # that many steps; the last one's line
    for _ in $(seq "$1"); do read -r -u "$log" line; done
}
line=
await 2
kill -STOP "$pid"
before=$(drive_rate)
for round in $(seq "$rounds"); do
    bytes=$(transferred) begin=$EPOCHREALTIME
    kill -CONT "$pid"
    await "$each"
    end=$EPOCHREALTIME bytes=$(($(transferred) - bytes))
    kill -STOP "$pid"
    after=$(drive_rate)
    lanes=$(sed 's/.*"step_seconds": \([0-9.]*\),.*"lane_seconds": {"read": \([0-9.]*\), "write": \([0-9.]*\).*"drive_bytes_read": \([0-9]*\), "drive_bytes_written": \([0-9]*\).*/\1 \2 \3 \4 \5/' <<<"$line")
    echo "$round $bytes $begin $end $before $after $each $lanes" | awk '{
        rate = $2 / ($4 - $3) / 1e9
        printf "round %d: %d steps of %.2f s at %.3f GB/s; bench %.3f, %.3f; ratio %.3f; last step %.2f s: read %.2f GB, lane busy %.2f s, wrote %.2f GB, busy %.2f s\n",
            $1, $7, ($4 - $3) / $7, rate, $5, $6, 2 * rate / ($5 + $6), $8, $11 / 1e9, $9, $12 / 1e9, $10 }' |
        tee -a "$work/rounds"
    before=$after
done
sed 's/.*; ratio \([0-9.]*\);.*/\1/' "$work/rounds" | sort -g | awk '{ v[NR] = $1 } END {
    printf "median ratio %.3f of %d rounds\n",
        NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2, NR }'
