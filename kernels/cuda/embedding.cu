/*
 * embedding: table rows by token id. The gradient needs no atomics and adds rows in order of i:
 * the block of row i looks whether an earlier row has the same id and if so leaves; else it owns
 * the id and walks the later rows that share it. Comparing all ids with all costs less than
 * sorting them: they stay in cache, and a step has some ten thousand.
 */
#include "kernels/check.h"
#include "kernels/cuda/kernel.cuh"

enum { EMBEDDING_THREADS = 256, EMBEDDING_WARPS = EMBEDDING_THREADS / 32 };

template <class T> struct embedding_args {
    const int32_t *ids;
    const T *table, *dx;
    T *x;
    float *d_table;
    int64_t rows, cols, first, count;
    float scale;
    bool accumulate, vector;
};

template <class T> KERNEL(EMBEDDING_THREADS) embedding_kernel(embedding_args<T> a)
{
    int64_t i = blockIdx.x, row = (int64_t)a.ids[i] - a.first;
    if (row < 0 || row >= a.count)
        return;
    for (int64_t c = threadIdx.x * EACH; c < a.cols; c += EMBEDDING_THREADS * EACH) {
        T *to = a.x + i * a.cols + c;
        float from[EACH], sum[EACH] = {};
        load_each(from, a.table + row * a.cols + c, a.cols - c, a.vector);
        if (a.accumulate)
            load_each(sum, to, a.cols - c, a.vector);
        UNROLL for (int k = 0; k < EACH; k++)
            sum[k] = fused(a.scale, from[k], sum[k]);
        store_each(to, sum, a.cols - c, a.vector);
    }
}

/* Rows start .. start + EMBEDDING_THREADS - 1 that have this id, in order; returns how many. The
 * second barrier keeps the next call from the counts, the first one from the list. */
DEVICE int find_rows(const int32_t *ids, int64_t start, int64_t rows, int32_t id, int *list,
                     int *counts)
{
    int thread = threadIdx.x, warp = thread / 32, lane = thread % 32, before = 0, all = 0;
    bool match = start + thread < rows && ids[start + thread] == id;
    uint32_t votes = vote_warp(match);
    if (lane == 0)
        counts[warp] = count_bits(votes);
    sync_block();
    for (int k = 0; k < EMBEDDING_WARPS; k++) {
        before += k < warp ? counts[k] : 0;
        all += counts[k];
    }
    if (match)
        list[before + count_bits(votes & ((1u << lane) - 1))] = thread;
    sync_block();
    return all;
}

template <class T> KERNEL(EMBEDDING_THREADS) embedding_backward_kernel(embedding_args<T> a)
{
    __shared__ int list[EMBEDDING_THREADS], counts[EMBEDDING_WARPS];
    int64_t i = blockIdx.x;
    int32_t id = a.ids[i];
    int64_t row = (int64_t)id - a.first;
    if (row < 0 || row >= a.count)
        return;
    for (int64_t k = 0; k < i; k += EMBEDDING_THREADS)
        if (sync_block_or(k + threadIdx.x < i && a.ids[k + threadIdx.x] == id))
            return; /* an earlier block owns this id */
    for (int64_t start = i; start < a.rows; start += EMBEDDING_THREADS) {
        int n = find_rows(a.ids, start, a.rows, id, list, counts);
        for (int64_t c = threadIdx.x * EACH; n && c < a.cols; c += EMBEDDING_THREADS * EACH) {
            float *to = a.d_table + row * a.cols + c, sum[EACH], dx[EACH];
            load_each(sum, to, a.cols - c, a.vector);
            for (int k = 0; k < n; k++) {
                load_each(dx, a.dx + (start + list[k]) * a.cols + c, a.cols - c, a.vector);
                UNROLL for (int e = 0; e < EACH; e++)
                    sum[e] = fused(a.scale, dx[e], sum[e]);
            }
            store_each(to, sum, a.cols - c, a.vector);
        }
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
    return a;
}

template <class T>
static cudaError_t embedding_typed(cudaStream_t stream, const struct zinf_embedding *z,
                                   bool backward)
{
    embedding_args<T> a = embedding_args_of<T>(z);
    dim3 grid((unsigned)z->rows), block(EMBEDDING_THREADS);
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
