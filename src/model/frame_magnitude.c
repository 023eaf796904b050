/*
 * frame_magnitude: adapters that learn the magnitude of a weight's rows apart from their direction
 * (DoRA, kernels/magnitude.h). What a layer makes of W and its adapters is scaled column by column:
 *   y = gain (x V^T) + b, gain = m / n, n = |V| by rows, of which no gradient is taken, as in PEFT
 *   d(x V^T) = gain dy; dm = sum over rows of dy (x V^T), divided by n
 * Norms are made anew by each call that needs them: they cost a read of W.
 */
#include "model/frame_adapter.h"

struct gains {
    struct frame_gains made;
    const void *weight;
    const void *dy, *unscaled;
};

bool frame_has_magnitude(const struct zinf_frame *f, const struct frame_linear *l)
{
    const struct zinf_unit *unit = frame_unit(f, l->unit);
    for (uint32_t i = 0; !f->compute->reference && i < unit->n_adapted; i++) {
        const struct zinf_adapted *spec = &f->graph->adapted[unit->first_adapted + i];
        if ((int)spec->tensor == l->weight && spec->has_magnitude)
            return true;
    }
    return false;
}

/* c [m][rank] = a A^T in fp32. a: rows of the weight, or A itself. */
static int times_a(struct zinf_frame *f, const struct low_rank *r, const void *a, int64_t m,
                   float *c)
{
    struct zinf_matmul args = frame_product(f);
    args.m = m;
    args.n = r->rank;
    args.k = r->in;
    args.a = a;
    args.b = frame_weight(f, r->unit, (int)r->spec->a);
    args.c = c;
    args.c_dtype = ZINF_DTYPE_F32;
    args.trans_b = true;
    args.lda = args.ldb = r->in;
    args.ldc = r->rank;
    return frame_matmul(f, &args);
}

static int gains_of_one(struct zinf_frame *f, const struct low_rank *r, void *argument)
{
    const struct gains *g = argument;
    const struct zinf_adapted *spec = r->spec;
    uint64_t first = f->queue ? spec->first_row : 0, rank = (uint64_t)r->rank;
    const void *w = frame_adapter_weight(f, r, g->weight);
    float *w_a = frame_scratch(f, spec->rows * rank * sizeof *w_a);
    float *a_a = frame_scratch(f, rank * rank * sizeof *a_a);
    struct zinf_magnitude args = {
        .dtype = f->compute->dtype,
        .rows = spec->rows,
        .cols = r->in,
        .rank = r->rank,
        .scale = spec->scale,
        .w = w,
        .b = frame_weight(f, r->unit, (int)spec->b),
        .magnitude = frame_weight(f, r->unit, (int)spec->magnitude),
        .w_a = w_a,
        .a_a = a_a,
        .norm = g->made.norm + first,
        .gain = g->made.gain + first,
    };
    if (!spec->has_magnitude)
        return 0;
    int code = times_a(f, r, w, spec->rows, w_a);
    if (!code)
        code = times_a(f, r, frame_weight(f, r->unit, (int)spec->a), r->rank, a_a);
    return code ? code : frame_row_norms(f, &args);
}

int frame_make_gains(struct zinf_frame *f, const struct frame_linear *l, struct frame_gains *out)
{
    uint64_t rows = frame_linear_weight(f, l)->rows;
    *out = (struct frame_gains){.norm = frame_scratch(f, rows * sizeof(float)),
                                .gain = frame_scratch(f, rows * sizeof(float))};
    struct zinf_magnitude ones = {.rows = (int64_t)rows, .norm = out->norm, .gain = out->gain};
    struct gains g = {.made = *out};
    uint64_t mark = frame_mark(f);
    int code = frame_row_norms(f, &ones);
    if (!code)
        code = frame_matrix(f, l->unit, l->weight, &g.weight);
    if (!code)
        code = frame_each_adapter(f, l, gains_of_one, &g);
    frame_release(f, mark);
    return code;
}

int frame_scale(struct zinf_frame *f, const struct frame_linear *l, const float *gain,
                const void *x, const void *bias, void *y)
{
    struct zinf_column_scale args = {
        .dtype = f->compute->dtype,
        .rows = frame_linear_rows(f, l),
        .cols = (int64_t)frame_linear_weight(f, l)->rows,
        .x = x,
        .gain = gain,
        .bias = bias,
        .y = y,
    };
    return frame_scale_columns(f, &args);
}

int frame_magnitude(struct zinf_frame *f, const struct frame_linear *l, void *y)
{
    struct frame_gains g;
    uint64_t mark = frame_mark(f);
    int code = frame_make_gains(f, l, &g);
    if (!code)
        code = frame_scale(f, l, g.gain, y, frame_weight(f, l->unit, l->bias), y);
    frame_release(f, mark);
    return code;
}

int frame_magnitude_backward(struct zinf_frame *f, const struct frame_linear *l, const void *dy,
                             const void **scaled)
{
    struct frame_gains g;
    uint64_t elems = (uint64_t)frame_linear_rows(f, l) * frame_linear_weight(f, l)->rows;
    void *made = frame_scratch(f, elems * frame_width(f));
    uint64_t mark = frame_mark(f);
    int code = frame_make_gains(f, l, &g);
    if (!code)
        code = frame_scale(f, l, g.gain, dy, NULL, made);
    frame_release(f, mark);
    *scaled = made;
    return code;
}

static int gradient_of_one(struct zinf_frame *f, const struct low_rank *r, void *argument)
{
    const struct gains *g = argument;
    struct zinf_column_dot args = {
        .dtype = f->compute->dtype,
        .rows = r->rows,
        .cols = r->spec->rows,
        .ld = r->ld,
        .x = frame_adapter_columns(f, r, g->dy),
        .y = frame_adapter_columns(f, r, g->unscaled),
        .norm = g->made.norm + (f->queue ? r->spec->first_row : 0),
        .sum = r->spec->has_magnitude ? frame_grad(f, r->unit, (int)r->spec->magnitude) : NULL,
    };
    if (!args.sum)
        return 0;
    int code = frame_dot_columns(f, &args);
    return code ? code : frame_zero_gap(f, r->unit, r->spec->magnitude);
}

int frame_magnitude_gradient(struct zinf_frame *f, const struct frame_linear *l, const void *dy,
                             const void *unscaled)
{
    struct gains g = {.dy = dy, .unscaled = unscaled};
    uint64_t mark = frame_mark(f);
    int code = frame_make_gains(f, l, &g.made);
    if (!code)
        code = frame_each_adapter(f, l, gradient_of_one, &g);
    frame_release(f, mark);
    return code;
}
