#!/usr/bin/env bash
# Blenderbot learns to answer: an encoder-decoder on rows of questions and answers, from a Hugging
# Face folder and two files to a model, its BLEU, and answers by beam search.
#
# usage: seq2seq-blenderbot.sh MODEL TRAIN EVAL FOLDER [OPTION...]
#        seq2seq-blenderbot.sh --rehearse FOLDER [STEPS]
#   MODEL    such as facebook/blenderbot-400M-distill, fetched by: hf download
#            facebook/blenderbot-400M-distill --local-dir blenderbot
#   TRAIN    JSON lines, CSV or TSV with the columns question and answer
#   EVAL     the same, held out
#   FOLDER   everything is written there
#   OPTION   of zinf train, instead of those below
# --rehearse takes the same way with a small new model and the questions beside this script.
set -euo pipefail
zinf=${ZINF:-zinf}
here=$(cd "$(dirname "$0")" && pwd)
usage='usage: seq2seq-blenderbot.sh MODEL TRAIN EVAL FOLDER [OPTION...], or --rehearse FOLDER [STEPS]'
columns=(--source-column question --target-column answer)

if [ "${1:-}" = --rehearse ]; then
    folder=${2:?$usage}
    steps=${3:-600}
    mkdir -p "$folder"
    model=$folder/new
    train=$here/seq2seq/answers-train.tsv
    held_out=$here/seq2seq/answers-eval.tsv
    [ -e "$model/config.json" ] || "$zinf" init --arch blenderbot --size 400m-distill --layers 2 \
        --hidden 64 --heads 4 --tokenizer bytes --context 64 --output "$model"
    options=(--threads 1 --micro-batch 16 --steps "$steps" --lr 2e-3 --warmup-steps 20 --dropout 0)
    eval_options=(--threads 1)
else
    model=${1:?$usage}
    train=${2:?$usage}
    held_out=${3:?$usage}
    folder=${4:?$usage}
    shift 4
    mkdir -p "$folder"
    options=(--micro-batch 8 --accumulate 4 --epochs 3 --lr 1e-5 --source-len 128 --seq-len 64 "$@")
    eval_options=()
fi

"$zinf" train --model "$model" --data "$train" --eval-data "$held_out" "${columns[@]}" \
    --prefix 'chatbot: ' --output "$folder/output" --overwrite --no-final-checkpoint \
    "${options[@]}"
"$zinf" eval --model "$folder/output/model" --data "$held_out" "${columns[@]}" \
    --prefix 'chatbot: ' --metric bleu rougeL exact_match --max-new-tokens 48 \
    --predictions "$folder/predictions.jsonl" ${eval_options[@]+"${eval_options[@]}"} |
    tee "$folder/scores.json"
"$zinf" generate --model "$folder/output/model" --num-beams 4 --no-repeat-ngram 3 \
    --max-new-tokens 48 --prompt 'chatbot: What is two plus three?' \
    ${eval_options[@]+"${eval_options[@]}"}
