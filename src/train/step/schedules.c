/*
 * schedules: which programs a step is made of, in which order their lanes run, and what they are
 * expected to take. The first step runs one operation at a time and is measured; then the
 * schedule is chosen and its order found by simulation with those rates.
 */
#include "train/trainer.h"

#define DEFER_STEPS 8 /* how finely it is tried how many blocks should wait */

const char *schedule_name(enum schedule schedule)
{
    static const char *const names[] = {"auto", "serial", "prefetch", "update-in-forward",
                                        "update-in-backward"};
    return names[schedule];
}

static int build(struct zinf_trainer *t, int (*emit)(struct zinf_trainer *),
                 struct zinf_program *program, enum zinf_order order)
{
    struct zinf_machine machine = trainer_machine(t);
    int code = emit(t);
    return code ? code : zinf_program_schedule(program, order, &machine);
}

/* Gradients, then updates, each program alone. */
static int build_apart(struct zinf_trainer *t, enum zinf_order order)
{
    int code = 0;
    if (has_backward(t))
        code = build(t, trainer_emit_gradients, &t->gradients, order);
    if (!code && trains(t))
        code = build(t, trainer_emit_drain, &t->drain, order);
    return code;
}

int trainer_build_programs(struct zinf_trainer *t)
{
    static const struct zinf_speeds unknown;
    trainer_rates_of(t, &unknown, &t->rates);
    int code = build_apart(t, trains(t) ? ZINF_ORDER_SERIAL : ZINF_ORDER_DEADLINE);
    if (!code)
        code = build(t, trainer_emit_forward, &t->forward, ZINF_ORDER_DEADLINE);
    return code ? code : build(t, trainer_emit_logits, &t->logits, ZINF_ORDER_DEADLINE);
}

/* Whether all updates that a step's program has are to be made. */
static bool is_steady(const struct zinf_trainer *t, bool rests)
{
    bool all = rests || t->schedule == SCHEDULE_UPDATE_IN_FORWARD;
    for (uint32_t u = 0; u < t->n_units; u++)
        if (!t->pending[u] && (all || t->deferred[u]))
            return false;
    return true;
}

int trainer_step_programs(const struct zinf_trainer *t, const struct zinf_program *programs[2])
{
    programs[0] = &t->gradients;
    programs[1] = &t->drain;
    if (t->schedule < SCHEDULE_UPDATE_IN_FORWARD)
        return 2;
    programs[0] = t->schedule == SCHEDULE_UPDATE_IN_FORWARD ? &t->wait : &t->speculate;
    return 1;
}

/* The same by what is pending, at the beginning of a step. */
double trainer_expected(struct zinf_trainer *t, bool rests)
{
    const struct zinf_program *programs[2] = {&t->wait};
    int n = rests ? 1 : trainer_step_programs(t, programs);
    struct zinf_machine machine = trainer_machine(t);
    struct zinf_predict_options options = {
        .machine = &machine, .skip = trainer_skip_op, .context = t};
    struct zinf_prediction p;
    if (!(t->predicted_seconds > 0))
        return 0;
    if (n == 2 || is_steady(t, rests))
        return rests ? t->predicted_rest : t->predicted_seconds;
    return zinf_program_predict(programs[0], &options, &p) ? 0 : p.seconds;
}

int trainer_predict(const struct zinf_trainer *t, const struct zinf_program *const *programs, int n,
                    double *op_seconds, struct zinf_prediction *sum)
{
    struct zinf_machine machine = trainer_machine(t);
    int code = 0;
    memset(sum, 0, sizeof *sum);
    for (int i = 0; !code && i < n; i++) {
        struct zinf_predict_options options = {.machine = &machine, .op_seconds = op_seconds};
        struct zinf_prediction p;
        code = zinf_program_predict(programs[i], &options, &p);
        sum->seconds += p.seconds;
        sum->cpu_seconds += p.cpu_seconds;
        sum->drive_seconds += p.drive_seconds;
        for (int lane = 0; lane < ZINF_LANES; lane++) {
            sum->busy_seconds[lane] += p.busy_seconds[lane];
            sum->work_seconds[lane] += p.work_seconds[lane];
            sum->bytes[lane] += p.bytes[lane];
        }
        if (op_seconds)
            op_seconds += programs[i]->n_ops;
    }
    return code;
}

