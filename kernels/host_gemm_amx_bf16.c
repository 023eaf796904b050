/*
 * host_gemm_amx_bf16: products of bf16 matrices by AMX: a tile register holds 16 rows of 64 bytes,
 * and tdpbf16ps adds the product of a tile of A, 16 rows of 32 depths, and one of B, 16 pairs of
 * depths of 16 columns, to 16 x 16 sums in fp32. Four tiles of sums, two of A and two of B are all
 * eight. A panel of A is, for every 32 depths, 32 rows of them; one of B is as vdpbf16ps has it.
 * Sums of even and of odd depths are kept apart for 32 depths, then added to the tile's; rounded to
 * nearest even each, denormal numbers count as zero (Intel SDM, volume 2, TDPBF16PS).
 */
#include "kernels/host_gemm_avx512_pairs.h"

/* Rows, and columns, of a tile of C; depths of a step; bytes of a row of a tile register. */
enum { TILE = 32, STEP = 32, ROW_BYTES = 64, HALF = TILE / 2 };
/* A step's bytes in a panel. */
enum { STEP_BYTES = TILE * STEP * 2 };

/* ---- tiles ---- */

/* What LDTILECFG reads: palette 1, and of each register bytes a row and rows. */
struct tile_shapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Constant, because compilers take LDTILECFG to read its first bytes alone. */
static const struct tile_shapes shapes __attribute__((aligned(ROW_BYTES))) = {
    .palette = 1, .row_bytes = {[0 ... 7] = ROW_BYTES}, .rows = {[0 ... 7] = HALF}};

static void start(void)
{
    _tile_loadconfig(&shapes);
}

/* Switching to another thread takes longer while tiles are in use. */
static void stop(void)
{
    _tile_release();
}

/* Multiplies whole tiles, since panels are filled up with zeros. sums: [TILE][TILE]. */
static void multiply_whole(float *sums, const struct host_gemm_tile *t)
{
    const char *a = t->a, *b = t->b;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t k = 0; k < t->depth; k += STEP, a += STEP_BYTES, b += STEP_BYTES) {
        _tile_loadd(4, a, ROW_BYTES);
        _tile_loadd(6, b, 2 * ROW_BYTES);
        _tile_loadd(7, b + ROW_BYTES, 2 * ROW_BYTES);
        _tile_loadd(5, a + HALF * ROW_BYTES, ROW_BYTES);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, sums, 2 * ROW_BYTES);
    _tile_stored(1, sums + HALF, 2 * ROW_BYTES);
    _tile_stored(2, sums + HALF * TILE, 2 * ROW_BYTES);
    _tile_stored(3, sums + HALF * TILE + HALF, 2 * ROW_BYTES);
}

static void multiply_tile(const struct host_gemm_tile *t)
{
    float sums[TILE * TILE] __attribute__((aligned(ROW_BYTES)));
    multiply_whole(sums, t);
    for (int64_t i = 0; i < t->rows; i++)
        for (int64_t j = 0; j < t->columns; j += LANES) {
            const __mmask16 mask = first_lanes(t->columns - j);
            __m512 sum = _mm512_load_ps(sums + i * TILE + j);
            if (t->d)
                sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, t->d + i * t->ldd + j));
            _mm512_mask_storeu_ps(t->c + i * t->ldc + j, mask, sum);
        }
}

/* ---- packing ---- */

/* Rows are copied, a line of 32 depths each. */
static void pack_rows(char *panel, const struct host_gemm_strip *s)
{
    for (int64_t d = 0; d < s->depth; d += STEP)
        for (int64_t w = 0; w < TILE; w++, panel += ROW_BYTES)
            _mm512_store_ps(panel, w < s->width
                                       ? load_along(s, ZINF_DTYPE_BF16, w * s->ld + d, s->depth - d)
                                       : _mm512_setzero_ps());
}

/* 16 pairs of depths of 16 columns become 16 rows of 16 pairs. */
static void pack_columns(char *panel, const struct host_gemm_strip *s)
{
    for (int64_t d = 0; d < s->depth; d += STEP)
        for (int64_t w = 0; w < TILE; w += LANES) {
            __m512 r[LANES];
            for (int64_t i = 0; i < LANES; i++)
                r[i] = d + 2 * i < s->depth ? load_across(s, ZINF_DTYPE_BF16, d + 2 * i, w)
                                            : _mm512_setzero_ps();
            transpose(r);
            for (int64_t i = 0; i < LANES; i++, panel += ROW_BYTES)
                _mm512_store_ps(panel, r[i]);
        }
}

static void pack_a(void *panel, const struct host_gemm_strip *strip)
{
    if (strip->across)
        pack_columns(panel, strip);
    else
        pack_rows(panel, strip);
}

static void pack_b(void *panel, const struct host_gemm_strip *strip)
{
    const int64_t used = (strip->depth + 1) / 2 * 2;
    const int64_t all = (strip->depth + STEP - 1) / STEP * STEP;
    pack_typed(panel, TILE, strip, ZINF_DTYPE_BF16);
    memset((char *)panel + used * TILE * 2, 0, (size_t)((all - used) * TILE * 2));
}

const struct host_gemm_kernel host_gemm_amx_bf16 = {
    .tile_rows = TILE,
    .tile_columns = TILE,
    .a_width = TILE,
    .b_width = TILE,
    .element_bytes = 2,
    .depth_align = STEP,
    .block_depth = 1600,
    .pack_a = pack_a,
    .pack_b = pack_b,
    .multiply = multiply_tile,
    .start = start,
    .stop = stop,
};
