/* host_gemm_avx512_pairs: packing of bf16 as it is, two to a word, for the instructions that
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

/* Two rows become one of pairs. */
ALWAYS_INLINE __m512 load_across(const struct host_gemm_strip *strip, enum zinf_dtype dtype,
                                 int64_t d, int64_t w)
{
    (void)dtype;
    const __mmask16 mask = first_lanes(strip->width - w), odd = d + 1 < strip->depth ? mask : 0;
    const uint16_t *row = (const uint16_t *)strip->src + d * strip->ld + w;
    const __m256i low = _mm256_maskz_loadu_epi16(mask, row);
    const __m256i high = _mm256_maskz_loadu_epi16(odd, row + strip->ld);
    return _mm512_castsi512_ps(_mm512_or_si512(_mm512_cvtepu16_epi32(low),
                                               _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16)));
}
