/*
 * frame_ops: one device operation each. With a queue it is enqueued; without, its workspace, what a
 * library takes for it, its flops and its traffic are added to the frame, from the same arguments.
 */
#include "model/frame_cost.h"

static void widen(uint64_t *most, uint64_t bytes)
{
    if (bytes > *most)
        *most = bytes;
}

static const struct zinf_device_ops *ops_of(const struct zinf_frame *f)
{
    return f->compute->device->ops;
}

static struct zinf_device *device_of(const struct zinf_frame *f)
{
    return (struct zinf_device *)f->compute->device; /* questions change nothing */
}

/* ---- products ---- */

int frame_matmul(struct zinf_frame *f, const struct zinf_matmul *args)
{
    if (f->queue)
        return ops_of(f)->matmul(f->queue, args);
    widen(&f->workspace, ops_of(f)->matmul_workspace(device_of(f), args));
    widen(&f->outside, zinf_matmul_outside_bytes(f->compute->device, args));
    f->flops += 2.0 * (double)args->m * (double)args->n * (double)args->k;
    frame_cost_product(f, args);
    return 0;
}

int frame_column_sum(struct zinf_frame *f, float *sum, const void *x, enum zinf_dtype dtype,
                     int64_t rows, int64_t cols)
{
    if (!frame_counts(f, (double)rows * (double)cols * (double)zinf_dtype_bytes(dtype)))
        return ops_of(f)->column_sum(f->queue, sum, x, dtype, rows, cols);
    widen(&f->workspace, ops_of(f)->column_sum_workspace(device_of(f), rows, cols));
    return 0;
}

/* ---- norms, attention ---- */

static double norm_bytes(const struct zinf_norm *args)
{
    return (double)args->rows * (double)args->cols * (double)zinf_dtype_bytes(args->dtype);
}

int frame_norm(struct zinf_frame *f, const struct zinf_norm *args)
{
    if (!frame_counts(f, 2 * norm_bytes(args)))
        return ops_of(f)->norm_forward(f->queue, args);
    widen(&f->workspace, ops_of(f)->norm_workspace(device_of(f), args));
    return 0;
}

int frame_norm_backward(struct zinf_frame *f, struct zinf_norm *args)
{
    uint64_t mark = frame_mark(f), bytes = (uint64_t)args->cols * sizeof(float);
    if (args->w && !args->dw)
        args->dw = frame_scratch(f, bytes);
    if (args->b && !args->db)
        args->db = frame_scratch(f, bytes);
    frame_release(f, mark);
    if (!frame_counts(f, (args->beta_dx != 0 ? 4 : 3) * norm_bytes(args)))
        return ops_of(f)->norm_backward(f->queue, args);
    widen(&f->workspace, ops_of(f)->norm_workspace(device_of(f), args));
    return 0;
}

/* A query times the table's rows within reach, and these times a key, in scores of pairs. */
static double relative_pairs(const struct zinf_attention *args)
{
    const struct zinf_relative *r = args->relative;
    const double reach = 2.0 * (double)args->seq - 1, all = 2.0 * (double)r->half;
    return ((r->keys != NULL) + (r->queries != NULL)) * (reach < all ? reach : all) / 2;
}

/* Multiplications and additions of scores and of their sums over the values. */
static double attention_flops(const struct zinf_attention *args)
{
    double seq = (double)args->seq, window = (double)args->window;
    double columns = (double)(args->n_heads * args->head_dim);
    double keys = (double)zinf_attention_keys(args);
    double pairs = args->causal ? (seq + 1) / 2 : keys; /* of a query, in the mean */
    if (args->window && args->window < args->seq)
        pairs = window - window * (window - 1) / (2 * seq);
    if (args->relative)
        pairs += relative_pairs(args);
    return 4 * (double)args->batch * seq * pairs * columns;
}

