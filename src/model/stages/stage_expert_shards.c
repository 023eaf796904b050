/*
 * stage_expert_shards: stage_experts.c, each expert cut as tensor parallel cuts a feed-forward
 * part: out = x + for each expert, weight * sum over shards of act(n Wup_s^T) Wd_s of the rows n
 * that chose it, and backward a sum over shards in front of the rows' product. A row's weight is
 * applied to the sum in forward and to the activations in backward; its gradient is then a sum over
 * the expert's columns, and that of shards one of their parts. The bias behind the sum, which all
 * ranks have, is the first shard's in both. Rows choose by numbers that all ranks have, so that all
 * make the same sums. Where weights are of the rows that an expert is given, they are applied to
 * these, and their gradient is made behind the sum over shards, by every rank. An expert's factor
 * is applied to the activations, so that its gradient is a sum over shards, too.
 */
#include "model/frame_adapter.h"
#include "model/shards.h"

/* Room for one number, which ranks can share evenly. */
enum { FACTOR_ELEMS = ZINF_MOST_SHARDS };

/* What a visit works on. */
struct visit {
    const struct experts_spec *s;
    uint32_t unit;
    int64_t ffn, up_cols; /* of a shard */
    void *n;              /* [n_chosen][hidden] */
    void *rows;           /* the same without weights, where these are of the rows */
    void *up[ZINF_MOST_SHARDS], *act[ZINF_MOST_SHARDS];
    void *scaled[ZINF_MOST_SHARDS]; /* act times the expert's factor, or act itself */
    /* backward */
    const void *d_y;   /* [n_chosen][hidden] */
    void *d_act;       /* [n_chosen][ffn], of one shard at a time */
    float *weights;    /* [n_chosen] */
    float *of_weights; /* their gradient, or a shard's part; [n_chosen] and a gap */
    float *of_bias;    /* the part of the bias behind the sum; the same */
    float *of_factor;  /* [shards][FACTOR_ELEMS]: parts of the factor's gradient, or NULL */
};

static uint64_t row_bytes(const struct zinf_frame *f, int64_t cols)
{
    return (uint64_t)(f->n_chosen * cols) * frame_width(f);
}

static struct visit start(struct zinf_frame *f)
{
    const struct experts_spec *s = f->stage->spec;
    struct visit v = {
        .s = s, .unit = f->stage->units.n, .ffn = s->ffn / (int64_t)f->graph->shards.of};
    v.up_cols = s->plain ? v.ffn : 2 * v.ffn;
    v.n = frame_scratch(f, row_bytes(f, s->hidden));
    v.rows = s->weighs_rows ? frame_scratch(f, row_bytes(f, s->hidden)) : NULL;
    for (uint32_t i = 0; i < f->graph->shards.n; i++) {
        v.up[i] = frame_scratch(f, row_bytes(f, v.up_cols));
        v.act[i] = frame_scratch(f, row_bytes(f, v.ffn));
        v.scaled[i] = s->factor < 0 ? v.act[i] : frame_scratch(f, row_bytes(f, v.ffn));
    }
    return v;
}

static struct shard_product up(const struct visit *v, uint32_t shard)
{
    return (struct shard_product){.weight = shard_tensor(v->s->up_w, shard),
                                  .bias = shard_tensor(v->s->up_b, shard),
                                  .rows = v->up_cols,
                                  .ld = v->up_cols,
                                  .unit = v->unit};
}

/* The sum's first part has the bias. */
static struct shard_product down(const struct zinf_frame *f, const struct visit *v, uint32_t shard)
{
    const bool first = !(f->graph->shards.first + shard);
    return (struct shard_product){.weight = shard_tensor(v->s->down_w, shard),
                                  .bias = first ? v->s->down_b : -1,
                                  .rows = v->ffn,
                                  .ld = v->ffn,
                                  .unit = v->unit};
}

/* ---- a shard's activation ---- */

static struct zinf_gated gated_args(const struct zinf_frame *f, const struct visit *v,
                                    uint32_t shard)
{
    return (struct zinf_gated){
        .kind = v->s->activation,
        .dtype = f->compute->dtype,
        .rows = f->n_chosen,
        .cols = v->ffn,
        .x = v->up[shard],
        .y = v->act[shard],
    };
}

