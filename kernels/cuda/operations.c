/*
 * operations: the table's entries that are kernels of our own: checks, the workspace, the launch.
 * Empty work returns before a launch, as CUDA refuses an empty grid.
 */
#include "kernels/cuda/device.h"
#include "kernels/cuda/workspace.h"

#include <limits.h>

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

int cuda_residual_add(struct zinf_queue *q, const struct zinf_residual *args)
{
    int code = check_residual(args, "residual_add");
    if (code || !args->n)
        return code;
    queue_enter(q, "residual_add");
    return queue_leave(q, launch_residual(q->stream, args, args->x));
}

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

int cuda_gated_forward(struct zinf_queue *q, const struct zinf_gated *args)
{
    int code = check_gated(args, "gated_forward");
    if (code || !args->rows)
        return code;
    queue_enter(q, "gated_forward");
    return queue_leave(q, launch_gated(q->stream, args, false));
}

int cuda_gated_backward(struct zinf_queue *q, const struct zinf_gated *args)
{
    int code = check_gated(args, "gated_backward");
    if (code || !args->rows)
        return code;
    queue_enter(q, "gated_backward");
    return queue_leave(q, launch_gated(q->stream, args, true));
}

int cuda_rope(struct zinf_queue *q, const struct zinf_rope *args)
{
    int code = check_rope(args);
    if (code || !args->rows)
        return code;
    queue_enter(q, "rope");
    return queue_leave(q, launch_rope(q->stream, args));
}

int cuda_dequantize(struct zinf_queue *q, const struct zinf_dequantize *args)
{
    int code = check_dequantize(args);
    if (code || !args->rows || !args->count)
        return code;
    queue_enter(q, "unpack");
    return queue_leave(q, launch_dequantize(q->stream, args));
}

uint64_t cuda_column_sum_workspace(struct zinf_device *device, int64_t rows, int64_t cols)
{
    (void)device;
    return column_sum_bytes(rows, cols);
}

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

uint64_t cuda_norm_workspace(struct zinf_device *device, const struct zinf_norm *args)
{
    (void)device;
    return norm_columns_bytes(args);
}

int cuda_norm_forward(struct zinf_queue *q, const struct zinf_norm *args)
{
    int code = check_norm(args, "norm_forward");
    if (code || !args->rows)
        return code;
    queue_enter(q, "norm_forward");
    return queue_leave(q, launch_norm_forward(q->stream, args));
}

int cuda_norm_backward(struct zinf_queue *q, const struct zinf_norm *args)
{
    int code = check_norm(args, "norm_backward");
    if (!code)
        code = check_workspace(q->workspace_bytes, norm_columns_bytes(args), "norm_backward");
    if (code)
        return code;
    queue_enter(q, "norm_backward");
    /* Columns first: dx may be dy. No rows: dw and db are zeros all the same. */
    cudaError_t error = args->dw ? launch_norm_columns(q->stream, q->workspace, args) : cudaSuccess;
    if (error == cudaSuccess && args->rows)
        error = launch_norm_dx(q->stream, args);
    return queue_leave(q, error);
}

/* ---- attention ---- */

uint64_t cuda_attention_workspace(struct zinf_device *device, const struct zinf_attention *args)
{
    (void)device;
    return attention_workspace_bytes(args);
}

enum { MAX_HEAD_DIM = 256 };

static int too_long_a_head(const char *operation, int64_t head_dim)
{
    return zinf_fail(-EINVAL, "%s: heads of size %lld; the CUDA device takes up to %d", operation,
                     (long long)head_dim, MAX_HEAD_DIM);
}

static int check_cuda_attention(const struct zinf_attention *args, const char *operation)
{
    int code = check_attention(args, operation);
    if (!code && args->head_dim > MAX_HEAD_DIM)
        code = too_long_a_head(operation, args->head_dim);
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
    uint64_t bytes = cuda_attention_workspace(&q->device->device, args);
    int code = check_cuda_attention(args, "attention_backward");
    if (!code)
        code = check_workspace(q->workspace_bytes, bytes, "attention_backward");
    if (code || !args->batch)
        return code;
    if (args->relative)
        return cuda_relative_backward(q, args);
    queue_enter(q, "attention_backward");
    float *delta = q->workspace;
    cudaError_t error = launch_attention_delta(q->stream, delta, args);
    if (error == cudaSuccess)
        error = attention_mma_serves(args, q->device->capability)
                    ? launch_attention_mma_backward(q->stream, delta, args)
                    : launch_attention_plain_backward(q->stream, delta, args);
    if (error == cudaSuccess && args->d_bias)
        error = launch_attention_distance(q->stream, delta, args);
    return queue_leave(q, error);
}

