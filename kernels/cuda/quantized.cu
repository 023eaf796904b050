/*
 * quantized: numbers from the images of quantised weights (kernels/quantized.h). Rows that follow
 * one another there and in the result are a run of elements that knows no rows; a thread takes 8 of
 * a run at four places, so that its warp reads and writes whole lines, and all that it reads is on
 * its way before the first is needed. A warp has 1024 elements that follow each other. They have at
 * most 32 scales: each lane makes one, and the others read it by a shuffle. Every product and sum
 * is rounded by itself, so that the bits are the CPU's. The 16 numbers that 4 bits stand for are in
 * shared memory, in a bank each.
 */
#include "kernels/cuda/kernel.cuh"

enum { DEQUANTIZE_THREADS = 256, HALVES = 16, PLACES = 4 };
static const uint32_t MOST_Y = 65535; /* blocks of a grid beside one another */
enum { PLACE = 32 * EACH };           /* elements from one place of a thread to its next */
enum { OF_WARP = PLACE * PLACES };    /* elements */

template <class T> struct dequantize_args {
    T *w;
    const uint8_t *codes, *nested_codes;
    const float *map, *nested_map, *scales, *nested, *offset;
    uint64_t from_first, from_stride, to_first, to_stride, n; /* elements; of a run */
    uint32_t cols, across, count;                             /* blocks of FP8 in a row; runs */
    bool vector;
};

/* From 2^-126 to 2^127. */
DEVICE float power_of_two(int exponent)
{
    bf16 x;
    x.bits = (uint16_t)((exponent + 127) << 7);
    return to_float(x);
}

DEVICE constexpr uint32_t block_elems(enum zinf_form form)
{
    return form == ZINF_FORM_MXFP4 ? ZINF_QUANT_MX_BLOCK : ZINF_QUANT_BLOCK;
}

DEVICE constexpr bool of_bytes(enum zinf_form form)
{
    return form == ZINF_FORM_INT8 || form == ZINF_FORM_FP8;
}

template <class T, enum zinf_form FORM>
DEVICE float scale_of(const dequantize_args<T> &a, uint64_t block)
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

/* Elements e .. e + 7 of the image, all of one block: 4 bytes. */
DEVICE void halves_of(const float *map, uint32_t word, float scale, float (&x)[EACH])
{
    UNROLL for (int k = 0; k < EACH; k++)
    {
        const int shift = k % 2 ? 4 * k - 4 : 4 * k + 4; /* of bytes, the high half is first */
        const uint32_t at = (shift ? word >> (shift - 2) : word << 2) & 4 * (HALVES - 1);
        x[k] = product(*(const float *)(const void *)((const char *)map + at), scale);
    }
}

/* A thread's places, the first of them at the run's element i; the run begins at the image's e. The
 * warp's 1024 elements meet at most 17 blocks of 64, wherever they begin, or 32 of MXFP4's 32: its
 * rows are whole blocks, so that a run begins with one. Every lane takes part in the shuffles, also
 * one behind the run's end. WHOLE: the run has all that the warp makes; else a place behind its end
 * reads the run's first element and is not written. */
template <class T, enum zinf_form FORM, bool WHOLE>
DEVICE void make_places(const dequantize_args<T> &a, const float *map, uint64_t e, T *to,
                        uint64_t i)
{
    constexpr uint32_t BLOCK = block_elems(FORM);
    const uint32_t lane = threadIdx.x % 32;
    const uint64_t start = e + i - lane * EACH, last = (e + a.n - 1) / BLOCK;
    const uint64_t mine = start / BLOCK + lane;
    const float scale = scale_of<T, FORM>(a, mine < last ? mine : last);
    const uint32_t block = ((uint32_t)start % BLOCK + lane * EACH) / BLOCK;
    uint32_t words[PLACES];
    float x[EACH];
    UNROLL for (uint32_t p = 0; p < PLACES; p++)
    {
        const uint64_t at = WHOLE || i + p * PLACE < a.n ? i + p * PLACE : 0;
        words[p] = *(const uint32_t *)(const void *)(a.codes + (e + at) / 2);
    }
    UNROLL for (uint32_t p = 0; p < PLACES; p++)
    {
        const float s = shuffle_from(scale, block + p * (PLACE / BLOCK));
        if (!WHOLE && i + p * PLACE >= a.n)
            continue;
        halves_of(map, words[p], s, x);
        store_vector(to + i + p * PLACE, x);
    }
}

/* Forms whose codes are bytes: the scale of an element, and the number of its code. */
template <class T, enum zinf_form FORM>
DEVICE float byte_scale(const dequantize_args<T> &a, uint64_t e)
{
    const uint64_t row = e / a.cols;
    if (FORM == ZINF_FORM_INT8)
        return a.scales[row];
    return a
        .scales[row / ZINF_QUANT_FP8_BLOCK * a.across + (e - row * a.cols) / ZINF_QUANT_FP8_BLOCK];
}
template <enum zinf_form FORM> DEVICE float byte_number(uint32_t code, float scale)
{
    if (FORM == ZINF_FORM_INT8)
        return product(product((float)(int8_t)code, scale), ZINF_QUANT_INT8_STEP);
    bf16 x; /* exponent and fraction where bf16 has them, whose exponents are 120 greater */
    x.bits = (uint16_t)((code & 0x80u) << 8 | (code & 0x7fu) << 4);
    return product(product(to_float(x), 0x1p120f), scale);
}

