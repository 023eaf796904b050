/*
 * attention_relative: which row of a table of relative positions each distance has, and the
 * gradients of the rows, by way of those by distance: a block has a range of distances of a head,
 * walks the samples and the query tiles, and for each the two key tiles that lie so far away; no
 * sum ever meets another block's. The scores are made in attention_plain.cu.
 */
#include "kernels/cuda/attention_plain.cuh"

enum { ROW_THREADS = 128 };

/* ---- rows by distance ---- */

struct rows_args {
    int32_t *at;
    int64_t first, n, half; /* distances first .. first + n - 1 */
    int starts[ZINF_RELATIVE_MAX_HALF + 1];
};

KERNEL(ROW_THREADS) relative_rows_kernel(rows_args a)
{
    const int64_t e = (int64_t)blockIdx.x * ROW_THREADS + threadIdx.x, distance = e + a.first;
    const int64_t n = distance < 0 ? -distance : distance;
    int64_t bucket = 0, above = a.half + 1;
    if (e >= a.n)
        return;
    while (above - bucket > 1) {
        const int64_t middle = (bucket + above) / 2;
        if (a.starts[middle] <= n)
            bucket = middle;
        else
            above = middle;
    }
    const int64_t row = distance < 0 ? a.half - bucket : a.half + bucket;
    a.at[e] = (int32_t)(row < 2 * a.half - 1 ? row : 2 * a.half - 1);
}

cudaError_t launch_relative_rows(cudaStream_t stream, int32_t *at, const struct zinf_attention *z)
{
    const int64_t first = zinf_attention_ahead(z) - (zinf_attention_keys(z) - 1);
    rows_args args = {at, first, zinf_attention_distances(z), z->relative->half, {}};
    for (int64_t b = 0; b <= args.half; b++)
        args.starts[b] = z->relative->starts[b];
    return launch(known<relative_rows_kernel>(),
                  dim3(blocks_for((uint64_t)args.n, ROW_THREADS)), dim3(ROW_THREADS), 0, stream,
                  args);
}

/* ---- gradients by distance ---- */

template <class BASE> struct distance_args : relative_of<BASE> {
    float *by_distance; /* [keys, queries][n_heads][seq + keys - 1][head_dim] */
    float *rows;        /* [keys, queries][2 half][n_heads head_dim]: between calls */
};

/* Distance number t of the block: the key's number less its query's is first + t. */
template <int TILE>
DEVICE void add_distances(const attention_args &a, const backward_tiles &tiles, int half,
                          float (&keys)[SUMS], float (&queries)[SUMS])
{
    const int d = (int)a.z.head_dim, pitch = tiles.key.pitch;
    NO_UNROLL for (int r = 0; r < TILE; r++)
        UNROLL for (int k = 0; k < SUMS; k++)
        {
            const int e = threadIdx.x + k * PLAIN_THREADS, col = e % d, c = r + e / d - half * TILE;
            if (c < 0 || c >= TILE || e >= TILE * d)
                continue;
            const float ds = tiles.ds[r * (TILE + 1) + c];
            keys[k] += ds * tiles.query.at[r * pitch + col];
            queries[k] += ds * tiles.key.at[c * pitch + col];
        }
}

template <int TILE, class BASE>
KERNEL(PLAIN_THREADS) relative_distance_kernel(distance_args<BASE> a)
{
    SHARED_MEMORY(memory);
    const struct zinf_attention &z = a.z;
    const int64_t distances = z.seq + n_keys(a) - 1, head = blockIdx.y;
    const int64_t place = (int64_t)blockIdx.x * TILE, first = place - (z.seq - 1);
    const int d = (int)z.head_dim;
    backward_tiles tiles = place_tiles<TILE>(memory, d + 1);
    float keys[SUMS] = {}, queries[SUMS] = {};
    for (int64_t b = 0; b < z.batch; b++)
        for (int64_t i = 0; i < z.seq; i += TILE)
            for (int half = 0; half < 2; half++) {
                const int64_t j = i + first + half * TILE;
                if (j >= n_keys(a) || j + TILE <= 0)
                    continue;
                sync_block();
                load_tile<TILE>(z, tiles.query, z.qkv, query_place(z, b, head), i);
                load_tile<TILE>(z, tiles.d_out, z.d_out, out_place(z, b, head), i);
                load_tile<TILE>(z, tiles.key, keys_in(a), key_place(z, b, head), j);
                load_tile<TILE>(z, tiles.value, keys_in(a), value_place(z, b, head), j);
                gradient_tile<TILE>(a, tiles, b, pair_of(tiles, head, i, j, false));
                sync_block();
                add_distances<TILE>(a, tiles, half, keys, queries);
            }
    UNROLL for (int k = 0; k < SUMS; k++)
    {
        const int e = threadIdx.x + k * PLAIN_THREADS;
        const int64_t at = place + e / d;
        if (e >= TILE * d || at >= distances)
            continue;
        float *to = a.by_distance + (head * distances + at) * d + e % d;
        to[0] = keys[k];
        to[z.n_heads * distances * d] = queries[k];
    }
}

