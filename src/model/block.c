/*
 * block: one pre-norm transformer block, forward and backward, over the spec:
 *   x_mid = x_in + dropout(proj(attention(qkv(norm1(x_in)))))
 *   x_out = x_mid + dropout(down(act(up(norm2(x_mid)))))
 * Kept for backward: what is expensive to compute again. Norms and activations are recomputed
 * from their inputs; the same operations on the same inputs give the same bits.
 */
#include "model/model.h"
#include "model/compute.h"

static void *at(void *base, uint64_t offset)
{
    return base ? (char *)base + offset : NULL;
}

static uint64_t qkv_cols(const struct zinf_model_spec *s)
{
    return (uint64_t)((s->n_heads + 2 * s->n_kv_heads) * s->head_dim);
}

static uint64_t attention_cols(const struct zinf_model_spec *s)
{
    return (uint64_t)(s->n_heads * s->head_dim);
}

uint64_t zinf_block_kept_layout(const struct zinf_gpt2_compute *c, void *base,
                                struct zinf_block_kept *kept)
{
    const struct zinf_model_spec *s = c->spec;
    uint64_t size = 0, n = rows_of(c), width = zinf_dtype_bytes(c->dtype);
    kept->qkv = at(base, take(&size, n * qkv_cols(s) * width));
    kept->lse = at(base, take(&size, n * (uint64_t)s->n_heads * sizeof(float)));
    kept->attention = at(base, take(&size, n * attention_cols(s) * width));
    kept->x_mid = at(base, take(&size, n * (uint64_t)s->hidden * width));
    kept->up = at(base, take(&size, n * (uint64_t)s->ffn * width));
    float **stats[] = {&kept->mean1, &kept->rstd1, &kept->mean2, &kept->rstd2};
    for (int i = 0; i < 4; i++)
        *stats[i] = at(base, take(&size, n * sizeof(float)));
    return size;
}

uint64_t zinf_block_scratch_layout(const struct zinf_gpt2_compute *c, void *base,
                                   struct zinf_block_scratch *scratch, bool backward)
{
    const struct zinf_model_spec *s = c->spec;
    uint64_t size = 0, n = rows_of(c), width = zinf_dtype_bytes(c->dtype);
    uint64_t h = (uint64_t)s->hidden, f = (uint64_t)s->ffn;
    uint64_t wide = f > qkv_cols(s) ? f : qkv_cols(s);
    uint64_t narrow = h > attention_cols(s) ? h : attention_cols(s);
    memset(scratch, 0, sizeof *scratch);
    scratch->norm = at(base, take(&size, n * h * width));
    scratch->act = at(base, take(&size, n * f * width));
    scratch->branch = at(base, take(&size, n * h * width));
    if (backward) {
        scratch->d_wide = at(base, take(&size, n * wide * width));
        scratch->d_branch = at(base, take(&size, n * narrow * width));
    }
    return size;
}

double zinf_block_flops(const struct zinf_gpt2_compute *c)
{
    const struct zinf_model_spec *s = c->spec;
    double weights = (double)s->hidden * (double)(qkv_cols(s) + attention_cols(s)) +
                     2.0 * (double)s->hidden * (double)s->ffn;
    return (double)rows_of(c) *
           (2.0 * weights + 2.0 * (double)(c->seq + 1) * (double)attention_cols(s));
}

/* Dropout sites: three places a layer, and the embedding at 0. */
enum site {
    SITE_ATTENTION,
    SITE_ATTENTION_OUT,
    SITE_MLP_OUT,
};

static struct zinf_dropout block_dropout(const struct zinf_gpt2_compute *c,
                                         const struct zinf_unit_spec *unit, enum site site)
{
    const struct zinf_model_spec *s = c->spec;
    uint64_t per_sample = (uint64_t)c->seq * (uint64_t)s->hidden;
    float p = s->residual_dropout;
    if (site == SITE_ATTENTION) {
        per_sample = (uint64_t)s->n_heads * (uint64_t)c->seq * (uint64_t)c->seq;
        p = s->attention_dropout;
    }
    return dropout_at(c, p, 1 + 3 * (uint32_t)unit->index + (uint32_t)site, per_sample);
}

