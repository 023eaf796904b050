/*
 * schedules: which programs a step is made of, in which order their lanes run, and what they are
 * expected to take. The first step runs one operation at a time and is measured; then the
 * schedule is chosen and its order found by simulation with those rates.
 */
#include "train/step/step.h"

#define DEFER_STEPS 8 /* how finely it is tried how many blocks should wait */

static int build(struct plan *p, int (*emit)(struct plan *), struct zinf_program *program,
                 enum zinf_order order)
{
    struct zinf_machine machine = plan_machine(p);
    int code = emit(p);
    return code ? code : zinf_program_schedule(program, order, &machine);
}

/* Gradients, then updates, each program alone. */
static int build_apart(struct plan *p, enum zinf_order order)
{
    int code = 0;
    if (has_backward(p->setup))
        code = build(p, program_gradients, &p->gradients, order);
    if (!code && trains(p->setup))
        code = build(p, program_drain, &p->drain, order);
    return code;
}

int plan_first_programs(struct plan *p)
{
    static const struct zinf_speeds unknown;
    plan_rates_of(p, &unknown, &p->rates);
    int code = build_apart(p, trains(p->setup) ? ZINF_ORDER_SERIAL : ZINF_ORDER_DEADLINE);
    if (!code)
        code = build(p, program_forward, &p->forward, ZINF_ORDER_DEADLINE);
    return code ? code : build(p, program_logits, &p->logits, ZINF_ORDER_DEADLINE);
}

int plan_step_programs(const struct plan *p, const struct zinf_program *programs[2])
{
    programs[0] = &p->gradients;
    programs[1] = &p->drain;
    if (p->schedule < SCHEDULE_UPDATE_IN_FORWARD)
        return 2;
    programs[0] = p->schedule == SCHEDULE_UPDATE_IN_FORWARD ? &p->wait : &p->speculate;
    return 1;
}

int plan_predict(const struct plan *p, const struct zinf_program *const *programs, int n,
                 double *op_seconds, struct zinf_prediction *sum)
{
    struct zinf_machine machine = plan_machine(p);
    int code = 0;
    memset(sum, 0, sizeof *sum);
    for (int i = 0; !code && i < n; i++) {
        struct zinf_predict_options options = {.machine = &machine, .op_seconds = op_seconds};
        struct zinf_prediction one;
        code = zinf_program_predict(programs[i], &options, &one);
        sum->seconds += one.seconds;
        sum->cpu_seconds += one.cpu_seconds;
        sum->drive_seconds += one.drive_seconds;
        for (int lane = 0; lane < ZINF_LANES; lane++) {
            sum->busy_seconds[lane] += one.busy_seconds[lane];
            sum->work_seconds[lane] += one.work_seconds[lane];
            sum->bytes[lane] += one.bytes[lane];
        }
        if (op_seconds)
            op_seconds += programs[i]->n_ops;
    }
    return code;
}

/* Adds to *seconds. In a steady state every deferred unit is pending: nothing is left out. */
static int predict(struct plan *p, const struct zinf_program *program, double *seconds)
{
    struct zinf_prediction sum;
    int code = plan_predict(p, &program, 1, NULL, &sum);
    *seconds += sum.seconds;
    return code;
}

static bool can_speculate(const struct plan *p)
{
    for (uint32_t u = 0; u < p->setup->n_units; u++)
        if (unit_speculates(p, u))
            return true;
    return false;
}

/* The last n blocks whose kept gradients are in RAM wait for the next forward. */
static uint32_t defer(struct plan *p, uint32_t n)
{
    uint32_t deferred = 0;
    for (uint32_t u = 0; u < p->setup->n_units; u++)
        p->deferred[u] = !unit_speculates(p, u);
    for (uint32_t l = p->setup->walk.n_layers; l-- > 0 && deferred < n;) {
        uint32_t unit = p->setup->walk.layers[l];
        if (!unit_trains(p->setup, unit) || p->homes[unit].grad == ZINF_TIER_DRIVE)
            continue;
        p->deferred[unit] = 1;
        deferred++;
    }
    return deferred;
}

/* Tries how many blocks should wait; leaves the best program built. */
static int build_speculation(struct plan *p, double *seconds)
{
    uint32_t best = 0, most = defer(p, p->setup->walk.n_layers), tried = UINT32_MAX;
    double least = 0;
    int code = 0;
    for (int part = 0; !code && part <= DEFER_STEPS; part++) {
        uint32_t n = most * (uint32_t)part / DEFER_STEPS;
        double now = 0;
        if (n == tried)
            continue;
        tried = n;
        defer(p, n);
        code = build(p, program_speculate, &p->speculate, ZINF_ORDER_DEADLINE);
        if (!code)
            code = predict(p, &p->speculate, &now);
        if (part == 0 || now < least * 0.99) {
            least = now;
            best = n;
        }
    }
    if (code)
        return code;
    *seconds = least;
    defer(p, best);
    return build(p, program_speculate, &p->speculate, ZINF_ORDER_DEADLINE);
}

int plan_schedules(struct plan *p)
{
    enum schedule wanted = p->setup->wanted;
    double apart = 0, wait = 0, speculate = 0;
    enum zinf_order order = wanted == SCHEDULE_SERIAL ? ZINF_ORDER_SERIAL : ZINF_ORDER_DEADLINE;
    int code = build_apart(p, order);
    if (!code)
        code = predict(p, &p->gradients, &apart);
    if (!code)
        code = predict(p, &p->drain, &apart);
    p->schedule = wanted == SCHEDULE_AUTO ? SCHEDULE_PREFETCH : wanted;
    p->predicted_seconds = apart;
    if (!code && (wanted == SCHEDULE_AUTO || wanted >= SCHEDULE_UPDATE_IN_FORWARD)) {
        code = build(p, program_wait, &p->wait, ZINF_ORDER_DEADLINE);
        if (!code)
            code = predict(p, &p->wait, &wait);
        if (wanted == SCHEDULE_UPDATE_IN_FORWARD || wait < 0.99 * apart) {
            p->predicted_seconds = wait;
            p->schedule = SCHEDULE_UPDATE_IN_FORWARD;
        }
    }
    bool possible = can_speculate(p);
    if (!code && possible && (wanted == SCHEDULE_AUTO || wanted == SCHEDULE_UPDATE_IN_BACKWARD)) {
        code = build_speculation(p, &speculate);
        if (wanted == SCHEDULE_UPDATE_IN_BACKWARD || speculate < 0.99 * p->predicted_seconds) {
            p->predicted_seconds = speculate;
            p->schedule = SCHEDULE_UPDATE_IN_BACKWARD;
        }
    } else if (wanted == SCHEDULE_UPDATE_IN_BACKWARD && !possible) {
        p->schedule = SCHEDULE_UPDATE_IN_FORWARD;
        p->predicted_seconds = wait;
    }
    p->predicted_rest = wait;
    p->planned_seconds = p->predicted_seconds;
    return code;
}