static int activate(struct zinf_frame *f, const struct visit *v, uint32_t shard)
{
    const struct zinf_gated gated = gated_args(f, v, shard);
    const struct shard_product p = up(v, shard);
    int code = shard_columns(f, &p, v->n, v->up[shard]);
    if (!code)
        code = v->s->plain ? frame_activation(f, v->s->activation, v->up[shard], v->act[shard],
                                              (uint64_t)(f->n_chosen * v->ffn))
                           : frame_gated(f, &gated);
    return code || v->s->factor < 0 ? code
                                    : experts_scale(f, v->ffn, v->act[shard], v->scaled[shard]);
}

/* This visit's column of the weights, or of their gradient. */
static float *column(const struct zinf_frame *f, const void *values)
{
    return (float *)(uintptr_t)values + (f->queue && values ? f->visit : 0);
}

/* The weights of all rows, and their gradient; NULL: it is not wanted. */
static const void *weights_of(const struct zinf_frame *f)
{
    return f->in[experts_weights_place(f->stage->spec)];
}

static float *d_weights_of(const struct zinf_frame *f)
{
    return f->d_in[experts_weights_place(f->stage->spec)];
}

/* The rows that chose the expert, of what the stage takes, to `to`. */
static struct zinf_rows rows_to(const struct zinf_frame *f, void *to)
{
    return experts_rows(f, f->in[experts_rows_place(f->stage->spec)], to);
}

/* Rows x of n, or their gradient, times their weights, and the gradient of these (NULL: it is not
 * wanted). */
static int weigh_rows(struct zinf_frame *f, const struct visit *v, void *x, float *d_weights)
{
    const struct zinf_rows gather = rows_to(f, v->rows);
    const struct zinf_weigh weigh = {.n = f->n_chosen,
                                     .cols = v->s->hidden,
                                     .ld = f->n_visits,
                                     .rows = f->chosen,
                                     .dtype = f->compute->dtype,
                                     .a = x,
                                     .b = v->rows,
                                     .weights = column(f, weights_of(f)),
                                     .d_weights = d_weights};
    int code = frame_gather(f, &gather);
    return code ? code : frame_weigh(f, &weigh);
}

/* The rows that chose the expert, and all shards' activations of them. */
static int activate_all(struct zinf_frame *f, const struct visit *v)
{
    const struct zinf_rows gather = rows_to(f, v->n);
    int code = frame_gather(f, &gather);
    if (!code && v->s->weighs_rows)
        code = weigh_rows(f, v, v->n, NULL);
    for (uint32_t i = 0; !code && i < f->graph->shards.n; i++)
        code = activate(f, v, i);
    return code;
}

/* ---- forward ---- */

static int make_down(struct zinf_frame *f, const void *call, uint32_t shard, float *out)
{
    const struct visit *v = call;
    const struct shard_product p = down(f, v, shard);
    return shard_depth(f, &p, v->scaled[shard], out);
}

static int forward(struct zinf_frame *f)
{
    int code = f->visit ? 0 : experts_start_sum(f);
    if (code || !f->n_chosen)
        return code;
    const struct visit v = start(f);
    const struct shard_sum sum = {make_down, &v, (uint64_t)(f->n_chosen * v.s->hidden)};
    float *total = frame_scratch(f, sum.elems * sizeof *total);
    struct zinf_rows scatter = experts_rows(f, NULL, f->out[0]);
    void *y;
    if (!v.s->weighs_rows) {
        scatter.scale = column(f, weights_of(f));
        scatter.scale_ld = f->n_visits;
    }
    if ((code = activate_all(f, &v)) || (code = shard_sum(f, &sum, total)) ||
        (code = shard_narrow(f, total, sum.elems, &y)))
        return code;
    scatter.x = y;
    return frame_scatter(f, &scatter);
}

/* ---- backward ---- */

/* Room for one number a row, which ranks can share evenly. */
static uint64_t weight_elems(const struct zinf_frame *f)
{
    return zinf_align_up((uint64_t)f->n_chosen, ZINF_MOST_SHARDS);
}

