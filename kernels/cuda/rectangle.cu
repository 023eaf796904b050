/*
 * rectangle: what surrounds a matrix product whose types cuBLASLt does not take together: a matrix
 * with rows of its own distance is converted, and a bias is added or becomes every row.
 */
#include "kernels/cuda/kernel.cuh"

#include <type_traits>

enum { RECTANGLE_THREADS = 256 };

/* dst[i][j] = src[i][j]; with add, += src; a src_ld of 0 is one row for all. */
template <class To, class From> struct rectangle_args {
    To *dst;
    const From *src;
    int64_t dst_ld, src_ld, rows, cols;
    bool add, vector;
};

template <class To, class From>
KERNEL(RECTANGLE_THREADS)
rectangle_kernel(rectangle_args<To, From> a)
{
    int64_t per_row = (a.cols + EACH - 1) / EACH;
    int64_t unit = (int64_t)blockIdx.x * RECTANGLE_THREADS + threadIdx.x;
    int64_t row = unit / per_row, col = unit % per_row * EACH;
    float x[EACH], y[EACH];
    if (row >= a.rows)
        return;
    To *to = a.dst + row * a.dst_ld + col;
    load_each(x, a.src + row * a.src_ld + col, a.cols - col, a.vector);
    if (a.add) {
        load_each(y, to, a.cols - col, a.vector);
        UNROLL for (int k = 0; k < EACH; k++) x[k] += y[k];
    }
    store_each(to, x, a.cols - col, a.vector);
}

template <class To, class From>
static cudaError_t rectangle_typed(cudaStream_t stream, struct rectangle dst, struct rectangle src,
                                   int64_t rows, int64_t cols, bool add)
{
    /* bf16 and fp16 meet as fp32 (packed_product) */
    if constexpr (sizeof(To) == sizeof(From) && !std::is_same<To, From>::value) {
        return cudaErrorInvalidValue;
    } else {
        bool vector =
            aligned16(dst.base) && aligned16(src.base) && dst.ld % EACH == 0 && src.ld % EACH == 0;
        rectangle_args<To, From> args = {
            (To *)dst.base, (const From *)src.base, dst.ld, src.ld, rows, cols, add, vector};
        uint64_t units = (uint64_t)rows * (uint64_t)((cols + EACH - 1) / EACH);
        return launch(known<rectangle_kernel<To, From>>(),
                      dim3(blocks_for(units, RECTANGLE_THREADS)), dim3(RECTANGLE_THREADS), 0,
                      stream, args);
    }
}

template <class From>
static cudaError_t rectangle_from(cudaStream_t stream, struct rectangle dst, struct rectangle src,
                                  int64_t rows, int64_t cols, bool add)
{
    BY_DTYPE(dst.dtype, return (rectangle_typed<T, From>(stream, dst, src, rows, cols, add)));
}

cudaError_t launch_rectangle_convert(cudaStream_t stream, struct rectangle dst,
                                     struct rectangle src, int64_t rows, int64_t cols)
{
    BY_DTYPE(src.dtype, return rectangle_from<T>(stream, dst, src, rows, cols, false));
}

cudaError_t launch_rectangle_bias(cudaStream_t stream, struct rectangle dst, struct rectangle bias,
                                  int64_t rows, int64_t cols)
{
    bias.ld = 0;
    BY_DTYPE(bias.dtype, return rectangle_from<T>(stream, dst, bias, rows, cols, true));
}
