/*
 * schedules: chooses the programs of a step, the order of their lanes, and predicts the step. The
 * first step runs one operation at a time and is measured; then the schedule is chosen, and its
 * order found by simulation with the measured rates.
 */
#include "train/step/step.h"

#include <math.h>
#include <stdlib.h>

#define DEFER_STEPS 4 /* number of amounts of waiting blocks that are tried at first */
#define MANY_OPS                                                                                   \
    20000 /* operations of a program that takes long to order: amounts are not tried one by one */
#define CLEARLY 0.99 /* of the time of the best so far */
#define AT_ALL 0.999 /* the same, for choices without other costs */

static int schedule(const struct plan *p, struct zinf_program *program, enum zinf_order order)
{
    struct zinf_machine machine = plan_machine(p);
    return zinf_program_schedule(program, order, &machine);
}

static int build(struct plan *p, int (*emit)(struct plan *), struct zinf_program *program,
                 enum zinf_order order)
{
    int code = emit(p);
    return code ? code : schedule(p, program, order);
}

/* The gradients, then the updates, as programs of their own; they have no order yet. */
static int emit_apart(struct plan *p)
{
    int code = has_backward(p->setup) ? program_gradients(p) : 0;
    return !code && trains(p->setup) ? program_drain(p) : code;
}

static int schedule_apart(struct plan *p, enum zinf_order order)
{
    int code = has_backward(p->setup) ? schedule(p, &p->gradients, order) : 0;
    return !code && trains(p->setup) ? schedule(p, &p->drain, order) : code;
}

/* Where a layer's gradient waits for the next forward, the cheapest first: where it was summed,
 * without a transfer to the host; in memory; on the drive, which writes it and reads it again. */
enum waiting { WAITS_ON_DEVICE, WAITS_IN_MEMORY, WAITS_ON_DRIVE, WAITINGS };

static bool waits(const struct plan *p, uint32_t unit, enum waiting where)
{
    const bool once = p->setup->n_micro == 1;
    enum waiting there = sums_on(p, unit, ZINF_TIER_DRIVE)            ? WAITS_ON_DRIVE
                         : once && sums_on(p, unit, ZINF_TIER_DEVICE) ? WAITS_ON_DEVICE
                                                                      : WAITS_IN_MEMORY;
    return p->ways[unit].eager && p->homes[unit].keeps_grad && there == where;
}

static uint32_t count_waiting(const struct plan *p, enum waiting where)
{
    const struct walk *w = &p->setup->walk;
    uint32_t n = 0;
    for (uint32_t l = 0; l < w->n_layers; l++)
        n += waits(p, w->layers[l], where);
    return n;
}

/* Lets n layers, or as many as may, wait until the next forward. spread: over the step, if several
 * cost the same; else the last ones, which the forward reaches last. */
static uint32_t defer(struct plan *p, uint32_t n, bool spread)
{
    const struct walk *w = &p->setup->walk;
    uint32_t deferred = 0;
    for (uint32_t u = 0; u < p->setup->n_units; u++)
        p->deferred[u] = !p->ways[u].eager;
    for (int where = 0; where < WAITINGS; where++) {
        uint32_t all = count_waiting(p, where), from_end = 0;
        uint32_t wanted = n - deferred < all ? n - deferred : all;
        for (uint32_t l = w->n_layers; l-- > 0;)
            if (waits(p, w->layers[l], where) && ++from_end &&
                (spread ? plan_is_spread(from_end, wanted, all) : from_end <= wanted))
                p->deferred[w->layers[l]] = 1;
        deferred += wanted;
    }
    return deferred;
}

static int first_decodings(struct plan *p)
{
    int code = build(p, program_decode, &p->decode, ZINF_ORDER_DEADLINE);
    if (!code && p->setup->decoding.n_sources)
        code = build(p, program_decode_sources, &p->decode_sources, ZINF_ORDER_DEADLINE);
    return code;
}

