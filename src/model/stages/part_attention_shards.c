/*
 * part_attention_shards: attention, shard by shard, as tensor parallel cuts it:
 *   rows = norm(x); qkv_s = rows Wqkv_s^T; o_s = attention(qkv_s); y = x + branch(sum o_s Wp_s)
 * and backward the sum over shards is that in front of the products of rows. Norms, biases behind
 * sums and dropout of branches are of whole rows, which each rank has. Keys and values that several
 * shards share are made by each of them, and their gradients are a sum of theirs. With a source
 * keys and values are products of its rows, and the gradient there is a sum over shards, too. A
 * table of biases by distance is whole on each rank; a shard takes its heads' columns of it.
 *
 * Of sequences in chunks each shard's keys and values are a piece of what the stage carries, and
 * each shard is visited in the parts of a call (frame.h) by itself, with scratch of its own.
 *
 * The numbers in the spec are those of all shards. Attention drops by masks of its own for each
 * shard, since its elements are counted over a shard's heads.
 */
#include "model/shards.h"

/* ---- a shard's part of the spec: without the norm, which is of whole rows ---- */

static struct attention_spec part_of(const struct zinf_frame *f, const struct attention_spec *s,
                                     uint32_t shard)
{
    const struct zinf_shards *c = &f->graph->shards;
    struct attention_spec part = *s;
    part.n_heads /= c->of;
    part.n_kv_heads = shard_groups_of(c, s->n_kv_heads).heads;
    part.norm.w = -1;
    part.site += (c->first + shard) * SHARD_SITES;
    part.carried_pieces = c->n;
    part.carried_piece = shard;
    if (part.slopes)
        part.slopes += (c->first + shard) * part.n_heads;
    if (part.distance.n_buckets) {
        part.distance.first_head = (c->first + shard) * part.n_heads;
        part.distance.all_heads = s->n_heads;
    }
    if (part.source)
        part.kv_w = part.kv_b = -1; /* made here */
    return part;
}

/* All of the graph's shards at once: what one head gives does not depend on others, and a cache has
 * the heads of all. */
static struct attention_spec cached_of(const struct zinf_frame *f, const struct attention_spec *s)
{
    const struct zinf_shards *c = &f->graph->shards;
    const struct shard_groups groups = shard_groups_of(c, s->n_kv_heads);
    struct attention_spec all = part_of(f, s, 0);
    all.n_heads *= c->n;
    all.n_kv_heads = groups.n * groups.heads;
    return all;
}

void attention_shards_keep(struct zinf_frame *f, const struct attention_spec *s,
                           struct attention_shards *kept)
{
    kept->s = s;
    kept->norm = part_norm_keep(f, &s->norm, 1);
    if (frame_decoding(f)) {
        const struct attention_spec all = cached_of(f, s);
        kept->cached = attention_keep(f, &all);
        return;
    }
    for (uint32_t i = 0; i < f->graph->shards.n; i++) {
        const struct attention_spec part = part_of(f, s, i);
        kept->of[i] = attention_keep(f, &part);
    }
}

/* A call, for the parts of its sums. */
struct call {
    const struct attention_spec *s;
    const struct attention_shards *kept;
    const void *rows;       /* backward: what the products of queries, or of all, take */
    void *const *gradients; /* of the shards' products; behind those of a row those of a source */
};

static uint64_t x_elems(const struct zinf_frame *f, const struct attention_spec *s)
{
    return (uint64_t)(frame_rows(f) * s->hidden);
}

static int64_t source_rows(const struct zinf_frame *f, const struct attention_spec *s)
{
    return s->source ? f->compute->batch * f->compute->source_seq : 0;
}

/* ---- products ---- */

static int64_t kv_rows(const struct attention_spec *part)
{
    return 2 * part->n_kv_heads * part->head_dim;
}

