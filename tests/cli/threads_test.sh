#!/bin/sh
# The number of threads changes no bit of what is trained, on processors whose products are zinf's own
# (AVX-512); products of OpenBLAS may differ by rounding.
. "$SRCDIR/tests/support/command.sh"
cd "$work" || exit 99
make_text text.txt 200
train() { # output, threads, options...
    out=$1 threads=$2
    shift 2
    run 0 "$zinf" train --model model --data text.txt --output "$out" --seq-len 256 --micro-batch 3 \
        --accumulate 1 --threads "$threads" --progress none --lr-scheduler constant --steps 2 \
        --overwrite "$@"
}
alike() { # family, size, options of init...
    arch=$1 size=$2
    shift 2
    rm -rf model
    run 0 "$zinf" init --arch "$arch" --size "$size" --layers 2 --hidden 128 --tokenizer bytes \
        --context 256 --output model "$@" || return 1
    for type in fp32 bf16; do
        train one 1 --dtype $type || return 1
        train more 3 --dtype $type &&
            cmp one/model/model.safetensors more/model/model.safetensors || return 1
    done
}
run 0 "$zinf" init --arch gpt2 --size small --layers 1 --hidden 128 --heads 2 --tokenizer bytes --context 256 \
    --output model || exit 99
if train one 1 --plan && complains "plan: host (avx512"; then
    check "layer norms" alike gpt2 small --heads 2
    check "norms of heads" alike qwen3 0.6b
    check "experts" alike mixtral 8x7b
    check "scans" alike qwen3_next 80b-a3b
    check "soft caps and norms behind" alike gemma2 2b
else
    skip "threads change nothing" "this processor has no AVX-512"
fi
finish
