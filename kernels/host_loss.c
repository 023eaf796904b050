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

static void update_row(const struct host_simd *simd, const struct zinf_cross_entropy *a, int64_t i)
{
    const float *logits = a->logits + i * a->ld;
    int64_t target = (int64_t)a->targets[i] - a->first;
    if (a->targets[i] < 0)
        return;
    if (target >= 0 && target < a->cols)
        a->target_logit[i] = logits[target];
    float top = simd->max(logits, (size_t)a->cols);
    if (top > a->max[i]) {
        a->sum[i] *= expf(a->max[i] - top);
        a->max[i] = top;
    }
    a->sum[i] += simd->sum_exp(logits, a->max[i], (size_t)a->cols);
}

int host_cross_entropy_update(struct zinf_queue *q, const struct zinf_cross_entropy *args)
{
    int code = check_loss(args, true, "cross_entropy_update");
    if (code)
        return code;
    int n_slices = host_slices(q->device, (uint64_t)args->rows * (uint64_t)args->cols);
#pragma omp parallel for num_threads(n_slices) schedule(static)
    for (int slice = 0; slice < n_slices; slice++) {
        struct host_range range = host_slice((uint64_t)args->rows, 1, slice, n_slices);
        for (uint64_t i = 0; i < range.count; i++)
            update_row(q->device->simd, args, (int64_t)(range.first + i));
    }
    return 0;
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

static void backward_row(const struct host_simd *simd, const struct zinf_cross_entropy *a,
                         int64_t i)
{
    float *logits = a->logits + i * a->ld;
    int64_t target = (int64_t)a->targets[i] - a->first;
    if (a->targets[i] < 0) {
        memset(logits, 0, (size_t)a->cols * sizeof *logits);
        return;
    }
    simd->scale_exp(logits, a->max[i], a->scale / a->sum[i], (size_t)a->cols);
    if (target >= 0 && target < a->cols)
        logits[target] -= a->scale;
}

int host_cross_entropy_backward(struct zinf_queue *q, const struct zinf_cross_entropy *args)
{
    int code = check_loss(args, true, "cross_entropy_backward");
    if (code)
        return code;
    int n_slices = host_slices(q->device, (uint64_t)args->rows * (uint64_t)args->cols);
#pragma omp parallel for num_threads(n_slices) schedule(static)
    for (int slice = 0; slice < n_slices; slice++) {
        struct host_range range = host_slice((uint64_t)args->rows, 1, slice, n_slices);
        for (uint64_t i = 0; i < range.count; i++)
            backward_row(q->device->simd, args, (int64_t)(range.first + i));
    }
    return 0;
}
