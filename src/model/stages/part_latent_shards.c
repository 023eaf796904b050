/*
 * part_latent_shards: latent attention (part_latent.c), shard by shard. The rows of low rank, their
 * norms and the key that all heads share are whole on each rank; what makes heads of them is cut by
 * heads. So backward has a sum over shards at these rows and not at the hidden ones, but where
 * queries have no low rank: then theirs is at the hidden rows, as in other attention.
 *
 * Of sequences in chunks each shard carries keys and values of its own heads, as in other
 * attention; a shard's heads are put together before its part of a call (frame.h), in scratch of
 * its own.
 */
#include "model/shards.h"

/* Heads of n shards from one on. */
static struct attention_spec heads_of(const struct zinf_frame *f, const struct attention_spec *s,
                                      uint32_t shard, uint32_t n)
{
    const struct zinf_shards *c = &f->graph->shards;
    struct attention_spec part = *s;
    part.n_heads = part.n_kv_heads = s->n_heads / c->of * n;
    part.carried_pieces = c->n;
    part.carried_piece = shard;
    part.site += (c->first + shard) * SHARD_SITES;
    return part;
}

/* The same, whose queries, keys and values are put together already. */
static struct attention_spec plain_of(const struct attention_spec *part)
{
    struct attention_spec plain = *part;
    plain.latent = (struct latent_spec){0};
    plain.norm.w = plain.after.w = plain.q_norm.w = plain.k_norm.w = -1;
    return plain;
}

static int64_t query_cols(const struct attention_spec *part)
{
    return part->n_heads * (part->latent.rotated + part->latent.plain);
}

static int64_t kv_cols(const struct attention_spec *part)
{
    return part->n_heads * (part->latent.plain + part->latent.value);
}

/* Of what all shards have: rows of low rank for queries, if there are any, and for keys and values,
 * and the shared key. */
static int64_t low_cols(const struct attention_spec *s)
{
    return s->latent.q_rank + s->latent.kv_rank + s->latent.rotated;
}

static void *take_rows(struct zinf_frame *f, int64_t cols)
{
    return frame_scratch(f, frame_rows_bytes(f, cols));
}

/* Queries without a low rank are kept, the others are made again. */
static bool keeps_queries(const struct zinf_frame *f, const struct attention_spec *s)
{
    return !s->latent.q_rank && !frame_decoding(f);
}

static struct attention_kept keep_heads(struct zinf_frame *f, const struct attention_spec *part)
{
    const uint64_t heads = (uint64_t)(frame_rows(f) * part->n_heads);
    return (struct attention_kept){
        .qkv = keeps_queries(f, part) ? frame_keep(f, frame_rows_bytes(f, query_cols(part))) : NULL,
        .out = frame_keep(f, frame_rows_bytes(f, part->n_heads * part->head_dim)),
        .lse = frame_keep(f, heads * sizeof(float)),
    };
}

void latent_shards_keep(struct zinf_frame *f, const struct attention_spec *s,
                        struct attention_shards *kept)
{
    const uint32_t n = f->graph->shards.n;
    const struct attention_spec all = heads_of(f, s, 0, n);
    kept->entry = frame_keep(f, frame_rows_bytes(f, low_cols(s)));
    kept->k_norm = part_norm_keep(f, &s->latent.kv_norm, 1);
    if (s->latent.q_rank)
        kept->q_norm = part_norm_keep(f, &s->latent.q_norm, 1);
    if (frame_decoding(f))
        kept->cached = keep_heads(f, &all);
    for (uint32_t i = 0; !frame_decoding(f) && i < n; i++) {
        const struct attention_spec part = heads_of(f, s, i, 1);
        kept->of[i] = keep_heads(f, &part);
    }
}

/* ---- products ---- */

/* The projection that all shards share, to latents: of keys and values, and of queries where these
 * have some. */
static struct frame_linear shared_linear(const struct attention_spec *s)
{
    return s->latent.q_rank ? (struct frame_linear){0, s->qkv_w, s->qkv_b, 0, false}
                            : (struct frame_linear){0, s->kv_w, -1, 0, false};
}

static struct shard_product query(const struct attention_spec *s, const struct attention_spec *part,
                                  uint32_t shard)
{
    const int first = s->latent.q_rank ? s->latent.q_w : s->qkv_w;
    return (struct shard_product){.weight = shard_tensor(first, shard),
                                  .bias = -1,
                                  .rows = query_cols(part),
                                  .ld = query_cols(part)};
}

