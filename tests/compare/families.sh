#!/usr/bin/env bash
# What zinf writes, as transformers sees it. Each fixture is trained for ten steps; the folder that
# this writes must load without a message and give the logits of the weights that PyTorch trained
# (1e-4), and its loss and gradients must be those of `zinf gradients` (1e-5, 1e-4). A new model of
# each family must load without a message and have the same loss and gradients, too.
#
# Families whose code travels with the model are not among transformers' own and are left out here;
# tests/fixtures/own_models.py is what they are held against.
#
# usage: families.sh [FIXTURE ...]   (default: all in tests/fixtures)
# ZINF and PYTHON name the programs: a build's zinf, a Python with torch and transformers.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
fixtures=$here/../fixtures
zinf=${ZINF:-zinf} python=${PYTHON:-python3}
if [ $# = 0 ]; then
    for folder in "$fixtures"/*_[a-z]; do
        set -- "$@" "$(basename "$folder")"
    done
fi
own_code='chatglm|baichuan'
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
bad=0

value() { # file, key
    "$python" -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$1" "$2"
}

# shellcheck disable=SC2317 # by check()
compare_gradients() { # folder, data, sequence length, micro-batch
    "$zinf" gradients --model "$1" --data "$2" --seq-len "$3" --micro-batch "$4" \
        --output "$work/gradients.safetensors" >"$work/said.json"
    "$python" "$here/against_torch.py" --model "$1" --data "$2" --seq-len "$3" \
        --micro-batch "$4" --gradients "$work/gradients.safetensors" \
        --loss "$(value "$work/said.json" loss)" \
        --grad-norm "$(value "$work/said.json" grad_norm)" >"$work/compared" ||
        { grep -v '^ok' "$work/compared"; return 1; }
}

check() { # what it is, command...
    local what=$1
    shift
    if "$@" >"$work/log" 2>&1; then
        echo "ok   $what"
    else
        echo "BAD  $what"
        sed 's/^/     /' "$work/log"
        bad=1
    fi
}

for name; do
    [[ ! $name =~ ^($own_code)_ ]] || continue
    folder=$fixtures/$name
    data=$fixtures/$name/$(value "$folder/expected.json" data)
    seq=$(value "$folder/expected.json" seq_len) micro=$(value "$folder/expected.json" micro_batch)
    rm -rf "$work/out" "$work/torch"
    mkdir "$work/torch"
    cp "$folder/config.json" "$work/torch"
    cp "$folder/after10.safetensors" "$work/torch/model.safetensors"
    check "$name: ten steps" "$zinf" train --model "$folder" --data "$data" --no-shuffle \
        --config "$folder/zinf.json" --seq-len "$seq" --steps 10 --dropout 0 --progress none \
        --output "$work/out"
    check "$name: loads, logits as PyTorch's" "$python" "$here/load_folder.py" "$work/out/model" \
        --against "$work/torch" --threshold 1e-4
    check "$name: loss and gradients" compare_gradients "$work/out/model" "$data" "$seq" "$micro"
done
for arch in $(printf '%s\n' "$@" | sed 's/_[a-z]$//' | sort -u); do
    [[ ! $arch =~ ^($own_code)$ ]] || continue
    rm -rf "$work/new"
    check "$arch: a new model" "$zinf" init --arch "$arch" --layers 2 --hidden 64 --heads 4 \
        --vocab 257 --context 64 --seed 3 --output "$work/new"
    check "$arch: loads" "$python" "$here/load_folder.py" "$work/new"
    check "$arch: loss and gradients" compare_gradients "$work/new" "$fixtures/llama_a/tokens.npy" \
        32 3
done
exit $bad
