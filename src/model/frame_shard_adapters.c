/*
 * frame_shard_adapters: what adapters add to products of shards (adapter_shards.c): a part of each
 * sum is W's and the adapter's together, so that no sum is added. With
 *   x~ = dropout(x), u = scale x~ A^T, v = scale dy B
 * a shard whose outputs are cut has y_s += u B_s^T, dx_s += mask(v_s A), dB_s = dy_s^T u and its
 * part v_s^T x~ of dA; one whose depth is cut u_s = scale x~_s A_s^T, y_s += u_s B^T, dx_s +=
 * mask(v A_s), dA_s^T = x~_s^T v and its part dy^T u_s of dB.
 */
#include "model/frame_adapter.h"
#include "model/shards.h"

/* An adapter of a shard's weight, in one call. */
struct part {
    const struct zinf_adapted *spec;
    uint32_t unit; /* number of the adapter's unit among those at hand */
    int64_t rows, rank, in, out;
    int64_t ld; /* elements from row to row of y where outputs are cut */
    bool turned;
};

static uint32_t count_parts(const struct zinf_frame *f, const struct shard_product *p)
{
    const struct zinf_unit *u = frame_unit(f, p->unit);
    uint32_t n = 0;
    for (uint32_t i = 0; !f->compute->reference && i < u->n_adapted; i++)
        n += (int)f->graph->adapted[u->first_adapted + i].tensor == p->weight;
    return n;
}

static struct part part_of(const struct zinf_frame *f, const struct shard_product *p, uint32_t k)
{
    const struct zinf_unit *u = frame_unit(f, p->unit);
    const struct zinf_adapted *spec = &f->graph->adapted[u->first_adapted];
    for (;; spec++)
        if ((int)spec->tensor == p->weight && k-- == 0)
            break;
    const struct zinf_tensor *w = &u->tensors[p->weight];
    struct part a = {.spec = spec,
                     .rows = shard_rows(f, p),
                     .rank = spec->rank,
                     .in = (int64_t)(w->turned ? w->rows : w->cols),
                     .out = spec->rows,
                     .ld = w->turned ? (int64_t)w->cols : p->ld,
                     .turned = w->turned};
    while (f->stage->units.at[a.unit] != spec->adapter)
        a.unit++;
    return a;
}

/* The adapter's columns of y or dy. */
static void *columns(const struct zinf_frame *f, const struct part *a, const void *y, size_t width)
{
    return shard_at(f, y, a->spec->first_row * width);
}

static struct zinf_dropout dropout_of(const struct zinf_frame *f, const struct part *a)
{
    return frame_dropout_at(f, a->spec->dropout, a->spec->site,
                            (uint64_t)(a->rows / f->compute->batch * a->in));
}

static int mask(struct zinf_frame *f, const struct part *a, const void *x, const void **masked)
{
    struct zinf_residual args = {
        .dtype = f->compute->dtype, .n = a->rows * a->in, .r = x, .dropout = dropout_of(f, a)};
    *masked = x;
    if (!(args.dropout.p > 0))
        return 0;
    *masked = args.y = frame_scratch(f, (uint64_t)args.n * frame_width(f));
    return frame_dropout(f, &args);
}

/* *u [rows][rank] = scale x~ A^T */
static int make_u(struct zinf_frame *f, const struct part *a, const void *masked, void **u)
{
    struct zinf_matmul args = frame_product(f);
    *u = frame_scratch(f, (uint64_t)(a->rows * a->rank) * frame_width(f));
    args.m = a->rows;
    args.n = args.ldc = a->rank;
    args.k = args.lda = a->in;
    args.a = masked;
    args.b = frame_weight(f, a->unit, (int)a->spec->a);
    args.c = *u;
    args.trans_b = !a->turned;
    args.ldb = a->turned ? a->rank : a->in;
    args.alpha = a->spec->scale;
    return frame_matmul(f, &args);
}

/* *v [rows][rank] = scale dy B */
static int make_v(struct zinf_frame *f, const struct part *a, const void *dy, void **v)
{
    struct zinf_matmul args = frame_product(f);
    *v = frame_scratch(f, (uint64_t)(a->rows * a->rank) * frame_width(f));
    args.m = a->rows;
    args.n = args.ldb = args.ldc = a->rank;
    args.k = a->out;
    args.a = columns(f, a, dy, frame_width(f));
    args.b = frame_weight(f, a->unit, (int)a->spec->b);
    args.c = *v;
    args.lda = a->ld;
    args.alpha = a->spec->scale;
    return frame_matmul(f, &args);
}

