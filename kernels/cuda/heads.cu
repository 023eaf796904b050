/*
 * heads: columns of heads from one layout of rows to another, or their sum over heads. A block
 * takes a row, a thread elements of it; a sum is one thread's, in the order of heads.
 */
#include "kernels/cuda/kernel.cuh"

enum { HEADS_THREADS = 256 };

template <class T> struct heads_args {
    const T *x; /* or NULL */
    T *y;
    int64_t x_ld, x_step, y_ld, y_step;
    int n_heads, cols;
    float scale; /* 1: copies keep their bits */
};

template <class T> KERNEL(HEADS_THREADS) heads_copy_kernel(heads_args<T> a)
{
    const int64_t row = blockIdx.x;
    const T *x = a.x ? a.x + row * a.x_ld : a.x;
    T *y = a.y + row * a.y_ld;
    for (int i = threadIdx.x; i < a.n_heads * a.cols; i += HEADS_THREADS) {
        const int head = i / a.cols, c = i % a.cols;
        if (x && a.scale != 1.0f)
            from_float(y[head * a.y_step + c], a.scale * to_float(x[head * a.x_step + c]));
        else if (x)
            y[head * a.y_step + c] = x[head * a.x_step + c];
        else
            from_float(y[head * a.y_step + c], 0.0f);
    }
}

template <class T> KERNEL(HEADS_THREADS) heads_sum_kernel(heads_args<T> a)
{
    const int64_t row = blockIdx.x;
    for (int c = threadIdx.x; c < a.cols; c += HEADS_THREADS) {
        float sum = 0.0f;
        for (int head = 0; head < a.n_heads; head++)
            sum += to_float(a.x[row * a.x_ld + head * a.x_step + c]);
        from_float(a.y[row * a.y_ld + c], sum);
    }
}

template <class T> static cudaError_t heads_typed(cudaStream_t stream, const struct zinf_heads *z)
{
    const heads_args<T> a = {(const T *)z->x, (T *)z->y, z->x_ld,         z->x_step,
                             z->y_ld,         z->y_step, (int)z->n_heads, (int)z->cols,
                             zinf_heads_scaled(z) ? z->scale : 1.0f};
    return launch(zinf_heads_sum(z) ? known<heads_sum_kernel<T>>() : known<heads_copy_kernel<T>>(),
                  grid_of_rows(z->rows), dim3(HEADS_THREADS), 0, stream, a);
}

cudaError_t launch_copy_heads(cudaStream_t stream, const struct zinf_heads *z)
{
    BY_DTYPE(z->dtype, return heads_typed<T>(stream, z));
}
