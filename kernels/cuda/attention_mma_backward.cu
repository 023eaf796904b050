/*
 * attention_mma_backward: the gradients of attention on tensor cores, in two kernels that both
 * make the scores again. One has a block for 64 keys and walks query tiles with everything
 * transposed (keys are the rows), so that P^T and dS^T are operands of dV and dK as they come; the
 * other has a block for 64 queries and walks key tiles for dQ. 7 products where one kernel would
 * need 5, but no two blocks ever add to the same place: the bits repeat.
 */
#include "kernels/cuda/attention_mma.cuh"

enum { DKV_KEYS = 64, DQ_ROWS = 64, DQ_THREADS = 128 };

/* A head of 256 has too many sums for one warp: two warps share 16 keys, half the columns each. */
template <int D> struct dkv_tile {
    static const int split = D <= 128 ? 1 : 2, rows = D <= 128 ? 32 : 16, threads = 128 * split;
};

/* Tiles of 32 keys of 256 would leave sm_86 no shared memory for the mask. */
template <int D> struct dq_tile {
    static const int keys = D <= 128 ? 32 : 16;
};

/* One score s = q.k and dp = dO.v become p (dropped) and ds = p (dp - delta). */
DEVICE void gradient(const attention_args &a, const float *lse, const float *delta, int64_t query,
                     int64_t key, float factor, float &s, float &dp)
{
    bool seen = sees(a.z, query, key);
    float p = seen ? exp2f((s * a.z.scale - lse[query]) * LOG2_E) : 0.0f;
    s = p * factor;
    dp = seen ? p * (dp * factor - delta[query]) : 0.0f;
}

/* ---- dK and dV ---- */

template <class T, int D>
KERNEL(dkv_tile<D>::threads) attention_mma_dkv_kernel(attention_args a)
{
    if (!compiles<T>(D))
        return;
    SHARED_MEMORY(memory);
    const int ROWS_ = dkv_tile<D>::rows, N = ROWS_ / 8, COLUMNS = D / dkv_tile<D>::split;
    const int THREADS_ = dkv_tile<D>::threads, pitch = tile_of<T, D>::pitch;
    __shared__ uint32_t mask[ROWS_ * words_of(DKV_KEYS)];
    const struct zinf_attention &z = a.z;
    T *key = (T *)memory, *value = key + DKV_KEYS * pitch;
    T *query = value + DKV_KEYS * pitch, *d_out = query + ROWS_ * pitch;
    const int64_t j = (int64_t)blockIdx.x * DKV_KEYS, kv = blockIdx.y, b = blockIdx.z;
    const int64_t group = z.n_heads / z.n_kv_heads;
    const int warp = threadIdx.x / 32, column = warp / 4 * COLUMNS, g = lane_id() / 4;
    const int mine = warp % 4 * 16, t = lane_id() % 4;
    float d_key[COLUMNS / 8][4], d_value[COLUMNS / 8][4];
    clear(d_key);
    clear(d_value);
    load_head<T, D, DKV_KEYS, THREADS_>(z, key, qkv_rows<const T>(z, z.qkv, b, z.n_heads + kv), j);
    load_head<T, D, DKV_KEYS, THREADS_>(
        z, value, qkv_rows<const T>(z, z.qkv, b, z.n_heads + z.n_kv_heads + kv), j);
    for (int64_t head = kv * group; head < (kv + 1) * group; head++)
        for (int64_t i = z.causal ? j : 0; i < z.seq; i += ROWS_) {
            float s[N][4], dp[N][4];
            clear(s);
            clear(dp);
            sync_block();
            load_head<T, D, ROWS_, THREADS_>(z, query, qkv_rows<const T>(z, z.qkv, b, head), i);
            load_head<T, D, ROWS_, THREADS_>(z, d_out, out_rows<const T>(z, z.d_out, b, head), i);
            if (a.drops)
                make_mask<ROWS_, DKV_KEYS, THREADS_>(a, mask, b, head, i, j);
            sync_block();
            multiply_rows<N, D>(s, key + mine * pitch, query, pitch);
            multiply_rows<N, D>(dp, value + mine * pitch, d_out, pitch);
            const int64_t at = row_index(z, b, head, 0);
            UNROLL for (int n = 0; n < N; n++)
                UNROLL for (int e = 0; e < 4; e++)
                {
                    int row = n * 8 + 2 * t + e % 2, k = mine + g + e / 2 * 8;
                    float factor = a.drops ? mask_factor<DKV_KEYS>(a, mask, row, k) : 1.0f;
                    gradient(a, z.lse + at, a.delta + at, i + row, j + k, factor, s[n][e],
                             dp[n][e]);
                }
            multiply_results<COLUMNS / 8>(d_value, s, d_out + column, pitch);
            multiply_results<COLUMNS / 8>(d_key, dp, query + column, pitch);
        }
    sync_block(); /* every warp is done with the tiles */
    put_results(key + mine * pitch + column, pitch, d_key, z.scale, z.scale);
    put_results(value + mine * pitch + column, pitch, d_value, 1.0f, 1.0f);
    sync_block();
    store_head<T, D, DKV_KEYS, THREADS_>(z, key, qkv_rows<T>(z, z.d_qkv, b, z.n_heads + kv), j);
    store_head<T, D, DKV_KEYS, THREADS_>(
        z, value, qkv_rows<T>(z, z.d_qkv, b, z.n_heads + z.n_kv_heads + kv), j);
}

