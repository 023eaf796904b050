/*
 * part_attention_shards: attention, shard by shard, as tensor parallel cuts it:
 *   rows = norm(x); qkv_s = rows Wqkv_s^T; o_s = attention(qkv_s); y = x + branch(sum o_s Wp_s)
 * and backward the sum over shards is that in front of the products of rows. Norms, biases behind
 * sums and dropout of branches are of whole rows, which each rank has. Keys and values that several
 * shards share are made by each of them, and their gradients are a sum of theirs. With a source
 * keys and values are products of its rows, and the gradient there is a sum over shards, too. A
 * table of biases by distance is whole on each rank; a shard takes its heads' columns of it, and
 * its heads' sinks. Norms of each head have the weights of all heads, whose gradients are sums over
 * shards; norms of all heads together are made between the products and the heads
 * (part_whole_norms.c).
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
    part.norm.w = part.after.w = -1;
    part.first_sink = (c->first + shard) * part.n_heads;
    if (s->whole_norms)
        part.q_norm.w = part.k_norm.w = -1;
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

static uint64_t x_elems(const struct zinf_frame *f, const struct attention_spec *s)
{
    return (uint64_t)(frame_rows(f) * s->hidden);
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
    kept->after = part_norm_keep(f, &s->after, 1);
    kept->product = s->after.w < 0 ? NULL : frame_keep(f, x_elems(f, s) * frame_width(f));
    whole_norms_keep(f, s, kept);
    if (s->latent.kv_rank) {
        latent_shards_keep(f, s, kept);
        return;
    }
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

/* Of a head, of what the projection takes. */
static int64_t value_cols(const struct attention_spec *s)
{
    return s->latent.kv_rank ? s->latent.value : s->head_dim;
}

/* The sum's first part has the bias. */
static struct shard_product project(const struct zinf_frame *f, const struct call *c,
                                    const struct attention_spec *part, uint32_t shard)
{
    const int64_t rows = part->n_heads * value_cols(part);
    const bool first = !(f->graph->shards.first + shard);
    return (struct shard_product){.weight = shard_tensor(c->s->proj_w, shard),
                                  .bias = first ? c->s->proj_b : -1,
                                  .rows = rows,
                                  .ld = rows};
}

/* ---- forward ---- */

/* What a shard's projection takes, in scratch where it is not what is kept. */
static int projection_input(struct zinf_frame *f, const void *call, uint32_t shard, const void **x)
{
    const struct call *c = call;
    const struct attention_spec part = part_of(f, c->s, shard);
    void *values = c->kept->of[shard].out;
    int code = part.latent.kv_rank ? latent_result(f, &part, values, &values) : 0;
    *x = values;
    return code;
}