static struct shard_product query(const struct call *c, const struct attention_spec *part,
                                  uint32_t shard)
{
    const int64_t rows = part->n_heads * part->head_dim;
    return (struct shard_product){.weight = shard_tensor(c->s->qkv_w, shard),
                                  .bias = shard_tensor(c->s->qkv_b, shard),
                                  .rows = rows,
                                  .ld = rows + (c->s->source ? 0 : kv_rows(part))};
}

/* The shard's keys and values; *at: the bytes in front of them in a row of queries, or in front of
 * all of a source's. */
static struct shard_product key_value(const struct zinf_frame *f, const struct call *c,
                                      const struct attention_spec *part, uint32_t shard,
                                      uint64_t *at)
{
    const struct zinf_shards *cut = &f->graph->shards;
    const struct shard_groups groups = shard_groups_of(cut, c->s->n_kv_heads);
    const int64_t queries = part->n_heads * part->head_dim, rows = kv_rows(part);
    const uint32_t group = (cut->first + shard) / groups.shards - groups.first;
    *at = c->s->source ? attention_entry_bytes(f, part) : (uint64_t)queries * frame_width(f);
    return (struct shard_product){.weight = shard_tensor(c->s->kv_w, group),
                                  .bias = shard_tensor(c->s->kv_b, group),
                                  .rows = rows,
                                  .ld = rows + (c->s->source ? 0 : queries),
                                  .count = source_rows(f, c->s)};
}

/* What keys and values are products of. */
static const void *key_input(const struct zinf_frame *f, const struct call *c)
{
    return c->s->source ? f->in[c->s->source] : c->rows;
}

/* The sum's first part has the bias. */
static struct shard_product project(const struct zinf_frame *f, const struct call *c,
                                    const struct attention_spec *part, uint32_t shard)
{
    const int64_t rows = part->n_heads * part->head_dim;
    const bool first = !(f->graph->shards.first + shard);
    return (struct shard_product){.weight = shard_tensor(c->s->proj_w, shard),
                                  .bias = first ? c->s->proj_b : -1,
                                  .rows = rows,
                                  .ld = rows};
}

/* ---- forward ---- */

static int make_projection(struct zinf_frame *f, const void *call, uint32_t shard, float *out)
{
    const struct call *c = call;
    const struct attention_spec part = part_of(f, c->s, shard);
    const struct shard_product p = project(f, c, &part, shard);
    return shard_depth(f, &p, c->kept->of[shard].out, out);
}

/* Keys and values, unless those of all sources are remembered. */
static int make_keys(struct zinf_frame *f, const struct call *c, const struct attention_spec *part,
                     uint32_t shard)
{
    const struct attention_kept *kept = &c->kept->of[shard];
    uint64_t at;
    const struct shard_product kv = key_value(f, c, part, shard, &at);
    if (!c->s->source)
        return shard_columns(f, &kv, c->rows, shard_at(f, kept->qkv, at));
    return kv.count ? shard_columns(f, &kv, f->in[c->s->source], kept->kv) : 0;
}

/* The products, and what `use` makes of them: attention, or what the stage carries. */
static int enter(struct zinf_frame *f, const struct call *c, uint32_t shard,
                 int (*use)(struct zinf_frame *f, const struct attention_spec *s,
                            const struct attention_kept *kept))
{
    const struct attention_spec part = part_of(f, c->s, shard);
    const struct attention_kept *kept = &c->kept->of[shard];
    const struct shard_product q = query(c, &part, shard);
    const struct frame_apart apart = frame_apart_begin(f);
    frame_part_before(f);
    int code = shard_columns(f, &q, c->rows, kept->qkv);
    if (!code)
        code = make_keys(f, c, &part, shard);
    if (!code)
        code = use(f, &part, kept);
    frame_apart_end(f, apart);
    return code;
}

static int enter_all(struct zinf_frame *f, const struct call *c,
                     int (*use)(struct zinf_frame *f, const struct attention_spec *s,
                                const struct attention_kept *kept))
{
    int code = 0;
    for (uint32_t i = 0; !code && i < f->graph->shards.n; i++)
        code = enter(f, c, i, use);
    return code;
}

