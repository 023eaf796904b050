/*
 * host_gemm_avx512: tiles of 14 x 32 for AVX-512 F, BW, VL, DQ: 28 accumulators, two vectors of B
 * and one broadcast element of A fill the 32 registers, and 16 loads serve 28 multiplications.
 * Heights 1 to 14 each have their own loop, so that rows can be cut into equal panels.
 */
#include "kernels/host_gemm.h"

#include <immintrin.h>

enum { LANES = 16, TILE_ROWS = 14, TILE_COLUMNS = 2 * LANES };
/* How many steps of k ahead panels are fetched from the second cache: the hardware alone leaves a
 * quarter of the speed. */
enum { AHEAD = 16 };

#define ALWAYS_INLINE static inline __attribute__((always_inline))

static inline __mmask16 first_lanes(int64_t n)
{
    return n >= LANES ? 0xffff : n <= 0 ? 0 : (__mmask16)((1u << n) - 1);
}

/* ---- tiles ---- */

ALWAYS_INLINE void multiply_rows(const struct host_gemm_tile *t, const int rows)
{
    const __mmask16 left = first_lanes(t->columns), right = first_lanes(t->columns - LANES);
    const float *a = t->a, *b = t->b;
    __m512 sum[TILE_ROWS][2];
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++) {
        _mm_prefetch((const char *)(t->c + i * t->ldc), _MM_HINT_T0);
        _mm_prefetch((const char *)(t->c + i * t->ldc + LANES), _MM_HINT_T0);
        sum[i][0] = sum[i][1] = _mm512_setzero_ps();
    }
    for (int64_t k = 0; k < t->depth; k++, a += LANES, b += TILE_COLUMNS) {
        _mm_prefetch((const char *)(a + AHEAD * LANES), _MM_HINT_T0);
        _mm_prefetch((const char *)(b + AHEAD * TILE_COLUMNS), _MM_HINT_T0);
        _mm_prefetch((const char *)(b + AHEAD * TILE_COLUMNS + LANES), _MM_HINT_T0);
        const __m512 b0 = _mm512_load_ps(b), b1 = _mm512_load_ps(b + LANES);
#pragma GCC unroll 14
        for (int i = 0; i < rows; i++) {
            const __m512 ai = _mm512_set1_ps(a[i]);
            sum[i][0] = _mm512_fmadd_ps(ai, b0, sum[i][0]);
            sum[i][1] = _mm512_fmadd_ps(ai, b1, sum[i][1]);
        }
    }
    if (t->d) {
#pragma GCC unroll 14
        for (int i = 0; i < rows; i++) {
            const float *d = t->d + i * t->ldd;
            sum[i][0] = _mm512_add_ps(sum[i][0], _mm512_maskz_loadu_ps(left, d));
            sum[i][1] = _mm512_add_ps(sum[i][1], _mm512_maskz_loadu_ps(right, d + LANES));
        }
    }
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++) {
        _mm512_mask_storeu_ps(t->c + i * t->ldc, left, sum[i][0]);
        _mm512_mask_storeu_ps(t->c + i * t->ldc + LANES, right, sum[i][1]);
    }
}

#define MULTIPLY(rows)                                                                             \
    static void multiply_##rows(const struct host_gemm_tile *t)                                    \
    {                                                                                              \
        multiply_rows(t, rows);                                                                    \
    }
MULTIPLY(1)
MULTIPLY(2)
MULTIPLY(3)
MULTIPLY(4)
MULTIPLY(5)
MULTIPLY(6)
MULTIPLY(7)
MULTIPLY(8)
MULTIPLY(9)
MULTIPLY(10)
MULTIPLY(11)
MULTIPLY(12)
MULTIPLY(13)
MULTIPLY(14)

static void multiply_tile(const struct host_gemm_tile *tile)
{
    static void (*const by_rows[])(const struct host_gemm_tile *) = {
        NULL,        multiply_1,  multiply_2,  multiply_3,  multiply_4,
        multiply_5,  multiply_6,  multiply_7,  multiply_8,  multiply_9,
        multiply_10, multiply_11, multiply_12, multiply_13, multiply_14};
    by_rows[tile->rows](tile);
}

/* ---- packing ---- */

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

ALWAYS_INLINE void pack_across(float *dst, int stride, const struct host_gemm_strip *s,
                               const enum zinf_dtype dtype)
{
    const int64_t vectors = stride / LANES;
    for (int64_t d = 0; d < s->depth; d++)
        for (int64_t v = 0; v < vectors; v++)
            _mm512_store_ps(
                dst + d * stride + v * LANES,
                load_f32(s->src, dtype, d * s->ld + v * LANES, first_lanes(s->width - v * LANES)));
}

/* Rows become columns: pairs of rows, then fours, then 128-bit lanes change places. */
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

/* 16 rows of the strip from row w on become 16 columns of the panel. */
ALWAYS_INLINE void pack_along(float *dst, int stride, const struct host_gemm_strip *s, int64_t w,
                              const enum zinf_dtype dtype)
{
    for (int64_t d = 0; d < s->depth; d += LANES) {
        const int64_t columns = s->depth - d < LANES ? s->depth - d : LANES;
        __m512 r[LANES];
#pragma GCC unroll 16
        for (int64_t i = 0; i < LANES; i++)
            r[i] = w + i < s->width
                       ? load_f32(s->src, dtype, (w + i) * s->ld + d, first_lanes(columns))
                       : _mm512_setzero_ps();
        transpose(r);
        if (columns == LANES) {
#pragma GCC unroll 16
            for (int64_t i = 0; i < LANES; i++)
                _mm512_store_ps(dst + (d + i) * stride + w, r[i]);
        } else {
            for (int64_t i = 0; i < columns; i++)
                _mm512_store_ps(dst + (d + i) * stride + w, r[i]);
        }
    }
}

ALWAYS_INLINE void pack_typed(float *dst, int stride, const struct host_gemm_strip *s,
                              const enum zinf_dtype dtype)
{
    if (s->across)
        pack_across(dst, stride, s, dtype);
    else
        for (int64_t w = 0; w < stride; w += LANES)
            pack_along(dst, stride, s, w, dtype);
}

static void pack_strip(float *dst, int stride, const struct host_gemm_strip *strip)
{
    if (strip->dtype == ZINF_DTYPE_F32)
        pack_typed(dst, stride, strip, ZINF_DTYPE_F32);
    else if (strip->dtype == ZINF_DTYPE_BF16)
        pack_typed(dst, stride, strip, ZINF_DTYPE_BF16);
    else
        pack_typed(dst, stride, strip, ZINF_DTYPE_F16);
}

const struct host_gemm_kernel host_gemm_avx512 = {
    .tile_rows = TILE_ROWS,
    .tile_columns = TILE_COLUMNS,
    .a_stride = LANES,
    .pack = pack_strip,
    .multiply = multiply_tile,
};
