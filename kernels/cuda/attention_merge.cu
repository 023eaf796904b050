/*
 * attention_merge: attention over keys of several calls. A warp takes a head of a row.
 */
#include "kernels/cuda/kernel.cuh"

enum { MERGE_THREADS = 256, MERGE_WARPS = MERGE_THREADS / 32 };

template <class T> struct merge_args {
    const T *part;
    const float *part_lse;
    float *sum, *lse;
    T *out;
    int64_t rows, seq, n_heads, head_dim;
    bool first, last;
};

template <class T> KERNEL(MERGE_THREADS) attention_merge_kernel(merge_args<T> a)
{
    const int lane = threadIdx.x % 32;
    const int64_t pair = (int64_t)blockIdx.x * MERGE_WARPS + threadIdx.x / 32;
    if (pair >= a.rows * a.n_heads)
        return;
    const int64_t row = pair / a.n_heads, head = pair % a.n_heads;
    const int64_t at = (row / a.seq * a.n_heads + head) * a.seq + row % a.seq;
    const float part = warp_sum(lane == 0 ? a.part_lse[at] : 0.0f);
    const float old = warp_sum(lane == 0 && !a.first ? a.lse[at] : 0.0f);
    const bool fresh = a.first || old == -INFINITY, none = part == -INFINITY;
    const float top = old > part ? old : part, away = expf(-fabsf(old - part));
    const float big = 1.0f / (1.0f + away), small = away * big;
    const float of_old = fresh ? 0.0f : none ? 1.0f : old > part ? big : small;
    const float of_part = fresh ? 1.0f : none ? 0.0f : old > part ? small : big;
    for (int64_t c = pair * a.head_dim + lane; c < (pair + 1) * a.head_dim; c += 32) {
        const float before = of_old == 0.0f ? 0.0f : of_old * a.sum[c];
        const float sum = before + of_part * to_float(a.part[c]);
        a.sum[c] = sum;
        if (a.last)
            from_float(a.out[c], sum);
    }
    const float lse = fresh ? part : none ? old : top + logf(1.0f + away);
    if (lane == 0)
        a.lse[at] = a.last && lse == -INFINITY ? 0.0f : lse;
}

template <class T>
static cudaError_t merge_typed(cudaStream_t stream, const struct zinf_attention_merge *z)
{
    const dim3 block(MERGE_THREADS);
    const dim3 pairs(blocks_for((uint64_t)(z->batch * z->seq * z->n_heads), MERGE_WARPS));
    const merge_args<T> a = {(const T *)z->part, z->part_lse,       z->sum, z->lse,
                             (T *)z->out,        z->batch * z->seq, z->seq, z->n_heads,
                             z->head_dim,        z->first,          z->last};
    return launch(known<attention_merge_kernel<T>>(), pairs, block, 0, stream, a);
}

cudaError_t launch_attention_merge(cudaStream_t stream, const struct zinf_attention_merge *z)
{
    BY_DTYPE(z->dtype, return merge_typed<T>(stream, z));
}
