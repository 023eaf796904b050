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

/* ---- chunks of a sequence ---- */

static bool is_biased(const struct attention_spec *s)
{
    return s->distance.n_buckets > 0;
}

/* Room for so many distances of each head. */
static float *scratch_distances(struct zinf_frame *f, const struct attention_spec *s,
                                int64_t distances)
{
    return frame_scratch(f, (uint64_t)(s->n_heads * distances) * sizeof(float));
}

int distance_chunks_make(struct zinf_frame *f, const struct attention_spec *s, bool backward,
                         struct distance_chunks *out)
{
    if (!is_biased(s))
        return 0;
    /* Of all chunks, also where the last ones have nobody's rows. */
    const int64_t length = frame_length(f), one = 2 * length - 1, n = f->compute->chunk.n;
    out->of = distance_args(f, s);
    out->of.n_queries = out->of.n_keys = n * length;
    const int64_t all = zinf_distances(&out->of);
    int code = distance_table(f, s, &out->of);
    out->of.bias = scratch_distances(f, s, all);
    out->one = scratch_distances(f, s, one);
    if (!code)
        code = frame_distance_bias(f, &out->of);
    if (code || !backward || !out->of.d_table)
        return code;
    out->d_bias = scratch_distances(f, s, all);
    out->d_one = scratch_distances(f, s, one);
    out->spare = scratch_distances(f, s, one);
    return frame_zero(f, out->d_bias, (uint64_t)(s->n_heads * all) * sizeof(float));
}

/* Those of one call, of each head, from those of all to rows of their own; or back. */
static int copy_distances(struct zinf_frame *f, const struct distance_chunks *d,
                          const struct zinf_attention *attention, float *all, float *one, bool back)
{
    const int64_t n = zinf_attention_distances(attention), ld = zinf_distances(&d->of);
    const int64_t first = d->of.n_queries - attention->seq - zinf_attention_ahead(attention);
    float *from = all ? all + first : NULL; /* NULL: measuring */
    const struct zinf_heads args = {
        .dtype = ZINF_DTYPE_F32,
        .rows = d->of.n_heads,
        .n_heads = 1,
        .cols = n,
        .x = back ? one : from,
        .x_ld = back ? n : ld,
        .y = back ? from : one,
        .y_ld = back ? ld : n,
    };
    return frame_heads(f, &args);
}

int distance_chunks_take(struct zinf_frame *f, const struct attention_spec *s,
                         const struct distance_chunks *d, struct zinf_attention *attention)
{
    if (!is_biased(s))
        return 0;
    attention->bias = d->one;
    attention->d_bias = d->d_one;
    return copy_distances(f, d, attention, d->of.bias, d->one, false);
}

int distance_chunks_add(struct zinf_frame *f, const struct attention_spec *s,
                        const struct distance_chunks *d, const struct zinf_attention *attention)
{
    if (!is_biased(s) || !d->of.d_table)
        return 0;
    const struct zinf_residual add = {.dtype = ZINF_DTYPE_F32,
                                      .n = s->n_heads * zinf_attention_distances(attention),
                                      .x = d->spare,
                                      .r = d->d_one,
                                      .y = d->spare};
    int code = copy_distances(f, d, attention, d->d_bias, d->spare, false);
    if (!code)
        code = frame_residual(f, &add);
    return code ? code : copy_distances(f, d, attention, d->d_bias, d->spare, true);
}

int distance_chunks_end(struct zinf_frame *f, const struct attention_spec *s,
                        const struct distance_chunks *d)
{
    struct zinf_distance_bias args = d->of;
    args.d_bias = d->d_bias;
    return is_biased(s) && args.d_table ? frame_distance_bias_backward(f, &args) : 0;
}
