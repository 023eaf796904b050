/*
 * part_mlp_shards: the feed-forward part, shard by shard, as tensor parallel cuts it:
 *   rows = norm(x); a_s = act(rows Wup_s^T); y = x + branch(sum a_s Wd_s)
 * and backward the sum over shards is that in front of the product of rows. The norm, the bias
 * behind the sum and dropout of the branch are of whole rows, which each rank has; dropout in front
 * of the last product goes by masks of each shard's own. Trained numbers of the activation are of
 * all shards' columns, so their gradients are sums over shards.
 */
#include "model/shards.h"

/* A shard's part of the spec: without the norm. */
static struct mlp_spec part_of(const struct zinf_frame *f, const struct mlp_spec *s, uint32_t shard)
{
    const struct zinf_shards *c = &f->graph->shards;
    struct mlp_spec part = *s;
    part.ffn /= c->of;
    part.norm.w = part.after.w = -1;
    for (int i = 0; i < part.scales.n; i++)
        part.scales.ranges[i].cols /= c->of;
    part.inner_site += (c->first + shard) * SHARD_SITES;
    return part;
}

static uint64_t x_elems(const struct zinf_frame *f, const struct mlp_spec *s)
{
    return (uint64_t)(frame_rows(f) * s->hidden);
}

void mlp_shards_keep(struct zinf_frame *f, const struct mlp_spec *s, struct mlp_shards *kept)
{
    kept->s = s;
    kept->entry = &s->norm;
    kept->next = NULL;
    kept->norm = part_norm_keep(f, &s->norm, 1);
    kept->after = part_norm_keep(f, &s->after, 1);
    kept->product = s->after.w < 0 ? NULL : frame_keep(f, x_elems(f, s) * frame_width(f));
    for (uint32_t i = 0; i < f->graph->shards.n; i++) {
        const struct mlp_spec part = part_of(f, s, i);
        kept->of[i] = mlp_keep(f, &part);
    }
}

/* A call, for the parts of its sums. */
struct call {
    const struct mlp_spec *s;
    const struct mlp_shards *kept;
    void *const *gradients; /* of the shards' products */
};

static struct shard_product up(const struct call *c, const struct mlp_spec *part, uint32_t shard)
{
    const int64_t rows = part->gated ? 2 * part->ffn : part->ffn;
    return (struct shard_product){.weight = shard_tensor(c->s->up_w, shard),
                                  .bias = shard_tensor(c->s->up_b, shard),
                                  .rows = rows,
                                  .ld = rows};
}

/* The sum's first part has the bias. */
static struct shard_product down(const struct zinf_frame *f, const struct call *c,
                                 const struct mlp_spec *part, uint32_t shard)
{
    const bool first = !(f->graph->shards.first + shard);
    return (struct shard_product){.weight = shard_tensor(c->s->down_w, shard),
                                  .bias = first ? c->s->down_b : -1,
                                  .rows = part->ffn,
                                  .ld = part->ffn};
}

struct part_entry mlp_shards_entry(const struct mlp_shards *kept)
{
    return (struct part_entry){.norm = kept->entry, .kept = kept->norm, .hidden = kept->s->hidden};
}

static struct part_exit exit_of(const struct mlp_shards *kept)
{
    return mlp_exit(
        kept->s,
        &(struct mlp_kept){.after = kept->after, .product = kept->product, .next = kept->next});
}

/* ---- forward ---- */

/* A shard's input of down, in scratch. */
static int down_input(struct zinf_frame *f, const void *call, uint32_t shard, const void **x)
{
    const struct call *c = call;
    const struct mlp_spec part = part_of(f, c->s, shard);
    void *act = frame_scratch(f, frame_rows_bytes(f, part.ffn));
    int code = mlp_activate(f, &part, c->kept->of[shard].up, act);
    *x = act;
    return code ? code : mlp_mask(f, &part, act);
}

static int make_down(struct zinf_frame *f, const void *call, uint32_t shard, float *out)
{
    const struct call *c = call;
    const struct mlp_spec part = part_of(f, c->s, shard);
    const struct shard_product p = down(f, c, &part, shard);
    const uint64_t mark = frame_mark(f);
    const void *act;
    int code = down_input(f, call, shard, &act);
    if (!code)
        code = shard_depth(f, &p, act, out);
    frame_release(f, mark);
    return code;
}

