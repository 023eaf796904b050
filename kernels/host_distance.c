/* host_distance: the table of buckets to a bias by distance, and back. A row of it is a few hundred
 * numbers: one thread makes them. */
#include "kernels/host.h"

/* Of key less query. */
static int64_t bucket_of(const struct zinf_distance_bias *a, int64_t distance)
{
    const bool behind = distance > 0;
    int64_t n = behind ? distance : -distance;
    int bucket = 0;
    if (behind && !a->both_ways)
        return 0;
    while (bucket + 1 < a->n_buckets && a->starts[bucket + 1] <= n)
        bucket++;
    return bucket + (behind ? a->n_buckets : 0);
}

int host_distance_bias(struct zinf_queue *q, const struct zinf_distance_bias *args)
{
    const int64_t heads = args->n_heads, distances = zinf_distances(args);
    const struct host_simd *simd = q->device->simd;
    int code = check_distance_bias(args, "distance_bias");
    float row[HOST_CHUNK];
    for (int64_t d = 0; !code && d < distances; d++) {
        const int64_t bucket = bucket_of(args, d + 1 - args->n_queries);
        for (int64_t h = 0; h < heads; h += HOST_CHUNK) {
            const size_t n = (size_t)(heads - h < HOST_CHUNK ? heads - h : HOST_CHUNK);
            const float *from =
                host_read(simd, row, args->table, args->dtype, (uint64_t)(bucket * heads + h), n);
            for (size_t i = 0; i < n; i++)
                args->bias[(h + (int64_t)i) * distances + d] = from[i];
        }
    }
    return code;
}

int host_distance_bias_backward(struct zinf_queue *q, const struct zinf_distance_bias *args)
{
    const int64_t heads = args->n_heads, distances = zinf_distances(args);
    const int64_t rows = args->both_ways ? 2 * args->n_buckets : args->n_buckets;
    int code = check_distance_bias(args, "distance_bias_backward");
    (void)q;
    if (code)
        return code;
    memset(args->d_table, 0, (size_t)(rows * heads) * sizeof *args->d_table);
    for (int64_t b = 0; b < args->batch; b++)
        for (int64_t d = 0; d < distances; d++) {
            float *to = args->d_table + bucket_of(args, d + 1 - args->n_queries) * heads;
            const float *from = args->d_bias + b * heads * distances + d;
            for (int64_t h = 0; h < heads; h++)
                to[h] += from[h * distances];
        }
    return 0;
}
