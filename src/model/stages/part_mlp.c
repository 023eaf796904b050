/*
 * part_mlp: the feed-forward part of a block: down(act(up(norm(x)))), or with a gate
 * down(act(gate) * up), where one product makes gate and up; dropout in front of down where the
 * spec has it. Kept is what is expensive to compute again; the norm and the activation come again
 * from their inputs, with the same bits.
 */
#include "model/stages/stages.h"

static uint64_t up_cols(const struct mlp_spec *s)
{
    return (uint64_t)(s->gated ? 2 * s->ffn : s->ffn);
}

uint64_t mlp_entry_bytes(const struct zinf_frame *f, const struct mlp_spec *s)
{
    return frame_rows_bytes(f, up_cols(s));
}

struct mlp_kept mlp_keep(struct zinf_frame *f, const struct mlp_spec *s)
{
    struct mlp_kept kept = {0};
    kept.up = frame_keep(f, mlp_entry_bytes(f, s));
    kept.norm = part_norm_keep(f, &s->norm, 1);
    kept.after = part_norm_keep(f, &s->after, 1);
    if (s->after.w >= 0)
        kept.product = frame_keep(f, frame_rows_bytes(f, s->hidden));
    return kept;
}

/* Whether the gradient of up's bias is made with that of the activation: no kernel then reads that
 * of up once more. */
static bool sums_bias(const struct mlp_spec *s)
{
    return !s->gated && !s->xielu && !s->scales.n && s->up_b >= 0;
}

struct part_entry mlp_entry(const struct mlp_spec *s, const struct mlp_kept *kept)
{
    return (struct part_entry){
        .norm = &s->norm,
        .kept = kept->norm,
        .hidden = s->hidden,
        .n = 1,
        .products = {{{.weight = s->up_w, .bias = s->up_b},
                      kept->up,
                      &s->scales,
                      (int64_t)up_cols(s),
                      sums_bias(s)}},
    };
}

struct part_exit mlp_exit(const struct mlp_spec *s, const struct mlp_kept *kept)
{
    return (struct part_exit){
        .linear = {0, s->down_w, s->down_b, 0, false},
        .norm = &s->after,
        .kept = kept->after,
        .product = kept->product,
        .hidden = s->hidden,
        .scale = s->branch_scale,
        .dropout = s->residual_dropout,
        .site = s->site,
        .next = kept->next,
    };
}

static struct zinf_xielu xielu_args(const struct zinf_frame *f, const struct mlp_spec *s,
                                    const void *up, void *act)
{
    return (struct zinf_xielu){.dtype = f->compute->dtype,
                               .rows = frame_rows(f),
                               .cols = s->ffn,
                               .alphas = frame_weight(f, 0, s->alphas),
                               .constants = frame_weight(f, 1, 0),
                               .x = up,
                               .y = act};
}

/* From the gradient in d_up, in place; act receives the activation again. */
static int xielu_backward(struct zinf_frame *f, const struct mlp_spec *s, const void *up,
                          void *d_up, void *act)
{
    const uint64_t start = frame_mark(f);
    float *d_alphas = s->d_alphas ? s->d_alphas : frame_grad(f, 0, s->alphas);
    struct zinf_xielu args = xielu_args(f, s, up, act);
    args.dy = args.dx = d_up;
    args.sums = frame_scratch(f, (uint64_t)args.rows * 2 * sizeof *args.sums);
    int code = frame_xielu_backward(f, &args);
    if (!code && d_alphas)
        code = frame_column_sum(f, d_alphas, args.sums, ZINF_DTYPE_F32, args.rows, 2);
    frame_release(f, start);
    return code;
}

int mlp_activate(struct zinf_frame *f, const struct mlp_spec *s, const void *up, void *act)
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
    if (s->xielu) {
        const struct zinf_xielu xielu = xielu_args(f, s, up, act);
        return frame_xielu(f, &xielu);
    }
    if (s->gated)
        return frame_gated(f, &args);
    return frame_activation(f, s->activation, up, act, (uint64_t)(rows * s->ffn));
}

int mlp_mask(struct zinf_frame *f, const struct mlp_spec *s, void *act)
{
    return frame_mask(f, act, s->dropout, s->inner_site, frame_length(f) * s->ffn);
}

int mlp_forward(struct zinf_frame *f, const struct mlp_spec *s, const struct mlp_kept *kept,
                const void *x, void *y, bool again)
{
    const uint64_t row = (uint64_t)frame_rows(f) * frame_width(f), start = frame_mark(f);
    const struct part_exit leave = mlp_exit(s, kept);
    if (again && s->after.w < 0)
        return 0;
    void *act = frame_scratch(f, row * (uint64_t)s->ffn);
    int code = mlp_activate(f, s, kept->up, act);
    if (!code)
        code = mlp_mask(f, s, act);
    if (!code)
        code = part_leave(f, &leave, act, x, y, again);
    frame_release(f, start);
    return code;
}

int mlp_activate_backward(struct zinf_frame *f, const struct mlp_spec *s, const void *up,
                          void *d_up, void *act, float *sums)
{
    int64_t rows = frame_rows(f);
    const struct zinf_activation_sums summed = {
        .kind = s->activation,
        .dtype = f->compute->dtype,
        .rows = rows,
        .cols = s->ffn,
        .x = up,
        .dy = d_up,
        .dx = d_up,
        .y_out = act,
        .sums = sums,
    };
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
    if (s->xielu)
        return xielu_backward(f, s, up, d_up, act);
    if (s->gated)
        return frame_gated_backward(f, &args);
    if (sums)
        return frame_activation_sums(f, &summed);
    return frame_activation_backward(f, s->activation, d_up, up, d_up, act,
                                     (uint64_t)(rows * s->ffn));
}

int mlp_backward(struct zinf_frame *f, const struct mlp_spec *s, const struct mlp_kept *kept,
                 const void *d_y, void *d_up)
{
    const uint64_t row = (uint64_t)frame_rows(f) * frame_width(f), start = frame_mark(f);
    const struct part_exit leave = mlp_exit(s, kept);
    const void *d_out;
    void *act = frame_scratch(f, row * (uint64_t)s->ffn);
    /* The gradient of the activation is made where its gradient (no gate) or it (gate) will be. */
    void *d_act = s->gated ? act : d_up;
    float *sums = sums_bias(s) ? frame_grad(f, 0, s->up_b) : NULL;
    int code = part_leave_backward(f, &leave, d_y, &d_out);
    if (code || (code = frame_linear_backward_input(f, &leave.linear, d_out, d_act)) ||
        (code = mlp_mask(f, s, d_act)) ||
        (code = mlp_activate_backward(f, s, kept->up, d_up, act, sums)) ||
        (code = mlp_mask(f, s, act)) ||
        (code = frame_linear_backward_weight(f, &leave.linear, d_out, act)))
        return code;
    frame_release(f, start);
    return 0;
}
