/*
 * host_loss: softmax cross-entropy over tiles of the vocabulary. A row's running (max, sum) is
 * rescaled whenever a tile brings a larger logit, so full logits never exist and any cut into
 * tiles gives the same loss up to rounding.
 */
#include "kernels/host.h"

#include <math.h>

int host_cross_entropy_start(struct zinf_queue *q, const struct zinf_cross_entropy *args)
{
    int code = check_loss(args, false, "cross_entropy_start");
    (void)q;
    if (code)
        return code;
    for (int64_t i = 0; i < args->rows; i++) {
        args->max[i] = -INFINITY;
        args->sum[i] = 0.0f;
        args->target_logit[i] = NAN; /* a target beyond the vocabulary shows in the loss */
    }
    return 0;
}

/* Sum of exp(logit - max) of a row's capped logits. */
static float capped_sum(const struct host_simd *simd, const struct zinf_cross_entropy *a,
                        const float *logits, float max)
{
    float capped[HOST_CHUNK], sum = 0.0f;
    for (int64_t c = 0; c < a->cols; c += HOST_CHUNK) {
        size_t n = a->cols - c < HOST_CHUNK ? (size_t)(a->cols - c) : HOST_CHUNK;
        simd->softcap(capped, NULL, logits + c, a->softcap, n);
        sum += simd->sum_exp(capped, max, n);
    }
    return sum;
}

static void update_row(const struct host_simd *simd, const void *args, uint64_t i)
{
    const struct zinf_cross_entropy *a = args;
    const float *logits = a->logits + i * a->ld;
    int64_t target = (int64_t)a->targets[i] - a->first;
    if (a->targets[i] < 0)
        return;
    if (target >= 0 && target < a->cols)
        a->target_logit[i] = logits[target];
    float top = simd->max(logits, (size_t)a->cols);
    if (a->softcap != 0.0f) { /* the largest stays the largest */
        if (target >= 0 && target < a->cols)
            simd->softcap(&a->target_logit[i], NULL, &a->target_logit[i], a->softcap, 1);
        simd->softcap(&top, NULL, &top, a->softcap, 1);
    }
    if (top > a->max[i]) {
        a->sum[i] *= expf(a->max[i] - top);
        a->max[i] = top;
    }
    a->sum[i] += a->softcap != 0.0f ? capped_sum(simd, a, logits, a->max[i])
                                    : simd->sum_exp(logits, a->max[i], (size_t)a->cols);
}

int host_cross_entropy_update(struct zinf_queue *q, const struct zinf_cross_entropy *args)
{
    int code = check_loss(args, true, "cross_entropy_update");
    return code ? code : host_each_row(q, args->rows, args->rows * args->cols, update_row, args);
}

int host_cross_entropy_finish(struct zinf_queue *q, const struct zinf_cross_entropy *args)
{
    int code = check_loss(args, false, "cross_entropy_finish");
    (void)q;
    if (code)
        return code;
    for (int64_t i = 0; i < args->rows; i++)
        args->loss[i] = args->targets[i] < 0
                            ? 0.0f
                            : logf(args->sum[i]) + (args->max[i] - args->target_logit[i]);
    return 0;
}

/* A row of logits becomes its gradient through the cap. */
static void capped_gradient(const struct host_simd *simd, const struct zinf_cross_entropy *a,
                            int64_t i)
{
    float slope[HOST_CHUNK], *logits = a->logits + i * a->ld;
    int64_t target = (int64_t)a->targets[i] - a->first;
    for (int64_t c = 0; c < a->cols; c += HOST_CHUNK, target -= HOST_CHUNK) {
        size_t n = a->cols - c < HOST_CHUNK ? (size_t)(a->cols - c) : HOST_CHUNK;
        simd->softcap(logits + c, slope, logits + c, a->softcap, n);
        simd->scale_exp(logits + c, a->max[i], a->scale / a->sum[i], n);
        if (target >= 0 && target < (int64_t)n)
            logits[c + target] -= a->scale;
        simd->multiply(logits + c, logits + c, slope, n);
    }
}

static void gradient_row(const struct host_simd *simd, const struct zinf_cross_entropy *a,
                         int64_t i)
{
    float *logits = a->logits + i * a->ld;
    int64_t target = (int64_t)a->targets[i] - a->first;
    if (a->targets[i] < 0) {
        memset(logits, 0, (size_t)a->cols * sizeof *logits);
        return;
    }
    if (a->softcap != 0.0f) {
        capped_gradient(simd, a, i);
        return;
    }
    simd->scale_exp(logits, a->max[i], a->scale / a->sum[i], (size_t)a->cols);
    if (target >= 0 && target < a->cols)
        logits[target] -= a->scale;
}

/* Gradients in another type, a chunk at a time: its room is taken from what was read before. */
static void narrow_row(const struct host_simd *simd, const struct zinf_cross_entropy *a, int64_t i)
{
    float chunk[HOST_CHUNK], *logits = a->logits + i * a->ld;
    for (int64_t c = 0; a->d_dtype != ZINF_DTYPE_F32 && c < a->cols; c += HOST_CHUNK) {
        size_t n = a->cols - c < HOST_CHUNK ? (size_t)(a->cols - c) : HOST_CHUNK;
        memcpy(chunk, logits + c, n * sizeof *chunk);
        host_write(simd, chunk, logits, a->d_dtype, (uint64_t)c, n);
    }
}

static void backward_row(const struct host_simd *simd, const void *args, uint64_t row)
{
    gradient_row(simd, args, (int64_t)row);
    narrow_row(simd, args, (int64_t)row);
}

int host_softcap(struct zinf_queue *q, float *x, float cap, uint64_t n)
{
    int code = check_softcap(cap, "softcap");
    if (code)
        return code;
    int n_slices = host_slices(q->device, n);
#pragma omp parallel for num_threads(n_slices) schedule(static)
    for (int slice = 0; slice < n_slices; slice++) {
        struct host_range range = host_slice(n, 16, slice, n_slices);
        float *part = x + range.first;
        q->device->simd->softcap(part, NULL, part, cap, range.count);
    }
    return 0;
}

int host_cross_entropy_backward(struct zinf_queue *q, const struct zinf_cross_entropy *args)
{
    int code = check_loss(args, true, "cross_entropy_backward");
    return code ? code : host_each_row(q, args->rows, args->rows * args->cols, backward_row, args);
}
