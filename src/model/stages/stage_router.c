/*
 * stage_router: the norm in front of experts, and which of them each row chooses. Nothing is kept:
 * norm and logits come again from the stage's input, which costs little beside the experts. The
 * choice may be by rows of a norm of its own.
 */
#include "model/stages/stages.h"

/* Sizes and what both passes make. */
struct made {
    struct zinf_norm norm, gate_norm;
    const void *rows; /* that the gate reads, [rows][hidden] */
    float *logits;    /* [rows][n_experts] */
};

/* What a norm leaves for its backward, which is not kept here. */
static struct norm_kept scratch_norm(struct zinf_frame *f, const struct norm_spec *s)
{
    uint64_t floats = (uint64_t)frame_rows(f) * sizeof(float);
    return (struct norm_kept){.mean = s->kind == ZINF_NORM_LAYER ? frame_scratch(f, floats) : NULL,
                              .rstd = frame_scratch(f, floats)};
}

/* The gate's rows, where they are not those that experts are given. */
static int make_gate_rows(struct zinf_frame *f, struct made *made)
{
    const struct router_spec *s = f->stage->spec;
    if (s->gate_norm.w < 0)
        return 0;
    made->gate_norm =
        part_norm(f, &s->gate_norm, s->hidden, f->in[0], scratch_norm(f, &s->gate_norm));
    made->rows = made->gate_norm.y = frame_scratch(f, frame_rows_bytes(f, s->hidden));
    return frame_norm(f, &made->gate_norm);
}

static int make(struct zinf_frame *f, void *normed, struct made *made)
{
    const struct router_spec *s = f->stage->spec;
    uint64_t rows = (uint64_t)frame_rows(f), floats = rows * sizeof(float);
    made->norm = part_norm(f, &s->norm, s->hidden, f->in[0], scratch_norm(f, &s->norm));
    made->norm.y = normed;
    made->rows = normed;
    made->logits = frame_scratch(f, floats * (uint64_t)s->n_experts);
    int code = frame_norm(f, &made->norm);
    if (!code)
        code = make_gate_rows(f, made);
    struct zinf_matmul gate = {
        .m = (int64_t)rows,
        .n = s->n_experts,
        .k = s->hidden,
        .a = made->rows,
        .b = frame_weight(f, 0, s->gate_w),
        .alpha = s->gate_scale,
        .bias = frame_weight(f, 0, s->gate_b),
        .c = made->logits,
        .a_dtype = f->compute->dtype,
        .b_dtype = f->compute->dtype,
        .c_dtype = ZINF_DTYPE_F32,
        .trans_b = true,
        .lda = s->hidden,
        .ldb = s->hidden,
        .ldc = s->n_experts,
    };
    return code ? code : frame_matmul(f, &gate);
}

/* What every row's probabilities add to the loss that balances: the same for all. */
static const float *shares_gradient(const struct zinf_frame *f)
{
    const struct router_spec *s = f->stage->spec;
    const float *d = s->balanced && f->d_out ? f->d_out[2] : NULL;
    return d && f->queue ? d + s->n_experts : d;
}

static int share(struct zinf_frame *f, const float *logits)
{
    const struct router_spec *s = f->stage->spec;
    const uint64_t bytes = (uint64_t)(f->compute->batch * 2 * s->n_experts) * sizeof(float);
    struct zinf_shares args = {
        .samples = f->compute->batch,
        .seq = frame_own_rows(f),
        .cols = s->n_experts,
        .logits = logits,
        .weights = f->out[1],
        .before = f->stage->in.n > 1 ? f->in[1] : NULL,
        .shares = s->balanced ? f->out[2] : NULL,
    };
    if (!s->balanced || args.seq)
        return s->balanced ? frame_shares(f, &args) : 0;
    return args.before ? frame_copy(f, args.shares, args.before, bytes)
                       : frame_zero(f, args.shares, bytes);
}

/* The gradient of what the layers before have had is that of the sum. */
static int share_backward(struct zinf_frame *f)
{
    const struct router_spec *s = f->stage->spec;
    uint64_t floats = (uint64_t)(f->compute->batch * 2 * s->n_experts);
    bool wanted = s->balanced && f->stage->in.n > 1 && f->d_in[1];
    return wanted ? frame_copy(f, f->d_in[1], f->d_out[2], floats * sizeof(float)) : 0;
}

/* A row's choice. The bias is in the parameters' number type, and fp32 where it is used. */
static int choose(struct zinf_frame *f, float *logits, struct zinf_route *out)
{
    const struct router_spec *s = f->stage->spec;
    const uint64_t n = (uint64_t)s->n_experts;
    const uint64_t thirds = ZINF_ROUTE_BIAS_PARTS * n;
    float *bias = s->biased ? frame_scratch(f, thirds * sizeof(float)) : NULL;
    *out = (struct zinf_route){
        .rows = frame_rows(f),
        .cols = s->n_experts,
        .n_chosen = s->n_chosen,
        .normalised = s->normalised,
        .logits = logits,
        .weights = f->out[1],
        .d_weights = f->d_out ? f->d_out[1] : NULL,
        .d_probs = shares_gradient(f),
        .d_logits = logits,
        .scale = s->scale,
        .sigmoid = s->sigmoid,
        .bias = bias,
        .n_groups = s->n_groups,
        .n_groups_chosen = s->n_groups_chosen,
        .group_top = s->group_top,
    };
    return s->biased ? frame_convert(f, bias, ZINF_DTYPE_F32, frame_weight(f, 1, 0),
                                     f->compute->dtype, thirds)
                     : 0;
}

