/* operations_relative: the table's entries of relative positions, and what
 * they take of the queue's workspace, as operations.c. */
#include "kernels/cuda/device.h"
#include "kernels/cuda/workspace.h"

/* Behind the row sums of d_out * out. */
static int32_t *rows_at(const struct zinf_queue *q, const struct zinf_attention *args)
{
    const uint64_t delta = zinf_align_up(attention_delta_bytes(args), 256);
    return (int32_t *)(void *)((char *)q->workspace + delta);
}

int cuda_relative_forward(struct zinf_queue *q, const struct zinf_attention *args)
{
    int code =
        check_workspace(q->workspace_bytes, attention_workspace_bytes(args), "attention_forward");
    if (code)
        return code;
    queue_enter(q, "attention_forward");
    cudaError_t error = launch_relative_rows(q->stream, rows_at(q, args), args);
    if (error == cudaSuccess)
        error = launch_attention_relative_forward(q->stream, rows_at(q, args), args);
    return queue_leave(q, error);
}

int cuda_relative_backward(struct zinf_queue *q, const struct zinf_attention *args)
{
    int32_t *at = rows_at(q, args);
    const struct relative_gradient table = {
        .delta = q->workspace,
        .at = at,
        .by_distance = (float *)(void *)((char *)at + relative_rows_bytes(args)),
    };
    queue_enter(q, "attention_backward");
    cudaError_t error = launch_relative_rows(q->stream, at, args);
    if (error == cudaSuccess)
        error = launch_attention_delta(q->stream, q->workspace, args);
    if (error == cudaSuccess)
        error = launch_attention_relative_backward(q->stream, q->workspace, at, args);
    if (error == cudaSuccess)
        error = launch_relative_table(q->stream, &table, args);
    return queue_leave(q, error);
}