static struct shard_product key_value(const struct attention_spec *s,
                                      const struct attention_spec *part, uint32_t shard)
{
    return (struct shard_product){.weight = shard_tensor(s->latent.kv_w, shard),
                                  .bias = -1,
                                  .rows = kv_cols(part),
                                  .ld = kv_cols(part)};
}

/* ---- rows of low rank ---- */

enum { LOW_KV, LOW_Q, LOWS };

struct low {
    const struct norm_spec *norm;
    struct norm_kept kept;
    int64_t first, rank; /* columns of what all shards have */
};

/* The second where queries have one. */
static struct low low_of(const struct attention_shards *kept, int which)
{
    const struct latent_spec *l = &kept->s->latent;
    return which == LOW_KV ? (struct low){&l->kv_norm, kept->k_norm, l->q_rank, l->kv_rank}
                           : (struct low){&l->q_norm, kept->q_norm, 0, l->q_rank};
}

static int count_lows(const struct attention_spec *s)
{
    return s->latent.q_rank ? LOWS : 1;
}

/* Columns of the shared rows to rows of their own, or back. */
static int copy_columns(struct zinf_frame *f, const struct attention_spec *s, int64_t first,
                        int64_t cols, void *shared, void *rows, bool back)
{
    void *there = shard_at(f, shared, (uint64_t)first * frame_width(f));
    const struct zinf_heads args = {.dtype = f->compute->dtype,
                                    .rows = frame_rows(f),
                                    .n_heads = 1,
                                    .cols = cols,
                                    .x = back ? rows : there,
                                    .x_ld = back ? cols : low_cols(s),
                                    .y = back ? there : rows,
                                    .y_ld = back ? low_cols(s) : cols};
    return frame_heads(f, &args);
}

/* What products of heads take: normalised rows of low rank, in scratch; or the part's own rows. */
struct inputs {
    const void *of[LOWS];
};

static int make_inputs(struct zinf_frame *f, const struct attention_shards *kept, const void *rows,
                       struct inputs *inputs)
{
    int code = 0;
    inputs->of[LOW_Q] = rows;
    for (int i = 0; !code && i < count_lows(kept->s); i++) {
        const struct low low = low_of(kept, i);
        void *own = take_rows(f, low.rank);
        struct zinf_norm norm = part_norm(f, low.norm, low.rank, own, low.kept);
        norm.y = own;
        inputs->of[i] = own;
        code = copy_columns(f, kept->s, low.first, low.rank, kept->entry, own, false);
        if (!code)
            code = frame_norm(f, &norm);
    }
    return code;
}

/* ---- heads ---- */

/* A shard's heads, from `first` on of all_heads in qkv. again: what is kept is there. */
static int make_heads(struct zinf_frame *f, const struct attention_shards *kept,
                      const struct inputs *inputs, uint32_t shard, const struct latent_rows *to,
                      bool again)
{
    const struct attention_spec part = heads_of(f, kept->s, shard, 1);
    const struct shard_product q = query(kept->s, &part, shard);
    const struct shard_product kv = key_value(kept->s, &part, shard);
    const uint64_t mark = frame_mark(f);
    const bool keeps = keeps_queries(f, kept->s);
    struct latent_rows rows = *to;
    rows.queries = keeps ? kept->of[shard].qkv : take_rows(f, q.rows);
    rows.queries_ld = q.rows;
    rows.kv = take_rows(f, kv.rows);
    rows.key = shard_at(f, kept->entry,
                        (uint64_t)(low_cols(kept->s) - part.latent.rotated) * frame_width(f));
    rows.key_ld = low_cols(kept->s);
    int code = keeps && again ? 0 : shard_columns(f, &q, inputs->of[LOW_Q], rows.queries);
    if (!code)
        code = shard_columns(f, &kv, inputs->of[LOW_KV], rows.kv);
    if (!code)
        code = latent_put(f, &part, &rows);
    frame_release(f, mark);
    return code;
}

/* Attention, or what the stage carries. */
typedef int use_heads(struct zinf_frame *f, const struct attention_spec *s,
                      const struct attention_kept *kept);

