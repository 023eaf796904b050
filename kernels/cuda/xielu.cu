/* xielu: an activation with two trained numbers, forward and backward, a block a row; the row's
 * sums are made in the same order in every run. */
#include "kernels/cuda/block.cuh"

enum { XIELU_THREADS = 256, XIELU_WARPS = XIELU_THREADS / 32 };

/* Forward: dy NULL. Backward: y where it is wanted again. */
template <class T> struct xielu_args {
    const T *x, *alphas, *constants, *dy;
    T *y, *dx;
    float *sums;
    int64_t cols;
    bool vector;
};

DEVICE float smooth_relu(float x)
{
    return (x > 0.0f ? x : 0.0f) + logf(1.0f + expf(-fabsf(x)));
}

/* The row's sum of a number's terms, times the slope of softplus at the number. */
DEVICE void put_sum(float *to, float terms, float alpha, float *shared)
{
    const float sum = block_reduce<XIELU_WARPS>(terms, true, shared);
    if (threadIdx.x == 0)
        *to = sum / (1.0f + expf(-alpha));
}

template <class T> KERNEL(XIELU_THREADS) xielu_kernel(xielu_args<T> a)
{
    __shared__ float shared[XIELU_WARPS];
    const float beta = to_float(a.constants[0]), eps = to_float(a.constants[1]);
    const float alpha[2] = {to_float(a.alphas[0]), to_float(a.alphas[1])};
    const float p = smooth_relu(alpha[0]), m = beta + smooth_relu(alpha[1]);
    float sum[2] = {0.0f, 0.0f};
    for (int64_t col = (int64_t)threadIdx.x * EACH; col < a.cols; col += XIELU_THREADS * EACH) {
        const int64_t at = blockIdx.x * a.cols + col, left = a.cols - col;
        float x[EACH], dy[EACH] = {};
        load_each(x, a.x + at, left, a.vector);
        if (a.dy)
            load_each(dy, a.dy + at, left, a.vector);
        UNROLL for (int k = 0; k < EACH; k++)
        {
            const bool above = x[k] > 0.0f;
            const float by = above ? x[k] * x[k] : expm1f(x[k] < eps ? x[k] : eps) - x[k];
            const float share = x[k] < eps ? 1.0f : x[k] == eps ? 0.5f : 0.0f;
            const float slope =
                above ? p * 2.0f * x[k] + beta : m * (share * (by + x[k] + 1.0f) - 1.0f) + beta;
            sum[0] += above && k < left ? dy[k] * by : 0.0f;
            sum[1] += !above && k < left ? dy[k] * by : 0.0f;
            dy[k] *= slope;
            x[k] = (above ? p : m) * by + beta * x[k];
        }
        if (a.dy)
            store_each(a.dx + at, dy, left, a.vector);
        if (a.y)
            store_each(a.y + at, x, left, a.vector);
    }
    if (!a.dy)
        return;
    put_sum(a.sums + 2 * blockIdx.x, sum[0], alpha[0], shared);
    put_sum(a.sums + 2 * blockIdx.x + 1, sum[1], alpha[1], shared);
}

template <class T>
static cudaError_t xielu_typed(cudaStream_t stream, const struct zinf_xielu *z, bool backward)
{
    xielu_args<T> a = {};
    a.x = (const T *)z->x;
    a.alphas = (const T *)z->alphas;
    a.constants = (const T *)z->constants;
    a.y = (T *)z->y;
    a.dy = (const T *)(backward ? z->dy : NULL);
    a.dx = (T *)z->dx;
    a.sums = z->sums;
    a.cols = z->cols;
    a.vector = z->cols % EACH == 0 && aligned16(a.x) && aligned16(a.y) && aligned16(a.dy) &&
               aligned16(a.dx);
    return launch(known<xielu_kernel<T>>(), grid_of_rows(z->rows), dim3(XIELU_THREADS), 0, stream,
                  a);
}

cudaError_t launch_xielu(cudaStream_t stream, const struct zinf_xielu *z, bool backward)
{
    BY_DTYPE(z->dtype, return xielu_typed<T>(stream, z, backward));
}
