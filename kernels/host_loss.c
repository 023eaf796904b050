/*
 * host_loss: softmax cross-entropy over tiles of the vocabulary. A row's running (max, sum) is
 * rescaled whenever a tile brings a larger logit, so full logits never exist and any cut into
 * tiles gives the same loss up to rounding.
 */
#include "kernels/host.h"

#include <math.h>

/* ---- of one number a row: rows are samples, there are few ---- */

int host_squared_error(struct zinf_queue *q, const struct zinf_squared_error *args)
{
    int code = check_squared_error(args);
    (void)q;
    for (int64_t i = 0; !code && i < args->rows; i++) {
        const float away = isnan(args->labels[i]) ? 0.0f : args->x[i] - args->labels[i];
        if (args->loss)
            args->loss[i] = away * away;
        if (args->dx)
            args->dx[i] = 2.0f * args->scale * away;
    }
    return code;
}

/* ---- of a vocabulary ---- */

int host_cross_entropy_start(struct zinf_queue *q, const struct zinf_cross_entropy *args)
{
    int code = check_loss(args, false, "cross_entropy_start");
    (void)q;
    if (code)
        return code;
    for (int64_t i = 0; i < args->rows; i++) {
        args->max[i] = -INFINITY;
        args->sum[i] = 0.0f;
        args->target_logit[i] = NAN; /* NAN shows a target beyond the vocabulary in the loss */
    }
    if (args->smoothing != 0.0f)
        memset(args->logit_sum, 0, (size_t)args->rows * sizeof *args->logit_sum);
    return 0;
}

/* Returns the sum of exp(logit - max) over a row's capped logits, and adds these logits to *total
 * unless total is NULL. */
static float capped_sum(const struct host_simd *simd, const struct zinf_cross_entropy *a,
                        const float *logits, float max, float *total)
{
    float capped[HOST_CHUNK], sum = 0.0f;
    for (int64_t c = 0; c < a->cols; c += HOST_CHUNK) {
        size_t n = a->cols - c < HOST_CHUNK ? (size_t)(a->cols - c) : HOST_CHUNK;
        simd->softcap(capped, NULL, logits + c, a->softcap, n);
        sum += simd->sum_exp(capped, max, n);
        if (total)
            *total += simd->sum(capped, n);
    }
    return sum;
}

/* The first column that has the number, or cols if none has it. */
static int64_t first_at(const float *logits, int64_t cols, float number)
{
    int64_t c = 0;
    while (c < cols && logits[c] != number)
        c++;
    return c;
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
    const int64_t top_at = a->max_z_loss != 0.0f ? first_at(logits, a->cols, top) : 0;
    float *total = a->smoothing != 0.0f ? &a->logit_sum[i] : NULL;
    if (a->softcap != 0.0f) { /* the largest stays the largest */
        if (target >= 0 && target < a->cols)
            simd->softcap(&a->target_logit[i], NULL, &a->target_logit[i], a->softcap, 1);
        simd->softcap(&top, NULL, &top, a->softcap, 1);
    }
    if (top > a->max[i]) {
        a->sum[i] *= expf(a->max[i] - top);
        a->max[i] = top;
        if (a->max_z_loss != 0.0f)
            a->max_at[i] = (int32_t)(a->first + top_at);
    }
    if (total && a->softcap == 0.0f)
        *total += simd->sum(logits, (size_t)a->cols);
    /* If all logits so far are -infinity, subtracting the largest would make NaN; exp(-infinity -
     * 0) is 0. */
    const float most = a->max[i] == -INFINITY ? 0.0f : a->max[i];
    a->sum[i] += a->softcap != 0.0f ? capped_sum(simd, a, logits, most, total)
                                    : simd->sum_exp(logits, most, (size_t)a->cols);
}

int host_cross_entropy_update(struct zinf_queue *q, const struct zinf_cross_entropy *args)
{
    int code = check_loss(args, true, "cross_entropy_update");
    return code ? code : host_each_row(q, args->rows, args->rows * args->cols, update_row, args);
}

