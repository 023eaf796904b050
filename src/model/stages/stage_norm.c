/*
 * stage_norm: the norm in front of a head, or behind the lookup. In front of a head the gradient of
 * its output is fp32, since the head adds to it tile by tile; backward rounds it once, into the
 * place of the output, which is no longer needed then.
 */
#include "model/stages/stages.h"

static struct zinf_norm norm_args(struct zinf_frame *f)
{
    const struct norm_stage_spec *s = f->stage->spec;
    return part_norm(f, &s->norm, f->graph->values[f->stage->out.at[0]].cols, f->in[0],
                     part_norm_keep(f, &s->norm, 1));
}

/* In place: the norm or its gradient times the dropout's mask. */
static int mask(struct zinf_frame *f, void *x)
{
    const struct norm_stage_spec *s = f->stage->spec;
    const int64_t cols = f->graph->values[f->stage->out.at[0]].cols;
    return frame_mask(f, x, s->dropout, s->site, frame_length(f) * cols);
}

static int forward(struct zinf_frame *f)
{
    struct zinf_norm args = norm_args(f);
    args.y = f->out[0];
    int code = frame_norm(f, &args);
    return code ? code : mask(f, f->out[0]);
}

static int backward(struct zinf_frame *f)
{
    const struct norm_stage_spec *s = f->stage->spec;
    struct zinf_norm args = norm_args(f);
    bool wide = f->graph->values[f->stage->out.at[0]].gradient == ZINF_ELEMENT_F32;
    const uint64_t elems = (uint64_t)(args.rows * args.cols);
    /* The output's memory serves, unless it may have left the device. */
    void *narrow =
        wide && f->compute->chunk.whole ? frame_scratch(f, elems * frame_width(f)) : f->out[0];
    void *dy = wide ? narrow : f->d_out[0];
    int code = frame_zero_gaps(f, 0);
    if (!code && wide)
        code = frame_convert(f, dy, f->compute->dtype, f->d_out[0], ZINF_DTYPE_F32, elems);
    if (!code)
        code = mask(f, dy);
    args.dy = dy;
    args.dx = f->d_in[0] ? f->d_in[0] : dy;
    args.beta_dx = f->d_in[0] && f->d_in_adds[0] ? 1 : 0;
    args.dw = frame_grad(f, 0, s->norm.w);
    args.db = frame_grad(f, 0, s->norm.b);
    return code ? code : frame_norm_backward(f, &args);
}

const struct zinf_stage_ops zinf_stage_norm = {
    .name = "norm",
    .backward_without_outputs = true, /* of chunks */
    .forward = forward,
    .backward = backward,
};
