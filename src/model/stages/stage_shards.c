/*
 * stage_shards: a block, shard by shard, as tensor parallel cuts it:
 *   rows = norm(x); qkv_s = rows Wqkv_s^T; o_s = attention(qkv_s); x_mid = x + branch(sum o_s Wp_s)
 *   rows = norm(x_mid); a_s = act(rows Wup_s^T); out = x_mid + branch(sum a_s Wd_s)
 * and backward the sums over shards are those in front of the two products of rows. Norms, biases
 * behind sums and dropout of branches are of whole rows, which each rank has. Keys and values that
 * several shards share are made by each of them, and their gradients are a sum of theirs.
 *
 * The numbers in the spec are those of the whole block. Attention drops by masks of its own for
 * each shard, since its elements are counted over a shard's heads.
 */
#include "model/shards.h"

/* A shard's places of dropout: beyond those of layers, below those of noise. */
#define SHARD_SITES ((uint32_t)1 << 16)

struct kept {
    struct norm_kept norm1, norm2;
    void *x_mid; /* [rows][hidden] */
    struct attention_kept attention[ZINF_MOST_SHARDS];
    struct mlp_kept mlp[ZINF_MOST_SHARDS];
};

static uint64_t x_elems(const struct zinf_frame *f, const struct block_spec *s)
{
    return (uint64_t)(frame_rows(f) * s->attention.hidden);
}

/* ---- a shard's part of a spec: without norms, which are of whole rows ---- */

static struct attention_spec attention_of(const struct zinf_frame *f, const struct block_spec *s,
                                          uint32_t shard)
{
    const struct zinf_shards *c = &f->graph->shards;
    struct attention_spec part = s->attention;
    part.n_heads /= c->of;
    part.n_kv_heads = shard_groups_of(c, s->attention.n_kv_heads).heads;
    part.norm.w = -1;
    part.site += (c->first + shard) * SHARD_SITES;
    if (part.slopes)
        part.slopes += (c->first + shard) * part.n_heads;
    return part;
}

static struct mlp_spec mlp_of(const struct zinf_frame *f, const struct block_spec *s)
{
    struct mlp_spec part = s->mlp;
    part.ffn /= f->graph->shards.of;
    part.norm.w = -1;
    return part;
}

static struct kept keep(struct zinf_frame *f, const struct block_spec *s)
{
    const struct mlp_spec mlp = mlp_of(f, s);
    struct kept kept;
    kept.norm1 = part_norm_keep(f, &s->attention.norm, 1);
    kept.norm2 = part_norm_keep(f, &s->mlp.norm, 1);
    kept.x_mid = frame_keep(f, x_elems(f, s) * frame_width(f));
    for (uint32_t i = 0; i < f->graph->shards.n; i++) {
        const struct attention_spec attention = attention_of(f, s, i);
        kept.attention[i] = attention_keep(f, &attention);
        kept.mlp[i] = mlp_keep(f, &mlp);
    }
    return kept;
}

/* Of a shard, or a group; -1: there is none. */
static int shard_tensor(int first, uint32_t number)
{
    return first < 0 ? -1 : first + (int)number;
}

/* A call, for the parts of its sums. */
struct call {
    const struct block_spec *s;
    const struct kept *kept;
    void *const *gradients; /* of the shards' products */
};

/* ---- products ---- */

static struct shard_product query(const struct call *c, const struct attention_spec *part,
                                  uint32_t shard)
{
    const int64_t rows = part->n_heads * part->head_dim;
    return (struct shard_product){shard_tensor(c->s->attention.qkv_w, shard),
                                  shard_tensor(c->s->attention.qkv_b, shard), rows,
                                  rows + 2 * part->n_kv_heads * part->head_dim};
}

