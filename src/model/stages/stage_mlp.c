/* stage_mlp: the feed-forward part of a block by itself: out = x + branch. What it keeps can be
 * made again from x. */
#include "model/stages/stages.h"

static int forward(struct zinf_frame *f)
{
    const struct mlp_spec *s = f->stage->spec;
    struct mlp_kept kept = mlp_keep(f, s);
    struct part_entry entry = mlp_entry(s, &kept);
    bool again = f->pass == ZINF_PASS_RECOMPUTE;
    int code = part_enter(f, &entry, f->in[0]);
    return code ? code : mlp_forward(f, s, &kept, f->in[0], again ? NULL : f->out[0], again);
}

static int backward(struct zinf_frame *f)
{
    const struct mlp_spec *s = f->stage->spec;
    struct mlp_kept kept = mlp_keep(f, s);
    struct part_entry entry = mlp_entry(s, &kept);
    void *d_x, *d_up = entry.products[0].y = frame_scratch(f, mlp_entry_bytes(f, s));
    int code;
    if ((code = part_start_gradient(f, s->hidden, &d_x)) || (code = frame_zero_gaps(f, 0)) ||
        (code = mlp_backward(f, s, &kept, d_x, d_up)) ||
        (code = part_enter_backward(f, &entry, f->in[0], d_x)))
        return code;
    return part_finish_gradient(f, s->hidden, d_x);
}

const struct zinf_stage_ops zinf_stage_mlp = {
    .name = "mlp",
    .recomputes = true,
    .passes = true,
    .forward = forward,
    .backward = backward,
};
