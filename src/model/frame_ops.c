/*
 * frame_ops: one operation of the device each. With a queue it is enqueued. Without one, its
 * workspace, the memory that a library takes for it, its flops and its bytes are added to the
 * frame's, by the same arguments.
 */
#include "model/frame_cost.h"

#include <math.h>

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
    return (struct zinf_device *)f->compute->device; /* questions do not change it */
}

/* values: bytes of n numbers of the parameters' type. typed: of another type. */
static double values(const struct zinf_frame *f, int64_t n)
{
    return (double)n * (double)frame_width(f);
}

static double typed(enum zinf_dtype dtype, int64_t n)
{
    return (double)n * (double)zinf_dtype_bytes(dtype);
}

/* Defines frame_NAME, which calls an entry of the device's table that reads and writes so many
 * bytes. The declaration at its end takes the semicolon. */
#define ONE_OPERATION(name, entry, type, bytes)                                                    \
    int frame_##name(struct zinf_frame *f, const struct type *args)                                \
    {                                                                                              \
        return frame_counts(f, bytes) ? 0 : ops_of(f)->entry(f->queue, args);                      \
    }                                                                                              \
    struct type

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

int frame_norm(struct zinf_frame *f, const struct zinf_norm *args)
{
    if (!frame_counts(f, 2 * typed(args->dtype, args->rows * args->cols)))
        return ops_of(f)->norm_forward(f->queue, args);
    widen(&f->workspace, ops_of(f)->norm_workspace(device_of(f), args));
    return 0;
}

int frame_norm_backward(struct zinf_frame *f, struct zinf_norm *args)
{
    const uint64_t mark = frame_mark(f);
    if (args->db && !args->dw)
        args->dw = frame_scratch(f, (uint64_t)args->cols * sizeof(float));
    frame_release(f, mark);
    if (!frame_counts(f,
                      (args->beta_dx != 0 ? 4 : 3) * typed(args->dtype, args->rows * args->cols)))
        return ops_of(f)->norm_backward(f->queue, args);
    widen(&f->workspace, ops_of(f)->norm_workspace(device_of(f), args));
    return 0;
}

/* Products of a query with the rows of the table within reach, and of these rows with a key,
 * counted as pairs of a query and a key. */
static double relative_pairs(const struct zinf_attention *args)
{
    const struct zinf_relative *r = args->relative;
    const double reach = (double)zinf_attention_distances(args), all = 2.0 * (double)r->half;
    return ((r->keys != NULL) + (r->queries != NULL)) * (reach < all ? reach : all) / 2;
}

/* 1 + 2 + ... + n, of n > 0. */
static double up_to(double n)
{
    return n > 0 ? n * (n + 1) / 2 : 0;
}

/* The sum over rows of how many of the keys lie at least so many tokens before the row. */
static double keys_before(const struct zinf_attention *args, double distance)
{
    const double keys = (double)zinf_attention_keys(args);
    const double first = (double)zinf_attention_ahead(args) - distance;
    const double end = first + (double)args->seq;
    return up_to(end) - up_to(end - keys) - up_to(first) + up_to(first - keys);
}

/* What rows see; flops of scores and of the sums of values that they weigh. */
static struct attention_extent attention_extent(const struct zinf_attention *args)
{
    const double seq = (double)args->seq, window = (double)args->window;
    const double ahead = (double)zinf_attention_ahead(args);
    const double keys = (double)zinf_attention_keys(args);
    struct attention_extent extent = {
        4 * (double)args->batch * seq * (double)(args->n_heads * args->head_dim), keys, 0};
    if (args->causal && !args->window) {
        extent.keys = keys_before(args, 0) / seq;
        extent.edges = ahead < keys - 1;
    } else if (args->window) { /* of rows that see a key */
        extent.keys = (keys_before(args, 0) - keys_before(args, window)) / seq;
        extent.edges = (ahead < keys - 1) + (ahead + seq > window);
        extent.edges *= fmin(fmax(keys + window - 1 - ahead, 0) / seq, 1);
    }
    if (args->relative)
        extent.keys += relative_pairs(args);
    return extent;
}

