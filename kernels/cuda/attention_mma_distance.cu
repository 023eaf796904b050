/*
 * attention_mma_distance: the gradient of a bias by distance, on tensor cores. Of the pairs of a
 * tile of queries and a tile of keys, a block has those whose keys lie so many tiles behind their
 * queries: what is at one place of all these has one distance, so the gradients of scores are added
 * up where they are made, in registers, and along the diagonals at the end alone. A distance is in
 * two neighbouring blocks; a second kernel adds their parts. No sum ever meets another block's.
 */
#include "kernels/cuda/attention_mma_gradient.cuh"
#include "kernels/cuda/workspace.h"

enum { ADD_THREADS = 128 };

template <int D> struct distance_tile {
    static const int rows = ATTENTION_DISTANCE_ROWS(D), threads = 2 * rows;
};

struct by_diagonal : shaped_args {
    float *parts; /* [batch][n_heads][diagonals of tiles][2 rows of a tile] */
};

/* The block's sums, at [row][pitch] in shared memory: those of a diagonal are one distance's. */
template <int ROWS_, int THREADS_>
DEVICE void add_diagonals(const by_diagonal &a, const float *square, int64_t b, int64_t head)
{
    const int64_t block = (b * a.z.n_heads + head) * gridDim.x + blockIdx.x;
    for (int e = threadIdx.x; e < 2 * ROWS_; e += THREADS_) {
        const int ahead = e - (ROWS_ - 1); /* of the key less its query, both counted in the tile */
        float sum = 0.0f;
        for (int row = 0; row < ROWS_; row++)
            if (row + ahead >= 0 && row + ahead < ROWS_)
                sum += square[row * (ROWS_ + 1) + row + ahead];
        a.parts[block * 2 * ROWS_ + e] = sum;
    }
}

template <int N> DEVICE void put_square(float *square, const float (&sums)[N][4], int row)
{
    UNROLL for (int n = 0; n < N; n++) UNROLL for (int e = 0; e < 4; e++)
        square[(row + e / 2 * 8) * (8 * N + 1) + n * 8 + 2 * (lane_id() % 4) + e % 2] = sums[n][e];
}

template <class T, int D>
KERNEL(distance_tile<D>::threads)
attention_mma_distance_kernel(by_diagonal a)
{
    if (!compiles<T>(D))
        return;
    SHARED_MEMORY(memory);
    const int ROWS_ = distance_tile<D>::rows, THREADS_ = distance_tile<D>::threads, N = ROWS_ / 8;
    const int pitch = tile_of<T, D>::pitch;
    __shared__ uint32_t mask[ROWS_ * words_of(ROWS_)];
    __shared__ beside_tile<by_diagonal, ROWS_, ROWS_, THREADS_> beside;
    __shared__ int32_t own[THREADS_];
    const struct zinf_attention &z = a.z;
    T *query = (T *)memory, *d_out = query + ROWS_ * pitch;
    T *key = d_out + ROWS_ * pitch, *value = key + ROWS_ * pitch;
    const int64_t head = blockIdx.y, b = blockIdx.z, kv = kv_head_of(z, head);
    const int64_t behind = ((int64_t)blockIdx.x + 1) * ROWS_ - (z.seq + ROWS_ - 1) / ROWS_ * ROWS_;
    const int mine = threadIdx.x / 32 * 16, row = mine + lane_id() / 4;
    left_rows<D, false> queries[1], d_outs[1];
    float sums[N][4];
    hold(queries[0], query + mine * pitch, pitch);
    hold(d_outs[0], d_out + mine * pitch, pitch);
    clear(sums);
    for (int64_t i = behind < 0 ? -behind : 0; i < z.seq && i + behind < a.keys; i += ROWS_) {
        const int64_t j = i + behind;
        float s[1][N][4], dp[1][N][4];
        clear(s);
        sync_block(); /* every warp is done with the tiles before */
        fetch_head<T, D, ROWS_, THREADS_>(z, query, query_rows<const T>(a, z.qkv, b, head), i);
        fetch_head<T, D, ROWS_, THREADS_>(z, d_out, out_rows<const T>(z, z.d_out, b, head), i);
        fetch_head<T, D, ROWS_, THREADS_>(z, key, key_rows<const T>(a, z.kv, b, kv), j);
        fetch_head<T, D, ROWS_, THREADS_>(z, value,
                                          key_rows<const T>(a, z.kv, b, kv + z.n_kv_heads), j);
        fetch_beside(a, beside, keys_from(a, b, j), head, i, j);
        fetch_documents(a, own, queries_from(z, b, i));
        const row_stats stats[1] = {load_stats(a, b, head, i + row)};
        if (a.drops)
            make_mask<ROWS_, ROWS_, THREADS_>(a, mask, b, head, i, j);
        wait_copies();
        sync_block();
        begin_sums<true>(a, stats, dp);
        multiply_rows<T>(s, queries, place_of(row_of_b(key, pitch)), pitch);
        multiply_rows<T>(dp, d_outs, place_of(row_of_b(value, pitch)), pitch);
        const bool unseen = has_unseen(a, i + mine, 16, j, ROWS_) | has_documents(a);
        mask_keys(a, s, own, beside.documents, mine, i, j, unseen);
        const float *bias = bias_at<ROWS_>(beside, 2 * (lane_id() % 4), row);
        dq_gradients<true>(a, stats[0], {mask, mine, bias}, unseen, s[0], dp[0]);
        UNROLL for (int n = 0; n < N; n++) UNROLL for (int e = 0; e < 4; e++) sums[n][e] +=
            dp[0][n][e];
    }
    sync_block();
    put_square((float *)(void *)memory, sums, row);
    sync_block();
    add_diagonals<ROWS_, THREADS_>(a, (const float *)(const void *)memory, b, head);
}

