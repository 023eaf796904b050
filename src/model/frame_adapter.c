/*
 * frame_adapter: what adapters add to products with a weight: with
 *   x~ = dropout(x), u = scale x~ A^T, v = scale dy B
 *   y += u B^T; dx += mask(v A); dA = v^T x~; dB = dy^T u
 * An adapter of some rows of W (keys, of a W that is queries, keys and values) sees those columns
 * of y and dy alone. u, v and x~ are made where they are needed: nothing is kept for backward, and
 * the frozen W asks for no saved input.
 */
#include "model/frame_adapter.h"

int64_t frame_linear_rows(const struct zinf_frame *f, const struct frame_linear *l)
{
    if (l->rows)
        return l->rows;
    return f->stage->choice.n ? f->n_chosen : frame_rows(f);
}

const struct zinf_tensor *frame_linear_weight(const struct zinf_frame *f,
                                              const struct frame_linear *l)
{
    return &frame_unit(f, l->unit)->tensors[l->weight];
}

struct zinf_matmul frame_product(const struct zinf_frame *f)
{
    enum zinf_dtype dtype = f->compute->dtype;
    return (struct zinf_matmul){.a_dtype = dtype, .b_dtype = dtype, .c_dtype = dtype};
}

/* ---- one adapter in one call ---- */

static struct low_rank low_rank_of(const struct zinf_frame *f, const struct frame_linear *l,
                                   const struct zinf_adapted *spec)
{
    const struct zinf_tensor *w = &f->graph->units[spec->unit].tensors[spec->tensor];
    struct low_rank r = {
        .spec = spec,
        .rows = frame_linear_rows(f, l),
        .rank = spec->rank,
        .in = (int64_t)w->cols,
        .ld = (int64_t)w->rows,
        .first_bytes = spec->first_row * frame_width(f),
    };
    while (f->stage->units.at[r.unit] != spec->adapter)
        r.unit++;
    return r;
}

void *frame_adapter_columns(const struct zinf_frame *f, const struct low_rank *r, const void *y)
{
    uint64_t first = f->queue ? r->first_bytes : 0;
    return (char *)(uintptr_t)y + first;
}

const void *frame_adapter_weight(const struct zinf_frame *f, const struct low_rank *r,
                                 const void *w)
{
    uint64_t first = f->queue ? r->spec->first_row : 0;
    return (const char *)w + first * (uint64_t)r->in * frame_width(f);
}

struct zinf_dropout frame_adapter_dropout(const struct zinf_frame *f, const struct low_rank *r)
{
    uint64_t per_sample = (uint64_t)(r->rows / f->compute->batch * r->in);
    return frame_dropout_at(f, r->spec->dropout, r->spec->site, per_sample);
}

int frame_adapter_mask(struct zinf_frame *f, const struct low_rank *r, const void *x,
                       const void **masked)
{
    struct zinf_residual args = {
        .dtype = f->compute->dtype,
        .n = r->rows * r->in,
        .r = x,
        .dropout = frame_adapter_dropout(f, r),
    };
    *masked = x;
    if (!(args.dropout.p > 0))
        return 0;
    *masked = args.y = frame_scratch(f, (uint64_t)args.n * frame_width(f));
    return frame_dropout(f, &args);
}

/* The first element of the adapter's part in A, or in B (b), where all visits' are stacked. While
 * measuring it is 0, so that NULL stays NULL. */
static uint64_t first_of(const struct zinf_frame *f, const struct low_rank *r, bool b)
{
    const struct zinf_unit *u = &f->graph->units[r->spec->adapter];
    return f->queue ? r->spec->first_rank * u->tensors[b ? r->spec->b : r->spec->a].cols : 0;
}

static const void *factor(const struct zinf_frame *f, const struct low_rank *r, bool b)
{
    const char *w = frame_weight(f, r->unit, (int)(b ? r->spec->b : r->spec->a));
    return w ? w + first_of(f, r, b) * frame_width(f) : NULL;
}

