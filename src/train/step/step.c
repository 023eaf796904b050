/*
 * step: runs a trainer's programs: one step of training, or its gradients alone. Clipping and
 * overflow are decided exactly, by the norm of the whole gradient. An update waits for the norm,
 * or is made ahead of it in the other generation and counts only if the step neither clips nor
 * overflows.
 */
#include "train/rules/rules.h"
#include "train/trainer.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

/* Micro-batches of all ranks. The chunks of a sample count as one, whichever ranks share them. */
static double n_micros(const struct zinf_trainer *t)
{
    return (double)(t->setup.n_micro / t->setup.own_chunks) * setup_sharers(&t->setup);
}

/* Sets the step's batch and the scale of its loss's gradient. counted: the sum of what its rows
 * count. */
static int begin_step(struct zinf_trainer *t, const struct zinf_batch *batch, double *counted)
{
    const float *weights = t->setup.options.class_weights;
    int64_t samples = setup_samples(&t->setup);
    int code = trainer_fill(t);
    if (!code)
        code = trainer_set_lengths(t, batch);
    if (!code)
        code = trainer_set_batch(t, batch, samples, weights);
    if (code)
        return code;
    trainer_chunk_batch(t, batch, samples, true, weights);
    uint64_t count;
    code = trainer_count_targets(t, batch, samples, &count);
    if (!code)
        code = agree_count(t, &count);
    *counted = (double)(count ? count : 1);
    if (!code && weights)
        code = trainer_sum_weights(t, batch, samples, counted);
    if (!(*counted > 0))
        *counted = 1; /* all samples are of classes with weight 0 */
    memset(&t->sums, 0, sizeof t->sums);
    t->gradient_scale = (float)(t->loss_scale.scale / *counted);
    t->mean_scale = (float)(t->loss_scale.scale / n_micros(t));
    atomic_store(&t->partial, 0);
    atomic_store(&t->give_up, false);
    t->partial_limit = INFINITY;
    return code;
}

/* ---- the decision ---- */

/* The norm of the unscaled gradient, from the parts that the program left; the same on all ranks.
 */
static int grad_norm(struct zinf_trainer *t, double *norm)
{
    double sum = 0;
    int code = t->setup.exact ? agree_step(t) : 0;
    for (uint32_t g = 0; !t->setup.exact && g < t->setup.layout.n_groups; g++)
        sum += t->plan.norm_parts[g];
    *norm = sqrt(t->setup.exact ? t->sums.norm_squares : sum) / t->loss_scale.scale;
    return code;
}

static double mean_loss(const struct zinf_trainer *t, double counted)
{
    int64_t samples = setup_samples(&t->setup);
    if (t->setup.exact)
        return t->sums.loss / counted + t->sums.other_losses / n_micros(t);
    double sum = trainer_sum_loss(t, t->setup.graph->loss, samples);
    return sum / counted + trainer_other_losses(t, samples) / (double)t->setup.n_micro;
}

/* Scalars of the next update, for a gradient that is clipped by the factor `clip`. */
static struct update_scalars scalars_of(const struct zinf_trainer *t, double clip)
{
    const struct zinf_config *c = t->setup.config;
    struct zinf_lr now = zinf_lr_at(&c->scheduler, c->optimizer.lr, t->n_applied);
    struct update_scalars s = {.hyper = t->setup.hyper};
    s.grad_scale = (float)(1 / (clip * t->loss_scale.scale));
    s.hyper.lr = (float)now.lr;
    s.hyper.beta1 = now.beta1 >= 0 ? (float)now.beta1 : t->setup.hyper.beta1;
    s.hyper.beta2 = now.beta2 >= 0 ? (float)now.beta2 : t->setup.hyper.beta2;
    s.hyper.step = t->n_applied + 1;
    return s;
}

static double clip_of(const struct zinf_trainer *t, double norm)
{
    double limit = t->setup.config->gradient_clipping;
    return limit > 0 ? fmax(1, (norm + 1e-6) / limit) : 1;
}

static bool is_pending(const struct zinf_trainer *t, bool but_deferred)
{
    for (uint32_t u = 0; u < t->setup.n_units; u++)
        if (t->pending[u] && !(but_deferred && t->plan.deferred[u]))
            return true;
    return false;
}

