/*
 * host_sinks: a number of each head's own that joins its softmax. Attention knows nothing of it:
 * from the logarithm of a row's sum follows by how much the sink makes its result smaller.
 */
#include "kernels/host.h"

#include <math.h>

/* How much of a head's softmax is left to the keys, and log(exp(lse) + exp(sink)). */
static float share_of_keys(float lse, float sink, float *joined)
{
    const float top = lse > sink ? lse : sink, away = expf(-fabsf(lse - sink));
    *joined = top + log1pf(away);
    return (lse > sink ? 1.0f : away) / (1.0f + away);
}

static float sink_of(const struct host_simd *simd, const struct zinf_sinks *a, int64_t head)
{
    float buffer[1];
    return *host_read(simd, buffer, a->sinks, a->dtype, (uint64_t)head, 1);
}

/* Where the sum of a head of a row is. */
static uint64_t lse_at(const struct zinf_sinks *a, uint64_t row, int64_t head)
{
    const uint64_t seq = (uint64_t)a->seq;
    return (row / seq * (uint64_t)a->n_heads + (uint64_t)head) * seq + row % seq;
}

static void forward_row(const struct host_simd *simd, const void *args, uint64_t row)
{
    const struct zinf_sinks *a = args;
    float buffer[ZINF_SINKS_MAX_HEAD_DIM], factors[ZINF_SINKS_MAX_HEAD_DIM];
    const size_t dim = (size_t)a->head_dim;
    for (int64_t h = 0; h < a->n_heads; h++) {
        const uint64_t at = (row * (uint64_t)a->n_heads + (uint64_t)h) * dim;
        float *lse = &a->lse[lse_at(a, row, h)];
        const float share = share_of_keys(*lse, sink_of(simd, a, h), lse);
        for (size_t c = 0; c < dim; c++)
            factors[c] = share;
        const float *x = host_read(simd, buffer, a->out, a->dtype, at, dim);
        float *y = host_target(buffer, a->out, a->dtype, at);
        simd->multiply(y, x, factors, dim);
        host_write(simd, y, a->out, a->dtype, at, dim);
    }
}

/* The sink's probability in a row times what the row's others would have less by it. */
static void backward_head(const struct host_simd *simd, const void *args, uint64_t head)
{
    const struct zinf_sinks *a = args;
    float out[ZINF_SINKS_MAX_HEAD_DIM], d_out[ZINF_SINKS_MAX_HEAD_DIM];
    const size_t dim = (size_t)a->head_dim;
    const float sink = sink_of(simd, a, (int64_t)head);
    double sum = 0;
    for (uint64_t row = 0; row < (uint64_t)(a->batch * a->seq); row++) {
        const uint64_t at = (row * (uint64_t)a->n_heads + head) * dim;
        simd->multiply(d_out, host_read(simd, out, a->out, a->dtype, at, dim),
                       host_read(simd, d_out, a->d_out, a->dtype, at, dim), dim);
        sum -= (double)expf(sink - a->lse[lse_at(a, row, (int64_t)head)]) *
               (double)simd->sum(d_out, dim);
    }
    a->d_sinks[head] = (float)sum;
}

int host_sinks_forward(struct zinf_queue *q, const struct zinf_sinks *args)
{
    const int64_t rows = args->batch * args->seq, work = rows * args->n_heads * args->head_dim;
    int code = check_sinks(args, "sinks_forward");
    return code ? code : host_each_row(q, rows, work, forward_row, args);
}

int host_sinks_backward(struct zinf_queue *q, const struct zinf_sinks *args)
{
    const int64_t work = args->batch * args->seq * args->n_heads * args->head_dim;
    int code = check_sinks(args, "sinks_backward");
    return code ? code : host_each_row(q, args->n_heads, work, backward_head, args);
}
