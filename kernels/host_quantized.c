/*
 * host_quantized: dequantises weights. Threads have rows each, and convert a piece of one block at
 * a time, because blocks of 4-bit codes continue from row to row.
 */
#include "kernels/host.h"

#include <math.h>

/* The parts of an image. */
struct image {
    const struct zinf_quantized *quantized;
    const uint8_t *codes;
    const float *map, *scales, *nested_map, *nested;
    const uint8_t *nested_codes;
    float offset;
};

static struct image image_of(const struct zinf_dequantize *a)
{
    const char *at = a->image;
    const struct zinf_quantized *p = &a->quantized;
    struct image image = {
        .quantized = p,
        .codes = (const uint8_t *)at + ZINF_QUANT_CODES_AT,
        .map = a->image,
        .scales = (const float *)(const void *)(at + p->scales_at),
        .nested_map = (const float *)(const void *)(at + ZINF_QUANT_NESTED_MAP_AT),
        .nested = (const float *)(const void *)(at + p->nested_at),
        .nested_codes = (const uint8_t *)at + p->scales_at,
    };
    memcpy(&image.offset, at + ZINF_QUANT_OFFSET_AT, sizeof image.offset);
    return image;
}

/* The product and the sum are rounded one by one, as on every device: this file is compiled without
 * fused operations. */
static float scale_of(const struct image *m, uint64_t block)
{
    if (m->quantized->form == ZINF_FORM_MXFP4)
        return ldexpf(1.0f, (int)m->nested_codes[block] - 127);
    if (m->quantized->form != ZINF_FORM_NF4_DOUBLE)
        return m->scales[block];
    return m->nested_map[m->nested_codes[block]] * m->nested[block / ZINF_QUANT_SCALES] + m->offset;
}

/* Dequantises n elements of one row. Each turn ends with a block's columns. */
static void dequantize_fp8(const struct host_simd *simd, const struct image *m, uint64_t first,
                           size_t n, float *y)
{
    const uint64_t cols = m->quantized->cols, row = first / cols, col = first % cols;
    const uint64_t across = (cols + ZINF_QUANT_FP8_BLOCK - 1) / ZINF_QUANT_FP8_BLOCK;
    const float *scales = m->scales + row / ZINF_QUANT_FP8_BLOCK * across;
    for (size_t done = 0, count; done < n; done += count) {
        const uint64_t at = col + done, left = ZINF_QUANT_FP8_BLOCK - at % ZINF_QUANT_FP8_BLOCK;
        count = n - done < left ? n - done : (size_t)left;
        simd->dequantize_fp8(y + done, m->codes + first + done, scales[at / ZINF_QUANT_FP8_BLOCK],
                             count);
    }
}

/* Dequantises n elements of one row; `first` is counted from the matrix's first element. */
static void dequantize(const struct host_simd *simd, const struct image *m, uint64_t first,
                       size_t n, float *y)
{
    if (m->quantized->form == ZINF_FORM_INT8) {
        const int8_t *codes = (const int8_t *)m->codes + first;
        simd->dequantize_int8(y, codes, m->scales[first / m->quantized->cols], n);
        return;
    }
    if (m->quantized->form == ZINF_FORM_FP8) {
        dequantize_fp8(simd, m, first, n, y);
        return;
    }
    const uint64_t block =
        m->quantized->form == ZINF_FORM_MXFP4 ? ZINF_QUANT_MX_BLOCK : ZINF_QUANT_BLOCK;
    for (size_t done = 0, count; done < n; done += count) {
        uint64_t e = first + done, left = block - e % block;
        float scale = scale_of(m, e / block);
        count = n - done < left ? n - done : (size_t)left;
        if (e % 2) { /* the code in the low half of a byte */
            y[done] = m->map[m->codes[e / 2] & 15] * scale;
            count = 1;
        } else {
            simd->dequantize_nf4(y + done, m->codes + e / 2, m->map, scale, count);
        }
    }
}

static void dequantize_row(const struct host_simd *simd, const struct image *m,
                           const struct zinf_dequantize *a, uint64_t r)
{
    float buffer[HOST_CHUNK];
    uint64_t run = r / (uint64_t)a->rows, in_run = r % (uint64_t)a->rows, cols = a->quantized.cols;
    uint64_t from = (uint64_t)a->from_first + run * (uint64_t)a->from_stride + in_run;
    uint64_t to = (uint64_t)a->to_first + run * (uint64_t)a->to_stride + in_run;
    for (uint64_t c = 0; c < cols; c += HOST_CHUNK) {
        size_t n = cols - c < HOST_CHUNK ? (size_t)(cols - c) : HOST_CHUNK;
        float *y = host_target(buffer, a->w, a->dtype, to * cols + c);
        dequantize(simd, m, from * cols + c, n, y);
        host_write(simd, y, a->w, a->dtype, to * cols + c, n);
    }
}

int host_dequantize(struct zinf_queue *q, const struct zinf_dequantize *args)
{
    int code = check_dequantize(args);
    if (code)
        return code;
    const struct image image = image_of(args);
    uint64_t rows = (uint64_t)(args->rows * args->count);
    int n_slices = host_slices(q->device, rows * args->quantized.cols);
#pragma omp parallel for num_threads(n_slices) schedule(static)
    for (int slice = 0; slice < n_slices; slice++) {
        struct host_range range = host_slice(rows, 1, slice, n_slices);
        for (uint64_t r = range.first; r < range.first + range.count; r++)
            dequantize_row(q->device->simd, &image, args, r);
    }
    return 0;
}
