/*
 * stage_shared: out = x + s * down(act(gate(n)) * up(n)) with s = sigmoid(g n) of each row: the
 * expert that every row has beside those that it chooses (Qwen Team, arXiv 2407.10671). The sigmoid
 * of a number is its part of a softmax with 0, so that a choice of two from two gives it, and its
 * gradient. As with the other experts nothing is kept, and a row's weight is applied to the
 * activation in backward. Without a g the weight is 1 (DeepSeek-AI, arXiv 2401.06066).
 */
#include "model/stages/stages.h"

enum { PAIR = 2 }; /* columns of the softmax: g n, and 0 */

/* What both passes make of n. */
struct made {
    const struct shared_spec *s;
    struct frame_linear up, down;
    void *gate_up, *act;     /* [rows][2 ffn], [rows][ffn] */
    float *logits, *weights; /* [rows][PAIR] */
};

/* Its parts, as those of a feed-forward part. */
static struct mlp_spec mlp_of(const struct shared_spec *s)
{
    return (struct mlp_spec){.ffn = s->ffn, .activation = s->activation, .gated = !s->plain};
}

static struct zinf_route route_args(const struct zinf_frame *f, const struct made *m)
{
    return (struct zinf_route){
        .rows = frame_rows(f),
        .cols = PAIR,
        .n_chosen = PAIR,
        .logits = m->logits,
        .weights = m->weights,
        .d_logits = m->logits,
    };
}

static struct zinf_rows add_args(const struct zinf_frame *f, const void *x, void *y)
{
    const struct shared_spec *s = f->stage->spec;
    return (struct zinf_rows){
        .n = frame_rows(f),
        .cols = s->hidden,
        .x_dtype = f->compute->dtype,
        .y_dtype = f->compute->dtype,
        .x = x,
        .y = y,
    };
}

static bool is_scaled(const struct shared_spec *s)
{
    return s->gate_w < 0 && s->scale != 0 && s->scale != 1;
}

/* y = scale r, or scale r is added to y. */
static int scale_rows(struct zinf_frame *f, const void *r, void *y, bool add)
{
    const struct shared_spec *s = f->stage->spec;
    struct zinf_residual args = {.dtype = f->compute->dtype,
                                 .n = frame_rows(f) * s->hidden,
                                 .x = y,
                                 .r = r,
                                 .y = y,
                                 .scale = s->scale};
    return add ? frame_residual(f, &args) : frame_dropout(f, &args);
}

/* The rows' weights. */
static int weigh(struct zinf_frame *f, const struct made *m)
{
    struct zinf_matmul gate = {
        .m = frame_rows(f),
        .n = 1,
        .k = m->s->hidden,
        .a = f->in[1],
        .b = frame_weight(f, 0, m->s->gate_w),
        .c = m->logits,
        .a_dtype = f->compute->dtype,
        .b_dtype = f->compute->dtype,
        .c_dtype = ZINF_DTYPE_F32,
        .trans_b = true,
        .lda = m->s->hidden,
        .ldb = m->s->hidden,
        .ldc = PAIR,
    };
    struct zinf_route route = route_args(f, m);
    int code = frame_zero(f, m->logits, (uint64_t)gate.m * PAIR * sizeof(float));
    if (!code)
        code = frame_matmul(f, &gate);
    return code ? code : frame_route(f, &route);
}

static int make(struct zinf_frame *f, struct made *m)
{
    const struct shared_spec *s = f->stage->spec;
    const uint64_t rows = (uint64_t)frame_rows(f), wide = rows * (uint64_t)s->ffn * frame_width(f);
    *m = (struct made){
        .s = s, .up = {.weight = s->up_w, .bias = -1}, .down = {.weight = s->down_w, .bias = -1}};
    const struct mlp_spec mlp = mlp_of(s);
    m->gate_up = frame_scratch(f, (s->plain ? 1 : 2) * wide);
    m->act = frame_scratch(f, wide);
    m->logits = frame_scratch(f, rows * PAIR * sizeof(float));
    m->weights = frame_scratch(f, rows * PAIR * sizeof(float));
    int code = frame_linear(f, &m->up, f->in[1], m->gate_up);
    if (!code)
        code = mlp_activate(f, &mlp, m->gate_up, m->act);
    return code || s->gate_w < 0 ? code : weigh(f, m);
}

static int forward(struct zinf_frame *f)
{
    const struct shared_spec *s = f->stage->spec;
    const uint64_t bytes = frame_rows_bytes(f, s->hidden);
    struct made m;
    void *y = frame_scratch(f, bytes);
    struct zinf_rows add = add_args(f, y, f->out[0]);
    int code = frame_copy(f, f->out[0], f->in[0], bytes);
    if (code || (code = make(f, &m)) || (code = frame_linear(f, &m.down, m.act, y)))
        return code;
    if (is_scaled(s))
        return scale_rows(f, y, f->out[0], true);
    add.scale = s->gate_w < 0 ? NULL : m.weights;
    add.scale_ld = PAIR;
    return frame_scatter(f, &add);
}

