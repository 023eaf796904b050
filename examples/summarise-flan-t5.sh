#!/usr/bin/env bash
# FLAN-T5 learns to summarise dialogues: from a Hugging Face folder and two files of rows to a model
# and its ROUGE scores. Parameters, gradients and optimizer state lie on a drive, numbers are bf16:
# in fp16 T5's feed-forward parts overflow.
#
# usage: summarise-flan-t5.sh MODEL TRAIN EVAL FOLDER [OPTION...]
#        summarise-flan-t5.sh --rehearse FOLDER [STEPS]
#   MODEL    such as google/flan-t5-xl, fetched by: hf download google/flan-t5-xl
#            --local-dir flan-t5-xl
#   TRAIN    JSON lines or CSV with the columns dialogue and summary (samsum has them)
#   EVAL     the same, held out
#   FOLDER   on a local drive; everything is written there
#   OPTION   of zinf train, instead of those below
# --rehearse takes the same way with a small new model and the dialogues beside this script.
set -euo pipefail
zinf=${ZINF:-zinf}
here=$(cd "$(dirname "$0")" && pwd)
usage='usage: summarise-flan-t5.sh MODEL TRAIN EVAL FOLDER [OPTION...], or --rehearse FOLDER [STEPS]'
columns=(--source-column dialogue --target-column summary --prefix 'summarize: ')

if [ "${1:-}" = --rehearse ]; then
    folder=${2:?$usage}
    steps=${3:-500}
    mkdir -p "$folder"
    model=$folder/new
    train=$here/seq2seq/dialogues-train.jsonl
    held_out=$here/seq2seq/dialogues-eval.jsonl
    [ -e "$model/config.json" ] || "$zinf" init --arch t5 --size small --layers 2 --hidden 64 \
        --heads 4 --tokenizer bytes --output "$model"
    number_type='"fp16": {"enabled": false}'
    options=(--threads 1 --micro-batch 16 --steps "$steps" --lr 3e-3 --warmup-steps 20 --dropout 0)
    eval_options=(--threads 1 --metric-samples 20)
else
    model=${1:?$usage}
    train=${2:?$usage}
    held_out=${3:?$usage}
    folder=${4:?$usage}
    shift 4
    mkdir -p "$folder"
    number_type='"bf16": {"enabled": true}'
    options=(--micro-batch 8 --epochs 5 --lr 5e-5 --lr-scheduler linear "$@")
    eval_options=()
fi

mkdir -p "$folder/swap"
cat >"$folder/config.json" <<END
{
  "train_batch_size": "auto",
  "train_micro_batch_size_per_gpu": "auto",
  "gradient_clipping": 1.0,
  $number_type,
  "zero_optimization": {
    "stage": 3,
    "offload_param":     {"device": "nvme", "nvme_path": "$folder/swap"},
    "offload_optimizer": {"device": "nvme", "nvme_path": "$folder/swap"}
  }
}
END
"$zinf" train --model "$model" --data "$train" --eval-data "$held_out" "${columns[@]}" \
    --config "$folder/config.json" --output "$folder/output" --overwrite --no-final-checkpoint \
    "${options[@]}"
"$zinf" eval --model "$folder/output/model" --data "$held_out" "${columns[@]}" \
    --config "$folder/config.json" --metric rouge1 rouge2 rougeL rougeLsum --stem \
    --max-new-tokens 64 --predictions "$folder/predictions.jsonl" \
    ${eval_options[@]+"${eval_options[@]}"} | tee "$folder/scores.json"
