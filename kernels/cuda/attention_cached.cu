/*
 * attention_cached: new keys and values into the cache, then attention of each new row over what
 * its sequence has there, a block a query head. The block's warps take keys in turn, a few at a
 * time, each with a maximum and sums of its own; in the end these are put together in order. Which
 * warp takes a key follows from its position alone, so that neither the size of the cache nor the
 * rows beside it change a bit.
 */
#include "kernels/cuda/attention.cuh"

#include <limits.h>

enum {
    CACHED_THREADS = 256,
    CACHED_WARPS = CACHED_THREADS / 32,
    CACHED_KEYS = 4, /* of a warp at a time: so many loads on their way */
    CACHED_TURN = CACHED_WARPS * CACHED_KEYS,
};

template <class T> struct cached_args {
    const T *qkv;
    T *cache, *out;
    const int32_t *sequences, *positions;
    float *lse;                         /* or NULL */
    const float *bias;                  /* by distance, or NULL */
    const int32_t *lengths;             /* of sources; NULL: the rows' own sequences */
    const T *fresh;                     /* keys and values that go into the cache: of row r at */
    int64_t fresh_row;                  /* fresh + r fresh_row */
    const int32_t *fresh_to, *fresh_at; /* sequences and positions */
    int n_heads, n_kv_heads, head_dim, capacity, window, piece;
    bool has_slopes;
    float scale, softcap, inverse_cap;
    float slopes[ZINF_ATTENTION_MAX_SLOPES];
};

/* Slot 0 of a plane of a sequence: keys by head, then values. */
template <class T> DEVICE T *plane_of(const cached_args<T> &a, int sequence, int plane)
{
    const int64_t number = (int64_t)sequence * 2 * a.n_kv_heads + plane;
    return a.cache + number * a.capacity * a.head_dim;
}

/* A block takes one row's part of one plane to its slot. */
template <class T> KERNEL(CACHED_THREADS) keep_kernel(cached_args<T> a)
{
    const int planes = 2 * a.n_kv_heads, plane = (int)blockIdx.x % planes;
    const int64_t row = blockIdx.x / planes, d = a.head_dim;
    const T *from = a.fresh + row * a.fresh_row + plane * d;
    T *to = plane_of(a, a.fresh_to[row], plane) + a.fresh_at[row] % a.capacity * d;
    for (int64_t c = threadIdx.x; c < d; c += CACHED_THREADS)
        to[c] = from[c];
}

/* ---- attention ---- */

/* A lane's share of a head is every 32nd element. */
template <class T, int PARTS>
DEVICE void load_parts(float (&to)[PARTS], const T *from, int d, bool wanted)
{
    UNROLL for (int k = 0; k < PARTS; k++)
    {
        const int c = threadIdx.x % 32 + 32 * k;
        to[k] = wanted && c < d ? to_float(from[c]) : 0.0f;
    }
}

/* What a warp has seen so far. */
template <int PARTS> struct seen_keys {
    float max, sum, out[PARTS];
};

/* The query's score with a key, the same in all lanes. */
template <class T, int PARTS>
DEVICE float score_with(const cached_args<T> &a, const float (&query)[PARTS],
                        const float (&key)[PARTS], int head, int key_less_query)
{
    float x = 0.0f, slope;
    UNROLL for (int k = 0; k < PARTS; k++) x += query[k] * key[k];
    x = a.scale * warp_sum(x);
    if (a.softcap != 0.0f)
        x = softcap_of(x, a.softcap, a.inverse_cap, slope);
    if (a.bias && key_less_query <= 0)
        x += a.bias[(int64_t)(head + 1) * a.capacity - 1 + key_less_query];
    return a.has_slopes ? fused(a.slopes[head], (float)key_less_query, x) : x;
}

/* Where and with what a warp looks. */
template <class T, int PARTS> struct cached_query {
    const T *keys, *values; /* slot 0 of the planes */
    int head, position, first;
    float query[PARTS];
};

/* Keys at positions j .. j + CACHED_KEYS - 1, as far as the row sees them. */
template <class T, int PARTS>
DEVICE void add_keys(const cached_args<T> &a, const cached_query<T, PARTS> &w, int j,
                     seen_keys<PARTS> &s)
{
    const int d = a.head_dim;
    float scores[CACHED_KEYS], parts[PARTS], top = s.max;
    UNROLL for (int u = 0; u < CACHED_KEYS; u++)
    {
        const bool sees = j + u >= w.first && j + u <= w.position;
        load_parts<T, PARTS>(parts, w.keys + (int64_t)((j + u) % a.capacity) * d, d, sees);
        const float score = score_with<T, PARTS>(a, w.query, parts, w.head, j + u - w.position);
        scores[u] = sees ? score : -INFINITY;
        top = scores[u] > top ? scores[u] : top;
    }
    if (top == -INFINITY)
        return;
    const float shrink = exp_of(s.max - top);
    s.sum *= shrink;
    UNROLL for (int k = 0; k < PARTS; k++) s.out[k] *= shrink;
    UNROLL for (int u = 0; u < CACHED_KEYS; u++)
    {
        const bool sees = j + u >= w.first && j + u <= w.position;
        const float p = exp_of(scores[u] - top);
        load_parts<T, PARTS>(parts, w.values + (int64_t)((j + u) % a.capacity) * d, d, sees);
        s.sum += p;
        UNROLL for (int k = 0; k < PARTS; k++) s.out[k] += p * parts[k];
    }
    s.max = top;
}

