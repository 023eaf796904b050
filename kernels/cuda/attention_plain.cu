/*
 * attention_plain: attention on CUDA cores in fp32, for any type and head size up to 512: the
 * plain form of what attention_mma.cuh does on tensor cores. A block keeps a tile of rows in
 * shared memory and walks the tiles of the other side; T x T never exists. Tiles shrink as heads
 * grow, so that 8 sums a thread hold a tile's result.
 *
 * Backward is three kernels: the row sums delta, then dK and dV by key tile, then dQ by query
 * tile. Scores are made two times instead of one; no sum ever meets another block's.
 */
#include "kernels/cuda/attention_plain.cuh"

/* ---- forward ---- */

/* One row of scores becomes exp(score - max), with dropout; one thread a row. Returns by what the
 * row's earlier sums shrink. */
template <int TILE, class ARGS>
DEVICE float softmax_row(const ARGS &a, float *scores, int64_t b, int64_t head, int64_t i,
                         int64_t j, float *max, float *sum)
{
    float top = *max;
    NO_UNROLL for (int k = 0; k < TILE; k++) if (sees(a, b, i, j + k) && scores[k] > top) top =
        scores[k];
    float shrink = top == *max ? 1.0f : exp_of(*max - top), total = 0.0f, factor[1] = {1.0f};
    NO_UNROLL for (int k = 0; k < TILE; k++)
    {
        float p = sees(a, b, i, j + k) ? exp_of(scores[k] - top) : 0.0f;
        total += p;
        if (a.drops)
            probability_factors(a, b, head, i, j + k, factor);
        scores[k] = p * factor[0];
    }
    *sum = *sum * shrink + total;
    *max = top;
    return shrink;
}

/* The first tile of keys that rows from i on look at. There is always one, though they may see none
 * of its keys: its barriers are those between a row's sum and whoever divides by it. */
template <int TILE, class ARGS> DEVICE int64_t first_tile_of(const ARGS &a, int64_t i)
{
    const int64_t first = first_key(a, i), last = n_keys(a) - 1;
    return (first < last ? first : last) / TILE * TILE;
}

/* Takes what calls before have left of a thread's sums, or leaves it to the next one. */
template <int TILE>
DEVICE void move_sums(const running_rows &running, const struct zinf_attention &z,
                      float (&sums)[SUMS], int64_t b, int64_t head, int64_t i, bool takes)
{
    const int d = (int)z.head_dim;
    UNROLL for (int k = 0; k < SUMS; k++)
    {
        const int e = threadIdx.x + k * PLAIN_THREADS;
        const int64_t row = i + e / d;
        if (e >= TILE * d || row >= z.seq)
            continue;
        float *at = sums_of(running, z, b, head, row) + e % d;
        if (takes)
            sums[k] = *at;
        else
            *at = sums[k];
    }
}

DEVICE void leave_numbers(float *numbers, float max, float sum)
{
    numbers[0] = max;
    numbers[1] = sum;
}

