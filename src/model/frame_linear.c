/*
 * frame_linear: products with the weights of units, and what adapters add to them: with
 *   x~ = dropout(x), u = scale x~ A^T, v = scale dy B
 *   y += u B^T; dx += mask(v A); dA = v^T x~; dB = dy^T u
 * An adapter of some rows of W (keys, of a W that is queries, keys and values) sees those columns
 * of y and dy alone. u, v and x~ are made where they are needed: nothing is kept for backward, and
 * the frozen W asks for no saved input.
 */
#include "model/frame.h"

static int64_t linear_rows(const struct zinf_frame *f, const struct frame_linear *l)
{
    if (l->rows)
        return l->rows;
    return f->stage->choice.n ? f->n_chosen : frame_rows(f);
}

static const struct zinf_tensor *weight_of(const struct zinf_frame *f, const struct frame_linear *l)
{
    return &frame_unit(f, l->unit)->tensors[l->weight];
}

/* Operands and result in the parameters' number type. */
static struct zinf_matmul product_of(const struct zinf_frame *f)
{
    enum zinf_dtype dtype = f->compute->dtype;
    return (struct zinf_matmul){.a_dtype = dtype, .b_dtype = dtype, .c_dtype = dtype};
}

/* ---- one adapter in one call ---- */

struct low_rank {
    const struct zinf_adapted *spec;
    uint32_t unit;              /* the adapter's place at hand */
    int64_t rows, rank, in, ld; /* of x; ...; elements from row to row of y */
    uint64_t first_bytes;       /* of its columns in a row of y */
};

static struct low_rank low_rank_of(const struct zinf_frame *f, const struct frame_linear *l,
                                   const struct zinf_adapted *spec)
{
    const struct zinf_unit *adapter = &f->graph->units[spec->adapter];
    const struct zinf_tensor *w = &f->graph->units[spec->unit].tensors[spec->tensor];
    struct low_rank r = {
        .spec = spec,
        .rows = linear_rows(f, l),
        .rank = (int64_t)adapter->tensors[spec->a].rows,
        .in = (int64_t)w->cols,
        .ld = (int64_t)w->rows,
        .first_bytes = spec->first_row * frame_width(f),
    };
    while (f->stage->units.at[r.unit] != spec->adapter)
        r.unit++;
    return r;
}

/* Its columns of y or dy. */
static void *columns_of(const struct zinf_frame *f, const struct low_rank *r, const void *y)
{
    uint64_t first = f->queue ? r->first_bytes : 0;
    return (char *)(uintptr_t)y + first;
}

static struct zinf_dropout dropout_of(const struct zinf_frame *f, const struct low_rank *r)
{
    uint64_t per_sample = (uint64_t)(r->rows / f->compute->batch * r->in);
    return frame_dropout_at(f, r->spec->dropout, r->spec->site, per_sample);
}

/* *masked: x~, in scratch where it is not x itself. */
static int mask(struct zinf_frame *f, const struct low_rank *r, const void *x, const void **masked)
{
    struct zinf_residual args = {
        .dtype = f->compute->dtype,
        .n = r->rows * r->in,
        .r = x,
        .dropout = dropout_of(f, r),
    };
    *masked = x;
    if (!(args.dropout.p > 0))
        return 0;
    *masked = args.y = frame_scratch(f, (uint64_t)args.n * frame_width(f));
    return frame_dropout(f, &args);
}

/* *u [rows][rank] = scale x~ A^T, in scratch. */
static int down(struct zinf_frame *f, const struct low_rank *r, const void *masked, void **u)
{
    struct zinf_matmul args = product_of(f);
    *u = frame_scratch(f, (uint64_t)(r->rows * r->rank) * frame_width(f));
    args.m = r->rows;
    args.n = r->rank;
    args.k = r->in;
    args.a = masked;
    args.b = frame_weight(f, r->unit, (int)r->spec->a);
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
    struct zinf_matmul args = product_of(f);
    *v = frame_scratch(f, (uint64_t)(r->rows * r->rank) * frame_width(f));
    args.m = r->rows;
    args.n = r->rank;
    args.k = r->spec->rows;
    args.a = columns_of(f, r, dy);
    args.b = frame_weight(f, r->unit, (int)r->spec->b);
    args.c = *v;
    args.lda = r->ld;
    args.ldb = args.ldc = r->rank;
    args.alpha = r->spec->scale;
    return frame_matmul(f, &args);
}

static int add_forward(struct zinf_frame *f, const struct low_rank *r, const void *x, void *y)
{
    struct zinf_matmul args = product_of(f);
    const void *masked;
    void *u;
    int code = mask(f, r, x, &masked);
    if (code || (code = down(f, r, masked, &u)))
        return code;
    args.m = r->rows;
    args.n = r->spec->rows;
    args.k = r->rank;
    args.a = u;
    args.b = frame_weight(f, r->unit, (int)r->spec->b);
    args.c = columns_of(f, r, y);
    args.trans_b = true;
    args.lda = args.ldb = r->rank;
    args.ldc = r->ld;
    args.beta = 1;
    return frame_matmul(f, &args);
}

