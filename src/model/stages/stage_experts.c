/*
 * stage_experts: out = x + for each expert, weight * down(act(gate(n)) * up(n)), or without a gate
 * weight * down(act(up(n))), of the rows n that chose it. A visit is an expert; they come in the
 * same order in every step, so that a row's sum does. A row's weight is applied to the result in
 * forward, and to the activation, which is as good, in backward: then its gradient needs no second
 * product with the expert's last matrix. Where that has a bias the weight is of both, and the
 * product is made again. Where weights are of the rows themselves, these are gathered once more for
 * the weights' gradient. An expert's factor, too, is applied to the activation. Nothing is kept:
 * gate and up are made again from n while their weights are at hand.
 */
#include "model/stages/stages.h"

/* What a visit works on: [n_chosen][...]. */
struct visit {
    const struct experts_spec *s;
    struct frame_linear up, down;
    uint64_t row; /* bytes of a column */
    void *n, *gate_up, *act;
    void *rows;   /* as n, where weights are of the rows: these without them */
    void *scaled; /* act times the expert's factor, or act itself */
};

static struct visit start(struct zinf_frame *f)
{
    const struct experts_spec *s = f->stage->spec;
    uint32_t unit = f->stage->units.n;
    struct visit v = {
        .s = s,
        .up = {.unit = unit, .weight = s->up_w, .bias = s->up_b},
        .down = {.unit = unit, .weight = s->down_w, .bias = s->down_b},
        .row = (uint64_t)f->n_chosen * frame_width(f),
    };
    v.n = frame_scratch(f, v.row * (uint64_t)s->hidden);
    v.gate_up = frame_scratch(f, (s->plain ? 1 : 2) * v.row * (uint64_t)s->ffn);
    v.act = frame_scratch(f, v.row * (uint64_t)s->ffn);
    v.scaled = s->factor < 0 ? v.act : frame_scratch(f, v.row * (uint64_t)s->ffn);
    v.rows = s->weighs_rows ? frame_scratch(f, v.row * (uint64_t)s->hidden) : NULL;
    return v;
}

struct zinf_rows experts_rows(const struct zinf_frame *f, const void *x, void *y)
{
    const struct experts_spec *s = f->stage->spec;
    return (struct zinf_rows){
        .n = f->n_chosen,
        .cols = s->hidden,
        .rows = f->chosen,
        .x_dtype = f->compute->dtype,
        .y_dtype = f->compute->dtype,
        .x = x,
        .y = y,
    };
}

/* This visit's column of the weights, or of their gradient. */
static float *column(const struct zinf_frame *f, const void *values)
{
    return f->queue && values ? (float *)values + f->visit : (float *)values;
}

static struct zinf_gated gated_args(const struct zinf_frame *f, const struct visit *v)
{
    return (struct zinf_gated){
        .kind = v->s->activation,
        .dtype = f->compute->dtype,
        .rows = f->n_chosen,
        .cols = v->s->ffn,
        .x = v->gate_up,
        .y = v->act,
    };
}

static uint64_t act_elems(const struct zinf_frame *f, const struct visit *v)
{
    return (uint64_t)(f->n_chosen * v->s->ffn);
}

/* The weights of rows, whose result b was before they were applied, and whose gradient a is without
 * them. */
static struct zinf_weigh weigh_args(const struct zinf_frame *f)
{
    const uint32_t place = experts_weights_place(f->stage->spec);
    return (struct zinf_weigh){
        .n = f->n_chosen,
        .ld = f->n_visits,
        .rows = f->chosen,
        .dtype = f->compute->dtype,
        .weights = column(f, f->in[place]),
        .d_weights = column(f, f->d_in[place]),
    };
}

/* Rows x of n, or their gradient, times their weights, and the gradient of these (NULL: it is not
 * wanted). */
static int weigh_rows(struct zinf_frame *f, const struct visit *v, void *x, float *d_weights)
{
    const struct zinf_rows gather = experts_rows(f, f->in[experts_rows_place(v->s)], v->rows);
    struct zinf_weigh weigh = weigh_args(f);
    weigh.cols = v->s->hidden;
    weigh.a = x;
    weigh.b = v->rows;
    weigh.d_weights = d_weights;
    int code = frame_gather(f, &gather);
    return code ? code : frame_weigh(f, &weigh);
}