/* ---- both parts of a distance ---- */

struct both_parts {
    float *d_bias;      /* [heads][distances], of all samples */
    const float *parts; /* [heads][diagonals][2 rows] */
    int64_t heads, distances, diagonals, rows, queries;
};

KERNEL(ADD_THREADS) attention_distance_add_kernel(both_parts a)
{
    const int64_t e = (int64_t)blockIdx.x * ADD_THREADS + threadIdx.x;
    if (e >= a.heads * a.distances)
        return;
    /* counted from the first key of a tile before the first diagonal */
    const int64_t tiles = (a.queries + a.rows - 1) / a.rows;
    const int64_t place = e % a.distances - (a.queries - 1) + tiles * a.rows;
    const int64_t lower = place / a.rows - 1, rest = place % a.rows;
    const float *parts = a.parts + e / a.distances * a.diagonals * 2 * a.rows;
    float sum = lower >= 0 ? parts[lower * 2 * a.rows + rest + a.rows - 1] : 0.0f;
    if (rest && lower + 1 < a.diagonals)
        sum += parts[(lower + 1) * 2 * a.rows + rest - 1];
    a.d_bias[e] = sum;
}

/* ---- launches ---- */

template <class T, int D>
static cudaError_t distance_of(cudaStream_t stream, const by_diagonal &args)
{
    const struct zinf_attention *z = &args.z;
    const int rows = distance_tile<D>::rows;
    const int64_t diagonals = attention_diagonals(z), heads = z->batch * z->n_heads;
    const int64_t distances = zinf_attention_distances(z);
    const both_parts both = {z->d_bias, args.parts, heads, distances, diagonals, rows, z->seq};
    cudaError_t error =
        launch(known<attention_mma_distance_kernel<T, D>>(), head_grid(z, z->n_heads, diagonals, 1),
               dim3(distance_tile<D>::threads), 4 * (size_t)rows * tile_of<T, D>::bytes_per_row,
               stream, args);
    return error == cudaSuccess
               ? launch(known<attention_distance_add_kernel>(),
                        dim3(blocks_for((uint64_t)(heads * distances), ADD_THREADS)),
                        dim3(ADD_THREADS), 0, stream, both)
               : error;
}

cudaError_t launch_attention_mma_distance(cudaStream_t stream, const float *delta, float *parts,
                                          const struct zinf_attention *z)
{
    by_diagonal args = {};
    static_cast<shaped_args &>(args) = shaped_args_of(z, delta);
    args.parts = parts;
    BY_HEAD(z, return (distance_of<T, (D < 512 ? D : 256)>(stream, args)));
}
