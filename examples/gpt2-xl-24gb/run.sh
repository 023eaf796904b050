#!/usr/bin/env bash
# Trains GPT-2 XL (1.56 billion parameters), or a GPT-2 of 13 billion, on one GPU of 24 GB, from
# fresh weights. Prints the plan of all memory first; what does not fit is refused there.
#
# usage: run.sh xl|13b TEXT FOLDER [ARGUMENT-OF-ZINF-TRAIN...]
#   TEXT     a text to train on
#   FOLDER   receives model, run with its last checkpoint and, for 13b, what goes to the drive: 30 GB,
#            or 620 GB; --no-final-checkpoint leaves out 22 GB, or 180 GB of it
set -euo pipefail
[ $# -ge 3 ] || { sed -n 's/^# usage: /usage: /p' "$0" >&2; exit 2; }
here=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
zinf=${ZINF:-zinf} size=$1 text=$2 folder=$3
shift 3
case $size in
xl) shape=(--size xl) ;;
13b) shape=(--size xl --layers 40 --hidden 5120 --heads 40) ;;
*) echo "run.sh: '$size': xl or 13b" >&2; exit 2 ;;
esac

mkdir -p "$folder/swap"
[ -e "$folder/$size/config.json" ] ||
    "$zinf" init --arch gpt2 "${shape[@]}" --tokenizer bytes --vocab 50257 --dtype bf16 --output "$folder/$size"
sed "s|NVME|$folder/swap|" "$here/$size.json" >"$folder/$size.json"
exec "$zinf" train --model "$folder/$size" --data "$text" --config "$folder/$size.json" \
    --seq-len 1024 --output "$folder/run-$size" "$@"
