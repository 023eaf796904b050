/* host_gemm_avx512_pairs: packing of bf16 without conversion, two to a word, for instructions that
 * multiply pairs. */
#define GROUP 2
#include "kernels/host_gemm_avx512_pack.h"

ALWAYS_INLINE __m512 load_along(const struct host_gemm_strip *strip, enum zinf_dtype dtype,
                                int64_t element, int64_t n)
{
    (void)dtype;
    const __mmask32 mask = n >= 2 * LANES ? 0xffffffff : (__mmask32)((1u << n) - 1);
    return _mm512_castsi512_ps(
        _mm512_maskz_loadu_epi16(mask, (const uint16_t *)strip->src + element));
}

/* Interleaves two rows into one of pairs. */
ALWAYS_INLINE __m512 load_across(const struct host_gemm_strip *strip, enum zinf_dtype dtype,
                                 int64_t d, int64_t w)
{
    (void)dtype;
    const __mmask16 mask = first_lanes(strip->width - w), odd = d + 1 < strip->depth ? mask : 0;
    const uint16_t *row = (const uint16_t *)strip->src + d * strip->ld + w;
    const __m256i low = _mm256_maskz_loadu_epi16(mask, row);
    const __m256i high = _mm256_maskz_loadu_epi16(odd, row + strip->ld);
    const __m512i pairs =
        _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6,
                         37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    return _mm512_castsi512_ps(_mm512_permutex2var_epi16(_mm512_castsi256_si512(low), pairs,
                                                         _mm512_castsi256_si512(high)));
}
