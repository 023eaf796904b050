/*
 * lr: the schedules as functions of the number of applied updates, without state. In
 * DeepSpeed's terms t = last_batch_iteration is -1 before the first update, so t = n_applied - 1;
 * the lr of an update is the one set after the update before it.
 */
#include "train/step/scales.h"

#include <math.h>

static double warmup_fraction(const struct zinf_config_scheduler *s, double t, double steps)
{
    return s->warmup_log ? log(t + 1) / log(steps) : t / steps;
}

static double warmup_steps(const struct zinf_config_scheduler *s)
{
    return s->warmup_num_steps > 2 ? (double)s->warmup_num_steps : 2.0;
}

static double warmup_lr(const struct zinf_config_scheduler *s, double t)
{
    double steps = warmup_steps(s);
    if (t < 0)
        return s->warmup_min_lr;
    if (t < steps)
        return s->warmup_min_lr +
               (s->warmup_max_lr - s->warmup_min_lr) * warmup_fraction(s, t, steps);
    if (s->kind == ZINF_SCHEDULER_WARMUP_LR)
        return s->warmup_max_lr;
    double total = (double)s->total_num_steps;
    double left = fmax(0, (total - t) / fmax(1, total - steps));
    return s->warmup_min_lr + (s->warmup_max_lr - s->warmup_min_lr) * left;
}

static double cosine_lr(const struct zinf_config_scheduler *s, double base_lr, double t)
{
    double steps = warmup_steps(s), total = (double)s->total_num_steps;
    if (t < 0)
        return 0;
    if (t < steps)
        return base_lr *
               (s->warmup_min_ratio + (1 - s->warmup_min_ratio) * warmup_fraction(s, t, steps));
    double progress = fmin(1, (t - steps + 1) / fmax(1, total - steps));
    double ratio = s->cos_min_ratio + (1 - s->cos_min_ratio) * (1 + cos(M_PI * progress)) / 2;
    return base_lr * fmax(0, ratio);
}

static double range_lr(const struct zinf_config_scheduler *s, double t)
{
    if (t < 0)
        return s->range_min_lr;
    double interval = (t + 1) / (double)s->range_step_size;
    if (s->range_staircase)
        interval = floor(interval);
    return s->range_min_lr * (1 + s->range_step_rate * interval);
}

/* Hugging Face's get_linear_schedule_with_warmup, get_cosine_ and get_constant_ (transformers,
 * optimization.py), where the update after n applied ones has the rate of step n. */
static double trainer_lr(const struct zinf_config_scheduler *s, double base_lr, double n)
{
    double warmup = (double)s->warmup_num_steps, total = (double)s->total_num_steps;
    double progress = (n - warmup) / fmax(1, total - warmup);
    if (n < warmup)
        return base_lr * n / warmup;
    if (s->kind == ZINF_SCHEDULER_CONSTANT_WITH_WARMUP)
        return base_lr;
    if (s->kind == ZINF_SCHEDULER_LINEAR)
        return base_lr * fmax(0, 1 - progress);
    return base_lr * (1 + cos(M_PI * fmin(1, progress))) / 2;
}

/* Place in the triangle: 0 at both ends, 1 at the top. */
static double cycle_scale(const struct zinf_config_scheduler *s, double t)
{
    double first = (double)s->cycle_first_step_size, second = (double)s->cycle_second_step_size;
    double total = first + second, top = first / total;
    double cycles = (t + 1) / total, x = cycles - floor(cycles);
    bool rising = x <= top;
    double scale = rising ? x / top : (1 - x) / (1 - top);
    double stairs = (double)(rising ? s->cycle_first_stair_count : s->cycle_second_stair_count);
    return stairs > 0 ? floor(scale * stairs) / stairs : scale;
}

static struct zinf_lr one_cycle(const struct zinf_config_scheduler *s, double t)
{
    struct zinf_lr out = {s->cycle_min_lr, -1, -1};
    double total = (double)(s->cycle_first_step_size + s->cycle_second_step_size);
    double momentum = s->cycle_max_mom;
    if (t >= 0 && t < total) {
        double scale = cycle_scale(s, t);
        out.lr = s->cycle_min_lr + (s->cycle_max_lr - s->cycle_min_lr) * scale;
        momentum = s->cycle_max_mom - (s->cycle_max_mom - s->cycle_min_mom) * scale;
    } else if (t >= total && s->decay_step_size > 0) {
        double decay = (t - total + 1) / (double)s->decay_step_size;
        out.lr = s->cycle_min_lr / (1 + s->decay_lr_rate * decay);
        momentum = s->cycle_max_mom * (1 + s->decay_mom_rate * decay);
    }
    if (s->cycle_momentum) {
        out.beta1 = momentum;
        out.beta2 = 0.99;
    }
    return out;
}

struct zinf_lr zinf_lr_at(const struct zinf_config_scheduler *s, double base_lr, uint64_t n_applied)
{
    double t = (double)n_applied - 1;
    struct zinf_lr out = {base_lr, -1, -1};
    switch (s->kind) {
    case ZINF_SCHEDULER_NONE:
        break;
    case ZINF_SCHEDULER_WARMUP_LR:
    case ZINF_SCHEDULER_WARMUP_DECAY_LR:
        out.lr = warmup_lr(s, t);
        break;
    case ZINF_SCHEDULER_WARMUP_COSINE_LR:
        out.lr = cosine_lr(s, base_lr, t);
        break;
    case ZINF_SCHEDULER_LR_RANGE_TEST:
        out.lr = range_lr(s, t);
        break;
    case ZINF_SCHEDULER_ONE_CYCLE:
        out = one_cycle(s, t);
        break;
    case ZINF_SCHEDULER_LINEAR:
    case ZINF_SCHEDULER_COSINE:
    case ZINF_SCHEDULER_CONSTANT_WITH_WARMUP:
        out.lr = trainer_lr(s, base_lr, (double)n_applied);
        break;
    }
    return out;
}