/* The shard's keys and values; *at: their bytes behind the queries' in a row. */
static struct shard_product key_value(const struct zinf_frame *f, const struct call *c,
                                      const struct attention_spec *part, uint32_t shard,
                                      uint64_t *at)
{
    const struct zinf_shards *cut = &f->graph->shards;
    const struct shard_groups groups = shard_groups_of(cut, c->s->attention.n_kv_heads);
    const int64_t queries = part->n_heads * part->head_dim;
    const int64_t rows = 2 * part->n_kv_heads * part->head_dim;
    const uint32_t group = (cut->first + shard) / groups.shards - groups.first;
    *at = (uint64_t)queries * frame_width(f);
    return (struct shard_product){shard_tensor(c->s->attention.kv_w, group),
                                  shard_tensor(c->s->attention.kv_b, group), rows, queries + rows};
}

/* The sum's first part has the bias. */
static struct shard_product project(const struct zinf_frame *f, const struct call *c,
                                    const struct attention_spec *part, uint32_t shard)
{
    const int64_t rows = part->n_heads * part->head_dim;
    const bool first = !(f->graph->shards.first + shard);
    return (struct shard_product){shard_tensor(c->s->attention.proj_w, shard),
                                  first ? c->s->attention.proj_b : -1, rows, rows};
}

static struct shard_product up(const struct call *c, const struct mlp_spec *part, uint32_t shard)
{
    const int64_t rows = part->gated ? 2 * part->ffn : part->ffn;
    return (struct shard_product){shard_tensor(c->s->mlp.up_w, shard),
                                  shard_tensor(c->s->mlp.up_b, shard), rows, rows};
}

static struct shard_product down(const struct zinf_frame *f, const struct call *c,
                                 const struct mlp_spec *part, uint32_t shard)
{
    const bool first = !(f->graph->shards.first + shard);
    return (struct shard_product){shard_tensor(c->s->mlp.down_w, shard),
                                  first ? c->s->mlp.down_b : -1, part->ffn, part->ffn};
}

/* ---- forward ---- */

static int make_projection(struct zinf_frame *f, const void *call, uint32_t shard, float *out)
{
    const struct call *c = call;
    const struct attention_spec part = attention_of(f, c->s, shard);
    const struct shard_product p = project(f, c, &part, shard);
    return shard_depth(f, &p, c->kept->attention[shard].out, out);
}

static int make_down(struct zinf_frame *f, const void *call, uint32_t shard, float *out)
{
    const struct call *c = call;
    const struct mlp_spec part = mlp_of(f, c->s);
    const struct shard_product p = down(f, c, &part, shard);
    const uint64_t mark = frame_mark(f);
    void *act = frame_scratch(f, (uint64_t)(frame_rows(f) * part.ffn) * frame_width(f));
    int code = mlp_activate(f, &part, c->kept->mlp[shard].up, act);
    if (!code)
        code = shard_depth(f, &p, act, out);
    frame_release(f, mark);
    return code;
}

/* y = x + dropout(the sum over shards) */
static int add_branch(struct zinf_frame *f, const struct part_exit *leave,
                      const struct shard_sum *sum, const void *x, void *y)
{
    const uint64_t mark = frame_mark(f);
    float *total = frame_scratch(f, sum->elems * sizeof *total);
    void *branch;
    int code = shard_sum(f, sum, total);
    if (!code)
        code = shard_narrow(f, total, sum->elems, &branch);
    if (!code)
        code = part_add_branch(f, leave, branch, x, y);
    frame_release(f, mark);
    return code;
}

static int attend(struct zinf_frame *f, const struct call *c, const void *rows, uint32_t shard)
{
    const struct attention_spec part = attention_of(f, c->s, shard);
    const struct attention_kept *kept = &c->kept->attention[shard];
    uint64_t at;
    const struct shard_product q = query(c, &part, shard);
    const struct shard_product kv = key_value(f, c, &part, shard, &at);
    const uint64_t mark = frame_mark(f);
    int code = shard_columns(f, &q, rows, kept->qkv);
    if (!code)
        code = shard_columns(f, &kv, rows, shard_at(f, kept->qkv, at));
    if (!code)
        code = attention_attend(f, &part, kept);
    frame_release(f, mark);
    return code;
}

static struct part_entry entry_of(const struct block_spec *s, const struct kept *kept, bool mlp)
{
    return (struct part_entry){.norm = mlp ? &s->mlp.norm : &s->attention.norm,
                               .kept = mlp ? kept->norm2 : kept->norm1,
                               .hidden = s->attention.hidden};
}