/* Heads of n shards from one on, all at once. */
static int attend(struct zinf_frame *f, const struct attention_shards *kept,
                  const struct inputs *inputs, uint32_t shard, uint32_t n, use_heads *use)
{
    const struct attention_kept *of = frame_decoding(f) ? &kept->cached : &kept->of[shard];
    const struct frame_apart apart = frame_apart_begin(f);
    const struct attention_spec part = heads_of(f, kept->s, shard, n), plain = plain_of(&part);
    struct attention_kept made = *of;
    struct latent_rows to = {.all_heads = part.n_heads};
    int code = 0;
    frame_part_before(f);
    to.qkv = made.qkv = take_rows(f, 3 * part.n_heads * part.head_dim);
    for (uint32_t i = 0; !code && i < n; i++, to.first_head += part.n_heads / n)
        code = make_heads(f, kept, inputs, shard + i, &to, false);
    if (!code)
        code = use(f, &plain, &made);
    frame_apart_end(f, apart);
    return code;
}

static int use_all(struct zinf_frame *f, const struct attention_shards *kept, const void *rows,
                   use_heads *use)
{
    const struct frame_linear shared = shared_linear(kept->s);
    const uint32_t n = f->graph->shards.n;
    const uint64_t mark = frame_mark(f);
    struct inputs inputs;
    int code = frame_linear(f, &shared, rows, kept->entry);
    if (!code)
        code = make_inputs(f, kept, rows, &inputs);
    if (!code && frame_decoding(f))
        code = attend(f, kept, &inputs, 0, n, use);
    for (uint32_t i = 0; !code && !frame_decoding(f) && i < n; i++)
        code = attend(f, kept, &inputs, i, 1, use);
    frame_release(f, mark);
    return code;
}

int latent_shards_attend(struct zinf_frame *f, const struct attention_shards *kept,
                         const void *rows)
{
    return use_all(f, kept, rows, attention_attend);
}

int latent_shards_carry(struct zinf_frame *f, const struct attention_shards *kept, const void *rows)
{
    return use_all(f, kept, rows, attention_carry);
}

/* ---- backward ---- */

/* Gradients at a shard's queries, at its keys and values, and at the shared key, one behind the
 * other; at what all shards have. */
void latent_shards_take(struct zinf_frame *f, const struct attention_spec *s,
                        struct shard_gradients *gradients)
{
    const struct attention_spec part = heads_of(f, s, 0, 1);
    for (uint32_t i = 0; i < f->graph->shards.n; i++)
        gradients->of[i] = take_rows(f, query_cols(&part) + kv_cols(&part) + s->latent.rotated);
    gradients->shared = take_rows(f, low_cols(s));
}

static void *d_key_value(const struct zinf_frame *f, const struct attention_spec *part, void *d)
{
    return shard_at(f, d, frame_rows_bytes(f, query_cols(part)));
}

static void *d_key(const struct zinf_frame *f, const struct attention_spec *part, void *d)
{
    return shard_at(f, d, frame_rows_bytes(f, query_cols(part) + kv_cols(part)));
}

/* Of a shard's heads, to the places of its products. */
static int take_apart(struct zinf_frame *f, const struct attention_spec *part, void *d_qkv,
                      void *gradients)
{
    const struct latent_rows d = {.queries = gradients,
                                  .queries_ld = query_cols(part),
                                  .key = d_key(f, part, gradients),
                                  .key_ld = part->latent.rotated,
                                  .kv = d_key_value(f, part, gradients),
                                  .qkv = d_qkv,
                                  .all_heads = part->n_heads};
    return latent_take(f, part, &d);
}

int latent_shards_attend_backward(struct zinf_frame *f, const struct attention_shards *kept,
                                  uint32_t shard, const void *d_out, void *gradients)
{
    const struct attention_spec part = heads_of(f, kept->s, shard, 1), plain = plain_of(&part);
    const int64_t cols = 3 * part.n_heads * part.head_dim;
    const uint64_t mark = frame_mark(f);
    struct attention_kept made = kept->of[shard];
    struct inputs inputs;
    made.qkv = take_rows(f, cols);
    const struct latent_rows to = {.qkv = made.qkv, .all_heads = part.n_heads};
    void *d_qkv = take_rows(f, cols);
    int code = make_inputs(f, kept, NULL, &inputs); /* queries without a low rank are kept */
    if (!code)
        code = make_heads(f, kept, &inputs, shard, &to, true);
    if (!code)
        code = attention_rotate(f, &plain, made.qkv, false);
    if (!code)
        code = attention_attend_backward(f, &plain, &made, d_out, d_qkv, frame_mark(f));
    if (!code)
        code = take_apart(f, &part, d_qkv, gradients);
    frame_release(f, mark);
    return code;
}

