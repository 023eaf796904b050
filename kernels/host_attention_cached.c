/*
 * host_attention_cached: new keys and values into the cache, then attention over it, a few rows of
 * a key head's queries a time over threads. Which thread takes which changes no bit.
 */
#include "kernels/host.h"

#include <omp.h>

/* Rows that go through the cache together: the heads of as many as fill the registers. */
static int64_t block_rows(const struct zinf_attention_cached *args)
{
    const int64_t group = args->n_heads / args->n_kv_heads;
    return group < HOST_CACHED_QUERIES ? HOST_CACHED_QUERIES / group : 1;
}

static uint64_t scratch_floats(const struct zinf_attention_cached *args)
{
    const uint64_t dim = (uint64_t)args->head_dim;
    const uint64_t n = (uint64_t)(block_rows(args) * (args->n_heads / args->n_kv_heads));
    /* query, out, scores, max and sum of each query; a tile of keys and of values */
    return zinf_align_up(n * (2 * dim + HOST_TILE_KEYS + 2) + 2 * HOST_TILE_KEYS * dim, 16);
}

uint64_t host_attention_cached_workspace(struct zinf_device *device,
                                         const struct zinf_attention_cached *args)
{
    return (uint64_t)device->n_threads * scratch_floats(args) * sizeof(float);
}

static int check_positions(const struct zinf_attention_cached *a)
{
    for (int64_t r = 0; r < a->rows; r++)
        if (a->sequences[r] < 0 || a->sequences[r] >= a->n_sequences || a->positions[r] < 0 ||
            (!a->window && a->positions[r] >= a->capacity))
            return zinf_fail(-EINVAL,
                             "attention_cached: position %d of sequence %d; there are %lld "
                             "sequences of %lld slots",
                             a->positions[r], a->sequences[r], (long long)a->n_sequences,
                             (long long)a->capacity);
    return 0;
}

/* The heads' keys and values of a row to their slots. */
static void keep_row(const struct zinf_attention_cached *a, int64_t row)
{
    const size_t bytes = (size_t)a->head_dim * zinf_dtype_bytes(a->dtype);
    const int64_t heads = a->n_heads + 2 * a->n_kv_heads, planes = 2 * a->n_kv_heads;
    const char *from = (const char *)a->qkv + (size_t)(row * heads + a->n_heads) * bytes;
    for (int64_t plane = 0; plane < planes; plane++) {
        const int64_t slot =
            (a->sequences[row] * planes + plane) * a->capacity + a->positions[row] % a->capacity;
        memcpy((char *)a->cache + (size_t)slot * bytes, from + (size_t)plane * bytes, bytes);
    }
}

/* Rows [row, end) as runs of one sequence, one position after the other. */
static void attend_rows(const struct host_device *device, const struct zinf_attention_cached *a,
                        int64_t row, int64_t end, int64_t kv_head, float *scratch)
{
    while (row < end) {
        int64_t n = 1;
        while (row + n < end && a->sequences[row + n] == a->sequences[row] &&
               a->positions[row + n] == a->positions[row] + n)
            n++;
        device->simd->attention_cached(a, row, n, kv_head, scratch);
        row += n;
    }
}

int host_attention_cached(struct zinf_queue *q, const struct zinf_attention_cached *args)
{
    int code = check_attention_cached(args);
    if (!code)
        code = check_positions(args);
    if (!code)
        code = check_workspace(q->workspace_bytes,
                               host_attention_cached_workspace(&q->device->device, args),
                               "attention_cached");
    if (code)
        return code;
    const uint64_t floats = scratch_floats(args);
    const int64_t block = block_rows(args), n_blocks = (args->rows + block - 1) / block;
    const int64_t n_units = n_blocks * args->n_kv_heads;
    int64_t seen = 0; /* keys of all rows */
    for (int64_t r = 0; r < args->rows; r++) {
        keep_row(args, r);
        seen += args->positions[r] + 1;
    }
    const int n_threads = host_slices(q->device, (uint64_t)(seen * args->n_heads * args->head_dim));
#pragma omp parallel for num_threads(n_threads) schedule(dynamic, 1)
    for (int64_t unit = 0; unit < n_units; unit++) {
        const int64_t row = unit / args->n_kv_heads * block, left = args->rows - row;
        attend_rows(q->device, args, row, row + (left < block ? left : block),
                    unit % args->n_kv_heads,
                    (float *)q->workspace + (uint64_t)omp_get_thread_num() * floats);
    }
    return 0;
}