/* ---- the expert's factor ---- */

int experts_scale(struct zinf_frame *f, int64_t cols, const void *x, void *y)
{
    const struct experts_spec *s = f->stage->spec;
    return part_scale_by(
        f, f->stage->units.n, s->factor,
        &(struct zinf_column_scale){
            .dtype = f->compute->dtype, .rows = f->n_chosen, .cols = cols, .x = x, .y = y});
}

int experts_factor_gradient(struct zinf_frame *f, int64_t cols, const void *d_act, const void *act,
                            float *d_factor)
{
    const uint64_t floats = (uint64_t)cols * sizeof(float), start = frame_mark(f);
    float *ones = frame_scratch(f, floats), *sums = frame_scratch(f, floats);
    const struct zinf_magnitude make_ones = {.rows = cols, .norm = ones, .gain = sums};
    const struct zinf_column_dot dot = {.dtype = f->compute->dtype,
                                        .rows = f->n_chosen,
                                        .cols = cols,
                                        .ld = cols,
                                        .x = d_act,
                                        .y = act,
                                        .norm = ones,
                                        .sum = sums};
    int code = frame_row_norms(f, &make_ones);
    if (!code)
        code = frame_dot_columns(f, &dot);
    if (!code)
        code = frame_column_sum(f, d_factor, sums, ZINF_DTYPE_F32, cols, 1);
    frame_release(f, start);
    return code;
}

/* From d_act, the weighed gradient of the scaled activation, to the factor's and the activation's
 * own. */
static int factor_backward(struct zinf_frame *f, const struct visit *v, void *d_act)
{
    float *d_factor = frame_grad(f, f->stage->units.n, v->s->factor);
    int code = d_factor ? experts_factor_gradient(f, v->s->ffn, d_act, v->act, d_factor) : 0;
    return code ? code : experts_scale(f, v->s->ffn, d_act, d_act);
}

/* ---- the visit ---- */

/* The rows that chose the expert, and its activation of them. */
static int activate(struct zinf_frame *f, const struct visit *v)
{
    struct zinf_rows gather = experts_rows(f, f->in[experts_rows_place(v->s)], v->n);
    struct zinf_gated gated = gated_args(f, v);
    int code = frame_gather(f, &gather);
    if (!code && v->s->weighs_rows)
        code = weigh_rows(f, v, v->n, NULL);
    if (!code)
        code = frame_linear(f, &v->up, v->n, v->gate_up);
    if (!code)
        code = v->s->plain
                   ? frame_activation(f, v->s->activation, v->gate_up, v->act, act_elems(f, v))
                   : frame_gated(f, &gated);
    return code || v->s->factor < 0 ? code : experts_scale(f, v->s->ffn, v->act, v->scaled);
}

static uint64_t x_bytes(const struct zinf_frame *f)
{
    const struct experts_spec *s = f->stage->spec;
    return frame_rows_bytes(f, s->hidden);
}

int experts_start_sum(struct zinf_frame *f)
{
    const struct experts_spec *s = f->stage->spec;
    return s->alone ? frame_zero(f, f->out[0], x_bytes(f))
                    : frame_copy(f, f->out[0], f->in[0], x_bytes(f));
}

static int forward(struct zinf_frame *f)
{
    int code = f->visit ? 0 : experts_start_sum(f);
    if (code || !f->n_chosen)
        return code;
    struct visit v = start(f);
    struct zinf_rows scatter = experts_rows(f, v.n, f->out[0]);
    if (!v.s->weighs_rows) {
        scatter.scale = column(f, f->in[experts_weights_place(v.s)]);
        scatter.scale_ld = f->n_visits;
    }
    if ((code = activate(f, &v)) || (code = frame_linear(f, &v.down, v.scaled, v.n)))
        return code;
    return frame_scatter(f, &scatter);
}

/* x goes to out as it is; what experts add to begins as zero. */
static int start_gradients(struct zinf_frame *f)
{
    const struct experts_spec *s = f->stage->spec;
    const uint32_t rows = experts_rows_place(s);
    const uint64_t bytes = (uint64_t)(frame_rows(f) * s->hidden) * sizeof(float);
    int code = f->d_in[rows] && !f->d_in_adds[rows] ? frame_zero(f, f->d_in[rows], bytes) : 0;
    return code || s->alone ? code : part_pass_gradient(f, s->hidden);
}