/* ---- while decoding ---- */

/* A group's keys and values to their columns among those of all, whose rows begin at `rows` with
 * `before` columns and have ld elements. */
struct key_place {
    void *rows;
    int64_t before, ld, count;
};

static int place_group(struct zinf_frame *f, const struct call *c, uint32_t group,
                       const struct key_place *to)
{
    const struct shard_groups groups = shard_groups_of(&f->graph->shards, c->s->n_kv_heads);
    const int64_t cols = groups.heads * c->s->head_dim;
    const struct shard_product p = {.weight = shard_tensor(c->s->kv_w, group),
                                    .bias = shard_tensor(c->s->kv_b, group),
                                    .rows = 2 * cols,
                                    .ld = 2 * cols,
                                    .count = to->count};
    const uint64_t mark = frame_mark(f), width = frame_width(f);
    void *made = frame_scratch(f, (uint64_t)(to->count * 2 * cols) * width);
    int code = shard_columns(f, &p, key_input(f, c), made);
    for (uint32_t values = 0; !code && values < 2; values++) {
        const int64_t at = to->before + (values * groups.n + group) * cols;
        const struct zinf_heads copy = {
            .dtype = f->compute->dtype,
            .rows = to->count,
            .n_heads = 1,
            .cols = cols,
            .x = shard_at(f, made, (uint64_t)(values * cols) * width),
            .x_ld = 2 * cols,
            .y = shard_at(f, to->rows, (uint64_t)at * width),
            .y_ld = to->ld,
        };
        code = frame_heads(f, &copy);
    }
    frame_release(f, mark);
    return code;
}

/* Queries of all shards, and keys and values unless those of all sources are remembered. */
static int make_cached(struct zinf_frame *f, const struct call *c, const struct attention_spec *all)
{
    const struct shard_groups groups = shard_groups_of(&f->graph->shards, c->s->n_kv_heads);
    const struct attention_spec part = part_of(f, c->s, 0);
    const struct attention_kept *kept = &c->kept->cached;
    const int64_t own = all->n_heads * all->head_dim, keys = kv_rows(all);
    const struct key_place to = c->s->source
                                    ? (struct key_place){kept->kv, 0, keys, source_rows(f, c->s)}
                                    : (struct key_place){kept->qkv, own, own + keys, frame_rows(f)};
    int code = 0;
    for (uint32_t i = 0; !code && i < f->graph->shards.n; i++) {
        struct shard_product q = query(c, &part, i);
        q.ld = own + (c->s->source ? 0 : keys);
        code = shard_columns(f, &q, c->rows,
                             shard_at(f, kept->qkv, (uint64_t)(i * q.rows) * frame_width(f)));
    }
    for (uint32_t i = 0; !code && to.count && i < groups.n; i++)
        code = place_group(f, c, i, &to);
    return code;
}

/* A shard's columns of what the heads give, as rows of their own. */
static int make_cached_projection(struct zinf_frame *f, const void *call, uint32_t shard,
                                  float *out)
{
    const struct call *c = call;
    const struct attention_spec part = part_of(f, c->s, shard);
    const struct shard_product p = project(f, c, &part, shard);
    const uint64_t mark = frame_mark(f), row = (uint64_t)p.rows * frame_width(f);
    void *own = frame_scratch(f, (uint64_t)frame_rows(f) * row);
    const struct zinf_heads copy = {
        .dtype = f->compute->dtype,
        .rows = frame_rows(f),
        .n_heads = 1,
        .cols = p.rows,
        .x = shard_at(f, c->kept->cached.out, shard * row),
        .x_ld = f->graph->shards.n * p.rows,
        .y = own,
        .y_ld = p.rows,
    };
    int code = frame_heads(f, &copy);
    if (!code)
        code = shard_depth(f, &p, own, out);
    frame_release(f, mark);
    return code;
}

