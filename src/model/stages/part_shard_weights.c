/*
 * part_shard_weights: attention of shards backward: the gradients of weights and biases in front of
 * its heads, that at another sequence, and those of adapters.
 */
#include "model/stages/part_shard.h"

static int make_source_input(struct zinf_frame *f, const void *call, uint32_t shard, float *out)
{
    const struct attention_call *c = call;
    const struct attention_spec part = attention_part_of(f, c->s, shard);
    uint64_t at;
    const struct shard_product kv = attention_key_value(f, c, &part, shard, &at);
    return shard_columns_input(f, &kv, shard_at(f, c->gradients[shard], at), out, 0);
}

/* The gradient at the other sequence. */
static int source_backward(struct zinf_frame *f, const struct attention_call *c)
{
    void *d_source = c->s->source ? f->d_in[c->s->source] : NULL;
    if (!d_source)
        return 0;
    const int64_t cols = f->graph->values[f->stage->in.at[c->s->source]].cols;
    const int64_t n = attention_source_rows(f, c->s) * cols;
    const struct shard_sum sum = {make_source_input, c, (uint64_t)n};
    const uint64_t mark = frame_mark(f);
    struct zinf_residual add = {.dtype = f->compute->dtype, .n = n, .x = d_source, .y = d_source};
    void *share = NULL;
    int code = shard_sum_narrow(f, &sum, &share);
    add.r = share;
    if (!code)
        code = f->d_in_adds[c->s->source]
                   ? frame_residual(f, &add)
                   : frame_copy(f, d_source, share, sum.elems * frame_width(f));
    frame_release(f, mark);
    return code;
}

/* A shard's part of the gradients of its keys' and values' rows. */
static int make_key_weight(struct zinf_frame *f, const void *call, uint32_t shard, float *out)
{
    const struct attention_call *c = call;
    const struct attention_spec part = attention_part_of(f, c->s, shard);
    uint64_t at;
    const struct shard_product kv = attention_key_value(f, c, &part, shard, &at);
    return shard_columns_weight(f, &kv, shard_at(f, c->gradients[shard], at),
                                attention_key_input(f, c), out);
}

/* Column sums of all of a shard's product: the queries' biases, and to out those of the rest. */
static int make_biases(struct zinf_frame *f, const void *call, uint32_t shard, float *out)
{
    const struct attention_call *c = call;
    const struct attention_spec part = attention_part_of(f, c->s, shard);
    const struct shard_product q = attention_query(c, &part, shard);
    const uint64_t mark = frame_mark(f), queries = (uint64_t)q.rows * sizeof(float);
    const uint64_t all = (uint64_t)q.ld * sizeof(float);
    float *sums = frame_scratch(f, all), *db = frame_grad(f, 0, q.bias);
    int code =
        frame_column_sum(f, sums, c->gradients[shard], f->compute->dtype, shard_rows(f, &q), q.ld);
    if (!code)
        code = frame_copy(f, db, sums, queries);
    if (!code)
        code = frame_copy(f, out, shard_at(f, sums, queries), all - queries);
    frame_release(f, mark);
    return code;
}

/* And of a source's rows. */
static int make_source_biases(struct zinf_frame *f, const void *call, uint32_t shard, float *out)
{
    const struct attention_call *c = call;
    const struct attention_spec part = attention_part_of(f, c->s, shard);
    uint64_t at;
    const struct shard_product kv = attention_key_value(f, c, &part, shard, &at);
    return frame_column_sum(f, out, shard_at(f, c->gradients[shard], at), f->compute->dtype,
                            kv.count, kv.ld);
}

/* Not where it takes those of another layer. */
static bool has_keys(const struct attention_call *c)
{
    return c->s->kv_w >= 0;
}

