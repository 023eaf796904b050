/*
 * frame_linear: products with weights of linear layers, in any form that they are stored in, and
 * what adapters add to them. A layer can be adapted or quantised because it is multiplied here.
 * Heads over a vocabulary (stage_head.c) multiply with their tables by themselves and can be
 * neither. With products of 8-bit floats, a layer's result and the gradient of its input are made
 * of these. The gradient of its weight is a sum over all tokens and is made of the parameters'
 * type.
 */
#include "model/frame_adapter.h"

/* Convolutions are left out, because their weights are small, and so are new tokens of a text that
 * is continued, because the scale would depend on how many of them a product has. */
static int choose_float8(const struct zinf_frame *f, const struct frame_linear *l,
                         enum zinf_float8 type, struct zinf_matmul *args)
{
    const struct zinf_piece *piece = &frame_linear_weight(f, l)->pieces[0];
    if (!f->compute->float8 || f->compute->decoding || l->exact || piece->inner)
        return 0;
    args->float8 = type;
    if (args->n % ZINF_FLOAT8_EXTENT == 0 && args->k % ZINF_FLOAT8_EXTENT == 0)
        return 0;
    return zinf_fail(-EINVAL,
                     "zinf.matmul_type \"fp8\": %s has %lld inputs and %lld outputs, which must be "
                     "multiples of %d: leave out zinf.matmul_type for this model",
                     piece->name, (long long)frame_linear_weight(f, l)->cols,
                     (long long)frame_linear_weight(f, l)->rows, ZINF_FLOAT8_EXTENT);
}

/* Multiplies with the layer's weight as b. type: of a, if the product is one of 8-bit floats. */
static int multiply(struct zinf_frame *f, const struct frame_linear *l, enum zinf_float8 type,
                    struct zinf_matmul *args)
{
    uint64_t mark = frame_mark(f);
    int code = choose_float8(f, l, type, args);
    if (f->see_float8 && args->float8)
        f->see_float8(f->seer, l->unit, l->weight);
    if (!code)
        code = frame_matrix(f, l->unit, l->weight, &args->b);
    if (!code)
        code = frame_matmul(f, args);
    frame_release(f, mark);
    return code;
}

/* y = x W^T + bias */
static int forward(struct zinf_frame *f, const struct frame_linear *l, const void *bias,
                   const void *x, void *y)
{
    const struct zinf_tensor *w = frame_linear_weight(f, l);
    struct zinf_matmul args = frame_product(f);
    args.m = frame_linear_rows(f, l);
    args.n = (int64_t)w->rows;
    args.k = (int64_t)w->cols;
    args.a = x;
    args.c = y;
    args.bias = bias;
    args.trans_b = true;
    args.lda = args.ldb = (int64_t)w->cols;
    args.ldc = (int64_t)w->rows;
    args.few_rows = f->compute->decoding != NULL;
    return multiply(f, l, ZINF_FLOAT8_E4M3, &args);
}

int frame_linear(struct zinf_frame *f, const struct frame_linear *l, const void *x, void *y)
{
    bool dropped = frame_drops_magnitude(f, l), scaled = frame_has_magnitude(f, l) && !dropped;
    if (f->see_linear && !frame_linear_weight(f, l)->pieces[0].inner) /* not a convolution */
        f->see_linear(f->seer, l->unit, l->weight);
    int code = forward(f, l, scaled ? NULL : frame_weight(f, l->unit, l->bias), x, y);
    if (!code)
        code = dropped ? frame_dropped(f, l, x, y) : frame_adapt(f, l, x, y);
    return code || !scaled ? code : frame_magnitude(f, l, y);
}

int frame_linear_backward_input(struct zinf_frame *f, const struct frame_linear *l, const void *dy,
                                void *dx)
{
    const struct zinf_tensor *w = frame_linear_weight(f, l);
    struct zinf_matmul args = frame_product(f);
    uint64_t mark = frame_mark(f);
    bool dropped = frame_drops_magnitude(f, l), scaled = frame_has_magnitude(f, l) && !dropped;
    int code = scaled ? frame_magnitude_backward(f, l, dy, &dy) : 0;
    args.m = frame_linear_rows(f, l);
    args.n = (int64_t)w->cols;
    args.k = (int64_t)w->rows;
    args.a = dy;
    args.c = dx;
    args.lda = (int64_t)w->rows;
    args.ldb = args.ldc = (int64_t)w->cols;
    if (!code)
        code = multiply(f, l, ZINF_FLOAT8_E5M2, &args);
    if (!code)
        code = dropped ? frame_dropped_backward_input(f, l, dy, dx)
                       : frame_adapt_backward_input(f, l, dy, dx);
    frame_release(f, mark);
    return code;
}

/* unscaled = x V^T, the layer's result without magnitudes and bias. */
static int make_unscaled(struct zinf_frame *f, const struct frame_linear *l, const void *x,
                         void *unscaled)
{
    if (frame_drops_magnitude(f, l))
        return frame_dropped_unscaled(f, l, x, unscaled);
    int code = forward(f, l, NULL, x, unscaled);
    return code ? code : frame_adapt(f, l, x, unscaled);
}

/* Gradients of magnitudes. They need the layer's result without magnitudes, which is made again. */
static int magnitude_gradients(struct zinf_frame *f, const struct frame_linear *l, const void *dy,
                               const void *x)
{
    uint64_t mark = frame_mark(f);
    uint64_t elems = (uint64_t)frame_linear_rows(f, l) * frame_linear_weight(f, l)->rows;
    void *unscaled = frame_scratch(f, elems * frame_width(f));
    int code = make_unscaled(f, l, x, unscaled);
    if (!code)
        code = frame_magnitude_gradient(f, l, dy, unscaled);
    frame_release(f, mark);
    return code;
}

static int adapter_gradients(struct zinf_frame *f, const struct frame_linear *l, const void *dy,
                             const void *x)
{
    uint64_t mark = frame_mark(f);
    int code = 0;
    if (frame_has_magnitude(f, l)) {
        code = magnitude_gradients(f, l, dy, x);
        if (!code)
            code = frame_magnitude_backward(f, l, dy, &dy);
    }
    if (!code)
        code = frame_adapt_backward_weight(f, l, dy, x);
    frame_release(f, mark);
    return code;
}

int frame_linear_backward_weight(struct zinf_frame *f, const struct frame_linear *l, const void *dy,
                                 const void *x)
{
    const struct zinf_tensor *w = frame_linear_weight(f, l);
    float *db = frame_grad(f, l->unit, l->bias);
    struct zinf_matmul args = frame_product(f);
    args.m = (int64_t)w->rows;
    args.n = (int64_t)w->cols;
    args.k = frame_linear_rows(f, l);
    args.a = dy;
    args.b = x;
    args.c = frame_grad(f, l->unit, l->weight);
    args.c_dtype = ZINF_DTYPE_F32;
    args.trans_a = true;
    args.lda = (int64_t)w->rows;
    args.ldb = args.ldc = (int64_t)w->cols;
    float *sum = args.c ? frame_sum(f, l->unit, l->weight) : NULL;
    if (sum) {
        args.c = sum;
        args.beta = 1.0f;
        args.adds_after = true;
    }
    int code = args.c ? frame_matmul(f, &args) : 0;
    if (!code && db)
        code = frame_column_sum(f, db, dy, f->compute->dtype, frame_linear_rows(f, l),
                                (int64_t)w->rows);
    return code ? code : adapter_gradients(f, l, dy, x);
}
