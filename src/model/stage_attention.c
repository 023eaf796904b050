/* stage_attention: the attention part of a block by itself: x_mid = x + branch. What it keeps can
 * be made again from x. */
#include "model/stages.h"

static int forward(struct zinf_frame *f)
{
    const struct attention_spec *s = f->stage->spec;
    struct attention_kept kept = attention_keep(f, s);
    void *x_mid = f->pass == ZINF_PASS_RECOMPUTE ? NULL : f->out[0];
    return attention_forward(f, s, &kept, f->in[0], x_mid);
}

static int backward(struct zinf_frame *f)
{
    const struct attention_spec *s = f->stage->spec;
    struct attention_kept kept = attention_keep(f, s);
    void *d_x;
    int code;
    if ((code = part_start_gradient(f, s->hidden, &d_x)) || (code = frame_zero_gaps(f, 0)) ||
        (code = attention_backward(f, s, &kept, f->in[0], d_x)))
        return code;
    return part_finish_gradient(f, s->hidden, d_x);
}

const struct zinf_stage_ops zinf_stage_attention = {
    .name = "attention",
    .recomputes = true,
    .passes = true,
    .forward = forward,
    .backward = backward,
};