static int make_projection(struct zinf_frame *f, const void *call, uint32_t shard, float *out)
{
    const struct call *c = call;
    const struct attention_spec part = part_of(f, c->s, shard);
    const struct shard_product p = project(f, c, &part, shard);
    const uint64_t mark = frame_mark(f);
    const void *x;
    int code = projection_input(f, call, shard, &x);
    if (!code)
        code = shard_depth(f, &p, x, out);
    frame_release(f, mark);
    return code;
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

static int multiply(struct zinf_frame *f, const struct call *c, uint32_t shard)
{
    const struct attention_spec part = part_of(f, c->s, shard);
    const struct shard_product q = query(c, &part, shard);
    int code = shard_columns(f, &q, c->rows, c->kept->of[shard].qkv);
    return code ? code : make_keys(f, c, &part, shard);
}

static struct head_rows heads_of(const struct zinf_frame *f, const struct attention_spec *part,
                                 void *qkv)
{
    const int64_t queries = part->n_heads * part->head_dim;
    return (struct head_rows){.q = qkv,
                              .k = shard_at(f, qkv, (uint64_t)queries * frame_width(f)),
                              .ld = queries + kv_rows(part)};
}

/* All shards' products, as heads are made of them. */
static int multiply_all(struct zinf_frame *f, const struct call *c)
{
    struct head_rows rows[ZINF_MOST_SHARDS] = {{NULL, NULL, 0}};
    int code = 0;
    for (uint32_t i = 0; !code && i < f->graph->shards.n; i++) {
        const struct attention_spec part = part_of(f, c->s, i);
        code = multiply(f, c, i);
        rows[i] = heads_of(f, &part, c->kept->of[i].qkv);
    }
    return code ? code : whole_norms_forward(f, c->kept, rows);
}

/* And what `use` makes of each: attention, or what the stage carries. */
static int use_all(struct zinf_frame *f, const struct call *c,
                   int (*use)(struct zinf_frame *f, const struct attention_spec *s,
                              const struct attention_kept *kept))
{
    int code = multiply_all(f, c);
    for (uint32_t i = 0; !code && i < f->graph->shards.n; i++) {
        const struct attention_spec part = part_of(f, c->s, i);
        const struct frame_apart apart = frame_apart_begin(f);
        frame_part_before(f);
        code = use(f, &part, &c->kept->of[i]);
        frame_apart_end(f, apart);
    }
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
    const int64_t heads = part.n_heads * part.head_dim;
    const uint64_t mark = frame_mark(f), width = frame_width(f);
    void *own = frame_scratch(f, (uint64_t)(frame_rows(f) * p.rows) * width);
    const struct zinf_heads copy = {
        .dtype = f->compute->dtype,
        .rows = frame_rows(f),
        .n_heads = part.n_heads,
        .cols = value_cols(&part),
        .x = shard_at(f, c->kept->cached.out, shard * (uint64_t)heads * width),
        .x_ld = f->graph->shards.n * heads,
        .x_step = part.head_dim,
        .y = own,
        .y_ld = p.rows,
        .y_step = value_cols(&part),
    };
    int code = frame_heads(f, &copy);
    if (!code)
        code = shard_depth(f, &p, own, out);
    frame_release(f, mark);
    return code;
}

/* Where a shard's heads are among those of all. */
static struct head_rows cached_heads(const struct zinf_frame *f, const struct call *c,
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
                              .ld = all->n_heads * dim + kv_rows(all)};
}

static int attend_cached(struct zinf_frame *f, const struct call *c)
{
    const struct attention_spec all = cached_of(f, c->s);
    const uint64_t mark = frame_mark(f);
    struct head_rows rows[ZINF_MOST_SHARDS] = {{NULL, NULL, 0}};
    int code = make_cached(f, c, &all);
    for (uint32_t i = 0; i < f->graph->shards.n; i++)
        rows[i] = cached_heads(f, c, &all, i);
    if (!code)
        code = whole_norms_forward(f, c->kept, rows);
    if (!code)
        code = attention_attend(f, &all, &c->kept->cached);
    frame_release(f, mark);
    return code;
}

struct part_entry attention_shards_entry(const struct attention_shards *kept)
{
    return (struct part_entry){
        .norm = &kept->s->norm, .kept = kept->norm, .hidden = kept->s->hidden};
}

static struct part_exit exit_of(const struct attention_shards *kept)
{
    return attention_exit(kept->s,
                          &(struct attention_kept){.after = kept->after, .product = kept->product});
}

static int refuse_latent(const struct zinf_frame *f, const struct attention_spec *s)
{
    const bool refuses = f->compute->chunk.whole && s->latent.kv_rank;
    return refuses ? frame_refuse_chunks(f, "latent attention in parts of tensors") : 0;
}

int attention_shards_attend(struct zinf_frame *f, const struct attention_shards *kept,
                            const void *x)
{
    struct call c = {.s = kept->s, .kept = kept};
    const struct part_entry e = attention_shards_entry(kept);
    const uint64_t mark = frame_mark(f);
    int code = refuse_latent(f, kept->s);
    if (!code)
        code = part_rows(f, &e, x, &c.rows);
    if (!code && kept->s->latent.kv_rank)
        code = latent_shards_attend(f, kept, c.rows);
    else if (!code)
        code = frame_decoding(f) ? attend_cached(f, &c) : use_all(f, &c, attention_attend);
    frame_release(f, mark);
    return code;
}