/* Of one shard. */
static int own_backward(struct zinf_frame *f, const struct attention_shards *kept,
                        const struct inputs *inputs, uint32_t shard, void *gradients)
{
    const struct attention_spec part = heads_of(f, kept->s, shard, 1), plain = plain_of(&part);
    const int64_t cols = 3 * part.n_heads * part.head_dim;
    const uint64_t mark = frame_mark(f);
    struct attention_kept made = kept->of[shard];
    made.qkv = take_rows(f, cols);
    const struct latent_rows to = {.qkv = made.qkv, .all_heads = part.n_heads};
    void *d_qkv = take_rows(f, cols);
    int code = make_heads(f, kept, inputs, shard, &to, false);
    if (!code)
        code = attention_own_backward(f, &plain, &made, d_qkv);
    if (!code)
        code = take_apart(f, &part, d_qkv, gradients);
    frame_release(f, mark);
    return code;
}

int latent_shards_own_backward(struct zinf_frame *f, const struct attention_shards *kept,
                               const void *rows, const struct shard_gradients *gradients)
{
    const struct frame_linear shared = shared_linear(kept->s);
    const uint64_t mark = frame_mark(f);
    struct inputs inputs;
    int code = frame_linear(f, &shared, rows, kept->entry);
    if (!code)
        code = make_inputs(f, kept, rows, &inputs);
    for (uint32_t i = 0; !code && i < f->graph->shards.n; i++)
        code = own_backward(f, kept, &inputs, i, gradients->of[i]);
    frame_release(f, mark);
    return code;
}

/* Of the sums over shards. */
struct call {
    const struct attention_shards *kept;
    const struct shard_gradients *gradients;
};

/* The blocks of the sum at rows of low rank: [rows][rank] of queries, then of keys and values, then
 * of the shared key; and zeros, so that ranks can share them evenly. */
static uint64_t low_elems(const struct zinf_frame *f, const struct attention_spec *s)
{
    return zinf_align_up((uint64_t)(frame_rows(f) * low_cols(s)), ZINF_MOST_SHARDS);
}

static int make_low(struct zinf_frame *f, const void *call, uint32_t shard, float *out)
{
    const struct call *c = call;
    const struct attention_spec *s = c->kept->s, part = heads_of(f, s, shard, 1);
    const uint64_t n = (uint64_t)frame_rows(f),
                   key_at = n * (uint64_t)(low_cols(s) - s->latent.rotated);
    const uint64_t all = low_elems(f, s), used = n * (uint64_t)low_cols(s);
    const struct shard_product q = query(s, &part, shard), kv = key_value(s, &part, shard);
    void *d = c->gradients->of[shard];
    float *d_kv = shard_at(f, out, n * (uint64_t)s->latent.q_rank * sizeof *out);
    int code = frame_zero(f, shard_at(f, out, used * sizeof *out), (all - used) * sizeof *out);
    if (!code && s->latent.q_rank)
        code = shard_columns_input(f, &q, d, out, 0);
    if (!code)
        code = shard_columns_input(f, &kv, d_key_value(f, &part, d), d_kv, 0);
    return code ? code
                : frame_convert(f, shard_at(f, out, key_at * sizeof *out), ZINF_DTYPE_F32,
                                d_key(f, &part, d), f->compute->dtype, used - key_at);
}

/* From the sum, whose blocks have the parameters' type, to the columns of the shared product. */
static int norms_backward(struct zinf_frame *f, const struct attention_shards *kept, void *blocks,
                          void *shared)
{
    const struct attention_spec *s = kept->s;
    const int64_t key = low_cols(s) - s->latent.rotated;
    int code = copy_columns(f, s, key, s->latent.rotated, shared,
                            shard_at(f, blocks, frame_rows_bytes(f, key)), true);
    for (int i = 0; !code && i < count_lows(s); i++) {
        const struct low low = low_of(kept, i);
        const uint64_t mark = frame_mark(f);
        void *x = take_rows(f, low.rank), *d = shard_at(f, blocks, frame_rows_bytes(f, low.first));
        struct zinf_norm norm = part_norm(f, low.norm, low.rank, x, low.kept);
        norm.dy = norm.dx = d;
        norm.dw = frame_grad(f, 0, low.norm->w);
        code = copy_columns(f, s, low.first, low.rank, kept->entry, x, false);
        if (!code)
            code = frame_norm_backward(f, &norm);
        if (!code)
            code = copy_columns(f, s, low.first, low.rank, shared, d, true);
        frame_release(f, mark);
    }
    return code;
}

