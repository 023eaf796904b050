/* host_gemm_avx512: fp32 products for AVX-512 F, BW, VL, DQ; 16 bits are widened in packing. */
#define GROUP 1
#include "kernels/host_gemm_avx512_pack.h"
#include "kernels/host_gemm_avx512_tiles.h"

ALWAYS_INLINE __m512 dot(__m512 sum, __m512 a, __m512 b)
{
    return _mm512_fmadd_ps(a, b, sum);
}

/* Up to 16 elements as fp32, zero where the mask is. */
ALWAYS_INLINE __m512 load_f32(const void *base, const enum zinf_dtype dtype, int64_t element,
                              __mmask16 mask)
{
    if (dtype == ZINF_DTYPE_F32)
        return _mm512_maskz_loadu_ps(mask, (const float *)base + element);
    const __m256i half = _mm256_maskz_loadu_epi16(mask, (const uint16_t *)base + element);
    if (dtype == ZINF_DTYPE_F16)
        return _mm512_cvtph_ps(half);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

ALWAYS_INLINE __m512 load_along(const struct host_gemm_strip *strip, enum zinf_dtype dtype,
                                int64_t element, int64_t n)
{
    return load_f32(strip->src, dtype, element, first_lanes(n));
}

ALWAYS_INLINE __m512 load_across(const struct host_gemm_strip *strip, enum zinf_dtype dtype,
                                 int64_t d, int64_t w)
{
    return load_f32(strip->src, dtype, d * strip->ld + w, first_lanes(strip->width - w));
}

ALWAYS_INLINE void pack(void *panel, const int width, const struct host_gemm_strip *strip)
{
    if (strip->dtype == ZINF_DTYPE_F32)
        pack_typed(panel, width, strip, ZINF_DTYPE_F32);
    else if (strip->dtype == ZINF_DTYPE_BF16)
        pack_typed(panel, width, strip, ZINF_DTYPE_BF16);
    else
        pack_typed(panel, width, strip, ZINF_DTYPE_F16);
}

static void pack_a(void *panel, const struct host_gemm_strip *strip)
{
    pack(panel, LANES, strip);
}

static void pack_b(void *panel, const struct host_gemm_strip *strip)
{
    pack(panel, TILE_COLUMNS, strip);
}

const struct host_gemm_kernel host_gemm_avx512 = {
    .tile_rows = TILE_ROWS,
    .tile_columns = TILE_COLUMNS,
    .a_width = LANES,
    .b_width = TILE_COLUMNS,
    .element_bytes = 4,
    .depth_align = 1,
    .block_depth = 768,
    .pack_a = pack_a,
    .pack_b = pack_b,
    .multiply = multiply_tile,
};