int attention_shards_project(struct zinf_frame *f, const struct attention_shards *kept,
                             uint32_t shard, float *out)
{
    const struct call c = {.s = kept->s, .kept = kept};
    return (frame_decoding(f) ? make_cached_projection : make_projection)(f, &c, shard, out);
}

static int make_branch(struct zinf_frame *f, const void *kept, uint32_t shard, float *out)
{
    return attention_shards_project(f, kept, shard, out);
}

int attention_shards_forward(struct zinf_frame *f, const struct attention_shards *kept,
                             const void *x, void *y, bool again)
{
    const struct part_exit leave = exit_of(kept);
    const struct shard_sum sum = {make_branch, kept, x_elems(f, kept->s)};
    int code = attention_shards_attend(f, kept, x);
    return code ? code : shard_add_branch(f, &leave, &sum, x, y, again);
}

int attention_shards_carry(struct zinf_frame *f, const struct attention_shards *kept)
{
    struct call c = {.s = kept->s, .kept = kept};
    const struct part_entry e = attention_shards_entry(kept);
    int code = refuse_latent(f, kept->s);
    if (!code)
        code = part_rows(f, &e, f->in[0], &c.rows);
    return code ? code : use_all(f, &c, attention_carry);
}

/* ---- backward ---- */

/* Gradients of what all ranks have whole, as shards make them; NULL: nothing is wanted, or there is
 * nothing. */
struct found {
    float *table; /* [all shards][rows of the table][heads of a shard] */
    float *sinks; /* [all shards][heads of a shard] */
    float *norms; /* [shards][norm_elems]: w and b of queries, then of keys */
};
enum { HEAD_NORMS = 4 };

static uint64_t norm_elems(const struct attention_spec *s)
{
    return zinf_align_up((uint64_t)(HEAD_NORMS * s->head_dim), ZINF_MOST_SHARDS);
}

static uint64_t table_rows(const struct attention_spec *s)
{
    return (uint64_t)s->distance.n_buckets * (s->distance.both_ways ? 2 : 1);
}

/* As frame_grad, of the numbers of a shard's norms. */
static void norm_gradients(const struct zinf_frame *f, const struct attention_spec *s,
                           float *list[HEAD_NORMS])
{
    const int tensors[HEAD_NORMS] = {s->q_norm.w, s->q_norm.b, s->k_norm.w, s->k_norm.b};
    for (int i = 0; i < HEAD_NORMS; i++)
        list[i] = s->whole_norms ? NULL : frame_grad(f, 0, tensors[i]);
}

static void place_norms(const struct zinf_frame *f, struct attention_spec *part, float *own)
{
    float **const places[HEAD_NORMS] = {&part->q_norm.d_w, &part->q_norm.d_b, &part->k_norm.d_w,
                                        &part->k_norm.d_b};
    float *wanted[HEAD_NORMS];
    norm_gradients(f, part, wanted);
    for (int i = 0; own && i < HEAD_NORMS; i++)
        if (wanted[i])
            *places[i] = own + i * part->head_dim;
}

