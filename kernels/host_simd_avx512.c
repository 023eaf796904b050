/* host_simd_avx512: the loops for AVX-512 F, BW, VL, DQ. */
#include "base/base.h"

#include <immintrin.h>

#define HOST_SIMD host_simd_avx512
#define HOST_ISA ZINF_ISA_AVX512
#define HOST_LANES 16

static void f16_to_f32(float *dst, const uint16_t *src, size_t n)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        _mm512_storeu_ps(dst + i, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(src + i))));
    for (; i < n; i++)
        dst[i] = zinf_f16_to_f32(src[i]);
}

static void f16_from_f32(uint16_t *dst, const float *src, size_t n)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        _mm256_storeu_si256((__m256i *)(dst + i),
                            _mm512_cvtps_ph(_mm512_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT));
    for (; i < n; i++)
        dst[i] = zinf_f16_from_f32(src[i]);
}

#include "kernels/host_loops.h"
#include "kernels/host_tiles.h"
#include "kernels/host_table.h"
