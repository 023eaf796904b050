/*
 * attention_plain: attention on CUDA cores in fp32, for any type and head size up to 256: the
 * plain form of what attention_mma.cuh does on tensor cores. A block keeps a tile of rows in
 * shared memory and walks the tiles of the other side; T x T never exists. Tiles shrink as heads
 * grow, so that 8 sums a thread hold a tile's result.
 *
 * Backward is three kernels: the row sums delta, then dK and dV by key tile, then dQ by query
 * tile. Scores are made two times instead of one; no sum ever meets another block's.
 */
#include "kernels/cuda/attention.cuh"

enum { PLAIN_THREADS = 256, SUMS = 8 };

/* A tile in shared memory: [TILE][pitch] fp32; a pitch of head_dim + 1 spreads rows over banks. */
struct shared_tile {
    float *at;
    int pitch;
};

DEVICE float load_float(const void *base, enum zinf_dtype dtype, int64_t i)
{
    if (dtype == ZINF_DTYPE_F32)
        return ((const float *)base)[i];
    return dtype == ZINF_DTYPE_BF16 ? to_float(((const bf16 *)base)[i])
                                    : to_float(((const f16 *)base)[i]);
}

DEVICE void store_float(void *base, enum zinf_dtype dtype, int64_t i, float x)
{
    if (dtype == ZINF_DTYPE_F32)
        ((float *)base)[i] = x;
    else if (dtype == ZINF_DTYPE_BF16)
        from_float(((bf16 *)base)[i], x);
    else
        from_float(((f16 *)base)[i], x);
}

/* Element offset of a head's first row, and the distance of rows, as head_rows has them. */
struct head_place {
    int64_t offset, stride;
};

DEVICE head_place qkv_place(const struct zinf_attention &z, int64_t b, int64_t head)
{
    int64_t stride = (z.n_heads + 2 * z.n_kv_heads) * z.head_dim;
    head_place place = {b * z.seq * stride + head * z.head_dim, stride};
    return place;
}

DEVICE head_place out_place(const struct zinf_attention &z, int64_t b, int64_t head)
{
    int64_t stride = z.n_heads * z.head_dim;
    head_place place = {b * z.seq * stride + head * z.head_dim, stride};
    return place;
}

/* Rows first .. first + TILE - 1 of a head; zeros beyond the sequence. */
template <int TILE>
DEVICE void load_tile(const struct zinf_attention &z, shared_tile tile, const void *base,
                      head_place place, int64_t first)
{
    int d = (int)z.head_dim;
    for (int e = threadIdx.x; e < TILE * d; e += PLAIN_THREADS) {
        int64_t row = first + e / d;
        tile.at[e / d * tile.pitch + e % d] =
            row < z.seq ? load_float(base, z.dtype, place.offset + row * place.stride + e % d)
                        : 0.0f;
    }
}

/* Sum number k of this thread belongs to element threadIdx.x + k * PLAIN_THREADS of a result
 * [TILE][head_dim]. sums += left^T right over TILE, left [TILE][TILE] by columns or rows. */
template <int TILE>
DEVICE void add_product(const struct zinf_attention &z, float (&sums)[SUMS], const float *left,
                        bool by_columns, shared_tile right)
{
    int d = (int)z.head_dim;
    UNROLL for (int k = 0; k < SUMS; k++)
    {
        int e = threadIdx.x + k * PLAIN_THREADS;
        if (e >= TILE * d)
            continue;
        int row = e / d, col = e % d;
        for (int j = 0; j < TILE; j++)
            sums[k] += left[by_columns ? j * (TILE + 1) + row : row * (TILE + 1) + j] *
                       right.at[j * right.pitch + col];
    }
}

template <int TILE>
DEVICE void store_sums(const struct zinf_attention &z, const float (&sums)[SUMS], float factor,
                       void *base, head_place place, int64_t first)
{
    int d = (int)z.head_dim;
    UNROLL for (int k = 0; k < SUMS; k++)
    {
        int e = threadIdx.x + k * PLAIN_THREADS;
        int64_t row = first + e / d;
        if (e < TILE * d && row < z.seq)
            store_float(base, z.dtype, place.offset + row * place.stride + e % d,
                        sums[k] * factor);
    }
}

DEVICE float dot(const struct zinf_attention &z, shared_tile a, int i, shared_tile b, int j)
{
    float sum = 0.0f;
    for (int c = 0; c < (int)z.head_dim; c++)
        sum += a.at[i * a.pitch + c] * b.at[j * b.pitch + c];
    return sum;
}