static int leave_backward(struct zinf_frame *f, const struct call *c, uint32_t shard,
                          const void *d_y, const struct found *found)
{
    struct attention_spec part = part_of(f, c->s, shard);
    const uint64_t all = f->graph->shards.first + shard, heads = (uint64_t)part.n_heads;
    const struct attention_kept *kept = &c->kept->of[shard];
    const struct shard_product p = project(f, c, &part, shard);
    const uint64_t mark = frame_mark(f), row = (uint64_t)frame_rows(f) * frame_width(f);
    const struct frame_apart apart = frame_apart_begin(f);
    void *d_x = frame_scratch(f, row * (uint64_t)p.rows), *d_out = d_x;
    const void *x;
    frame_part_before(f);
    if (found->table)
        part.distance.d_table = found->table + all * table_rows(c->s) * heads;
    if (found->sinks)
        part.d_sinks = found->sinks + all * heads;
    if (found->norms)
        place_norms(f, &part, found->norms + shard * norm_elems(c->s));
    int code = shard_depth_input(f, &p, d_y, d_x);
    if (!code)
        code = projection_input(f, c, shard, &x);
    if (!code)
        code = shard_depth_weight(f, &p, x, d_y);
    if (value_cols(&part) < part.head_dim) {
        d_out = frame_scratch(f, row * heads * (uint64_t)part.head_dim);
        code = code ? code : latent_result_backward(f, &part, d_x, d_out);
    }
    if (!code && part.latent.kv_rank)
        code = latent_shards_attend_backward(f, c->kept, shard, d_out, c->gradients[shard]);
    else if (!code)
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

/* Adapters of the projection. */
static int adapt_projection(struct zinf_frame *f, const struct call *c, const void *d_y)
{
    struct shard_product p[ZINF_MOST_SHARDS];
    for (uint32_t i = 0; i < f->graph->shards.n; i++) {
        const struct attention_spec part = part_of(f, c->s, i);
        p[i] = project(f, c, &part, i);
    }
    const struct shard_adapters out = {.p = p, .dy = &d_y, .input = projection_input, .call = c};
    return shard_depth_adapt_weights(f, &out);
}

/* And of queries, of keys and of values. */
static int adapters(struct zinf_frame *f, const struct call *c)
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

/* ---- what all ranks have whole ---- */

static float *table_gradient(const struct zinf_frame *f, const struct attention_spec *s)
{
    return s->distance.n_buckets ? frame_grad(f, s->distance.unit, s->distance.table) : NULL;
}

/* found [all shards][rows][heads of a shard], where this rank's are in their place, to columns of
 * whole [rows][heads]. */
static int join_heads(struct zinf_frame *f, const struct attention_spec *s, float *found,
                      uint64_t rows, float *whole)
{
    const struct zinf_shards *c = &f->graph->shards;
    const int64_t heads = s->n_heads / c->of;
    const uint64_t part = rows * (uint64_t)heads;
    int code = shard_gather(f, found, c->n * part * sizeof *found);
    for (uint32_t i = 0; !code && i < c->of; i++) {
        const struct zinf_heads args = {
            .dtype = ZINF_DTYPE_F32,
            .rows = (int64_t)rows,
            .n_heads = 1,
            .cols = heads,
            .x = shard_at(f, found, i * part * sizeof *found),
            .x_ld = heads,
            .y = shard_at(f, whole, i * (uint64_t)heads * sizeof *whole),
            .y_ld = s->n_heads,
        };
        code = frame_heads(f, &args);
    }
    return code;
}

/* For the sum of norms. */
struct norms_call {
    const float *found;
    uint64_t elems;
};

static int make_norms(struct zinf_frame *f, const void *call, uint32_t shard, float *out)
{
    const struct norms_call *c = call;
    const uint64_t bytes = c->elems * sizeof *out;
    return frame_copy(f, out, shard_at(f, c->found, shard * bytes), bytes);
}

static int sum_norms(struct zinf_frame *f, const struct attention_spec *s, const float *found)
{
    const struct norms_call call = {found, norm_elems(s)};
    const struct shard_sum sum = {make_norms, &call, call.elems};
    const uint64_t bytes = (uint64_t)s->head_dim * sizeof *found;
    float *wanted[HEAD_NORMS], *total = frame_scratch(f, call.elems * sizeof *total);
    int code = shard_sum(f, &sum, total);
    norm_gradients(f, s, wanted);
    for (uint64_t i = 0; !code && i < HEAD_NORMS; i++)
        if (wanted[i])
            code = frame_copy(f, wanted[i], shard_at(f, total, i * bytes), bytes);
    return code;
}

static bool wants_norms(const struct zinf_frame *f, const struct attention_spec *s)
{
    float *wanted[HEAD_NORMS];
    bool any = false;
    norm_gradients(f, s, wanted);
    for (int i = 0; i < HEAD_NORMS; i++)
        any |= wanted[i] != NULL;
    return any;
}

/* Gradients of all shards' products, from that behind the sum; and of what all ranks have, whose
 * places are found in the part of the call that writes there (frame.h). */
static int leave_all(struct zinf_frame *f, const struct call *c, const void *d_y)
{
    const struct zinf_shards *cut = &f->graph->shards;
    const uint64_t rows = table_rows(c->s), heads = (uint64_t)c->s->n_heads;
    const bool table = table_gradient(f, c->s), sinks = frame_grad(f, 0, c->s->sinks);
    const bool norms = wants_norms(f, c->s);
    const uint64_t mark = frame_mark(f), norm_bytes = cut->n * norm_elems(c->s) * sizeof(float);
    const struct found found = {
        .table = table ? frame_scratch(f, rows * heads * sizeof(float)) : NULL,
        .sinks = sinks ? frame_scratch(f, heads * sizeof(float)) : NULL,
        .norms = norms ? frame_scratch(f, norm_bytes) : NULL,
    };
    int code = norms ? frame_zero(f, found.norms, norm_bytes) : 0;
    for (uint32_t i = 0; !code && i < cut->n; i++)
        code = leave_backward(f, c, i, d_y, &found);
    if (!code && table)
        code = join_heads(f, c->s, found.table, rows, table_gradient(f, c->s));
    if (!code && sinks)
        code = join_heads(f, c->s, found.sinks, 1, frame_grad(f, 0, c->s->sinks));
    if (!code && norms)
        code = sum_norms(f, c->s, found.norms);
    frame_release(f, mark);
    return code;
}

int attention_shards_enter(struct zinf_frame *f, const struct attention_shards *kept,
                           const struct shard_gradients *gradients, uint32_t shard, float *out)
{
    const struct call c = {.s = kept->s, .kept = kept, .gradients = gradients->of};
    return make_rows_input(f, &c, shard, out);
}

/* Of all that has weights, from the gradients of the shards' products. */
static int weights_backward(struct zinf_frame *f, const struct call *c)
{
    const struct shard_groups groups = shard_groups_of(&f->graph->shards, c->s->n_kv_heads);
    int code = 0;
    for (uint32_t i = 0; !code && i < f->graph->shards.n; i++)
        code = query_weight(f, c, i);
    for (uint32_t i = 0; !code && i < groups.n; i++)
        code = key_gradients(f, c, i);
    if (!code)
        code = source_backward(f, c);
    return code ? code : adapters(f, c);
}

int attention_shards_leave(struct zinf_frame *f, const struct attention_shards *kept, const void *x,
                           const void *d_y, struct shard_gradients *gradients)
{
    const struct attention_spec *s = kept->s;
    const struct attention_spec part = part_of(f, s, 0);
    const struct part_entry e = attention_shards_entry(kept);
    const struct part_exit leave = exit_of(kept);
    const uint64_t keys = (uint64_t)(source_rows(f, s) * kv_rows(&part)) * frame_width(f);
    struct head_rows rows[ZINF_MOST_SHARDS] = {{NULL, NULL, 0}};
    struct call c = {.s = s, .kept = kept, .gradients = gradients->of};
    const void *d_branch;
    const bool latent = s->latent.kv_rank > 0;
    if (latent)
        latent_shards_take(f, s, gradients);
    for (uint32_t i = 0; !latent && i < f->graph->shards.n; i++)
        gradients->of[i] = frame_scratch(f, attention_entry_bytes(f, &part) + keys);
    const uint64_t mark = frame_mark(f);
    int code = part_leave_backward(f, &leave, d_y, &d_branch);
    if (!code)
        code = shard_bias_gradient(f, s->proj_b, s->hidden, d_branch);
    if (!code)
        code = leave_all(f, &c, d_branch);
    for (uint32_t i = 0; !latent && i < f->graph->shards.n; i++)
        rows[i] = heads_of(f, &part, gradients->of[i]);
    if (!code)
        code = whole_norms_backward(f, kept, rows);
    if (!code)
        code = part_rows(f, &e, x, &c.rows);
    if (!code && latent)
        code = latent_shards_weights(f, kept, c.rows, gradients);
    if (!code && !latent)
        code = weights_backward(f, &c);
    if (!code)
        code = adapt_projection(f, &c, d_branch);
    frame_release(f, mark);
    return code;
}

/* For the sum in front of the products. */
struct enter_call {
    const struct attention_shards *kept;
    const struct shard_gradients *gradients;
};

static int make_enter(struct zinf_frame *f, const void *call, uint32_t shard, float *out)
{
    const struct enter_call *c = call;
    return attention_shards_enter(f, c->kept, c->gradients, shard, out);
}

int attention_shards_backward(struct zinf_frame *f, const struct attention_shards *kept,
                              const void *x, void *d_x)
{
    const struct part_entry e = attention_shards_entry(kept);
    const uint64_t mark = frame_mark(f);
    struct shard_gradients gradients;
    const struct enter_call call = {kept, &gradients};
    const struct shard_sum sum = {make_enter, &call, x_elems(f, kept->s)};
    int code = attention_shards_leave(f, kept, x, d_x, &gradients);
    if (!code && kept->s->latent.kv_rank)
        code = latent_shards_enter(f, kept, &e, &gradients, x, d_x);
    else if (!code)
        code = shard_enter_backward(f, &e, &sum, x, d_x);
    frame_release(f, mark);
    return code;
}

/* Gradients of the shards' products, of the chunk's own keys and values alone. */
static int own_backward(struct zinf_frame *f, const struct call *c)
{
    struct head_rows rows[ZINF_MOST_SHARDS] = {{NULL, NULL, 0}};
    const bool norms = wants_norms(f, c->s);
    const uint64_t mark = frame_mark(f), each = norm_elems(c->s);
    const uint64_t bytes = f->graph->shards.n * each * sizeof(float);
    float *found = norms ? frame_scratch(f, bytes) : NULL;
    int code = norms ? frame_zero(f, found, bytes) : 0;
    for (uint32_t i = 0; !code && i < f->graph->shards.n; i++) {
        struct attention_spec part = part_of(f, c->s, i);
        place_norms(f, &part, norms ? found + i * each : NULL);
        rows[i] = heads_of(f, &part, c->gradients[i]);
        code = attention_own_backward(f, &part, &c->kept->of[i], c->gradients[i]);
    }
    if (!code && norms)
        code = sum_norms(f, c->s, found);
    if (!code)
        code = whole_norms_backward(f, c->kept, rows);
    frame_release(f, mark);
    return code;
}

int attention_shards_carry_backward(struct zinf_frame *f, const struct attention_shards *kept)
{
    const struct attention_spec part = part_of(f, kept->s, 0);
    const struct part_entry e = attention_shards_entry(kept);
    const uint64_t mark = frame_mark(f);
    struct shard_gradients gradients;
    const struct enter_call call = {kept, &gradients};
    const struct shard_sum sum = {make_enter, &call, x_elems(f, kept->s)};
    struct call c = {.s = kept->s, .kept = kept, .gradients = gradients.of};
    void *d_x;
    int code = refuse_latent(f, kept->s);
    for (uint32_t i = 0; i < f->graph->shards.n; i++)
        gradients.of[i] = frame_scratch(f, attention_entry_bytes(f, &part));
    for (uint32_t u = 0; !code && u < f->stage->units.n; u++)
        code = frame_zero_grads(f, u);
    if (!code)
        code = attention_carry_gradient(f, kept->s->hidden, &d_x);
    if (!code)
        code = part_rows(f, &e, f->in[0], &c.rows);
    if (!code)
        code = multiply_all(f, &c);
    if (!code)
        code = own_backward(f, &c);
    if (!code)
        code = weights_backward(f, &c);
    if (!code)
        code = shard_enter_backward(f, &e, &sum, f->in[0], d_x);
    frame_release(f, mark);
    return code;
}
