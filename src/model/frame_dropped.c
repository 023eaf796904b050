/*
 * frame_dropped: adapters with magnitudes (frame_magnitude) that have dropout in front of them. It
 * reaches what W itself makes of x where that is corrected, and nothing else of it: with x~ =
 * dropout(x), by adapter, and u, v of frame_adapter, v of gain dy,
 *   t = W x~, y = W x + b + (gain - 1) t + gain u B^T
 *   dx = W^T dy + mask(W^T (gain - 1) dy) + mask(v A)
 *   dm = sum over rows of dy (t + u B^T), divided by n
 * as peft.tuners.lora.dora has it. Without dropout frame_magnitude makes the same with a product
 * with W less each way, so that this is for training alone.
 */
#include "model/frame_adapter.h"

struct ends {
    const void *weight;
    const void *from;
    void *to;
};

static bool is_dropped(const struct zinf_frame *f, const struct zinf_adapted *spec)
{
    return spec->has_magnitude && frame_dropout_at(f, spec->dropout, spec->site, 0).p > 0;
}

bool frame_drops_magnitude(const struct zinf_frame *f, const struct frame_linear *l)
{
    const struct zinf_unit *unit = frame_unit(f, l->unit);
    for (uint32_t i = 0; !f->compute->reference && i < unit->n_adapted; i++) {
        const struct zinf_adapted *spec = &f->graph->adapted[unit->first_adapted + i];
        if ((int)spec->tensor == l->weight && is_dropped(f, spec))
            return true;
    }
    return false;
}

static uint64_t result_elems(const struct zinf_frame *f, const struct frame_linear *l)
{
    return (uint64_t)frame_linear_rows(f, l) * frame_linear_weight(f, l)->rows;
}

/* to += from */
static int add(struct zinf_frame *f, uint64_t n, const void *from, void *to)
{
    struct zinf_residual args = {
        .dtype = f->compute->dtype, .n = (int64_t)n, .x = to, .r = from, .y = to};
    return frame_residual(f, &args);
}

/* *out = gain - 1 in scratch. No operation subtracts; a product of ones with alpha -1 does. */
static int corrections(struct zinf_frame *f, const struct frame_linear *l,
                       const struct frame_gains *g, float **out)
{
    int64_t rows = (int64_t)frame_linear_weight(f, l)->rows;
    uint64_t bytes = (uint64_t)rows * sizeof **out;
    *out = frame_scratch(f, bytes);
    uint64_t mark = frame_mark(f);
    float *ones = frame_scratch(f, bytes), *norms = frame_scratch(f, bytes);
    struct zinf_magnitude make_ones = {.rows = rows, .norm = norms, .gain = ones};
    struct zinf_matmul subtract = {
        .m = 1,
        .n = rows,
        .k = 1,
        .a = norms, /* the first number is 1 */
        .b = ones,
        .c = *out,
        .a_dtype = ZINF_DTYPE_F32,
        .b_dtype = ZINF_DTYPE_F32,
        .c_dtype = ZINF_DTYPE_F32,
        .lda = 1,
        .ldb = rows,
        .ldc = rows,
        .alpha = -1,
        .beta = 1,
    };
    int code = frame_row_norms(f, &make_ones);
    if (!code)
        code = frame_copy(f, *out, g->gain, bytes);
    if (!code)
        code = frame_matmul(f, &subtract);
    frame_release(f, mark);
    return code;
}

/* ---- forward ---- */

static int weigh_one(struct zinf_frame *f, const struct low_rank *r, void *argument)
{
    const struct ends *e = argument;
    struct zinf_matmul args = frame_product(f);
    if (!is_dropped(f, r->spec))
        return 0;
    int code = frame_adapter_mask(f, r, e->from, &args.a);
    args.m = r->rows;
    args.n = r->spec->rows;
    args.k = r->in;
    args.b = frame_adapter_weight(f, r, e->weight);
    args.c = frame_adapter_columns(f, r, e->to);
    args.trans_b = true;
    args.lda = args.ldb = r->in;
    args.ldc = r->ld;
    return code ? code : frame_matmul(f, &args);
}