/* From the gradient at the result: that of the activation, which is d_act then, of the rows'
 * weights, and of the last matrix. */
static int down_backward(struct zinf_frame *f, const struct made *m, void *d_act, float *d_weights)
{
    const uint64_t bytes = frame_rows_bytes(f, m->s->hidden);
    void *scaled = is_scaled(m->s) ? frame_scratch(f, bytes) : NULL;
    const void *d_out = is_scaled(m->s) ? scaled : f->d_out[0];
    struct zinf_weigh weigh = {
        .n = frame_rows(f),
        .cols = m->s->ffn,
        .ld = PAIR,
        .dtype = f->compute->dtype,
        .a = d_act,
        .b = m->act,
        .weights = m->weights,
        .d_weights = d_weights,
    };
    const bool weighed = m->s->gate_w >= 0;
    int code = weighed ? frame_zero(f, d_weights, (uint64_t)weigh.n * PAIR * sizeof(float)) : 0;
    if (!code && is_scaled(m->s))
        code = scale_rows(f, f->d_out[0], scaled, false);
    if (!code)
        code = frame_linear_backward_input(f, &m->down, d_out, d_act);
    if (!code && weighed)
        code = frame_weigh(f, &weigh);
    return code ? code : frame_linear_backward_weight(f, &m->down, d_out, m->act);
}

/* And on to n. */
static int up_backward(struct zinf_frame *f, const struct made *m, void *d_act)
{
    const struct mlp_spec mlp = mlp_of(m->s);
    void *d_up = m->s->plain ? d_act : m->gate_up, *act = m->s->plain ? NULL : d_act;
    int code = mlp_activate_backward(f, &mlp, m->gate_up, d_up, act, NULL);
    if (!code)
        code = frame_linear_backward_weight(f, &m->up, d_up, f->in[1]);
    if (code || !f->d_in[1])
        return code;
    void *d_n = frame_scratch(f, frame_rows_bytes(f, m->s->hidden));
    struct zinf_rows add = add_args(f, d_n, f->d_in[1]);
    add.y_dtype = ZINF_DTYPE_F32;
    code = frame_linear_backward_input(f, &m->up, d_up, d_n);
    return code ? code : frame_scatter(f, &add);
}

static int gate_backward(struct zinf_frame *f, const struct made *m, const float *d_weights)
{
    struct zinf_route route = route_args(f, m);
    struct zinf_matmul vector = {
        .m = 1,
        .n = m->s->hidden,
        .k = frame_rows(f),
        .a = m->logits,
        .b = f->in[1],
        .c = frame_grad(f, 0, m->s->gate_w),
        .a_dtype = ZINF_DTYPE_F32,
        .b_dtype = f->compute->dtype,
        .c_dtype = ZINF_DTYPE_F32,
        .trans_a = true,
        .lda = PAIR,
        .ldb = m->s->hidden,
        .ldc = m->s->hidden,
    };
    struct zinf_matmul input = vector;
    input.m = frame_rows(f);
    input.k = 1;
    input.b = frame_weight(f, 0, m->s->gate_w);
    input.c = f->d_in[1];
    input.trans_a = false;
    input.beta = 1;
    route.d_weights = d_weights;
    int code = frame_route_backward(f, &route);
    if (!code && vector.c)
        code = frame_matmul(f, &vector);
    return code || !input.c ? code : frame_matmul(f, &input);
}

/* n's gradient begins as zero where no stage behind has added to it. */
static int start_gradients(struct zinf_frame *f, void **d_x)
{
    const struct shared_spec *s = f->stage->spec;
    const uint64_t floats = (uint64_t)(frame_rows(f) * s->hidden);
    int code = part_start_gradient(f, s->hidden, d_x);
    if (!code && f->d_in[1] && !f->d_in_adds[1])
        code = frame_zero(f, f->d_in[1], floats * sizeof(float));
    return code ? code : frame_zero_gaps(f, 0);
}

static int backward(struct zinf_frame *f)
{
    const struct shared_spec *s = f->stage->spec;
    const uint64_t rows = (uint64_t)frame_rows(f);
    void *d_act = frame_scratch(f, rows * (uint64_t)s->ffn * frame_width(f)), *d_x;
    float *d_weights = frame_scratch(f, rows * PAIR * sizeof(float));
    struct made m;
    int code = start_gradients(f, &d_x);
    if (code || (code = make(f, &m)) || (code = down_backward(f, &m, d_act, d_weights)) ||
        (code = up_backward(f, &m, d_act)) ||
        (s->gate_w >= 0 && (code = gate_backward(f, &m, d_weights))))
        return code;
    return part_finish_gradient(f, s->hidden, d_x);
}

const struct zinf_stage_ops zinf_stage_shared = {
    .name = "shared",
    .passes = true,
    .forward = forward,
    .backward = backward,
};