/* ---- forward ---- */

/* One row of scores becomes exp(score - max), with dropout; one thread a row. Returns by what the
 * row's earlier sums shrink. */
template <int TILE>
DEVICE float softmax_row(const attention_args &a, float *scores, int64_t b, int64_t head, int64_t i,
                         int64_t j, float *max, float *sum)
{
    float top = *max;
    NO_UNROLL for (int k = 0; k < TILE; k++)
        if (sees(a.z, i, j + k) && scores[k] > top)
            top = scores[k];
    float shrink = top == *max ? 1.0f : exp_of(*max - top), total = 0.0f, factor[1] = {1.0f};
    NO_UNROLL for (int k = 0; k < TILE; k++) {
        float p = sees(a.z, i, j + k) ? exp_of(scores[k] - top) : 0.0f;
        total += p;
        if (a.drops)
            probability_factors(a, b, head, i, j + k, factor);
        scores[k] = p * factor[0];
    }
    *sum = *sum * shrink + total;
    *max = top;
    return shrink;
}

template <int TILE, class ARGS> KERNEL(PLAIN_THREADS) attention_plain_forward_kernel(ARGS a)
{
    SHARED_MEMORY(memory);
    __shared__ float max[TILE], sum[TILE], shrink[TILE];
    const struct zinf_attention &z = a.z;
    const int pitch = (int)z.head_dim + 1, d = (int)z.head_dim, t = threadIdx.x;
    const int64_t i = (int64_t)blockIdx.x * TILE, head = blockIdx.y, b = blockIdx.z;
    const int64_t kv = kv_head_of(z, head), end = z.causal && i + TILE < z.seq ? i + TILE : z.seq;
    shared_tile query = {(float *)memory, pitch};
    shared_tile key = {query.at + TILE * pitch, pitch}, value = {key.at + TILE * pitch, pitch};
    float *scores = value.at + TILE * pitch, sums[SUMS] = {}, slope;
    load_tile<TILE>(z, query, z.qkv, qkv_place(z, b, head), i);
    if (t < TILE) {
        max[t] = -INFINITY;
        sum[t] = 0.0f;
    }
    for (int64_t j = first_key(z, i) / TILE * TILE; j < end; j += TILE) {
        sync_block();
        load_tile<TILE>(z, key, z.qkv, qkv_place(z, b, z.n_heads + kv), j);
        load_tile<TILE>(z, value, z.qkv, qkv_place(z, b, z.n_heads + z.n_kv_heads + kv), j);
        sync_block();
        const tile_bias bias = bias_of(a, head, i, j);
        for (int e = t; e < TILE * TILE; e += PLAIN_THREADS)
            scores[e / TILE * (TILE + 1) + e % TILE] =
                score_of(a, bias, e % TILE - e / TILE,
                         z.scale * dot(z, query, e / TILE, key, e % TILE), slope);
        sync_block();
        if (t < TILE && i + t < z.seq)
            shrink[t] = softmax_row<TILE>(a, scores + t * (TILE + 1), b, head, i + t, j, &max[t],
                                          &sum[t]);
        else if (t < TILE)
            for (int k = 0; k < TILE; k++)
                shrink[t] = scores[t * (TILE + 1) + k] = 0.0f;
        sync_block();
        UNROLL for (int k = 0; k < SUMS; k++)
            if (t + k * PLAIN_THREADS < TILE * d)
                sums[k] *= shrink[(t + k * PLAIN_THREADS) / d];
        add_product<TILE>(z, sums, scores, false, value);
    }
    UNROLL for (int k = 0; k < SUMS; k++)
        if (t + k * PLAIN_THREADS < TILE * d)
            sums[k] /= sum[(t + k * PLAIN_THREADS) / d];
    store_sums<TILE>(z, sums, 1.0f, z.out, out_place(z, b, head), i);
    if (t < TILE && i + t < z.seq)
        z.lse[row_index(z, b, head, i + t)] = max[t] + logf(sum[t]);
}

/* ---- backward ---- */

/* A warp a row. */
KERNEL(PLAIN_THREADS) attention_delta_kernel(attention_args a)
{
    const struct zinf_attention &z = a.z;
    int64_t row = (int64_t)blockIdx.x * (PLAIN_THREADS / 32) + threadIdx.x / 32;
    if (row >= z.batch * z.n_heads * z.seq)
        return;
    int64_t i = row % z.seq, head = row / z.seq % z.n_heads, b = row / z.seq / z.n_heads;
    head_place place = out_place(z, b, head);
    float sum = 0.0f;
    for (int64_t c = threadIdx.x % 32; c < z.head_dim; c += 32) {
        int64_t e = place.offset + i * place.stride + c;
        sum += load_float(z.d_out, z.dtype, e) * load_float(z.out, z.dtype, e);
    }
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0)
        ((float *)a.delta)[row] = sum;
}

