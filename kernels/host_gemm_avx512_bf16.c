/*
 * host_gemm_avx512_bf16: products of bf16 matrices by vdpbf16ps, which adds two products to a sum
 * in fp32, twice as many as an fp32 instruction: first that of the pair's second elements, then
 * that of its first, each as a fused multiply-add rounded to nearest even. Denormal numbers count
 * as zero, in and out, whatever the thread's mode is (Intel SDM, volume 2; a Zen 4 gives the same).
 */
#include "kernels/host_gemm_avx512_pairs.h"
#include "kernels/host_gemm_avx512_tiles.h"

ALWAYS_INLINE __m512 dot(__m512 sum, __m512 a, __m512 b)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}

static void pack_a(void *panel, const struct host_gemm_strip *strip)
{
    pack_typed(panel, LANES, strip, ZINF_DTYPE_BF16);
}

static void pack_b(void *panel, const struct host_gemm_strip *strip)
{
    pack_typed(panel, TILE_COLUMNS, strip, ZINF_DTYPE_BF16);
}

const struct host_gemm_kernel host_gemm_avx512_bf16 = {
    .tile_rows = TILE_ROWS,
    .tile_columns = TILE_COLUMNS,
    .a_width = LANES,
    .b_width = TILE_COLUMNS,
    .element_bytes = 2,
    .depth_align = 2,
    .block_depth = 1600,
    .pack_a = pack_a,
    .pack_b = pack_b,
    .multiply = multiply_tile,
};
