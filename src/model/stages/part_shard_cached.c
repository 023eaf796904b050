/*
 * part_shard_cached: attention of shards while decoding. A cache has the keys and values of all the
 * graph's shards, so their products are put beside each other, and attention is one call.
 */
#include "model/stages/part_shard.h"

struct attention_spec attention_cached_of(const struct zinf_frame *f,
                                          const struct attention_spec *s)
{
    const struct zinf_shards *c = &f->graph->shards;
    const struct shard_groups groups = shard_groups_of(c, s->n_kv_heads);
    struct attention_spec all = attention_part_of(f, s, 0);
    all.n_heads *= c->n;
    all.n_kv_heads = groups.n * groups.heads;
    for (int i = 0; i < all.scales.n; i++)
        all.scales.ranges[i].cols = (i ? all.n_kv_heads : all.n_heads) * all.head_dim;
    return all;
}

/* A group's keys and values to their columns among those of all, whose rows begin at `rows` with
 * `before` columns and have ld elements. */
struct key_place {
    void *rows;
    int64_t before, ld, count;
};

static int place_group(struct zinf_frame *f, const struct attention_call *c, uint32_t group,
                       const struct key_place *to)
{
    const struct shard_groups groups = shard_groups_of(&f->graph->shards, c->s->n_kv_heads);
    const int64_t cols = groups.heads * c->s->head_dim, kinds = c->s->keys_are_values ? 1 : 2;
    const struct shard_product p = {.weight = shard_tensor(c->s->kv_w, group),
                                    .bias = shard_tensor(c->s->kv_b, group),
                                    .rows = kinds * cols,
                                    .ld = kinds * cols,
                                    .count = to->count};
    const uint64_t mark = frame_mark(f), width = frame_width(f);
    void *made = frame_scratch(f, (uint64_t)(to->count * kinds * cols) * width);
    int code = shard_columns(f, &p, attention_key_input(f, c), made);
    for (uint32_t values = 0; !code && values < kinds; values++) {
        const int64_t at = to->before + (values * groups.n + group) * cols;
        const struct zinf_heads copy = {
            .dtype = f->compute->dtype,
            .rows = to->count,
            .n_heads = 1,
            .cols = cols,
            .x = shard_at(f, made, (uint64_t)(values * cols) * width),
            .x_ld = kinds * cols,
            .y = shard_at(f, to->rows, (uint64_t)at * width),
            .y_ld = to->ld,
        };
        code = frame_heads(f, &copy);
    }
    frame_release(f, mark);
    return code;
}

/* A shard's queries to their columns among those of all, and its gates, which are behind these. */
static int place_queries(struct zinf_frame *f, const struct attention_call *c,
                         const struct attention_spec *all, uint32_t shard, int64_t ld)
{
    const struct attention_spec part = attention_part_of(f, c->s, shard);
    const uint64_t mark = frame_mark(f), width = frame_width(f);
    struct shard_product q = attention_query(c, &part, shard);
    const int64_t cols = part.n_heads * part.head_dim;
    void *made = shard_at(f, c->kept->cached.qkv, shard * (uint64_t)cols * width);
    q.ld = ld;
    if (!part.gated)
        return shard_columns(f, &q, c->rows, made);
    q.ld = q.rows;
    made = frame_scratch(f, (uint64_t)(frame_rows(f) * q.rows) * width);
    int code = shard_columns(f, &q, c->rows, made);
    for (int64_t gate = 0; !code && gate < 2; gate++) {
        const int64_t at = gate * all->n_heads * all->head_dim + shard * cols;
        code = shard_copy_rows(
            f, cols,
            (struct shard_rows){shard_at(f, made, (uint64_t)(gate * cols) * width), q.rows},
            (struct shard_rows){shard_at(f, c->kept->cached.qkv, (uint64_t)at * width), ld});
    }
    frame_release(f, mark);
    return code;
}

