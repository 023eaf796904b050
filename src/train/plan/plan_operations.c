/*
 * plan_operations: the memory of a step's operations. A step of many chunks or micro-batches has so
 * many that they count beside what they work on. Their number is known once a plan is made: such a
 * plan is made a second time with a line for them.
 */
#include "train/plan/lines.h"
#include "train/step/step.h"

/* Stages times micro-batches. Below that operations take a few MB, less than the ledger's
 * rounding. */
#define FEW_VISITS 256

static bool has_many(const struct setup *s)
{
    return (uint64_t)s->n_micro * s->graph->n_stages >= FEW_VISITS;
}

/* Programs of gradients and updates at once (schedules.c): with updates in the forward, and in the
 * backward, the best so far and the one that is tried. */
static uint64_t n_joined(const struct setup *s)
{
    const bool open = s->wanted == SCHEDULE_AUTO;
    if (!trains(s))
        return 0;
    if (s->in_place)
        return 1;
    return (open || s->wanted >= SCHEDULE_UPDATE_IN_FORWARD) +
           (open || s->wanted == SCHEDULE_UPDATE_IN_BACKWARD) * 2;
}

/* Of all programs that exist at once, while the last one is scheduled. */
static uint64_t program_bytes(const struct plan *p)
{
    const uint64_t step = zinf_program_bytes(&p->gradients) + zinf_program_bytes(&p->drain);
    return step * (1 + n_joined(p->setup)) + zinf_program_bytes(&p->forward) +
           zinf_program_scheduling_bytes(&p->gradients) + zinf_program_scheduling_bytes(&p->drain);
}

static int count(struct plan *p, uint64_t *bytes)
{
    int code = has_backward(p->setup) ? program_gradients(p) : 0;
    if (!code && trains(p->setup))
        code = program_drain(p);
    if (!code)
        code = program_forward(p);
    *bytes = program_bytes(p);
    return code;
}

/* As if for an estimate: a store's extents are added once. */
static int count_first(const struct setup *setup, const struct variant *variant, uint64_t *bytes)
{
    struct setup counted = *setup;
    struct plan p;
    counted.store = NULL;
    int code = plan_lay_out(&p, &counted, variant, 0);
    if (code)
        return code;
    code = count(&p, bytes);
    plan_fini(&p);
    return code;
}

int plan_make(struct plan *out, const struct setup *setup, const struct variant *variant)
{
    uint64_t bytes = 0;
    int code =
        has_many(setup) && !setup->compute.decoding ? count_first(setup, variant, &bytes) : 0;
    return code ? code : plan_lay_out(out, setup, variant, bytes);
}
