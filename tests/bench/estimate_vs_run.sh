#!/usr/bin/env bash
# zinf estimate --measure against the training that it speaks of: memory, drive and step time for
# three shapes and three placements. Estimate and training take turns, ROUNDS of each; a row has
# the median estimate, the median of all steps after the first three, their ratio, and beside it
# how far rounds of one and the same thing were apart: the largest over the smallest of the
# estimates and of the runs' medians, which is what the machine itself does.
#
# usage: estimate_vs_run.sh TEXT FOLDER [STEPS [ROWS]]
#   FOLDER: on a local drive with 20 GB free   ROWS: a pattern for "SHAPE PARAM/STATE", default .
set -euo pipefail
zinf=${ZINF:-zinf}
usage='usage: estimate_vs_run.sh TEXT FOLDER [STEPS [ROWS]]'
text=${1:?$usage}
folder=${2:?$usage}
steps=${3:-8}
rows=${4:-.}
rounds=${ROUNDS:-2}
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
apart() { sort -g | awk 'NR == 1 { least = $1 } { most = $1 } END { print most / least }'; }

configure() { # param device, state device, micro-batch
    cat >"$folder/config.json" <<END
{"train_micro_batch_size_per_gpu": $3, "gradient_clipping": 1000, "bf16": {"enabled": true},
 "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
 "zero_optimization": {"stage": 3,
  "offload_param": {"device": "$1", "nvme_path": "$folder/swap"},
  "offload_optimizer": {"device": "$2", "nvme_path": "$folder/swap"}}}
END
}
take_turn() { # model, seq, memory options...
    local model=$1 seq=$2
    shift 2
    "$zinf" estimate --model "$model" --config "$folder/config.json" --seq-len "$seq" "$@" \
        --measure --json >"$folder/estimate.json"
    number "$folder/estimate.json" step_seconds >>"$folder/estimated"
    rm -rf "$folder/output"
    "$zinf" train --no-final-checkpoint --model "$model" --data "$text" --config "$folder/config.json" \
        --seq-len "$seq" --steps "$steps" "$@" --output "$folder/output" --progress none \
        >"$folder/result.json" 2>"$folder/log" &
    largest $! >"$folder/drive"
    wait $!
    # The first step runs one operation at a time, the second fills the pipeline, and the third may
    # be of another schedule.
    tail -n +4 "$folder/output/log.jsonl" | while read -r line; do
        echo "$line" | number - step_seconds
    done | tee -a "$folder/ran" | median >>"$folder/medians"
}
compare() { # name, init options, param device, state device, seq, micro-batch, memory options...
    local name=$1 init=$2 where=$3/$4 seq=$5
    echo "$name $where" | grep -qe "$rows" || return 0
    [ -e "$folder/$name/config.json" ] ||
        "$zinf" init --arch gpt2 --tokenizer bytes --vocab 50257 $init --dtype bf16 --output "$folder/$name" >/dev/null 2>&1
    configure "$3" "$4" "$6"
    shift 6
    rm -f "$folder/estimated" "$folder/ran" "$folder/medians"
    for _ in $(seq "$rounds"); do
        take_turn "$folder/$name" "$seq" "$@"
    done
    local device host drive
    device=$(grep -A4 '"peak_bytes"' "$folder/estimate.json" | number - device)
    host=$(number "$folder/estimate.json" host)
    drive=$(grep -A4 '"peak_bytes"' "$folder/estimate.json" | number - drive)
    awk -v name="$name" -v where="$where" -v seq="$seq" -v a="$((device + host))" \
        -v b="$(number "$folder/result.json" peak_resident_bytes)" -v c="$drive" \
        -v d="$(cat "$folder/drive")" -v e="$(median <"$folder/estimated")" \
        -v f="$(median <"$folder/ran")" -v g="$(apart <"$folder/estimated")" \
        -v h="$(apart <"$folder/medians")" 'BEGIN {
        disk = (c > 0) ? sprintf("%6.3f GB %6.3f", c / 1e9, d / c) : "-"
        printf("%-8s %-10s %5d  %6.3f GB %6.3f  %-18s %7.3f s %7.3f s %6.3f   %5.3f %5.3f\n",
            name, where, seq, a / 1e9, b / a, disk, e, f, f / e, g, h) }'
    rm -rf "$folder/output"
}
echo "shape    param/state  seq  RAM estimated, ratio, drive          step: estimated, run, ratio   apart: estimates, runs"
for shape in "small:--size small" "medium:--size medium --layers 12" "wide:--size xl --layers 8"; do
    name=${shape%%:*} init=${shape#*:}
    compare "$name" "$init" none cpu 256 2
    compare "$name" "$init" cpu nvme 256 2
    compare "$name" "$init" nvme nvme 128 1 --device-memory 512MiB --host-memory 900MiB
done
