/* stage_attention: the attention part of a block by itself: x_mid = x + branch, shard by shard
 * where the model is cut. What it keeps can be made again from x. */
#include "model/shards.h"

static int forward_shards(struct zinf_frame *f)
{
    const bool again = f->pass == ZINF_PASS_RECOMPUTE;
    struct attention_shards kept;
    attention_shards_keep(f, f->stage->spec, &kept);
    return attention_shards_forward(f, &kept, f->in[0], again ? NULL : f->out[0], again);
}

static int forward(struct zinf_frame *f)
{
    if (f->graph->shards.of)
        return forward_shards(f);
    const struct attention_spec *s = f->stage->spec;
    struct attention_kept kept = attention_keep(f, s);
    struct part_entry entry = attention_entry(s, &kept);
    bool again = f->pass == ZINF_PASS_RECOMPUTE;
    int code = part_enter(f, &entry, f->in[0]);
    return code ? code : attention_forward(f, s, &kept, f->in[0], again ? NULL : f->out[0], again);
}

static int backward_shards(struct zinf_frame *f)
{
    const struct attention_spec *s = f->stage->spec;
    struct attention_shards kept;
    void *d_x;
    attention_shards_keep(f, s, &kept);
    int code = part_start_gradient(f, s->hidden, &d_x);
    if (!code)
        code = frame_zero_gaps(f, 0);
    if (!code)
        code = attention_shards_backward(f, &kept, f->in[0], d_x);
    return code ? code : part_finish_gradient(f, s->hidden, d_x);
}

static int backward(struct zinf_frame *f)
{
    if (f->graph->shards.of)
        return backward_shards(f);
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

static int carry_shards(struct zinf_frame *f, bool backward)
{
    struct attention_shards kept;
    attention_shards_keep(f, f->stage->spec, &kept);
    return backward ? attention_shards_carry_backward(f, &kept) : attention_shards_carry(f, &kept);
}

static int carry(struct zinf_frame *f)
{
    if (f->graph->shards.of)
        return carry_shards(f, false);
    const struct attention_spec *s = f->stage->spec;
    const struct attention_kept kept = attention_keep(f, s);
    const struct part_entry entry = attention_entry(s, &kept);
    const int code = part_enter(f, &entry, f->in[0]);
    return code ? code : attention_carry(f, s, &kept);
}

static int carry_backward(struct zinf_frame *f)
{
    if (f->graph->shards.of)
        return carry_shards(f, true);
    const struct attention_spec *s = f->stage->spec;
    const struct attention_kept kept = attention_keep(f, s);
    return attention_carry_backward(f, s, &kept);
}

const struct zinf_stage_ops zinf_stage_attention = {
    .name = "attention",
    .recomputes = true,
    .passes = true,
    .forward = forward,
    .backward = backward,
    .carry = carry,
    .carry_backward = carry_backward,
};
