/* stage_mlp: the feed-forward part of a block by itself: out = x + branch, shard by shard where the
 * model is cut. What it keeps can be made again from x. */
#include "model/shards.h"

static int forward_shards(struct zinf_frame *f)
{
    const bool again = f->pass == ZINF_PASS_RECOMPUTE;
    struct mlp_shards kept;
    mlp_shards_keep(f, f->stage->spec, &kept);
    return mlp_shards_forward(f, &kept, f->in[0], f->in[0], again ? NULL : f->out[0], again);
}

static int backward_shards(struct zinf_frame *f)
{
    const struct mlp_spec *s = f->stage->spec;
    struct mlp_shards kept;
    void *d_x;
    mlp_shards_keep(f, s, &kept);
    int code = part_start_gradient(f, s->hidden, &d_x);
    if (!code)
        code = frame_zero_gaps(f, 0);
    if (!code)
        code = mlp_shards_backward(f, &kept, f->in[0], d_x);
    return code ? code : part_finish_gradient(f, s->hidden, d_x);
}

static int forward(struct zinf_frame *f)
{
    if (f->graph->shards.of)
        return forward_shards(f);
    const struct mlp_spec *s = f->stage->spec;
    struct mlp_kept kept = mlp_keep(f, s);
    struct part_entry entry = mlp_entry(s, &kept);
    bool again = f->pass == ZINF_PASS_RECOMPUTE;
    int code = part_enter(f, &entry, f->in[0]);
    return code ? code : mlp_forward(f, s, &kept, f->in[0], again ? NULL : f->out[0], again);
}

static int backward(struct zinf_frame *f)
{
    if (f->graph->shards.of)
        return backward_shards(f);
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