int cuda_distance_bias(struct zinf_queue *q, const struct zinf_distance_bias *args)
{
    int code = check_distance_bias(args, "distance_bias");
    if (code)
        return code;
    queue_enter(q, "distance_bias");
    return queue_leave(q, launch_distance_bias(q->stream, args));
}

int cuda_distance_bias_backward(struct zinf_queue *q, const struct zinf_distance_bias *args)
{
    int code = check_distance_bias(args, "distance_bias_backward");
    if (code)
        return code;
    queue_enter(q, "distance_bias_backward");
    return queue_leave(q, launch_distance_table(q->stream, args));
}

uint64_t cuda_attention_cached_workspace(struct zinf_device *device,
                                         const struct zinf_attention_cached *args)
{
    (void)device;
    return attention_cached_bytes(args);
}

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

int cuda_embedding_forward(struct zinf_queue *q, const struct zinf_embedding *args)
{
    int code = check_embedding(args, "embedding_forward");
    if (code || !args->rows)
        return code;
    queue_enter(q, "embedding_forward");
    return queue_leave(q, launch_embedding(q->stream, args));
}

int cuda_embedding_backward(struct zinf_queue *q, const struct zinf_embedding *args)
{
    int code = check_embedding(args, "embedding_backward");
    if (code || !args->rows)
        return code;
    queue_enter(q, "embedding_backward");
    return queue_leave(q, launch_embedding_backward(q->stream, args));
}

/* ---- loss ---- */

typedef cudaError_t launch_loss(cudaStream_t stream, const struct zinf_cross_entropy *args);

static int run_loss(struct zinf_queue *q, const struct zinf_cross_entropy *args, bool tile,
                    launch_loss *launch, const char *operation)
{
    int code = check_loss(args, tile, operation);
    if (code || !args->rows)
        return code;
    queue_enter(q, operation);
    return queue_leave(q, launch(q->stream, args));
}

int cuda_softcap(struct zinf_queue *q, float *x, float cap, uint64_t n)
{
    int code = check_softcap(cap, "softcap");
    if (code || !n)
        return code;
    queue_enter(q, "softcap");
    return queue_leave(q, launch_softcap(q->stream, x, cap, n));
}

int cuda_cross_entropy_start(struct zinf_queue *q, const struct zinf_cross_entropy *args)
{
    return run_loss(q, args, false, launch_loss_start, "cross_entropy_start");
}

int cuda_cross_entropy_update(struct zinf_queue *q, const struct zinf_cross_entropy *args)
{
    return run_loss(q, args, true, launch_loss_update, "cross_entropy_update");
}

int cuda_cross_entropy_finish(struct zinf_queue *q, const struct zinf_cross_entropy *args)
{
    return run_loss(q, args, false, launch_loss_finish, "cross_entropy_finish");
}

int cuda_cross_entropy_backward(struct zinf_queue *q, const struct zinf_cross_entropy *args)
{
    return run_loss(q, args, true, launch_loss_backward, "cross_entropy_backward");
}

int cuda_copy_heads(struct zinf_queue *q, const struct zinf_heads *args)
{
    int code = check_heads(args);
    if (code || !args->rows)
        return code;
    queue_enter(q, "copy_heads");
    return queue_leave(q, launch_copy_heads(q->stream, args));
}

static int run_sinks(struct zinf_queue *q, const struct zinf_sinks *args, bool backward,
                     const char *operation)
{
    int code = check_sinks(args, operation);
    if (code || (!args->batch && !backward))
        return code;
    queue_enter(q, operation);
    return queue_leave(q, launch_sinks(q->stream, args, backward));
}

int cuda_sinks_forward(struct zinf_queue *q, const struct zinf_sinks *args)
{
    return run_sinks(q, args, false, "sinks_forward");
}

int cuda_sinks_backward(struct zinf_queue *q, const struct zinf_sinks *args)
{
    return run_sinks(q, args, true, "sinks_backward");
}

int cuda_squared_error(struct zinf_queue *q, const struct zinf_squared_error *args)
{
    int code = check_squared_error(args);
    if (code || !args->rows)
        return code;
    queue_enter(q, "squared_error");
    return queue_leave(q, launch_squared_error(q->stream, args));
}

int cuda_preference(struct zinf_queue *q, const struct zinf_preference *args)
{
    int code = check_preference(args);
    if (code || !args->pairs)
        return code;
    queue_enter(q, "preference");
    return queue_leave(q, launch_preference(q->stream, args));
}

int cuda_noise(struct zinf_queue *q, const struct zinf_noise *args)
{
    int code = check_noise(args);
    if (code || !args->n)
        return code;
    queue_enter(q, "noise");
    return queue_leave(q, launch_noise(q->stream, args));
}

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