static float *factor_grad(const struct zinf_frame *f, const struct low_rank *r, bool b)
{
    float *g = frame_grad(f, r->unit, (int)(b ? r->spec->b : r->spec->a));
    return g ? g + first_of(f, r, b) : NULL;
}

/* Elements from row to row of B as it is stored. */
static int64_t ld_of_b(const struct low_rank *r)
{
    return r->spec->stacked ? r->spec->rows : r->rank;
}

/* *u [rows][rank] = scale x~ A^T, in scratch. */
static int down(struct zinf_frame *f, const struct low_rank *r, const void *masked, void **u)
{
    struct zinf_matmul args = frame_product(f);
    *u = frame_scratch(f, (uint64_t)(r->rows * r->rank) * frame_width(f));
    args.m = r->rows;
    args.n = r->rank;
    args.k = r->in;
    args.a = masked;
    args.b = factor(f, r, false);
    args.c = *u;
    args.trans_b = true;
    args.lda = args.ldb = r->in;
    args.ldc = r->rank;
    args.alpha = r->spec->scale;
    return frame_matmul(f, &args);
}

/* *v [rows][rank] = scale dy B, in scratch. */
static int down_back(struct zinf_frame *f, const struct low_rank *r, const void *dy, void **v)
{
    struct zinf_matmul args = frame_product(f);
    *v = frame_scratch(f, (uint64_t)(r->rows * r->rank) * frame_width(f));
    args.m = r->rows;
    args.n = r->rank;
    args.k = r->spec->rows;
    args.a = frame_adapter_columns(f, r, dy);
    args.b = factor(f, r, true);
    args.c = *v;
    args.trans_b = r->spec->stacked;
    args.lda = r->ld;
    args.ldb = ld_of_b(r);
    args.ldc = r->rank;
    args.alpha = r->spec->scale;
    return frame_matmul(f, &args);
}

static int add_forward(struct zinf_frame *f, const struct low_rank *r, const void *x, void *y)
{
    struct zinf_matmul args = frame_product(f);
    const void *masked;
    void *u;
    int code = frame_adapter_mask(f, r, x, &masked);
    if (code || (code = down(f, r, masked, &u)))
        return code;
    args.m = r->rows;
    args.n = r->spec->rows;
    args.k = r->rank;
    args.a = u;
    args.b = factor(f, r, true);
    args.c = frame_adapter_columns(f, r, y);
    args.trans_b = !r->spec->stacked;
    args.lda = r->rank;
    args.ldb = ld_of_b(r);
    args.ldc = r->ld;
    args.beta = 1;
    return frame_matmul(f, &args);
}

static int add_input_gradient(struct zinf_frame *f, const struct low_rank *r, const void *dy,
                              void *dx)
{
    struct zinf_matmul args = frame_product(f);
    struct zinf_residual added = {
        .dtype = f->compute->dtype,
        .n = r->rows * r->in,
        .x = dx,
        .y = dx,
        .dropout = frame_adapter_dropout(f, r),
    };
    bool masks = added.dropout.p > 0;
    void *v;
    int code = down_back(f, r, dy, &v);
    if (code)
        return code;
    args.m = r->rows;
    args.n = r->in;
    args.k = r->rank;
    args.a = v;
    args.b = factor(f, r, false);
    args.c = masks ? frame_scratch(f, (uint64_t)added.n * frame_width(f)) : dx;
    args.lda = r->rank;
    args.ldb = args.ldc = r->in;
    args.beta = masks ? 0 : 1;
    code = frame_matmul(f, &args);
    added.r = args.c;
    return code || !masks ? code : frame_residual(f, &added);
}

/* dA = v^T x~ */
static int gradient_of_a(struct zinf_frame *f, const struct low_rank *r, const void *dy,
                         const void *masked)
{
    struct zinf_matmul args = frame_product(f);
    void *v;
    args.c = factor_grad(f, r, false);
    int code = down_back(f, r, dy, &v);
    if (code)
        return code;
    args.m = r->rank;
    args.n = r->in;
    args.k = r->rows;
    args.a = v;
    args.b = masked;
    args.trans_a = true;
    args.lda = r->rank;
    args.ldb = args.ldc = r->in;
    args.c_dtype = ZINF_DTYPE_F32;
    code = frame_matmul(f, &args);
    return code ? code : frame_zero_gap(f, r->unit, r->spec->a);
}

