/*
 * sinks: a number of each head's own that joins its softmax. Forward a warp takes a head of a row;
 * backward a block takes a head, its warps rows in turn, and their sums are added in order.
 */
#include "kernels/cuda/kernel.cuh"

enum { SINKS_THREADS = 256, SINKS_WARPS = SINKS_THREADS / 32 };

template <class T> struct sinks_args {
    const T *sinks, *d_out;
    T *out;
    float *lse, *d_sinks;
    int64_t rows, seq, n_heads, head_dim;
};

template <class T> DEVICE float *lse_of(const sinks_args<T> &a, int64_t row, int64_t head)
{
    return a.lse + (row / a.seq * a.n_heads + head) * a.seq + row % a.seq;
}

template <class T> KERNEL(SINKS_THREADS) sinks_kernel(sinks_args<T> a)
{
    const int lane = threadIdx.x % 32;
    const int64_t pair = (int64_t)blockIdx.x * SINKS_WARPS + threadIdx.x / 32;
    if (pair >= a.rows * a.n_heads)
        return;
    float *lse = lse_of(a, pair / a.n_heads, pair % a.n_heads);
    const float keys = warp_sum(lane == 0 ? *lse : 0.0f),
                sink = to_float(a.sinks[pair % a.n_heads]);
    const float top = keys > sink ? keys : sink, away = expf(-fabsf(keys - sink));
    const float share = (keys > sink ? 1.0f : away) / (1.0f + away);
    T *out = a.out + pair * a.head_dim;
    for (int64_t c = lane; c < a.head_dim; c += 32)
        from_float(out[c], to_float(out[c]) * share);
    if (lane == 0)
        *lse = top + logf(1.0f + away);
}

template <class T> KERNEL(SINKS_THREADS) sinks_backward_kernel(sinks_args<T> a)
{
    SHARED_MEMORY(memory); /* of each warp its sum */
    float *sums = (float *)memory;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int64_t head = blockIdx.x;
    const float sink = to_float(a.sinks[head]);
    float sum = 0.0f, lost = 0.0f; /* and what rounding has taken (Kahan) */
    for (int64_t row = warp; row < a.rows; row += SINKS_WARPS) {
        const int64_t at = (row * a.n_heads + head) * a.head_dim;
        float dot = 0.0f;
        for (int64_t c = lane; c < a.head_dim; c += 32)
            dot += to_float(a.out[at + c]) * to_float(a.d_out[at + c]);
        const float term = -expf(sink - *lse_of(a, row, head)) * warp_sum(dot) - lost;
        const float next = sum + term;
        lost = (next - sum) - term;
        sum = next;
    }
    if (lane == 0)
        sums[warp] = sum;
    sync_block();
    if (threadIdx.x == 0) {
        float total = 0.0f;
        for (int w = 0; w < SINKS_WARPS; w++)
            total += sums[w];
        a.d_sinks[head] = total;
    }
}

template <class T> static sinks_args<T> sinks_args_of(const struct zinf_sinks *z)
{
    sinks_args<T> a = {(const T *)z->sinks, (const T *)z->d_out, (T *)z->out, z->lse,
                       z->d_sinks,          z->batch * z->seq,   z->seq,      z->n_heads,
                       z->head_dim};
    return a;
}

template <class T>
static cudaError_t sinks_typed(cudaStream_t stream, const struct zinf_sinks *z, bool backward)
{
    const dim3 block(SINKS_THREADS), heads((unsigned)z->n_heads);
    const dim3 pairs(blocks_for((uint64_t)(z->batch * z->seq * z->n_heads), SINKS_WARPS));
    const sinks_args<T> a = sinks_args_of<T>(z);
    if (backward)
        return launch(known<sinks_backward_kernel<T>>(), heads, block, SINKS_WARPS * sizeof(float),
                      stream, a);
    return launch(known<sinks_kernel<T>>(), pairs, block, 0, stream, a);
}

cudaError_t launch_sinks(cudaStream_t stream, const struct zinf_sinks *z, bool backward)
{
    BY_DTYPE(z->dtype, return sinks_typed<T>(stream, z, backward));
}