/* Notes the programs of a step that ran everything that a usual step runs, with all pending
 * updates. */
static void note_ran(struct zinf_trainer *t, const struct zinf_program *first,
                     const struct zinf_program *second)
{
    t->n_ran = 0;
    t->ran[t->n_ran++] = first;
    if (second)
        t->ran[t->n_ran++] = second;
}

static bool all_pending(const struct zinf_trainer *t, bool but_eager)
{
    for (uint32_t u = 0; u < t->setup.n_units; u++)
        if (unit_trains(&t->setup, u) && !t->pending[u] && !(but_eager && !t->plan.deferred[u]))
            return false;
    return true;
}

int trainer_settle(struct zinf_trainer *t)
{
    int code = zinf_executor_check(t->executor);
    if (!code && trains(&t->setup) && is_pending(t, false))
        code = zinf_executor_run(t->executor, &t->plan.drain);
    return code ? code : durable_finish(t);
}

/* Which parts of the unit's gradient the operations have left to apply. */
static uint8_t pending_of(const struct zinf_trainer *t, uint32_t unit)
{
    if (!unit_trains(&t->setup, unit))
        return PENDING_NOTHING;
    return plan_keeps_chosen(&t->plan, unit) && !t->chosen[unit] ? PENDING_ZEROS : PENDING_GRADIENT;
}

/* Marks every unit's kept gradient to be applied with these scalars. */
static void leave_pending(struct zinf_trainer *t, struct update_scalars scalars)
{
    t->late = scalars;
    for (uint32_t u = 0; u < t->setup.n_units; u++)
        t->pending[u] = pending_of(t, u);
}

/* No speculation while at least half of the last steps would have failed it. */
static bool should_speculate(const struct zinf_trainer *t)
{
    int failed = 0, n = t->step < SPECULATION_MEMORY ? (int)t->step : SPECULATION_MEMORY;
    for (int i = 0; i < n; i++)
        failed += t->clipped[i];
    return t->setup.in_place ||
           (t->plan.schedule == SCHEDULE_UPDATE_IN_BACKWARD && 2 * failed < (n ? n : 1));
}

/* The sum of squares above which the step clips, or certainly overflows. */
static double speculation_limit(const struct zinf_trainer *t)
{
    double limit = t->setup.config->gradient_clipping * t->loss_scale.scale;
    return limit > 0 ? limit * limit : DBL_MAX;
}

/* A program in pieces, and the plan that makes it. */
struct made {
    const struct plan *plan;
    const struct zinf_program *program;
};

static int make_pieces(void *context, const struct zinf_taker *taker)
{
    const struct made *m = context;
    return program_pieces(m->plan, m->program, taker);
}

static int run(struct zinf_trainer *t, const struct zinf_program *program)
{
    if (!program->pieces)
        return zinf_executor_run(t->executor, program);
    struct made made = {&t->plan, program};
    const struct zinf_source source = {.make = make_pieces, .context = &made};
    return zinf_executor_run_pieces(t->executor, &source);
}

/* The device notices damaged packed data only while it uses them; the results must not count then.
 */
int trainer_run(struct zinf_trainer *t, const struct zinf_program *program)
{
    const uint32_t *marks = (const void *)host_at(&t->plan, t->plan.at.h_damage);
    trainer_chunk_begin(t);
    int code = run(t, program);
    if (!code)
        code = trainer_chunk_end(t);
    for (uint32_t g = 0; !code && plan_damage_bytes(&t->plan) && g < t->setup.layout.n_groups; g++)
        if (marks[g])
            code = rule_damaged(&(struct rule_thing){&t->setup, ZINF_PACKABLE_PARAM, g, false});
    return code;
}

/* Some of the step's updates are made and others are not. */
static int fail_in_place(const struct zinf_trainer *t)
{
    return zinf_fail(-ERANGE,
                     "step %llu: the gradient is not finite, and zinf.schedule "
                     "\"update-in-place\" cannot take its updates back: continue from the last "
                     "checkpoint, with a lower lr or another schedule",
                     (unsigned long long)t->step);
}

