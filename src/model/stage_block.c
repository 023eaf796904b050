/*
 * stage_block: one pre-norm transformer block:
 *   x_mid = x + dropout(proj(attention(norm(x))))
 *   out = x_mid + dropout(mlp(norm(x_mid)))
 * What it keeps can be made again from x: recomputation stops where kept is complete.
 */
#include "model/stages.h"

struct kept {
    struct attention_kept attention;
    void *x_mid; /* [rows][hidden] */
    struct mlp_kept mlp;
};

static uint64_t x_bytes(const struct zinf_frame *f, const struct block_spec *s)
{
    return (uint64_t)frame_rows(f) * (uint64_t)s->attention.hidden * frame_width(f);
}

static struct kept keep(struct zinf_frame *f, const struct block_spec *s)
{
    struct kept kept;
    kept.attention = attention_keep(f, &s->attention);
    kept.x_mid = frame_keep(f, x_bytes(f, s));
    kept.mlp = mlp_keep(f, &s->mlp);
    return kept;
}

static int forward(struct zinf_frame *f)
{
    const struct block_spec *s = f->stage->spec;
    struct kept kept = keep(f, s);
    void *out = f->pass == ZINF_PASS_RECOMPUTE ? NULL : f->out[0];
    int code = attention_forward(f, &s->attention, &kept.attention, f->in[0], kept.x_mid);
    return code ? code : mlp_forward(f, &s->mlp, &kept.mlp, kept.x_mid, out);
}

static int backward(struct zinf_frame *f)
{
    const struct block_spec *s = f->stage->spec;
    struct kept kept = keep(f, s);
    void *d_x;
    int code;
    if ((code = part_start_gradient(f, s->attention.hidden, &d_x)) ||
        (code = frame_zero_gaps(f, 0)) ||
        (code = mlp_backward(f, &s->mlp, &kept.mlp, kept.x_mid, d_x)) ||
        (code = attention_backward(f, &s->attention, &kept.attention, f->in[0], d_x)))
        return code;
    return part_finish_gradient(f, s->attention.hidden, d_x);
}

const struct zinf_stage_ops zinf_stage_block = {
    .name = "block",
    .recomputes = true,
    .passes = true,
    .forward = forward,
    .backward = backward,
};