static int forward(struct zinf_frame *f)
{
    struct made made;
    struct zinf_route route;
    int code = make(f, f->out[0], &made);
    if (!code)
        code = choose(f, made.logits, &route);
    if (!code)
        code = frame_route(f, &route);
    return code ? code : share(f, made.logits);
}

/* Of the gate's matrix and bias, and of what it reads: d_rows, to which the gradient is added where
 * it is that of the experts' rows, and has their shares. */
static int gate_backward(struct zinf_frame *f, const struct made *made, float *d_rows)
{
    const struct router_spec *s = f->stage->spec;
    struct zinf_matmul matrix = {
        .m = s->n_experts,
        .n = s->hidden,
        .k = frame_rows(f),
        .a = made->logits,
        .b = made->rows,
        .alpha = s->gate_scale,
        .c = frame_grad(f, 0, s->gate_w),
        .a_dtype = ZINF_DTYPE_F32,
        .b_dtype = f->compute->dtype,
        .c_dtype = ZINF_DTYPE_F32,
        .trans_a = true,
        .lda = s->n_experts,
        .ldb = s->hidden,
        .ldc = s->hidden,
    };
    struct zinf_matmul rows = {
        .m = frame_rows(f),
        .n = s->hidden,
        .k = s->n_experts,
        .a = made->logits,
        .b = frame_weight(f, 0, s->gate_w),
        .alpha = s->gate_scale,
        .c = d_rows,
        .a_dtype = ZINF_DTYPE_F32,
        .b_dtype = f->compute->dtype,
        .c_dtype = ZINF_DTYPE_F32,
        .lda = s->n_experts,
        .ldb = s->hidden,
        .ldc = s->hidden,
        .beta = s->gate_norm.w < 0 ? 1 : 0,
    };
    float *d_bias = frame_grad(f, 0, s->gate_b);
    int code = matrix.c ? frame_matmul(f, &matrix) : 0;
    if (!code && d_bias)
        code =
            frame_column_sum(f, d_bias, made->logits, ZINF_DTYPE_F32, frame_rows(f), s->n_experts);
    return code ? code : frame_matmul(f, &rows);
}

/* A norm's backward, from fp32 to what x's gradient has already, or, adds false, has not. */
static int norm_backward(struct zinf_frame *f, const struct norm_spec *s, struct zinf_norm norm,
                         const float *d_rows, bool adds)
{
    const struct router_spec *of = f->stage->spec;
    const uint64_t elems = (uint64_t)(frame_rows(f) * of->hidden), start = frame_mark(f);
    void *dy = frame_scratch(f, elems * frame_width(f));
    norm.y = NULL;
    norm.dy = dy;
    norm.dx = f->d_in[0] ? f->d_in[0] : dy;
    norm.beta_dx = f->d_in[0] && adds ? 1 : 0;
    norm.dw = frame_grad(f, 0, s->w);
    norm.db = frame_grad(f, 0, s->b);
    int code = frame_convert(f, dy, f->compute->dtype, d_rows, ZINF_DTYPE_F32, elems);
    if (!code)
        code = frame_norm_backward(f, &norm);
    frame_release(f, start);
    return code;
}

/* The loss that balances is of no rows beyond a sequence's end. */
static int choose_backward(struct zinf_frame *f, const struct zinf_route *route)
{
    const int64_t own = f->compute->batch * frame_own_rows(f), at = own * route->cols;
    struct zinf_route first = *route, rest = *route;
    if (!route->d_probs || own == route->rows)
        return frame_route_backward(f, route);
    first.rows = own;
    rest.rows -= own;
    rest.logits += at;
    rest.weights += at;
    rest.d_weights += at;
    rest.d_logits += at;
    rest.d_probs = NULL;
    const int code = own ? frame_route_backward(f, &first) : 0;
    return code ? code : frame_route_backward(f, &rest);
}

static int backward(struct zinf_frame *f)
{
    const struct router_spec *s = f->stage->spec;
    uint64_t elems = (uint64_t)(frame_rows(f) * s->hidden);
    const bool apart = s->gate_norm.w >= 0;
    void *normed = frame_scratch(f, elems * frame_width(f));
    float *d_rows = apart ? frame_scratch(f, elems * sizeof *d_rows) : f->d_out[0];
    struct made made;
    int code = frame_zero_gaps(f, 0);
    if (!code)
        code = share_backward(f);
    if (!code)
        code = make(f, normed, &made);
    if (code)
        return code;
    struct zinf_route route;
    if ((code = choose(f, made.logits, &route)) || (code = choose_backward(f, &route)) ||
        (code = gate_backward(f, &made, d_rows)) ||
        (code = norm_backward(f, &s->norm, made.norm, f->d_out[0], f->d_in_adds[0])) || !apart)
        return code;
    return norm_backward(f, &s->gate_norm, made.gate_norm, d_rows, true);
}

const struct zinf_stage_ops zinf_stage_router = {
    .name = "router",
    .forward = forward,
    .backward = backward,
};
