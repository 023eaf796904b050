/*
 * quantized: makes images of fp32 weights with the bytes that bitsandbytes makes on a CPU. So every
 * step is rounded as there: numbers are multiplied by the reciprocal of a whole block's scale, but
 * divided by the scale of a shorter last block; the mean of scales is added in PyTorch's order.
 */
#include "kernels/quantized.h"

#include "base/memory.h"

#include <math.h>

#define PART_ALIGN 256 /* the parts of an image begin at multiples of it */
#define LEAST_SCALE 1e-38f

/* The number of each 4-bit code: quantiles of the normal distribution, and 0 (arXiv 2305.14314). */
static const float nf4_map[16] = {
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};

/* The numbers of 4 bits: a sign, two bits of exponent and one of fraction. */
static const float mxfp4_map[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                    -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

const char *zinf_form_name(enum zinf_form form)
{
    static const char *const names[] = {"plain", "nf4", "nf4", "int8", "mxfp4", "fp8"};
    return names[form];
}

static uint64_t fp8_blocks(uint64_t n)
{
    return (n + ZINF_QUANT_FP8_BLOCK - 1) / ZINF_QUANT_FP8_BLOCK;
}

struct zinf_quantized zinf_quantized_of(enum zinf_form form, uint64_t rows, uint64_t cols)
{
    struct zinf_quantized p = {.form = form, .rows = rows, .cols = cols, .n_elems = rows * cols};
    const bool nested = form == ZINF_FORM_NF4_DOUBLE, exponents = form == ZINF_FORM_MXFP4;
    const bool bytes = form == ZINF_FORM_INT8 || form == ZINF_FORM_FP8;
    const uint64_t block = exponents ? ZINF_QUANT_MX_BLOCK : ZINF_QUANT_BLOCK;
    p.n_blocks = form == ZINF_FORM_INT8  ? rows
                 : form == ZINF_FORM_FP8 ? fp8_blocks(rows) * fp8_blocks(cols)
                                         : (p.n_elems + block - 1) / block;
    p.n_nested = nested ? (p.n_blocks + ZINF_QUANT_SCALES - 1) / ZINF_QUANT_SCALES : 0;
    p.code_bytes = bytes ? p.n_elems : (p.n_elems + 1) / 2;
    p.scales_at = zinf_align_up(ZINF_QUANT_CODES_AT + p.code_bytes, PART_ALIGN);
    p.nested_at = zinf_align_up(
        p.scales_at + p.n_blocks * (nested || exponents ? 1 : sizeof(float)), PART_ALIGN);
    p.bytes = zinf_align_up(p.nested_at + p.n_nested * sizeof(float), ZINF_MEMORY_ALIGN);
    return p;
}

static float largest(const float *values, uint64_t n)
{
    float most = 0;
#pragma omp simd reduction(max : most)
    for (uint64_t i = 0; i < n; i++)
        most = fabsf(values[i]) > most ? fabsf(values[i]) : most;
    return most;
}

/* ---- 4 bits ---- */

/* Finds the code of the nearest number; halfway between two that is the lower one. */
static void find_codes(uint8_t *codes, const float *scaled, uint64_t n)
{
    float middle[15];
    for (int k = 0; k < 15; k++)
        middle[k] = (nf4_map[k] + nf4_map[k + 1]) / 2;
    memset(codes, 0, n);
    for (int k = 0; k < 15; k++) {
#pragma omp simd
        for (uint64_t i = 0; i < n; i++)
            codes[i] = (uint8_t)(codes[i] + (scaled[i] > middle[k]));
    }
}

/* Writes a block's codes, two a byte, and returns its scale. The block at the matrix's end may be
 * shorter. */
static float quantize_block(const float *values, uint64_t n, uint8_t *bytes)
{
    float scaled[ZINF_QUANT_BLOCK] = {0}, scale = largest(values, n);
    uint8_t codes[ZINF_QUANT_BLOCK];
    float divisor = scale > LEAST_SCALE ? scale : LEAST_SCALE, factor = 1.0f / divisor;
    bool whole = n == ZINF_QUANT_BLOCK;
    for (uint64_t i = 0; i < n; i++) {
        float x = whole ? values[i] * factor : values[i] / divisor;
        scaled[i] = x > 1.0f ? 1.0f : x < -1.0f ? -1.0f : x;
    }
    find_codes(codes, scaled, ZINF_QUANT_BLOCK);
    for (uint64_t i = 0; i < n; i += 2)
        bytes[i / 2] = (uint8_t)(codes[i] << 4 | codes[i + 1]);
    return whole ? scale : divisor;
}

static void quantize_nf4(const float *values, uint64_t first, uint64_t n, uint8_t *codes,
                         float *scales)
{
#pragma omp parallel for schedule(static)
    for (uint64_t at = 0; at < n; at += ZINF_QUANT_BLOCK) {
        uint64_t count = n - at < ZINF_QUANT_BLOCK ? n - at : ZINF_QUANT_BLOCK;
        scales[(first + at) / ZINF_QUANT_BLOCK] =
            quantize_block(values + at, count, codes + (first + at) / 2);
    }
}

/* ---- 8 bits ---- */

/* Rounds to fp16 and back, since bitsandbytes makes 8-bit codes of fp16 weights only. */
static float half(float x)
{
    return zinf_f16_to_f32(zinf_f16_from_f32(x));
}

static void quantize_int8(const struct zinf_quantized *p, const float *values, uint64_t first,
                          uint64_t n, int8_t *codes, float *scales)
{
#pragma omp parallel for schedule(static)
    for (uint64_t at = 0; at < n; at += p->cols) {
        float most = half(largest(values + at, p->cols));
        float factor = 1.0f / (most > 0 ? most : 1) * 127.0f;
        scales[(first + at) / p->cols] = most;
        for (uint64_t i = 0; i < p->cols; i++)
            codes[first + at + i] = (int8_t)rintf(half(values[at + i]) * factor);
    }
}

void zinf_quantize(const struct zinf_quantized *p, const float *values, uint64_t first, uint64_t n,
                   void *image, float *scales)
{
    void *codes = (char *)image + ZINF_QUANT_CODES_AT;
    if (p->form == ZINF_FORM_INT8)
        quantize_int8(p, values, first, n, codes, scales);
    else
        quantize_nf4(values, first, n, codes, scales);
}

/* ---- scales of scales ---- */

/* 8 bits stand for a sign, a power of ten and a fraction, whose bits are fewer the smaller the
 * power is: of 10^(e-6), e from 0 to 6, the middles of 2^e equal parts of [0.1, 1]; and 0, and 1
 * (Dettmers, arXiv 1511.04561). In rising order; bounds are rounded as PyTorch's linspace. */
static void fill_nested_map(float map[256])
{
    static const float powers[] = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1.0f};
    int up = 128, down = 126;
    for (int e = 0; e < 7; e++) {
        int parts = 1 << e;
        float step = (1.0f - 0.1f) / (float)parts, bounds[65];
        for (int i = 0; i <= parts; i++)
            bounds[i] = i < (parts + 1) / 2 ? fmaf(step, (float)i, 0.1f)
                                            : fmaf(-step, (float)(parts - i), 1.0f);
        for (int i = 0; i < parts; i++) {
            map[up++] = powers[e] * ((bounds[i] + bounds[i + 1]) / 2.0f);
            map[down--] = -map[up - 1];
        }
    }
    map[127] = 0.0f;
    map[255] = 1.0f;
}