int plan_first_programs(struct plan *p)
{
    static const struct zinf_speeds unknown;
    enum zinf_order order = trains(p->setup) ? ZINF_ORDER_SERIAL : ZINF_ORDER_DEADLINE;
    plan_rates_of(p, &unknown, &p->rates);
    int code = build(p, program_fill, &p->fill, ZINF_ORDER_DEADLINE);
    if (code || p->setup->compute.decoding)
        return code ? code : first_decodings(p);
    defer(p, 0, true);
    code = emit_apart(p);
    if (!code)
        code = schedule_apart(p, order);
    if (!code && p->setup->in_place)
        code = build(p, program_speculate, &p->speculate, order);
    if (!code)
        code = build(p, program_forward, &p->forward, ZINF_ORDER_DEADLINE);
    if (!code && has_backward(p->setup) && p->setup->graph->embeddings)
        code = build(p, program_sweep, &p->sweep, ZINF_ORDER_DEADLINE);
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

/* Adds to *seconds. In a steady state every deferred update is pending, so nothing is left out. */
static int predict(struct plan *p, const struct zinf_program *program, double *seconds)
{
    struct zinf_prediction sum;
    int code = plan_predict(p, &program, 1, &sum);
    *seconds += sum.seconds;
    return code;
}

static bool can_speculate(const struct plan *p)
{
    for (uint32_t u = 0; u < p->setup->n_units; u++)
        if (p->ways[u].eager)
            return true;
    return false;
}

/* ---- the choice: what cannot be shorter by its work alone is not ordered ---- */

static int emit_speculation(struct plan *p, uint32_t n_deferred, bool spread)
{
    defer(p, n_deferred, spread);
    return program_speculate(p);
}

int plan_defer(struct plan *p, uint32_t n)
{
    int code = emit_speculation(p, n, true);
    return code ? code : schedule(p, &p->speculate, ZINF_ORDER_DEADLINE);
}

static void swap(struct zinf_program *a, struct zinf_program *b)
{
    struct zinf_program c = *a;
    *a = *b;
    *b = c;
}

/* How many blocks wait, and which, while the best number is searched. */
struct deferral {
    uint32_t most, best;
    uint32_t free;     /* number of blocks that can wait without more work for the drive */
    uint32_t too_many; /* number of blocks that is too much work, as are all larger ones */
    bool spread, best_spread;
    double seconds;           /* of the best so far; 0: none */
    struct zinf_program kept; /* the program of the best */
    uint8_t *tried;           /* [2][most + 1] which numbers were tried, spread or not */
};

/* A waiting block adds transfers, so if a number of them is too much work, larger ones are, too.
 * With none the program exists already. */
static int try_deferral(struct plan *p, struct deferral *d, uint32_t n)
{
    double now = 0, share = n > d->free ? CLEARLY : AT_ALL;
    uint8_t *tried = d->tried + (d->spread ? 0 : d->most + 1);
    if (n > d->most || n >= d->too_many || tried[n])
        return 0;
    tried[n] = 1;
    int code = n ? emit_speculation(p, n, d->spread) : 0;
    if (!code && n && plan_least_seconds(p, &p->speculate, NULL) >= share * d->seconds) {
        d->too_many = n;
        return 0;
    }
    if (!code)
        code = schedule(p, &p->speculate, ZINF_ORDER_DEADLINE);
    if (!code)
        code = predict(p, &p->speculate, &now);
    if (!code && (n == 0 || now < share * d->seconds)) {
        d->seconds = now;
        d->best = n;
        d->best_spread = d->spread;
        swap(&d->kept, &p->speculate);
    }
    return code;
}

/* Tries numbers around the best, with smaller and smaller steps. */
static int try_around(struct plan *p, struct deferral *d, uint32_t step, uint32_t least)
{
    int code = try_deferral(p, d, d->best);
    while (!code && step > least) {
        uint32_t middle = d->best;
        step = (step + 1) / 2;
        if (middle >= step)
            code = try_deferral(p, d, middle - step);
        if (!code)
            code = try_deferral(p, d, middle + step);
    }
    return code;
}

/* A step gets shorter with every waiting block until the drive is busy in the forward, then longer.
 * So some numbers are tried, then those around the best of them, first spread and then not. */
static int try_deferrals(struct plan *p, struct deferral *d)
{
    bool many = zinf_program_n_ops(&p->speculate) > MANY_OPS;
    uint32_t rest = d->most - d->free;
    int code = try_deferral(p, d, 0);
    for (uint32_t part = 1; !code && part <= DEFER_STEPS; part++)
        code = try_deferral(p, d, d->free * part / DEFER_STEPS);
    for (uint32_t part = 1; !code && part <= DEFER_STEPS; part++)
        code = try_deferral(p, d, d->free + rest * part / DEFER_STEPS);
    uint32_t below = d->best <= d->free ? d->free : 0, above = d->best >= d->free ? rest : 0;
    uint32_t step = (below > above ? below : above) / DEFER_STEPS + 1;
    uint32_t least = many ? (step + 1) / 2 : 1;
    if (!code)
        code = try_around(p, d, step, least);
    d->spread = false;
    return code || !d->best ? code : try_around(p, d, many ? 0 : step, least);
}

/* Leaves the best program. */
static int order_speculation(struct plan *p, double *seconds)
{
    struct deferral d = {.spread = true, .too_many = UINT32_MAX};
    d.most = defer(p, p->setup->walk.n_layers, true);
    d.free = d.most - count_waiting(p, WAITS_ON_DRIVE);
    d.tried = calloc(2 * (d.most + 1), sizeof *d.tried);
    defer(p, 0, true);
    if (d.tried)
        d.tried[d.most + 1] = 1; /* none is the same, spread or not */
    int code = d.tried ? try_deferrals(p, &d) : zinf_fail(-ENOMEM, "no memory for a schedule");
    swap(&d.kept, &p->speculate);
    zinf_program_fini(&d.kept);
    free(d.tried);
    defer(p, d.best, d.best_spread);
    *seconds = d.seconds;
    return code;
}

/* The programs to choose from, and a lower bound for each. */
struct schedules {
    bool in_forward, in_backward;
    double least_in_forward; /* seconds; also of updates apart from the forward */
    double least_in_backward;
};

/* Updates in the backward need several programs at once. */
static bool goes_one_by_one(const struct plan *p)
{
    return p->one_by_one && p->setup->wanted != SCHEDULE_UPDATE_IN_BACKWARD;
}

/* Makes the programs without an order. A step with updates in its forward does the same as the two
 * programs apart. */
static int look(struct plan *p, struct schedules *s)
{
    enum schedule wanted = p->setup->wanted;
    zinf_program_fini(&p->wait);
    zinf_program_fini(&p->speculate);
    s->in_backward = !goes_one_by_one(p) &&
                     (wanted == SCHEDULE_AUTO || wanted == SCHEDULE_UPDATE_IN_BACKWARD) &&
                     can_speculate(p);
    s->in_forward = wanted == SCHEDULE_AUTO || wanted >= SCHEDULE_UPDATE_IN_FORWARD;
    int code = emit_apart(p);
    if (!code && s->in_backward)
        code = emit_speculation(p, 0, true);
    if (code)
        return code;
    s->least_in_forward = plan_least_seconds(p, &p->gradients, &p->drain);
    s->least_in_backward = s->in_backward ? plan_least_seconds(p, &p->speculate, NULL) : INFINITY;
    return 0;
}

static int choose_apart(struct plan *p)
{
    enum schedule wanted = p->setup->wanted;
    bool serial = wanted == SCHEDULE_SERIAL;
    double seconds = 0;
    int code = schedule_apart(p, serial ? ZINF_ORDER_SERIAL : ZINF_ORDER_DEADLINE);
    if (!code)
        code = predict(p, &p->gradients, &seconds);
    if (!code)
        code = predict(p, &p->drain, &seconds);
    p->schedule = wanted == SCHEDULE_AUTO ? SCHEDULE_PREFETCH : wanted;
    p->predicted_seconds = seconds;
    p->predicted_rest = 0;
    return code;
}

static int build_wait(struct plan *p)
{
    p->predicted_rest = 0;
    int code = build(p, program_wait, &p->wait, ZINF_ORDER_DEADLINE);
    return code ? code : predict(p, &p->wait, &p->predicted_rest);
}

static int choose_in_forward(struct plan *p, const struct schedules *s)
{
    bool open = p->setup->wanted == SCHEDULE_AUTO;
    if (!s->in_forward || (open && s->least_in_forward >= CLEARLY * p->predicted_seconds))
        return 0;
    int code = build_wait(p);
    if (open && p->predicted_rest >= CLEARLY * p->predicted_seconds)
        return code;
    p->schedule = SCHEDULE_UPDATE_IN_FORWARD;
    p->predicted_seconds = p->predicted_rest;
    return code;
}

int plan_needs_gradients(struct plan *p)
{
    return zinf_program_n_ops(&p->gradients)
               ? 0
               : build(p, program_gradients, &p->gradients, ZINF_ORDER_DEADLINE);
}

/* Keeps at most one program of the step at a time while choosing, whatever the rates are, so that
 * the plan knows the memory. Updates in the backward need several programs and are not tried. */
static int choose_one_by_one(struct plan *p)
{
    const bool open = p->setup->wanted == SCHEDULE_AUTO;
    const double least = plan_least_seconds(p, &p->gradients, &p->drain);
    int code = choose_apart(p);
    if (code || (open ? least >= CLEARLY * p->predicted_seconds
                      : p->setup->wanted != SCHEDULE_UPDATE_IN_FORWARD))
        return code;
    zinf_program_fini(&p->gradients);
    code = build_wait(p);
    if (!code && (!open || p->predicted_rest < CLEARLY * p->predicted_seconds)) {
        p->schedule = SCHEDULE_UPDATE_IN_FORWARD;
        p->predicted_seconds = p->predicted_rest;
        return 0;
    }
    zinf_program_fini(&p->wait);
    p->predicted_rest = 0;
    return code ? code : plan_needs_gradients(p);
}

/* Updates that are left out are made in the next forward, so its program is needed, too. */
static int choose_in_backward(struct plan *p, const struct schedules *s)
{
    bool open = p->setup->wanted == SCHEDULE_AUTO;
    double seconds = 0;
    if (!s->in_backward || (open && s->least_in_backward >= CLEARLY * p->predicted_seconds))
        return 0;
    int code = order_speculation(p, &seconds);
    if (code || (open && seconds >= CLEARLY * p->predicted_seconds))
        return code;
    p->schedule = SCHEDULE_UPDATE_IN_BACKWARD;
    p->predicted_seconds = seconds;
    return p->predicted_rest > 0 ? 0 : build_wait(p);
}

static int choose_in_place(struct plan *p)
{
    double seconds = 0;
    int code = build(p, program_speculate, &p->speculate, ZINF_ORDER_DEADLINE);
    if (!code)
        code = predict(p, &p->speculate, &seconds);
    p->schedule = SCHEDULE_UPDATE_IN_PLACE;
    p->predicted_seconds = p->planned_seconds = seconds;
    return code;
}

/* Drops programs that were tried and are not in the schedule. Ranks of a pipeline may have tried
 * different ones, and must have the same. */
static void drop_unchosen(struct plan *p)
{
    if (p->schedule < SCHEDULE_UPDATE_IN_FORWARD) {
        zinf_program_fini(&p->wait);
        p->predicted_rest = 0;
    }
    if (p->schedule < SCHEDULE_UPDATE_IN_BACKWARD)
        zinf_program_fini(&p->speculate);
}

int plan_schedules(struct plan *p, double limit)
{
    struct schedules s;
    defer(p, 0, true);
    p->order_rates = p->rates;
    if (p->setup->in_place)
        return choose_in_place(p);
    int code = look(p, &s);
    if (code)
        return code;
    if (s.least_in_forward >= limit && s.least_in_backward >= limit) {
        p->predicted_seconds = INFINITY;
        return 0;
    }
    if (goes_one_by_one(p)) {
        code = choose_one_by_one(p);
    } else {
        code = choose_apart(p);
        if (!code)
            code = choose_in_forward(p, &s);
        if (!code)
            code = choose_in_backward(p, &s);
    }
    drop_unchosen(p);
    p->planned_seconds = p->predicted_seconds;
    return code;
}