static int attend_cached(struct zinf_frame *f, const struct call *c)
{
    const struct attention_spec all = cached_of(f, c->s);
    const uint64_t mark = frame_mark(f);
    int code = make_cached(f, c, &all);
    if (!code)
        code = attention_attend(f, &all, &c->kept->cached);
    frame_release(f, mark);
    return code;
}

static struct part_entry entry_of(const struct attention_shards *kept)
{
    return (struct part_entry){
        .norm = &kept->s->norm, .kept = kept->norm, .hidden = kept->s->hidden};
}

int attention_shards_forward(struct zinf_frame *f, const struct attention_shards *kept,
                             const void *x, void *y, bool again)
{
    struct call c = {.s = kept->s, .kept = kept};
    const struct part_entry e = entry_of(kept);
    const bool decodes = frame_decoding(f);
    const struct part_exit leave = attention_exit(kept->s, decodes ? &kept->cached : &kept->of[0]);
    const struct shard_sum sum = {decodes ? make_cached_projection : make_projection, &c,
                                  x_elems(f, kept->s)};
    const uint64_t mark = frame_mark(f);
    int code = part_rows(f, &e, x, &c.rows);
    if (!code)
        code = decodes ? attend_cached(f, &c) : enter_all(f, &c, attention_attend);
    frame_release(f, mark);
    return code || again ? code : shard_add_branch(f, &leave, &sum, x, y);
}

int attention_shards_carry(struct zinf_frame *f, const struct attention_shards *kept)
{
    struct call c = {.s = kept->s, .kept = kept};
    const struct part_entry e = entry_of(kept);
    int code = part_rows(f, &e, f->in[0], &c.rows);
    return code ? code : enter_all(f, &c, attention_carry);
}

/* ---- backward ---- */

static int leave_backward(struct zinf_frame *f, const struct call *c, uint32_t shard,
                          const void *d_y, float *d_table)
{
    struct attention_spec part = part_of(f, c->s, shard);
    const struct attention_kept *kept = &c->kept->of[shard];
    const struct shard_product p = project(f, c, &part, shard);
    const uint64_t mark = frame_mark(f);
    const struct frame_apart apart = frame_apart_begin(f);
    void *d_out = frame_scratch(f, (uint64_t)(frame_rows(f) * p.rows) * frame_width(f));
    part.distance.d_table = d_table;
    frame_part_before(f);
    int code = shard_depth_input(f, &p, d_y, d_out);
    if (!code)
        code = shard_depth_weight(f, &p, kept->out, d_y);
    if (!code)
        code = attention_attend_backward(f, &part, kept, d_out, c->gradients[shard], mark);
    frame_apart_end(f, apart);
    return code;
}

/* Of the rows that queries are products of, and keys and values without a source. */
static int make_rows_input(struct zinf_frame *f, const void *call, uint32_t shard, float *out)
{
    const struct call *c = call;
    const struct attention_spec part = part_of(f, c->s, shard);
    uint64_t at;
    const struct shard_product q = query(c, &part, shard);
    const struct shard_product kv = key_value(f, c, &part, shard, &at);
    const void *d_qkv = c->gradients[shard];
    int code = shard_columns_input(f, &q, d_qkv, out, 0);
    return code || c->s->source ? code
                                : shard_columns_input(f, &kv, shard_at(f, d_qkv, at), out, 1);
}

static int make_source_input(struct zinf_frame *f, const void *call, uint32_t shard, float *out)
{
    const struct call *c = call;
    const struct attention_spec part = part_of(f, c->s, shard);
    uint64_t at;
    const struct shard_product kv = key_value(f, c, &part, shard, &at);
    return shard_columns_input(f, &kv, shard_at(f, c->gradients[shard], at), out, 0);
}

