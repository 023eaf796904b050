/*
 * stage_joined: out = x + norm(norm(mlp(norm(x))) + norm(s)): the usual feed-forward part beside a
 * choice of experts, whose sum is s. Kept is what the norms and the activation need; all of it can
 * be made again from x and s. Where the model is cut, so is that part; the norms are of whole rows.
 */
#include "model/shards.h"

struct kept {
    struct mlp_kept mlp;
    struct mlp_shards shards; /* instead, where the model is cut */
    struct norm_kept experts, sum;
    void *both; /* [rows][hidden]: what the last norm takes */
};

static uint64_t row_bytes(const struct zinf_frame *f)
{
    const struct joined_spec *s = f->stage->spec;
    return frame_rows_bytes(f, s->mlp.hidden);
}

static bool is_cut(const struct zinf_frame *f)
{
    return f->graph->shards.of;
}

static void keep(struct zinf_frame *f, const struct joined_spec *s, struct kept *kept)
{
    if (is_cut(f))
        mlp_shards_keep(f, &s->mlp, &kept->shards);
    else
        kept->mlp = mlp_keep(f, &s->mlp);
    kept->experts = part_norm_keep(f, &s->experts, 1);
    kept->sum = part_norm_keep(f, &s->sum, 1);
    kept->both = frame_keep(f, row_bytes(f));
}

/* y = x + r */
static int add(struct zinf_frame *f, const void *x, const void *r, void *y)
{
    const struct joined_spec *s = f->stage->spec;
    const struct zinf_residual args = {
        .dtype = f->compute->dtype, .n = frame_rows(f) * s->mlp.hidden, .x = x, .r = r, .y = y};
    return frame_residual(f, &args);
}

/* Adds the usual part of x to y. */
static int add_usual(struct zinf_frame *f, const struct kept *kept, void *y)
{
    const struct joined_spec *s = f->stage->spec;
    if (is_cut(f))
        return mlp_shards_forward(f, &kept->shards, f->in[0], y, y, false);
    const struct part_entry entry = mlp_entry(&s->mlp, &kept->mlp);
    const int code = part_enter(f, &entry, f->in[0]);
    return code ? code : mlp_forward(f, &s->mlp, &kept->mlp, y, y, false);
}

static int forward(struct zinf_frame *f)
{
    const struct joined_spec *s = f->stage->spec;
    const bool again = f->pass == ZINF_PASS_RECOMPUTE;
    struct kept kept;
    keep(f, s, &kept);
    void *branch = frame_scratch(f, row_bytes(f));
    int code;
    if ((code = part_join(f, &s->experts, kept.experts, f->in[1], kept.both)) ||
        (code = add_usual(f, &kept, kept.both)) ||
        (code = part_join(f, &s->sum, kept.sum, kept.both, branch)) || again ||
        (code = add(f, f->in[0], branch, f->out[0])))
        return code;
    return s->scaled ? part_scale(f, s->mlp.hidden, f->out[0]) : 0;
}

/* From the gradient of both parts' sum to that of s, and of the norm behind it. */
static int experts_backward(struct zinf_frame *f, const struct kept *kept, const void *d_both)
{
    const struct joined_spec *s = f->stage->spec;
    const bool apart = !f->d_in[1] || f->d_in_adds[1];
    void *d_sum = apart ? frame_scratch(f, row_bytes(f)) : f->d_in[1];
    int code = frame_copy(f, d_sum, d_both, row_bytes(f));
    if (!code)
        code = part_join_backward(f, &s->experts, kept->experts, f->in[1], d_sum);
    return code || !apart || !f->d_in[1] ? code : add(f, f->d_in[1], d_sum, f->d_in[1]);
}

/* From the gradient of both parts' sum to that of x. */
static int usual_backward(struct zinf_frame *f, const struct kept *kept, void *d_both, void *d_x)
{
    const struct joined_spec *s = f->stage->spec;
    if (is_cut(f))
        return mlp_shards_branch_backward(f, &kept->shards, f->in[0], d_both, d_x);
    struct part_entry entry = mlp_entry(&s->mlp, &kept->mlp);
    void *d_up = entry.products[0].y = frame_scratch(f, mlp_entry_bytes(f, &s->mlp));
    const int code = mlp_backward(f, &s->mlp, &kept->mlp, d_both, d_up);
    return code ? code : part_enter_backward(f, &entry, f->in[0], d_x);
}

static int backward(struct zinf_frame *f)
{
    const struct joined_spec *s = f->stage->spec;
    struct kept kept;
    keep(f, s, &kept);
    void *d_x, *d_both = frame_scratch(f, row_bytes(f));
    int code;
    if ((code = part_start_gradient(f, s->mlp.hidden, &d_x)) ||
        (s->scaled && (code = part_scale(f, s->mlp.hidden, d_x))) ||
        (code = frame_zero_gaps(f, 0)) || (code = frame_copy(f, d_both, d_x, row_bytes(f))) ||
        (code = part_join_backward(f, &s->sum, kept.sum, kept.both, d_both)) ||
        (code = experts_backward(f, &kept, d_both)) ||
        (code = usual_backward(f, &kept, d_both, d_x)))
        return code;
    return part_finish_gradient(f, s->mlp.hidden, d_x);
}

const struct zinf_stage_ops zinf_stage_joined = {
    .name = "joined",
    .recomputes = true,
    .passes = true,
    .forward = forward,
    .backward = backward,
};
