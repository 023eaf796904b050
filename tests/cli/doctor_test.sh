#!/bin/sh
# doctor: one line for all that a training on a GPU needs, on the stand-in for CUDA: a good machine,
# and machines that lack something, each with its remedy.
. "$SRCDIR/tests/support/command.sh"
module=$BUILDDIR/tests/.libs/zinf-cuda-standin.so

doctor() { # status, variables...
    status=$1
    shift
    run "$status" env ZINF_CUDA_MODULE="$module" TMPDIR="$work" "$@" "$zinf" doctor
}
# Each run takes seconds, and most cases look at a line or two: several share a run where what they
# set does not touch what the others look at. GB of a GPU are what it has free, less what its driver
# takes of it and a margin.
gigabytes() { # GB, variables...
    memory=${1}000000000
    shift
    doctor 0 ZINF_STANDIN_CONTEXT=450000000 ZINF_STANDIN_MEMORY="$memory" "$@"
}

all_good() {
    gigabytes 24 && says "GPU        ok" "memory     ok" "21.56 GiB free" "copies     ok" \
        "products   ok" \
        "norms      ok" "attention  ok" "cached     ok" "numbers    ok" "rows       ok" \
        "losses     ok" "mixers     ok" "experts    ok" "weights    ok" "updates    ok" \
        "kernels    ok" "others are for later GPUs" "step       ok" "in one piece" &&
        ! grep -q 'FAILED\|warning\|remedy' "$work/said.out"
}
# The module itself says of each kernel whether it was launched: a new one cannot be forgotten.
every_kernel() {
    gigabytes 12 ZINF_STANDIN_CAPABILITY=89 ZINF_NCCL_LIBRARY="$module" \
        ZINF_MPI_MODULE="$work/none.so" && says "kernels    ok        all " " were run"
}
its_links() { # of the same run
    says "memory     ok" "10.38 GiB free" "links      ok        NCCL 2.28.0 (" \
        "zinf-cuda-standin.so)" "over TCP (torchrun" "no MPI module"
}
# A kernel that leaves what it should write: operation, shape and array are named, with both numbers.
wrong_kernels() {
    doctor 1 ZINF_STANDIN_SKIPS=adam_kernel,sum_squares,scan_number_gradients,convolution_dw,sinks_kernel,heads_sum,xielu,magnitude_kernel,preference,norm_dx &&
        says "updates    FAILED    adam, the master alone, fp32, 4097 numbers: " " on the host " \
            "mixers     FAILED    scan by deltas, fp32, 1 x 140 rows, 2 heads of 9 by 5: d_gates" \
            "convolution, fp32" "cached     FAILED    sinks, fp32" "numbers    FAILED    xielu, fp32" \
            "rows       FAILED    copy_heads, fp32" "weights    FAILED    magnitude, fp32" \
            "losses     FAILED    preference, kind 0" "norms      FAILED    layer norm, fp32, 7 rows" \
            "report it with" "experts    ok" "attention  ok"
}
# A kernel that ends all work on the GPU: it alone is named, and what comes behind it is left out.
ended_by_a_kernel() {
    doctor 1 ZINF_STANDIN_TRAPS=xielu_kernel &&
        says "cached     ok" "numbers    FAILED    xielu, fp32, 5 x 37" "cudaErrorIllegalAddress" \
            "the rest   left out" "does nothing more in this process" \
            "compute-sanitizer zinf doctor" "step       ok" &&
        [ "$(grep -c '^[a-z]* *FAILED' "$work/said.out")" = 1 ] &&
        ! grep -q '^kernels' "$work/said.out"
}
no_bf16() {
    gigabytes 8 ZINF_STANDIN_CAPABILITY=75 ZINF_NCCL_LIBRARY="$work/none.so" &&
        says "GPU        warning" "fp16" "sm_75" "others are for later GPUs"
}
without_nccl() { # the same run
    says "memory     ok" "6.66 GiB free" "links      left out" "$work/none.so" "ZINF_NCCL_LIBRARY"
}
old_driver() {
    doctor 1 ZINF_STANDIN_OLD_DRIVER=1 && says "GPU        FAILED" "too old for CUDA" \
        "install driver" "the rest   left out"
}
no_pinning() {
    doctor 1 ZINF_STANDIN_NO_PINNING=1 ZINF_STANDIN_GPUS=2 ZINF_GPU=1 &&
        says "copies     FAILED" "page-locking" "remedy" "products   ok" "(GPU 1, sm_80)"
}
no_algorithm() {
    doctor 1 ZINF_STANDIN_NO_ALGORITHMS=1 && says "products   FAILED" "matmul, 17 x 24 x 33" "cuBLASLt" \
        "more" "norms      ok" "step       FAILED"
}
small_gpu() {
    doctor 0 ZINF_STANDIN_MEMORY=700000000 ZINF_STANDIN_CONTEXT=100000000 \
        ZINF_NCCL_LIBRARY="$module" ZINF_STANDIN_NCCL_VERSION=21300 &&
        says "memory     ok" "MiB free" "links      left out" "its version is 21300"
}
another_gpu() {
    doctor 1 ZINF_STANDIN_GPUS=2 ZINF_GPU=2 && says "GPU 2 of 2" &&
        doctor 1 ZINF_GPU=first && says "ZINF_GPU=first is no number of a GPU"
}
report() {
    run 0 env ZINF_NCCL_LIBRARY="$module" ZINF_MPI_MODULE="$work/none.so" "$zinf" report &&
        says "NCCL 2.28.0 (" "several processes reach each other over TCP"
}
as_json() {
    run 1 env ZINF_CUDA_MODULE="$work/none.so" "$zinf" doctor --json &&
        says '"what":	"libraries"' '"state":	"FAILED"' '"remedy"'
}

if [ -f "$module" ]; then
    check "a good machine, with 24 GB" all_good
    check "a GPU of 12 GB that has units for all: every kernel" every_kernel
    check "and links between processes" its_links
    check "which a report names too" report
    check "kernels that do nothing are found, and named" wrong_kernels
    check "a kernel that ends all work on the GPU" ended_by_a_kernel
    check "sm_75 with 8 GB: products of bf16 are left out" no_bf16
    check "links too, without NCCL" without_nccl
    check "a driver that is too old" old_driver
    check "no page-locked memory, on the second GPU" no_pinning
    check "no algorithm for a product" no_algorithm
    check "a small GPU with a context, an old NCCL" small_gpu
    check "a GPU that is not there" another_gpu
else
    skip "doctor" "no stand-in for CUDA here"
fi
check "a module that is not there, as JSON" as_json
finish
