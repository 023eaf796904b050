#!/bin/sh
# bundle: the folder that runs elsewhere has all that it needs: without an environment, from another
# folder, it starts, looks for a GPU, and its tests find their models. On the stand-in for CUDA.
. "$SRCDIR/tests/support/command.sh"
folder=$work/zinf-bundle

bare() { # status, variables and command...: in an empty environment, elsewhere
    run "$1" sh -c 'cd / && status=$1 && shift && exec env -i PATH="$PATH" HOME=/ "$@"' bare "$@"
}
starts() {
    bare 0 "$folder/zinf" --version && bare 0 "$folder/zinf" report && says "cuda"
}
doctor() {
    bare 0 ZINF_CUDA_MODULE="$folder/tests/zinf-cuda-standin.so" TMPDIR="$work" "$folder/zinf" doctor &&
        says "kernels    ok" "step       ok"
}
# All fixtures that the tests name have come along.
models() {
    bare 0 ZINF_CUDA_MODULE="$folder/tests/zinf-cuda-standin.so" SRCDIR="$folder" \
        LD_LIBRARY_PATH="$folder/lib" "$folder/tests/cuda/cuda_model_test" &&
        ! grep -q SKIP "$work/said.out"
}
# What the machine has to bring is said where it is not there: its own loader finds no cuBLAS.
names_what_is_missing() {
    bare 1 ZINF_CUDA_LIBRARIES=/nowhere "$folder/run-gpu-checks.sh" "$work/results" suite
    [ -s "$work/results/summary.txt" ] && [ -s "$work/results/results.json" ] &&
        [ -s "$work/results/logs.tar.gz" ] && says "there is no GPU to check" "libcublasLt"
}

if [ ! -f "$BUILDDIR/.libs/zinf-cuda.so" ] || [ ! -f "$BUILDDIR/tests/.libs/zinf-cuda-standin.so" ]; then
    skip "the bundle" "no CUDA module or no stand-in here"
    finish
fi
check "is made" run 0 "$SRCDIR/scripts/bundle.sh" "$BUILDDIR" "$folder"
check "starts" starts
check "doctor" doctor
check "its tests find their models" models
if ldd "$BUILDDIR/.libs/zinf-cuda.so" | grep -q 'libcublasLt.*not found'; then
    check "what is missing is named" names_what_is_missing
else
    skip "what is missing is named" "this machine has cuBLAS"
fi
finish
