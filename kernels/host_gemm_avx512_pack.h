/*
 * host_gemm_avx512_pack: packing for the AVX-512 product kernels, each of which includes it once.
 * A panel consists of 32-bit words, 16 to a vector. A word holds GROUP consecutive elements along
 * k: one fp32 or two bf16. Words of one step of k are neighbours.
 */
#include "kernels/host_gemm.h"

#include <immintrin.h>

enum { LANES = 16, LINE_BYTES = 64 };

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* ---- to be defined by the including file, GROUP before it ---- */

/* Loads n elements of a row as words, from `element` on, followed by zeros. */
ALWAYS_INLINE __m512 load_along(const struct host_gemm_strip *strip, enum zinf_dtype dtype,
                                int64_t element, int64_t n);
/* Loads words of columns w to w + 16 at depths d to d + GROUP of a strip with `across`, with zeros
 * behind its end. */
ALWAYS_INLINE __m512 load_across(const struct host_gemm_strip *strip, enum zinf_dtype dtype,
                                 int64_t d, int64_t w);

ALWAYS_INLINE __mmask16 first_lanes(int64_t n)
{
    return n >= LANES ? 0xffff : n <= 0 ? 0 : (__mmask16)((1u << n) - 1);
}

/* ---- packing ---- */

/* Prefetches a few lines of a row of the strip that follows along k, which the hardware does not
 * foresee. A row that does not exist does no harm. */
ALWAYS_INLINE void fetch_follower(const struct host_gemm_strip *s, const int width,
                                  const enum zinf_dtype dtype, int64_t d)
{
    const int64_t bytes = dtype == ZINF_DTYPE_F32 ? 4 : 2;
    const char *row = (const char *)s->src + (s->depth + d) * s->ld * bytes;
    for (int64_t byte = 0; byte < width * bytes; byte += LINE_BYTES)
        _mm_prefetch(row + byte, _MM_HINT_T0);
}

ALWAYS_INLINE void pack_across(float *panel, const int width, const struct host_gemm_strip *s,
                               const enum zinf_dtype dtype)
{
    for (int64_t d = 0; d < s->depth; d += GROUP, panel += width) {
        for (int64_t i = 0; i < GROUP; i++)
            fetch_follower(s, width, dtype, d + i);
        for (int w = 0; w < width; w += LANES)
            _mm512_store_ps(panel + w, load_across(s, dtype, d, w));
    }
}

/* Transposes 16 x 16 words: pairs of rows, then fours, then 128-bit lanes change places. */
ALWAYS_INLINE void transpose(__m512 r[LANES])
{
    __m512 t[LANES];
#pragma GCC unroll 8
    for (int i = 0; i < LANES; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < LANES / 2; i++) {
        const int from = i / 2 * 4 + i % 2, to = i / 2 * 4 + i % 2 * 2;
        const __m512d x = _mm512_castps_pd(t[from]), y = _mm512_castps_pd(t[from + 2]);
        r[to] = _mm512_castpd_ps(_mm512_unpacklo_pd(x, y));
        r[to + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const __m512 x0 = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
        const __m512 x1 = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
        const __m512 y0 = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
        const __m512 y1 = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
        r[i] = _mm512_shuffle_f32x4(x0, y0, 0x88);
        r[i + 4] = _mm512_shuffle_f32x4(x1, y1, 0x88);
        r[i + 8] = _mm512_shuffle_f32x4(x0, y0, 0xdd);
        r[i + 12] = _mm512_shuffle_f32x4(x1, y1, 0xdd);
    }
}

/* Turns 16 rows of the strip, from row w on, into 16 columns of the panel. */
ALWAYS_INLINE void pack_along(float *panel, const int width, const struct host_gemm_strip *s,
                              int64_t w, const enum zinf_dtype dtype)
{
    const int64_t steps = (s->depth + GROUP - 1) / GROUP;
    for (int64_t k = 0; k < steps; k += LANES) {
        const int64_t words = steps - k < LANES ? steps - k : LANES;
        __m512 r[LANES];
#pragma GCC unroll 16
        for (int64_t i = 0; i < LANES; i++)
            r[i] = w + i < s->width
                       ? load_along(s, dtype, (w + i) * s->ld + k * GROUP, s->depth - k * GROUP)
                       : _mm512_setzero_ps();
        transpose(r);
        if (words == LANES) {
#pragma GCC unroll 16
            for (int64_t i = 0; i < LANES; i++)
                _mm512_store_ps(panel + (k + i) * width + w, r[i]);
        } else {
            for (int64_t i = 0; i < words; i++)
                _mm512_store_ps(panel + (k + i) * width + w, r[i]);
        }
    }
}

ALWAYS_INLINE void pack_typed(void *panel, const int width, const struct host_gemm_strip *s,
                              const enum zinf_dtype dtype)
{
    if (s->across)
        pack_across(panel, width, s, dtype);
    else
        for (int64_t w = 0; w < width; w += LANES)
            pack_along(panel, width, s, w, dtype);
}