/* The gradient at the other sequence. */
static int source_backward(struct zinf_frame *f, const struct call *c)
{
    void *d_source = c->s->source ? f->d_in[c->s->source] : NULL;
    if (!d_source)
        return 0;
    const int64_t cols = f->graph->values[f->stage->in.at[c->s->source]].cols;
    const int64_t n = source_rows(f, c->s) * cols;
    const struct shard_sum sum = {make_source_input, c, (uint64_t)n};
    const uint64_t mark = frame_mark(f);
    struct zinf_residual add = {.dtype = f->compute->dtype, .n = n, .x = d_source, .y = d_source};
    float *total = frame_scratch(f, sum.elems * sizeof *total);
    void *share = NULL;
    int code = shard_sum(f, &sum, total);
    if (!code)
        code = shard_narrow(f, total, sum.elems, &share);
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
    const struct call *c = call;
    const struct attention_spec part = part_of(f, c->s, shard);
    uint64_t at;
    const struct shard_product kv = key_value(f, c, &part, shard, &at);
    return shard_columns_weight(f, &kv, shard_at(f, c->gradients[shard], at), key_input(f, c), out);
}

/* Column sums of all of a shard's product: the queries' biases, and to out those of the rest. */
static int make_biases(struct zinf_frame *f, const void *call, uint32_t shard, float *out)
{
    const struct call *c = call;
    const struct attention_spec part = part_of(f, c->s, shard);
    const struct shard_product q = query(c, &part, shard);
    const uint64_t mark = frame_mark(f), queries = (uint64_t)q.rows * sizeof(float);
    const uint64_t all = (uint64_t)q.ld * sizeof(float);
    float *sums = frame_scratch(f, all), *db = frame_grad(f, 0, q.bias);
    int code =
        frame_column_sum(f, sums, c->gradients[shard], f->compute->dtype, frame_rows(f), q.ld);
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
    const struct call *c = call;
    const struct attention_spec part = part_of(f, c->s, shard);
    uint64_t at;
    const struct shard_product kv = key_value(f, c, &part, shard, &at);
    return frame_column_sum(f, out, shard_at(f, c->gradients[shard], at), f->compute->dtype,
                            kv.count, kv.ld);
}

static int query_weight(struct zinf_frame *f, const struct call *c, uint32_t shard)
{
    const struct attention_spec part = part_of(f, c->s, shard);
    const struct shard_product q = query(c, &part, shard);
    const void *dy = c->gradients[shard];
    float *dw = frame_grad(f, 0, q.weight);
    float *db = c->s->source ? frame_grad(f, 0, q.bias) : NULL; /* else with those of keys */
    int code = dw ? shard_columns_weight(f, &q, dy, c->rows, dw) : 0;
    return code || !db ? code
                       : frame_column_sum(f, db, dy, f->compute->dtype, frame_rows(f), q.rows);
}

/* Of the group's keys and values, over the shards that share them. */
static int key_gradients(struct zinf_frame *f, const struct call *c, uint32_t group)
{
    const struct attention_spec *s = c->s;
    const struct shard_groups groups = shard_groups_of(&f->graph->shards, s->n_kv_heads);
    const uint64_t rows = (uint64_t)(2 * groups.heads * s->head_dim);
    const uint32_t n = f->graph->shards.n / groups.n;
    const int tensor = shard_tensor(s->kv_w, group);
    const struct shard_sum weight = {make_key_weight, c,
                                     rows * frame_unit(f, 0)->tensors[tensor].cols};
    const struct shard_sum bias = {s->source ? make_source_biases : make_biases, c, rows};
    float *dw = frame_grad(f, 0, tensor);
    float *db = frame_grad(f, 0, shard_tensor(s->kv_b, group));
    int code = dw ? shard_sum_shared(f, &weight, group * n, n, dw) : 0;
    return code || !db ? code : shard_sum_shared(f, &bias, group * n, n, db);
}

