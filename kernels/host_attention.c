/* host_attention: heads over threads. Forward takes a query head a time; backward a key head with
 * all its query heads, so that no two threads add to the same gradient. */
#include "kernels/host.h"

#include <omp.h>

static int check(const struct zinf_attention *a, const char *operation)
{
    if (a->batch < 0 || a->seq < 1 || a->head_dim < 1 || a->n_heads < 1 || a->n_kv_heads < 1)
        return zinf_fail(-EINVAL,
                         "%s: batch %lld, seq %lld, %lld heads, %lld key heads of size %lld",
                         operation, (long long)a->batch, (long long)a->seq, (long long)a->n_heads,
                         (long long)a->n_kv_heads, (long long)a->head_dim);
    if (a->n_heads % a->n_kv_heads)
        return zinf_fail(-EINVAL, "%s: %lld heads cannot share %lld key heads evenly", operation,
                         (long long)a->n_heads, (long long)a->n_kv_heads);
    return host_check_dropout(&a->dropout, operation);
}

uint64_t host_attention_workspace(struct zinf_device *device, const struct zinf_attention *args)
{
    return (uint64_t)device->n_threads * host_attention_scratch_floats(args) * sizeof(float);
}

typedef void head_function(const struct zinf_attention *args, int64_t b, int64_t head,
                           float *scratch);

/* Which thread takes which head does not change a bit, so the heads are dealt out as threads
 * become free. */
static int run_heads(struct zinf_queue *q, const struct zinf_attention *args, int64_t n_heads,
                     head_function *run, const char *operation)
{
    int code = check(args, operation);
    if (!code)
        code =
            host_check_workspace(q, host_attention_workspace(&q->device->device, args), operation);
    if (code)
        return code;
    const uint64_t scratch_floats = host_attention_scratch_floats(args);
    const int64_t n_units = args->batch * n_heads;
    const uint64_t work = (uint64_t)(n_units * args->seq * args->seq * args->head_dim);
    const int n_threads = host_slices(q->device, work);
#pragma omp parallel for num_threads(n_threads) schedule(dynamic, 1)
    for (int64_t unit = 0; unit < n_units; unit++)
        run(args, unit / n_heads, unit % n_heads,
            (float *)q->workspace + (uint64_t)omp_get_thread_num() * scratch_floats);
    return 0;
}

int host_attention_forward(struct zinf_queue *q, const struct zinf_attention *args)
{
    return run_heads(q, args, args->n_heads, q->device->simd->attention_forward,
                     "attention_forward");
}

int host_attention_backward(struct zinf_queue *q, const struct zinf_attention *args)
{
    return run_heads(q, args, args->n_kv_heads, q->device->simd->attention_backward,
                     "attention_backward");
}
