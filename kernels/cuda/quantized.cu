/*
 * quantized: numbers from the images of quantised weights (kernels/quantized.h), a thread 8 of a
 * row. Every product and sum is rounded by itself, so that the bits are the CPU's. The 16 numbers
 * that 4 bits stand for are in shared memory, where each lane reads its own.
 */
#include "kernels/cuda/kernel.cuh"

enum { DEQUANTIZE_THREADS = 256, HALVES = 16 };

template <class T> struct dequantize_args {
    T *w;
    const uint8_t *codes, *nested_codes;
    const float *map, *nested_map, *scales, *nested, *offset;
    int64_t cols, n_rows;
    int64_t from_first, from_stride, to_first, to_stride, rows;
    bool vector;
};

/* From 2^-126 to 2^127. */
DEVICE float power_of_two(int exponent)
{
    bf16 x;
    x.bits = (uint16_t)((exponent + 127) << 7);
    return to_float(x);
}

template <enum zinf_form FORM> DEVICE int64_t block_of(int64_t e)
{
    return e / (FORM == ZINF_FORM_MXFP4 ? ZINF_QUANT_MX_BLOCK : ZINF_QUANT_BLOCK);
}

template <class T, enum zinf_form FORM>
DEVICE float scale_of(const dequantize_args<T> &a, int64_t block)
{
    if (FORM == ZINF_FORM_MXFP4) { /* in two steps: 2^-127 is a denormal number */
        const int code = a.nested_codes[block];
        return product(power_of_two(code / 2 - 64), power_of_two(code - code / 2 - 63));
    }
    if (FORM != ZINF_FORM_NF4_DOUBLE)
        return a.scales[block];
    return product(a.nested_map[a.nested_codes[block]], a.nested[block / ZINF_QUANT_SCALES]) +
           *a.offset;
}

/* Elements e .. e + 7, of one block: 4 bytes. */
template <class T, enum zinf_form FORM>
DEVICE void dequantize_word(const dequantize_args<T> &a, const float *map, int64_t e,
                            float (&x)[EACH])
{
    const float scale = scale_of<T, FORM>(a, block_of<FORM>(e));
    const uint32_t word = *(const uint32_t *)(const void *)(a.codes + e / 2);
    UNROLL for (int k = 0; k < EACH; k++) x[k] =
        product(map[word >> (k % 2 ? 4 * k - 4 : 4 * k + 4) & 15], scale);
}

/* The same wherever blocks and bytes begin, up to the row's end. */
template <class T, enum zinf_form FORM>
DEVICE void make_halves(const dequantize_args<T> &a, const float *map, int64_t e, int64_t count,
                        float (&x)[EACH])
{
    UNROLL for (int k = 0; k < EACH; k++)
    {
        const int64_t i = k < count ? e + k : e;
        const uint32_t byte = a.codes[i / 2];
        const float scale = scale_of<T, FORM>(a, block_of<FORM>(i));
        x[k] = product(map[i % 2 ? byte & 15 : byte >> 4], scale);
    }
}

template <class T, enum zinf_form FORM>
KERNEL(DEQUANTIZE_THREADS)
dequantize_kernel(dequantize_args<T> a)
{
    __shared__ float map[HALVES];
    const int64_t per_row = (a.cols + EACH - 1) / EACH;
    const int64_t unit = (int64_t)blockIdx.x * DEQUANTIZE_THREADS + threadIdx.x;
    const int64_t r = unit / per_row, col = unit % per_row * EACH, count = a.cols - col;
    const int64_t run = r / a.rows, in_run = r % a.rows;
    const int64_t row = a.from_first + run * a.from_stride + in_run, e = row * a.cols + col;
    T *to = a.w + (a.to_first + run * a.to_stride + in_run) * a.cols + col;
    float x[EACH];
    if (FORM != ZINF_FORM_INT8) {
        if (threadIdx.x < HALVES)
            map[threadIdx.x] = a.map[threadIdx.x];
        sync_block();
    }
    if (r >= a.n_rows)
        return;
    if (FORM == ZINF_FORM_INT8) {
        const float scale = a.scales[row];
        UNROLL for (int k = 0; k < EACH; k++)
        {
            const float code = (float)(int8_t)a.codes[k < count ? e + k : e];
            x[k] = product(product(code, scale), ZINF_QUANT_INT8_STEP);
        }
    } else if (a.vector) {
        dequantize_word<T, FORM>(a, map, e, x);
    } else {
        make_halves<T, FORM>(a, map, e, count, x);
    }
    store_each(to, x, count, a.vector);
}

template <class T>
static cudaError_t dequantize_typed(cudaStream_t stream, const struct zinf_dequantize *z)
{
    const char *image = (const char *)z->image;
    const struct zinf_quantized *p = &z->quantized;
    dequantize_args<T> a = {};
    a.w = (T *)z->w;
    a.codes = (const uint8_t *)image + ZINF_QUANT_CODES_AT;
    a.nested_codes = (const uint8_t *)image + p->scales_at;
    a.map = (const float *)(const void *)image;
    a.nested_map = (const float *)(const void *)(image + ZINF_QUANT_NESTED_MAP_AT);
    a.scales = (const float *)(const void *)(image + p->scales_at);
    a.nested = (const float *)(const void *)(image + p->nested_at);
    a.offset = (const float *)(const void *)(image + ZINF_QUANT_OFFSET_AT);
    a.cols = (int64_t)p->cols;
    a.n_rows = z->rows * z->count;
    a.from_first = z->from_first;
    a.from_stride = z->from_stride;
    a.to_first = z->to_first;
    a.to_stride = z->to_stride;
    a.rows = z->rows;
    a.vector = p->cols % EACH == 0 && aligned16(z->w);
    uint64_t units = (uint64_t)a.n_rows * ((p->cols + EACH - 1) / EACH);
    return launch(p->form == ZINF_FORM_INT8    ? dequantize_kernel<T, ZINF_FORM_INT8>
                  : p->form == ZINF_FORM_NF4   ? dequantize_kernel<T, ZINF_FORM_NF4>
                  : p->form == ZINF_FORM_MXFP4 ? dequantize_kernel<T, ZINF_FORM_MXFP4>
                                               : dequantize_kernel<T, ZINF_FORM_NF4_DOUBLE>,
                  dim3(blocks_for(units, DEQUANTIZE_THREADS)), dim3(DEQUANTIZE_THREADS), 0, stream,
                  a);
}

cudaError_t launch_dequantize(cudaStream_t stream, const struct zinf_dequantize *z)
{
    BY_DTYPE(z->dtype, return dequantize_typed<T>(stream, z));
}
