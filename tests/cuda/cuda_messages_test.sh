#!/bin/sh
# cuda_messages: what a training on a GPU that lacks something says: what it is and what to do. On
# the stand-in for CUDA.
. "$SRCDIR/tests/support/command.sh"
module=$BUILDDIR/tests/.libs/zinf-cuda-standin.so
config='{"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}'

start() {
    run 0 "$zinf" init --arch gpt2 --size small --layers 2 --hidden 32 --heads 2 --vocab 257 \
        --context 32 --tokenizer bytes --output "$work/model" || return 1
    make_text "$work/text" 40
    printf '%s}\n' "$config" >"$work/fp32.json"
    printf '%s, "bf16": {"enabled": true}}\n' "$config" >"$work/bf16.json"
    printf '%s, "fp16": {"enabled": true}}\n' "$config" >"$work/fp16.json"
}
train() { # status, configuration, variables...
    status=$1 words=$2
    shift 2
    rm -rf "$work/run"
    run "$status" env ZINF_CUDA_MODULE="$module" "$@" "$zinf" train --model "$work/model" \
        --data "$work/text" --config "$work/$words.json" --device cuda --seq-len 16 --steps 2 \
        --progress none --output "$work/run"
}

bf16_too_early() {
    train 1 bf16 ZINF_STANDIN_CAPABILITY=75 && complains "sm_75" '"fp16"' &&
        train 0 fp16 ZINF_STANDIN_CAPABILITY=75 && train 0 bf16 ZINF_STANDIN_CAPABILITY=80
}
driver_too_old() {
    train 1 fp32 ZINF_STANDIN_OLD_DRIVER=1 && complains "too old for CUDA" "install driver"
}
not_that_gpu() {
    train 1 fp32 ZINF_STANDIN_GPUS=2 ZINF_GPU=2 && complains "GPU 2 of 2" "index from 0" &&
        train 0 fp32 ZINF_STANDIN_GPUS=2 ZINF_GPU=1
}
# The plan has nothing to leave out: it needs more than there is.
too_little_memory() {
    train 1 fp32 ZINF_STANDIN_MEMORY=402653184 && complains "device" "MiB"
}
# It was told of more than there is.
more_than_it_has() {
    printf '%s, "zinf": {"device_memory": "80GiB"}}\n' "$config" >"$work/large.json"
    train 1 large ZINF_STANDIN_MEMORY=4194304 &&
        complains "lower zinf.device_memory" "out of memory" "free on the GPU"
}
not_pinned() {
    train 0 fp32 ZINF_STANDIN_NO_PINNING=1 && complains "page-locked as a whole" "zinf.host_memory"
}
no_epilogue() {
    train 0 fp32 ZINF_STANDIN_NO_EPILOGUES=1 && [ -d "$work/run/model" ]
}
no_algorithm() {
    train 1 fp32 ZINF_STANDIN_NO_ALGORITHMS=1 && complains "matmul" "cuBLASLt status"
}
# A module of other sources has other tables of functions.
other_build() {
    newer=$module module=$work/older.so
    number=$(grep -aoE '[0-9]+\.[0-9]+\.[0-9]+-[0-9]{5,}' "$newer" | head -n 1)
    [ -n "$number" ] && sed "s/$number/9${number#?}/" "$newer" >"$module" &&
        train 1 fp32 && complains "is no CUDA module of this version" "is of 9${number#?}" \
        "this zinf of $number" "from the same sources"
    result=$?
    module=$newer
    return $result
}

if [ ! -f "$module" ]; then
    skip "messages of a GPU" "no stand-in for CUDA here"
    finish
fi
check "a model" start
check "bf16 before sm_80" bf16_too_early
check "a driver that is too old" driver_too_old
check "a GPU that is not there" not_that_gpu
check "less memory than a plan needs" too_little_memory
check "more memory asked for than there is" more_than_it_has
check "no page-locked memory" not_pinned
check "no product with a bias" no_epilogue
check "no product at all" no_algorithm
check "a module of another build" other_build
finish
