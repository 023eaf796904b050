#!/bin/sh
# Trains nanoGPT's small CPU setting on Shakespeare with parameters and optimizer state on the
# drive: 4 layers, 4 heads, 128 wide, context 64, batch 12, 2000 steps. nanoGPT publishes a
# validation loss of 1.88; torch_nanogpt.py beside this file reached 1.871 and 1.887 (two seeds).
#
# Usage: nanogpt_shakespeare.sh TEXT WORK [fp32|bf16] [zinf train option ...]
#   TEXT  tinyshakespeare: the first 90 % trains, the last 10 % validates
#   WORK  a folder on a drive, not on tmpfs; it receives the data, the swap files and the run
# ZINF names the command to run (default: zinf).
set -eu

if [ $# -lt 2 ]; then
    sed -n 's/^# \{0,1\}//;2,9p' "$0" >&2
    exit 2
fi
here=$(dirname "$0")
zinf=${ZINF:-zinf}
text=$1
work=$2
precision=${3:-fp32}
shift $(($# < 3 ? $# : 3))
case $precision in
    fp32) bf16=false ;;
    bf16) bf16=true ;;
    *) echo "nanogpt_shakespeare.sh: precision is fp32 or bf16, not $precision" >&2; exit 2 ;;
esac

mkdir -p "$work/swap"
bytes=$(wc -c < "$text")
cut=$((bytes * 9 / 10))
head -c "$cut" "$text" > "$work/train.txt"
tail -c "+$((cut + 1))" "$text" > "$work/validation.txt"
sed -e "s|NVME_PATH|$work/swap|" -e "s|\"enabled\": false|\"enabled\": $bf16|" \
    "$here/nanogpt_shakespeare.json" > "$work/$precision.json"

if [ ! -d "$work/init" ]; then
    "$zinf" init --arch gpt2 --size small --layers 4 --hidden 128 --heads 4 --vocab 257 \
        --context 64 --seed 1337 --dtype fp32 --output "$work/init"
fi
"$zinf" train --no-final-checkpoint --model "$work/init" --data "$work/train.txt" --config "$work/$precision.json" \
    --seq-len 64 --steps 2000 --seed 1337 --dropout 0 --output "$work/$precision" "$@"
"$zinf" eval --model "$work/$precision/model" --data "$work/validation.txt" --seq-len 64