/* The four tiles of a backward block and its two [TILE][TILE] results. */
struct backward_tiles {
    shared_tile query, key, value, d_out;
    float *p, *ds;
};

template <int TILE> DEVICE backward_tiles place_tiles(unsigned char *memory, int pitch)
{
    backward_tiles t;
    t.query.at = (float *)memory;
    t.key.at = t.query.at + TILE * pitch;
    t.value.at = t.key.at + TILE * pitch;
    t.d_out.at = t.value.at + TILE * pitch;
    t.query.pitch = t.key.pitch = t.value.pitch = t.d_out.pitch = pitch;
    t.p = t.d_out.at + TILE * pitch;
    t.ds = t.p + TILE * (TILE + 1);
    return t;
}

/* p = dropped probability and ds = p (dp - delta), [query][key], for one pair of tiles. */
template <int TILE, class ARGS>
DEVICE void gradient_tile(const ARGS &a, const backward_tiles &t, int64_t b, int64_t head,
                          int64_t i, int64_t j)
{
    const struct zinf_attention &z = a.z;
    const tile_bias bias = bias_of(a, head, i, j);
    for (int e = threadIdx.x; e < TILE * TILE; e += PLAIN_THREADS) {
        int r = e / TILE, c = e % TILE;
        float p = 0.0f, ds = 0.0f, factor[1] = {1.0f}, slope;
        if (sees(z, i + r, j + c)) {
            int64_t row = row_index(z, b, head, i + r);
            p = z.scale * dot(z, t.query, r, t.key, c);
            p = exp_of(score_of(a, bias, c - r, p, slope) - z.lse[row]);
            if (a.drops)
                probability_factors(a, b, head, i + r, j + c, factor);
            ds = p * (dot(z, t.d_out, r, t.value, c) * factor[0] - a.delta[row]) * slope;
        }
        t.p[r * (TILE + 1) + c] = p * factor[0];
        t.ds[r * (TILE + 1) + c] = ds;
    }
}

/* dK and dV of a key tile, over the query heads that share it, in order. */
template <int TILE, class ARGS> KERNEL(PLAIN_THREADS) attention_plain_dkv_kernel(ARGS a)
{
    SHARED_MEMORY(memory);
    const struct zinf_attention &z = a.z;
    const int64_t j = (int64_t)blockIdx.x * TILE, kv = blockIdx.y, b = blockIdx.z;
    const int64_t group = z.n_heads / z.n_kv_heads, end = end_of_rows(z, j + TILE - 1);
    const head_place key_at = qkv_place(z, b, z.n_heads + kv);
    const head_place value_at = qkv_place(z, b, z.n_heads + z.n_kv_heads + kv);
    backward_tiles t = place_tiles<TILE>(memory, (int)z.head_dim + 1);
    float d_key[SUMS] = {}, d_value[SUMS] = {};
    load_tile<TILE>(z, t.key, z.qkv, key_at, j);
    load_tile<TILE>(z, t.value, z.qkv, value_at, j);
    for (int64_t head = kv * group; head < (kv + 1) * group; head++)
        for (int64_t i = z.causal ? j : 0; i < end; i += TILE) {
            sync_block();
            load_tile<TILE>(z, t.query, z.qkv, qkv_place(z, b, head), i);
            load_tile<TILE>(z, t.d_out, z.d_out, out_place(z, b, head), i);
            sync_block();
            gradient_tile<TILE, ARGS>(a, t, b, head, i, j);
            sync_block();
            add_product<TILE>(z, d_value, t.p, true, t.d_out);
            add_product<TILE>(z, d_key, t.ds, true, t.query);
        }
    store_sums<TILE>(z, d_key, z.scale, z.d_qkv, key_at, j);
    store_sums<TILE>(z, d_value, 1.0f, z.d_qkv, value_at, j);
}