/* One program: the speculative updates, forward, backward. What it wrote counts if the step neither
 * clips nor overflows; otherwise the gradients are computed again and kept. */
static int run_speculating(struct zinf_trainer *t, double *norm)
{
    bool settles = is_pending(t, true), steady = !settles && all_pending(t, true);
    int code = settles ? trainer_settle(t) : 0;
    if (!code)
        code = copies_ready(t);
    if (code)
        return code;
    t->eager = scalars_of(t, 1);
    t->partial_limit = speculation_limit(t);
    code = trainer_run(t, &t->plan.speculate);
    if (!code)
        code = grad_norm(t, norm);
    if (code)
        return code;
    bool failed = atomic_load(&t->give_up) || !isfinite(*norm) || clip_of(t, *norm) != 1;
    if (failed && t->setup.in_place)
        return fail_in_place(t);
    if (!failed) {
        for (uint32_t u = 0; u < t->setup.n_units; u++)
            if (t->plan.deferred[u])
                t->pending[u] = pending_of(t, u);
            else if (!t->setup.in_place)
                *zinf_tiers_live(t->plan.tiers, u) ^= 1;
        memset(t->copied, COPY_SAME, t->setup.n_units);
        t->late = t->eager;
        if (steady)
            note_ran(t, &t->plan.speculate, NULL);
        return 0;
    }
    code = copies_take_back(t);
    if (code || !isfinite(*norm))
        return code;
    t->n_redone++;
    t->partial_limit = INFINITY;
    code = trainer_run(t, &t->plan.gradients);
    if (!code)
        leave_pending(t, scalars_of(t, clip_of(t, *norm)));
    return code;
}

static int run_waiting(struct zinf_trainer *t, double *norm)
{
    bool apart = t->plan.schedule < SCHEDULE_UPDATE_IN_FORWARD,
         steady = apart || all_pending(t, false);
    int code = apart ? trainer_settle(t) : 0; /* of another schedule */
    if (!code)
        code = trainer_run(t, apart ? &t->plan.gradients : &t->plan.wait);
    if (!code)
        code = grad_norm(t, norm);
    if (code)
        return code;
    if (!isfinite(*norm))
        return 0;
    leave_pending(t, scalars_of(t, clip_of(t, *norm)));
    if (steady)
        note_ran(t, apart ? &t->plan.gradients : &t->plan.wait, apart ? &t->plan.drain : NULL);
    return apart ? trainer_settle(t) : 0;
}

static void report_lanes(const struct zinf_lane_times *taken, struct zinf_step_result *result)
{
    struct zinf_lane_times times = *taken;
    int busiest = ZINF_LANE_DEVICE;
    for (int lane = 0; lane < ZINF_LANES; lane++) {
        result->lane_seconds[lane] = times.busy_seconds[lane];
        result->lane_bytes[lane] = times.bytes[lane];
        for (int other = 0; other < ZINF_LANES; other++)
            result->stall_seconds[lane][other] = times.stall_seconds[lane][other];
        if (times.busy_seconds[lane] > times.busy_seconds[busiest])
            busiest = lane;
    }
    result->bottleneck = zinf_lane_name((enum zinf_lane)busiest);
}

/* Logs the sums of the first step; all steps have as many. */
static void report_sums(struct zinf_trainer *t)
{
    if (!t->says_sums && t->sums_made.by_products + t->sums_made.by_kernels)
        zinf_log(ZINF_LOG_INFO,
                 "gradient sums of a step: %llu numbers added by products, %llu by kernels",
                 (unsigned long long)t->sums_made.by_products,
                 (unsigned long long)t->sums_made.by_kernels);
    t->says_sums = true;
}

static uint64_t pageable_copies(const struct zinf_trainer *t)
{
    return t->setup.device->ops->pageable_copies(t->setup.device);
}

/* A loss that is not finite before it is scaled will not be helped by a smaller scale; the steps
 * that are skipped meanwhile are for nothing. */
static const char fp16_remedy[] =
    "the loss is not finite before it is scaled: activations are beyond the largest number of "
    "fp16, "
    "65504, as in models that were trained in bf16; set bf16.enabled instead of fp16.enabled, or "
    "neither for fp32";

