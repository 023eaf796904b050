#!/usr/bin/env bash
# A small chat model from nothing: 297 conversations about capitals (chat/capitals.jsonl), packed
# into windows, of which only the answers count; then questions in words that it was not trained on.
# A minute on two CPU cores.
#
# usage: chat.sh FOLDER [EPOCHS]
#   FOLDER   where everything is written
#
# With a model of your own: --model DIR of a Hugging Face folder instead of `zinf init`, no
# --chat-template where the folder has one that is known, and --lora-rank 16 to train adapters alone.
set -euo pipefail
zinf=${ZINF:-zinf}
folder=${1:?usage: chat.sh FOLDER [EPOCHS]}
epochs=${2:-20}
here=$(cd "$(dirname "$0")" && pwd)
data=$here/chat/capitals.jsonl
held_out=$here/chat/held-out.jsonl
template=(--chat-template mistral)
windows=(--pack --seq-len 256)

mkdir -p "$folder"
if [ ! -e "$folder/model/config.json" ]; then
    "$zinf" init --arch llama --size 3.2-1b --layers 4 --hidden 128 --heads 4 --context 256 \
        --tokenizer bytes --output "$folder/model"
fi
"$zinf" data --model "$folder/model" --data "$data" "${template[@]}" "${windows[@]}" --samples 2
"$zinf" train --model "$folder/model" --data "$data" --eval-data "$held_out" "${template[@]}" "${windows[@]}" \
    --micro-batch 8 --epochs "$epochs" --lr 3e-3 --lr-scheduler cosine --warmup-steps 20 \
    --no-final-checkpoint --overwrite --output "$folder/output"

field() { # what a role says, a line each
    sed -n 's/.*"role": "'"$1"'", "content": "\([^"]*\)".*/\1/p' "$held_out"
}
field user >"$folder/questions.txt"
field assistant >"$folder/answers.txt"
"$zinf" generate --model "$folder/output/model" --chat --temperature 0 \
    --max-new-tokens 60 --prompts "$folder/questions.txt" | sed '/^$/d' >"$folder/said.txt"
paste -d '\n' "$folder/questions.txt" "$folder/said.txt" | sed -n '1,8p'
right=$(paste -d '|' "$folder/answers.txt" "$folder/said.txt" | awk -F '|' '$1 == $2' | wc -l)
echo "$right of $(wc -l <"$folder/answers.txt") answers are right"