static int shared_backward(struct zinf_frame *f, const struct call *c, const void *rows)
{
    const struct attention_spec *s = c->kept->s;
    const struct shard_sum sum = {make_low, c, low_elems(f, s)};
    const struct frame_linear shared = shared_linear(s);
    const uint64_t mark = frame_mark(f);
    void *blocks;
    int code = shard_sum_narrow(f, &sum, &blocks);
    if (!code)
        code = norms_backward(f, c->kept, blocks, c->gradients->shared);
    if (!code)
        code = frame_linear_backward_weight(f, &shared, c->gradients->shared, rows);
    frame_release(f, mark);
    return code;
}

static int weight(struct zinf_frame *f, const struct shard_product *p, const void *dy,
                  const void *x)
{
    float *dw = frame_grad(f, 0, p->weight);
    return dw ? shard_columns_weight(f, p, dy, x, dw) : 0;
}

int latent_shards_weights(struct zinf_frame *f, const struct attention_shards *kept,
                          const void *rows, const struct shard_gradients *gradients)
{
    const struct attention_spec *s = kept->s;
    const struct call c = {kept, gradients};
    const uint64_t mark = frame_mark(f);
    struct shard_product q[ZINF_MOST_SHARDS], kv[ZINF_MOST_SHARDS];
    const void *d_q[ZINF_MOST_SHARDS], *d_kv[ZINF_MOST_SHARDS];
    struct inputs inputs;
    int code = make_inputs(f, kept, rows, &inputs);
    for (uint32_t i = 0; !code && i < f->graph->shards.n; i++) {
        const struct attention_spec part = heads_of(f, s, i, 1);
        q[i] = query(s, &part, i);
        kv[i] = key_value(s, &part, i);
        d_q[i] = gradients->of[i];
        d_kv[i] = d_key_value(f, &part, gradients->of[i]);
        code = weight(f, &q[i], d_q[i], inputs.of[LOW_Q]);
        if (!code)
            code = weight(f, &kv[i], d_kv[i], inputs.of[LOW_KV]);
    }
    const struct shard_adapters queries = {
        .p = q, .dy = d_q, .x = inputs.of[LOW_Q], .per_weight = 1};
    const struct shard_adapters keys = {
        .p = kv, .dy = d_kv, .x = inputs.of[LOW_KV], .per_weight = 1};
    if (!code)
        code = shard_columns_adapt_weights(f, &queries);
    if (!code)
        code = shard_columns_adapt_weights(f, &keys);
    if (!code)
        code = shared_backward(f, &c, rows);
    frame_release(f, mark);
    return code;
}

static int make_queries(struct zinf_frame *f, const void *call, uint32_t shard, float *out)
{
    const struct call *c = call;
    const struct attention_spec part = heads_of(f, c->kept->s, shard, 1);
    const struct shard_product q = query(c->kept->s, &part, shard);
    return shard_columns_input(f, &q, c->gradients->of[shard], out, 0);
}

int latent_shards_enter(struct zinf_frame *f, const struct attention_shards *kept,
                        const struct part_entry *entry, const struct shard_gradients *gradients,
                        const void *x, void *d_x)
{
    const struct call c = {kept, gradients};
    const struct frame_linear shared = shared_linear(kept->s);
    const uint64_t mark = frame_mark(f), n = (uint64_t)(frame_rows(f) * kept->s->hidden);
    const struct shard_sum sum = {make_queries, &c, n};
    void *d_rows = take_rows(f, kept->s->hidden), *queries = NULL;
    int code = frame_linear_backward_input(f, &shared, gradients->shared, d_rows);
    if (!kept->s->latent.q_rank) {
        struct zinf_residual add = {
            .dtype = f->compute->dtype, .n = (int64_t)n, .x = d_rows, .y = d_rows};
        if (!code)
            code = shard_sum_narrow(f, &sum, &queries);
        add.r = queries;
        if (!code)
            code = frame_residual(f, &add);
    }
    if (!code)
        code = part_rows_backward(f, entry, x, d_rows, d_x);
    frame_release(f, mark);
    return code;
}