template <int TILE, class ARGS> KERNEL(PLAIN_THREADS) attention_plain_forward_kernel(ARGS a)
{
    SHARED_MEMORY(memory);
    __shared__ float max[TILE], sum[TILE], shrink[TILE];
    const struct zinf_attention &z = a.z;
    const int pitch = (int)z.head_dim + 1, d = (int)z.head_dim, t = threadIdx.x;
    const int64_t i = (int64_t)blockIdx.x * TILE, head = blockIdx.y, b = blockIdx.z;
    const int64_t kv = kv_head_of(z, head);
    const int64_t first = first_tile_of<TILE>(a, i), all = end_of_keys(a, i + TILE);
    const int64_t end = all > first ? all : first + 1;
    shared_tile query = {(float *)memory, pitch};
    shared_tile key = {query.at + TILE * pitch, pitch}, value = {key.at + TILE * pitch, pitch};
    float *scores = value.at + TILE * pitch, sums[SUMS] = {}, slope;
    shared_tile rows = {scores + TILE * (TILE + 1), pitch};
    load_tile<TILE>(z, query, z.qkv, query_place(z, b, head), i);
    const running_rows running = running_of(a);
    const bool own = t < TILE && i + t < z.seq; /* a row of its own */
    if (t < TILE) {
        max[t] = own && running.resumes ? numbers_of(running, z, b, head, i + t)[0] : -INFINITY;
        sum[t] = own && running.resumes ? numbers_of(running, z, b, head, i + t)[1] : 0.0f;
    }
    if (running.resumes)
        move_sums<TILE>(running, z, sums, b, head, i, true);
    for (int64_t j = first; j < end; j += TILE) {
        sync_block();
        load_tile<TILE>(z, key, keys_and_values(z), key_place(z, b, kv), j);
        load_tile<TILE>(z, value, keys_and_values(z), value_place(z, b, kv), j);
        const tile_bias bias = bias_of(a, head, i, j);
        const tile_pair pair = {head, i, j, query, key, rows, scores, true};
        begin_scores<TILE>(a, pair);
        for (int e = t; e < TILE * TILE; e += PLAIN_THREADS) {
            const int r = e / TILE, c = e % TILE;
            const float x = z.scale * dot(z, query, r, key, c);
            scores[r * (TILE + 1) + c] =
                score_of(a, bias, c - r, x, slope) + beside_of<TILE>(a, pair, r, c);
        }
        sync_block();
        if (own)
            shrink[t] =
                softmax_row<TILE>(a, scores + t * (TILE + 1), b, head, i + t, j, &max[t], &sum[t]);
        else if (t < TILE)
            for (int k = 0; k < TILE; k++)
                shrink[t] = scores[t * (TILE + 1) + k] = 0.0f;
        sync_block();
        UNROLL for (int k = 0; k < SUMS; k++) if (t + k * PLAIN_THREADS < TILE * d) sums[k] *=
            shrink[(t + k * PLAIN_THREADS) / d];
        add_product<TILE>(z, sums, scores, false, value);
    }
    if (running.leaves) {
        move_sums<TILE>(running, z, sums, b, head, i, false);
        if (own)
            leave_numbers(numbers_of(running, z, b, head, i + t), max[t], sum[t]);
        return;
    }
    UNROLL for (int k = 0; k < SUMS; k++) if (t + k * PLAIN_THREADS < TILE * d) sums[k] =
        quotient_of(sums[k], sum[(t + k * PLAIN_THREADS) / d]);
    store_sums<TILE>(z, sums, 1.0f, z.out, out_place(z, b, head), i);
    if (own)
        z.lse[row_index(z, b, head, i + t)] = log_sum_of(max[t], sum[t]);
}

/* ---- backward ---- */

/* A row has so many lanes of a warp, 2 to the power of shift: as many as take all of a head's
 * columns by 8, or a warp. */
struct delta_args : attention_args {
    int shift;
    bool vector;
};

template <class T> KERNEL(PLAIN_THREADS) attention_delta_kernel(delta_args a)
{
    const struct zinf_attention &z = a.z;
    const int lanes = 1 << a.shift, first = (threadIdx.x & (lanes - 1)) * EACH;
    const int64_t i = (int64_t)blockIdx.x * (PLAIN_THREADS >> a.shift) + (threadIdx.x >> a.shift);
    const int64_t head = blockIdx.y, b = blockIdx.z;
    const int columns = i < z.seq ? (int)z.head_dim : 0; /* the warp's lanes stay together */
    const head_rows<const T> outs = out_rows<const T>(z, z.out, b, head);
    const head_rows<const T> d_outs = out_rows<const T>(z, z.d_out, b, head);
    float sum = 0.0f, out[EACH], d_out[EACH];
    for (int c = first; c < columns; c += lanes * EACH) {
        load_each(out, outs.base + i * outs.stride + c, columns - c, a.vector);
        load_each(d_out, d_outs.base + i * d_outs.stride + c, columns - c, a.vector);
        UNROLL for (int k = 0; k < EACH; k++) sum += d_out[k] * out[k];
    }
    for (int mask = lanes / 2; mask; mask /= 2)
        sum += shuffle_xor(sum, mask);
    if (i < z.seq && first == 0)
        ((float *)a.delta)[row_index(z, b, head, i)] = sum;
}