/* Bytes of queries and results, and of keys and values. */
static double attention_bytes(const struct zinf_attention *args)
{
    double queries = 2 * (double)(args->seq * args->n_heads);
    double keys = 2 * (double)(zinf_attention_keys(args) * args->n_kv_heads);
    return (double)(args->batch * args->head_dim) * (queries + keys) *
           (double)zinf_dtype_bytes(args->dtype);
}

static int measure_attention(struct zinf_frame *f, const struct zinf_attention *args, bool backward)
{
    const struct attention_extent extent = attention_extent(args);
    widen(&f->workspace, ops_of(f)->attention_workspace(device_of(f), args));
    f->flops += (backward ? 2 : 1) * extent.flops * extent.keys;
    frame_cost_attention(f, &extent, attention_bytes(args), backward);
    return 0;
}

int frame_attention(struct zinf_frame *f, const struct zinf_attention *args)
{
    return f->queue ? ops_of(f)->attention_forward(f->queue, args)
                    : measure_attention(f, args, false);
}

/* Counted as if every row saw as much as the last one can. */
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

ONE_OPERATION(distance_bias, distance_bias, zinf_distance_bias,
              typed(ZINF_DTYPE_F32, zinf_distances(args) * args->n_heads));
ONE_OPERATION(distance_bias_backward, distance_bias_backward, zinf_distance_bias,
              typed(ZINF_DTYPE_F32, args->batch * args->n_heads * zinf_distances(args)));

/* ---- convolutions ---- */

ONE_OPERATION(unfold, unfold, zinf_unfold,
              values(f, args->batch * args->seq * args->cols * (1 + args->width)));
ONE_OPERATION(unfold_backward, unfold_backward, zinf_unfold,
              values(f, args->batch * args->seq * args->cols * (1 + args->width)));

ONE_OPERATION(convolution, convolution_forward, zinf_convolution,
              2 * values(f, args->batch * args->seq * args->cols));
ONE_OPERATION(convolution_backward, convolution_backward, zinf_convolution,
              4 * values(f, args->batch * args->seq * args->cols));

/* Flops of products with the state, and of those between rows of a chunk. */
static double scan_flops(const struct zinf_scan *args)
{
    const double key = (double)args->key_dim, value = (double)args->value_dim;
    const double heads = (double)(args->batch * args->seq * args->value_heads);
    const double reads = args->rule == ZINF_RECURRENCE_DELTA ? 3 : 2, chunk = ZINF_SCAN_CHUNK;
    return 2 * heads * (reads * key * value + (reads - 1) * chunk * (key + value) / 2);
}