/* The same wherever blocks and bytes begin, up to the run's end. */
template <class T, enum zinf_form FORM>
DEVICE float number_at(const dequantize_args<T> &a, const float *map, uint64_t e)
{
    if (of_bytes(FORM))
        return byte_number<FORM>(a.codes[e], byte_scale<T, FORM>(a, e));
    const uint32_t byte = a.codes[e / 2];
    return product(map[e % 2 ? byte & 15 : byte >> 4], scale_of<T, FORM>(a, e / block_elems(FORM)));
}

/* 8 codes of one row, and of one block. */
template <class T, enum zinf_form FORM>
DEVICE void bytes_of(const dequantize_args<T> &a, uint64_t e, float (&x)[EACH])
{
    const float scale = byte_scale<T, FORM>(a, e);
    const uint32_t *words = (const uint32_t *)(const void *)(a.codes + e);
    const uint32_t both[2] = {words[0], words[1]};
    UNROLL for (int k = 0; k < EACH; k++)
    {
        x[k] = byte_number<FORM>(both[k / 4] >> (8 * (k % 4)) & 255, scale);
    }
}

template <class T, enum zinf_form FORM>
KERNEL(DEQUANTIZE_THREADS)
dequantize_kernel(dequantize_args<T> a)
{
    __shared__ float map[HALVES];
    const uint32_t warp = threadIdx.x / 32;
    const uint64_t first = ((uint64_t)blockIdx.x * (DEQUANTIZE_THREADS / 32) + warp) * OF_WARP;
    const uint64_t i = first + threadIdx.x % 32 * EACH;
    if (!of_bytes(FORM)) {
        if (threadIdx.x < HALVES)
            map[threadIdx.x] = a.map[threadIdx.x];
        sync_block();
    }
    NO_UNROLL for (uint32_t run = blockIdx.y; run < a.count; run += gridDim.y)
    {
        const uint64_t e = a.from_first + run * a.from_stride;
        T *to = a.w + a.to_first + run * a.to_stride;
        if (a.vector && !of_bytes(FORM)) {
            if (first + OF_WARP <= a.n)
                make_places<T, FORM, true>(a, map, e, to, i);
            else if (first < a.n)
                make_places<T, FORM, false>(a, map, e, to, i);
            continue;
        }
        NO_UNROLL for (uint64_t at = i; at < i + OF_WARP && at < a.n; at += PLACE)
        {
            float x[EACH];
            const int64_t left = (int64_t)(a.n - at);
            if (a.vector)
                bytes_of<T, FORM>(a, e + at, x);
            else
                UNROLL for (int k = 0; k < EACH; k++) x[k] =
                    number_at<T, FORM>(a, map, e + at + (k < left ? k : 0));
            store_each(to + at, x, left, a.vector);
        }
    }
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
    a.cols = (uint32_t)p->cols;
    a.across = (a.cols + ZINF_QUANT_FP8_BLOCK - 1) / ZINF_QUANT_FP8_BLOCK;
    a.from_first = (uint64_t)z->from_first * p->cols;
    a.from_stride = (uint64_t)z->from_stride * p->cols;
    a.to_first = (uint64_t)z->to_first * p->cols;
    a.to_stride = (uint64_t)z->to_stride * p->cols;
    a.n = (uint64_t)z->rows * p->cols;
    a.count = (uint32_t)z->count;
    a.vector = p->cols % EACH == 0 && aligned16(z->w);
    const dim3 grid(blocks_for(a.n, (uint64_t)DEQUANTIZE_THREADS * EACH * PLACES),
                    a.count < MOST_Y ? a.count : MOST_Y);
    return launch(p->form == ZINF_FORM_INT8  ? known<dequantize_kernel<T, ZINF_FORM_INT8>>()
                  : p->form == ZINF_FORM_NF4 ? known<dequantize_kernel<T, ZINF_FORM_NF4>>()
                  : p->form == ZINF_FORM_FP8 ? known<dequantize_kernel<T, ZINF_FORM_FP8>>()
                  : p->form == ZINF_FORM_MXFP4
                      ? known<dequantize_kernel<T, ZINF_FORM_MXFP4>>()
                      : known<dequantize_kernel<T, ZINF_FORM_NF4_DOUBLE>>(),
                  grid, dim3(DEQUANTIZE_THREADS), 0, stream, a);
}

cudaError_t launch_dequantize(cudaStream_t stream, const struct zinf_dequantize *z)
{
    BY_DTYPE(z->dtype, return dequantize_typed<T>(stream, z));
}