static struct zinf_attention attention_args(const struct zinf_gpt2_compute *c,
                                            const struct zinf_unit_spec *unit,
                                            const struct zinf_block_kept *kept)
{
    const struct zinf_model_spec *s = c->spec;
    float scale = s->attention_scale;
    if (s->scale_by_inverse_layer)
        scale /= (float)(unit->index + 1);
    return (struct zinf_attention){
        .dtype = c->dtype,
        .batch = c->batch,
        .seq = c->seq,
        .n_heads = s->n_heads,
        .n_kv_heads = s->n_kv_heads,
        .head_dim = s->head_dim,
        .causal = true,
        .scale = scale,
        .dropout = block_dropout(c, unit, SITE_ATTENTION),
        .qkv = kept->qkv,
        .out = kept->attention,
        .lse = kept->lse,
    };
}

/* norm 1 or 2 of the block: x to scratch, statistics to kept */
static struct zinf_norm norm_args(const struct zinf_gpt2_compute *c,
                                  const struct zinf_unit_spec *unit, const void *weights, int which,
                                  const void *x, void *y, const struct zinf_block_kept *kept)
{
    bool first = which == 1;
    return (struct zinf_norm){
        .kind = c->spec->norm,
        .dtype = c->dtype,
        .rows = (int64_t)rows_of(c),
        .cols = c->spec->hidden,
        .eps = c->spec->norm_eps,
        .x = x,
        .w = weight(c, unit, weights, first ? ZINF_ROLE_NORM1_W : ZINF_ROLE_NORM2_W),
        .b = weight(c, unit, weights, first ? ZINF_ROLE_NORM1_B : ZINF_ROLE_NORM2_B),
        .y = y,
        .mean = first ? kept->mean1 : kept->mean2,
        .rstd = first ? kept->rstd1 : kept->rstd2,
    };
}

static int residual(const struct zinf_gpt2_compute *c, const struct zinf_unit_spec *unit,
                    enum site site, const void *x, const void *branch, void *y)
{
    struct zinf_residual args = {
        .dtype = c->dtype,
        .n = (int64_t)rows_of(c) * c->spec->hidden,
        .x = x,
        .r = branch,
        .y = y,
        .dropout = block_dropout(c, unit, site),
    };
    return c->device->ops->residual_add(c->queue, &args);
}

static int forward_attention(const struct zinf_gpt2_compute *c, const struct zinf_unit_spec *unit,
                             const void *weights, const void *x_in,
                             const struct zinf_block_kept *kept, const struct zinf_block_scratch *s)
{
    const struct zinf_device_ops *ops = c->device->ops;
    const struct zinf_model_spec *spec = c->spec;
    int code;
    struct zinf_norm norm = norm_args(c, unit, weights, 1, x_in, s->norm, kept);
    struct zinf_attention attention = attention_args(c, unit, kept);
    struct linear qkv = {weight(c, unit, weights, ZINF_ROLE_QKV_W),
                         weight(c, unit, weights, ZINF_ROLE_QKV_B), (int64_t)qkv_cols(spec),
                         spec->hidden};
    struct linear proj = {weight(c, unit, weights, ZINF_ROLE_PROJ_W),
                          weight(c, unit, weights, ZINF_ROLE_PROJ_B), spec->hidden,
                          (int64_t)attention_cols(spec)};
    if ((code = ops->norm_forward(c->queue, &norm)) ||
        (code = linear_forward(c, &qkv, s->norm, kept->qkv)) ||
        (code = ops->attention_forward(c->queue, &attention)) ||
        (code = linear_forward(c, &proj, kept->attention, s->branch)))
        return code;
    return residual(c, unit, SITE_ATTENTION_OUT, x_in, s->branch, kept->x_mid);
}

