/* stage_attention: the attention part of a block by itself: x_mid = x + branch. What it keeps can
 * be made again from x. */
#include "model/stages/stages.h"

static int forward(struct zinf_frame *f)
{
    const struct attention_spec *s = f->stage->spec;
    struct attention_kept kept = attention_keep(f, s);
    struct part_entry entry = attention_entry(s, &kept);
    bool again = f->pass == ZINF_PASS_RECOMPUTE;
    int code = part_enter(f, &entry, f->in[0]);
    return code ? code : attention_forward(f, s, &kept, f->in[0], again ? NULL : f->out[0], again);
}

static int backward(struct zinf_frame *f)
{
    const struct attention_spec *s = f->stage->spec;
    struct attention_kept kept = attention_keep(f, s);
    struct part_entry entry = attention_entry(s, &kept);
    void *d_x, *d_qkv = entry.products[0].y = frame_scratch(f, attention_entry_bytes(f, s));
    int code;
    if ((code = part_start_gradient(f, s->hidden, &d_x)) || (code = frame_zero_gaps(f, 0)) ||
        (code = attention_backward(f, s, &kept, d_x, d_qkv)) ||
        (code = part_enter_backward(f, &entry, f->in[0], d_x)))
        return code;
    return part_finish_gradient(f, s->hidden, d_x);
}

static int carry(struct zinf_frame *f)
{
    const struct attention_spec *s = f->stage->spec;
    const struct attention_kept kept = attention_keep(f, s);
    const struct part_entry entry = attention_entry(s, &kept);
    const int code = part_enter(f, &entry, f->in[0]);
    return code ? code : attention_carry(f, s, &kept);
}

const struct zinf_stage_ops zinf_stage_attention = {
    .name = "attention",
    .recomputes = true,
    .passes = true,
    .forward = forward,
    .backward = backward,
    .carry = carry,
};
