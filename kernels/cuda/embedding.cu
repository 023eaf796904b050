/*
 * embedding: table rows by token id. The gradient needs no atomics and adds rows in order of i:
 * the block of row i looks at all rows in order, leaves where an earlier one has the same id, and
 * else owns the id and adds the rows that share it. Comparing all ids with all, four a thread at a
 * time, costs less than sorting them: they stay in cache, and a step has some ten thousand.
 */
#include "kernels/check.h"
#include "kernels/cuda/kernel.cuh"

enum { EMBEDDING_THREADS = 256, EMBEDDING_WARPS = EMBEDDING_THREADS / 32, IDS = 4 };

template <class T> struct embedding_args {
    const int32_t *ids;
    const T *table, *dx;
    T *x;
    float *d_table;
    int64_t rows, cols, first, count;
    int threads; /* of a block: as many as a row has pieces of 8, a warp or more */
    float scale;
    bool accumulate, vector, ids_vector;
};

template <class T> KERNEL(EMBEDDING_THREADS) embedding_kernel(embedding_args<T> a)
{
    int64_t i = blockIdx.x, row = (int64_t)a.ids[i] - a.first;
    if (row < 0 || row >= a.count)
        return;
    for (int64_t c = threadIdx.x * EACH; c < a.cols; c += a.threads * EACH) {
        T *to = a.x + i * a.cols + c;
        float from[EACH], sum[EACH] = {};
        load_each(from, a.table + row * a.cols + c, a.cols - c, a.vector);
        if (a.accumulate)
            load_each(sum, to, a.cols - c, a.vector);
        UNROLL for (int k = 0; k < EACH; k++) sum[k] = fused(a.scale, from[k], sum[k]);
        store_each(to, sum, a.cols - c, a.vector);
    }
}

/* Which of this thread's four rows of a chunk, from row k on, have the id: a bit each. */
template <class T> DEVICE unsigned same_ids(const embedding_args<T> &a, int64_t k, int32_t id)
{
    int32_t ids[IDS];
    unsigned same = 0;
    if (a.ids_vector && k + IDS <= a.rows) {
        const words4 raw = *(const words4 *)(const void *)(a.ids + k);
        memcpy(ids, &raw, sizeof ids);
        UNROLL for (int j = 0; j < IDS; j++) same |= (ids[j] == id ? 1u : 0u) << j;
        return same;
    }
    UNROLL for (int j = 0; j < IDS; j++) same |= (k + j < a.rows && a.ids[k + j] == id ? 1u : 0u)
                                                 << j;
    return same;
}

/* Lists the block's rows of a chunk that have the id, in order; returns how many. The second
 * barrier is there so that no thread writes the next call's counts while others read these; the
 * first, so that none writes the list while others add the rows of the call before. */
DEVICE int list_rows(unsigned same, int warps, int *list, int *counts)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int before = 0, all = 0, earlier = 0;
    UNROLL for (int j = 0; j < IDS; j++)
    {
        const uint32_t votes = vote_warp(same >> j & 1);
        all += count_bits(votes);
        earlier += count_bits(votes & ((1u << lane) - 1));
    }
    if (lane == 0)
        counts[warp] = all;
    sync_block();
    all = 0;
    for (int k = 0; k < warps; k++) {
        before += k < warp ? counts[k] : 0;
        all += counts[k];
    }
    UNROLL for (int j = 0; j < IDS; j++) if (same >> j & 1) list[before + earlier++] =
        (int)threadIdx.x * IDS + j;
    sync_block();
    return all;
}

/* Adds the listed rows of a chunk to the table's row, one after the other. */
template <class T>
DEVICE void add_rows(const embedding_args<T> &a, int64_t row, int64_t start, const int *list, int n)
{
    for (int64_t c = threadIdx.x * EACH; c < a.cols; c += a.threads * EACH) {
        float *to = a.d_table + row * a.cols + c, sum[EACH], dx[EACH];
        load_each(sum, to, a.cols - c, a.vector);
        for (int k = 0; k < n; k++) {
            load_each(dx, a.dx + (start + list[k]) * a.cols + c, a.cols - c, a.vector);
            UNROLL for (int e = 0; e < EACH; e++) sum[e] = fused(a.scale, dx[e], sum[e]);
        }
        store_each(to, sum, a.cols - c, a.vector);
    }
}

template <class T> KERNEL(EMBEDDING_THREADS) embedding_backward_kernel(embedding_args<T> a)
{
    __shared__ int list[EMBEDDING_THREADS * IDS], counts[EMBEDDING_WARPS];
    const int64_t i = blockIdx.x;
    const int32_t id = a.ids[i];
    const int64_t row = (int64_t)id - a.first;
    if (row < 0 || row >= a.count)
        return;
    for (int64_t start = 0; start < a.rows; start += a.threads * IDS) {
        const int64_t k = start + threadIdx.x * IDS;
        const unsigned same = same_ids(a, k, id);
        if (!sync_block_or(same != 0))
            continue;
        const unsigned earlier = i - k >= IDS ? ~0u : k < i ? (1u << (i - k)) - 1 : 0;
        if (start < i && sync_block_or((same & earlier) != 0))
            return; /* an earlier block owns this id */
        add_rows(a, row, start, list, list_rows(same, a.threads / 32, list, counts));
    }
}

template <class T> static embedding_args<T> embedding_args_of(const struct zinf_embedding *z)
{
    embedding_args<T> a = {};
    a.ids = z->ids;
    a.table = (const T *)z->table;
    a.dx = (const T *)z->dx;
    a.x = (T *)z->x;
    a.d_table = z->d_table;
    a.rows = z->rows;
    a.cols = z->cols;
    a.first = z->first;
    a.count = z->count;
    a.accumulate = z->accumulate;
    a.scale = embedding_scale(z);
    const int64_t pieces = (z->cols + EACH - 1) / EACH;
    a.threads = pieces < EMBEDDING_THREADS ? (int)(pieces + 31) / 32 * 32 : EMBEDDING_THREADS;
    a.ids_vector = aligned16(z->ids);
    return a;
}

template <class T>
static cudaError_t embedding_typed(cudaStream_t stream, const struct zinf_embedding *z,
                                   bool backward)
{
    embedding_args<T> a = embedding_args_of<T>(z);
    dim3 grid = grid_of_rows(z->rows), block((unsigned)a.threads);
    a.vector = z->cols % EACH == 0 && (backward ? aligned16(a.dx) && aligned16(a.d_table)
                                                : aligned16(a.x) && aligned16(a.table));
    return backward ? launch(known<embedding_backward_kernel<T>>(), grid, block, 0, stream, a)
                    : launch(known<embedding_kernel<T>>(), grid, block, 0, stream, a);
}

cudaError_t launch_embedding(cudaStream_t stream, const struct zinf_embedding *args)
{
    BY_DTYPE(args->dtype, return embedding_typed<T>(stream, args, false));
}

cudaError_t launch_embedding_backward(cudaStream_t stream, const struct zinf_embedding *args)
{
    BY_DTYPE(args->dtype, return embedding_typed<T>(stream, args, true));
}
