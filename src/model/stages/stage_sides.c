/*
 * stage_sides: rows for each layer, of a table's rows t that have a part for each and of the
 * embedded rows x: p = (norm(W x) + t) / sqrt(2), the norm over each layer's columns. A layer's
 * rows are a value of their own, so that a layer brings its own alone to the device.
 */
#include "model/stages/stages.h"

#include <math.h>

static uint64_t all_bytes(const struct zinf_frame *f, const struct sides_spec *s)
{
    return frame_rows_bytes(f, s->n * s->cols);
}

static struct frame_linear linear_of(const struct sides_spec *s)
{
    return (struct frame_linear){.weight = s->w, .bias = -1};
}

static struct zinf_norm norm_of(const struct zinf_frame *f, const struct sides_spec *s,
                                const void *x, float *rstd)
{
    struct zinf_norm args =
        part_norm(f, &s->norm, s->cols, x, (struct norm_kept){.mean = NULL, .rstd = rstd});
    args.heads = s->n;
    return args;
}

/* Rows of all layers to those of each, or their gradients back. */
static int deal(struct zinf_frame *f, const struct sides_spec *s, void *all, void *const *each,
                bool back)
{
    const int64_t whole = s->n * s->cols;
    int code = 0;
    for (int64_t i = 0; !code && i < s->n; i++) {
        void *part = all ? (char *)all + (uint64_t)(i * s->cols) * frame_width(f) : NULL;
        const struct zinf_heads args = {.dtype = f->compute->dtype,
                                        .rows = frame_rows(f),
                                        .n_heads = 1,
                                        .cols = s->cols,
                                        .x = back ? each[i] : part,
                                        .x_ld = back ? s->cols : whole,
                                        .y = back ? part : each[i],
                                        .y_ld = back ? whole : s->cols};
        code = frame_heads(f, &args);
    }
    return code;
}

/* In place: the mean of two rows that keeps their size. */
static int halve(struct zinf_frame *f, const struct sides_spec *s, void *x)
{
    const struct zinf_residual args = {.dtype = f->compute->dtype,
                                       .n = frame_rows(f) * s->n * s->cols,
                                       .r = x,
                                       .y = x,
                                       .scale = sqrtf(0.5f)};
    return frame_dropout(f, &args);
}

static int add(struct zinf_frame *f, int64_t cols, const void *x, const void *r, void *y)
{
    const struct zinf_residual args = {
        .dtype = f->compute->dtype, .n = frame_rows(f) * cols, .x = x, .r = r, .y = y};
    return frame_residual(f, &args);
}

static int forward(struct zinf_frame *f)
{
    const struct sides_spec *s = f->stage->spec;
    const struct frame_linear linear = linear_of(s);
    void *product = frame_keep(f, all_bytes(f, s));
    float *rstd = frame_keep(f, (uint64_t)(frame_rows(f) * s->n) * sizeof *rstd);
    struct zinf_norm norm = norm_of(f, s, product, rstd);
    void *rows = norm.y = frame_scratch(f, all_bytes(f, s));
    int code = frame_linear(f, &linear, f->in[1], product);
    if (!code)
        code = frame_norm(f, &norm);
    if (f->pass == ZINF_PASS_RECOMPUTE || code)
        return code;
    if ((code = add(f, s->n * s->cols, rows, f->in[0], rows)) || (code = halve(f, s, rows)))
        return code;
    return deal(f, s, rows, f->out, false);
}

static int backward(struct zinf_frame *f)
{
    const struct sides_spec *s = f->stage->spec;
    const struct frame_linear linear = linear_of(s);
    const int64_t whole = s->n * s->cols;
    void *product = frame_keep(f, all_bytes(f, s));
    float *rstd = frame_keep(f, (uint64_t)(frame_rows(f) * s->n) * sizeof *rstd);
    void *d_rows = frame_scratch(f, all_bytes(f, s));
    void *share = frame_scratch(f, frame_rows_bytes(f, s->hidden));
    struct zinf_norm norm = norm_of(f, s, product, rstd);
    int code;
    if ((code = frame_zero_gaps(f, 0)) || (code = deal(f, s, d_rows, f->d_out, true)) ||
        (code = halve(f, s, d_rows)))
        return code;
    if (f->d_in[0])
        code = f->d_in_adds[0] ? add(f, whole, f->d_in[0], d_rows, f->d_in[0])
                               : frame_copy(f, f->d_in[0], d_rows, all_bytes(f, s));
    norm.dy = norm.dx = d_rows;
    norm.dw = frame_grad(f, 0, s->norm.w);
    if (code || (code = frame_norm_backward(f, &norm)) ||
        (code = frame_linear_backward_weight(f, &linear, d_rows, f->in[1])) || !f->d_in[1])
        return code;
    void *d_x = f->d_in_adds[1] ? share : f->d_in[1];
    code = frame_linear_backward_input(f, &linear, d_rows, d_x);
    return code || d_x != share ? code : add(f, s->hidden, f->d_in[1], share, f->d_in[1]);
}

const struct zinf_stage_ops zinf_stage_sides = {
    .name = "sides",
    .recomputes = true,
    .forward = forward,
    .backward = backward,
};
