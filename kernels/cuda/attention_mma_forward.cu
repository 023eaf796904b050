/*
 * attention_mma_forward: attention on tensor cores. A block has 64 query rows of a head, 16 a
 * warp, and walks tiles of keys with a running maximum and sum a row (base 2: log2 e is folded
 * into the scale). Probabilities go from one product's result to the next one's operand in
 * registers. Causal: tiles above the diagonal are not visited, and long rows begin first.
 */
#include "kernels/cuda/attention_mma.cuh"

enum { FORWARD_ROWS = 64 };

/* A head of 256 has too many sums for one warp: two warps share 16 rows, half the columns each. */
template <int D> struct forward_tile {
    static const int keys = D <= 128 ? 64 : 32, split = D <= 128 ? 1 : 2, threads = 128 * split;
    /* Queries that are held in registers leave their tile to the second place of keys. */
    static const bool held = D <= 128;
    static const int rows = held ? 4 * keys : FORWARD_ROWS + 2 * keys;
};

/* Where the nth step's keys and values lie. The first one's are not where the queries are, which
 * other warps may still read then. */
template <class T, int D> DEVICE T *step_place(T *query, int64_t n)
{
    const int second = (int)(n + 1) % 2 * 2 * forward_tile<D>::keys;
    return query + (forward_tile<D>::held ? second : FORWARD_ROWS) * tile_of<T, D>::pitch;
}

/* What a lane keeps of its two rows: the maximum in base 2, the sum of what this lane saw. */
struct running {
    float max[2], sum[2];
};

/* Scores become exp2(score scale - max); out follows the new maximum. */
template <int N, int M>
DEVICE void softmax_tile(float (&s)[N][4], float (&out)[M][4], running &rows, float scale)
{
    UNROLL for (int r = 0; r < 2; r++)
    {
        float top = s[0][2 * r], total = 0.0f;
        UNROLL for (int n = 0; n < N; n++) top = fmaxf(top, fmaxf(s[n][2 * r], s[n][2 * r + 1]));
        top = fmaxf(top, shuffle_xor(top, 1));
        top = fmaxf(top, shuffle_xor(top, 2));
        top = fmaxf(rows.max[r], top * scale);
        /* A row that has seen no key yet: 0 keeps infinity from meeting itself. */
        float base = top == -INFINITY ? 0.0f : top, shrink = exp2_near(rows.max[r] - base);
        UNROLL for (int n = 0; n < N; n++)
        {
            s[n][2 * r] = exp2_near(fused(s[n][2 * r], scale, -base));
            s[n][2 * r + 1] = exp2_near(fused(s[n][2 * r + 1], scale, -base));
            total += s[n][2 * r] + s[n][2 * r + 1];
        }
        UNROLL for (int m = 0; m < M; m++)
        {
            out[m][2 * r] *= shrink;
            out[m][2 * r + 1] *= shrink;
        }
        rows.sum[r] = rows.sum[r] * shrink + total;
        rows.max[r] = top;
    }
}

/* Adds up what the lanes of a row saw; writes lse of row i and of the 8th behind it. */
DEVICE void finish_rows(const struct zinf_attention &z, running &rows, int64_t b, int64_t head,
                        int64_t i, bool writes)
{
    UNROLL for (int r = 0; r < 2; r++)
    {
        rows.sum[r] += shuffle_xor(rows.sum[r], 1);
        rows.sum[r] += shuffle_xor(rows.sum[r], 2);
        if (writes && i + 8 * r < z.seq)
            z.lse[row_index(z, b, head, i + 8 * r)] =
                log_sum_of(z, rows.max[r] * LN_2, rows.sum[r]);
    }
}

/* q.k of the tile's rows becomes scores, -infinity where a key is not seen; row is the lane's first
 * in the tile. */
template <int N, class ARGS, class BESIDE>
DEVICE void finish_scores(const ARGS &a, float (&s)[N][4], const BESIDE &beside, const int32_t *own,
                          int row, int64_t i, int64_t j)
{
    shape_scores(a, s, beside.bias + 2 * (lane_id() % 4) - row + FORWARD_ROWS - 1);
    if (has_unseen(a, i, FORWARD_ROWS, j, 8 * N) | has_documents(a)) {
        mask_scores(a, s, i + row, j);
        mask_documents(a, s, own + row, beside.documents);
    }
}

/* Where any are dropped; row is the warp's row of this lane in the tile. */
template <int KEYS>
DEVICE void drop_probabilities(const attention_args &a, float (&p)[KEYS / 8][4],
                               const uint32_t *mask, int row)
{
    if (!a.drops)
        return;
    UNROLL for (int n = 0; n < KEYS / 8; n++) UNROLL for (int e = 0; e < 4; e++) p[n][e] *=
        mask_factor<KEYS>(a, mask, row + e / 2 * 8, n * 8 + 2 * (lane_id() % 4) + e % 2);
}