static int forward_mlp(const struct zinf_gpt2_compute *c, const struct zinf_unit_spec *unit,
                       const void *weights, void *x_out, const struct zinf_block_kept *kept,
                       const struct zinf_block_scratch *s)
{
    const struct zinf_device_ops *ops = c->device->ops;
    const struct zinf_model_spec *spec = c->spec;
    int code;
    struct zinf_norm norm = norm_args(c, unit, weights, 2, kept->x_mid, s->norm, kept);
    struct linear up = {weight(c, unit, weights, ZINF_ROLE_UP_W),
                        weight(c, unit, weights, ZINF_ROLE_UP_B), spec->ffn, spec->hidden};
    struct linear down = {weight(c, unit, weights, ZINF_ROLE_DOWN_W),
                          weight(c, unit, weights, ZINF_ROLE_DOWN_B), spec->hidden, spec->ffn};
    if ((code = ops->norm_forward(c->queue, &norm)) ||
        (code = linear_forward(c, &up, s->norm, kept->up)))
        return code;
    if (!x_out) /* recomputation stops where kept is complete */
        return 0;
    if ((code = ops->activation_forward(c->queue, spec->activation, c->dtype, s->act, kept->up,
                                        rows_of(c) * (uint64_t)spec->ffn)) ||
        (code = linear_forward(c, &down, s->act, s->branch)))
        return code;
    return residual(c, unit, SITE_MLP_OUT, kept->x_mid, s->branch, x_out);
}

int zinf_block_forward(const struct zinf_gpt2_compute *c, const struct zinf_unit_spec *unit,
                       const void *weights, const void *x_in, void *x_out,
                       const struct zinf_block_kept *kept, const struct zinf_block_scratch *s)
{
    int code = forward_attention(c, unit, weights, x_in, kept, s);
    if (!code)
        code = forward_mlp(c, unit, weights, x_out, kept, s);
    return code;
}

/* Where the gradient of a branch is: d_x itself without dropout, else masked into branch. */
static int branch_gradient(const struct zinf_gpt2_compute *c, const struct zinf_unit_spec *unit,
                           enum site site, const void *d_x, void *branch, const void **out)
{
    struct zinf_residual args = {
        .dtype = c->dtype,
        .n = (int64_t)rows_of(c) * c->spec->hidden,
        .r = d_x,
        .y = branch,
        .dropout = block_dropout(c, unit, site),
    };
    *out = args.dropout.p > 0 ? branch : d_x;
    return args.dropout.p > 0 ? c->device->ops->dropout(c->queue, &args) : 0;
}

static int norm_backward(const struct zinf_gpt2_compute *c, struct zinf_norm norm,
                         const struct zinf_unit_spec *unit, float *grads, int which, const void *dy,
                         void *d_x)
{
    norm.y = NULL;
    norm.dy = dy;
    norm.dx = d_x;
    norm.beta_dx = 1;
    norm.dw = grad(unit, grads, which == 1 ? ZINF_ROLE_NORM1_W : ZINF_ROLE_NORM2_W);
    norm.db = grad(unit, grads, which == 1 ? ZINF_ROLE_NORM1_B : ZINF_ROLE_NORM2_B);
    return c->device->ops->norm_backward(c->queue, &norm);
}

