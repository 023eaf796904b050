/*
 * stage_shards: a block as tensor parallel cuts it: attention, then feed-forward, each shard by
 * shard, with a sum over all shards behind it (part_attention_shards.c, part_mlp_shards.c).
 */
#include "model/shards.h"

struct kept {
    struct attention_shards attention;
    struct mlp_shards mlp;
    void *x_mid; /* [rows][hidden] */
};

static void keep(struct zinf_frame *f, const struct block_spec *s, struct kept *kept)
{
    const uint64_t elems = (uint64_t)(frame_rows(f) * s->attention.hidden);
    attention_shards_keep(f, &s->attention, &kept->attention);
    kept->x_mid = frame_keep(f, elems * frame_width(f));
    mlp_shards_keep(f, &s->mlp, &kept->mlp);
}

static int forward(struct zinf_frame *f)
{
    const bool again = f->pass == ZINF_PASS_RECOMPUTE;
    struct kept kept;
    keep(f, f->stage->spec, &kept);
    int code = attention_shards_forward(f, &kept.attention, f->in[0], kept.x_mid, false);
    return code ? code
                : mlp_shards_forward(f, &kept.mlp, kept.x_mid, again ? NULL : f->out[0], again);
}

static int backward(struct zinf_frame *f)
{
    const struct block_spec *s = f->stage->spec;
    struct kept kept;
    void *d_x;
    int code;
    keep(f, s, &kept);
    if ((code = part_start_gradient(f, s->attention.hidden, &d_x)) ||
        (code = frame_zero_gaps(f, 0)) ||
        (code = mlp_shards_backward(f, &kept.mlp, kept.x_mid, d_x)) ||
        (code = attention_shards_backward(f, &kept.attention, f->in[0], d_x)))
        return code;
    return part_finish_gradient(f, s->attention.hidden, d_x);
}

static int carry(struct zinf_frame *f)
{
    struct kept kept;
    keep(f, f->stage->spec, &kept);
    return attention_shards_carry(f, &kept.attention);
}

static int carry_backward(struct zinf_frame *f)
{
    struct kept kept;
    keep(f, f->stage->spec, &kept);
    return attention_shards_carry_backward(f, &kept.attention);
}

const struct zinf_stage_ops zinf_stage_shards = {
    .name = "shards",
    .recomputes = true,
    .passes = true,
    .forward = forward,
    .backward = backward,
    .carry = carry,
    .carry_backward = carry_backward,
};
