/*
 * emit_shared: gradients of units that several ranks of a pipeline have, such as a table that is
 * also the head. Each of these ranks has the unit, its state and its update. After all visits,
 * sums go from the last rank to the first, and each rank adds its own, in the order in which one
 * rank would add contributions. Then the first rank gives the result to the others, and all make
 * the same update.
 */
#include "train/step/emit.h"

/* An exchange in which all ranks of the pipeline take part, also those that neither give nor take.
 */
static void emit_round(struct emitter *e, const struct shared_unit *s, uint32_t round,
                       const struct carried *given, const struct carried *taken)
{
    struct uses uses = {0};
    struct zinf_operand at[2] = {{0}, {0}};
    if (given) {
        uses_read(&uses, given->at.resource);
        at[0] = given->at.at;
    }
    if (taken) {
        uses_write(&uses, taken->at.resource);
        at[1] = taken->at.at;
    }
    uses_write(&uses, e->wire);
    struct zinf_op op = {.lane = ZINF_LANE_NET,
                         .kind = OP_SHARE,
                         .axis = ZINF_PIPE,
                         .unit = (int32_t)s->unit,
                         .visit = (int32_t)round,
                         .at = at,
                         .n_at = 2,
                         .bytes =
                             all_units(e->p->setup)->units[s->unit].slice_elems * sizeof(float)};
    emit(e, &op, &uses);
}

/* Memory for the received sum. */
static struct carried new_carried(struct emitter *e)
{
    const zinf_buffer buffer = emit_buffer(e, e->host_grads);
    return (struct carried){{zinf_in(buffer, 0), buffer, true}, {GRAD_STAGING, ALONE}, false};
}

/* Adds this rank's own sums of each stage to the received one. */
static void add_own(struct emitter *e, uint32_t unit, struct turn end, struct carried *c)
{
    const uint32_t turns = e->walk->units[unit].turns;
    for (uint32_t turn = 0; turn < turns; turn++) {
        const bool ends = turn + 1 == turns;
        struct turn t = {.eager = end.eager, .goes_on = !ends || end.goes_on};
        t.last = ends && end.last;
        emit_grad_add(e, unit, emit_grad_base(e, unit, turn), t, c);
    }
}

/* What this rank brings together, as number `own` of those that have the unit. */
static void emit_unit(struct emitter *e, const struct shared_unit *s, uint32_t own)
{
    const uint32_t last = s->n - 1;
    const bool eager = emit_grad_is_eager(e, s->unit);
    struct carried c = {0}, sum;
    if (own == 0)
        c = emit_grad_sum(e, s->unit);
    for (uint32_t round = 0; round < last; round++) {
        if (own == round + 1)
            c = new_carried(e);
        emit_round(e, s, round, own == round ? &c : NULL, own == round + 1 ? &c : NULL);
        if (own == round + 1)
            add_own(e, s->unit,
                    (struct turn){.last = own == last, .eager = eager, .goes_on = own < last}, &c);
    }
    if (own < last)
        sum = new_carried(e);
    emit_round(e, s, last, own == last ? &c : NULL, own < last ? &sum : NULL);
    if (own < last) {
        c = sum;
        emit_grad_add(e, s->unit, 0, (struct turn){.first = true, .last = true, .eager = eager},
                      &c);
    }
    if (own <= last && eager)
        emit_update_eager(e, s->unit, c.end, &c.at);
}

void emit_shared(struct emitter *e)
{
    const struct setup *s = e->p->setup;
    for (uint32_t i = 0; i < s->n_shared; i++) {
        const struct shared_unit *shared = &s->shared[i];
        uint32_t own = 0;
        while (own < shared->n && shared->ranks[own] != pipe_axis(s)->rank)
            own++;
        if (own < shared->n) {
            emit_unit(e, shared, own);
            continue;
        }
        for (uint32_t round = 0; round < shared->n; round++)
            emit_round(e, shared, round, NULL, NULL);
    }
}