/* Adds to *seconds. In a steady state every deferred unit is pending: nothing is left out. */
static int predict(struct zinf_trainer *t, const struct zinf_program *program, double *seconds)
{
    struct zinf_prediction p;
    int code = trainer_predict(t, &program, 1, NULL, &p);
    *seconds += p.seconds;
    return code;
}

static bool can_speculate(const struct zinf_trainer *t)
{
    for (uint32_t u = 0; u < t->n_units; u++)
        if (unit_speculates(t, u))
            return true;
    return false;
}

/* The last n blocks whose kept gradients are in RAM wait for the next forward. */
static uint32_t defer(struct zinf_trainer *t, uint32_t n)
{
    uint32_t deferred = 0;
    for (uint32_t u = 0; u < t->n_units; u++)
        t->deferred[u] = !unit_speculates(t, u);
    for (uint32_t l = t->n_layers; l-- > 0 && deferred < n;) {
        uint32_t unit = first_block(t) + l;
        if (t->homes[unit].grad == ZINF_TIER_DRIVE)
            continue;
        t->deferred[unit] = 1;
        deferred++;
    }
    return deferred;
}

/* Tries how many blocks should wait; leaves the best program built. */
static int build_speculation(struct zinf_trainer *t, double *seconds)
{
    uint32_t best = 0, most = defer(t, t->n_layers), tried = UINT32_MAX;
    double least = 0;
    int code = 0;
    for (int part = 0; !code && part <= DEFER_STEPS; part++) {
        uint32_t n = most * (uint32_t)part / DEFER_STEPS;
        double now = 0;
        if (n == tried)
            continue;
        tried = n;
        defer(t, n);
        code = build(t, trainer_emit_speculate, &t->speculate, ZINF_ORDER_DEADLINE);
        if (!code)
            code = predict(t, &t->speculate, &now);
        if (part == 0 || now < least * 0.99) {
            least = now;
            best = n;
        }
    }
    if (code)
        return code;
    *seconds = least;
    defer(t, best);
    return build(t, trainer_emit_speculate, &t->speculate, ZINF_ORDER_DEADLINE);
}

int trainer_replan(struct zinf_trainer *t)
{
    enum schedule wanted = t->wanted;
    double apart = 0, wait = 0, speculate = 0;
    enum zinf_order order = wanted == SCHEDULE_SERIAL ? ZINF_ORDER_SERIAL : ZINF_ORDER_DEADLINE;
    int code = build_apart(t, order);
    if (!code)
        code = predict(t, &t->gradients, &apart);
    if (!code)
        code = predict(t, &t->drain, &apart);
    t->schedule = wanted == SCHEDULE_AUTO ? SCHEDULE_PREFETCH : wanted;
    t->predicted_seconds = apart;
    if (!code && (wanted == SCHEDULE_AUTO || wanted >= SCHEDULE_UPDATE_IN_FORWARD)) {
        code = build(t, trainer_emit_wait, &t->wait, ZINF_ORDER_DEADLINE);
        if (!code)
            code = predict(t, &t->wait, &wait);
        if (wanted == SCHEDULE_UPDATE_IN_FORWARD || wait < 0.99 * apart) {
            t->predicted_seconds = wait;
            t->schedule = SCHEDULE_UPDATE_IN_FORWARD;
        }
    }
    bool possible = can_speculate(t);
    if (!code && possible && (wanted == SCHEDULE_AUTO || wanted == SCHEDULE_UPDATE_IN_BACKWARD)) {
        code = build_speculation(t, &speculate);
        if (wanted == SCHEDULE_UPDATE_IN_BACKWARD || speculate < 0.99 * t->predicted_seconds) {
            t->predicted_seconds = speculate;
            t->schedule = SCHEDULE_UPDATE_IN_BACKWARD;
        }
    } else if (wanted == SCHEDULE_UPDATE_IN_BACKWARD && !possible) {
        t->schedule = SCHEDULE_UPDATE_IN_FORWARD;
        t->predicted_seconds = wait;
    }
    t->predicted_rest = wait;
    t->planned_seconds = t->predicted_seconds;
    t->planned_step = t->step;
    return code;
}