static int backward_mlp(const struct zinf_gpt2_compute *c, const struct zinf_unit_spec *unit,
                        const void *weights, float *grads, void *d_x,
                        const struct zinf_block_kept *kept, const struct zinf_block_scratch *s)
{
    const struct zinf_device_ops *ops = c->device->ops;
    const struct zinf_model_spec *spec = c->spec;
    const void *d_out;
    int code;
    struct zinf_norm norm = norm_args(c, unit, weights, 2, kept->x_mid, s->norm, kept);
    struct linear up = {weight(c, unit, weights, ZINF_ROLE_UP_W), NULL, spec->ffn, spec->hidden};
    struct linear down = {weight(c, unit, weights, ZINF_ROLE_DOWN_W), NULL, spec->hidden,
                          spec->ffn};
    if ((code = branch_gradient(c, unit, SITE_MLP_OUT, d_x, s->branch, &d_out)) ||
        (code = linear_backward_input(c, &down, d_out, s->d_wide)) ||
        (code = ops->activation_backward(c->queue, spec->activation, c->dtype, s->d_wide, s->d_wide,
                                         kept->up, s->act, rows_of(c) * (uint64_t)spec->ffn)) ||
        (code = linear_backward_weight(c, &down, d_out, s->act, grad(unit, grads, ZINF_ROLE_DOWN_W),
                                       grad(unit, grads, ZINF_ROLE_DOWN_B))) ||
        (code = ops->norm_forward(c->queue, &norm)) ||
        (code =
             linear_backward_weight(c, &up, s->d_wide, s->norm, grad(unit, grads, ZINF_ROLE_UP_W),
                                    grad(unit, grads, ZINF_ROLE_UP_B))) ||
        (code = linear_backward_input(c, &up, s->d_wide, s->d_branch)))
        return code;
    return norm_backward(c, norm, unit, grads, 2, s->d_branch, d_x);
}

static int backward_attention(const struct zinf_gpt2_compute *c, const struct zinf_unit_spec *unit,
                              const void *weights, float *grads, const void *x_in, void *d_x,
                              const struct zinf_block_kept *kept,
                              const struct zinf_block_scratch *s)
{
    const struct zinf_device_ops *ops = c->device->ops;
    const struct zinf_model_spec *spec = c->spec;
    const void *d_out;
    int code;
    struct zinf_norm norm = norm_args(c, unit, weights, 1, x_in, s->norm, kept);
    struct zinf_attention attention = attention_args(c, unit, kept);
    struct linear qkv = {weight(c, unit, weights, ZINF_ROLE_QKV_W), NULL, (int64_t)qkv_cols(spec),
                         spec->hidden};
    struct linear proj = {weight(c, unit, weights, ZINF_ROLE_PROJ_W), NULL, spec->hidden,
                          (int64_t)attention_cols(spec)};
    attention.d_out = s->d_branch;
    attention.d_qkv = s->d_wide;
    if ((code = branch_gradient(c, unit, SITE_ATTENTION_OUT, d_x, s->branch, &d_out)) ||
        (code = linear_backward_weight(c, &proj, d_out, kept->attention,
                                       grad(unit, grads, ZINF_ROLE_PROJ_W),
                                       grad(unit, grads, ZINF_ROLE_PROJ_B))) ||
        (code = linear_backward_input(c, &proj, d_out, s->d_branch)) ||
        (code = ops->attention_backward(c->queue, &attention)) ||
        (code = ops->norm_forward(c->queue, &norm)) ||
        (code =
             linear_backward_weight(c, &qkv, s->d_wide, s->norm, grad(unit, grads, ZINF_ROLE_QKV_W),
                                    grad(unit, grads, ZINF_ROLE_QKV_B))) ||
        (code = linear_backward_input(c, &qkv, s->d_wide, s->branch)))
        return code;
    return norm_backward(c, norm, unit, grads, 1, s->branch, d_x);
}

int zinf_block_backward(const struct zinf_gpt2_compute *c, const struct zinf_unit_spec *unit,
                        const void *weights, float *grads, const void *x_in, void *d_x,
                        const struct zinf_block_kept *kept, const struct zinf_block_scratch *s)
{
    int code = zero_gaps(c, unit, grads);
    if (!code)
        code = backward_mlp(c, unit, weights, grads, d_x, kept, s);
    if (!code)
        code = backward_attention(c, unit, weights, grads, x_in, d_x, kept, s);
    return code;
}
