/* host_simd_avx2: the loops for AVX2 with FMA; fp16 by the F16C instructions. */
#include "base/base.h"

#include <immintrin.h>

#define HOST_SIMD host_simd_avx2
#define HOST_ISA ZINF_ISA_AVX2
#define HOST_LANES 8

static void f16_to_f32(float *dst, const uint16_t *src, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(src + i))));
    for (; i < n; i++)
        dst[i] = zinf_f16_to_f32(src[i]);
}

static void f16_from_f32(uint16_t *dst, const float *src, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(dst + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT));
    for (; i < n; i++)
        dst[i] = zinf_f16_from_f32(src[i]);
}

#include "kernels/host_loops.h"
#include "kernels/host_tiles.h"
#include "kernels/host_table.h"
