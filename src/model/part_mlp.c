/*
 * part_mlp: the feed-forward part of a block: down(act(up(norm(x)))), or with a gate
 * down(act(gate) * up), where one product makes gate and up. Kept is what is expensive to compute
 * again; the norm and the activation come again from their inputs, with the same bits.
 */
#include "model/stages.h"

static uint64_t up_cols(const struct mlp_spec *s)
{
    return (uint64_t)(s->gated ? 2 * s->ffn : s->ffn);
}

struct mlp_kept mlp_keep(struct zinf_frame *f, const struct mlp_spec *s)
{
    uint64_t rows = (uint64_t)frame_rows(f);
    bool has_mean = s->norm.kind == ZINF_NORM_LAYER;
    struct mlp_kept kept = {0};
    kept.up = frame_keep(f, rows * up_cols(s) * frame_width(f));
    kept.mean = has_mean ? frame_keep(f, rows * sizeof(float)) : NULL;
    kept.rstd = frame_keep(f, rows * sizeof(float));
    return kept;
}

static int activate(struct zinf_frame *f, const struct mlp_spec *s, const void *up, void *act)
{
    int64_t rows = frame_rows(f);
    struct zinf_gated args = {
        .kind = s->activation,
        .dtype = f->compute->dtype,
        .rows = rows,
        .cols = s->ffn,
        .x = up,
        .y = act,
    };
    if (s->gated)
        return frame_gated(f, &args);
    return frame_activation(f, s->activation, up, act, (uint64_t)(rows * s->ffn));
}

int mlp_forward(struct zinf_frame *f, const struct mlp_spec *s, const struct mlp_kept *kept,
                const void *x, void *x_out)
{
    const uint64_t row = (uint64_t)frame_rows(f) * frame_width(f), start = frame_mark(f);
    const struct frame_linear up = {0, s->up_w, s->up_b}, down = {0, s->down_w, s->down_b};
    struct zinf_norm norm = part_norm(f, &s->norm, s->hidden, x, kept->mean, kept->rstd);
    int code;
    norm.y = frame_scratch(f, row * (uint64_t)s->hidden);
    if ((code = frame_norm(f, &norm)) || (code = frame_linear(f, &up, norm.y, kept->up)))
        return code;
    frame_release(f, start);
    if (!x_out)
        return 0;
    void *act = frame_scratch(f, row * (uint64_t)s->ffn);
    void *branch = frame_scratch(f, row * (uint64_t)s->hidden);
    if ((code = activate(f, s, kept->up, act)) || (code = frame_linear(f, &down, act, branch)))
        return code;
    frame_release(f, start);
    return part_residual(f, s->residual_dropout, s->site, s->hidden, x, branch, x_out);
}

/* d_up from the gradient of the activation, in its place where there is no gate; act again. */
static int activate_backward(struct zinf_frame *f, const struct mlp_spec *s, const void *up,
                             void *d_up, void *act)
{
    int64_t rows = frame_rows(f);
    struct zinf_gated args = {
        .kind = s->activation,
        .dtype = f->compute->dtype,
        .rows = rows,
        .cols = s->ffn,
        .x = up,
        .dy = act,
        .dx = d_up,
        .y_out = act,
    };
    if (s->gated)
        return frame_gated_backward(f, &args);
    return frame_activation_backward(f, s->activation, d_up, up, d_up, act,
                                     (uint64_t)(rows * s->ffn));
}

int mlp_backward(struct zinf_frame *f, const struct mlp_spec *s, const struct mlp_kept *kept,
                 const void *x, void *d_x)
{
    const uint64_t row = (uint64_t)frame_rows(f) * frame_width(f), start = frame_mark(f);
    const struct frame_linear up = {0, s->up_w, s->up_b}, down = {0, s->down_w, s->down_b};
    struct zinf_norm norm = part_norm(f, &s->norm, s->hidden, x, kept->mean, kept->rstd);
    const void *d_out;
    void *d_up = frame_scratch(f, row * up_cols(s));
    uint64_t mark = frame_mark(f);
    void *act = frame_scratch(f, row * (uint64_t)s->ffn);
    /* The gradient of the activation is made where its gradient (no gate) or it (gate) will be. */
    void *d_act = s->gated ? act : d_up;
    int code = part_branch_gradient(f, s->residual_dropout, s->site, s->hidden, d_x, &d_out);
    if (code || (code = frame_linear_backward_input(f, &down, d_out, d_act)) ||
        (code = activate_backward(f, s, kept->up, d_up, act)) ||
        (code = frame_linear_backward_weight(f, &down, d_out, act)))
        return code;
    frame_release(f, mark);
    norm.y = frame_scratch(f, row * (uint64_t)s->hidden);
    void *d_norm = frame_scratch(f, row * (uint64_t)s->hidden);
    if ((code = frame_norm(f, &norm)) ||
        (code = frame_linear_backward_weight(f, &up, d_up, norm.y)) ||
        (code = frame_linear_backward_input(f, &up, d_up, d_norm)) ||
        (code = part_norm_backward(f, &s->norm, norm, d_norm, d_x)))
        return code;
    frame_release(f, start);
    return 0;
}
