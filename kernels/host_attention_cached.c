/*
 * host_attention_cached: writes new keys and values to the cache and then attends to it. Threads
 * take a few rows of one key head's queries at a time. Which thread takes which rows does not
 * change a bit.
 */
#include "kernels/host.h"

#include <omp.h>

/* How many rows are computed at once: as many as have their heads' queries in registers. */
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

static int fail_place(const struct zinf_attention_cached *a, int32_t slot, int32_t sequence)
{
    return zinf_fail(-EINVAL,
                     "attention_cached: position %d of sequence %d; there are %lld sequences of "
                     "%lld slots",
                     slot, sequence, (long long)a->n_sequences, (long long)a->capacity);
}

static bool is_sequence(const struct zinf_attention_cached *a, int32_t sequence)
{
    return sequence >= 0 && sequence < a->n_sequences;
}

static int check_source(const struct zinf_attention_cached *a)
{
    const struct zinf_cached_source *s = a->source;
    for (int64_t r = 0; r < s->rows; r++)
        if (!is_sequence(a, s->sequences[r]) || s->slots[r] < 0 || s->slots[r] >= a->capacity)
            return fail_place(a, s->slots[r], s->sequences[r]);
    for (int64_t r = 0; r < a->rows; r++) {
        const int32_t sequence = a->sequences[r];
        const int32_t length = is_sequence(a, sequence) ? s->lengths[sequence] : 0;
        if (length < 1 || length > a->capacity)
            return fail_place(a, length - 1, sequence);
    }
    return 0;
}

static int check_positions(const struct zinf_attention_cached *a)
{
    if (a->source)
        return check_source(a);
    for (int64_t r = 0; r < a->rows; r++)
        if (!is_sequence(a, a->sequences[r]) || a->positions[r] < 0 ||
            (!a->window && a->positions[r] >= a->capacity))
            return fail_place(a, a->positions[r], a->sequences[r]);
    return 0;
}

/* Copies the keys and values of all heads from `from` to a slot of the cache. */
static void keep(const struct zinf_attention_cached *a, const char *from, int64_t sequence,
                 int64_t slot)
{
    const size_t bytes = (size_t)a->head_dim * zinf_dtype_bytes(a->dtype);
    const int64_t planes = 2 * a->n_kv_heads;
    for (int64_t plane = 0; plane < planes; plane++) {
        const int64_t to = (sequence * planes + plane) * a->capacity + slot;
        memcpy((char *)a->cache + (size_t)to * bytes, from + (size_t)plane * bytes, bytes);
    }
}

static void keep_rows(const struct zinf_attention_cached *a)
{
    const size_t bytes = (size_t)a->head_dim * zinf_dtype_bytes(a->dtype);
    const size_t own = (size_t)(a->n_heads + 2 * a->n_kv_heads) * bytes;
    const size_t other = (size_t)(2 * a->n_kv_heads) * bytes;
    const struct zinf_cached_source *s = a->source;
    for (int64_t r = 0; s && r < s->rows; r++)
        keep(a, (const char *)s->kv + (size_t)r * other, s->sequences[r], s->slots[r]);
    for (int64_t r = 0; !s && r < a->rows; r++)
        keep(a, (const char *)a->qkv + (size_t)r * own + (size_t)a->n_heads * bytes,
             a->sequences[r], a->positions[r] % a->capacity);
}

/* Attends with rows [row, end): together for rows of one sequence at consecutive positions, or of
 * one source. */
static void attend_rows(const struct host_device *device, const struct zinf_attention_cached *a,
                        int64_t row, int64_t end, int64_t kv_head, float *scratch)
{
    while (row < end) {
        int64_t n = 1;
        while (row + n < end && a->sequences[row + n] == a->sequences[row] &&
               (a->source || a->positions[row + n] == a->positions[row] + n))
            n++;
        device->simd->attention_cached(a, row, n, kv_head, scratch);
        row += n;
    }
}

/* The sum over rows of how many keys each row sees. */
static int64_t count_seen(const struct zinf_attention_cached *a)
{
    int64_t seen = 0;
    for (int64_t r = 0; r < a->rows; r++)
        seen += a->source ? a->source->lengths[a->sequences[r]] : a->positions[r] + 1;
    return seen;
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
    const int64_t seen = count_seen(args);
    const int n_threads = host_slices(q->device, (uint64_t)(seen * args->n_heads * args->head_dim));
    keep_rows(args);
#pragma omp parallel for num_threads(n_threads) schedule(dynamic, 1)
    for (int64_t unit = 0; unit < n_units; unit++) {
        const int64_t row = unit / args->n_kv_heads * block, left = args->rows - row;
        attend_rows(q->device, args, row, row + (left < block ? left : block),
                    unit % args->n_kv_heads,
                    (float *)q->workspace + (uint64_t)omp_get_thread_num() * floats);
    }
    return 0;
}