static int forward_attention(struct zinf_frame *f, const struct call *c, const void *x)
{
    const struct part_entry e = entry_of(c->s, c->kept, false);
    const struct part_exit leave = attention_exit(&c->s->attention, &c->kept->attention[0]);
    const struct shard_sum sum = {make_projection, c, x_elems(f, c->s)};
    const uint64_t mark = frame_mark(f);
    const void *rows;
    int code = part_rows(f, &e, x, &rows);
    for (uint32_t i = 0; !code && i < f->graph->shards.n; i++)
        code = attend(f, c, rows, i);
    frame_release(f, mark);
    return code ? code : add_branch(f, &leave, &sum, x, c->kept->x_mid);
}

static int forward_mlp(struct zinf_frame *f, const struct call *c)
{
    const struct part_entry e = entry_of(c->s, c->kept, true);
    const struct part_exit leave = mlp_exit(&c->s->mlp, &c->kept->mlp[0]);
    const struct mlp_spec part = mlp_of(f, c->s);
    const struct shard_sum sum = {make_down, c, x_elems(f, c->s)};
    const uint64_t mark = frame_mark(f);
    const void *rows;
    int code = part_rows(f, &e, c->kept->x_mid, &rows);
    for (uint32_t i = 0; !code && i < f->graph->shards.n; i++) {
        const struct shard_product p = up(c, &part, i);
        code = shard_columns(f, &p, rows, c->kept->mlp[i].up);
    }
    frame_release(f, mark);
    if (code || f->pass == ZINF_PASS_RECOMPUTE)
        return code;
    return add_branch(f, &leave, &sum, c->kept->x_mid, f->out[0]);
}

static int forward(struct zinf_frame *f)
{
    const struct block_spec *s = f->stage->spec;
    const struct kept kept = keep(f, s);
    const struct call c = {.s = s, .kept = &kept};
    int code = forward_attention(f, &c, f->in[0]);
    return code ? code : forward_mlp(f, &c);
}

/* ---- backward ---- */

/* Of a bias behind a sum, which is of whole rows. */
static int bias_gradient(struct zinf_frame *f, const struct block_spec *s, int bias, const void *dy)
{
    float *db = frame_grad(f, 0, bias);
    return db ? frame_column_sum(f, db, dy, f->compute->dtype, frame_rows(f), s->attention.hidden)
              : 0;
}

/* d_up of one shard, and the gradient of its part of down. */
static int leave_mlp(struct zinf_frame *f, const struct call *c, uint32_t shard, const void *d_y)
{
    const struct mlp_spec part = mlp_of(f, c->s);
    const struct shard_product p = down(f, c, &part, shard);
    const uint64_t mark = frame_mark(f);
    void *act = frame_scratch(f, (uint64_t)(frame_rows(f) * part.ffn) * frame_width(f));
    void *d_up = c->gradients[shard];
    int code = shard_depth_input(f, &p, d_y, part.gated ? act : d_up);
    if (!code)
        code = mlp_activate_backward(f, &part, c->kept->mlp[shard].up, d_up, act);
    if (!code)
        code = shard_depth_weight(f, &p, act, d_y);
    frame_release(f, mark);
    return code;
}

static int make_up_input(struct zinf_frame *f, const void *call, uint32_t shard, float *out)
{
    const struct call *c = call;
    const struct mlp_spec part = mlp_of(f, c->s);
    const struct shard_product p = up(c, &part, shard);
    return shard_columns_input(f, &p, c->gradients[shard], out, 0);
}

/* A shard's input of down, made again. */
static int down_input(struct zinf_frame *f, const void *call, uint32_t shard, const void **x)
{
    const struct call *c = call;
    const struct mlp_spec part = mlp_of(f, c->s);
    void *act = frame_scratch(f, (uint64_t)(frame_rows(f) * part.ffn) * frame_width(f));
    *x = act;
    return mlp_activate(f, &part, c->kept->mlp[shard].up, act);
}