/* t = W x~, by adapter. Columns without an adapter become zero. */
static int weigh(struct zinf_frame *f, const struct frame_linear *l, const void *x, void *t)
{
    struct ends ends = {.from = x, .to = t};
    uint64_t mark = frame_mark(f);
    int code = frame_zero(f, t, result_elems(f, l) * frame_width(f));
    if (!code)
        code = frame_matrix(f, l->unit, l->weight, &ends.weight);
    if (!code)
        code = frame_each_adapter(f, l, weigh_one, &ends);
    frame_release(f, mark);
    return code;
}

int frame_dropped_unscaled(struct zinf_frame *f, const struct frame_linear *l, const void *x,
                           void *unscaled)
{
    int code = weigh(f, l, x, unscaled);
    return code ? code : frame_adapt(f, l, x, unscaled);
}

/* y += gain t; t is overwritten. */
static int add_scaled(struct zinf_frame *f, const struct frame_linear *l, const float *gain,
                      void *t, void *y)
{
    int code = frame_scale(f, l, gain, t, NULL, t);
    return code ? code : add(f, result_elems(f, l), t, y);
}

int frame_dropped(struct zinf_frame *f, const struct frame_linear *l, const void *x, void *y)
{
    struct frame_gains g;
    float *less = NULL;
    uint64_t mark = frame_mark(f), bytes = result_elems(f, l) * frame_width(f);
    void *t = frame_scratch(f, bytes);
    int code = frame_make_gains(f, l, &g);
    if (!code)
        code = corrections(f, l, &g, &less);
    if (!code)
        code = weigh(f, l, x, t);
    if (!code)
        code = add_scaled(f, l, less, t, y);
    if (!code)
        code = frame_zero(f, t, bytes);
    if (!code)
        code = frame_adapt(f, l, x, t);
    if (!code)
        code = add_scaled(f, l, g.gain, t, y);
    frame_release(f, mark);
    return code;
}

/* ---- backward ---- */

/* dx += mask(W^T corrected dy), for the adapter's rows and columns. */
static int weigh_back_one(struct zinf_frame *f, const struct low_rank *r, void *argument)
{
    const struct ends *e = argument;
    struct zinf_matmul args = frame_product(f);
    struct zinf_residual added = {
        .dtype = f->compute->dtype,
        .n = r->rows * r->in,
        .x = e->to,
        .y = e->to,
        .dropout = frame_adapter_dropout(f, r),
    };
    if (!is_dropped(f, r->spec))
        return 0;
    args.m = r->rows;
    args.n = r->in;
    args.k = r->spec->rows;
    args.a = frame_adapter_columns(f, r, e->from);
    args.b = frame_adapter_weight(f, r, e->weight);
    args.c = frame_scratch(f, (uint64_t)added.n * frame_width(f));
    args.lda = r->ld;
    args.ldb = args.ldc = r->in;
    added.r = args.c;
    int code = frame_matmul(f, &args);
    return code ? code : frame_residual(f, &added);
}

int frame_dropped_backward_input(struct zinf_frame *f, const struct frame_linear *l, const void *dy,
                                 void *dx)
{
    struct frame_gains g;
    float *less = NULL;
    uint64_t mark = frame_mark(f);
    void *scaled = frame_scratch(f, result_elems(f, l) * frame_width(f));
    struct ends ends = {.from = scaled, .to = dx};
    int code = frame_make_gains(f, l, &g);
    if (!code)
        code = corrections(f, l, &g, &less);
    if (!code)
        code = frame_scale(f, l, less, dy, NULL, scaled);
    if (!code)
        code = frame_matrix(f, l->unit, l->weight, &ends.weight);
    if (!code)
        code = frame_each_adapter(f, l, weigh_back_one, &ends);
    if (!code)
        code = frame_scale(f, l, g.gain, dy, NULL, scaled);
    if (!code)
        code = frame_adapt_backward_input(f, l, scaled, dx);
    frame_release(f, mark);
    return code;
}
