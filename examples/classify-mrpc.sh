#!/usr/bin/env bash
# DeBERTa, BERT or RoBERTa learns to tell paraphrases from other pairs of sentences, as in MRPC: from
# a Hugging Face folder and two files of pairs to a model, its accuracy and F1.
#
# usage: classify-mrpc.sh MODEL TRAIN EVAL FOLDER [OPTION...]
#        classify-mrpc.sh --rehearse FOLDER [STEPS]
#   MODEL    such as microsoft/deberta-v2-xlarge, fetched by: hf download
#            microsoft/deberta-v2-xlarge --local-dir deberta. A folder without a head for classes is
#            given one; one with a head for others (deberta-v2-xlarge-mnli) with --new-head.
#   TRAIN    TSV, CSV or JSON lines with the columns sentence1, sentence2 and label
#   EVAL     the same, held out
#   FOLDER   on a local drive; everything is written there
#   OPTION   of zinf train, instead of those below
# --rehearse takes the same way with a small new DeBERTa and the sentences beside this script.
set -euo pipefail
zinf=${ZINF:-zinf}
here=$(cd "$(dirname "$0")" && pwd)
usage='usage: classify-mrpc.sh MODEL TRAIN EVAL FOLDER [OPTION...], or --rehearse FOLDER [STEPS]'
columns=(--source-column sentence1,sentence2 --label-column label)

if [ "${1:-}" = --rehearse ]; then
    folder=${2:?$usage}
    steps=${3:-600}
    mkdir -p "$folder"
    model=$folder/new
    train=$here/classify/pairs-train.tsv
    held_out=$here/classify/pairs-eval.tsv
    [ -e "$model/config.json" ] || "$zinf" init --arch deberta-v2 --size v3-small --layers 2 \
        --hidden 64 --heads 4 --tokenizer "$here/classify" --context 64 --output "$model"
    number_type='"fp16": {"enabled": false}'
    options=(--threads 1 --micro-batch 32 --steps "$steps" --lr 1e-3 --warmup-steps 20)
    eval_options=(--threads 1)
    every=$((steps > 4 ? steps / 4 : 1))
else
    model=${1:?$usage}
    train=${2:?$usage}
    held_out=${3:?$usage}
    folder=${4:?$usage}
    shift 4
    mkdir -p "$folder"
    number_type='"bf16": {"enabled": true}'
    options=(--micro-batch 16 --accumulate 2 --epochs 3 --lr 2e-5 --lr-scheduler linear
        --seq-len 128 "$@")
    eval_options=()
    every=50
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
"$zinf" train --model "$model" --task classification --data "$train" --eval-data "$held_out" \
    "${columns[@]}" --config "$folder/config.json" --output "$folder/output" --overwrite \
    --no-final-checkpoint --eval-every "$every" --metric f1 accuracy --load-best-at-end \
    "${options[@]}"
"$zinf" eval --model "$folder/output/model" --data "$held_out" "${columns[@]}" \
    --config "$folder/config.json" --metric accuracy f1 matthews \
    --predictions "$folder/predictions.jsonl" ${eval_options[@]+"${eval_options[@]}"} |
    tee "$folder/scores.json"