/* Queries and results, keys and values. */
static double attention_bytes(const struct zinf_attention *args)
{
    double queries = 2 * (double)(args->seq * args->n_heads);
    double keys = 2 * (double)(zinf_attention_keys(args) * args->n_kv_heads);
    return (double)(args->batch * args->head_dim) * (queries + keys) *
           (double)zinf_dtype_bytes(args->dtype);
}

static int measure_attention(struct zinf_frame *f, const struct zinf_attention *args, bool backward)
{
    widen(&f->workspace, ops_of(f)->attention_workspace(device_of(f), args));
    f->flops += (backward ? 2 : 1) * attention_flops(args);
    frame_cost_attention(f, attention_flops(args), attention_bytes(args), backward);
    return 0;
}

int frame_attention(struct zinf_frame *f, const struct zinf_attention *args)
{
    return f->queue ? ops_of(f)->attention_forward(f->queue, args)
                    : measure_attention(f, args, false);
}

/* The last of the rows sees all that there may be, and so at most do the others. */
int frame_attention_cached(struct zinf_frame *f, const struct zinf_attention_cached *args)
{
    const struct zinf_device_ops *ops = ops_of(f);
    double seen = (double)(args->window ? args->window : args->capacity);
    if (f->queue)
        return ops->attention_cached(f->queue, args);
    widen(&f->workspace, ops->attention_cached_workspace(device_of(f), args));
    double flops = 4 * (double)args->rows * seen * (double)(args->n_heads * args->head_dim);
    f->flops += flops;
    frame_cost(f, flops, 0);
    return 0;
}

int frame_attention_backward(struct zinf_frame *f, const struct zinf_attention *args)
{
    return f->queue ? ops_of(f)->attention_backward(f->queue, args)
                    : measure_attention(f, args, true);
}

static bool counts_distances(struct zinf_frame *f, const struct zinf_distance_bias *args,
                             int64_t samples)
{
    double n = (double)samples * (double)args->n_heads * (double)zinf_distances(args);
    return frame_counts(f, n * (double)sizeof(float));
}

int frame_distance_bias(struct zinf_frame *f, const struct zinf_distance_bias *args)
{
    if (counts_distances(f, args, 1))
        return 0;
    return ops_of(f)->distance_bias(f->queue, args);
}

int frame_distance_bias_backward(struct zinf_frame *f, const struct zinf_distance_bias *args)
{
    if (counts_distances(f, args, args->batch))
        return 0;
    return ops_of(f)->distance_bias_backward(f->queue, args);
}

/* ---- convolutions ---- */

static int unfold(struct zinf_frame *f, const struct zinf_unfold *args,
                  int (*run)(struct zinf_queue *, const struct zinf_unfold *))
{
    const double elems = (double)(args->batch * args->seq * args->cols);
    if (frame_counts(f, elems * (double)(1 + args->width) * (double)frame_width(f)))
        return 0;
    return run(f->queue, args);
}

int frame_unfold(struct zinf_frame *f, const struct zinf_unfold *args)
{
    return unfold(f, args, ops_of(f)->unfold);
}

int frame_unfold_backward(struct zinf_frame *f, const struct zinf_unfold *args)
{
    return unfold(f, args, ops_of(f)->unfold_backward);
}

/* ---- elementwise ---- */

int frame_activation(struct zinf_frame *f, enum zinf_activation kind, const void *x, void *y,
                     uint64_t n)
{
    if (frame_counts(f, 2.0 * (double)n * (double)frame_width(f)))
        return 0;
    return ops_of(f)->activation_forward(f->queue, kind, f->compute->dtype, y, x, n);
}

int frame_activation_backward(struct zinf_frame *f, enum zinf_activation kind, const void *dy,
                              const void *x, void *dx, void *y_out, uint64_t n)
{
    if (frame_counts(f, (y_out ? 4.0 : 3.0) * (double)n * (double)frame_width(f)))
        return 0;
    return ops_of(f)->activation_backward(f->queue, kind, f->compute->dtype, dx, dy, x, y_out, n);
}