/* ---- dQ ---- */

template <class T, int D> KERNEL(DQ_THREADS) attention_mma_dq_kernel(attention_args a)
{
    if (!compiles<T>(D))
        return;
    SHARED_MEMORY(memory);
    const int KEYS = dq_tile<D>::keys, N = KEYS / 8, pitch = tile_of<T, D>::pitch;
    __shared__ uint32_t mask[DQ_ROWS * words_of(KEYS)];
    const struct zinf_attention &z = a.z;
    T *query = (T *)memory, *d_out = query + DQ_ROWS * pitch;
    T *key = d_out + DQ_ROWS * pitch, *value = key + KEYS * pitch;
    const int64_t block = z.causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
    const int64_t i = block * DQ_ROWS, head = blockIdx.y, b = blockIdx.z;
    const int64_t kv = z.n_heads + kv_head_of(z, head);
    const int64_t end = z.causal && i + DQ_ROWS < z.seq ? i + DQ_ROWS : z.seq;
    const int mine = threadIdx.x / 32 * 16, g = lane_id() / 4, t = lane_id() % 4;
    const int64_t at = row_index(z, b, head, 0);
    float d_query[D / 8][4];
    clear(d_query);
    load_head<T, D, DQ_ROWS, DQ_THREADS>(z, query, qkv_rows<const T>(z, z.qkv, b, head), i);
    load_head<T, D, DQ_ROWS, DQ_THREADS>(z, d_out, out_rows<const T>(z, z.d_out, b, head), i);
    for (int64_t j = 0; j < end; j += KEYS) {
        float s[N][4], dp[N][4];
        clear(s);
        clear(dp);
        sync_block();
        load_head<T, D, KEYS, DQ_THREADS>(z, key, qkv_rows<const T>(z, z.qkv, b, kv), j);
        load_head<T, D, KEYS, DQ_THREADS>(
            z, value, qkv_rows<const T>(z, z.qkv, b, kv + z.n_kv_heads), j);
        if (a.drops)
            make_mask<DQ_ROWS, KEYS, DQ_THREADS>(a, mask, b, head, i, j);
        sync_block();
        multiply_rows<N, D>(s, query + mine * pitch, key, pitch);
        multiply_rows<N, D>(dp, d_out + mine * pitch, value, pitch);
        UNROLL for (int n = 0; n < N; n++)
            UNROLL for (int e = 0; e < 4; e++)
            {
                int row = mine + g + e / 2 * 8, k = n * 8 + 2 * t + e % 2;
                float factor = a.drops ? mask_factor<KEYS>(a, mask, row, k) : 1.0f;
                gradient(a, z.lse + at, a.delta + at, i + row, j + k, factor, s[n][e], dp[n][e]);
            }
        multiply_results<D / 8>(d_query, dp, key, pitch);
    }
    sync_block();
    put_results(query + mine * pitch, pitch, d_query, z.scale, z.scale);
    sync_block();
    store_head<T, D, DQ_ROWS, DQ_THREADS>(z, query, qkv_rows<T>(z, z.d_qkv, b, head), i);
}

/* ---- launches ---- */

template <class T, int D>
static cudaError_t backward_of(cudaStream_t stream, const float *delta,
                               const struct zinf_attention *z)
{
    const size_t row_bytes = tile_of<T, D>::bytes_per_row;
    attention_args args = attention_args_of(z, delta);
    cudaError_t error =
        launch(attention_mma_dkv_kernel<T, D>, head_grid(z, z->n_kv_heads, DKV_KEYS),
               dim3(dkv_tile<D>::threads), 2 * (DKV_KEYS + dkv_tile<D>::rows) * row_bytes, stream,
               args);
    if (error != cudaSuccess)
        return error;
    return launch(attention_mma_dq_kernel<T, D>, head_grid(z, z->n_heads, DQ_ROWS),
                  dim3(DQ_THREADS), 2 * (DQ_ROWS + dq_tile<D>::keys) * row_bytes, stream, args);
}

cudaError_t launch_attention_mma_backward(cudaStream_t stream, const float *delta,
                                          const struct zinf_attention *z)
{
    BY_HEAD(z, return (backward_of<T, D>(stream, delta, z)));
}