/* Adapters of up and down, in what all shards have. */
static int mlp_adapters(struct zinf_frame *f, const struct call *c, const void *rows,
                        const void *d_y)
{
    const struct mlp_spec part = mlp_of(f, c->s);
    struct shard_product p[ZINF_MOST_SHARDS];
    for (uint32_t i = 0; i < f->graph->shards.n; i++)
        p[i] = up(c, &part, i);
    const struct shard_adapters ups = {
        .p = p, .dy = (const void *const *)c->gradients, .x = rows, .per_weight = 1};
    int code = shard_columns_adapt_weights(f, &ups);
    for (uint32_t i = 0; i < f->graph->shards.n; i++)
        p[i] = down(f, c, &part, i);
    const struct shard_adapters downs = {.p = p, .dy = &d_y, .input = down_input, .call = c};
    return code ? code : shard_depth_adapt_weights(f, &downs);
}

/* Gradients of a shard's rows of up, from those of its product. */
static int up_weight(struct zinf_frame *f, const struct call *c, uint32_t shard, const void *rows)
{
    const struct mlp_spec part = mlp_of(f, c->s);
    const struct shard_product p = up(c, &part, shard);
    float *dw = frame_grad(f, 0, p.weight), *db = frame_grad(f, 0, p.bias);
    const void *dy = c->gradients[shard];
    int code = dw ? shard_columns_weight(f, &p, dy, rows, dw) : 0;
    if (!code && db)
        code = frame_column_sum(f, db, dy, f->compute->dtype, frame_rows(f), p.rows);
    return code;
}

/* The gradient at a norm's input from that of the products of its rows: to d_x. */
static int enter_backward(struct zinf_frame *f, const struct part_entry *e,
                          const struct shard_sum *sum, const void *x, void *d_x)
{
    const uint64_t mark = frame_mark(f);
    float *total = frame_scratch(f, sum->elems * sizeof *total);
    void *d_rows;
    int code = shard_sum(f, sum, total);
    if (!code)
        code = shard_narrow(f, total, sum->elems, &d_rows);
    if (!code)
        code = part_rows_backward(f, e, x, d_rows, d_x);
    frame_release(f, mark);
    return code;
}

static int backward_mlp(struct zinf_frame *f, const struct call *call, void *d_x)
{
    const struct block_spec *s = call->s;
    const struct mlp_spec part = mlp_of(f, s);
    const struct part_entry e = entry_of(s, call->kept, true);
    const struct part_exit leave = mlp_exit(&s->mlp, &call->kept->mlp[0]);
    const uint64_t mark = frame_mark(f);
    const uint32_t n = f->graph->shards.n;
    void *d_up[ZINF_MOST_SHARDS];
    const struct call c = {s, call->kept, d_up};
    const struct shard_sum sum = {make_up_input, &c, x_elems(f, s)};
    const void *d_y, *rows;
    for (uint32_t i = 0; i < n; i++)
        d_up[i] = frame_scratch(f, mlp_entry_bytes(f, &part));
    int code = part_leave_backward(f, &leave, d_x, &d_y);
    if (!code)
        code = bias_gradient(f, s, s->mlp.down_b, d_y);
    for (uint32_t i = 0; !code && i < n; i++)
        code = leave_mlp(f, &c, i, d_y);
    if (!code)
        code = part_rows(f, &e, call->kept->x_mid, &rows);
    for (uint32_t i = 0; !code && i < n; i++)
        code = up_weight(f, &c, i, rows);
    if (!code)
        code = mlp_adapters(f, &c, rows, d_y);
    if (!code)
        code = enter_backward(f, &e, &sum, call->kept->x_mid, d_x);
    frame_release(f, mark);
    return code;
}

