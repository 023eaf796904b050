/*
 * stage_side: out = x + norm(W_out (act(W_gate x) * p)): what a layer adds of rows p of its own,
 * which come from a table with a part for each layer (stage_sides.c). Kept is what the norm's and
 * the activation's backward need; all of it can be made again from the inputs.
 */
#include "model/stages/stages.h"

struct kept {
    void *gate, *product; /* [rows][cols], before the activation; [rows][hidden], before the norm */
    struct norm_kept after;
};

static struct kept keep(struct zinf_frame *f, const struct side_spec *s)
{
    struct kept kept;
    kept.gate = frame_keep(f, frame_rows_bytes(f, s->cols));
    kept.product = frame_keep(f, frame_rows_bytes(f, s->hidden));
    kept.after = part_norm_keep(f, &s->after, 1);
    return kept;
}

static struct frame_linear gate_linear(const struct side_spec *s)
{
    return (struct frame_linear){.weight = s->gate_w, .bias = -1};
}

static struct part_exit exit_of(const struct side_spec *s, const struct kept *kept)
{
    return (struct part_exit){
        .linear = {.weight = s->out_w, .bias = -1},
        .norm = &s->after,
        .kept = kept->after,
        .product = kept->product,
        .hidden = s->hidden,
    };
}

static struct zinf_gated gated_args(const struct zinf_frame *f, const struct side_spec *s,
                                    const struct kept *kept)
{
    return (struct zinf_gated){
        .kind = s->activation,
        .dtype = f->compute->dtype,
        .rows = frame_rows(f),
        .cols = s->cols,
        .x = kept->gate,
        .gate_ld = s->cols,
        .up = f->in[1],
    };
}

static int forward(struct zinf_frame *f)
{
    const struct side_spec *s = f->stage->spec;
    const struct kept kept = keep(f, s);
    const struct frame_linear gate = gate_linear(s);
    const struct part_exit leave = exit_of(s, &kept);
    const bool again = f->pass == ZINF_PASS_RECOMPUTE;
    struct zinf_gated args = gated_args(f, s, &kept);
    args.y = frame_scratch(f, frame_rows_bytes(f, s->cols));
    int code = frame_linear(f, &gate, f->in[0], kept.gate);
    if (!code)
        code = frame_gated(f, &args);
    if (!code)
        code = part_leave(f, &leave, args.y, f->in[0], again ? NULL : f->out[0], again);
    return code || again || !s->scaled ? code : part_scale(f, s->hidden, f->out[0]);
}

/* The gradient at the layer's rows, to what is there. */
static int leave_rows(struct zinf_frame *f, const struct side_spec *s, const void *d_rows)
{
    struct zinf_residual args = {.dtype = f->compute->dtype,
                                 .n = frame_rows(f) * s->cols,
                                 .x = f->d_in[1],
                                 .r = d_rows,
                                 .y = f->d_in[1]};
    if (!f->d_in[1])
        return 0;
    return f->d_in_adds[1] ? frame_residual(f, &args)
                           : frame_copy(f, f->d_in[1], d_rows, frame_rows_bytes(f, s->cols));
}

/* From the gradient of the sum, which stays, to those of the weights and of p; *d_gate: at the
 * first product. */
static int branch_backward(struct zinf_frame *f, const struct side_spec *s, const struct kept *kept,
                           const void *d_x, void *d_gate)
{
    const struct part_exit leave = exit_of(s, kept);
    struct zinf_gated args = gated_args(f, s, kept);
    const void *d_branch;
    void *act = args.y = frame_scratch(f, frame_rows_bytes(f, s->cols));
    void *d_act = frame_scratch(f, frame_rows_bytes(f, s->cols));
    void *d_rows = frame_scratch(f, frame_rows_bytes(f, s->cols));
    int code = part_leave_backward(f, &leave, d_x, &d_branch);
    if (code || (code = frame_gated(f, &args)) ||
        (code = frame_linear_backward_weight(f, &leave.linear, d_branch, act)) ||
        (code = frame_linear_backward_input(f, &leave.linear, d_branch, d_act)))
        return code;
    args.dy = d_act;
    args.dx = d_gate;
    args.d_up = d_rows;
    code = frame_gated_backward(f, &args);
    return code ? code : leave_rows(f, s, d_rows);
}

static int backward(struct zinf_frame *f)
{
    const struct side_spec *s = f->stage->spec;
    const struct kept kept = keep(f, s);
    const struct frame_linear gate = gate_linear(s);
    const uint64_t start = frame_mark(f);
    void *d_gate = frame_scratch(f, frame_rows_bytes(f, s->cols));
    void *share = frame_scratch(f, frame_rows_bytes(f, s->hidden)), *d_x;
    int code;
    if ((code = part_start_gradient(f, s->hidden, &d_x)) ||
        (s->scaled && (code = part_scale(f, s->hidden, d_x))) || (code = frame_zero_gaps(f, 0)) ||
        (code = branch_backward(f, s, &kept, d_x, d_gate)) ||
        (code = frame_linear_backward_weight(f, &gate, d_gate, f->in[0])) ||
        (code = frame_linear_backward_input(f, &gate, d_gate, share)))
        return code;
    struct zinf_residual sum = {
        .dtype = f->compute->dtype, .n = frame_rows(f) * s->hidden, .x = d_x, .r = share, .y = d_x};
    code = frame_residual(f, &sum);
    frame_release(f, start);
    return code ? code : part_finish_gradient(f, s->hidden, d_x);
}

const struct zinf_stage_ops zinf_stage_side = {
    .name = "side",
    .recomputes = true,
    .passes = true,
    .forward = forward,
    .backward = backward,
};