/* The sum of a float array in the order in which PyTorch's CPU adds it on one thread: 4 vectors of
 * 8 lanes side by side, each over levels that are emptied into the next when they are full, so that
 * no running sum grows long; then vectors, then what is left of the array, then lanes. */
enum { LANES = 8, VECTORS = 4, LEVELS = 4 };

static void add_row(float *to, const float *from, int n)
{
    for (int i = 0; i < n; i++)
        to[i] += from[i];
}

static int level_bits(uint64_t n)
{
    int bits = 0;
    while ((uint64_t)1 << bits < n)
        bits++;
    return bits / LEVELS > 4 ? bits / LEVELS : 4;
}

/* Adds up the first n runs of 4 vectors. The sum is in sums[0]. */
static void add_runs(float sums[LEVELS][VECTORS * LANES], const float *x, uint64_t n)
{
    int bits = level_bits(n);
    uint64_t step = (uint64_t)1 << bits, i = 0;
    while (i + step <= n) {
        for (uint64_t end = i + step; i < end; i++)
            add_row(sums[0], x + i * VECTORS * LANES, VECTORS * LANES);
        for (int level = 1; level < LEVELS; level++) {
            add_row(sums[level], sums[level - 1], VECTORS * LANES);
            memset(sums[level - 1], 0, sizeof sums[0]);
            if (i & ((step - 1) << (level * bits)))
                break;
        }
    }
    for (; i < n; i++)
        add_row(sums[0], x + i * VECTORS * LANES, VECTORS * LANES);
    for (int level = 1; level < LEVELS; level++)
        add_row(sums[0], sums[level], VECTORS * LANES);
}

