/* compute: linear layers, dropout streams and gaps, for block, embedding and head. */
#include "model/compute.h"

struct zinf_matmul linear_forward_args(const struct zinf_gpt2_compute *c, const struct linear *l)
{
    return (struct zinf_matmul){
        .m = (int64_t)rows_of(c),
        .n = l->out,
        .k = l->in,
        .b = l->w,
        .bias = l->b,
        .a_dtype = c->dtype,
        .b_dtype = c->dtype,
        .c_dtype = c->dtype,
        .trans_b = true,
        .lda = l->in,
        .ldb = l->in,
        .ldc = l->out,
    };
}

struct zinf_matmul linear_input_args(const struct zinf_gpt2_compute *c, const struct linear *l)
{
    return (struct zinf_matmul){
        .m = (int64_t)rows_of(c),
        .n = l->in,
        .k = l->out,
        .b = l->w,
        .a_dtype = c->dtype,
        .b_dtype = c->dtype,
        .c_dtype = c->dtype,
        .lda = l->out,
        .ldb = l->in,
        .ldc = l->in,
    };
}

struct zinf_matmul linear_weight_args(const struct zinf_gpt2_compute *c, const struct linear *l)
{
    return (struct zinf_matmul){
        .m = l->out,
        .n = l->in,
        .k = (int64_t)rows_of(c),
        .a_dtype = c->dtype,
        .b_dtype = c->dtype,
        .c_dtype = ZINF_DTYPE_F32,
        .trans_a = true,
        .lda = l->out,
        .ldb = l->in,
        .ldc = l->in,
    };
}

int linear_forward(const struct zinf_gpt2_compute *c, const struct linear *l, const void *x,
                   void *y)
{
    struct zinf_matmul args = linear_forward_args(c, l);
    args.a = x;
    args.c = y;
    return c->device->ops->matmul(c->queue, &args);
}

int linear_backward_input(const struct zinf_gpt2_compute *c, const struct linear *l, const void *dy,
                          void *dx)
{
    struct zinf_matmul args = linear_input_args(c, l);
    args.a = dy;
    args.c = dx;
    return c->device->ops->matmul(c->queue, &args);
}

int linear_backward_weight(const struct zinf_gpt2_compute *c, const struct linear *l,
                           const void *dy, const void *x, float *dw, float *db)
{
    struct zinf_matmul args = linear_weight_args(c, l);
    args.a = dy;
    args.b = x;
    args.c = dw;
    int code = c->device->ops->matmul(c->queue, &args);
    if (!code && db)
        code = c->device->ops->column_sum(c->queue, db, dy, c->dtype, (int64_t)rows_of(c), l->out);
    return code;
}

struct zinf_dropout dropout_at(const struct zinf_gpt2_compute *c, float p, uint32_t site,
                               uint64_t elements_per_sample)
{
    return (struct zinf_dropout){
        .p = c->train ? p : 0,
        .seed = c->seed,
        .step = c->step,
        .site = site,
        .element_first = c->first_sample * elements_per_sample,
    };
}

/* Where the tensor behind the gap at end begins. */
static uint64_t start_after(const struct zinf_unit_spec *unit, uint64_t end)
{
    uint64_t next = unit->elems;
    for (int i = 0; i < unit->n_tensors; i++)
        if (unit->tensors[i].offset >= end && unit->tensors[i].offset < next)
            next = unit->tensors[i].offset;
    return next;
}

int zero_gaps(const struct zinf_gpt2_compute *c, const struct zinf_unit_spec *unit, float *grads)
{
    for (int i = 0; i < unit->n_tensors; i++) {
        const struct zinf_tensor_spec *t = &unit->tensors[i];
        uint64_t end = t->offset + t->elems;
        uint64_t next = start_after(unit, end);
        if (next == end)
            continue;
        int code = c->device->ops->fill_zero(c->queue, grads + end, (next - end) * sizeof(float));
        if (code)
            return code;
    }
    return 0;
}

static void widen(uint64_t *most, uint64_t bytes)
{
    if (bytes > *most)
        *most = bytes;
}

