/* part_distance: the bias of attention's scores by distance, from a table that layers share. */
#include "model/stages/stages.h"

struct zinf_distance_bias distance_args(const struct zinf_frame *f, const struct attention_spec *s)
{
    const struct distance_spec *d = &s->distance;
    return (struct zinf_distance_bias){
        .dtype = f->compute->dtype,
        .n_heads = s->n_heads,
        .n_queries = frame_length(f),
        .n_keys = frame_length(f),
        .both_ways = d->both_ways,
        .n_buckets = d->n_buckets,
        .starts = d->starts,
        .table = frame_weight(f, d->unit, d->table),
        .batch = f->compute->batch,
        .d_table = frame_grad(f, d->unit, d->table),
    };
}

/* Makes the bias, in scratch; with a gradient wanted, room for it. */
int distance_bias(struct zinf_frame *f, const struct attention_spec *s,
                  struct zinf_attention *attention, bool backward)
{
    if (!s->distance.n_buckets)
        return 0;
    struct zinf_distance_bias args = distance_args(f, s);
    const uint64_t bytes = (uint64_t)(s->n_heads * zinf_distances(&args)) * sizeof(float);
    attention->bias = args.bias = frame_scratch(f, bytes);
    if (backward && args.d_table)
        attention->d_bias = frame_scratch(f, (uint64_t)f->compute->batch * bytes);
    return frame_distance_bias(f, &args);
}

int distance_bias_backward(struct zinf_frame *f, const struct attention_spec *s,
                           const struct zinf_attention *attention)
{
    if (!attention->d_bias)
        return 0;
    struct zinf_distance_bias args = distance_args(f, s);
    args.d_bias = attention->d_bias;
    return frame_distance_bias_backward(f, &args);
}
