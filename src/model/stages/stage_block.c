/*
 * stage_block: one transformer block, attention then feed-forward, or both beside each other:
 *   x_mid = x + attention branch; out = x_mid + feed-forward branch of x_mid, or of x (parallel)
 * A mixer beside attention is one more branch of x_mid, behind the same norm.
 * What it keeps can be made again from x: recomputation stops where kept is complete. In a parallel
 * block the sum is made in the place of out. A number of the layer's may scale the sum in place.
 */
#include "model/stages/stages.h"

struct kept {
    struct attention_kept attention, beside;
    void *x_mid; /* [rows][hidden]; not kept where the parts are parallel */
    struct mlp_kept mlp;
};

static uint64_t x_bytes(const struct zinf_frame *f, const struct block_spec *s)
{
    return frame_rows_bytes(f, s->attention.hidden);
}

static struct kept keep(struct zinf_frame *f, const struct block_spec *s)
{
    struct kept kept = {0};
    kept.attention = attention_keep(f, &s->attention);
    if (mixer_is_there(&s->beside))
        kept.beside = attention_keep(f, &s->beside);
    kept.x_mid = s->parallel ? NULL : frame_keep(f, x_bytes(f, s));
    kept.mlp = mlp_keep(f, &s->mlp);
    return kept;
}

/* How the parts of a block begin. */
struct entries {
    struct part_entry list[2]; /* attention's, then mlp's */
    uint32_t n;                /* 1: the first has the products of both */
};

static struct entries enter(const struct block_spec *s, const struct kept *kept)
{
    struct entries e = {
        {attention_entry(&s->attention, &kept->attention), mlp_entry(&s->mlp, &kept->mlp)}, 2};
    if (mixer_is_there(&s->beside))
        e.list[0].products[e.list[0].n++] = attention_entry(&s->beside, &kept->beside).products[0];
    if (s->one_norm) {
        e.list[0].products[e.list[0].n++] = e.list[1].products[0];
        e.n = 1;
    }
    return e;
}

/* ---- forward ---- */

static int forward_parallel(struct zinf_frame *f, const struct block_spec *s, struct kept *kept)
{
    bool again = f->pass == ZINF_PASS_RECOMPUTE;
    struct entries e = enter(s, kept);
    const void *x = f->in[0];
    void *out = again ? NULL : f->out[0];
    int code = 0;
    for (uint32_t i = 0; !code && i < e.n; i++)
        code = part_enter(f, &e.list[i], x);
    if (!code)
        code = attention_forward(f, &s->attention, &kept->attention, x, out, again);
    return code ? code : mlp_forward(f, &s->mlp, &kept->mlp, out, out, again);
}

/* x_mid is normalised as it is made. */
static int forward_sequential(struct zinf_frame *f, const struct block_spec *s, struct kept *kept)
{
    const bool again = f->pass == ZINF_PASS_RECOMPUTE, beside = mixer_is_there(&s->beside);
    const uint64_t start = frame_mark(f);
    void *out = again ? NULL : f->out[0];
    struct zinf_norm norm;
    (beside ? &kept->beside : &kept->attention)->next =
        part_ahead(f, &s->mlp.norm, s->mlp.hidden, kept->x_mid, &kept->mlp.norm, &norm);
    struct entries e = enter(s, kept);
    int code;
    if ((code = part_enter(f, &e.list[0], f->in[0])) ||
        (code =
             attention_forward(f, &s->attention, &kept->attention, f->in[0], kept->x_mid, false)) ||
        (beside && (code = attention_forward(f, &s->beside, &kept->beside, kept->x_mid, kept->x_mid,
                                             false))) ||
        (code = part_enter(f, &e.list[1], kept->x_mid)))
        return code;
    frame_release(f, start);
    return mlp_forward(f, &s->mlp, &kept->mlp, kept->x_mid, out, again);
}

static int forward(struct zinf_frame *f)
{
    const struct block_spec *s = f->stage->spec;
    struct kept kept = keep(f, s);
    int code = (s->parallel ? forward_parallel : forward_sequential)(f, s, &kept);
    if (code || f->pass == ZINF_PASS_RECOMPUTE || !s->scaled)
        return code;
    return part_scale(f, s->attention.hidden, f->out[0]);
}