/* dK and dV of a key tile, over the query heads that share it, in order. */
template <int TILE, class ARGS> KERNEL(PLAIN_THREADS) attention_plain_dkv_kernel(ARGS a)
{
    SHARED_MEMORY(memory);
    const struct zinf_attention &z = a.z;
    const int64_t j = (int64_t)blockIdx.x * TILE, kv = blockIdx.y, b = blockIdx.z;
    const int64_t group = z.n_heads / z.n_kv_heads, end = end_of_rows(a, j + TILE - 1);
    const head_place key_at = key_place(z, b, kv);
    const head_place value_at = value_place(z, b, kv);
    backward_tiles t = place_tiles<TILE>(memory, (int)z.head_dim + 1);
    float d_key[SUMS] = {}, d_value[SUMS] = {};
    load_tile<TILE>(z, t.key, keys_and_values(z), key_at, j);
    load_tile<TILE>(z, t.value, keys_and_values(z), value_at, j);
    for (int64_t head = kv * group; head < (kv + 1) * group; head++)
        for (int64_t i = first_row(a, j); i < end; i += TILE) {
            sync_block();
            load_tile<TILE>(z, t.query, z.qkv, query_place(z, b, head), i);
            load_tile<TILE>(z, t.d_out, z.d_out, out_place(z, b, head), i);
            const tile_pair pair = pair_of(t, head, i, j, true);
            gradient_tile<TILE>(a, t, b, pair);
            sync_block();
            add_product<TILE>(z, d_value, t.p, true, t.d_out);
            add_product<TILE>(z, d_key, t.ds, true, t.query);
            add_rows<TILE>(a, pair, d_key, t.ds, true);
        }
    if (z.d_kv_sums) {
        add_sums<TILE>(z, d_key, z.scale, key_at, j);
        add_sums<TILE>(z, d_value, 1.0f, value_at, j);
        return;
    }
    store_sums<TILE>(z, d_key, z.scale, d_keys_and_values(z), key_at, j);
    store_sums<TILE>(z, d_value, 1.0f, d_keys_and_values(z), value_at, j);
}

template <int TILE, class ARGS> KERNEL(PLAIN_THREADS) attention_plain_dq_kernel(ARGS a)
{
    SHARED_MEMORY(memory);
    const struct zinf_attention &z = a.z;
    const int64_t i = (int64_t)blockIdx.x * TILE, head = blockIdx.y, b = blockIdx.z;
    const int64_t kv = kv_head_of(z, head);
    const int64_t end = end_of_keys(a, i + TILE);
    backward_tiles t = place_tiles<TILE>(memory, (int)z.head_dim + 1);
    float d_query[SUMS] = {};
    load_tile<TILE>(z, t.query, z.qkv, query_place(z, b, head), i);
    load_tile<TILE>(z, t.d_out, z.d_out, out_place(z, b, head), i);
    if (running_of(a).resumes)
        move_sums<TILE>(running_of(a), z, d_query, b, head, i, true);
    for (int64_t j = first_key(a, i) / TILE * TILE; j < end; j += TILE) {
        sync_block();
        load_tile<TILE>(z, t.key, keys_and_values(z), key_place(z, b, kv), j);
        load_tile<TILE>(z, t.value, keys_and_values(z), value_place(z, b, kv), j);
        const tile_pair pair = pair_of(t, head, i, j, false);
        gradient_tile<TILE>(a, t, b, pair);
        sync_block();
        add_product<TILE>(z, d_query, t.ds, false, t.key);
        add_rows<TILE>(a, pair, d_query, t.ds, false);
    }
    if (running_of(a).leaves)
        move_sums<TILE>(running_of(a), z, d_query, b, head, i, false);
    else
        store_sums<TILE>(z, d_query, z.scale, z.d_qkv, query_place(z, b, head), i);
}