/* Weights do not change while steps are skipped. A scale that does not change either may meet one
 * batch that overflows, or two, but not so many in a row unless no batch can be learned any more.
 */
#define MAX_OVERFLOWS 16

static int judge_row(struct zinf_trainer *t, bool overflow)
{
    t->n_overflows = overflow ? t->n_overflows + 1 : 0;
    if (t->loss_scale.dynamic || t->n_overflows < MAX_OVERFLOWS)
        return 0;
    return zinf_fail(-ERANGE,
                     "step %llu: the gradient is not finite for the %dth step in a row: the "
                     "training has diverged; lower lr, or set gradient_clipping%s",
                     (unsigned long long)t->step, MAX_OVERFLOWS,
                     t->setup.dtype == ZINF_DTYPE_F16 ? ", or fp16.loss_scale to 0, which adapts it"
                                                      : "");
}

/* An overflow in fp16 and bf16 means a skipped step; in fp32 the run has diverged. */
static int judge_overflow(struct zinf_trainer *t, bool overflow, double loss)
{
    const bool forward = overflow && !isfinite(loss) && t->setup.dtype == ZINF_DTYPE_F16;
    if (overflow && t->setup.dtype == ZINF_DTYPE_F32)
        return zinf_fail(-ERANGE,
                         "step %llu: the gradient is not finite: the training has "
                         "diverged; lower lr, or set gradient_clipping",
                         (unsigned long long)t->step);
    if (forward)
        zinf_log_once(ZINF_LOG_WARN, "fp16 activations", "step %llu: %s",
                      (unsigned long long)t->step, fp16_remedy);
    int code = judge_row(t, overflow);
    if (code)
        return code;
    code = zinf_loss_scale_update(&t->loss_scale, overflow);
    return code && forward ? zinf_fail(code, "step %llu, at the smallest loss scale: %s",
                                       (unsigned long long)t->step, fp16_remedy)
                           : code;
}

/* Operations are measured; in the first step they run one at a time. */
static int run_step(struct zinf_trainer *t, double *norm, struct zinf_lane_times *times)
{
    zinf_executor_take_times(t->executor, times); /* drops the times of an evaluation */
    trainer_measure_begin(t);
    t->n_ran = 0;
    int code = should_speculate(t) ? run_speculating(t, norm) : run_waiting(t, norm);
    zinf_executor_take_times(t->executor, times);
    if (code)
        return code;
    if (t->setup.options.changes_schedule)
        t->setup.wanted =
            (enum schedule)(SCHEDULE_SERIAL + (int)(t->step * 3 % SCHEDULE_UPDATE_IN_BACKWARD));
    if (t->planned && !t->setup.options.changes_schedule)
        return trainer_calibrate(t, times);
    trainer_measure_end(t);
    t->planned = true;
    t->planned_step = t->step;
    code = agree_rates(t);
    if (!code && !t->setup.options.changes_schedule)
        code = agree_plan(t);
    if (code || !t->setup.options.changes_schedule)
        return code ? code : trainer_foresee(t);
    code = agree_schedule(t);
    if (!code && t->plan.schedule == SCHEDULE_UPDATE_IN_BACKWARD)
        code = plan_defer(&t->plan, (uint32_t)t->step % (t->setup.walk.n_layers + 1));
    return code ? code : agree_programs(t);
}

static void mark_step(struct zinf_trainer *t, uint64_t begin_ns)
{
    char name[32];
    snprintf(name, sizeof name, "step %llu", (unsigned long long)t->step);
    zinf_executor_mark(t->executor, name, begin_ns);
}

/* Length of a sample, whether it is in chunks or not. */
static int64_t seq_of_step(const struct zinf_trainer *t)
{
    return t->compute.chunk.whole ? t->compute.chunk.whole : t->compute.seq;
}

/* Rows of all ranks. */
static uint64_t rows_of_step(const struct zinf_trainer *t)
{
    return (uint64_t)(setup_samples(&t->setup) * seq_of_step(t)) * setup_sharers(&t->setup);
}

