#!/bin/sh
# ptxas: what the build reads of the compiler's reports on kernels: one that spills registers, has
# a stack, or takes more static shared memory than launches reckon with, ends it and is named; and
# the table of registers (scripts/registers.sh).
. "$SRCDIR/tests/support/command.sh"
judge() { run "$1" sh "$SRCDIR/kernels/cuda/check_ptxas.sh" "$work/log"; }

report() { # kernel, generation, bytes spilled, registers, static shared memory, stack
    echo "ptxas info    : Compiling entry function '_Z11${1}_kernelIfEv4args' for 'sm_$2'"
    echo "ptxas info    : Function properties for _Z11${1}_kernelIfEv4args"
    echo "    ${6:-0} bytes stack frame, $3 bytes spill stores, $3 bytes spill loads"
    echo "ptxas info    : Used $4 registers, used 1 barriers, $5 bytes smem, 472 bytes cmem[0]"
}
passes() {
    report sum 80 0 40 4096 >"$work/log" && judge 0
}
names_spills() {
    { report sum 80 0 40 4096; report norm 90 24 255 0; } >"$work/log" && judge 1 &&
        complains "norm_kernel" "on sm_90 spills" && ! grep -q sum "$work/said.err"
}
names_a_stack() {
    { report sum 80 0 40 4096; report turn 90 0 40 0 28; } >"$work/log" && judge 1 &&
        complains "turn_kernel" "on sm_90 has a stack" && ! grep -q sum "$work/said.err"
}
names_shared_memory() {
    report sum 80 0 40 8208 >"$work/log" && judge 1 &&
        complains "takes 8208 bytes of shared memory"
}
# The compiler's own words.
knows_the_compiler() {
    cat >"$work/spills.cu" <<'END'
__global__ void wide_kernel(float *x)
{
    float a[48];
#pragma unroll
    for (int i = 0; i < 48; i++)
        a[i] = x[i * 32 + threadIdx.x];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 48; i++)
        x[(47 - i) * 32 + threadIdx.x] = a[i] * a[(i * 7) % 48];
}
END
    "$NVCC" -arch=sm_80 -O3 -maxrregcount=24 -Xptxas -v -cubin -o "$work/spills.cubin" \
        "$work/spills.cu" >"$work/log" 2>&1 && judge 1 && complains "wide_kernel" "on sm_80 spills"
}
table() {
    mkdir -p "$work/kernels/cuda"
    { report sum 80 0 40 0; report sum 120 8 64 0; report sum 80 0 48 0; report norm 80 0 32 0
        report norm 120 0 33 0; } >"$work/kernels/cuda/norm.lo.log"
    run 0 "$SRCDIR/scripts/registers.sh" "$work" &&
        says "| kernel | instances | sm_80 | sm_120 |" "| norm | 1 | 32 | 33 |" \
            "| sum | 2 | 48 | 64+16 |"
}

check "a kernel that fits" passes
check "spills are named" names_spills
check "so is a stack" names_a_stack
check "so is too much static shared memory" names_shared_memory
NVCC=$(PATH=$PATH:/usr/local/cuda/bin command -v nvcc)
if [ -n "$NVCC" ]; then
    check "the compiler's own words" knows_the_compiler
else
    skip "the compiler's own words" "no nvcc here"
fi
check "a table of registers" table
finish