/* y += u B^T, of this type */
static int add_output(struct zinf_frame *f, const struct part *a, const void *x, void *y,
                      enum zinf_dtype dtype)
{
    struct zinf_matmul args = frame_product(f);
    const void *masked;
    void *u;
    int code = mask(f, a, x, &masked);
    if (!code)
        code = make_u(f, a, masked, &u);
    if (code)
        return code;
    args.m = a->rows;
    args.n = a->out;
    args.k = args.lda = args.ldb = a->rank;
    args.a = u;
    args.b = frame_weight(f, a->unit, (int)a->spec->b);
    args.c = columns(f, a, y, zinf_dtype_bytes(dtype));
    args.c_dtype = dtype;
    args.trans_b = true;
    args.ldc = a->ld;
    args.beta = 1;
    return frame_matmul(f, &args);
}

/* dx += mask(v A), of this type */
static int add_input(struct zinf_frame *f, const struct part *a, const void *dy, void *dx,
                     enum zinf_dtype dtype)
{
    struct zinf_matmul args = frame_product(f);
    struct zinf_residual added = {
        .dtype = dtype, .n = a->rows * a->in, .x = dx, .y = dx, .dropout = dropout_of(f, a)};
    const bool masks = added.dropout.p > 0;
    void *v;
    int code = make_v(f, a, dy, &v);
    if (code)
        return code;
    args.m = a->rows;
    args.n = args.ldc = a->in;
    args.k = args.lda = a->rank;
    args.a = v;
    args.b = frame_weight(f, a->unit, (int)a->spec->a);
    args.c = masks ? frame_scratch(f, (uint64_t)added.n * zinf_dtype_bytes(dtype)) : dx;
    args.c_dtype = dtype;
    args.trans_b = a->turned;
    args.ldb = a->turned ? a->rank : a->in;
    args.beta = masks ? 0 : 1;
    code = frame_matmul(f, &args);
    added.r = args.c;
    return code || !masks ? code : frame_residual(f, &added);
}

struct factor {
    const void *at; /* [rows][ld], of which the first columns count */
    int64_t cols, ld;
};

/* out [x.cols][y.cols] = x^T y over rows, fp32 */
static int outer(struct zinf_frame *f, const struct part *a, struct factor x, struct factor y,
                 float *out)
{
    struct zinf_matmul args = frame_product(f);
    args.m = x.cols;
    args.n = args.ldc = y.cols;
    args.k = a->rows;
    args.a = x.at;
    args.b = y.at;
    args.c = out;
    args.c_dtype = ZINF_DTYPE_F32;
    args.trans_a = true;
    args.lda = x.ld;
    args.ldb = y.ld;
    return frame_matmul(f, &args);
}

/* The gradient of A or the shard's part of it: v^T x~, or its transpose where A is stored so. */
static int gradient_of_a(struct zinf_frame *f, const struct part *a, const void *dy, const void *x,
                         float *out)
{
    const uint64_t mark = frame_mark(f);
    const void *masked;
    void *v;
    int code = mask(f, a, x, &masked);
    if (!code)
        code = make_v(f, a, dy, &v);
    if (!code) {
        const struct factor left = {v, a->rank, a->rank}, right = {masked, a->in, a->in};
        code = a->turned ? outer(f, a, right, left, out) : outer(f, a, left, right, out);
    }
    frame_release(f, mark);
    return code;
}

/* The gradient of B or the shard's part of it: dy^T u. */
static int gradient_of_b(struct zinf_frame *f, const struct part *a, const void *dy, const void *x,
                         float *out)
{
    const uint64_t mark = frame_mark(f);
    const void *masked;
    void *u;
    int code = mask(f, a, x, &masked);
    if (!code)
        code = make_u(f, a, masked, &u);
    if (!code)
        code = outer(f, a, (struct factor){columns(f, a, dy, frame_width(f)), a->out, a->ld},
                     (struct factor){u, a->rank, a->rank}, out);
    frame_release(f, mark);
    return code;
}

/* ---- beside products ---- */

struct ends {
    const void *from;
    void *to;
    enum zinf_dtype dtype;
};

static int each_part(struct zinf_frame *f, const struct shard_product *p,
                     int (*act)(struct zinf_frame *, const struct part *, const void *, void *,
                                enum zinf_dtype),
                     const struct ends *e)
{
    const uint32_t n = count_parts(f, p);
    int code = 0;
    for (uint32_t k = 0; !code && k < n; k++) {
        const struct part a = part_of(f, p, k);
        const uint64_t mark = frame_mark(f);
        code = act(f, &a, e->from, e->to, e->dtype);
        frame_release(f, mark);
    }
    return code;
}

