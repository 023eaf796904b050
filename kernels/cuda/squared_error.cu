/* squared_error: the loss of one number a row, and its gradient, a thread a row. */
#include "kernels/cuda/kernel.cuh"

enum { ERROR_THREADS = 256 };

struct squared_error_args {
    struct zinf_squared_error z;
};

KERNEL(ERROR_THREADS) squared_error_kernel(squared_error_args a)
{
    const int64_t i = (int64_t)blockIdx.x * ERROR_THREADS + threadIdx.x;
    if (i >= a.z.rows)
        return;
    const float label = a.z.labels[i], away = label != label ? 0.0f : a.z.x[i] - label;
    if (a.z.loss)
        a.z.loss[i] = away * away;
    if (a.z.dx)
        a.z.dx[i] = 2.0f * a.z.scale * away;
}

cudaError_t launch_squared_error(cudaStream_t stream, const struct zinf_squared_error *z)
{
    squared_error_args args = {*z};
    return launch(known<squared_error_kernel>(), dim3(blocks_for((uint64_t)z->rows, ERROR_THREADS)),
                  dim3(ERROR_THREADS), 0, stream, args);
}