/* Of all visits' weights of the rows that chose this one, this one's. */
static int take_weights(struct zinf_frame *f, const struct visit *v)
{
    const uint64_t mark = frame_mark(f), all = (uint64_t)(f->n_chosen * f->n_visits);
    float *rows = frame_scratch(f, all * sizeof *rows);
    struct zinf_rows gather = experts_rows(f, weights_of(f), rows);
    gather.cols = f->n_visits;
    gather.x_dtype = gather.y_dtype = ZINF_DTYPE_F32;
    const struct zinf_heads pick = {.dtype = ZINF_DTYPE_F32,
                                    .rows = f->n_chosen,
                                    .n_heads = 1,
                                    .cols = 1,
                                    .x = column(f, rows),
                                    .x_ld = f->n_visits,
                                    .y = v->weights,
                                    .y_ld = 1};
    int code = frame_gather(f, &gather);
    if (!code)
        code = frame_heads(f, &pick);
    frame_release(f, mark);
    return code;
}

/* And their gradient to its place. */
static int put_weights(struct zinf_frame *f, const float *gradient)
{
    const uint64_t mark = frame_mark(f);
    const uint64_t bytes = (uint64_t)(f->n_chosen * f->n_visits) * sizeof(float);
    float *rows = frame_scratch(f, bytes);
    struct zinf_rows scatter = experts_rows(f, rows, d_weights_of(f));
    scatter.cols = f->n_visits;
    scatter.x_dtype = scatter.y_dtype = ZINF_DTYPE_F32;
    const struct zinf_heads spread = {.dtype = ZINF_DTYPE_F32,
                                      .rows = f->n_chosen,
                                      .n_heads = 1,
                                      .cols = 1,
                                      .x = gradient,
                                      .x_ld = 1,
                                      .y = column(f, rows),
                                      .y_ld = f->n_visits};
    int code = frame_zero(f, rows, bytes);
    if (!code)
        code = frame_heads(f, &spread);
    if (!code)
        code = frame_scatter(f, &scatter);
    frame_release(f, mark);
    return code;
}

/* Of the bias behind the sum: its part of the weights' gradient, d_y bias^T, and its own, the sum
 * of weighed rows. */
static int bias_backward(struct zinf_frame *f, const struct visit *v)
{
    const int64_t hidden = v->s->hidden;
    const uint64_t mark = frame_mark(f);
    float *db = frame_grad(f, v->unit, v->s->down_b);
    void *weighed = frame_scratch(f, row_bytes(f, hidden));
    void *other = frame_scratch(f, row_bytes(f, hidden));
    struct zinf_matmul dot = frame_product(f);
    dot.m = f->n_chosen;
    dot.n = dot.ldc = 1;
    dot.k = dot.lda = dot.ldb = hidden;
    dot.a = v->d_y;
    dot.b = frame_weight(f, v->unit, v->s->down_b);
    dot.c = v->of_bias;
    dot.c_dtype = ZINF_DTYPE_F32;
    dot.trans_b = true;
    const struct zinf_weigh weigh = {.n = f->n_chosen,
                                     .cols = hidden,
                                     .ld = 1,
                                     .dtype = f->compute->dtype,
                                     .a = weighed,
                                     .b = other,
                                     .weights = v->weights};
    int code = frame_zero(f, v->of_bias, weight_elems(f) * sizeof *v->of_bias);
    if (!code)
        code = frame_matmul(f, &dot);
    if (!code && db)
        code = frame_copy(f, weighed, v->d_y, row_bytes(f, hidden));
    if (!code && db)
        code = frame_zero(f, other, row_bytes(f, hidden));
    if (!code && db)
        code = frame_weigh(f, &weigh);
    if (!code && db)
        code = frame_column_sum(f, db, weighed, f->compute->dtype, f->n_chosen, hidden);
    frame_release(f, mark);
    return code;
}

static int add_bias_part(struct zinf_frame *f, const struct visit *v, float *out)
{
    const struct zinf_residual args = {.dtype = ZINF_DTYPE_F32,
                                       .n = (int64_t)weight_elems(f),
                                       .x = out,
                                       .r = v->of_bias,
                                       .y = out};
    return frame_residual(f, &args);
}

/* A shard's part of the factor's gradient, and d_act becomes that at its activation. */
static int leave_factor(struct zinf_frame *f, const struct visit *v, uint32_t shard)
{
    int code = v->of_factor ? experts_factor_gradient(f, v->ffn, v->d_act, v->act[shard],
                                                      v->of_factor + shard * FACTOR_ELEMS)
                            : 0;
    return code ? code : experts_scale(f, v->ffn, v->d_act, v->d_act);
}