/* ---- launches ---- */

template <class ARGS> static cudaError_t plain_forward(cudaStream_t stream, const ARGS &args)
{
    const kernel_of<ARGS> kernels[] = {known<attention_plain_forward_kernel<32, ARGS>>(),
                                       known<attention_plain_forward_kernel<16, ARGS>>(),
                                       known<attention_plain_forward_kernel<8, ARGS>>(),
                                       known<attention_plain_forward_kernel<4, ARGS>>()};
    const plain_shape shape = {3, 1, args.z.n_heads, args.z.seq, args.z.batch};
    return launch_plain(stream, kernels, shape, args);
}

template <class ARGS> static cudaError_t plain_backward(cudaStream_t stream, const ARGS &args)
{
    const kernel_of<ARGS> dkv[] = {known<attention_plain_dkv_kernel<32, ARGS>>(),
                                   known<attention_plain_dkv_kernel<16, ARGS>>(),
                                   known<attention_plain_dkv_kernel<8, ARGS>>(),
                                   known<attention_plain_dkv_kernel<4, ARGS>>()};
    const kernel_of<ARGS> dq[] = {
        known<attention_plain_dq_kernel<32, ARGS>>(), known<attention_plain_dq_kernel<16, ARGS>>(),
        known<attention_plain_dq_kernel<8, ARGS>>(), known<attention_plain_dq_kernel<4, ARGS>>()};
    const plain_shape by_key = {4, 2, args.z.n_kv_heads, zinf_attention_keys(&args.z),
                                args.z.batch};
    const plain_shape by_query = {4, 2, args.z.n_heads, args.z.seq, args.z.batch};
    cudaError_t error = launch_plain(stream, dkv, by_key, args);
    return error == cudaSuccess ? launch_plain(stream, dq, by_query, args) : error;
}

cudaError_t launch_attention_delta(cudaStream_t stream, float *delta,
                                   const struct zinf_attention *z)
{
    delta_args args = {};
    static_cast<attention_args &>(args) = attention_args_of(z, delta);
    while (args.shift < 5 && (EACH << args.shift) < z->head_dim)
        args.shift++;
    args.vector = z->head_dim % EACH == 0 && aligned16(z->out) && aligned16(z->d_out);
    const dim3 grid(blocks_for((uint64_t)z->seq, (uint64_t)PLAIN_THREADS >> args.shift),
                    (unsigned)z->n_heads, (unsigned)z->batch);
    BY_DTYPE(z->dtype, return launch(known<attention_delta_kernel<T>>(), grid, dim3(PLAIN_THREADS),
                                     0, stream, args));
}

cudaError_t launch_attention_plain_forward(cudaStream_t stream, const struct zinf_attention *z)
{
    BY_SHAPE(z, NULL, return plain_forward(stream, args));
}

cudaError_t launch_attention_relative_forward(cudaStream_t stream, const int32_t *at,
                                              const struct zinf_attention *z)
{
    BY_PLACE(z, NULL, at, return plain_forward(stream, args));
}

cudaError_t launch_attention_relative_backward(cudaStream_t stream, const float *delta,
                                               const int32_t *at, const struct zinf_attention *z)
{
    BY_PLACE(z, delta, at, return plain_backward(stream, args));
}

cudaError_t launch_attention_plain_backward(cudaStream_t stream, const float *delta,
                                            const struct zinf_attention *z)
{
    BY_SHAPE(z, delta, return plain_backward(stream, args));
}