/* For embeddings: the step's embeddings are all made before their common loss. */
static int first_sweep(struct zinf_trainer *t)
{
    if (!t->setup.graph->embeddings)
        return 0;
    int code = trainer_settle(t);
    if (!code)
        code = trainer_run(t, &t->plan.sweep);
    return code ? code : trainer_pull(t);
}

/* Says why a schedule does not run that was asked for by name. */
static void say_rest(const struct zinf_trainer *t, bool rests)
{
    const struct setup *s = &t->setup;
    if (!rests || s->wanted != SCHEDULE_UPDATE_IN_BACKWARD || s->options.changes_schedule ||
        (s->mesh.all && zinf_net_place(s->mesh.all).rank))
        return;
    zinf_log_once(ZINF_LOG_INFO, "schedule rests",
                  "zinf.schedule is \"%s\", but step %llu runs \"%s\", with the same results: at "
                  "least half of the last steps were clipped (gradient_clipping %g) or overflowed, "
                  "so that early updates were taken back or would be",
                  schedule_name(s->wanted), (unsigned long long)t->step,
                  schedule_name(SCHEDULE_UPDATE_IN_FORWARD), s->config->gradient_clipping);
}

static int step(struct zinf_trainer *t, const struct zinf_batch *batch,
                struct zinf_step_result *result)
{
    uint64_t begin = zinf_now_ns(), pageable = pageable_copies(t);
    struct zinf_lane_times times;
    double norm = 0, counted, scale = t->loss_scale.scale;
    double lr =
        zinf_lr_at(&t->setup.config->scheduler, t->setup.config->optimizer.lr, t->n_applied).lr;
    t->compute.train = true;
    t->compute.step = (uint32_t)t->step;
    int code = begin_step(t, batch, &counted);
    if (code)
        return code;
    code = first_sweep(t);
    if (code)
        return code;
    t->step++;
    t->sums_made = (struct sums_made){0};
    bool rests = t->plan.schedule == SCHEDULE_UPDATE_IN_BACKWARD && !should_speculate(t);
    say_rest(t, rests);
    double expected = trainer_expected_seconds(t, rests);
    const double least = t->range[0], most = t->range[1];
    const char *schedule = schedule_name(rests ? SCHEDULE_UPDATE_IN_FORWARD : t->plan.schedule);
    code = run_step(t, &norm, &times);
    if (code) /* programs of the next step may be half made */
        return zinf_executor_end(t->executor, code);
    bool overflow = !isfinite(norm);
    t->clipped[t->step % SPECULATION_MEMORY] = overflow || clip_of(t, norm) != 1;
    t->n_applied += !overflow;
    const double loss = mean_loss(t, counted);
    code = judge_overflow(t, overflow, loss);
    if (!code)
        code = agree_rewards(t);
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
        .tokens = batch->tokens ? batch->tokens : rows_of_step(t),
        .seq_len = seq_of_step(t),
        .rewards = t->sums.rewards,
        .seconds = (double)(zinf_now_ns() - begin) * 1e-9,
        .predicted_seconds = expected,
        .predicted_range = {expected * least, expected * most},
        .schedule = schedule,
        .n_redone = t->n_redone,
        .pageable_copies =
            t->setup.device->needs_pinned ? (int64_t)(pageable_copies(t) - pageable) : -1,
    };
    report_lanes(&times, result);
    report_sums(t);
    mark_step(t, begin);
    return 0;
}

int zinf_trainer_step(struct zinf_trainer *t, const struct zinf_batch *batch,
                      struct zinf_step_result *result)
{
    int code = step(t, batch, result);
    if (code && t->setup.mesh.all)
        zinf_net_tell(t->setup.mesh.all, zinf_error());
    return code;
}

int zinf_trainer_gradients(struct zinf_trainer *t, const struct zinf_batch *batch, double *loss,
                           double *norm)
{
    double counted;
    int code = trainer_settle(t);
    t->compute.train = false;
    if (!code)
        code = begin_step(t, batch, &counted);
    if (!code)
        code = first_sweep(t);
    if (!code)
        code = plan_needs_gradients(&t->plan);
    if (!code)
        code = trainer_run(t, &t->plan.gradients);
    if (!code)
        code = grad_norm(t, norm);
    if (!code)
        *loss = mean_loss(t, counted);
    return code;
}