/* A shard's d_up, in the place of up where there is a gate, and its part of the weights' gradient;
 * what down takes becomes weighed. */
static int leave(struct zinf_frame *f, const void *call, uint32_t shard, float *out)
{
    const struct visit *v = call;
    const struct shard_product p = down(f, v, shard);
    struct zinf_gated gated = gated_args(f, v, shard);
    void *d_up = v->up[shard];
    const struct zinf_weigh weigh = {.n = f->n_chosen,
                                     .cols = v->ffn,
                                     .ld = 1,
                                     .dtype = f->compute->dtype,
                                     .a = v->d_act,
                                     .b = v->scaled[shard],
                                     .weights = v->weights,
                                     .d_weights = out};
    gated.dy = v->d_act;
    gated.dx = d_up;
    int code = frame_zero(f, out, weight_elems(f) * sizeof *out);
    if (!code)
        code = shard_depth_input(f, &p, v->d_y, v->d_act);
    if (!code && !v->s->weighs_rows)
        code = frame_weigh(f, &weigh);
    if (!code && p.bias >= 0)
        code = add_bias_part(f, v, out);
    if (!code)
        code = shard_depth_weight(f, &p, v->scaled[shard], v->d_y);
    if (!code && v->s->factor >= 0)
        code = leave_factor(f, v, shard);
    if (code || !v->s->plain)
        return code ? code : frame_gated_backward(f, &gated);
    return frame_activation_backward(f, v->s->activation, v->d_act, v->up[shard], d_up, NULL,
                                     (uint64_t)(f->n_chosen * v->ffn));
}

static int make_input(struct zinf_frame *f, const void *call, uint32_t shard, float *out)
{
    const struct visit *v = call;
    const struct shard_product p = up(v, shard);
    return shard_columns_input(f, &p, v->up[shard], out, 0);
}

static int up_weight(struct zinf_frame *f, const struct visit *v, uint32_t shard)
{
    const struct shard_product p = up(v, shard);
    float *dw = frame_grad(f, p.unit, p.weight), *db = frame_grad(f, p.unit, p.bias);
    int code = dw ? shard_columns_weight(f, &p, v->up[shard], v->n, dw) : 0;
    return code || !db
               ? code
               : frame_column_sum(f, db, v->up[shard], f->compute->dtype, f->n_chosen, v->up_cols);
}

static int activation(struct zinf_frame *f, const void *call, uint32_t shard, const void **x)
{
    const struct visit *v = call;
    (void)f;
    *x = v->scaled[shard];
    return 0;
}

/* Adapters of the expert, in what all shards have. */
static int adapters(struct zinf_frame *f, const struct visit *v)
{
    struct shard_product ups[ZINF_MOST_SHARDS], downs[ZINF_MOST_SHARDS];
    for (uint32_t i = 0; i < f->graph->shards.n; i++) {
        ups[i] = up(v, i);
        downs[i] = down(f, v, i);
    }
    const struct shard_adapters in = {
        .p = ups, .dy = (const void *const *)v->up, .x = v->n, .per_weight = 1};
    const struct shard_adapters out = {.p = downs, .dy = &v->d_y, .input = activation, .call = v};
    int code = shard_columns_adapt_weights(f, &in);
    return code ? code : shard_depth_adapt_weights(f, &out);
}

/* x goes to out as it is; what experts add to begins as zero. */
static int start_gradients(struct zinf_frame *f)
{
    const struct experts_spec *s = f->stage->spec;
    const uint64_t rows = (uint64_t)frame_rows(f) * sizeof(float);
    const uint32_t at = experts_rows_place(s);
    const uint64_t cols[] = {(uint64_t)s->hidden, f->n_visits};
    int code = 0;
    for (uint32_t i = 0; !code && i < 2; i++)
        if (f->d_in[at + i] && !f->d_in_adds[at + i])
            code = frame_zero(f, f->d_in[at + i], rows * cols[i]);
    return code || s->alone ? code : part_pass_gradient(f, s->hidden);
}