static int query_weight(struct zinf_frame *f, const struct attention_call *c, uint32_t shard)
{
    const struct attention_spec part = attention_part_of(f, c->s, shard);
    const struct shard_product q = attention_query(c, &part, shard);
    const void *dy = c->gradients[shard];
    float *dw = frame_grad(f, 0, q.weight);
    const bool apart = c->s->source || !has_keys(c); /* else with those of keys */
    float *db = apart ? frame_grad(f, 0, q.bias) : NULL;
    int code = dw ? shard_columns_weight(f, &q, dy, c->rows, dw) : 0;
    return code || !db ? code
                       : frame_column_sum(f, db, dy, f->compute->dtype, shard_rows(f, &q), q.rows);
}

/* Of the group's keys and values, over the shards that share them. */
static int key_gradients(struct zinf_frame *f, const struct attention_call *c, uint32_t group)
{
    const struct attention_spec *s = c->s;
    const struct shard_groups groups = shard_groups_of(&f->graph->shards, s->n_kv_heads);
    const struct attention_spec part = attention_part_of(f, s, 0);
    const uint64_t rows = (uint64_t)attention_kv_rows(&part);
    const uint32_t n = f->graph->shards.n / groups.n;
    const int tensor = shard_tensor(s->kv_w, group);
    const struct shard_sum weight = {make_key_weight, c,
                                     rows * frame_unit(f, 0)->tensors[tensor].cols};
    const struct shard_sum bias = {s->source ? make_source_biases : make_biases, c, rows};
    float *dw = frame_grad(f, 0, tensor);
    float *db = frame_grad(f, 0, shard_tensor(s->kv_b, group));
    int code = dw ? shard_sum_shared(f, &weight, group * n, n, groups.shards, dw) : 0;
    return code || !db ? code : shard_sum_shared(f, &bias, group * n, n, groups.shards, db);
}

int attention_adapt_projection(struct zinf_frame *f, const struct attention_call *c,
                               const void *d_y)
{
    struct shard_product p[ZINF_MOST_SHARDS];
    for (uint32_t i = 0; i < f->graph->shards.n; i++) {
        const struct attention_spec part = attention_part_of(f, c->s, i);
        p[i] = attention_project(f, c, &part, i);
    }
    const struct shard_adapters out = {
        .p = p, .dy = &d_y, .input = attention_projection_input, .call = c};
    return shard_depth_adapt_weights(f, &out);
}

/* Adapters of queries, of keys and of values. */
static int adapters(struct zinf_frame *f, const struct attention_call *c)
{
    const struct shard_groups groups = shard_groups_of(&f->graph->shards, c->s->n_kv_heads);
    struct shard_product q[ZINF_MOST_SHARDS], kv[ZINF_MOST_SHARDS];
    const void *d_kv[ZINF_MOST_SHARDS];
    const uint32_t n = f->graph->shards.n;
    for (uint32_t i = 0; i < n; i++) {
        const struct attention_spec part = attention_part_of(f, c->s, i);
        uint64_t at;
        q[i] = attention_query(c, &part, i);
        kv[i] = attention_key_value(f, c, &part, i, &at);
        d_kv[i] = shard_at(f, c->gradients[i], at);
    }
    const struct shard_adapters queries = {
        .p = q, .dy = (const void *const *)c->gradients, .x = c->rows, .per_weight = 1};
    const struct shard_adapters keys = {.p = kv,
                                        .dy = d_kv,
                                        .x = attention_key_input(f, c),
                                        .per_weight = n / groups.n,
                                        .shares = groups.shards};
    int code = shard_columns_adapt_weights(f, &queries);
    return code || !has_keys(c) ? code : shard_columns_adapt_weights(f, &keys);
}

int attention_weights_backward(struct zinf_frame *f, const struct attention_call *c)
{
    const struct shard_groups groups = shard_groups_of(&f->graph->shards, c->s->n_kv_heads);
    int code = 0;
    for (uint32_t i = 0; !code && i < f->graph->shards.n; i++)
        code = query_weight(f, c, i);
    for (uint32_t i = 0; !code && has_keys(c) && i < groups.n; i++)
        code = key_gradients(f, c, i);
    if (!code)
        code = source_backward(f, c);
    return code ? code : adapters(f, c);
}
