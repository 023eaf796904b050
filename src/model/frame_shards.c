/* frame_shards: products of a shard, with what adapters add to them. */
#include "model/frame_adapter.h"
#include "model/shards.h"

static const struct zinf_tensor *tensor_of(const struct zinf_frame *f,
                                           const struct shard_product *p)
{
    return &frame_unit(f, p->unit)->tensors[p->weight];
}

/* Takes the shard's columns of a quantised matrix. All of it is converted, as [out][in]. */
static int take_columns(struct zinf_frame *f, const struct shard_product *p,
                        struct zinf_matmul *args)
{
    const struct zinf_tensor *t = tensor_of(f, p);
    const struct zinf_piece *piece = &t->pieces[0];
    const struct zinf_quantized as = zinf_piece_quantized(t, piece);
    void *whole = frame_scratch(f, as.rows * as.cols * frame_width(f));
    const struct zinf_dequantize call = {
        .quantized = as,
        .image = f->queue ? (const char *)f->weights[p->unit] + piece->image_at : NULL,
        .rows = (int64_t)as.rows,
        .count = 1,
        .dtype = f->compute->dtype,
        .w = whole,
    };
    args->b = shard_at(f, whole, piece->rows.file_first * frame_width(f));
    args->trans_b = !args->trans_b;
    args->ldb = (int64_t)as.cols;
    return frame_dequantize(f, &call);
}

/* Multiplies with the shard's weight as b. */
static int multiply(struct zinf_frame *f, const struct shard_product *p, struct zinf_matmul *args)
{
    const struct zinf_tensor *t = tensor_of(f, p);
    const uint64_t mark = frame_mark(f);
    int code = t->form != ZINF_FORM_PLAIN && t->turned
                   ? take_columns(f, p, args)
                   : frame_matrix(f, p->unit, p->weight, &args->b);
    args->b = shard_at(f, args->b, (uint64_t)p->first * t->cols * frame_width(f));
    if (!code)
        code = frame_matmul(f, args);
    frame_release(f, mark);
    return code;
}

/* ---- products with the shard's rows W of a weight [rows][cols] ---- */

/* y [.][rows] = x W^T + bias, ld elements from row to row */
static int transposed(struct zinf_frame *f, const struct shard_product *p, const void *x,
                      const void *bias, void *y)
{
    struct zinf_matmul args = frame_product(f);
    args.m = shard_rows(f, p);
    args.n = p->rows;
    args.k = args.lda = args.ldb = (int64_t)tensor_of(f, p)->cols;
    args.a = x;
    args.c = y;
    args.bias = bias;
    args.trans_b = true;
    args.ldc = p->ld;
    return multiply(f, p, &args);
}

/* y [.][cols] = beta y + x W + bias, fp32; x has ld elements from row to row */
static int straight(struct zinf_frame *f, const struct shard_product *p, const void *x,
                    const void *bias, float *y, float beta)
{
    struct zinf_matmul args = frame_product(f);
    args.m = shard_rows(f, p);
    args.n = args.ldb = args.ldc = (int64_t)tensor_of(f, p)->cols;
    args.k = p->rows;
    args.a = x;
    args.c = y;
    args.c_dtype = ZINF_DTYPE_F32;
    args.bias = bias;
    args.lda = p->ld;
    args.beta = beta;
    return multiply(f, p, &args);
}

/* dw [rows][cols] = a^T b, fp32; a has ld elements from row to row */
static int gradient(struct zinf_frame *f, const struct shard_product *p, const void *a,
                    const void *b, float *dw)
{
    struct zinf_matmul args = frame_product(f);
    args.m = p->rows;
    args.n = args.ldb = args.ldc = (int64_t)tensor_of(f, p)->cols;
    args.k = shard_rows(f, p);
    args.a = a;
    args.b = b;
    args.c = dw;
    args.c_dtype = ZINF_DTYPE_F32;
    args.trans_a = true;
    args.lda = p->ld;
    return frame_matmul(f, &args);
}

/* ---- outputs are cut ---- */

/* Reports the weight to a caller that looks for linear layers. */
static void tell(const struct zinf_frame *f, const struct shard_product *p)
{
    if (f->see_linear)
        f->see_linear(f->seer, p->unit, p->weight);
}

int shard_columns(struct zinf_frame *f, const struct shard_product *p, const void *x, void *y)
{
    tell(f, p);
    const void *bias = frame_weight(f, p->unit, p->bias);
    if (bias)
        bias = shard_at(f, bias, (uint64_t)p->first * frame_width(f));
    int code = transposed(f, p, x, bias, y);
    return code ? code : shard_columns_adapt(f, p, x, y);
}

int shard_columns_weight(struct zinf_frame *f, const struct shard_product *p, const void *dy,
                         const void *x, float *dw)
{
    return gradient(f, p, dy, x, dw);
}

int shard_columns_input(struct zinf_frame *f, const struct shard_product *p, const void *dy,
                        float *dx, float beta)
{
    int code = straight(f, p, dy, NULL, dx, beta);
    return code ? code : shard_columns_adapt_input(f, p, dy, dx);
}

/* ---- the depth is cut ---- */

int shard_depth(struct zinf_frame *f, const struct shard_product *p, const void *x, float *y)
{
    tell(f, p);
    int code = straight(f, p, x, frame_weight(f, p->unit, p->bias), y, 0);
    return code ? code : shard_depth_adapt(f, p, x, y);
}

int shard_depth_input(struct zinf_frame *f, const struct shard_product *p, const void *dy, void *dx)
{
    int code = transposed(f, p, dy, NULL, dx);
    return code ? code : shard_depth_adapt_input(f, p, dy, dx);
}

int shard_depth_weight(struct zinf_frame *f, const struct shard_product *p, const void *x,
                       const void *dy)
{
    float *grad = frame_grad(f, p->unit, p->weight);
    int code = grad ? gradient(f, p, x, dy, grad) : 0;
    return code ? code : shard_depth_adapt_weight(f, p, x, dy);
}