int frame_gated(struct zinf_frame *f, const struct zinf_gated *args)
{
    double n = (double)args->rows * (double)args->cols;
    if (frame_counts(f, 3 * n * (double)frame_width(f)))
        return 0;
    return ops_of(f)->gated_forward(f->queue, args);
}

int frame_gated_backward(struct zinf_frame *f, const struct zinf_gated *args)
{
    double n = (double)args->rows * (double)args->cols;
    if (frame_counts(f, (args->y_out ? 6 : 5) * n * (double)frame_width(f)))
        return 0;
    return ops_of(f)->gated_backward(f->queue, args);
}

int frame_dequantize(struct zinf_frame *f, const struct zinf_dequantize *args)
{
    const struct zinf_quantized *p = &args->quantized;
    double elems = (double)(args->rows * args->count) * (double)p->cols;
    double stored = elems / (double)p->n_elems * (double)p->bytes;
    if (f->queue)
        return ops_of(f)->dequantize(f->queue, args);
    f->bytes += stored + elems * (double)frame_width(f);
    frame_cost_unpacked(f, stored + elems * (double)frame_width(f));
    return 0;
}

int frame_row_norms(struct zinf_frame *f, const struct zinf_magnitude *args)
{
    double n = args->w ? (double)args->rows * (double)args->cols : 0;
    return frame_counts(f, n * (double)frame_width(f)) ? 0 : ops_of(f)->magnitude(f->queue, args);
}

int frame_scale_columns(struct zinf_frame *f, const struct zinf_column_scale *args)
{
    double n = (double)args->rows * (double)args->cols;
    if (frame_counts(f, 2 * n * (double)frame_width(f)))
        return 0;
    return ops_of(f)->scale_columns(f->queue, args);
}

int frame_dot_columns(struct zinf_frame *f, const struct zinf_column_dot *args)
{
    double n = (double)args->rows * (double)args->cols;
    if (frame_counts(f, 2 * n * (double)frame_width(f)))
        return 0;
    return ops_of(f)->dot_columns(f->queue, args);
}

int frame_rope(struct zinf_frame *f, const struct zinf_rope *args)
{
    double n = (double)args->rows * (double)(args->n_heads * args->rotary_dims);
    if (frame_counts(f, 2 * n * (double)frame_width(f)))
        return 0;
    return ops_of(f)->rope(f->queue, args);
}

int frame_residual(struct zinf_frame *f, const struct zinf_residual *args)
{
    if (frame_counts(f, 3.0 * (double)args->n * (double)zinf_dtype_bytes(args->dtype)))
        return 0;
    return ops_of(f)->residual_add(f->queue, args);
}

int frame_dropout(struct zinf_frame *f, const struct zinf_residual *args)
{
    if (frame_counts(f, 2.0 * (double)args->n * (double)zinf_dtype_bytes(args->dtype)))
        return 0;
    return ops_of(f)->dropout(f->queue, args);
}

int frame_mask(struct zinf_frame *f, void *x, float p, uint32_t site, int64_t per_sample)
{
    struct zinf_residual args = {
        .dtype = f->compute->dtype,
        .n = f->compute->batch * per_sample,
        .r = x,
        .y = x,
        .dropout = frame_dropout_at(f, p, site, (uint64_t)per_sample),
    };
    return args.dropout.p > 0 ? frame_dropout(f, &args) : 0;
}

/* ---- tables, loss ---- */

/* Rows of a whole vocabulary: a tile of it is asked for its share of them. */
static double embedding_bytes(const struct zinf_embedding *args)
{
    return 2.0 * (double)args->rows * (double)args->cols * (double)zinf_dtype_bytes(args->dtype);
}

int frame_embedding(struct zinf_frame *f, const struct zinf_embedding *args)
{
    if (frame_counts(f, embedding_bytes(args)))
        return 0;
    return ops_of(f)->embedding_forward(f->queue, args);
}

int frame_embedding_backward(struct zinf_frame *f, const struct zinf_embedding *args)
{
    if (frame_counts(f, embedding_bytes(args)))
        return 0;
    return ops_of(f)->embedding_backward(f->queue, args);
}