int shard_columns_adapt(struct zinf_frame *f, const struct shard_product *p, const void *x, void *y)
{
    return each_part(f, p, add_output, &(struct ends){x, y, f->compute->dtype});
}

int shard_columns_adapt_input(struct zinf_frame *f, const struct shard_product *p, const void *dy,
                              float *dx)
{
    return each_part(f, p, add_input, &(struct ends){dy, dx, ZINF_DTYPE_F32});
}

int shard_depth_adapt(struct zinf_frame *f, const struct shard_product *p, const void *x, float *y)
{
    return each_part(f, p, add_output, &(struct ends){x, y, ZINF_DTYPE_F32});
}

int shard_depth_adapt_input(struct zinf_frame *f, const struct shard_product *p, const void *dy,
                            void *dx)
{
    return each_part(f, p, add_input, &(struct ends){dy, dx, f->compute->dtype});
}

int shard_depth_adapt_weight(struct zinf_frame *f, const struct shard_product *p, const void *x,
                             const void *dy)
{
    const uint32_t n = count_parts(f, p);
    int code = 0;
    for (uint32_t k = 0; !code && k < n; k++) {
        const struct part a = part_of(f, p, k);
        float *da = frame_grad(f, a.unit, (int)a.spec->a);
        if (da && !(code = gradient_of_a(f, &a, dy, x, da)))
            code = frame_zero_gap(f, a.unit, a.spec->a);
    }
    return code;
}

/* ---- of all shards ---- */

/* A call for adapter number k of each shard's weight. */
struct call {
    const struct shard_adapters *all;
    uint32_t k;
};

static int make_a(struct zinf_frame *f, const void *call, uint32_t shard, float *out)
{
    const struct call *c = call;
    const struct part a = part_of(f, &c->all->p[shard], c->k);
    return gradient_of_a(f, &a, c->all->dy[shard], c->all->x, out);
}

static int make_b(struct zinf_frame *f, const void *call, uint32_t shard, float *out)
{
    const struct call *c = call;
    const struct part a = part_of(f, &c->all->p[shard], c->k);
    const uint64_t mark = frame_mark(f);
    const void *x = c->all->x;
    int code = a.turned ? c->all->input(f, c->all->call, shard, &x) : 0;
    if (!code)
        code = gradient_of_b(f, &a, c->all->dy[a.turned ? 0 : shard], x, out);
    frame_release(f, mark);
    return code;
}

/* Sums a gradient over all shards. Nothing is done if the adapter is not trained. */
static int sum_all(struct zinf_frame *f, const struct call *c, bool of_b)
{
    const struct part a = part_of(f, &c->all->p[0], c->k);
    const uint32_t tensor = of_b ? a.spec->b : a.spec->a;
    float *grad = frame_grad(f, a.unit, (int)tensor);
    const struct shard_sum sum = {of_b ? make_b : make_a, c,
                                  (uint64_t)(a.rank * (of_b ? a.out : a.in))};
    int code = grad ? shard_sum(f, &sum, grad) : 0;
    return code || !grad ? code : frame_zero_gap(f, a.unit, tensor);
}

/* Sums the gradient of B over the shards that have one weight; the first of them is given. */
static int sum_weight(struct zinf_frame *f, const struct call *c, uint32_t first)
{
    const struct part a = part_of(f, &c->all->p[first], c->k);
    float *grad = frame_grad(f, a.unit, (int)a.spec->b);
    const struct shard_sum sum = {make_b, c, (uint64_t)(a.rank * a.out)};
    int code =
        grad ? shard_sum_shared(f, &sum, first, c->all->per_weight, c->all->shares, grad) : 0;
    return code || !grad ? code : frame_zero_gap(f, a.unit, a.spec->b);
}

int shard_columns_adapt_weights(struct zinf_frame *f, const struct shard_adapters *all)
{
    const uint32_t n = count_parts(f, &all->p[0]);
    int code = 0;
    for (uint32_t k = 0; !code && k < n; k++) {
        const struct call c = {all, k};
        code = sum_all(f, &c, false);
        for (uint32_t i = 0; !code && i < f->graph->shards.n; i += all->per_weight)
            code = sum_weight(f, &c, i);
    }
    return code;
}

int shard_depth_adapt_weights(struct zinf_frame *f, const struct shard_adapters *all)
{
    const uint32_t n = count_parts(f, &all->p[0]);
    int code = 0;
    for (uint32_t k = 0; !code && k < n; k++) {
        const struct call c = {all, k};
        code = sum_all(f, &c, true);
    }
    return code;
}