/* Of all warps: what each has shrinks to the common maximum. */
template <class T>
DEVICE void store_joined(T *out, float *lse, const float *sums, const float *parts, int d)
{
    float top = -INFINITY;
    for (int w = 0; w < CACHED_WARPS; w++)
        top = sums[2 * w] > top ? sums[2 * w] : top;
    for (int c = threadIdx.x; c < d; c += CACHED_THREADS) {
        float total = 0.0f, value = 0.0f;
        for (int w = 0; w < CACHED_WARPS; w++) {
            const float shrink = exp_of(sums[2 * w] - top);
            total += shrink * sums[2 * w + 1];
            value += shrink * parts[w * d + c];
        }
        from_float(out[c], value / total);
        if (lse && c == 0)
            *lse = top + logf(total);
    }
}

template <class T, int PARTS> KERNEL(CACHED_THREADS) attention_cached_kernel(cached_args<T> a)
{
    SHARED_MEMORY(memory); /* of each warp its maximum and sum; then [CACHED_WARPS][head_dim] */
    float *sums = (float *)memory, *parts = sums + 2 * CACHED_WARPS;
    const int64_t row = blockIdx.x / a.n_heads;
    const int64_t all = a.n_heads + (a.lengths ? 0 : 2 * a.n_kv_heads);
    const int d = a.head_dim, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    cached_query<T, PARTS> w;
    w.head = (int)blockIdx.x % a.n_heads;
    w.position = a.lengths ? a.lengths[a.sequences[row]] - 1 : a.positions[row];
    w.first = zinf_cached_first(a.piece, a.window, w.position);
    w.keys = plane_of(a, a.sequences[row], w.head / (a.n_heads / a.n_kv_heads));
    w.values = w.keys + (int64_t)a.n_kv_heads * a.capacity * d;
    load_parts<T, PARTS>(w.query, a.qkv + (row * all + w.head) * d, d, true);
    seen_keys<PARTS> s = {-INFINITY, 0.0f, {}};
    int j = w.first / CACHED_TURN * CACHED_TURN + warp * CACHED_KEYS;
    for (; j <= w.position; j += CACHED_TURN)
        add_keys<T, PARTS>(a, w, j, s);
    if (lane == 0) {
        sums[2 * warp] = s.max;
        sums[2 * warp + 1] = s.sum;
    }
    UNROLL for (int k = 0; k < PARTS; k++) if (lane + 32 * k < d) parts[warp * d + lane + 32 * k] =
        s.out[k];
    sync_block();
    store_joined(a.out + blockIdx.x * (int64_t)d, a.lse ? a.lse + blockIdx.x : a.lse, sums, parts,
                 d);
}

/* ---- launches ---- */

template <class T> static cached_args<T> cached_args_of(const struct zinf_attention_cached *z)
{
    cached_args<T> a = {};
    a.qkv = (const T *)z->qkv;
    a.cache = (T *)z->cache;
    a.out = (T *)z->out;
    a.sequences = z->sequences;
    a.positions = z->positions;
    a.lse = z->lse;
    a.bias = z->bias;
    a.lengths = z->source ? z->source->lengths : NULL;
    a.fresh = z->source ? (const T *)z->source->kv : a.qkv + z->n_heads * z->head_dim;
    a.fresh_row = (2 * z->n_kv_heads + (z->source ? 0 : z->n_heads)) * z->head_dim;
    a.fresh_to = z->source ? z->source->sequences : z->sequences;
    a.fresh_at = z->source ? z->source->slots : z->positions;
    a.n_heads = (int)z->n_heads;
    a.n_kv_heads = (int)z->n_kv_heads;
    a.head_dim = (int)z->head_dim;
    a.capacity = (int)z->capacity;
    a.window = (int)z->window;
    a.piece = z->piece < INT_MAX ? (int)z->piece : 0; /* no position is so far */
    a.has_slopes = z->slopes != NULL;
    a.scale = z->scale;
    a.softcap = z->softcap;
    a.inverse_cap = z->softcap != 0.0f ? 1.0f / z->softcap : 0.0f;
    if (z->slopes)
        memcpy(a.slopes, z->slopes, (size_t)z->n_heads * sizeof *a.slopes);
    return a;
}

template <class T>
static cudaError_t cached_typed(cudaStream_t stream, const struct zinf_attention_cached *z)
{
    const cached_args<T> a = cached_args_of<T>(z);
    const size_t shared = (size_t)CACHED_WARPS * (2 + (size_t)z->head_dim) * sizeof(float);
    const dim3 grid = grid_of_rows(z->rows * z->n_heads), block(CACHED_THREADS);
    const kernel_of<cached_args<T>> kernel =
        z->head_dim <= 32    ? known<attention_cached_kernel<T, 1>>()
        : z->head_dim <= 64  ? known<attention_cached_kernel<T, 2>>()
        : z->head_dim <= 128 ? known<attention_cached_kernel<T, 4>>()
        : z->head_dim <= 256 ? known<attention_cached_kernel<T, 8>>()
                             : known<attention_cached_kernel<T, 16>>();
    const int64_t n_fresh = z->source ? z->source->rows : z->rows;
    const dim3 fresh_grid = grid_of_rows(n_fresh * 2 * z->n_kv_heads);
    cudaError_t error =
        n_fresh ? launch(known<keep_kernel<T>>(), fresh_grid, block, 0, stream, a) : cudaSuccess;
    return error == cudaSuccess ? launch(kernel, grid, block, shared, stream, a) : error;
}

cudaError_t launch_attention_cached(cudaStream_t stream, const struct zinf_attention_cached *z)
{
    BY_DTYPE(z->dtype, return cached_typed<T>(stream, z));
}
