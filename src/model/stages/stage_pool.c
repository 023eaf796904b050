/*
 * stage_pool: of each sample the sum of those rows that are its embedding, in fp32. Means, norms,
 * similarities and their loss are made of the sums of a whole step, where they all are; what this
 * loss is, and its gradient at each sum, comes back as inputs of the sweep that goes backward. The
 * first sweep, which only makes the sums, has the same stage and looks at neither.
 */
#include "model/stages/stages.h"

enum { IN_X, IN_POOLED, IN_PULLS, IN_LOSSES, N_IN };
enum { OUT_LOSS, OUT_SUMS };

static const struct zinf_value *rows_of(const struct zinf_frame *f)
{
    return &f->graph->values[f->stage->in.at[IN_X]];
}

/* Which rows, in the number type that products take: 0 and 1 have no rounding. */
static int narrow_pooled(struct zinf_frame *f, void **out)
{
    const uint64_t n = (uint64_t)(f->compute->batch * f->compute->seq);
    *out = frame_scratch(f, n * frame_width(f));
    return frame_convert(f, *out, f->compute->dtype, f->in[IN_POOLED], ZINF_DTYPE_F32, n);
}

static const void *at(const struct zinf_frame *f, const void *array, int64_t elems, uint64_t width)
{
    return (const char *)array + (f->queue ? (uint64_t)elems * width : 0);
}

static int forward(struct zinf_frame *f)
{
    const int64_t seq = f->compute->seq, cols = rows_of(f)->cols;
    const uint64_t width = frame_width(f), mark = frame_mark(f);
    void *pooled;
    int code = narrow_pooled(f, &pooled);
    for (int64_t b = 0; !code && b < f->compute->batch; b++) {
        const struct zinf_matmul args = {
            .m = 1,
            .n = cols,
            .k = seq,
            .a = at(f, pooled, b * seq, width),
            .b = at(f, f->in[IN_X], b * seq * cols, width),
            .c = (void *)(uintptr_t)at(f, f->out[OUT_SUMS], b * cols, sizeof(float)),
            .a_dtype = f->compute->dtype,
            .b_dtype = f->compute->dtype,
            .c_dtype = ZINF_DTYPE_F32,
            .lda = seq,
            .ldb = cols,
            .ldc = cols,
        };
        code = frame_matmul(f, &args);
    }
    frame_release(f, mark);
    return code ? code
                : frame_copy(f, f->out[OUT_LOSS], f->in[IN_LOSSES],
                             (uint64_t)f->compute->batch * sizeof(float));
}

/* The pulls times the loss's scale, as products take them. */
static int narrow_pulls(struct zinf_frame *f, void **out)
{
    const int64_t n = f->compute->batch * rows_of(f)->cols;
    float *scaled = frame_scratch(f, (uint64_t)n * sizeof *scaled);
    const struct zinf_residual args = {
        .dtype = ZINF_DTYPE_F32, .n = n, .r = f->in[IN_PULLS], .y = scaled, .scale = f->loss_scale};
    *out = frame_scratch(f, (uint64_t)n * frame_width(f));
    int code = frame_dropout(f, &args);
    return code ? code
                : frame_convert(f, *out, f->compute->dtype, scaled, ZINF_DTYPE_F32, (uint64_t)n);
}

static int backward(struct zinf_frame *f)
{
    const bool wide = rows_of(f)->gradient == ZINF_ELEMENT_F32;
    const int64_t seq = f->compute->seq, cols = rows_of(f)->cols;
    const uint64_t width = frame_width(f), mark = frame_mark(f);
    void *pooled, *pulls;
    int code = narrow_pooled(f, &pooled);
    if (!code)
        code = narrow_pulls(f, &pulls);
    for (int64_t b = 0; !code && f->d_in[IN_X] && b < f->compute->batch; b++) {
        const struct zinf_matmul args = {
            .m = seq,
            .n = cols,
            .k = 1,
            .a = at(f, pooled, b * seq, width),
            .b = at(f, pulls, b * cols, width),
            .c = (void *)(uintptr_t)at(f, f->d_in[IN_X], b * seq * cols,
                                       wide ? sizeof(float) : width),
            .a_dtype = f->compute->dtype,
            .b_dtype = f->compute->dtype,
            .c_dtype = wide ? ZINF_DTYPE_F32 : f->compute->dtype,
            .lda = 1,
            .ldb = cols,
            .ldc = cols,
            .beta = f->d_in_adds[IN_X] ? 1 : 0,
        };
        code = frame_matmul(f, &args);
    }
    frame_release(f, mark);
    return code;
}

const struct zinf_stage_ops zinf_stage_pool = {
    .name = "pool",
    .forward = forward,
    .backward = backward,
};
