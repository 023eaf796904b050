/*
 * attention_distance: the bias of scores by distance: from its table, its gradient from that of the
 * scores, and back to the table. A block has a range of distances: it walks the query tiles and for
 * each the two key tiles that lie so far away, and no sum ever meets another block's.
 */
#include "kernels/cuda/attention_plain.cuh"

enum { TABLE_THREADS = 128 };

/* ---- the gradient of the scores, by distance ---- */

template <int TILE, class ARGS> KERNEL(PLAIN_THREADS) attention_distance_kernel(ARGS a)
{
    SHARED_MEMORY(memory);
    const struct zinf_attention &z = a.z;
    const int64_t distances = z.seq + keys_of(z) - 1, head = blockIdx.y, b = blockIdx.z;
    const int64_t place = (int64_t)blockIdx.x * TILE, distance = place - (z.seq - 1);
    const int64_t kv = kv_head_of(z, head);
    const int t = threadIdx.x;
    backward_tiles tiles = place_tiles<TILE>(memory, (int)z.head_dim + 1);
    float sum = 0.0f;
    for (int64_t i = 0; i < z.seq; i += TILE) {
        load_tile<TILE>(z, tiles.query, z.qkv, query_place(z, b, head), i);
        load_tile<TILE>(z, tiles.d_out, z.d_out, out_place(z, b, head), i);
        for (int half = 0; half < 2; half++) {
            const int64_t j = i + distance + half * TILE;
            if (j >= keys_of(z) || j + TILE <= 0)
                continue;
            load_tile<TILE>(z, tiles.key, keys_and_values(z), key_place(z, b, kv), j);
            load_tile<TILE>(z, tiles.value, keys_and_values(z), value_place(z, b, kv), j);
            gradient_tile<TILE>(a, tiles, b, pair_of(tiles, head, i, j, false));
            sync_block(); /* the gradients are there, and the tiles are done with */
            for (int r = 0; t < TILE && r < TILE; r++) {
                const int c = r + t - half * TILE;
                if (c >= 0 && c < TILE)
                    sum += tiles.ds[r * (TILE + 1) + c];
            }
        }
    }
    if (t < TILE && place + t < distances)
        z.d_bias[(b * z.n_heads + head) * distances + place + t] = sum;
}

template <class ARGS> static cudaError_t distance_gradient(cudaStream_t stream, const ARGS &args)
{
    const kernel_of<ARGS> kernels[] = {known<attention_distance_kernel<32, ARGS>>(),
                                       known<attention_distance_kernel<16, ARGS>>(),
                                       known<attention_distance_kernel<8, ARGS>>(),
                                       known<attention_distance_kernel<4, ARGS>>()};
    const plain_shape shape = {4, 2, args.z.n_heads, zinf_attention_distances(&args.z),
                               args.z.batch};
    return launch_plain(stream, kernels, shape, args);
}

cudaError_t launch_attention_distance(cudaStream_t stream, const float *delta,
                                      const struct zinf_attention *z)
{
    return distance_gradient(stream, shaped_args_of(z, delta));
}

/* ---- the table ---- */

struct table_args {
    struct zinf_distance_bias z;
    int starts[ZINF_DISTANCE_MAX_BUCKETS];
};

/* As host_attention.c has it. */
DEVICE int64_t bucket_of(const table_args &a, int64_t distance)
{
    const bool behind = distance > 0;
    const int64_t n = behind ? distance : -distance;
    int bucket = 0;
    if (behind && !a.z.both_ways)
        return 0;
    while (bucket + 1 < a.z.n_buckets && a.starts[bucket + 1] <= n)
        bucket++;
    return bucket + (behind ? a.z.n_buckets : 0);
}

KERNEL(TABLE_THREADS) distance_bias_kernel(table_args a)
{
    const int64_t distances = a.z.n_queries + a.z.n_keys - 1;
    const int64_t e = (int64_t)blockIdx.x * TABLE_THREADS + threadIdx.x;
    if (e >= a.z.n_heads * distances)
        return;
    const int64_t bucket = bucket_of(a, e % distances + 1 - a.z.n_queries);
    a.z.bias[e] = load_float(a.z.table, a.z.dtype, bucket * a.z.n_heads + e / distances);
}

/* A thread an element of the table, over samples and distances in order: the CPU's order. */
KERNEL(TABLE_THREADS) distance_table_kernel(table_args a)
{
    const int64_t distances = a.z.n_queries + a.z.n_keys - 1, heads = a.z.n_heads;
    const int64_t rows = a.z.both_ways ? 2 * a.z.n_buckets : a.z.n_buckets;
    const int64_t e = (int64_t)blockIdx.x * TABLE_THREADS + threadIdx.x;
    float sum = 0.0f;
    if (e >= rows * heads)
        return;
    for (int64_t b = 0; b < a.z.batch; b++)
        for (int64_t d = 0; d < distances; d++)
            if (bucket_of(a, d + 1 - a.z.n_queries) == e / heads)
                sum += a.z.d_bias[(b * heads + e % heads) * distances + d];
    a.z.d_table[e] = sum;
}

static table_args table_args_of(const struct zinf_distance_bias *z)
{
    table_args args = {};
    args.z = *z;
    for (int i = 0; i < z->n_buckets; i++)
        args.starts[i] = z->starts[i];
    return args;
}

cudaError_t launch_distance_bias(cudaStream_t stream, const struct zinf_distance_bias *z)
{
    const uint64_t n = (uint64_t)(z->n_heads * zinf_distances(z));
    return launch(known<distance_bias_kernel>(), dim3(blocks_for(n, TABLE_THREADS)),
                  dim3(TABLE_THREADS), 0, stream, table_args_of(z));
}

cudaError_t launch_distance_table(cudaStream_t stream, const struct zinf_distance_bias *z)
{
    const uint64_t rows = (uint64_t)z->n_buckets * (z->both_ways ? 2 : 1);
    return launch(known<distance_table_kernel>(),
                  dim3(blocks_for(rows * (uint64_t)z->n_heads, TABLE_THREADS)), dim3(TABLE_THREADS),
                  0, stream, table_args_of(z));
}
