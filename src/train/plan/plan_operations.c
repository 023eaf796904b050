/*
 * plan_operations: the memory of a step's operations. A step of many chunks or micro-batches has so
 * many that they count beside what they work on. Their number is known once a plan is made: such a
 * plan is made a second time with a line for them.
 */
#include "train/plan/lines.h"
#include "train/step/step.h"

/* Stages times micro-batches. Below that operations take a few MB, less than the ledger's
 * rounding, except those of chunks, which look at the chunks before them. */
#define FEW_VISITS 256
/* Of all RAM: where programs that may exist beside each other take more, they may not. */
#define SHARE 32

static bool has_many(const struct setup *s)
{
    return s->n_chunks > 1 || (uint64_t)s->n_micro * s->graph->n_stages >= FEW_VISITS;
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

/* Of gradients and updates, if all of them were there at once. */
static uint64_t step_bytes(const struct plan *p)
{
    const struct zinf_pieces *cut = p->gradients.pieces;
    return (cut ? cut->all_bytes : zinf_program_bytes(&p->gradients)) +
           zinf_program_bytes(&p->drain);
}

/* A program in pieces takes memory while it runs, and one runs at a time. */
static uint64_t rest_bytes(const struct zinf_program *program)
{
    return program->pieces ? 0 : zinf_program_bytes(program);
}

static uint64_t running_bytes(const struct zinf_program *program)
{
    return program->pieces ? zinf_program_bytes(program) + zinf_program_scheduling_bytes(program)
                           : 0;
}

/* Of programs that exist at once in any case while the last one is scheduled, and of running one.
 * Updates that come with the gradients are in their first piece. */
static uint64_t least_bytes(const struct plan *p)
{
    const struct zinf_program *all[] = {&p->gradients, &p->drain, &p->forward, &p->logits};
    const bool far = device_is_far(p->setup);
    uint64_t bytes = 0, running = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const uint64_t now = running_bytes(all[i]);
        bytes += rest_bytes(all[i]);
        running = running > now ? running : now;
    }
    for (int i = 0; i < 2; i++)
        bytes += all[i]->pieces ? 2 * zinf_program_bytes(&p->drain)
                                : zinf_program_scheduling_bytes(all[i]);
    return bytes + running +
           zinf_executor_bytes(zinf_program_most_ops(&p->gradients) + p->drain.n_ops, far);
}

/* What else the plan has of RAM. */
static uint64_t other_bytes(const struct plan *p)
{
    uint64_t bytes = zinf_ledger_total_bytes(p->ledger, ZINF_MEMORY_HOST);
    if (!device_is_far(p->setup))
        bytes += zinf_ledger_total_bytes(p->ledger, ZINF_MEMORY_DEVICE);
    return bytes;
}

/* Programs are chosen one by one where they would be a large part of RAM side by side, since the
 * plan cannot tell how many of them the rates will ask for. */
static bool goes_one_by_one(const struct plan *p)
{
    const bool may = !p->setup->in_place && p->setup->wanted != SCHEDULE_UPDATE_IN_BACKWARD;
    return may && n_joined(p->setup) * step_bytes(p) > other_bytes(p) / SHARE;
}

/* Where gradients come in pieces, others have no larger ones. */
static int count(struct plan *p, struct plan_operations *out)
{
    int code = has_backward(p->setup) ? program_gradients(p) : 0;
    const bool cut = p->gradients.pieces;
    if (!code && trains(p->setup))
        code = program_drain(p);
    if (!code && !cut)
        code = program_forward(p);
    if (!code && !cut)
        code = program_logits(p);
    out->one_by_one = goes_one_by_one(p);
    out->bytes = least_bytes(p);
    if (!cut && !out->one_by_one)
        out->bytes += n_joined(p->setup) * step_bytes(p);
    return code;
}

/* As if for an estimate: a store's extents are added once. */
static int count_first(const struct setup *setup, const struct variant *variant,
                       struct plan_operations *out)
{
    struct setup counted = *setup;
    struct plan p;
    counted.store = NULL;
    int code = plan_lay_out(&p, &counted, variant, out);
    if (code)
        return code;
    code = count(&p, out);
    plan_fini(&p);
    return code;
}

int plan_make(struct plan *out, const struct setup *setup, const struct variant *variant)
{
    struct plan_operations operations = {0};
    int code =
        has_many(setup) && !setup->compute.decoding ? count_first(setup, variant, &operations) : 0;
    return code ? code : plan_lay_out(out, setup, variant, &operations);
}