static int leave_attention(struct zinf_frame *f, const struct call *c, uint32_t shard,
                           const void *d_y)
{
    const struct attention_spec part = attention_of(f, c->s, shard);
    const struct attention_kept *kept = &c->kept->attention[shard];
    const struct shard_product p = project(f, c, &part, shard);
    const uint64_t mark = frame_mark(f);
    void *d_out = frame_scratch(f, (uint64_t)(frame_rows(f) * p.rows) * frame_width(f));
    int code = shard_depth_input(f, &p, d_y, d_out);
    if (!code)
        code = shard_depth_weight(f, &p, kept->out, d_y);
    if (!code)
        code = attention_attend_backward(f, &part, kept, d_out, c->gradients[shard], mark);
    frame_release(f, mark);
    return code;
}

static int make_qkv_input(struct zinf_frame *f, const void *call, uint32_t shard, float *out)
{
    const struct call *c = call;
    const struct attention_spec part = attention_of(f, c->s, shard);
    uint64_t at;
    const struct shard_product q = query(c, &part, shard);
    const struct shard_product kv = key_value(f, c, &part, shard, &at);
    const void *d_qkv = c->gradients[shard];
    int code = shard_columns_input(f, &q, d_qkv, out, 0);
    return code ? code : shard_columns_input(f, &kv, shard_at(f, d_qkv, at), out, 1);
}

/* A shard's part of the gradients of its keys' and values' rows, and of their biases. */
struct key_call {
    const struct call *c;
    const void *rows;
};

static int make_key_weight(struct zinf_frame *f, const void *call, uint32_t shard, float *out)
{
    const struct key_call *k = call;
    const struct attention_spec part = attention_of(f, k->c->s, shard);
    uint64_t at;
    const struct shard_product kv = key_value(f, k->c, &part, shard, &at);
    return shard_columns_weight(f, &kv, shard_at(f, k->c->gradients[shard], at), k->rows, out);
}

/* Column sums of all of a shard's product: the queries' biases, and to out those of the rest. */
static int make_biases(struct zinf_frame *f, const void *call, uint32_t shard, float *out)
{
    const struct key_call *k = call;
    const struct attention_spec part = attention_of(f, k->c->s, shard);
    const struct shard_product q = query(k->c, &part, shard);
    const uint64_t mark = frame_mark(f), queries = (uint64_t)q.rows * sizeof(float);
    const uint64_t all = (uint64_t)q.ld * sizeof(float);
    float *sums = frame_scratch(f, all), *db = frame_grad(f, 0, q.bias);
    int code =
        frame_column_sum(f, sums, k->c->gradients[shard], f->compute->dtype, frame_rows(f), q.ld);
    if (!code)
        code = frame_copy(f, db, sums, queries);
    if (!code)
        code = frame_copy(f, out, shard_at(f, sums, queries), all - queries);
    frame_release(f, mark);
    return code;
}

static int query_weight(struct zinf_frame *f, const struct call *c, uint32_t shard,
                        const void *rows)
{
    const struct attention_spec part = attention_of(f, c->s, shard);
    const struct shard_product q = query(c, &part, shard);
    float *dw = frame_grad(f, 0, q.weight);
    return dw ? shard_columns_weight(f, &q, c->gradients[shard], rows, dw) : 0;
}

/* Of the group's keys and values, over the shards that share them. */
static int key_gradients(struct zinf_frame *f, const struct key_call *k, uint32_t group)
{
    const struct attention_spec *s = &k->c->s->attention;
    const struct shard_groups groups = shard_groups_of(&f->graph->shards, s->n_kv_heads);
    const uint64_t rows = (uint64_t)(2 * groups.heads * s->head_dim);
    const uint32_t n = f->graph->shards.n / groups.n;
    const struct shard_sum weight = {make_key_weight, k, rows * (uint64_t)s->hidden};
    const struct shard_sum bias = {make_biases, k, rows};
    float *dw = frame_grad(f, 0, shard_tensor(s->kv_w, group));
    float *db = frame_grad(f, 0, shard_tensor(s->kv_b, group));
    int code = dw ? shard_sum_shared(f, &weight, group * n, n, dw) : 0;
    return code || !db ? code : shard_sum_shared(f, &bias, group * n, n, db);
}

static int projection_input(struct zinf_frame *f, const void *call, uint32_t shard, const void **x)
{
    const struct call *c = call;
    (void)f;
    *x = c->kept->attention[shard].out;
    return 0;
}