int frame_scan(struct zinf_frame *f, const struct zinf_scan *args)
{
    const struct zinf_device_ops *ops = ops_of(f);
    if (f->queue)
        return args->backward ? ops->scan_backward(f->queue, args)
                              : ops->scan_forward(f->queue, args);
    const int64_t cols =
        2 * (args->key_heads * args->key_dim + args->value_heads * args->value_dim);
    const double flops = (args->backward ? 4 : 1) * scan_flops(args);
    widen(&f->workspace, ops->scan_workspace(device_of(f), args));
    f->flops += flops;
    frame_cost(f, flops, (args->backward ? 3 : 1) * values(f, args->batch * args->seq * cols));
    return 0;
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

int frame_activation_sums(struct zinf_frame *f, const struct zinf_activation_sums *args)
{
    if (!frame_counts(f, (args->y_out ? 4 : 3) * values(f, args->rows * args->cols)))
        return ops_of(f)->activation_sums(f->queue, args);
    widen(&f->workspace, ops_of(f)->column_sum_workspace(device_of(f), args->rows, args->cols));
    return 0;
}

ONE_OPERATION(gated, gated_forward, zinf_gated, 3 * values(f, args->rows * args->cols));
ONE_OPERATION(gated_backward, gated_backward, zinf_gated,
              (args->y_out ? 6 : 5) * values(f, args->rows * args->cols));

ONE_OPERATION(xielu, xielu_forward, zinf_xielu, 2 * values(f, args->rows * args->cols));
ONE_OPERATION(xielu_backward, xielu_backward, zinf_xielu, 4 * values(f, args->rows * args->cols));

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

ONE_OPERATION(row_norms, magnitude, zinf_magnitude,
              values(f, args->w ? args->rows * args->cols : 0));
ONE_OPERATION(scale_columns, scale_columns, zinf_column_scale,
              2 * values(f, args->rows * args->cols));
ONE_OPERATION(dot_columns, dot_columns, zinf_column_dot, 2 * values(f, args->rows * args->cols));
ONE_OPERATION(rope, rope, zinf_rope, 2 * values(f, args->rows * args->n_heads * args->rotary_dims));
ONE_OPERATION(residual, residual_add, zinf_residual, 3 * typed(args->dtype, args->n));
int frame_residual_norm(struct zinf_frame *f, const struct zinf_residual *sum,
                        const struct zinf_norm *norm)
{
    if (!frame_counts(f, 4 * typed(sum->dtype, sum->n)))
        return ops_of(f)->residual_norm(f->queue, sum, norm);
    widen(&f->workspace, ops_of(f)->norm_workspace(device_of(f), norm));
    return 0;
}

ONE_OPERATION(dropout, dropout, zinf_residual, 2 * typed(args->dtype, args->n));

static int mask(struct zinf_frame *f, void *x, const struct zinf_dropout *dropout,
                int64_t per_sample)
{
    const struct zinf_residual args = {
        .dtype = f->compute->dtype,
        .n = f->compute->batch * per_sample,
        .r = x,
        .y = x,
        .dropout = *dropout,
    };
    return dropout->p > 0 ? frame_dropout(f, &args) : 0;
}

int frame_mask(struct zinf_frame *f, void *x, float p, uint32_t site, int64_t per_sample)
{
    const struct zinf_dropout dropout = frame_dropout_at(f, p, site, (uint64_t)per_sample);
    return mask(f, x, &dropout, per_sample);
}

int frame_mask_samples(struct zinf_frame *f, void *x, float p, uint32_t site, int64_t per_sample)
{
    struct zinf_dropout dropout = frame_dropout_at(f, p, site, (uint64_t)per_sample);
    dropout.element_first = f->compute->first_sample * (uint64_t)per_sample;
    return mask(f, x, &dropout, per_sample);
}

/* ---- tables, loss ---- */

/* Counted for the rows of a whole vocabulary: a tile has its share of them. */
ONE_OPERATION(embedding, embedding_forward, zinf_embedding,
              2 * typed(args->dtype, args->rows * args->cols));
ONE_OPERATION(embedding_backward, embedding_backward, zinf_embedding,
              2 * typed(args->dtype, args->rows * args->cols));

int frame_softcap(struct zinf_frame *f, float *x, float cap, uint64_t n)
{
    return frame_counts(f, 2.0 * (double)n * sizeof(float))
               ? 0
               : ops_of(f)->softcap(f->queue, x, cap, n);
}

ONE_OPERATION(heads, copy_heads, zinf_heads,
              2 * typed(args->dtype, args->rows * args->n_heads * args->cols));
ONE_OPERATION(sinks, sinks_forward, zinf_sinks,
              2 * typed(args->dtype, args->batch * args->seq * args->n_heads * args->head_dim));
ONE_OPERATION(sinks_backward, sinks_backward, zinf_sinks,
              2 * typed(args->dtype, args->batch * args->seq * args->n_heads * args->head_dim));
ONE_OPERATION(squared_error, squared_error, zinf_squared_error,
              3 * (double)args->rows * sizeof(float));
ONE_OPERATION(preference, preference, zinf_preference,
              8.0 * (double)(args->pairs * args->seq) * sizeof(float));
ONE_OPERATION(noise, noise, zinf_noise, 2 * typed(args->dtype, args->n));

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
