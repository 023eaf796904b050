/* host_attention: heads over threads. Forward takes a query head a time; backward a key head with
 * all its query heads, so that no two threads add to the same gradient, and where there are
 * relative positions all samples of a head, whose gradients of the table add up. */
#include "kernels/host.h"

#include <omp.h>

uint64_t host_attention_workspace(struct zinf_device *device, const struct zinf_attention *args)
{
    return (uint64_t)device->n_threads * host_attention_scratch_floats(args) * sizeof(float);
}

typedef void head_function(const struct zinf_attention *args, int64_t b, int64_t head,
                           float *scratch);

/* Which thread takes which head does not change a bit, so the heads are dealt out as threads
 * become free. in_order: a head's samples by one thread, one after the other. */
static int run_heads(struct zinf_queue *q, const struct zinf_attention *args, int64_t n_heads,
                     bool in_order, head_function *run, const char *operation)
{
    int code = check_attention(args, operation);
    if (!code)
        code = check_workspace(q->workspace_bytes,
                               host_attention_workspace(&q->device->device, args), operation);
    if (code)
        return code;
    const uint64_t scratch_floats = host_attention_scratch_floats(args);
    const int64_t run_length = in_order && args->batch > 0 ? args->batch : 1;
    const int64_t n_units = args->batch * n_heads;
    const uint64_t work =
        (uint64_t)(n_units * args->seq * zinf_attention_keys(args) * args->head_dim);
    const int n_threads = host_slices(q->device, work);
#pragma omp parallel for num_threads(n_threads) schedule(dynamic, 1)
    for (int64_t first = 0; first < n_units; first += run_length) {
        float *scratch = (float *)q->workspace + (uint64_t)omp_get_thread_num() * scratch_floats;
        for (int64_t i = 0; i < run_length; i++) {
            const int64_t unit = run_length > 1 ? i * n_heads + first / run_length : first;
            run(args, unit / n_heads, unit % n_heads, scratch);
        }
    }
    return 0;
}

int host_attention_forward(struct zinf_queue *q, const struct zinf_attention *args)
{
    return run_heads(q, args, args->n_heads, false, q->device->simd->attention_forward,
                     "attention_forward");
}

int host_attention_backward(struct zinf_queue *q, const struct zinf_attention *args)
{
    return run_heads(q, args, args->n_kv_heads, args->relative != NULL,
                     q->device->simd->attention_backward, "attention_backward");
}
