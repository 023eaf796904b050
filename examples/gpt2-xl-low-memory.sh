#!/usr/bin/env bash
# GPT-2 XL (1.56 billion parameters) trains in 4 GiB of RAM: parameters in bf16, exact fp32 AdamW
# state and gradients on a drive, clipping on. Prints the peak of resident memory, the step time
# that was predicted, the time of the lane that limits it (the floor) and the ratio of the two.
#
# usage: gpt2-xl-low-memory.sh TEXT FOLDER [SEQ_LEN [STEPS]]
#   TEXT     a text to train on
#   FOLDER   a folder on a local drive with 55 GB free; everything is written there
# HOST_MEMORY sets the budget of RAM, beside 1 GiB for the host as the device (3GiB); PACK is zinf.pack.
set -euo pipefail
zinf=${ZINF:-zinf}
text=${1:?usage: gpt2-xl-low-memory.sh TEXT FOLDER [SEQ_LEN [STEPS]]}
folder=${2:?usage: gpt2-xl-low-memory.sh TEXT FOLDER [SEQ_LEN [STEPS]]}
seq_len=${3:-256}
steps=${4:-4}

mkdir -p "$folder/swap"
if [ ! -e "$folder/model/config.json" ]; then
    "$zinf" init --arch gpt2 --size xl --tokenizer bytes --vocab 50257 --dtype bf16 --output "$folder/model"
fi
cat >"$folder/config.json" <<END
{
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 1,
    "gradient_clipping": ${CLIP:-1.0},
    "bf16": {"enabled": true},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-5, "weight_decay": 0.1}},
    "zero_optimization": {
        "stage": 3,
        "offload_param": {"device": "nvme", "nvme_path": "$folder/swap"},
        "offload_optimizer": {"device": "nvme", "nvme_path": "$folder/swap"}
    },
    "zinf": {"schedule": "${SCHEDULE:-auto}", "pack": "${PACK:-auto}"}
}
END
rm -rf "$folder/output"
"$zinf" train --model "$folder/model" --data "$text" --config "$folder/config.json" \
    --seq-len "$seq_len" --steps "$steps" --device-memory 1GiB --host-memory "${HOST_MEMORY:-3GiB}" \
    --progress plain --no-final-checkpoint --output "$folder/output" | tee "$folder/result.json"

# The last steps: the first is measured one operation at a time, the second fills the pipeline.
sed -n '/"predicted_seconds"/p' "$folder/output/log.jsonl" | tail -n +2 |
    sed 's/.*"step_seconds": \([0-9.]*\).*"predicted_seconds": \([0-9.]*\).*"lane_seconds": {\([^}]*\)}.*/\1 \2 \3/; s/[",]//g; s/: / /g' |
    awk -v seq="$seq_len" '
        { n++; time += $1; expected += $2; for (i = 3; i < NF; i += 2) busy[$i] += $(i + 1) }
        END {
            if (!n) { print "run at least 3 steps to see a rate"; exit }
            for (lane in busy) if (busy[lane] > most) { most = busy[lane]; name = lane }
            printf "step: %.1f s (%.1f tokens/s), predicted %.1f s; ", time / n, seq * n / time,
                expected / n
            printf "floor: lane %s was busy %.1f s, ratio %.2f\n", name, most / n, most / time
        }'
