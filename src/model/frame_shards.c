/* frame_shards: a shard's products, and sums over shards. */
#include "model/frame_adapter.h"
#include "model/shards.h"

static const struct zinf_tensor *tensor_of(const struct zinf_frame *f,
                                           const struct shard_product *p)
{
    return &frame_unit(f, 0)->tensors[p->weight];
}

static const void *weight_of(const struct zinf_frame *f, const struct shard_product *p)
{
    return frame_weight(f, 0, p->weight);
}

/* ---- products with the shard's rows W of a weight [rows][cols] ---- */

/* y [.][rows] = x W^T + bias, ld elements from row to row */
static int transposed(struct zinf_frame *f, const struct shard_product *p, const void *x,
                      const void *bias, void *y)
{
    struct zinf_matmul args = frame_product(f);
    args.m = frame_rows(f);
    args.n = p->rows;
    args.k = args.lda = args.ldb = (int64_t)tensor_of(f, p)->cols;
    args.a = x;
    args.b = weight_of(f, p);
    args.c = y;
    args.bias = bias;
    args.trans_b = true;
    args.ldc = p->ld;
    return frame_matmul(f, &args);
}

/* y [.][cols] = beta y + x W + bias, fp32; x has ld elements from row to row */
static int straight(struct zinf_frame *f, const struct shard_product *p, const void *x,
                    const void *bias, float *y, float beta)
{
    struct zinf_matmul args = frame_product(f);
    args.m = frame_rows(f);
    args.n = args.ldb = args.ldc = (int64_t)tensor_of(f, p)->cols;
    args.k = p->rows;
    args.a = x;
    args.b = weight_of(f, p);
    args.c = y;
    args.c_dtype = ZINF_DTYPE_F32;
    args.bias = bias;
    args.lda = p->ld;
    args.beta = beta;
    return frame_matmul(f, &args);
}

/* dw [rows][cols] = a^T b, fp32; a has ld elements from row to row */
static int gradient(struct zinf_frame *f, const struct shard_product *p, const void *a,
                    const void *b, float *dw)
{
    struct zinf_matmul args = frame_product(f);
    args.m = p->rows;
    args.n = args.ldb = args.ldc = (int64_t)tensor_of(f, p)->cols;
    args.k = frame_rows(f);
    args.a = a;
    args.b = b;
    args.c = dw;
    args.c_dtype = ZINF_DTYPE_F32;
    args.trans_a = true;
    args.lda = p->ld;
    return frame_matmul(f, &args);
}

/* ---- outputs are cut ---- */

/* For whoever asks which tensors products are made with. */
static void tell(const struct zinf_frame *f, const struct shard_product *p)
{
    if (f->see_linear)
        f->see_linear(f->seer, 0, p->weight);
}

int shard_columns(struct zinf_frame *f, const struct shard_product *p, const void *x, void *y)
{
    tell(f, p);
    int code = transposed(f, p, x, frame_weight(f, 0, p->bias), y);
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
    int code = straight(f, p, x, frame_weight(f, 0, p->bias), y, 0);
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
    float *grad = frame_grad(f, 0, p->weight);
    int code = grad ? gradient(f, p, x, dy, grad) : 0;
    return code ? code : shard_depth_adapt_weight(f, p, x, dy);
}

/* ---- sums ---- */

/* dst += src */
static int add(struct zinf_frame *f, float *dst, const float *src, uint64_t elems)
{
    const struct zinf_residual args = {
        .dtype = ZINF_DTYPE_F32, .n = (int64_t)elems, .x = dst, .r = src, .y = dst};
    return frame_residual(f, &args);
}

int shard_sum_some(struct zinf_frame *f, const struct shard_sum *sum, uint32_t first, uint32_t n,
                   float *out)
{
    const uint64_t mark = frame_mark(f);
    const uint32_t half = n / 2;
    if (n == 1)
        return sum->make(f, sum->call, first, out);
    int code = shard_sum_some(f, sum, first, half, out);
    float *other = frame_scratch(f, sum->elems * sizeof *other);
    if (!code)
        code = shard_sum_some(f, sum, first + half, n - half, other);
    if (!code)
        code = add(f, out, other, sum->elems);
    frame_release(f, mark);
    return code;
}

int shard_sum(struct zinf_frame *f, const struct shard_sum *sum, float *out)
{
    int code = shard_sum_some(f, sum, 0, f->graph->shards.n, out);
    return code ? code : shard_sum_ranks(f, out, sum->elems);
}

/* ---- ranks ---- */

int shard_sum_ranks(struct zinf_frame *f, float *x, uint64_t elems)
{
    const struct zinf_shard_ranks *ranks = f->compute->ranks;
    return ranks && f->queue ? ranks->sum(ranks->context, x, elems, false) : 0;
}

int shard_sum_shared(struct zinf_frame *f, const struct shard_sum *sum, uint32_t first, uint32_t n,
                     float *out)
{
    const struct zinf_shard_ranks *ranks = f->compute->ranks;
    int code = shard_sum_some(f, sum, first, n, out);
    return !code && ranks && f->queue ? ranks->sum(ranks->context, out, sum->elems, true) : code;
}

int shard_gather(struct zinf_frame *f, void *whole, uint64_t bytes)
{
    const struct zinf_shard_ranks *ranks = f->compute->ranks;
    return ranks && f->queue ? ranks->gather(ranks->context, whole, bytes) : 0;
}

int shard_narrow(struct zinf_frame *f, const float *in, uint64_t elems, void **out)
{
    const enum zinf_dtype dtype = f->compute->dtype;
    *out = (void *)(uintptr_t)in;
    if (dtype == ZINF_DTYPE_F32)
        return 0;
    *out = frame_scratch(f, elems * frame_width(f));
    return frame_convert(f, *out, dtype, in, ZINF_DTYPE_F32, elems);
}
