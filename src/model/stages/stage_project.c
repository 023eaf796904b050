/* stage_project: rows of one width to rows of another: a product without a bias. */
#include "model/stages/stages.h"

static struct frame_linear linear_of(const struct zinf_frame *f)
{
    const struct project_spec *s = f->stage->spec;
    return (struct frame_linear){0, s->w, -1, 0, false};
}

static int forward(struct zinf_frame *f)
{
    const struct frame_linear linear = linear_of(f);
    return frame_linear(f, &linear, f->in[0], f->out[0]);
}

static int backward(struct zinf_frame *f)
{
    const struct frame_linear linear = linear_of(f);
    const int64_t n = frame_rows(f) * f->graph->values[f->stage->in.at[0]].cols;
    struct zinf_residual sum = {
        .dtype = f->compute->dtype, .n = n, .x = f->d_in[0], .y = f->d_in[0]};
    const bool adds = f->d_in[0] && f->d_in_adds[0];
    int code = frame_zero_gaps(f, 0);
    if (!code)
        code = frame_linear_backward_weight(f, &linear, f->d_out[0], f->in[0]);
    if (code || !f->d_in[0])
        return code;
    void *share = adds ? frame_scratch(f, (uint64_t)n * frame_width(f)) : f->d_in[0];
    sum.r = share;
    code = frame_linear_backward_input(f, &linear, f->d_out[0], share);
    return code || !adds ? code : frame_residual(f, &sum);
}

const struct zinf_stage_ops zinf_stage_project = {
    .name = "project",
    .forward = forward,
    .backward = backward,
};
