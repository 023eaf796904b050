/* part_distance: the bias of attention's scores by distance, from a table that layers share. */
#include "model/stages/stages.h"

struct zinf_distance_bias distance_args(const struct zinf_frame *f, const struct attention_spec *s)
{
    const struct distance_spec *d = &s->distance;
    float *whole = frame_grad(f, d->unit, d->table);
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
        .d_table = d->all_heads && f->queue ? d->d_table : whole,
    };
}

int distance_table(struct zinf_frame *f, const struct attention_spec *s,
                   struct zinf_distance_bias *args)
{
    const struct distance_spec *d = &s->distance;
    const int64_t rows = (int64_t)d->n_buckets * (d->both_ways ? 2 : 1);
    const uint64_t width = frame_width(f);
    if (!d->all_heads)
        return 0;
    void *columns = frame_scratch(f, (uint64_t)(rows * s->n_heads) * width);
    const struct zinf_heads copy = {
        .dtype = f->compute->dtype,
        .rows = rows,
        .n_heads = 1,
        .cols = s->n_heads,
        .x = f->queue ? (const char *)args->table + (uint64_t)d->first_head * width : args->table,
        .x_ld = d->all_heads,
        .y = columns,
        .y_ld = s->n_heads,
    };
    args->table = columns;
    return frame_heads(f, &copy);
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
    int code = distance_table(f, s, &args);
    return code ? code : frame_distance_bias(f, &args);
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