/* As below, with a bias. */
static int biased_down_backward(struct zinf_frame *f, const struct visit *v, void *d_y, void *d_act)
{
    struct zinf_rows gather = experts_rows(f, f->d_out[0], d_y);
    struct zinf_weigh weigh = weigh_args(f);
    void *y = frame_scratch(f, v->row * (uint64_t)v->s->hidden);
    weigh.cols = v->s->hidden;
    weigh.a = d_y;
    weigh.b = y;
    int code = frame_gather(f, &gather);
    if (!code)
        code = frame_linear(f, &v->down, v->act, y);
    if (!code)
        code = frame_weigh(f, &weigh);
    if (!code)
        code = frame_linear_backward_input(f, &v->down, d_y, d_act);
    return code ? code : frame_linear_backward_weight(f, &v->down, d_y, v->act);
}

/* From the gradient at the expert's result: that of the activation, of the rows' weights, and of
 * the last matrix. d_y is [n_chosen][hidden], d_act [n_chosen][ffn]. */
static int down_backward(struct zinf_frame *f, const struct visit *v, void *d_y, void *d_act)
{
    struct zinf_rows gather = experts_rows(f, f->d_out[0], d_y);
    struct zinf_weigh weigh = weigh_args(f);
    weigh.cols = v->s->ffn;
    weigh.a = d_act;
    weigh.b = v->scaled;
    int code = frame_gather(f, &gather);
    if (!code)
        code = frame_linear_backward_input(f, &v->down, d_y, d_act);
    if (!code && !v->s->weighs_rows)
        code = frame_weigh(f, &weigh);
    if (!code)
        code = frame_linear_backward_weight(f, &v->down, d_y, v->scaled);
    return code || v->s->factor < 0 ? code : factor_backward(f, v, d_act);
}

/* And on to the expert's rows of n. */
static int up_backward(struct zinf_frame *f, const struct visit *v, void *d_n, void *d_act)
{
    struct zinf_gated gated = gated_args(f, v);
    struct zinf_rows scatter = experts_rows(f, d_n, f->d_in[experts_rows_place(v->s)]);
    void *d_up = v->s->plain ? d_act : v->gate_up;
    gated.dy = d_act;
    gated.dx = d_up;
    scatter.y_dtype = ZINF_DTYPE_F32;
    int code = v->s->plain ? frame_activation_backward(f, v->s->activation, d_act, v->gate_up, d_up,
                                                       NULL, act_elems(f, v))
                           : frame_gated_backward(f, &gated);
    if (!code)
        code = frame_linear_backward_weight(f, &v->up, d_up, v->n);
    if (code || !f->d_in[experts_rows_place(v->s)])
        return code;
    code = frame_linear_backward_input(f, &v->up, d_up, d_n);
    if (!code && v->s->weighs_rows)
        code = weigh_rows(f, v, d_n, column(f, f->d_in[experts_weights_place(v->s)]));
    return code ? code : frame_scatter(f, &scatter);
}

static int backward(struct zinf_frame *f)
{
    uint32_t unit = f->stage->units.n;
    int code = f->visit ? 0 : start_gradients(f);
    if (!code)
        code = f->n_chosen ? frame_zero_gaps(f, unit) : frame_zero_grads(f, unit);
    if (!code && !f->n_chosen)
        code = frame_zero_adapters(f, unit);
    if (code || !f->n_chosen)
        return code;
    struct visit v = start(f);
    void *d_y = frame_scratch(f, v.row * (uint64_t)v.s->hidden);
    void *d_act = frame_scratch(f, v.row * (uint64_t)v.s->ffn);
    if ((code = activate(f, &v)) ||
        (code = (v.s->down_b < 0 ? down_backward : biased_down_backward)(f, &v, d_y, d_act)))
        return code;
    return up_backward(f, &v, d_y, d_act);
}

const struct zinf_stage_ops zinf_stage_experts = {
    .name = "experts",
    .passes = true,
    .forward = forward,
    .backward = backward,
};
const struct zinf_stage_ops zinf_stage_experts_alone = {
    .name = "experts",
    .forward = forward,
    .backward = backward,
};