template <int TILE, class ARGS> KERNEL(PLAIN_THREADS) attention_plain_dq_kernel(ARGS a)
{
    SHARED_MEMORY(memory);
    const struct zinf_attention &z = a.z;
    const int64_t i = (int64_t)blockIdx.x * TILE, head = blockIdx.y, b = blockIdx.z;
    const int64_t kv = kv_head_of(z, head), end = z.causal && i + TILE < z.seq ? i + TILE : z.seq;
    backward_tiles t = place_tiles<TILE>(memory, (int)z.head_dim + 1);
    float d_query[SUMS] = {};
    load_tile<TILE>(z, t.query, z.qkv, qkv_place(z, b, head), i);
    load_tile<TILE>(z, t.d_out, z.d_out, out_place(z, b, head), i);
    for (int64_t j = first_key(z, i) / TILE * TILE; j < end; j += TILE) {
        sync_block();
        load_tile<TILE>(z, t.key, z.qkv, qkv_place(z, b, z.n_heads + kv), j);
        load_tile<TILE>(z, t.value, z.qkv, qkv_place(z, b, z.n_heads + z.n_kv_heads + kv), j);
        sync_block();
        gradient_tile<TILE, ARGS>(a, t, b, head, i, j);
        sync_block();
        add_product<TILE>(z, d_query, t.ds, false, t.key);
    }
    store_sums<TILE>(z, d_query, z.scale, z.d_qkv, qkv_place(z, b, head), i);
}

/* ---- launches ---- */

template <class ARGS> using plain_kernel = void(ARGS args);

/* SUMS * PLAIN_THREADS elements of a result: 32 rows of 64, 16 of 128, 8 of 256. */
static int plain_tile(const struct zinf_attention &z)
{
    return z.head_dim <= 64 ? 32 : z.head_dim <= 128 ? 16 : 8;
}

/* tiles [tile][head_dim] and squares [tile][tile] in shared memory; heads by tiles of rows. */
template <class ARGS>
static cudaError_t launch_plain(cudaStream_t stream, plain_kernel<ARGS> *const kernels[3],
                                int tiles, int squares, int64_t heads, const ARGS &args)
{
    const int tile = plain_tile(args.z);
    size_t floats = (size_t)(tiles * tile) * (size_t)(args.z.head_dim + 1) +
                    (size_t)(squares * tile * (tile + 1));
    dim3 grid(blocks_for((uint64_t)args.z.seq, (uint64_t)tile), (unsigned)heads,
              (unsigned)args.z.batch);
    return launch(kernels[tile == 32 ? 0 : tile == 16 ? 1 : 2], grid, dim3(PLAIN_THREADS),
                  floats * sizeof(float), stream, args);
}

template <class ARGS> static cudaError_t plain_forward(cudaStream_t stream, const ARGS &args)
{
    plain_kernel<ARGS> *const kernels[] = {attention_plain_forward_kernel<32, ARGS>,
                                           attention_plain_forward_kernel<16, ARGS>,
                                           attention_plain_forward_kernel<8, ARGS>};
    return launch_plain(stream, kernels, 3, 1, args.z.n_heads, args);
}

template <class ARGS> static cudaError_t plain_backward(cudaStream_t stream, const ARGS &args)
{
    plain_kernel<ARGS> *const dkv[] = {attention_plain_dkv_kernel<32, ARGS>,
                                       attention_plain_dkv_kernel<16, ARGS>,
                                       attention_plain_dkv_kernel<8, ARGS>};
    plain_kernel<ARGS> *const dq[] = {attention_plain_dq_kernel<32, ARGS>,
                                      attention_plain_dq_kernel<16, ARGS>,
                                      attention_plain_dq_kernel<8, ARGS>};
    cudaError_t error = launch_plain(stream, dkv, 4, 2, args.z.n_kv_heads, args);
    return error == cudaSuccess ? launch_plain(stream, dq, 4, 2, args.z.n_heads, args) : error;
}

cudaError_t launch_attention_delta(cudaStream_t stream, float *delta,
                                   const struct zinf_attention *z)
{
    uint64_t rows = (uint64_t)(z->batch * z->n_heads * z->seq);
    return launch(attention_delta_kernel, dim3(blocks_for(rows, PLAIN_THREADS / 32)),
                  dim3(PLAIN_THREADS), 0, stream, attention_args_of(z, delta));
}

cudaError_t launch_attention_plain_forward(cudaStream_t stream, const struct zinf_attention *z)
{
    BY_SHAPE(z, NULL, return plain_forward(stream, args));
}

cudaError_t launch_attention_plain_backward(cudaStream_t stream, const float *delta,
                                            const struct zinf_attention *z)
{
    BY_SHAPE(z, delta, return plain_backward(stream, args));
}
