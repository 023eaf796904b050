/*
 * host_gemm_lanes: the kernel of small products without AVX-512, in the compiler's vector types.
 * Included once by each per-ISA file that has defined HOST_GEMM, its name, and turn_block(), behind
 * host_tiles.h. A tile is 6 rows of two vectors: twelve sums, two vectors of B and a number of A
 * fit into 16 registers. Each height from 1 to 6 has a loop of its own, so that rows can be divided
 * into equal panels.
 */
#include "kernels/host_gemm.h"

enum { GEMM_ROWS = 6, GEMM_COLUMNS = 2 * HOST_LANES };
/* Rows of A in a panel: whole vectors. */
enum { GEMM_A_WIDTH = 8 };
/* Elements of a row that are converted at once before they are turned; steps of k that panels are
 * fetched ahead. */
enum { GEMM_PIECE = 64, GEMM_AHEAD = 16 };

/* ---- packing ---- */

/* The rows that follow along k are fetched, which the hardware does not foresee. One that does not
 * exist does no harm. */
static inline __attribute__((always_inline)) void gemm_pack_across(float *panel, const int width,
                                                                   const struct host_gemm_strip *s)
{
    const size_t row_bytes = (size_t)s->ld * zinf_dtype_bytes(s->dtype), n = (size_t)s->width;
    const bool whole = s->dtype == ZINF_DTYPE_F32 && s->width == width;
    const char *row = s->src;
    for (int64_t d = 0; d < s->depth; d++, row += row_bytes, panel += width) {
        __builtin_prefetch((const char *)((uintptr_t)row + (size_t)s->depth * row_bytes));
        if (whole) {
            memcpy(panel, row, (size_t)width * sizeof *panel);
        } else if (s->dtype == ZINF_DTYPE_F32) { /* too few to call functions for */
            for (size_t i = 0; i < (size_t)width; i++)
                panel[i] = i < n ? ((const float *)(const void *)row)[i] : 0.0f;
        } else {
            loop_to_f32(panel, row, s->dtype, n);
            memset(panel + n, 0, ((size_t)width - n) * sizeof *panel);
        }
    }
}

/* A piece of up to HOST_LANES rows in fp32, from row w and element d on, with rows of zeros behind
 * them: where it is, or in `wide`. *ld: the distance of its rows. */
static const float *gemm_piece(const struct host_gemm_strip *s, int64_t w, int64_t d, size_t n,
                               float *wide, int64_t *ld)
{
    const char *first = (const char *)s->src + (size_t)(w * s->ld + d) * zinf_dtype_bytes(s->dtype);
    *ld = s->ld;
    if (s->dtype == ZINF_DTYPE_F32 && w + HOST_LANES <= s->width)
        return (const float *)(const void *)first;
    *ld = GEMM_PIECE;
    for (int64_t i = 0; i < HOST_LANES; i++, wide += GEMM_PIECE)
        if (w + i < s->width)
            loop_to_f32(wide, first + (size_t)(i * s->ld) * zinf_dtype_bytes(s->dtype), s->dtype,
                        n);
        else
            memset(wide, 0, n * sizeof *wide);
    return wide - HOST_LANES * GEMM_PIECE;
}

/* Turns HOST_LANES rows of the strip, from row w on, into columns of the panel. */
static inline __attribute__((always_inline)) void
gemm_pack_along(float *panel, const int width, const struct host_gemm_strip *s, int64_t w)
{
    float wide[HOST_LANES * GEMM_PIECE];
    for (int64_t d = 0; d < s->depth; d += GEMM_PIECE) {
        const int64_t n = min_i64(GEMM_PIECE, s->depth - d);
        int64_t ld, k = 0;
        const float *from = gemm_piece(s, w, d, (size_t)n, wide, &ld);
        float *to = panel + d * width + w;
        for (; k + HOST_LANES <= n; k += HOST_LANES)
            turn_block(to + k * width, width, from + k, ld);
        for (; k < n; k++)
            for (int64_t i = 0; i < HOST_LANES; i++)
                to[k * width + i] = from[i * ld + k];
    }
}

static inline __attribute__((always_inline)) void gemm_pack(void *panel, const int width,
                                                            const struct host_gemm_strip *s)
{
    if (s->across)
        gemm_pack_across(panel, width, s);
    else
        for (int64_t w = 0; w < width; w += HOST_LANES)
            gemm_pack_along(panel, width, s, w);
}

static void gemm_pack_a(void *panel, const struct host_gemm_strip *strip)
{
    gemm_pack(panel, GEMM_A_WIDTH, strip);
}

static void gemm_pack_b(void *panel, const struct host_gemm_strip *strip)
{
    gemm_pack(panel, GEMM_COLUMNS, strip);
}

/* ---- tiles ---- */

/* A tile that ends within its vectors. */
static void gemm_store_part(const struct host_gemm_tile *t, const float *sum, int rows)
{
    for (int i = 0; i < rows; i++)
        for (int64_t j = 0; j < t->columns; j++) {
            const float x = sum[i * GEMM_COLUMNS + j];
            t->c[i * t->ldc + j] = t->d ? x + t->d[i * t->ldd + j] : x;
        }
}

static inline __attribute__((always_inline)) void gemm_rows(const struct host_gemm_tile *t,
                                                            const int rows)
{
    const float *a = t->a, *b = t->b;
    float part[GEMM_ROWS * GEMM_COLUMNS];
    const bool whole = t->columns == GEMM_COLUMNS;
    vec sum[GEMM_ROWS][2];
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++)
        sum[i][0] = sum[i][1] = (vec){0};
    for (int64_t k = 0; k < t->depth; k++, a += GEMM_A_WIDTH, b += GEMM_COLUMNS) {
        __builtin_prefetch(b + GEMM_AHEAD * GEMM_COLUMNS);
        const vec b0 = *(const vec_memory *)b, b1 = *(const vec_memory *)(b + HOST_LANES);
#pragma GCC unroll 6
        for (int i = 0; i < rows; i++) {
            sum[i][0] += a[i] * b0;
            sum[i][1] += a[i] * b1;
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int v = 0; v < 2; v++) {
            float *to = whole ? t->c + i * t->ldc : part + i * GEMM_COLUMNS;
            if (whole && t->d)
                sum[i][v] += *(const vec_memory *)(t->d + i * t->ldd + v * HOST_LANES);
            *(vec_memory *)(to + v * HOST_LANES) = sum[i][v];
        }
    if (!whole)
        gemm_store_part(t, part, rows);
}

static void gemm_multiply(const struct host_gemm_tile *t)
{
    switch (t->rows) {
    case 1:
        gemm_rows(t, 1);
        break;
    case 2:
        gemm_rows(t, 2);
        break;
    case 3:
        gemm_rows(t, 3);
        break;
    case 4:
        gemm_rows(t, 4);
        break;
    case 5:
        gemm_rows(t, 5);
        break;
    default:
        gemm_rows(t, GEMM_ROWS);
    }
}

const struct host_gemm_kernel HOST_GEMM = {
    .tile_rows = GEMM_ROWS,
    .tile_columns = GEMM_COLUMNS,
    .a_width = GEMM_A_WIDTH,
    .b_width = GEMM_COLUMNS,
    .element_bytes = 4,
    .depth_align = 2, /* panels begin at cache lines */
    .block_depth = 384,
    .pack_a = gemm_pack_a,
    .pack_b = gemm_pack_b,
    .multiply = gemm_multiply,
};
