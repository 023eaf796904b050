/*
 * gated: y = f(gate) up and its gradients. A block takes a part of one row, a thread 8 columns of
 * it, of gate and up alike; it reads all it needs before it writes, so that dx may be x and y_out
 * may be dy, or, where gates are apart, the gradient of up may be dy.
 */
#include "kernels/cuda/activation.cuh"

enum { GATED_THREADS = 256 };

/* Forward: dy NULL. Backward: y where it is wanted again. */
template <class T> struct gated_args {
    const T *gate, *up, *dy;
    T *y, *d_gate, *d_up;
    int64_t cols, gate_ld, up_ld;
    bool vector;
};

template <class T, int KIND> KERNEL(GATED_THREADS) gated_kernel(gated_args<T> a)
{
    const int64_t row = blockIdx.x;
    const int64_t col = ((int64_t)blockIdx.y * GATED_THREADS + threadIdx.x) * EACH;
    const int64_t left = a.cols - col, gate_at = row * a.gate_ld + col, at = row * a.cols + col;
    const int64_t up_at = row * a.up_ld + col;
    float gate[EACH], up[EACH], dy[EACH] = {};
    if (left <= 0)
        return;
    load_each(gate, a.gate + gate_at, left, a.vector);
    load_each(up, a.up + up_at, left, a.vector);
    if (a.dy)
        load_each(dy, a.dy + at, left, a.vector);
    UNROLL for (int k = 0; k < EACH; k++)
    {
        float slope, value = activate<KIND, sizeof(T) == 2>(gate[k], slope);
        float up_slope, above = factor_of<KIND>(up[k], up_slope);
        gate[k] = dy[k] * above * slope;
        up[k] = dy[k] * value * up_slope;
        dy[k] = value * above;
    }
    if (a.dy) {
        store_each(a.d_gate + gate_at, gate, left, a.vector);
        store_each(a.d_up + up_at, up, left, a.vector);
    }
    if (a.y)
        store_each(a.y + at, dy, left, a.vector);
}

template <class T>
static cudaError_t gated_typed(cudaStream_t stream, const struct zinf_gated *z, bool backward)
{
    const kernel_of<gated_args<T>> kernels[] = {
        known<gated_kernel<T, ZINF_ACTIVATION_GELU_TANH>>(),
        known<gated_kernel<T, ZINF_ACTIVATION_GELU_ERF>>(),
        known<gated_kernel<T, ZINF_ACTIVATION_SILU>>(),
        known<gated_kernel<T, ZINF_ACTIVATION_RELU>>(),
        known<gated_kernel<T, ZINF_ACTIVATION_TANH>>(),
        known<gated_kernel<T, ZINF_ACTIVATION_RELU_SQUARED>>(),
        known<gated_kernel<T, ZINF_ACTIVATION_CLAMPED_SWISH>>(),
        known<gated_kernel<T, ZINF_ACTIVATION_SIGMOID>>(),
        known<gated_kernel<T, ZINF_ACTIVATION_IDENTITY>>(),
    };
    gated_args<T> a = {};
    const bool apart = z->gate_ld != 0;
    a.gate = (const T *)z->x;
    a.up = apart ? (const T *)z->up : a.gate + z->cols;
    a.y = (T *)(backward ? z->y_out : z->y);
    a.dy = (const T *)(backward ? z->dy : NULL);
    a.d_gate = (T *)(backward ? z->dx : NULL);
    a.d_up = !backward ? NULL : apart ? (T *)z->d_up : a.d_gate + z->cols;
    a.cols = z->cols;
    a.gate_ld = apart ? z->gate_ld : 2 * z->cols;
    a.up_ld = apart ? z->cols : a.gate_ld;
    a.vector = z->cols % EACH == 0 && a.gate_ld % EACH == 0 && aligned16(a.gate) &&
               aligned16(a.up) && aligned16(a.y) && aligned16(a.dy) && aligned16(a.d_gate) &&
               aligned16(a.d_up);
    dim3 grid(blocks_for((uint64_t)z->rows, 1),
              blocks_for((uint64_t)z->cols, GATED_THREADS * EACH));
    return launch(kernels[z->kind], grid, dim3(GATED_THREADS), 0, stream, a);
}

cudaError_t launch_gated(cudaStream_t stream, const struct zinf_gated *z, bool backward)
{
    BY_DTYPE(z->dtype, return gated_typed<T>(stream, z, backward));
}
