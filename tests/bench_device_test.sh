#!/bin/sh
# zinf bench gemm, attention and pcie: figures of the host device and, where it was built, of the
# stand-in for a GPU; what is kept for zinf estimate; what is refused.
zinf=$BUILDDIR/zinf
work=$(mktemp -d "$BUILDDIR/bench_device_test.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
XDG_CACHE_HOME=$work/cache
export XDG_CACHE_HOME
unset ZINF_CUDA_MODULE
kept=$XDG_CACHE_HOME/zinf/bench.json
standin=$BUILDDIR/tests/.libs/zinf-cuda-standin.so
n=0
failed=0
result() { # ok|"not ok", name
    n=$((n + 1))
    echo "$1 $n - $2"
    [ "$1" = ok ] || { failed=1; sed 's/^/# /' "$work/out" "$work/err"; }
}
run() { # status, arguments...: streams in $work/out and $work/err
    status=$1
    shift
    "$zinf" bench "$@" >"$work/out" 2>"$work/err"
    got=$?
    [ $got -eq "$status" ]
}
has() { # file, words...
    file=$1
    shift
    for words; do grep -qF -e "$words" "$file" || { echo "# no '$words' in $file"; return 1; }; done
}
check() { # name, command...
    name=$1
    shift
    if "$@"; then result ok "$name"; else result "not ok" "$name"; fi
}
gemm_on_host() {
    run 0 gemm --device host --m 48 --n 32 --k 40 --threads 1 &&
        has "$work/out" "host (" "forward" "dX" "dW" "Tflop/s" && has "$kept" '"gemm"' '"bf16"'
}
gemm_json() {
    run 0 gemm --device host --type fp32 --m 16 --n 16 --k 16 --threads 1 --json &&
        has "$work/out" '"way":' '"flops":' && has "$kept" '"fp32"'
}
attention_on_host() {
    run 0 attention --device host --seq 32 --heads 2 --kv-heads 1 --head-dim 32 --threads 1 &&
        has "$work/out" "forward" "backward" && has "$kept" '"attention"'
}
sizes_go_together() { run 2 gemm --m 16 && has "$work/err" "--m, --n and --k go together"; }
unknown_device() { run 2 gemm --device tpu && has "$work/err" "--device tpu"; }
needs_a_gpu() {
    run 1 pcie --size 64KiB && has "$work/err" "no CUDA device: "
}
on_a_gpu() {
    run 0 gemm --device cuda --m 24 --n 16 --k 32 && run 0 attention --device cuda --batch 1 \
        --seq 16 --heads 1 --head-dim 32 && run 0 pcie --size 256KiB --json &&
        has "$work/out" '"pinned"' '"pageable"' '"to_device"' '"both"' && has "$kept" '"pcie"'
}

check "gemm on the host" gemm_on_host
check "gemm as JSON" gemm_json
check "attention on the host" attention_on_host
check "some of the sizes alone" sizes_go_together
check "an unknown device" unknown_device
if "$zinf" report 2>/dev/null | grep -q '^cuda.*free'; then
    result ok "pcie without a GPU # SKIP there is one"
else
    check "pcie without a GPU" needs_a_gpu
fi
if [ -f "$standin" ]; then
    ZINF_CUDA_MODULE=$standin
    export ZINF_CUDA_MODULE
    check "on the stand-in for a GPU" on_a_gpu
else
    result ok "on the stand-in for a GPU # SKIP not built here"
fi
echo "1..$n"
exit $failed
