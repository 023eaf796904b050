/*
 * operations: the table's entries that are kernels of our own: checks, the workspace, the launch.
 * Empty work returns before a launch, as CUDA refuses an empty grid.
 */
#include "kernels/cuda/device.h"
#include "kernels/cuda/workspace.h"

#include <limits.h>

/* An entry that is one kernel: `nothing` says of checked arguments that there is nothing to do. The
 * declaration at the end takes the semicolon. */
#define ONE_KERNEL(name, type, check, nothing, launch)                                             \
    int cuda_##name(struct zinf_queue *q, const struct type *args)                                 \
    {                                                                                              \
        int code = check;                                                                          \
        if (code || (nothing))                                                                     \
            return code;                                                                           \
        queue_enter(q, #name);                                                                     \
        return queue_leave(q, launch);                                                             \
    }                                                                                              \
    struct type

/* ---- flat arrays ---- */

int cuda_convert(struct zinf_queue *q, void *dst, enum zinf_dtype dst_dtype, const void *src,
                 enum zinf_dtype src_dtype, uint64_t n)
{
    if (dst_dtype == src_dtype)
        return cuda_copy(q, dst, src, n * zinf_dtype_bytes(src_dtype));
    if (!n)
        return 0;
    queue_enter(q, "convert");
    return queue_leave(q, launch_convert(q->stream, dst, dst_dtype, src, src_dtype, n));
}

int cuda_add(struct zinf_queue *q, float *dst, const float *src, uint64_t n)
{
    if (!n)
        return 0;
    queue_enter(q, "add");
    return queue_leave(q, launch_add(q->stream, dst, src, n));
}

ONE_KERNEL(residual_add, zinf_residual, check_residual(args, "residual_add"), !args->n,
           launch_residual(q->stream, args, args->x));

int cuda_dropout(struct zinf_queue *q, const struct zinf_residual *args)
{
    int code = check_residual(args, "dropout");
    if (code || !args->n)
        return code;
    if (args->dropout.p == 0.0f && zinf_residual_scale(args) == 1.0f)
        return cuda_copy(q, args->y, args->r, (uint64_t)args->n * zinf_dtype_bytes(args->dtype));
    queue_enter(q, "dropout");
    return queue_leave(q, launch_residual(q->stream, args, NULL));
}

int cuda_activation_forward(struct zinf_queue *q, enum zinf_activation kind, enum zinf_dtype dtype,
                            void *y, const void *x, uint64_t n)
{
    int code = check_activation(kind);
    if (code || !n)
        return code;
    queue_enter(q, "activation_forward");
    return queue_leave(q, launch_activation(q->stream, kind, dtype, y, x, n));
}

int cuda_activation_backward(struct zinf_queue *q, enum zinf_activation kind, enum zinf_dtype dtype,
                             void *dx, const void *dy, const void *x, void *y_out, uint64_t n)
{
    int code = check_activation(kind);
    if (code || !n)
        return code;
    queue_enter(q, "activation_backward");
    return queue_leave(q, launch_activation_backward(q->stream, kind, dtype, dx, dy, x, y_out, n));
}

/* ---- rows and columns ---- */

ONE_KERNEL(gated_forward, zinf_gated, check_gated(args, "gated_forward"), !args->rows,
           launch_gated(q->stream, args, false));
ONE_KERNEL(gated_backward, zinf_gated, check_gated(args, "gated_backward"), !args->rows,
           launch_gated(q->stream, args, true));
ONE_KERNEL(rope, zinf_rope, check_rope(args), !args->rows, launch_rope(q->stream, args));
ONE_KERNEL(dequantize, zinf_dequantize, check_dequantize(args), !args->rows || !args->count,
           launch_dequantize(q->stream, args));
ONE_KERNEL(unpack, zinf_packed_array, check_unpack(args), !args->n, launch_unpack(q->stream, args));
ONE_KERNEL(widen, zinf_widen, check_widen(args), !args->n_runs, launch_widen(q->stream, args));

int cuda_column_sum(struct zinf_queue *q, float *sum, const void *x, enum zinf_dtype dtype,
                    int64_t rows, int64_t cols)
{
    int code = check_column_sum(rows, cols);
    if (!code)
        code = check_workspace(q->workspace_bytes, column_sum_bytes(rows, cols), "column_sum");
    if (code || !cols)
        return code;
    queue_enter(q, "column_sum");
    return queue_leave(q, launch_column_sum(q->stream, q->workspace, sum, x, dtype, rows, cols));
}

int cuda_activation_sums(struct zinf_queue *q, const struct zinf_activation_sums *args)
{
    const uint64_t needed = column_sum_bytes(args->rows, args->cols);
    int code = check_activation_sums(args);
    if (!code)
        code = check_workspace(q->workspace_bytes, needed, "activation_sums");
    if (code || !args->cols)
        return code;
    queue_enter(q, "activation_sums");
    return queue_leave(q, launch_activation_sums(q->stream, q->workspace, args));
}

ONE_KERNEL(norm_forward, zinf_norm, check_norm(args, "norm_forward"), !args->rows,
           norm_rows_serves(args, NULL) ? launch_norm_rows(q->stream, args)
                                        : launch_norm_forward(q->stream, args));

int cuda_residual_norm(struct zinf_queue *q, const struct zinf_residual *sum,
                       const struct zinf_norm *norm)
{
    int code = check_residual_norm(sum, norm);
    if (code || !norm->rows)
        return code;
    if (!norm_rows_serves(norm, sum)) {
        code = cuda_residual_add(q, sum);
        return code ? code : cuda_norm_forward(q, norm);
    }
    queue_enter(q, "residual_norm");
    return queue_leave(q, launch_residual_norm(q->stream, sum, norm));
}

int cuda_norm_backward(struct zinf_queue *q, const struct zinf_norm *args)
{
    int code = check_norm(args, "norm_backward");
    if (!code)
        code = check_workspace(q->workspace_bytes, norm_columns_bytes(args), "norm_backward");
    if (code)
        return code;
    queue_enter(q, "norm_backward");
    if (norm_gradient_serves(args))
        return queue_leave(q, launch_norm_gradient(q->stream, q->workspace, args));
    /* Columns first: dx may be dy. No rows: dw and db are zeros all the same. */
    cudaError_t error = args->dw ? launch_norm_columns(q->stream, q->workspace, args) : cudaSuccess;
    if (error == cudaSuccess && args->rows)
        error = launch_norm_dx(q->stream, args);
    return queue_leave(q, error);
}

/* ---- attention ---- */

/* MAX_ACROSS: blocks that a grid has along its second and third dimension. MAX_TOKENS: kernels
 * count those of a sample in an int, and add a tile to them; MAX_SHARED: so many tokens times heads
 * that share a key head, since the walk over their queries, 16 a step or more, counts steps so. */
enum { MAX_HEAD_DIM = 512, MAX_ACROSS = 65535, MAX_TOKENS = 1 << 30 };
static const int64_t MAX_SHARED = (int64_t)1 << 34;

static int too_long_a_head(const char *operation, int64_t head_dim)
{
    return zinf_fail(-EINVAL, "%s: heads of size %lld; the CUDA device takes up to %d", operation,
                     (long long)head_dim, MAX_HEAD_DIM);
}

static int check_tokens(const struct zinf_attention *args, const char *operation)
{
    const int64_t keys = zinf_attention_keys(args), ahead = zinf_attention_ahead(args);
    const int64_t shared = args->n_heads / args->n_kv_heads;
    if (args->seq <= MAX_TOKENS && keys <= MAX_TOKENS && ahead <= MAX_TOKENS &&
        ahead >= -MAX_TOKENS && args->seq <= MAX_SHARED / shared)
        return 0;
    return zinf_fail(-EINVAL,
                     "%s: %lld queries, %lld keys and %lld tokens between them, with %lld heads a "
                     "key head; the CUDA device takes up to %d of each, and %lld times the heads: "
                     "lower --seq-len or give zinf.sequence_chunk",
                     operation, (long long)args->seq, (long long)keys, (long long)ahead,
                     (long long)shared, MAX_TOKENS, (long long)MAX_SHARED);
}

static int check_cuda_attention(const struct zinf_attention *args, const char *operation)
{
    int code = check_attention(args, operation);
    if (!code)
        code = check_tokens(args, operation);
    if (!code && args->head_dim > MAX_HEAD_DIM)
        code = too_long_a_head(operation, args->head_dim);
    if (!code && (args->batch > MAX_ACROSS || args->n_heads > MAX_ACROSS))
        code = zinf_fail(-EINVAL,
                         "%s: %lld samples of %lld heads; the CUDA device takes up to %d of each: "
                         "lower train_micro_batch_size_per_gpu",
                         operation, (long long)args->batch, (long long)args->n_heads, MAX_ACROSS);
    return code;
}

int cuda_attention_forward(struct zinf_queue *q, const struct zinf_attention *args)
{
    int code = check_cuda_attention(args, "attention_forward");
    if (code || !args->batch)
        return code;
    if (args->relative)
        return cuda_relative_forward(q, args);
    queue_enter(q, "attention_forward");
    return queue_leave(q, attention_mma_serves(args, q->device->capability)
                              ? launch_attention_mma_forward(q->stream, args)
                              : launch_attention_plain_forward(q->stream, args));
}

int cuda_attention_backward(struct zinf_queue *q, const struct zinf_attention *args)
{
    uint64_t bytes = attention_workspace_bytes(args);
    int code = check_cuda_attention(args, "attention_backward");
    if (!code)
        code = check_workspace(q->workspace_bytes, bytes, "attention_backward");
    if (code || !args->batch)
        return code;
    if (args->relative)
        return cuda_relative_backward(q, args);
    queue_enter(q, "attention_backward");
    const bool tensor_cores = attention_mma_serves(args, q->device->capability);
    float *delta = q->workspace;
    char *parts = (char *)q->workspace + zinf_align_up(attention_delta_bytes(args), 256);
    cudaError_t error = launch_attention_delta(q->stream, delta, args);
    if (error == cudaSuccess)
        error = tensor_cores ? launch_attention_mma_backward(q->stream, delta, args)
                             : launch_attention_plain_backward(q->stream, delta, args);
    if (error == cudaSuccess && args->d_bias)
        error = tensor_cores
                    ? launch_attention_mma_distance(q->stream, delta, (float *)(void *)parts, args)
                    : launch_attention_distance(q->stream, delta, args);
    return queue_leave(q, error);
}

ONE_KERNEL(distance_bias, zinf_distance_bias, check_distance_bias(args, "distance_bias"), false,
           launch_distance_bias(q->stream, args));
ONE_KERNEL(distance_bias_backward, zinf_distance_bias,
           check_distance_bias(args, "distance_bias_backward"), false,
           launch_distance_table(q->stream, args));

int cuda_attention_cached(struct zinf_queue *q, const struct zinf_attention_cached *args)
{
    int code = check_attention_cached(args);
    if (!code && args->head_dim > MAX_HEAD_DIM)
        code = too_long_a_head("attention_cached", args->head_dim);
    if (!code &&
        (args->capacity > INT_MAX || (args->slopes && args->n_heads > ZINF_ATTENTION_MAX_SLOPES)))
        code = zinf_fail(-EINVAL,
                         "attention_cached: %lld slots of %lld heads; the CUDA device takes up to "
                         "%d, and slopes of %d heads",
                         (long long)args->capacity, (long long)args->n_heads, INT_MAX,
                         ZINF_ATTENTION_MAX_SLOPES);
    if (code || !args->rows)
        return code;
    queue_enter(q, "attention_cached");
    return queue_leave(q, launch_attention_cached(q->stream, args));
}

/* ---- embedding ---- */

ONE_KERNEL(embedding_forward, zinf_embedding, check_embedding(args, "embedding_forward"),
           !args->rows, launch_embedding(q->stream, args));
ONE_KERNEL(embedding_backward, zinf_embedding, check_embedding(args, "embedding_backward"),
           !args->rows, launch_embedding_backward(q->stream, args));
ONE_KERNEL(unfold, zinf_unfold, check_unfold(args, "unfold"), !args->batch,
           launch_unfold(q->stream, args, false));
ONE_KERNEL(unfold_backward, zinf_unfold, check_unfold(args, "unfold_backward"), !args->batch,
           launch_unfold(q->stream, args, true));

/* ---- recurrent mixers ---- */

ONE_KERNEL(convolution_forward, zinf_convolution, check_convolution(args, false), !args->batch,
           launch_convolution(q->stream, args, false));
ONE_KERNEL(convolution_backward, zinf_convolution, check_convolution(args, true), !args->batch,
           launch_convolution(q->stream, args, true));

static int scan(struct zinf_queue *q, const struct zinf_scan *args, const char *operation)
{
    int code = check_scan(args, operation);
    if (!code)
        code = check_workspace(q->workspace_bytes, scan_workspace_bytes(args), operation);
    if (code || !args->batch)
        return code;
    queue_enter(q, operation);
    return queue_leave(q, launch_scan(q->stream, q->workspace, args));
}

int cuda_scan_forward(struct zinf_queue *q, const struct zinf_scan *args)
{
    return scan(q, args, "scan_forward");
}

int cuda_scan_backward(struct zinf_queue *q, const struct zinf_scan *args)
{
    return scan(q, args, "scan_backward");
}

/* ---- loss ---- */

int cuda_softcap(struct zinf_queue *q, float *x, float cap, uint64_t n)
{
    int code = check_softcap(cap, "softcap");
    if (code || !n)
        return code;
    queue_enter(q, "softcap");
    return queue_leave(q, launch_softcap(q->stream, x, cap, n));
}

ONE_KERNEL(cross_entropy_start, zinf_cross_entropy, check_loss(args, false, "cross_entropy_start"),
           !args->rows, launch_loss_start(q->stream, args));
ONE_KERNEL(cross_entropy_update, zinf_cross_entropy, check_loss(args, true, "cross_entropy_update"),
           !args->rows, launch_loss_update(q->stream, args));
ONE_KERNEL(cross_entropy_finish, zinf_cross_entropy,
           check_loss(args, false, "cross_entropy_finish"), !args->rows,
           launch_loss_finish(q->stream, args));
ONE_KERNEL(cross_entropy_backward, zinf_cross_entropy,
           check_loss(args, true, "cross_entropy_backward"), !args->rows,
           launch_loss_backward(q->stream, args));
ONE_KERNEL(copy_heads, zinf_heads, check_heads(args), !args->rows,
           launch_copy_heads(q->stream, args));

ONE_KERNEL(sinks_forward, zinf_sinks, check_sinks(args, "sinks_forward"), !args->batch,
           launch_sinks(q->stream, args, false));
/* No samples: the gradients are zeros all the same. */
ONE_KERNEL(sinks_backward, zinf_sinks, check_sinks(args, "sinks_backward"), false,
           launch_sinks(q->stream, args, true));
ONE_KERNEL(xielu_forward, zinf_xielu, check_xielu(args, "xielu_forward"), !args->rows,
           launch_xielu(q->stream, args, false));
ONE_KERNEL(xielu_backward, zinf_xielu, check_xielu(args, "xielu_backward"), !args->rows,
           launch_xielu(q->stream, args, true));
ONE_KERNEL(squared_error, zinf_squared_error, check_squared_error(args), !args->rows,
           launch_squared_error(q->stream, args));
ONE_KERNEL(preference, zinf_preference, check_preference(args), !args->pairs,
           launch_preference(q->stream, args));
ONE_KERNEL(noise, zinf_noise, check_noise(args), !args->n, launch_noise(q->stream, args));

/* ---- experts ---- */

ONE_KERNEL(route_forward, zinf_route, check_route(args, "route_forward"), !args->rows,
           launch_route(q->stream, args, false));
ONE_KERNEL(route_backward, zinf_route, check_route(args, "route_backward"), !args->rows,
           launch_route(q->stream, args, true));
ONE_KERNEL(route_shares, zinf_shares, check_shares(args), !args->samples,
           launch_shares(q->stream, args));
ONE_KERNEL(route_balance, zinf_balance, check_balance(args), !args->samples,
           launch_balance(q->stream, args));
ONE_KERNEL(gather_rows, zinf_rows, check_rows(args, "gather_rows"), !args->n,
           launch_gather(q->stream, args));
ONE_KERNEL(scatter_rows, zinf_rows, check_rows(args, "scatter_rows"), !args->n,
           launch_scatter(q->stream, args));
ONE_KERNEL(weigh_rows, zinf_weigh, check_weigh(args), !args->n, launch_weigh(q->stream, args));

/* ---- magnitudes ---- */

ONE_KERNEL(magnitude, zinf_magnitude, check_magnitude(args), !args->rows,
           launch_magnitude(q->stream, args));
ONE_KERNEL(scale_columns, zinf_column_scale, check_column_scale(args), !args->rows,
           launch_scale_columns(q->stream, args));
/* No rows: the sums are zeros all the same. */
ONE_KERNEL(dot_columns, zinf_column_dot, check_column_dot(args), false,
           launch_dot_columns(q->stream, args));

/* ---- the optimizer ---- */

int cuda_adam(struct zinf_queue *q, const struct zinf_adam *args)
{
    if (!args->master && (!args->remainder || args->dtype != ZINF_DTYPE_BF16))
        return zinf_fail(-EINVAL, "adam: neither a master nor a split one beside bf16 parameters");
    if (!args->n)
        return 0;
    queue_enter(q, "adam");
    return queue_leave(q, launch_adam(q->stream, args));
}

int cuda_sum_squares(struct zinf_queue *q, double *parts, const float *x, uint64_t n)
{
    if (!n)
        return 0;
    queue_enter(q, "sum_squares");
    return queue_leave(q, launch_sum_squares(q->stream, parts, x, n));
}