/* Adapters of queries, of keys and values, and of the projection. */
static int attention_adapters(struct zinf_frame *f, const struct call *c, const void *rows,
                              const void *d_y)
{
    const struct shard_groups groups =
        shard_groups_of(&f->graph->shards, c->s->attention.n_kv_heads);
    struct shard_product q[ZINF_MOST_SHARDS], kv[ZINF_MOST_SHARDS], p[ZINF_MOST_SHARDS];
    const void *d_kv[ZINF_MOST_SHARDS];
    const uint32_t n = f->graph->shards.n;
    for (uint32_t i = 0; i < n; i++) {
        const struct attention_spec part = attention_of(f, c->s, i);
        uint64_t at;
        q[i] = query(c, &part, i);
        kv[i] = key_value(f, c, &part, i, &at);
        d_kv[i] = shard_at(f, c->gradients[i], at);
        p[i] = project(f, c, &part, i);
    }
    const struct shard_adapters queries = {
        .p = q, .dy = (const void *const *)c->gradients, .x = rows, .per_weight = 1};
    const struct shard_adapters keys = {
        .p = kv, .dy = d_kv, .x = rows, .per_weight = n / groups.n, .shares = true};
    const struct shard_adapters out = {.p = p, .dy = &d_y, .input = projection_input, .call = c};
    int code = shard_columns_adapt_weights(f, &queries);
    if (!code)
        code = shard_columns_adapt_weights(f, &keys);
    return code ? code : shard_depth_adapt_weights(f, &out);
}

static int backward_attention(struct zinf_frame *f, const struct call *call, void *d_x)
{
    const struct block_spec *s = call->s;
    const struct attention_spec part = attention_of(f, s, 0);
    const struct part_entry e = entry_of(s, call->kept, false);
    const struct part_exit leave = attention_exit(&s->attention, &call->kept->attention[0]);
    const struct shard_groups groups = shard_groups_of(&f->graph->shards, s->attention.n_kv_heads);
    const uint64_t mark = frame_mark(f);
    const uint32_t n = f->graph->shards.n;
    void *d_qkv[ZINF_MOST_SHARDS];
    const struct call c = {s, call->kept, d_qkv};
    const struct shard_sum sum = {make_qkv_input, &c, x_elems(f, s)};
    const void *d_y;
    struct key_call k = {.c = &c};
    for (uint32_t i = 0; i < n; i++)
        d_qkv[i] = frame_scratch(f, attention_entry_bytes(f, &part));
    int code = part_leave_backward(f, &leave, d_x, &d_y);
    if (!code)
        code = bias_gradient(f, s, s->attention.proj_b, d_y);
    for (uint32_t i = 0; !code && i < n; i++)
        code = leave_attention(f, &c, i, d_y);
    if (!code)
        code = part_rows(f, &e, f->in[0], &k.rows);
    for (uint32_t i = 0; !code && i < n; i++)
        code = query_weight(f, &c, i, k.rows);
    for (uint32_t i = 0; !code && i < groups.n; i++)
        code = key_gradients(f, &k, i);
    if (!code)
        code = attention_adapters(f, &c, k.rows, d_y);
    if (!code)
        code = enter_backward(f, &e, &sum, f->in[0], d_x);
    frame_release(f, mark);
    return code;
}

static int backward(struct zinf_frame *f)
{
    const struct block_spec *s = f->stage->spec;
    const struct kept kept = keep(f, s);
    const struct call c = {.s = s, .kept = &kept};
    void *d_x;
    int code;
    if ((code = part_start_gradient(f, s->attention.hidden, &d_x)) ||
        (code = frame_zero_gaps(f, 0)) || (code = backward_mlp(f, &c, d_x)) ||
        (code = backward_attention(f, &c, d_x)))
        return code;
    return part_finish_gradient(f, s->attention.hidden, d_x);
}

const struct zinf_stage_ops zinf_stage_shards = {
    .name = "shards",
    .recomputes = true,
    .passes = true,
    .forward = forward,
    .backward = backward,
};