/* The loss of a row whose target is not ignored. */
static float loss_of(const struct zinf_cross_entropy *a, int64_t i)
{
    const float e = a->smoothing, log_sum = logf(a->sum[i]);
    float wanted = a->target_logit[i];
    if (e != 0.0f)
        wanted = (1.0f - e) * wanted + e * (a->logit_sum[i] / (float)a->vocab);
    const float z = log_sum + a->max[i];
    float loss = log_sum + (a->max[i] - wanted);
    if (a->z_loss != 0.0f)
        loss += a->z_loss * (z * z);
    return a->max_z_loss != 0.0f ? loss + a->max_z_loss * (log_sum * log_sum) : loss;
}

int host_cross_entropy_finish(struct zinf_queue *q, const struct zinf_cross_entropy *args)
{
    int code = check_loss(args, false, "cross_entropy_finish");
    (void)q;
    if (code)
        return code;
    for (int64_t i = 0; i < args->rows; i++)
        args->loss[i] = args->targets[i] < 0 ? 0.0f : loss_of(args, i);
    return 0;
}

/* A row's gradient at logit j is probability * exp(logit - max) - (j is the target) target -
 * each - (j is the largest) largest. */
struct slopes {
    float probability, target, each, largest;
};

static struct slopes slopes_of(const struct zinf_cross_entropy *a, int64_t i)
{
    const float scale = a->row_scales ? a->scale * a->row_scales[i] : a->scale;
    struct slopes s = {scale, scale * (1.0f - a->smoothing), 0.0f, 0.0f};
    if (a->smoothing != 0.0f)
        s.each = scale * a->smoothing / (float)a->vocab;
    if (a->z_loss != 0.0f)
        s.probability *= 1.0f + 2.0f * a->z_loss * (logf(a->sum[i]) + a->max[i]);
    if (a->max_z_loss != 0.0f) {
        s.largest = scale * (2.0f * a->max_z_loss * logf(a->sum[i]));
        s.probability += s.largest;
    }
    s.probability /= a->sum[i];
    return s;
}

/* The column of the row's largest logit within the tile. Outside of [0, cols) the tile does not
 * have it. */
static int64_t largest_of(const struct zinf_cross_entropy *a, int64_t i)
{
    return a->max_z_loss != 0.0f ? (int64_t)a->max_at[i] - a->first : -1;
}

/* Subtracts the target's slope from column `target` and the largest logit's slope from column
 * `largest` where these are among the n columns, and `each` from all. */
static void subtract_wanted(const struct slopes *s, float *logits, int64_t target, int64_t largest,
                            size_t n)
{
    if (target >= 0 && target < (int64_t)n)
        logits[target] -= s->target;
    if (largest >= 0 && largest < (int64_t)n)
        logits[largest] -= s->largest;
    for (size_t c = 0; s->each != 0.0f && c < n; c++)
        logits[c] -= s->each;
}

/* Makes a row of logits its gradient where logits are capped. */
static void capped_gradient(const struct host_simd *simd, const struct zinf_cross_entropy *a,
                            int64_t i)
{
    float slope[HOST_CHUNK], *logits = a->logits + i * a->ld;
    const struct slopes s = slopes_of(a, i);
    int64_t target = (int64_t)a->targets[i] - a->first, largest = largest_of(a, i);
    for (int64_t c = 0; c < a->cols; c += HOST_CHUNK) {
        size_t n = a->cols - c < HOST_CHUNK ? (size_t)(a->cols - c) : HOST_CHUNK;
        simd->softcap(logits + c, slope, logits + c, a->softcap, n);
        simd->scale_exp(logits + c, a->max[i], s.probability, n);
        subtract_wanted(&s, logits + c, target - c, largest - c, n);
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
    const struct slopes s = slopes_of(a, i);
    simd->scale_exp(logits, a->max[i], s.probability, (size_t)a->cols);
    subtract_wanted(&s, logits, target, largest_of(a, i), (size_t)a->cols);
}

/* Converts a row of gradients to its type in place, a chunk at a time: a chunk that is written
 * takes the place of what has been read. */
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
