/*
 * stage_shards: a block as tensor parallel cuts it: attention, then feed-forward, each shard by
 * shard, with a sum over all shards behind it (part_attention_shards.c, part_mlp_shards.c). In a
 * parallel block both take x, and the sum is made in the place of out; where they have one norm,
 * the gradients at its rows are one sum over shards, as they are of attention and a mixer beside
 * it, which is one more branch behind the same norm (part_mixer_shards.c). A number of the layer's
 * may scale out in place.
 */
#include "model/shards.h"

struct kept {
    struct attention_shards attention, beside;
    struct mlp_shards mlp;
    void *x_mid; /* [rows][hidden]; not kept where the parts are parallel */
};

static uint64_t x_elems(const struct zinf_frame *f, const struct block_spec *s)
{
    return (uint64_t)(frame_rows(f) * s->attention.hidden);
}

static void keep(struct zinf_frame *f, const struct block_spec *s, struct kept *kept)
{
    attention_shards_keep(f, &s->attention, &kept->attention);
    if (mixer_is_there(&s->beside)) {
        attention_shards_keep(f, &s->beside, &kept->beside);
        kept->beside.in_front = &s->attention.norm;
        kept->beside.norm = kept->attention.norm;
    }
    kept->x_mid = s->parallel ? NULL : frame_keep(f, x_elems(f, s) * frame_width(f));
    mlp_shards_keep(f, &s->mlp, &kept->mlp);
    if (s->one_norm) {
        kept->mlp.entry = &s->attention.norm;
        kept->mlp.norm = kept->attention.norm;
    }
}

static int forward(struct zinf_frame *f)
{
    const struct block_spec *s = f->stage->spec;
    const bool again = f->pass == ZINF_PASS_RECOMPUTE;
    struct kept kept;
    keep(f, s, &kept);
    void *out = again ? NULL : f->out[0];
    void *mid = s->parallel ? out : kept.x_mid;
    const bool beside = mixer_is_there(&s->beside);
    struct zinf_norm norm;
    if (!s->parallel)
        (beside ? &kept.beside : &kept.attention)->next =
            part_ahead(f, kept.mlp.entry, s->mlp.hidden, mid, &kept.mlp.norm, &norm);
    int code = attention_shards_forward(f, &kept.attention, f->in[0], mid, s->parallel && again);
    if (!code && beside)
        code = mixer_shards_forward(f, &kept.beside, f->in[0], mid, mid, false);
    if (!code)
        code = mlp_shards_forward(f, &kept.mlp, s->parallel ? f->in[0] : mid, mid, out, again);
    return code || again || !s->scaled ? code : part_scale(f, s->attention.hidden, out);
}

/* ---- backward ---- */

/* Of a block with one norm, for the sum in front of all its products. */
struct enter_call {
    const struct kept *kept;
    struct shard_gradients attention, beside, mlp;
};

static int enter_beside(struct zinf_frame *f, const void *call, uint32_t shard, float *out)
{
    const struct enter_call *c = call;
    int code = attention_shards_enter(f, &c->kept->attention, &c->attention, shard, out);
    return code ? code : mixer_shards_enter(f, &c->kept->beside, &c->beside, shard, out, 1);
}

static int enter_both(struct zinf_frame *f, const void *call, uint32_t shard, float *out)
{
    const struct enter_call *c = call;
    int code = attention_shards_enter(f, &c->kept->attention, &c->attention, shard, out);
    return code ? code : mlp_shards_enter(f, &c->kept->mlp, &c->mlp, shard, out, 1);
}

static int enter_attention(struct zinf_frame *f, const void *call, uint32_t shard, float *out)
{
    const struct enter_call *c = call;
    return attention_shards_enter(f, &c->kept->attention, &c->attention, shard, out);
}

static int enter_mlp(struct zinf_frame *f, const void *call, uint32_t shard, float *out)
{
    const struct enter_call *c = call;
    return mlp_shards_enter(f, &c->kept->mlp, &c->mlp, shard, out, 0);
}

/* Both parts need the gradient of out as it came: their entries add to d_x last. */
static int backward_parallel(struct zinf_frame *f, const struct block_spec *s,
                             const struct kept *kept, void *d_x)
{
    const struct part_entry first = attention_shards_entry(&kept->attention);
    const struct part_entry second = mlp_shards_entry(&kept->mlp);
    const uint64_t mark = frame_mark(f), elems = x_elems(f, s);
    const void *x = f->in[0];
    struct enter_call c = {.kept = kept};
    const struct shard_sum both = {enter_both, &c, elems};
    const struct shard_sum attention = {enter_attention, &c, elems}, mlp = {enter_mlp, &c, elems};
    int code = mlp_shards_leave(f, &kept->mlp, x, d_x, &c.mlp);
    if (!code)
        code = attention_shards_leave(f, &kept->attention, x, d_x, &c.attention);
    if (!code && !s->one_norm)
        code = shard_enter_backward(f, &second, &mlp, x, d_x);
    if (!code)
        code = shard_enter_backward(f, &first, s->one_norm ? &both : &attention, x, d_x);
    frame_release(f, mark);
    return code;
}

/* Both branches need the gradient at x_mid as it came. */
static int backward_beside(struct zinf_frame *f, const struct kept *kept, void *d_x)
{
    const struct part_entry entry = attention_shards_entry(&kept->attention);
    const uint64_t mark = frame_mark(f);
    struct enter_call c = {.kept = kept};
    const struct shard_sum sum = {enter_beside, &c,
                                  (uint64_t)(frame_rows(f) * kept->attention.s->hidden)};
    int code = attention_shards_leave(f, &kept->attention, f->in[0], d_x, &c.attention);
    if (!code)
        code = mixer_shards_leave(f, &kept->beside, f->in[0], d_x, &c.beside);
    if (!code)
        code = shard_enter_backward(f, &entry, &sum, f->in[0], d_x);
    frame_release(f, mark);
    return code;
}

static int backward_sequential(struct zinf_frame *f, const struct block_spec *s,
                               const struct kept *kept, void *d_x)
{
    int code = mlp_shards_backward(f, &kept->mlp, kept->x_mid, d_x);
    if (!code && mixer_is_there(&s->beside))
        return backward_beside(f, kept, d_x);
    return code ? code : attention_shards_backward(f, &kept->attention, f->in[0], d_x);
}

static int backward(struct zinf_frame *f)
{
    const struct block_spec *s = f->stage->spec;
    struct kept kept;
    void *d_x;
    int code;
    keep(f, s, &kept);
    if ((code = part_start_gradient(f, s->attention.hidden, &d_x)) ||
        (s->scaled && (code = part_scale(f, s->attention.hidden, d_x))) ||
        (code = frame_zero_gaps(f, 0)) ||
        (code = s->parallel ? backward_parallel(f, s, &kept, d_x)
                            : backward_sequential(f, s, &kept, d_x)))
        return code;
    return part_finish_gradient(f, s->attention.hidden, d_x);
}

static int carry(struct zinf_frame *f)
{
    struct kept kept;
    keep(f, f->stage->spec, &kept);
    const struct block_spec *s = f->stage->spec;
    int code = attention_shards_carry(f, &kept.attention);
    return code || !mixer_is_there(&s->beside) ? code : mixer_shards_carry(f, &kept.beside);
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
