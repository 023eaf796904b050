/*
 * emit_parts: backward of sequences whose chunks are dealt out in parts to ranks along CONTEXT.
 * For sums a part is like a micro-batch: its chunks are added in the order of backward, and parts
 * in the tree over all parts, of which a rank's are a subtree. The gradient of carried data is
 * complete only when all parts have looked at the data. So backward of a sample has two phases:
 * first all chunks without their own keys and values; then, with the summed gradients of these,
 * back through what made them.
 */
#include "train/step/emit_call.h"

/* Of a part, whose calls add to its sum by operations of their own; its first call, which may go on
 * with a sum. */
static const struct nth apart = {1, 0}, goes_on = {0, 0};

/* Adds a call's gradients to the sum of a part, or begins the sum with them. */
static void join_part(struct emitter *e, const struct call *c, uint32_t part)
{
    for (uint32_t i = 0; i < call_n_units(c); i++) {
        struct contribution *of = &e->contributions[i];
        if (!unit_trains(e->p->setup, call_unit(c, i)) || of->n_sums == part + 1)
            continue;
        call_join(e, c, i, part, of->n_sums - 1);
        of->n_sums--;
    }
}

/* Of all parts, also if the last one had no row in its last chunk. */
static void join_parts(struct emitter *e, const struct call *last)
{
    struct call all = *last, *c = &all;
    const uint32_t parts = (uint32_t)setup_own_parts(e->p->setup);
    all.op.chunk = 0;
    for (uint32_t i = 0; i < call_n_units(c); i++) {
        if (!unit_trains(e->p->setup, call_unit(c, i)))
            continue;
        for (uint32_t step = 1; step < parts; step *= 2)
            for (uint32_t k = 0; k + step < parts; k += 2 * step)
                call_join(e, c, i, k, k + step);
        e->contributions[i].n_sums = 1;
    }
}

/* From the last of the sequence's chunks on, each with the gradient at what it hands over. A part's
 * chunks come in the order that they have without that, and parts begin in theirs. */
static struct call visit_in_order(struct emitter *e, uint32_t s, uint32_t v, int64_t first)
{
    const struct setup *setup = e->p->setup;
    const int64_t each = setup->own_chunks / setup_own_parts(setup);
    struct nth nth = goes_on;
    struct call c = {0};
    for (int rear = 2; rear-- > 0;) {
        emit_hand(e, s, first, (struct handing){.rear = rear, .takes = true, .gradient = true});
        for (int64_t i = setup->own_chunks / 2; i-- > 0;) {
            const int64_t own = setup_ordered(setup, rear, i);
            c = emit_backward_visit(e, s, v, first + own, nth);
            join_part(e, &c, (uint32_t)(own / each));
            nth = apart;
        }
        emit_hand(e, s, first, (struct handing){.rear = rear, .gradient = true});
    }
    return c;
}

/* One visit of a sample's chunks, from micro-batch `first` on. The first call goes on with what
 * visits before it have made of units that they share. */
static struct call emit_sample(struct emitter *e, uint32_t s, uint32_t v, int64_t first)
{
    const uint32_t parts = (uint32_t)setup_own_parts(e->p->setup);
    const int64_t each = e->p->setup->own_chunks / parts;
    const bool carries = e->walk->stages[s].carried[1], in_order = emit_in_order(e, s);
    struct call c = {0};
    if (carries)
        emit_clear_keys(e, s, first);
    if (carries || in_order)
        emit_carry(e, s, first);
    if (in_order)
        c = visit_in_order(e, s, v, first);
    for (uint32_t part = 0; !in_order && part < parts; part++)
        for (int64_t i = each; i-- > 0;) {
            const struct nth nth = part || i + 1 < each ? apart : goes_on;
            c = emit_backward_visit(e, s, v, first + part * each + i, nth);
            join_part(e, &c, part);
        }
    if (carries)
        emit_sum_keys(e, s, first);
    for (uint32_t part = 0; carries && part < parts; part++)
        for (int64_t i = each; i-- > 0;) {
            c = emit_carry_back(e, s, first + part * each + i, apart);
            join_part(e, &c, part);
        }
    join_parts(e, &c);
    return c;
}

/* A sample is a turn: ranks add up its gradient before it is added to others', so that neither how
 * samples nor how parts are dealt to ranks shows. The visits of a pipeline are turns already. */
static void emit_turn(struct emitter *e, uint32_t s, uint32_t v, struct range micros,
                      int64_t sample)
{
    const int64_t own = e->p->setup->own_chunks;
    const bool last = v + 1 == zinf_stage_visits(&e->walk->graph->stages[s]);
    const struct call c = emit_sample(e, s, v, micros.first + sample * own);
    if (!e->crossing) {
        e->turn = sample;
        e->n_turns = (micros.end - micros.first) / own;
    }
    call_end(e, &c, last);
    e->turn = e->crossing ? e->turn : 0;
    e->n_turns = e->crossing ? e->n_turns : 1;
}

/* Whether the visits together make one contribution to a unit beside the sweep. */
static bool visits_share(const struct emitter *e, const struct zinf_stage *stage)
{
    bool share = false;
    for (uint32_t i = 0; stage->choice.n && i < stage->units.n; i++)
        share |= unit_trains(e->p->setup, stage->units.at[i]);
    return share;
}

/* A unit that is fetched for a visit serves all samples, unless the visits of a sample make a
 * contribution together. */
void emit_backward_parts(struct emitter *e, uint32_t s, struct range micros)
{
    const struct zinf_stage *stage = &e->walk->graph->stages[s];
    const int64_t n = (micros.end - micros.first) / e->p->setup->own_chunks;
    const uint32_t visits = zinf_stage_visits(stage);
    const bool share = visits_share(e, stage);
    for (int64_t sample = 0; share && sample < n; sample++)
        for (uint32_t v = 0; v < visits; v++)
            emit_turn(e, s, v, micros, sample);
    for (uint32_t v = 0; !share && v < visits; v++)
        for (int64_t sample = 0; sample < n; sample++)
            emit_turn(e, s, v, micros, sample);
}
