/*
 * step: running a trainer's programs: one step of training, one loss, one row of logits. The norm
 * stands between gradients and update: clipping and overflow are decided there, exactly.
 */
#include "train/trainer.h"

#include <math.h>

static void set_tokens(struct zinf_trainer *t, const int32_t *inputs, const int32_t *targets,
                       uint64_t n)
{
    uint64_t all = (uint64_t)t->n_micro * t->rows;
    memcpy(t->h_ids, inputs, n * sizeof *inputs);
    memcpy(t->h_targets, targets, n * sizeof *targets);
    for (uint64_t i = n; i < all; i++) { /* rows that are not there: any id, ignored */
        t->h_ids[i] = 0;
        t->h_targets[i] = -1;
    }
}

static int check_tokens(const struct zinf_trainer *t, const int32_t *ids, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= t->spec->vocab)
            return zinf_fail(-EINVAL,
                             "token id %d is outside of the model's vocabulary of %lld "
                             "(vocab_size in config.json)",
                             ids[i], (long long)t->spec->vocab);
    return 0;
}

static uint64_t count_targets(const int32_t *targets, uint64_t n)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < n; i++)
        count += targets[i] >= 0;
    return count;
}

static double sum_losses(const struct zinf_trainer *t, uint64_t n)
{
    double sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += (double)t->h_losses[i];
    return sum;
}

/* Forward and backward of all micro-batches: *loss is the mean, *norm that of the true gradient. */
static int run_gradients(struct zinf_trainer *t, const int32_t *inputs, const int32_t *targets,
                         double *loss, double *norm)
{
    uint64_t n = (uint64_t)t->n_micro * t->rows;
    int code = check_tokens(t, inputs, n);
    if (code)
        return code;
    set_tokens(t, inputs, targets, n);
    uint64_t count = count_targets(targets, n);
    t->head.scale = (float)(t->loss_scale.scale / (double)(count ? count : 1));
    code = zinf_executor_run(t->executor, &t->gradients);
    if (code)
        return code;
    double sum = 0;
    for (uint32_t g = 0; g < t->layout.n_groups; g++)
        sum += t->norm_parts[g];
    *norm = sqrt(sum) / t->loss_scale.scale;
    *loss = sum_losses(t, n) / (double)(count ? count : 1);
    return 0;
}

static int run_update_program(struct zinf_trainer *t, double norm, double *lr)
{
    const struct zinf_config *c = t->config;
    struct zinf_lr now = zinf_lr_at(&c->scheduler, c->optimizer.lr, t->n_applied);
    double clip = 1;
    if (c->gradient_clipping > 0)
        clip = fmax(1, (norm + 1e-6) / c->gradient_clipping);
    t->grad_scale = (float)(1 / (clip * t->loss_scale.scale));
    t->hyper.lr = (float)now.lr;
    t->hyper.beta1 = now.beta1 >= 0 ? (float)now.beta1 : t->hyper.beta1;
    t->hyper.beta2 = now.beta2 >= 0 ? (float)now.beta2 : t->hyper.beta2;
    t->hyper.step = t->n_applied + 1;
    *lr = now.lr;
    int code = zinf_executor_run(t->executor, &t->update);
    if (!code)
        t->n_applied++;
    return code;
}

static void report_lanes(struct zinf_trainer *t, struct zinf_step_result *result)
{
    struct zinf_lane_times times;
    int busiest = ZINF_LANE_DEVICE;
    zinf_executor_take_times(t->executor, &times);
    for (int lane = 0; lane < ZINF_LANES; lane++) {
        result->lane_seconds[lane] = times.busy_seconds[lane];
        result->lane_bytes[lane] = times.bytes[lane];
        if (times.busy_seconds[lane] > times.busy_seconds[busiest])
            busiest = lane;
    }
    result->bottleneck = zinf_lane_name((enum zinf_lane)busiest);
}

/* Overflow in fp16 and bf16 is a skipped step; in fp32 it means the run has diverged. */
static int judge_overflow(struct zinf_trainer *t, bool overflow)
{
    if (overflow && t->dtype == ZINF_DTYPE_F32)
        return zinf_fail(-ERANGE,
                         "step %llu: the gradient is not finite: the training has "
                         "diverged; lower lr, or set gradient_clipping",
                         (unsigned long long)t->step);
    return zinf_loss_scale_update(&t->loss_scale, overflow);
}

int zinf_trainer_step(struct zinf_trainer *t, const int32_t *inputs, const int32_t *targets,
                      struct zinf_step_result *result)
{
    uint64_t begin = zinf_now_ns();
    double loss, norm,
        lr = zinf_lr_at(&t->config->scheduler, t->config->optimizer.lr, t->n_applied).lr;
    t->compute.train = true;
    t->compute.step = (uint32_t)t->step;
    t->step++;
    int code = run_gradients(t, inputs, targets, &loss, &norm);
    if (code)
        return code;
    bool overflow = !isfinite(norm);
    double scale = t->loss_scale.scale;
    if (!overflow)
        code = run_update_program(t, norm, &lr);
    if (!code)
        code = judge_overflow(t, overflow);
    if (code)
        return code;
    *result = (struct zinf_step_result){
        .step = t->step,
        .n_applied = t->n_applied,
        .loss = loss,
        .grad_norm = norm,
        .lr = lr,
        .loss_scale = scale,
        .skipped = overflow,
        .tokens = (uint64_t)t->n_micro * t->rows,
        .seconds = (double)(zinf_now_ns() - begin) * 1e-9,
    };
    report_lanes(t, result);
    return 0;
}

int zinf_trainer_gradients(struct zinf_trainer *t, const int32_t *inputs, const int32_t *targets,
                           double *loss, double *grad_norm)
{
    t->compute.train = false;
    return run_gradients(t, inputs, targets, loss, grad_norm);
}

int zinf_trainer_loss(struct zinf_trainer *t, const int32_t *inputs, const int32_t *targets,
                      int64_t n_windows, double *sum, uint64_t *count)
{
    uint64_t n = (uint64_t)(n_windows * t->seq);
    if (n_windows < 1 || n_windows > t->batch)
        return zinf_fail(-EINVAL, "%lld windows at once: between 1 and %lld are possible",
                         (long long)n_windows, (long long)t->batch);
    int code = check_tokens(t, inputs, n);
    if (code)
        return code;
    set_tokens(t, inputs, targets, n);
    t->compute.train = false;
    code = zinf_executor_run(t->executor, &t->forward);
    *sum = sum_losses(t, n);
    *count = count_targets(targets, n);
    return code;
}

int zinf_trainer_logits(struct zinf_trainer *t, const int32_t *ids, int64_t n, float *logits)
{
    if (n < 1 || n > t->seq)
        return zinf_fail(-EINVAL, "%lld tokens: between 1 and %lld are possible", (long long)n,
                         (long long)t->seq);
    int code = check_tokens(t, ids, (uint64_t)n);
    if (code)
        return code;
    set_tokens(t, ids, ids, (uint64_t)n);
    struct zinf_compute whole = t->compute;
    t->compute.train = false;
    t->compute.batch = 1;
    t->compute.seq = n;
    t->logits_row = n - 1;
    code = zinf_executor_run(t->executor, &t->logits);
    t->compute = whole;
    memcpy(logits, t->h_logits, (uint64_t)t->spec->vocab * sizeof *logits);
    return code;
}
