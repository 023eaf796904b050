#!/usr/bin/env bash
# All parameters of LLaMA-2 7B or 13B train on a small machine: bf16 with the exact lower halves of
# the fp32 masters, AdamW with 8-bit moments, everything on a drive in one generation. Prints the
# plan, the predicted step, the steps and the peak of resident memory.
#
# What is given up for the room: moments in 8 bits instead of 32 (AdamW's take 8 bytes a parameter
# more), clipping, and steps that outlive the process (an update is made in place as soon as its
# gradient is complete). 7B then takes 41 GB of drive and 14 GB for the
# model that is written at the end, 13B 79 GB and 26 GB.
#
# usage: large-model.sh TEXT FOLDER [7b|13b [SEQ_LEN [STEPS]]]
#   TEXT     a text to train on; its bytes are the tokens
#   FOLDER   a folder on a local drive; everything is written there
set -euo pipefail
zinf=${ZINF:-zinf}
usage='usage: large-model.sh TEXT FOLDER [7b|13b [SEQ_LEN [STEPS]]]'
text=${1:?$usage}
folder=${2:?$usage}
size=${3:-7b}
seq_len=${4:-512}
steps=${5:-4}

mkdir -p "$folder/swap"
[ -e "$folder/model-$size/config.json" ] ||
    "$zinf" init --arch llama --size "$size" --context 4096 --tokenizer bytes --vocab 32000 \
        --dtype bf16 --config-only --output "$folder/model-$size"
cat >"$folder/config.json" <<END
{
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 1,
    "gradient_clipping": 0,
    "bf16": {"enabled": true},
    "optimizer": {"type": "AdamW8bit", "params": {"lr": 2e-5, "weight_decay": 0.1}},
    "zero_optimization": {
        "stage": 3,
        "offload_param": {"device": "nvme", "nvme_path": "$folder/swap"},
        "offload_optimizer": {"device": "nvme", "nvme_path": "$folder/swap"}
    },
    "zinf": {"schedule": "update-in-place"}
}
END
budgets=(--device-memory "${DEVICE_MEMORY:-2GiB}" --host-memory "${HOST_MEMORY:-3GiB}")
"$zinf" estimate --model "$folder/model-$size" --config "$folder/config.json" \
    --seq-len "$seq_len" "${budgets[@]}"
rm -rf "$folder/output"
"$zinf" train --model "$folder/model-$size" --init --data "$text" --config "$folder/config.json" \
    --seq-len "$seq_len" --steps "$steps" "${budgets[@]}" --progress plain --no-final-checkpoint \
    --output "$folder/output"
# The first step is measured one operation at a time: nothing is predicted for it.
sed -n 's/.*"step": \([0-9]*\), "loss": \([0-9.]*\).*"step_seconds": \([0-9.]*\).*"predicted_seconds": \([0-9.]*\).*/step \1: loss \2, \3 s (predicted \4 s)/p' \
    "$folder/output/log.jsonl"
