#!/usr/bin/env bash
# zinf estimate --measure against the training that it speaks of: memory, drive and step time for
# three shapes and three placements. Prints a table; ratios are run / estimate.
#
# usage: estimate_vs_run.sh TEXT FOLDER [STEPS]     FOLDER: on a local drive with 20 GB free
set -euo pipefail
zinf=${ZINF:-zinf}
text=${1:?usage: estimate_vs_run.sh TEXT FOLDER [STEPS]}
folder=${2:?usage: estimate_vs_run.sh TEXT FOLDER [STEPS]}
steps=${3:-8}
mkdir -p "$folder/swap"

number() { # file, key: the first such number
    grep -o "\"$2\":[[:space:]]*[0-9.e+-]*" "$1" | head -n 1 | sed 's/.*:[[:space:]]*//'
}
largest() { # of the files of a store, while the training runs
    local most=0 now
    while kill -0 "$1" 2>/dev/null; do
        now=$(du -sb "$folder/swap" 2>/dev/null | cut -f1) || now=0
        [ "${now:-0}" -le "$most" ] || most=$now
        sleep 0.2
    done
    echo "$most"
}
median() { sort -g | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

compare() { # name, init options, param device, state device, seq, micro-batch, memory options...
    local name=$1 init=$2 param=$3 state=$4 seq=$5 micro=$6
    shift 6
    [ -e "$folder/$name/config.json" ] ||
        "$zinf" init --arch gpt2 $init --dtype bf16 --output "$folder/$name" >/dev/null 2>&1
    cat >"$folder/config.json" <<END
{"train_micro_batch_size_per_gpu": $micro, "gradient_clipping": 1000, "bf16": {"enabled": true},
 "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
 "zero_optimization": {"stage": 3,
  "offload_param": {"device": "$param", "nvme_path": "$folder/swap"},
  "offload_optimizer": {"device": "$state", "nvme_path": "$folder/swap"}}}
END
    "$zinf" estimate --model "$folder/$name" --config "$folder/config.json" --seq-len "$seq" "$@" \
        --measure --json >"$folder/estimate.json"
    "$zinf" train --model "$folder/$name" --data "$text" --config "$folder/config.json" \
        --seq-len "$seq" --steps "$steps" "$@" --output "$folder/output" --progress none \
        >"$folder/result.json" 2>"$folder/log" &
    local most
    most=$(largest $!)
    wait $!
    local device host drive seconds peak ran
    device=$(grep -A4 '"peak_bytes"' "$folder/estimate.json" | number - device)
    host=$(number "$folder/estimate.json" host)
    drive=$(grep -A4 '"peak_bytes"' "$folder/estimate.json" | number - drive)
    seconds=$(number "$folder/estimate.json" step_seconds)
    peak=$(number "$folder/result.json" peak_resident_bytes)
    # The first step is measured one operation at a time, the second fills the pipeline.
    ran=$(tail -n +3 "$folder/output/log.jsonl" | while read -r line; do
        echo "$line" | number - step_seconds
    done | median)
    awk -v name="$name" -v where="$param/$state" -v seq="$seq" -v a="$((device + host))" \
        -v b="$peak" -v c="$drive" -v d="$most" -v e="$seconds" -v f="$ran" 'BEGIN {
        disk = (c > 0) ? sprintf("%6.3f GB %6.3f", c / 1e9, d / c) : "-"
        printf("%-8s %-10s %5d  RAM %6.3f GB %6.3f  drive %-18s step %7.3f s %7.3f s %6.3f\n",
            name, where, seq, a / 1e9, b / a, disk, e, f, f / e) }'
    rm -rf "$folder/output"
}
echo "shape    param/state  seq  RAM estimated, ratio    drive           step: estimated, run, ratio"
for shape in "small:--size small" "medium:--size medium --layers 12" "wide:--size xl --layers 8"; do
    name=${shape%%:*} init=${shape#*:}
    compare "$name" "$init" none cpu 256 2
    compare "$name" "$init" cpu nvme 256 2
    compare "$name" "$init" nvme nvme 128 1 --device-memory 512MiB --host-memory 900MiB
done