/* ---- backward ---- */

/* Both parts need the gradient of out as it came: their entries add to d_x last. */
static int backward_parallel(struct zinf_frame *f, const struct block_spec *s,
                             const struct kept *kept, void *d_x)
{
    struct entries e = enter(s, kept);
    uint64_t start = frame_mark(f);
    void *d_up = frame_scratch(f, mlp_entry_bytes(f, &s->mlp));
    int code = mlp_backward(f, &s->mlp, &kept->mlp, d_x, d_up);
    void *d_qkv = frame_scratch(f, attention_entry_bytes(f, &s->attention));
    if (!code)
        code = attention_backward(f, &s->attention, &kept->attention, d_x, d_qkv);
    e.list[0].products[0].y = d_qkv;
    if (s->one_norm)
        e.list[0].products[1].y = d_up;
    else
        e.list[1].products[0].y = d_up;
    for (uint32_t i = e.n; !code && i-- > 0;)
        code = part_enter_backward(f, &e.list[i], f->in[0], d_x);
    frame_release(f, start);
    return code;
}

static int backward_sequential(struct zinf_frame *f, const struct block_spec *s,
                               const struct kept *kept, void *d_x)
{
    struct entries e = enter(s, kept);
    uint64_t start = frame_mark(f);
    void *d_up = e.list[1].products[0].y = frame_scratch(f, mlp_entry_bytes(f, &s->mlp));
    int code;
    if ((code = mlp_backward(f, &s->mlp, &kept->mlp, d_x, d_up)) ||
        (code = part_enter_backward(f, &e.list[1], kept->x_mid, d_x)))
        return code;
    frame_release(f, start);
    const bool beside = mixer_is_there(&s->beside);
    void *d_qkv = e.list[0].products[0].y =
        frame_scratch(f, attention_entry_bytes(f, &s->attention));
    void *d_beside = beside ? frame_scratch(f, attention_entry_bytes(f, &s->beside)) : NULL;
    if (beside)
        e.list[0].products[1].y = d_beside;
    if ((code = attention_backward(f, &s->attention, &kept->attention, d_x, d_qkv)) ||
        (beside && (code = attention_backward(f, &s->beside, &kept->beside, d_x, d_beside))) ||
        (code = part_enter_backward(f, &e.list[0], f->in[0], d_x)))
        return code;
    frame_release(f, start);
    return 0;
}

static int backward(struct zinf_frame *f)
{
    const struct block_spec *s = f->stage->spec;
    struct kept kept = keep(f, s);
    void *d_x;
    int code;
    if ((code = part_start_gradient(f, s->attention.hidden, &d_x)) ||
        (s->scaled && (code = part_scale(f, s->attention.hidden, d_x))) ||
        (code = frame_zero_gaps(f, 0)) ||
        (code = (s->parallel ? backward_parallel : backward_sequential)(f, s, &kept, d_x)))
        return code;
    return part_finish_gradient(f, s->attention.hidden, d_x);
}

static int carry(struct zinf_frame *f)
{
    const struct block_spec *s = f->stage->spec;
    const struct kept kept = keep(f, s);
    const bool beside = mixer_is_there(&s->beside);
    struct part_entry entry = attention_entry(&s->attention, &kept.attention);
    if (beside)
        entry.products[entry.n++] = attention_entry(&s->beside, &kept.beside).products[0];
    int code = part_enter(f, &entry, f->in[0]);
    if (!code)
        code = attention_carry(f, &s->attention, &kept.attention);
    return code || !beside ? code : attention_carry(f, &s->beside, &kept.beside);
}

/* Of a mixer beside attention nothing comes back by way of keys. */
static int carry_backward(struct zinf_frame *f)
{
    const struct block_spec *s = f->stage->spec;
    const struct kept kept = keep(f, s);
    return attention_carry_backward(f, &s->attention, &kept.attention);
}

const struct zinf_stage_ops zinf_stage_block = {
    .name = "block",
    .recomputes = true,
    .passes = true,
    .forward = forward,
    .backward = backward,
    .carry = carry,
    .carry_backward = carry_backward,
};