static int projection_input(struct zinf_frame *f, const void *call, uint32_t shard, const void **x)
{
    const struct call *c = call;
    (void)f;
    *x = c->kept->of[shard].out;
    return 0;
}

/* Of queries, and of keys and values. */
static int entry_adapters(struct zinf_frame *f, const struct call *c)
{
    const struct shard_groups groups = shard_groups_of(&f->graph->shards, c->s->n_kv_heads);
    struct shard_product q[ZINF_MOST_SHARDS], kv[ZINF_MOST_SHARDS];
    const void *d_kv[ZINF_MOST_SHARDS];
    const uint32_t n = f->graph->shards.n;
    for (uint32_t i = 0; i < n; i++) {
        const struct attention_spec part = part_of(f, c->s, i);
        uint64_t at;
        q[i] = query(c, &part, i);
        kv[i] = key_value(f, c, &part, i, &at);
        d_kv[i] = shard_at(f, c->gradients[i], at);
    }
    const struct shard_adapters queries = {
        .p = q, .dy = (const void *const *)c->gradients, .x = c->rows, .per_weight = 1};
    const struct shard_adapters keys = {
        .p = kv, .dy = d_kv, .x = key_input(f, c), .per_weight = n / groups.n, .shares = true};
    int code = shard_columns_adapt_weights(f, &queries);
    return code ? code : shard_columns_adapt_weights(f, &keys);
}

static int projection_adapters(struct zinf_frame *f, const struct call *c, const void *d_y)
{
    struct shard_product p[ZINF_MOST_SHARDS];
    for (uint32_t i = 0; i < f->graph->shards.n; i++) {
        const struct attention_spec part = part_of(f, c->s, i);
        p[i] = project(f, c, &part, i);
    }
    const struct shard_adapters out = {.p = p, .dy = &d_y, .input = projection_input, .call = c};
    return shard_depth_adapt_weights(f, &out);
}

/* ---- the table of biases by distance ---- */

static uint64_t table_rows(const struct attention_spec *s)
{
    return (uint64_t)s->distance.n_buckets * (s->distance.both_ways ? 2 : 1);
}

static float *table_gradient(const struct zinf_frame *f, const struct attention_spec *s)
{
    return s->distance.n_buckets ? frame_grad(f, s->distance.unit, s->distance.table) : NULL;
}

/* found [all shards][rows][heads of a shard], where this rank's are in their place, to columns of
 * the table's gradient. */
static int join_table(struct zinf_frame *f, const struct attention_spec *s, float *found)
{
    const struct zinf_shards *c = &f->graph->shards;
    const int64_t heads = s->n_heads / c->of;
    const uint64_t part = table_rows(s) * (uint64_t)heads;
    float *table = table_gradient(f, s);
    int code = shard_gather(f, found, c->n * part * sizeof *found);
    for (uint32_t i = 0; !code && i < c->of; i++) {
        const struct zinf_heads args = {
            .dtype = ZINF_DTYPE_F32,
            .rows = (int64_t)table_rows(s),
            .n_heads = 1,
            .cols = heads,
            .x = shard_at(f, found, i * part * sizeof *found),
            .x_ld = heads,
            .y = shard_at(f, table, i * (uint64_t)heads * sizeof *table),
            .y_ld = s->n_heads,
        };
        code = frame_heads(f, &args);
    }
    return code;
}

/* Gradients of all shards' products, from that behind the sum; and of the table. */
static int leave_all(struct zinf_frame *f, const struct call *c, const void *d_y)
{
    const struct zinf_shards *cut = &f->graph->shards;
    const uint64_t part = table_rows(c->s) * (uint64_t)(c->s->n_heads / cut->of);
    const bool wanted = table_gradient(f, c->s);
    const uint64_t mark = frame_mark(f);
    float *found = wanted ? frame_scratch(f, cut->of * part * sizeof *found) : NULL;
    int code = 0;
    for (uint32_t i = 0; !code && i < cut->n; i++)
        code = leave_backward(f, c, i, d_y,
                              wanted ? shard_at(f, found, (cut->first + i) * part * sizeof *found)
                                     : NULL);
    if (!code && wanted)
        code = join_table(f, c->s, found);
    frame_release(f, mark);
    return code;
}