static float mean_of(const float *x, uint64_t n)
{
    float sums[LEVELS][VECTORS * LANES] = {{0}}, sum = 0;
    uint64_t n_vectors = n / LANES, runs = n_vectors / VECTORS;
    add_runs(sums, x, runs);
    for (uint64_t v = runs * VECTORS; v < n_vectors; v++)
        add_row(sums[0], x + v * LANES, LANES);
    for (int k = 1; k < VECTORS; k++)
        add_row(sums[0], sums[0] + k * LANES, LANES);
    for (uint64_t i = n_vectors * LANES; i < n; i++)
        sum += x[i];
    for (int k = 0; k < LANES; k++)
        sum += sums[0][k];
    return sum / (float)n;
}

/* Finds the code of the nearest number. x is first rounded to one of 65,536 even steps from -1 to
 * 1, because bitsandbytes looks codes up in a table of that length. */
static uint8_t find_nested(const float map[256], float x)
{
    const float last = 65535.0f;
    float inside = x < -1.0f ? -1.0f : x > 1.0f ? 1.0f : x;
    float step = (float)(uint16_t)((inside + 1.0f) * 0.5f * last + 0.5f);
    float value = -1.0f + 2.0f * step / last;
    int low = 0, high = 255; /* the first code whose middle to the next one is not below value */
    while (low < high) {
        int middle = (low + high) / 2;
        if (0.5f * (map[middle] + map[middle + 1]) < value)
            low = middle + 1;
        else
            high = middle;
    }
    return (uint8_t)low;
}

static void quantize_scales(const struct zinf_quantized *p, char *image, const float *scales)
{
    float *map = (float *)(void *)(image + ZINF_QUANT_NESTED_MAP_AT);
    float *nested = (float *)(void *)(image + p->nested_at);
    uint8_t *codes = (uint8_t *)image + p->scales_at;
    float mean = mean_of(scales, p->n_blocks), off[ZINF_QUANT_SCALES];
    fill_nested_map(map);
    memcpy(image + ZINF_QUANT_OFFSET_AT, &mean, sizeof mean);
    for (uint64_t first = 0; first < p->n_blocks; first += ZINF_QUANT_SCALES) {
        uint64_t left = p->n_blocks - first,
                 n = left < ZINF_QUANT_SCALES ? left : ZINF_QUANT_SCALES;
        for (uint64_t i = 0; i < n; i++)
            off[i] = scales[first + i] - mean;
        float most = largest(off, n);
        nested[first / ZINF_QUANT_SCALES] = most;
        for (uint64_t i = 0; i < n; i++)
            codes[first + i] = most > 0 ? find_nested(map, off[i] * (1.0f / most)) : 0;
    }
}

void zinf_quantize_finish(const struct zinf_quantized *p, void *image, const float *scales)
{
    char *at = image;
    uint64_t codes_end = ZINF_QUANT_CODES_AT + p->code_bytes;
    memset(at, 0, ZINF_QUANT_CODES_AT);
    memset(at + codes_end, 0, p->bytes - codes_end);
    if (p->form != ZINF_FORM_INT8)
        memcpy(at, nf4_map, sizeof nf4_map);
    if (p->form == ZINF_FORM_NF4_DOUBLE)
        quantize_scales(p, at, scales);
    else
        memcpy(at + p->scales_at, scales, p->n_blocks * sizeof *scales);
}

/* ---- what is read and never made ---- */

static void swap_halves(uint8_t *to, const uint8_t *from, uint64_t n)
{
#pragma omp simd
    for (uint64_t i = 0; i < n; i++)
        to[i] = (uint8_t)(from[i] << 4 | from[i] >> 4);
}

static void move_codes(const struct zinf_quantized *p, void *to, const void *from)
{
    if (p->form == ZINF_FORM_MXFP4)
        swap_halves(to, from, p->code_bytes);
    else
        memcpy(to, from, p->code_bytes);
}

static size_t scale_bytes(const struct zinf_quantized *p)
{
    return p->n_blocks * (p->form == ZINF_FORM_MXFP4 ? 1 : sizeof(float));
}

void zinf_quantize_take(const struct zinf_quantized *p, const void *codes, const void *scales,
                        void *image)
{
    uint8_t *at = image;
    memset(at, 0, p->bytes);
    if (p->form == ZINF_FORM_MXFP4)
        memcpy(at, mxfp4_map, sizeof mxfp4_map);
    move_codes(p, at + ZINF_QUANT_CODES_AT, codes);
    memcpy(at + p->scales_at, scales, scale_bytes(p));
}

void zinf_quantize_give(const struct zinf_quantized *p, const void *image, void *codes,
                        void *scales)
{
    const uint8_t *at = image;
    move_codes(p, codes, at + ZINF_QUANT_CODES_AT);
    memcpy(scales, at + p->scales_at, scale_bytes(p));
}