int mlp_shards_multiply(struct zinf_frame *f, const struct mlp_shards *kept, const void *rows)
{
    const struct call c = {.s = kept->s, .kept = kept};
    const struct part_entry e = mlp_shards_entry(kept);
    const uint64_t mark = frame_mark(f);
    int code = part_rows(f, &e, rows, &rows);
    for (uint32_t i = 0; !code && i < f->graph->shards.n; i++) {
        const struct mlp_spec part = part_of(f, kept->s, i);
        const struct shard_product p = up(&c, &part, i);
        code = shard_columns(f, &p, rows, kept->of[i].up);
        if (!code)
            code = part_scale_columns(f, &part.scales, p.ld, kept->of[i].up);
    }
    frame_release(f, mark);
    return code;
}

int mlp_shards_project(struct zinf_frame *f, const struct mlp_shards *kept, uint32_t shard,
                       float *out)
{
    const struct call c = {.s = kept->s, .kept = kept};
    return make_down(f, &c, shard, out);
}

static int make_branch(struct zinf_frame *f, const void *kept, uint32_t shard, float *out)
{
    return mlp_shards_project(f, kept, shard, out);
}

int mlp_shards_forward(struct zinf_frame *f, const struct mlp_shards *kept, const void *rows,
                       const void *x, void *y, bool again)
{
    const struct part_exit leave = exit_of(kept);
    const struct shard_sum sum = {make_branch, kept, x_elems(f, kept->s)};
    int code = mlp_shards_multiply(f, kept, rows);
    return code ? code : shard_add_branch(f, &leave, &sum, x, y, again);
}

/* ---- backward ---- */

/* Room for a shard's gradients of two numbers, which ranks can share evenly. */
enum { ALPHAS = 2, ALPHA_ELEMS = ZINF_MOST_SHARDS };

/* d_up of one shard, and the gradient of its part of down; those of the activation's numbers to
 * alphas [shards][ALPHA_ELEMS], where they are wanted. */
static int leave_backward(struct zinf_frame *f, const struct call *c, uint32_t shard,
                          const void *d_y, float *alphas)
{
    struct mlp_spec part = part_of(f, c->s, shard);
    const struct shard_product p = down(f, c, &part, shard);
    const uint64_t mark = frame_mark(f);
    void *act = frame_scratch(f, frame_rows_bytes(f, part.ffn));
    void *d_up = c->gradients[shard], *d_act = part.gated ? act : d_up;
    if (alphas)
        part.d_alphas = alphas + shard * ALPHA_ELEMS;
    int code = shard_depth_input(f, &p, d_y, d_act);
    if (!code)
        code = mlp_mask(f, &part, d_act);
    if (!code)
        code = mlp_activate_backward(f, &part, c->kept->of[shard].up, d_up, act, NULL);
    if (!code)
        code = mlp_mask(f, &part, act);
    if (!code)
        code = shard_depth_weight(f, &p, act, d_y);
    if (!code)
        code = part_scale_columns(f, &part.scales, up(c, &part, shard).ld, d_up);
    frame_release(f, mark);
    return code;
}

static int leave_all(struct zinf_frame *f, const struct call *c, const void *d_y)
{
    const uint32_t n = f->graph->shards.n;
    const uint64_t mark = frame_mark(f), bytes = ALPHA_ELEMS * sizeof(float);
    float *wanted = c->s->xielu ? frame_grad(f, 0, c->s->alphas) : NULL;
    float *found = wanted ? frame_scratch(f, n * bytes) : NULL;
    float *total = wanted ? frame_scratch(f, bytes) : NULL;
    int code = wanted ? frame_zero(f, found, n * bytes) : 0;
    for (uint32_t i = 0; !code && i < n; i++)
        code = leave_backward(f, c, i, d_y, found);
    if (!code && wanted)
        code = shard_sum_found(f, found, ALPHA_ELEMS, total);
    if (!code && wanted)
        code = frame_copy(f, wanted, total, ALPHAS * sizeof *wanted);
    frame_release(f, mark);
    return code;
}

int mlp_shards_enter(struct zinf_frame *f, const struct mlp_shards *kept,
                     const struct shard_gradients *gradients, uint32_t shard, float *out,
                     float beta)
{
    const struct mlp_spec part = part_of(f, kept->s, shard);
    const struct call c = {.s = kept->s};
    const struct shard_product p = up(&c, &part, shard);
    return shard_columns_input(f, &p, gradients->of[shard], out, beta);
}