/* ---- to the table ---- */

/* Adds the sums of calls before to those of element e of both terms' rows, n elements each. True:
 * they are left to the next call. */
DEVICE bool move_rows(const running_rows &running, float *rows, int64_t e, int64_t n,
                      float (&sums)[2])
{
    for (int term = 0; term < 2; term++) {
        if (running.resumes)
            sums[term] += rows[term * n + e];
        if (running.leaves)
            rows[term * n + e] = sums[term];
    }
    return running.leaves;
}

/* A thread an element of a row: the sum over its distances, in order. They follow each other: row
 * numbers rise with how far the key is before its query. */
template <class BASE> KERNEL(ROW_THREADS) relative_table_kernel(distance_args<BASE> a)
{
    const struct zinf_attention &z = a.z;
    const int64_t distances = z.seq + n_keys(a) - 1, d = z.head_dim, cols = z.n_heads * d;
    const int64_t e = (int64_t)blockIdx.x * ROW_THREADS + threadIdx.x;
    const int64_t row = e / cols, head = e % cols / d, col = e % d;
    int64_t low = 0, high = distances;
    if (row >= 2 * a.r.half)
        return;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (a.at[middle] < row)
            low = middle + 1;
        else
            high = middle;
    }
    float sums[2] = {};
    for (int64_t n = low; n < distances && a.at[n] == row; n++)
        for (int term = 0; term < 2; term++) /* distances there are of keys less queries */
            sums[term] +=
                a.by_distance[((term * z.n_heads + head) * distances + (distances - 1 - n)) * d +
                              col];
    if (move_rows(running_of(a), a.rows, e, 2 * a.r.half * cols, sums))
        return;
    if (a.r.d_keys)
        store_float(a.r.d_keys, z.dtype, row * a.r.ld + head * d + col, z.scale * sums[0]);
    if (a.r.d_queries)
        store_float(a.r.d_queries, z.dtype, row * a.r.ld + head * d + col, z.scale * sums[1]);
}

template <class BASE>
static cudaError_t table_gradient(cudaStream_t stream, const relative_of<BASE> &relative,
                                  float *by_distance)
{
    const kernel_of<distance_args<BASE>> kernels[] = {known<relative_distance_kernel<32, BASE>>(),
                                                      known<relative_distance_kernel<16, BASE>>(),
                                                      known<relative_distance_kernel<8, BASE>>(),
                                                      known<relative_distance_kernel<4, BASE>>()};
    const struct zinf_attention *z = &relative.z;
    distance_args<BASE> args = {};
    static_cast<relative_of<BASE> &>(args) = relative;
    args.by_distance = by_distance;
    args.rows = z->running ? z->running->rows : NULL;
    /* samples are walked within a block */
    const plain_shape shape = {4, 2, z->n_heads, zinf_attention_distances(z), 1};
    cudaError_t error = launch_plain(stream, kernels, shape, args);
    const uint64_t n = 2 * (uint64_t)(z->relative->half * z->n_heads * z->head_dim);
    return error == cudaSuccess
               ? launch(known<relative_table_kernel<BASE>>(), dim3(blocks_for(n, ROW_THREADS)),
                        dim3(ROW_THREADS), 0, stream, args)
               : error;
}

cudaError_t launch_relative_table(cudaStream_t stream, const struct relative_gradient *g,
                                  const struct zinf_attention *z)
{
    BY_PLACE(z, g->delta, g->at, return table_gradient(stream, args, g->by_distance));
}