int frame_softcap(struct zinf_frame *f, float *x, float cap, uint64_t n)
{
    return frame_counts(f, 2.0 * (double)n * sizeof(float))
               ? 0
               : ops_of(f)->softcap(f->queue, x, cap, n);
}

/* What it reads and writes of rows. */
static double sinks_bytes(const struct zinf_sinks *a)
{
    return 2.0 * (double)(a->batch * a->seq * a->n_heads * a->head_dim) *
           (double)zinf_dtype_bytes(a->dtype);
}

int frame_heads(struct zinf_frame *f, const struct zinf_heads *args)
{
    const double bytes = 2.0 * (double)(args->rows * args->n_heads * args->cols) *
                         (double)zinf_dtype_bytes(args->dtype);
    return frame_counts(f, bytes) ? 0 : ops_of(f)->copy_heads(f->queue, args);
}

int frame_sinks(struct zinf_frame *f, const struct zinf_sinks *args)
{
    return frame_counts(f, sinks_bytes(args)) ? 0 : ops_of(f)->sinks_forward(f->queue, args);
}

int frame_sinks_backward(struct zinf_frame *f, const struct zinf_sinks *args)
{
    return frame_counts(f, sinks_bytes(args)) ? 0 : ops_of(f)->sinks_backward(f->queue, args);
}

int frame_squared_error(struct zinf_frame *f, const struct zinf_squared_error *args)
{
    return frame_counts(f, 3.0 * (double)args->rows * sizeof(float))
               ? 0
               : ops_of(f)->squared_error(f->queue, args);
}

int frame_preference(struct zinf_frame *f, const struct zinf_preference *args)
{
    return frame_counts(f, 8.0 * (double)(args->pairs * args->seq) * sizeof(float))
               ? 0
               : ops_of(f)->preference(f->queue, args);
}

int frame_noise(struct zinf_frame *f, const struct zinf_noise *args)
{
    return frame_counts(f, 2.0 * (double)args->n * (double)zinf_dtype_bytes(args->dtype))
               ? 0
               : ops_of(f)->noise(f->queue, args);
}

int frame_loss(struct zinf_frame *f, enum frame_loss call, const struct zinf_cross_entropy *args)
{
    const struct zinf_device_ops *ops = ops_of(f);
    int (*const calls[])(struct zinf_queue *, const struct zinf_cross_entropy *) = {
        [FRAME_LOSS_START] = ops->cross_entropy_start,
        [FRAME_LOSS_UPDATE] = ops->cross_entropy_update,
        [FRAME_LOSS_FINISH] = ops->cross_entropy_finish,
        [FRAME_LOSS_BACKWARD] = ops->cross_entropy_backward,
    };
    double passes = call == FRAME_LOSS_UPDATE ? 2 : call == FRAME_LOSS_BACKWARD ? 3 : 0;
    if (frame_counts(f, passes * (double)args->rows * (double)args->cols * (double)sizeof(float)))
        return 0;
    return calls[call](f->queue, args);
}

/* ---- memory ---- */

int frame_copy(struct zinf_frame *f, void *dst, const void *src, uint64_t bytes)
{
    return frame_counts(f, 2.0 * (double)bytes) ? 0 : ops_of(f)->copy(f->queue, dst, src, bytes);
}

int frame_zero(struct zinf_frame *f, void *dst, uint64_t bytes)
{
    return frame_counts(f, (double)bytes) ? 0 : ops_of(f)->fill_zero(f->queue, dst, bytes);
}

int frame_convert(struct zinf_frame *f, void *dst, enum zinf_dtype dst_dtype, const void *src,
                  enum zinf_dtype src_dtype, uint64_t n)
{
    uint64_t width = zinf_dtype_bytes(dst_dtype) + zinf_dtype_bytes(src_dtype);
    if (frame_counts(f, (double)(n * width)))
        return 0;
    return ops_of(f)->convert(f->queue, dst, dst_dtype, src, src_dtype, n);
}