/* Adapters of up and down, in what all shards have. */
static int adapters(struct zinf_frame *f, const struct call *c, const void *rows, const void *d_y)
{
    struct shard_product p[ZINF_MOST_SHARDS];
    for (uint32_t i = 0; i < f->graph->shards.n; i++) {
        const struct mlp_spec part = part_of(f, c->s, i);
        p[i] = up(c, &part, i);
    }
    const struct shard_adapters ups = {
        .p = p, .dy = (const void *const *)c->gradients, .x = rows, .per_weight = 1};
    int code = shard_columns_adapt_weights(f, &ups);
    for (uint32_t i = 0; i < f->graph->shards.n; i++) {
        const struct mlp_spec part = part_of(f, c->s, i);
        p[i] = down(f, c, &part, i);
    }
    const struct shard_adapters downs = {.p = p, .dy = &d_y, .input = down_input, .call = c};
    return code ? code : shard_depth_adapt_weights(f, &downs);
}

/* Gradients of a shard's rows of up, from those of its product. */
static int up_weight(struct zinf_frame *f, const struct call *c, uint32_t shard, const void *rows)
{
    const struct mlp_spec part = part_of(f, c->s, shard);
    const struct shard_product p = up(c, &part, shard);
    float *dw = frame_grad(f, 0, p.weight), *db = frame_grad(f, 0, p.bias);
    const void *dy = c->gradients[shard];
    int code = dw ? shard_columns_weight(f, &p, dy, rows, dw) : 0;
    if (!code && db)
        code = frame_column_sum(f, db, dy, f->compute->dtype, frame_rows(f), p.rows);
    return code;
}

int mlp_shards_leave(struct zinf_frame *f, const struct mlp_shards *kept, const void *x,
                     const void *d_y, struct shard_gradients *gradients)
{
    const struct mlp_spec *s = kept->s;
    const struct mlp_spec part = part_of(f, s, 0);
    const struct part_entry e = mlp_shards_entry(kept);
    const struct part_exit leave = exit_of(kept);
    const struct call c = {s, kept, gradients->of};
    const uint32_t n = f->graph->shards.n;
    const void *d_branch, *rows;
    for (uint32_t i = 0; i < n; i++)
        gradients->of[i] = frame_scratch(f, mlp_entry_bytes(f, &part));
    const uint64_t mark = frame_mark(f);
    int code = part_leave_backward(f, &leave, d_y, &d_branch);
    if (!code)
        code = shard_bias_gradient(f, s->down_b, s->hidden, d_branch);
    if (!code)
        code = leave_all(f, &c, d_branch);
    if (!code)
        code = part_rows(f, &e, x, &rows);
    for (uint32_t i = 0; !code && i < n; i++)
        code = up_weight(f, &c, i, rows);
    if (!code)
        code = adapters(f, &c, rows, d_branch);
    frame_release(f, mark);
    return code;
}

/* For the sum in front of the products. */
struct enter_call {
    const struct mlp_shards *kept;
    const struct shard_gradients *gradients;
};

static int make_enter(struct zinf_frame *f, const void *call, uint32_t shard, float *out)
{
    const struct enter_call *c = call;
    return mlp_shards_enter(f, c->kept, c->gradients, shard, out, 0);
}

int mlp_shards_branch_backward(struct zinf_frame *f, const struct mlp_shards *kept, const void *x,
                               const void *d_y, void *d_x)
{
    const struct part_entry e = mlp_shards_entry(kept);
    const uint64_t mark = frame_mark(f);
    struct shard_gradients gradients;
    const struct enter_call call = {kept, &gradients};
    const struct shard_sum sum = {make_enter, &call, x_elems(f, kept->s)};
    int code = mlp_shards_leave(f, kept, x, d_y, &gradients);
    if (!code)
        code = shard_enter_backward(f, &e, &sum, x, d_x);
    frame_release(f, mark);
    return code;
}

int mlp_shards_backward(struct zinf_frame *f, const struct mlp_shards *kept, const void *x,
                        void *d_x)
{
    return mlp_shards_branch_backward(f, kept, x, d_x, d_x);
}