static void widen_linear(const struct zinf_gpt2_compute *c, int64_t out, int64_t in, bool backward,
                         uint64_t *most)
{
    const struct zinf_device_ops *ops = c->device->ops;
    struct linear l = {NULL, NULL, out, in};
    struct zinf_matmul args = linear_forward_args(c, &l);
    args.bias = &l; /* any: asks for the form with a bias */
    widen(most, ops->matmul_workspace((struct zinf_device *)c->device, &args));
    if (!backward)
        return;
    args = linear_input_args(c, &l);
    widen(most, ops->matmul_workspace((struct zinf_device *)c->device, &args));
    args = linear_weight_args(c, &l);
    widen(most, ops->matmul_workspace((struct zinf_device *)c->device, &args));
    widen(most, ops->column_sum_workspace((struct zinf_device *)c->device, args.k, out));
}

/* The head's products have fp32 logits and an fp32 gradient of the norm's output. */
static void widen_head(const struct zinf_gpt2_compute *c, int64_t head_rows, bool backward,
                       uint64_t *most)
{
    const struct zinf_device_ops *ops = c->device->ops;
    int64_t h = c->spec->hidden, tile = c->spec->tile_rows;
    struct zinf_matmul args = {
        .m = head_rows,
        .n = tile,
        .k = h,
        .a_dtype = c->dtype,
        .b_dtype = c->dtype,
        .c_dtype = ZINF_DTYPE_F32,
        .trans_b = true,
        .lda = h,
        .ldb = h,
        .ldc = tile,
    };
    widen(most, ops->matmul_workspace((struct zinf_device *)c->device, &args));
    if (!backward)
        return;
    struct zinf_matmul d_norm = {
        .m = head_rows,
        .n = h,
        .k = tile,
        .a_dtype = ZINF_DTYPE_F32,
        .b_dtype = c->dtype,
        .c_dtype = ZINF_DTYPE_F32,
        .lda = tile,
        .ldb = h,
        .ldc = h,
        .beta = 1,
    };
    widen(most, ops->matmul_workspace((struct zinf_device *)c->device, &d_norm));
    struct zinf_matmul d_table = {
        .m = tile,
        .n = h,
        .k = head_rows,
        .a_dtype = ZINF_DTYPE_F32,
        .b_dtype = c->dtype,
        .c_dtype = ZINF_DTYPE_F32,
        .trans_a = true,
        .lda = tile,
        .ldb = h,
        .ldc = h,
        .beta = 1,
    };
    widen(most, ops->matmul_workspace((struct zinf_device *)c->device, &d_table));
}

uint64_t zinf_model_workspace(const struct zinf_gpt2_compute *c, const struct zinf_model *model,
                              int64_t head_rows, bool backward)
{
    const struct zinf_model_spec *s = zinf_model_spec(model);
    struct zinf_device *device = (struct zinf_device *)c->device;
    int64_t qkv = (s->n_heads + 2 * s->n_kv_heads) * s->head_dim;
    int64_t attention = s->n_heads * s->head_dim;
    uint64_t most = 0;
    widen_linear(c, qkv, s->hidden, backward, &most);
    widen_linear(c, s->hidden, attention, backward, &most);
    widen_linear(c, s->ffn, s->hidden, backward, &most);
    widen_linear(c, s->hidden, s->ffn, backward, &most);
    widen_head(c, head_rows, backward, &most);
    struct zinf_attention args = {
        .dtype = c->dtype,
        .batch = c->batch,
        .seq = c->seq,
        .n_heads = s->n_heads,
        .n_kv_heads = s->n_kv_heads,
        .head_dim = s->head_dim,
        .causal = true,
        .scale = 1,
        .dropout = {.p = c->train ? s->attention_dropout : 0},
    };
    widen(&most, device->ops->attention_workspace(device, &args));
    struct zinf_norm norm = {
        .kind = s->norm,
        .dtype = c->dtype,
        .rows = (int64_t)rows_of(c),
        .cols = s->hidden,
    };
    widen(&most, device->ops->norm_workspace(device, &norm));
    return most;
}
