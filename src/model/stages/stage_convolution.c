/*
 * stage_convolution: what a convolution along the sequence adds to a layer's output: norm(x +
 * act(dropout(conv(rows)))), where a token sees the neighbours of its own document. It is a product
 * of rows that lie beside their neighbours; those are made again for backward, from the input.
 */
#include "model/stages/stages.h"

struct kept {
    void *product, *sum; /* [rows][hidden]: with its dropout; in front of the norm */
    struct norm_kept norm;
};

static uint64_t count(const struct zinf_frame *f)
{
    const struct convolution_spec *s = f->stage->spec;
    return (uint64_t)(frame_rows(f) * s->hidden);
}

static struct kept keep(struct zinf_frame *f)
{
    const struct convolution_spec *s = f->stage->spec;
    struct kept k;
    k.product = frame_keep(f, count(f) * frame_width(f));
    k.sum = frame_keep(f, count(f) * frame_width(f));
    k.norm = part_norm_keep(f, &s->norm, 1);
    return k;
}

static struct frame_linear linear_of(const struct zinf_frame *f)
{
    const struct convolution_spec *s = f->stage->spec;
    return (struct frame_linear){0, s->w, s->b, 0, false};
}

static struct zinf_unfold unfold_args(const struct zinf_frame *f)
{
    const struct convolution_spec *s = f->stage->spec;
    return (struct zinf_unfold){
        .dtype = f->compute->dtype,
        .batch = f->compute->batch,
        .seq = frame_length(f),
        .cols = s->hidden,
        .width = s->width,
        .segments = f->in[2],
        .x = f->in[1],
    };
}

/* *out: rows beside their neighbours, in scratch. */
static int unfold(struct zinf_frame *f, void **out)
{
    const struct convolution_spec *s = f->stage->spec;
    struct zinf_unfold args = unfold_args(f);
    *out = args.y = frame_scratch(f, count(f) * (uint64_t)s->width * frame_width(f));
    return frame_unfold(f, &args);
}

static int mask(struct zinf_frame *f, void *x)
{
    const struct convolution_spec *s = f->stage->spec;
    return frame_mask(f, x, s->dropout, s->site, frame_length(f) * s->hidden);
}

static int forward(struct zinf_frame *f)
{
    const struct convolution_spec *s = f->stage->spec;
    const struct frame_linear linear = linear_of(f);
    const struct kept k = keep(f);
    const uint64_t start = frame_mark(f);
    struct zinf_residual sum = {
        .dtype = f->compute->dtype, .n = (int64_t)count(f), .x = f->in[0], .y = k.sum};
    void *rows;
    int code;
    if ((code = unfold(f, &rows)) || (code = frame_linear(f, &linear, rows, k.product)) ||
        (code = mask(f, k.product)))
        return code;
    frame_release(f, start);
    sum.r = rows = frame_scratch(f, count(f) * frame_width(f));
    if ((code = frame_activation(f, s->activation, k.product, rows, count(f))) ||
        (code = frame_residual(f, &sum)))
        return code;
    /* what is made again is kept without the output */
    return part_join(f, &s->norm, k.norm, k.sum, f->pass == ZINF_PASS_RECOMPUTE ? rows : f->out[0]);
}

/* d: the gradient of what the activation gave, to that of the rows, and of the weights. */
static int product_backward(struct zinf_frame *f, const struct kept *k, void *d)
{
    const struct convolution_spec *s = f->stage->spec;
    const struct frame_linear linear = linear_of(f);
    struct zinf_unfold args = unfold_args(f);
    void *rows;
    int code;
    if ((code = frame_activation_backward(f, s->activation, d, k->product, d, NULL, count(f))) ||
        (code = mask(f, d)) || (code = unfold(f, &rows)) ||
        (code = frame_linear_backward_weight(f, &linear, d, rows)) || !f->d_in[1])
        return code;
    void *d_rows = frame_scratch(f, count(f) * (uint64_t)s->width * frame_width(f));
    args.dy = d_rows;
    args.dx = f->d_in[1];
    args.beta_dx = f->d_in_adds[1] ? 1.0f : 0.0f;
    code = frame_linear_backward_input(f, &linear, d, d_rows);
    return code ? code : frame_unfold_backward(f, &args);
}

static int backward(struct zinf_frame *f)
{
    const struct convolution_spec *s = f->stage->spec;
    const struct kept k = keep(f);
    void *d_x, *d = frame_scratch(f, count(f) * frame_width(f));
    int code;
    if ((code = part_start_gradient(f, s->hidden, &d_x)) || (code = frame_zero_gaps(f, 0)) ||
        (code = part_join_backward(f, &s->norm, k.norm, k.sum, d_x)) ||
        (code = frame_copy(f, d, d_x, count(f) * frame_width(f))) ||
        (code = product_backward(f, &k, d)))
        return code;
    return part_finish_gradient(f, s->hidden, d_x);
}

const struct zinf_stage_ops zinf_stage_convolution = {
    .name = "convolution",
    .recomputes = true,
    .passes = true,
    .forward = forward,
    .backward = backward,
};