/* To the rows of n. */
static int enter_backward(struct zinf_frame *f, const struct visit *v)
{
    const struct shard_sum sum = {make_input, v, (uint64_t)(f->n_chosen * v->s->hidden)};
    float *total = frame_scratch(f, sum.elems * sizeof *total);
    float *d_rows = f->d_in[experts_rows_place(v->s)];
    struct zinf_rows scatter = experts_rows(f, total, d_rows);
    scatter.x_dtype = scatter.y_dtype = ZINF_DTYPE_F32;
    void *d_n;
    int code = d_rows ? shard_sum(f, &sum, total) : 0;
    if (code || !d_rows)
        return code;
    if (v->s->weighs_rows) {
        code = shard_narrow(f, total, sum.elems, &d_n);
        if (!code)
            code = weigh_rows(f, v, d_n, column(f, d_weights_of(f)));
        scatter.x = d_n;
        scatter.x_dtype = f->compute->dtype;
    }
    return code ? code : frame_scatter(f, &scatter);
}

/* The gradient of the expert's factor, of all shards' columns. */
static int put_factor(struct zinf_frame *f, const struct visit *v)
{
    const uint64_t mark = frame_mark(f);
    float *total = frame_scratch(f, FACTOR_ELEMS * sizeof *total);
    int code = shard_sum_found(f, v->of_factor, FACTOR_ELEMS, total);
    if (!code)
        code = frame_copy(f, frame_grad(f, v->unit, v->s->factor), total, sizeof *total);
    frame_release(f, mark);
    return code;
}

/* Gradients of all shards' activations, and that of the rows' weights. */
static int leave_all(struct zinf_frame *f, struct visit *v)
{
    const struct shard_sum sum = {leave, v, weight_elems(f)};
    int code = take_weights(f, v);
    if (!code && v->s->down_b >= 0)
        code = bias_backward(f, v);
    if (!code && !v->s->weighs_rows)
        code = shard_sum(f, &sum, v->of_weights);
    for (uint32_t i = 0; !code && v->s->weighs_rows && i < f->graph->shards.n; i++)
        code = leave(f, v, i, v->of_weights); /* nothing of theirs */
    if (!code && v->of_factor)
        code = put_factor(f, v);
    return code || v->s->weighs_rows || !d_weights_of(f) ? code : put_weights(f, v->of_weights);
}

static int visit_backward(struct zinf_frame *f)
{
    struct visit v = start(f);
    void *d_y = frame_scratch(f, row_bytes(f, v.s->hidden));
    const uint64_t numbers = weight_elems(f) * sizeof(float);
    const uint64_t factors = f->graph->shards.n * FACTOR_ELEMS * sizeof(float);
    const struct zinf_rows gather = experts_rows(f, f->d_out[0], d_y);
    v.d_y = d_y;
    v.d_act = frame_scratch(f, row_bytes(f, v.ffn));
    v.weights = frame_scratch(f, numbers);
    v.of_weights = frame_scratch(f, numbers);
    v.of_bias = v.s->down_b < 0 ? NULL : frame_scratch(f, numbers);
    v.of_factor = frame_grad(f, v.unit, v.s->factor) ? frame_scratch(f, factors) : NULL;
    int code = activate_all(f, &v);
    if (!code && v.of_factor)
        code = frame_zero(f, v.of_factor, factors);
    if (!code)
        code = frame_gather(f, &gather);
    if (!code)
        code = leave_all(f, &v);
    for (uint32_t i = 0; !code && i < f->graph->shards.n; i++)
        code = up_weight(f, &v, i);
    if (!code)
        code = adapters(f, &v);
    return code ? code : enter_backward(f, &v);
}

static int backward(struct zinf_frame *f)
{
    const uint32_t unit = f->stage->units.n;
    int code = f->visit ? 0 : start_gradients(f);
    if (!code)
        code = f->n_chosen ? frame_zero_gaps(f, unit) : frame_zero_grads(f, unit);
    if (!code && !f->n_chosen)
        code = frame_zero_adapters(f, unit);
    return code || !f->n_chosen ? code : visit_backward(f);
}

const struct zinf_stage_ops zinf_stage_expert_shards = {
    .name = "expert_shards",
    .passes = true,
    .forward = forward,
    .backward = backward,
};
const struct zinf_stage_ops zinf_stage_expert_shards_alone = {
    .name = "expert_shards",
    .forward = forward,
    .backward = backward,
};