template <class T, int D, class ARGS>
KERNEL_BESIDE(forward_tile<D>::threads, (tile_of<T, D>::blocks))
attention_mma_forward_kernel(ARGS a)
{
    if (!compiles<T>(D))
        return;
    SHARED_MEMORY(memory);
    const int KEYS = forward_tile<D>::keys, THREADS_ = forward_tile<D>::threads;
    const int COLUMNS = D / forward_tile<D>::split, pitch = tile_of<T, D>::pitch;
    const int PLACES = tile_of<T, D>::places;
    __shared__ uint32_t mask[FORWARD_ROWS * words_of(KEYS)];
    __shared__ beside_tile<ARGS, FORWARD_ROWS, KEYS, THREADS_> beside[2];
    __shared__ int32_t own[THREADS_];
    const struct zinf_attention &z = a.z;
    T *query = (T *)memory;
    const int64_t i = (z.causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x) * (int64_t)FORWARD_ROWS;
    const int64_t head = blockIdx.y, b = blockIdx.z, kv = kv_head_of(z, head);
    const int64_t n_steps = (end_of_keys(a, i + FORWARD_ROWS) + KEYS - 1) / KEYS;
    const int64_t begin = first_key(a, i) / KEYS;
    const head_rows<const T> keys = key_rows<const T>(a, keys_in(a), b, kv);
    const head_rows<const T> values = key_rows<const T>(a, keys_in(a), b, kv + z.n_kv_heads);
    const int warp = threadIdx.x / 32, mine = warp % 4 * 16, column = warp / 4 * COLUMNS;
    const int row = mine + lane_id() / 4;
    running rows = {{-INFINITY, -INFINITY}, {0.0f, 0.0f}};
    left_rows<D, forward_tile<D>::held> left;
    float out[COLUMNS / 8][4];
    auto fetch = [&](int64_t n) {
        T *key = step_place<T, D>(query, n - begin);
        fetch_pair<T, D, KEYS, THREADS_>(z, key, keys, values, n * KEYS);
        fetch_beside(a, beside[n % 2], keys_from(a, b, n * KEYS), head, i, n * KEYS);
    };
    clear(out);
    fetch_head<T, D, FORWARD_ROWS, THREADS_>(z, query, query_rows<const T>(a, z.qkv, b, head), i);
    fetch_documents(a, own, queries_from(z, b, i));
    wait_copies();
    sync_block();
    hold(left, query + mine * pitch, pitch);
    if (PLACES == 2 && begin < n_steps)
        fetch(begin);
    for (int64_t n = begin; n < n_steps; n++) {
        const int64_t j = n * KEYS;
        const T *key = step_place<T, D>(query, n - begin), *value = key + KEYS * pitch;
        float s[KEYS / 8][4];
        clear(s);
        begin_step<PLACES>(n, n_steps, fetch);
        if (a.drops) {
            make_mask<FORWARD_ROWS, KEYS, THREADS_>(a, mask, b, head, i, j);
            sync_block();
        }
        multiply_rows<KEYS / 8>(s, left, query + mine * pitch, key, pitch);
        finish_scores(a, s, beside[n % 2], own, row, i, j);
        softmax_tile(s, out, rows, scale_left(a));
        drop_probabilities<KEYS>(a, s, mask, row);
        multiply_results<COLUMNS / 8>(out, s, value + column, pitch);
    }
    finish_rows(z, rows, b, head, i + row, warp < 4 && lane_id() % 4 == 0);
    sync_block(); /* every warp is done with the tiles */
    put_results(query + mine * pitch + column, pitch, out, quotient_of(1.0f, rows.sum[0]),
                quotient_of(1.0f, rows.sum[1]));
    sync_block();
    store_head<T, D, FORWARD_ROWS, THREADS_>(z, query, out_rows<T>(z, z.out, b, head), i);
}

template <class T, int D, class ARGS>
static cudaError_t forward_of(cudaStream_t stream, const ARGS &args)
{
    const size_t bytes = (size_t)forward_tile<D>::rows * tile_of<T, D>::bytes_per_row;
    return launch(known<attention_mma_forward_kernel<T, D, ARGS>>(),
                  head_grid(&args.z, args.z.n_heads, args.z.seq, FORWARD_ROWS),
                  dim3(forward_tile<D>::threads), bytes, stream, args);
}

cudaError_t launch_attention_mma_forward(cudaStream_t stream, const struct zinf_attention *z)
{
    BY_SHAPE(z, NULL, BY_HEAD(z, return (forward_of<T, D>(stream, args))));
}

/* sm_75 has fp16 alone, and too little shared memory and too few registers for wide heads. Rows
 * are read 16 bytes at a time. The largest score is the largest scaled one. */
bool attention_mma_serves(const struct zinf_attention *z, int capability)
{
    if (z->dtype == ZINF_DTYPE_F32 || z->head_dim % 8 || !(z->scale > 0.0f) || !aligned16(z->qkv) ||
        !aligned16(z->kv) || !aligned16(z->out) || !aligned16(z->d_out) || !aligned16(z->d_qkv) ||
        !aligned16(z->d_kv))
        return false;
    return capability >= 80 ||
           (capability >= 75 && z->dtype == ZINF_DTYPE_F16 && z->head_dim <= 64);
}
