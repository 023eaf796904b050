#!/bin/sh
# The setting of nanogpt_shakespeare.sh with several optimizers, everything on the device: one page with
# the curves of all, and the loss on the last tenth of the text every 100 steps.
#
# Usage: optimizers_shakespeare.sh TEXT WORK
# ZINF names the command to run (default: zinf).
set -eu

if [ $# -ne 2 ]; then
    sed -n 's/^# \{0,1\}//;2,6p' "$0" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
zinf=${ZINF:-zinf}
work=$2
mkdir -p "$work"
bytes=$(wc -c <"$1")
cut=$((bytes * 9 / 10))
head -c "$cut" "$1" >"$work/train.txt"
tail -c "+$((cut + 1))" "$1" >"$work/validation.txt"
cd "$work"
[ -d init ] ||
    "$zinf" init --arch gpt2 --size small --layers 4 --hidden 128 --heads 4 --vocab 257 \
        --context 64 --seed 1337 --dtype fp32 --output init

train() { # name, type, rates
    sed -e '/offload/d' -e 's/"stage": 3,/"stage": 0/' -e "s/\"AdamW\"/\"$2\"/" \
        -e "s/\"lr\": 1e-3/$3/" "$here/nanogpt_shakespeare.json" >"$1.json"
    "$zinf" train --no-final-checkpoint --model init --data train.txt --eval-data validation.txt \
        --eval-every 100 --config "$1.json" --seq-len 64 --steps 2000 --seed 1337 --dropout 0 \
        --output "$1" --threads 1
}
train adamw-1e-3 AdamW '"lr": 1e-3'
train adamw-3e-3 AdamW '"lr": 3e-3'
train muon Muon '"muon_lr": 0.02, "adam_lr": 3e-3'
train normuon NorMuon '"lr": 3e-3'
"$zinf" plot adamw-1e-3 adamw-3e-3 muon normuon --no-charts --output optimizers.html
