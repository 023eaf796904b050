/*
 * stage_project: rows of one width to rows of another: a product, perhaps with a bias and an
 * activation.
 */
#include "model/stages/stages.h"

static struct frame_linear linear_of(const struct zinf_frame *f)
{
    const struct project_spec *s = f->stage->spec;
    return (struct frame_linear){0, s->w, s->b, 0, s->activates};
}

static uint64_t count(const struct zinf_frame *f)
{
    return (uint64_t)(frame_rows(f) * f->graph->values[f->stage->out.at[0]].cols);
}

/* What the activation takes; without one the product is the result, and nobody reads it again. */
static void *keep(struct zinf_frame *f)
{
    const struct project_spec *s = f->stage->spec;
    return s->activates ? frame_keep(f, count(f) * frame_width(f)) : f->out[0];
}

static int forward(struct zinf_frame *f)
{
    const struct project_spec *s = f->stage->spec;
    const struct frame_linear linear = linear_of(f);
    void *product = keep(f);
    int code = frame_linear(f, &linear, f->in[0], product);
    return code || !s->activates ? code
                                 : frame_activation(f, s->activation, product, f->out[0], count(f));
}

static int backward(struct zinf_frame *f)
{
    const struct project_spec *s = f->stage->spec;
    const struct frame_linear linear = linear_of(f);
    const int64_t n = frame_rows(f) * f->graph->values[f->stage->in.at[0]].cols;
    struct zinf_residual sum = {
        .dtype = f->compute->dtype, .n = n, .x = f->d_in[0], .y = f->d_in[0]};
    const bool adds = f->d_in[0] && f->d_in_adds[0];
    const void *product = keep(f);
    void *dy = f->d_out[0];
    int code = frame_zero_gaps(f, 0);
    if (!code && s->activates)
        code = frame_activation_backward(f, s->activation, dy, product, dy, NULL, count(f));
    if (!code)
        code = frame_linear_backward_weight(f, &linear, dy, f->in[0]);
    if (code || !f->d_in[0])
        return code;
    void *share = adds ? frame_scratch(f, (uint64_t)n * frame_width(f)) : f->d_in[0];
    sum.r = share;
    code = frame_linear_backward_input(f, &linear, dy, share);
    return code || !adds ? code : frame_residual(f, &sum);
}

const struct zinf_stage_ops zinf_stage_project = {
    .name = "project",
    .forward = forward,
    .backward = backward,
};