static int add_input_gradient(struct zinf_frame *f, const struct low_rank *r, const void *dy,
                              void *dx)
{
    struct zinf_matmul args = product_of(f);
    struct zinf_residual added = {
        .dtype = f->compute->dtype,
        .n = r->rows * r->in,
        .x = dx,
        .y = dx,
        .dropout = dropout_of(f, r),
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
    args.b = frame_weight(f, r->unit, (int)r->spec->a);
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
    struct zinf_matmul args = product_of(f);
    void *v;
    args.c = frame_grad(f, r->unit, (int)r->spec->a);
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

/* dB = dy^T u */
static int gradient_of_b(struct zinf_frame *f, const struct low_rank *r, const void *dy,
                         const void *masked)
{
    struct zinf_matmul args = product_of(f);
    void *u;
    args.c = frame_grad(f, r->unit, (int)r->spec->b);
    int code = down(f, r, masked, &u);
    if (code)
        return code;
    args.m = r->spec->rows;
    args.n = r->rank;
    args.k = r->rows;
    args.a = columns_of(f, r, dy);
    args.b = u;
    args.trans_a = true;
    args.lda = r->ld;
    args.ldb = args.ldc = r->rank;
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
    int code = mask(f, r, x, &masked);
    uint64_t mark = frame_mark(f);
    if (!code)
        code = gradient_of_a(f, r, dy, masked);
    frame_release(f, mark);
    return code ? code : gradient_of_b(f, r, dy, masked);
}

/* ---- all adapters of a weight ---- */

/* The i-th adapter of the unit, where it is one of this weight. */
static bool adapts(const struct zinf_frame *f, const struct frame_linear *l, uint32_t i,
                   struct low_rank *out)
{
    const struct zinf_unit *unit = frame_unit(f, l->unit);
    const struct zinf_adapted *spec = &f->graph->adapted[unit->first_adapted + i];
    if ((int)spec->tensor != l->weight)
        return false;
    *out = low_rank_of(f, l, spec);
    return true;
}

static int adapt_forward(struct zinf_frame *f, const struct frame_linear *l, const void *x, void *y)
{
    uint64_t mark = frame_mark(f);
    struct low_rank r;
    int code = 0;
    for (uint32_t i = 0; !code && i < frame_unit(f, l->unit)->n_adapted; i++) {
        if (adapts(f, l, i, &r))
            code = add_forward(f, &r, x, y);
        frame_release(f, mark);
    }
    return code;
}

static int adapt_backward_input(struct zinf_frame *f, const struct frame_linear *l, const void *dy,
                                void *dx)
{
    uint64_t mark = frame_mark(f);
    struct low_rank r;
    int code = 0;
    for (uint32_t i = 0; !code && i < frame_unit(f, l->unit)->n_adapted; i++) {
        if (adapts(f, l, i, &r))
            code = add_input_gradient(f, &r, dy, dx);
        frame_release(f, mark);
    }
    return code;
}

static int adapt_backward_weight(struct zinf_frame *f, const struct frame_linear *l, const void *dy,
                                 const void *x)
{
    uint64_t mark = frame_mark(f);
    struct low_rank r;
    int code = 0;
    for (uint32_t i = 0; !code && i < frame_unit(f, l->unit)->n_adapted; i++) {
        if (adapts(f, l, i, &r))
            code = make_gradients(f, &r, dy, x);
        frame_release(f, mark);
    }
    return code;
}

/* ---- the layer ---- */

/* With the layer's weight as b. */
static int multiply(struct zinf_frame *f, const struct frame_linear *l, struct zinf_matmul *args)
{
    uint64_t mark = frame_mark(f);
    int code = frame_matrix(f, l->unit, l->weight, &args->b);
    if (!code)
        code = frame_matmul(f, args);
    frame_release(f, mark);
    return code;
}

int frame_linear(struct zinf_frame *f, const struct frame_linear *l, const void *x, void *y)
{
    const struct zinf_tensor *w = weight_of(f, l);
    struct zinf_matmul args = product_of(f);
    if (f->see_linear && !w->pieces[0].inner) /* a convolution is no linear layer */
        f->see_linear(f->seer, l->unit, l->weight);
    args.m = linear_rows(f, l);
    args.n = (int64_t)w->rows;
    args.k = (int64_t)w->cols;
    args.a = x;
    args.c = y;
    args.bias = frame_weight(f, l->unit, l->bias);
    args.trans_b = true;
    args.lda = args.ldb = (int64_t)w->cols;
    args.ldc = (int64_t)w->rows;
    args.few_rows = f->compute->decoding != NULL;
    int code = multiply(f, l, &args);
    return code ? code : adapt_forward(f, l, x, y);
}

int frame_linear_backward_input(struct zinf_frame *f, const struct frame_linear *l, const void *dy,
                                void *dx)
{
    const struct zinf_tensor *w = weight_of(f, l);
    struct zinf_matmul args = product_of(f);
    args.m = linear_rows(f, l);
    args.n = (int64_t)w->cols;
    args.k = (int64_t)w->rows;
    args.a = dy;
    args.c = dx;
    args.lda = (int64_t)w->rows;
    args.ldb = args.ldc = (int64_t)w->cols;
    int code = multiply(f, l, &args);
    return code ? code : adapt_backward_input(f, l, dy, dx);
}

int frame_linear_backward_weight(struct zinf_frame *f, const struct frame_linear *l, const void *dy,
                                 const void *x)
{
    const struct zinf_tensor *w = weight_of(f, l);
    float *db = frame_grad(f, l->unit, l->bias);
    struct zinf_matmul args = product_of(f);
    args.m = (int64_t)w->rows;
    args.n = (int64_t)w->cols;
    args.k = linear_rows(f, l);
    args.a = dy;
    args.b = x;
    args.c = frame_grad(f, l->unit, l->weight);
    args.c_dtype = ZINF_DTYPE_F32;
    args.trans_a = true;
    args.lda = (int64_t)w->rows;
    args.ldb = args.ldc = (int64_t)w->cols;
    int code = args.c ? frame_matmul(f, &args) : 0;
    if (!code && db)
        code = frame_column_sum(f, db, dy, linear_rows(f, l), (int64_t)w->rows);
    return code ? code : adapt_backward_weight(f, l, dy, x);
}