/* Queries of all shards, and keys and values unless those of all sources are remembered. */
static int make_cached(struct zinf_frame *f, const struct attention_call *c,
                       const struct attention_spec *all)
{
    const struct shard_groups groups = shard_groups_of(&f->graph->shards, c->s->n_kv_heads);
    const struct attention_kept *kept = &c->kept->cached;
    const int64_t own = attention_query_rows(all), keys = attention_kv_rows(all);
    const struct key_place to =
        c->s->source ? (struct key_place){kept->kv, 0, keys, attention_source_rows(f, c->s)}
                     : (struct key_place){kept->qkv, own, own + keys, frame_rows(f)};
    int code = 0;
    for (uint32_t i = 0; !code && i < f->graph->shards.n; i++)
        code = place_queries(f, c, all, i, own + (c->s->source ? 0 : keys));
    for (uint32_t i = 0; !code && keys && to.count && i < groups.n; i++)
        code = place_group(f, c, i, &to);
    return code ? code : attention_scale_part(f, all, kept->qkv);
}

/* A shard's columns of what the heads give, as rows of their own. */
int attention_cached_projection(struct zinf_frame *f, const void *call, uint32_t shard, float *out)
{
    const struct attention_call *c = call;
    const struct attention_spec part = attention_part_of(f, c->s, shard);
    const struct shard_product p = attention_project(f, c, &part, shard);
    const int64_t heads = part.n_heads * part.head_dim;
    const uint64_t mark = frame_mark(f), width = frame_width(f);
    void *own = frame_scratch(f, (uint64_t)(frame_rows(f) * p.rows) * width);
    const struct zinf_heads copy = {
        .dtype = f->compute->dtype,
        .rows = frame_rows(f),
        .n_heads = part.n_heads,
        .cols = attention_value_cols(&part),
        .x = shard_at(f, c->kept->cached.out, shard * (uint64_t)heads * width),
        .x_ld = f->graph->shards.n * heads,
        .x_step = part.head_dim,
        .y = own,
        .y_ld = p.rows,
        .y_step = attention_value_cols(&part),
    };
    int code = frame_heads(f, &copy);
    if (!code)
        code = shard_depth(f, &p, own, out);
    frame_release(f, mark);
    return code;
}

/* Where a shard's heads are among those of all. */
static struct head_rows cached_heads(const struct zinf_frame *f, const struct attention_call *c,
                                     const struct attention_spec *all, uint32_t shard)
{
    const struct zinf_shards *cut = &f->graph->shards;
    const struct shard_groups groups = shard_groups_of(cut, c->s->n_kv_heads);
    const uint32_t group = (cut->first + shard) / groups.shards - groups.first;
    const int64_t dim = c->s->head_dim, keys = all->n_heads + group * groups.heads;
    const uint64_t width = frame_width(f), queries = shard * (uint64_t)(c->s->n_heads / cut->of);
    char *qkv = c->kept->cached.qkv;
    return (struct head_rows){.q = shard_at(f, qkv, queries * (uint64_t)dim * width),
                              .k = shard_at(f, qkv, (uint64_t)(keys * dim) * width),
                              .ld = all->n_heads * dim + attention_kv_rows(all)};
}

/* What heads give, in place: nothing goes back from there. */
static int gate_cached(struct zinf_frame *f, const struct attention_spec *all,
                       const struct attention_kept *kept)
{
    void *result;
    int code = attention_result(f, all, kept, &result);
    const uint64_t cols = (uint64_t)(all->n_heads * all->head_dim);
    return code ? code : frame_copy(f, kept->out, result, frame_rows_bytes(f, cols));
}

int attention_attend_cached(struct zinf_frame *f, const struct attention_call *c)
{
    const struct attention_spec all = attention_cached_of(f, c->s);
    const uint64_t mark = frame_mark(f);
    struct head_rows rows[ZINF_MOST_SHARDS] = {{NULL, NULL, 0}};
    int code = make_cached(f, c, &all);
    for (uint32_t i = 0; i < f->graph->shards.n; i++)
        rows[i] = cached_heads(f, c, &all, i);
    if (!code)
        code = whole_norms_forward(f, c->kept, rows);
    if (!code)
        code = attention_attend(f, &all, &c->kept->cached);
    if (!code && all.gated)
        code = gate_cached(f, &all, &c->kept->cached);
    frame_release(f, mark);
    return code;
}