/* From the gradients of the shards' products to those of their weights, and, added to d_x, at x. */
static int enter_backward(struct zinf_frame *f, const struct call *c, const void *x, void *d_x)
{
    const struct shard_groups groups = shard_groups_of(&f->graph->shards, c->s->n_kv_heads);
    const struct part_entry e = entry_of(c->kept);
    const struct shard_sum sum = {make_rows_input, c, x_elems(f, c->s)};
    int code = 0;
    for (uint32_t i = 0; !code && i < f->graph->shards.n; i++)
        code = query_weight(f, c, i);
    for (uint32_t i = 0; !code && i < groups.n; i++)
        code = key_gradients(f, c, i);
    if (!code)
        code = source_backward(f, c);
    if (!code)
        code = entry_adapters(f, c);
    return code ? code : shard_enter_backward(f, &e, &sum, x, d_x);
}

/* Room for the gradients of all shards' products. */
static void take_gradients(struct zinf_frame *f, const struct attention_spec *s,
                           void *d_qkv[ZINF_MOST_SHARDS])
{
    const struct attention_spec part = part_of(f, s, 0);
    const uint64_t keys = (uint64_t)(source_rows(f, s) * kv_rows(&part)) * frame_width(f);
    for (uint32_t i = 0; i < f->graph->shards.n; i++)
        d_qkv[i] = frame_scratch(f, attention_entry_bytes(f, &part) + keys);
}

int attention_shards_backward(struct zinf_frame *f, const struct attention_shards *kept,
                              const void *x, void *d_x)
{
    const struct attention_spec *s = kept->s;
    const struct part_entry e = entry_of(kept);
    const struct part_exit leave = attention_exit(s, &kept->of[0]);
    const uint64_t mark = frame_mark(f);
    void *d_qkv[ZINF_MOST_SHARDS];
    struct call c = {.s = s, .kept = kept, .gradients = d_qkv};
    const void *d_y;
    take_gradients(f, s, d_qkv);
    int code = part_leave_backward(f, &leave, d_x, &d_y);
    if (!code)
        code = shard_bias_gradient(f, s->proj_b, s->hidden, d_y);
    if (!code)
        code = leave_all(f, &c, d_y);
    if (!code)
        code = part_rows(f, &e, x, &c.rows);
    if (!code)
        code = projection_adapters(f, &c, d_y);
    if (!code)
        code = enter_backward(f, &c, x, d_x);
    frame_release(f, mark);
    return code;
}

int attention_shards_carry_backward(struct zinf_frame *f, const struct attention_shards *kept)
{
    const struct attention_spec *s = kept->s;
    const struct part_entry e = entry_of(kept);
    const uint64_t mark = frame_mark(f);
    void *d_qkv[ZINF_MOST_SHARDS], *d_x;
    struct call c = {.s = s, .kept = kept, .gradients = d_qkv};
    take_gradients(f, s, d_qkv);
    int code = attention_carry_start(f, s->hidden, &d_x);
    if (!code)
        code = part_rows(f, &e, f->in[0], &c.rows);
    for (uint32_t i = 0; !code && i < f->graph->shards.n; i++) {
        const struct attention_spec part = part_of(f, s, i);
        const struct shard_product q = query(&c, &part, i);
        code = shard_columns(f, &q, c.rows, kept->of[i].qkv);
        if (!code)
            code = make_keys(f, &c, &part, i);
        if (!code)
            code = attention_own_backward(f, &part, &kept->of[i], d_qkv[i]);
    }
    if (!code)
        code = enter_backward(f, &c, f->in[0], d_x);
    frame_release(f, mark);
    return code;
}