/* dB = dy^T u; stacked: u^T dy */
static int gradient_of_b(struct zinf_frame *f, const struct low_rank *r, const void *dy,
                         const void *masked)
{
    struct zinf_matmul args = frame_product(f);
    void *u;
    const bool turned = r->spec->stacked;
    args.c = factor_grad(f, r, true);
    int code = down(f, r, masked, &u);
    if (code)
        return code;
    args.m = turned ? r->rank : r->spec->rows;
    args.n = turned ? r->spec->rows : r->rank;
    args.k = r->rows;
    args.a = turned ? u : frame_adapter_columns(f, r, dy);
    args.b = turned ? frame_adapter_columns(f, r, dy) : u;
    args.trans_a = true;
    args.lda = turned ? r->rank : r->ld;
    args.ldb = turned ? r->ld : r->rank;
    args.ldc = ld_of_b(r);
    args.c_dtype = ZINF_DTYPE_F32;
    code = frame_matmul(f, &args);
    return code ? code : frame_zero_gap(f, r->unit, r->spec->b);
}

static int make_gradients(struct zinf_frame *f, const struct low_rank *r, const void *dy,
                          const void *x)
{
    const void *masked;
    if (!frame_grad(f, r->unit, (int)r->spec->a))
        return 0;
    int code = frame_adapter_mask(f, r, x, &masked);
    uint64_t mark = frame_mark(f);
    if (!code)
        code = gradient_of_a(f, r, dy, masked);
    frame_release(f, mark);
    return code ? code : gradient_of_b(f, r, dy, masked);
}

/* ---- all adapters of a weight ---- */

int frame_each_adapter(struct zinf_frame *f, const struct frame_linear *l,
                       int (*act)(struct zinf_frame *f, const struct low_rank *r, void *argument),
                       void *argument)
{
    const struct zinf_unit *unit = frame_unit(f, l->unit);
    uint64_t mark = frame_mark(f);
    int code = 0;
    for (uint32_t i = 0; !code && !f->compute->reference && i < unit->n_adapted; i++) {
        const struct zinf_adapted *spec = &f->graph->adapted[unit->first_adapted + i];
        struct low_rank r;
        if ((int)spec->tensor != l->weight)
            continue;
        r = low_rank_of(f, l, spec);
        code = act(f, &r, argument);
        frame_release(f, mark);
    }
    return code;
}

/* from: what is multiplied. to: what is added to. input: the input whose gradient is made. */
struct ends {
    const void *from;
    void *to;
    const void *input;
};

static int forward_one(struct zinf_frame *f, const struct low_rank *r, void *argument)
{
    const struct ends *e = argument;
    return add_forward(f, r, e->from, e->to);
}

static int backward_one(struct zinf_frame *f, const struct low_rank *r, void *argument)
{
    const struct ends *e = argument;
    return add_input_gradient(f, r, e->from, e->to);
}

static int gradients_of_one(struct zinf_frame *f, const struct low_rank *r, void *argument)
{
    const struct ends *e = argument;
    return make_gradients(f, r, e->from, e->input);
}

int frame_adapt(struct zinf_frame *f, const struct frame_linear *l, const void *x, void *y)
{
    struct ends ends = {.from = x, .to = y};
    return frame_each_adapter(f, l, forward_one, &ends);
}

int frame_adapt_backward_input(struct zinf_frame *f, const struct frame_linear *l, const void *dy,
                               void *dx)
{
    struct ends ends = {.from = dy, .to = dx};
    return frame_each_adapter(f, l, backward_one, &ends);
}

int frame_adapt_backward_weight(struct zinf_frame *f, const struct frame_linear *l, const void *dy,
                                const void *x)
{
    struct ends ends = {.from = dy, .input = x};
    return frame_each_adapter(f, l, gradients_of_one, &ends);
}
