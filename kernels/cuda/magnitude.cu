/*
 * magnitude: norms of rows of weights with what an adapter adds to them, columns scaled by gains,
 * and the gradients of these: see kernels/magnitude.h. Every sum is over one row or one column, in
 * an order that the shape alone decides.
 */
#include "kernels/cuda/kernel.cuh"

enum { NORM_THREADS = 128, SCALE_THREADS = 256, DOT_COLUMNS = 32, DOT_DOWN = 8 };

/* ---- norms ---- */

template <class T> struct magnitude_args {
    const T *w, *b, *magnitude;
    const float *w_a, *a_a;
    float *norm, *gain;
    int64_t rows, cols, rank;
    float scale;
    bool vector; /* rows of w can be read 16 bytes at a time */
};

/* A lane's part of |W[i]|^2, and of what the adapter adds to it. */
template <class T> DEVICE float lane_squares(const magnitude_args<T> &a, int64_t row, int lane)
{
    float sum = 0.0f, w[EACH];
    for (int64_t col = lane * EACH; col < a.cols; col += 32 * EACH) {
        load_each(w, a.w + row * a.cols + col, a.cols - col, a.vector);
        UNROLL for (int k = 0; k < EACH; k++)
            sum = fused(w[k], w[k], sum);
    }
    return sum;
}
template <class T> DEVICE float lane_added(const magnitude_args<T> &a, int64_t row, int lane)
{
    const T *b = a.b + row * a.rank;
    float sum = 0.0f;
    for (int64_t k = lane; k < a.rank; k += 32) {
        float part = 0.0f;
        for (int64_t m = 0; m < a.rank; m++)
            part = fused(to_float(b[m]), a.a_a[m * a.rank + k], part);
        sum = fused(to_float(b[k]), fused(a.scale, part, 2.0f * a.w_a[row * a.rank + k]), sum);
    }
    return a.scale * sum;
}

/* A warp a row. */
template <class T> KERNEL(NORM_THREADS) magnitude_kernel(magnitude_args<T> a)
{
    const int64_t row = (int64_t)blockIdx.x * (NORM_THREADS / 32) + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    if (row >= a.rows)
        return;
    float norm = 1.0f, gain = 1.0f;
    if (a.w) {
        const float squares =
            warp_sum(lane_squares(a, row, lane)) + warp_sum(lane_added(a, row, lane));
        norm = root(squares > 0.0f ? squares : 0.0f);
        /* a row of zeros has no direction */
        gain = norm > 0.0f ? quotient(to_float(a.magnitude[row]), norm) : 0.0f;
    }
    if (lane == 0) {
        a.norm[row] = norm;
        a.gain[row] = gain;
    }
}

template <class T>
static cudaError_t magnitude_typed(cudaStream_t stream, const struct zinf_magnitude *z)
{
    magnitude_args<T> args = {};
    args.w = (const T *)z->w;
    args.b = (const T *)z->b;
    args.magnitude = (const T *)z->magnitude;
    args.w_a = z->w_a;
    args.a_a = z->a_a;
    args.norm = z->norm;
    args.gain = z->gain;
    args.rows = z->rows;
    args.cols = z->cols;
    args.rank = z->rank;
    args.scale = z->scale;
    args.vector = z->cols % EACH == 0 && aligned16(z->w);
    return launch(known<magnitude_kernel<T>>(),
                  dim3(blocks_for((uint64_t)z->rows, NORM_THREADS / 32)), dim3(NORM_THREADS), 0,
                  stream, args);
}

cudaError_t launch_magnitude(cudaStream_t stream, const struct zinf_magnitude *args)
{
    BY_DTYPE(args->dtype, return magnitude_typed<T>(stream, args));
}

/* ---- columns ---- */

template <class T> struct scale_args {
    const T *x, *bias;
    const float *gain;
    T *y;
    int64_t rows, cols;
    bool vector;
};

/* Eight columns of a row a thread. */
template <class T> KERNEL(SCALE_THREADS) scale_columns_kernel(scale_args<T> a)
{
    const int64_t each = (a.cols + EACH - 1) / EACH;
    const int64_t e = (int64_t)blockIdx.x * SCALE_THREADS + threadIdx.x;
    const int64_t row = e / each, col = e % each * EACH, left = a.cols - col;
    float x[EACH], gain[EACH], bias[EACH];
    if (row >= a.rows)
        return;
    load_each(x, a.x + row * a.cols + col, left, a.vector);
    load_each(gain, a.gain + col, left, a.vector);
    if (a.bias)
        load_each(bias, a.bias + col, left, a.vector);
    UNROLL for (int k = 0; k < EACH; k++)
        x[k] = a.bias ? fused(x[k], gain[k], bias[k]) : x[k] * gain[k];
    store_each(a.y + row * a.cols + col, x, left, a.vector);
}

template <class T>
static cudaError_t scale_typed(cudaStream_t stream, const struct zinf_column_scale *z)
{
    const scale_args<T> args = {(const T *)z->x,
                                (const T *)z->bias,
                                z->gain,
                                (T *)z->y,
                                z->rows,
                                z->cols,
                                z->cols % EACH == 0 && aligned16(z->x) && aligned16(z->bias) &&
                                    aligned16(z->gain) && aligned16(z->y)};
    const uint64_t n = (uint64_t)z->rows * (uint64_t)((z->cols + EACH - 1) / EACH);
    return launch(known<scale_columns_kernel<T>>(), dim3(blocks_for(n, SCALE_THREADS)),
                  dim3(SCALE_THREADS), 0, stream, args);
}

cudaError_t launch_scale_columns(cudaStream_t stream, const struct zinf_column_scale *args)
{
    BY_DTYPE(args->dtype, return scale_typed<T>(stream, args));
}

template <class T> struct dot_args {
    const T *x, *y;
    const float *norm;
    float *sum;
    int64_t rows, cols, ld;
};

/* A warp has every eighth row of 32 columns; the warps' sums are added in order. */
template <class T> KERNEL(DOT_COLUMNS *DOT_DOWN) dot_columns_kernel(dot_args<T> a)
{
    __shared__ float sums[DOT_DOWN][DOT_COLUMNS];
    const int64_t col = (int64_t)blockIdx.x * DOT_COLUMNS + threadIdx.x;
    float sum = 0.0f;
    for (int64_t row = threadIdx.y; row < a.rows && col < a.cols; row += DOT_DOWN)
        sum = fused(to_float(a.x[row * a.ld + col]), to_float(a.y[row * a.ld + col]), sum);
    sums[threadIdx.y][threadIdx.x] = sum;
    sync_block();
    if (threadIdx.y || col >= a.cols)
        return;
    for (int down = 1; down < DOT_DOWN; down++)
        sum += sums[down][threadIdx.x];
    a.sum[col] = a.norm[col] > 0.0f ? quotient(sum, a.norm[col]) : 0.0f;
}

template <class T>
static cudaError_t dot_typed(cudaStream_t stream, const struct zinf_column_dot *z)
{
    const dot_args<T> args = {(const T *)z->x, (const T *)z->y, z->norm, z->sum,
                              z->rows,         z->cols,         z->ld};
    return launch(known<dot_columns_kernel<T>>(), dim3(blocks_for((uint64_t)z->cols, DOT_COLUMNS)),
                  dim3(DOT_COLUMNS, DOT_DOWN), 0, stream, args);
}

cudaError_t launch_dot_columns(cudaStream_t stream, const struct zinf_column_dot *args)
{
    BY_DTYPE(args->dtype, return dot_typed<T>(stream, args));
}
