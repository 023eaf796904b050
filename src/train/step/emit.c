/*
 * emit: the operations of a stage: forward, backward visit by visit, both at once for a sweep
 * whose units are all on the device, and one row of logits. Each is made for a range of
 * micro-batches, so that a fetched unit serves all of them.
 */
#include "train/step/emit_call.h"

/* ---- forward ---- */

/* Whether values that the stage's visits add to may leave their slots between two visits, since
 * there are fewer slots than a visit of all micro-batches uses. */
static bool values_wait(const struct emitter *e, const struct zinf_stage *stage,
                        struct range micros)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < stage->in.n; i++)
        n += e->walk->values[stage->in.at[i]].leaves;
    for (uint32_t i = 0; i < stage->out.n; i++)
        n += e->walk->values[stage->out.at[i]].leaves;
    return n * (uint64_t)(micros.end - micros.first) > e->xs.n;
}

/* A visit has made its part of the stage's values for a micro-batch of the range; last: for all. */
static void end_values(struct emitter *e, const struct call *c, struct range micros, bool last,
                       const struct zinf_operand *out)
{
    for (uint32_t i = 0; i < c->stage->out.n; i++) {
        uint32_t v = c->stage->out.at[i], chooser = e->walk->values[v].chooser;
        if (e->walk->graph->values[v].kind == ZINF_VALUE_ACTIVATION &&
            (last || values_wait(e, c->stage, micros)))
            emit_value_made(e, v, e->micro, out[i]);
        if (last && chooser != WALK_NONE)
            emit_choice_made(e, chooser, e->micro, micros, out[i]);
    }
}

/* The call for the reference model, before the other one, whose results may stay on the device. */
static void emit_reference(struct emitter *e, uint32_t s, uint32_t v, int64_t m)
{
    struct call c = emit_call_of(e, s, ZINF_PASS_FORWARD, v, m);
    c.op.flags = OP_REFERENCE;
    call_units(e, &c, false);
    for (uint32_t i = 0; i < c.stage->in.n; i++) {
        uint32_t value = c.stage->in.at[i];
        bool input = e->walk->graph->values[value].kind == ZINF_VALUE_INPUT;
        if (input)
            uses_read(&c.uses, e->inputs);
        call_operand(e, &c, input ? emit_input_at(e, value, m) : emit_reference_at(e, value, m));
    }
    for (uint32_t i = 0; i < c.stage->out.n; i++)
        call_operand(e, &c, emit_reference_at(e, c.stage->out.at[i], m));
    emit_compute(e, &c.op, &c.uses);
    if (c.info->ordinal != WALK_NONE)
        e->working = UINT64_MAX;
}

/* One micro-batch through one visit, in as many parts as it has groups of other chunks to look at.
 */
static void emit_forward_visit(struct emitter *e, uint32_t s, uint32_t v, int64_t m,
                               struct range micros)
{
    const struct groups groups = call_groups(e, s, m);
    const bool last = v + 1 == zinf_stage_visits(&e->walk->graph->stages[s]);
    for (uint32_t g = groups.first; g < groups.end; g++) {
        struct call c = emit_call_of(e, s, ZINF_PASS_FORWARD, v, m);
        call_set_group(&c, groups, g);
        call_units(e, &c, false);
        call_inputs(e, &c);
        call_outputs(e, &c, v == 0 && g == groups.first, false);
        const struct zinf_operand *out = e->operands + c.op.n_at - c.stage->out.n;
        struct zinf_operand cache = {0}, carried = {0};
        if (c.info->cache_bytes)
            call_operand(e, &c, cache = emit_cache(e, s, &c.uses));
        if (c.info->carried[0])
            carried = call_carried(e, &c, true);
        const struct zinf_operand kept = call_kept(e, &c, v == 0 && g == groups.first);
        emit_compute(e, &c.op, &c.uses);
        if (c.info->cache_bytes)
            emit_cache_made(e, s, cache);
        if (c.info->carried[0] && g + 1 == groups.end && !in_parts(e->p->setup))
            emit_carried_made(e, s, emit_chunk(e, m), carried);
        if (g + 1 == groups.end) {
            end_values(e, &c, micros, last, out);
            call_end_kept(e, &c, kept);
        }
        if (c.info->ordinal != WALK_NONE && !stage_is_kept(e->p, s))
            e->working = emit_number(e, s, m);
    }
    if (e->walk->stages[s].carried[0])
        e->carrying = emit_carried_number(e, s, m);
}

void emit_forward(struct emitter *e, uint32_t s, struct range micros)
{
    uint32_t visits = zinf_stage_visits(&e->walk->graph->stages[s]);
    bool referenced = e->walk->stages[s].referenced && !e->makes_rows;
    for (uint32_t v = 0; v < visits; v++)
        for (int64_t m = micros.first; m < micros.end; m++) {
            if (referenced)
                emit_reference(e, s, v, m);
            if (emit_keys_first(e, s) && m % e->p->setup->own_chunks == 0)
                emit_carry(e, s, m);
            emit_forward_visit(e, s, v, m, micros);
        }
}

/* ---- backward ---- */

/* Which of this rank's parts has the micro-batch's chunk. */
static uint32_t part_of(const struct emitter *e, int64_t micro)
{
    const struct setup *s = e->p->setup;
    return (uint32_t)(micro % s->own_chunks * setup_own_parts(s) / s->own_chunks);
}

/* Weights that backward does not read are not fetched for it. */
static void add_units_back(struct emitter *e, struct call *c)
{
    if (!c->stage->ops->backward_without_weights)
        call_units(e, c, false);
    for (uint32_t i = c->op.n_at; i < call_n_units(c); i++)
        call_operand(e, c, (struct zinf_operand){0});
}

/* ---- gradients of values that leave ---- */

/* Whether the stage's first visit makes a gradient that did not exist before: not one in the same
 * place as an output's, nor one that is added to. */
static bool is_fresh(const struct emitter *e, const struct call *c, uint32_t i)
{
    const struct walk_value *values = e->walk->values;
    bool fresh = !c->op.visit && !c->info->d_in_adds[i];
    for (uint32_t k = 0; k < c->stage->out.n; k++)
        fresh &= values[c->stage->out.at[k]].place != values[c->stage->in.at[i]].place;
    return fresh;
}

/* Whether the pass leaves a gradient of an input. */
static bool gets_gradient(const struct emitter *e, const struct call *c, uint32_t i)
{
    return emit_has_gradient(e, c->stage->in.at[i]) && call_reads(e, c, c->stage->in.at[i]);
}

/* Adds the last operands: gradients of inputs, then of outputs. Slots are taken in this order:
 * gradients of outputs first, since those of inputs may be made in the same slots; then what exists
 * already; since slots are used in turn, the others would wait for the call itself. begins: this is
 * the call's first part. */
static void add_gradients(struct emitter *e, struct call *c, bool begins)
{
    const struct zinf_ids *in = &c->stage->in, *out = &c->stage->out;
    const uint32_t first = c->op.n_at;
    for (uint32_t i = 0; i < in->n + out->n; i++)
        call_operand(e, c, (struct zinf_operand){0});
    for (uint32_t i = 0; i < out->n && !c->uses.overflow; i++)
        if (emit_has_gradient(e, out->at[i]))
            e->operands[first + in->n + i] =
                emit_gradient(e, out->at[i], e->micro, false, &c->uses);
    for (int fresh = 0; fresh < 2; fresh++)
        for (uint32_t i = 0; i < in->n && !c->uses.overflow; i++)
            if (gets_gradient(e, c, i) && (begins && is_fresh(e, c, i)) == fresh)
                e->operands[first + i] = emit_gradient(e, in->at[i], e->micro, fresh, &c->uses);
}

/* Stores gradients that the stage has made, and those that its next visit reads if the stage may
 * have changed them. */
static void end_gradients(struct emitter *e, const struct call *c)
{
    const struct zinf_ids *in = &c->stage->in, *out = &c->stage->out;
    const uint32_t behind =
        walk_n_carried(c->info, true) + plan_kept_leaves(e->p, (uint32_t)c->op.stage);
    const struct zinf_operand *at = e->operands + c->op.n_at - in->n - out->n - behind;
    for (uint32_t i = 0; i < in->n; i++)
        if (gets_gradient(e, c, i))
            emit_gradient_made(e, in->at[i], e->micro, at[i]);
    const bool again = (uint32_t)c->op.visit + 1 < zinf_stage_visits(c->stage);
    for (uint32_t i = 0; again && i < out->n; i++)
        if (emit_has_gradient(e, out->at[i]))
            emit_gradient_made(e, out->at[i], e->micro, at[in->n + i]);
}

/* The n-th micro-batch of a range in backward: samples in order, the chunks of each from the last
 * to the first. */
static int64_t backward_micro(const struct emitter *e, struct range micros, int64_t n)
{
    const int64_t chunks = e->p->setup->n_chunks;
    return micros.first + n / chunks * chunks + chunks - 1 - n % chunks;
}

/* Whether values that backward of the stage reads are computed again for it. */
static bool recomputes(const struct emitter *e, uint32_t s, int64_t micro)
{
    return e->walk->stages[s].ordinal != WALK_NONE && !stage_is_kept(e->p, s) &&
           e->working != emit_number(e, s, micro);
}

/* Makes the keys and values of one chunk; in one part more if it begins a group and gets a state
 * handed over. */
static void emit_carry_chunk(struct emitter *e, uint32_t s, int64_t m)
{
    const struct groups groups = {carried_needs(e->p, s, emit_chunk(e, m)),
                                  call_groups(e, s, m).end};
    struct zinf_operand kept = {0};
    for (uint32_t g = groups.first; g < groups.end; g++) {
        struct call c = emit_call_of(e, s, ZINF_PASS_CARRY, 0, m);
        call_set_group(&c, groups, g);
        call_units(e, &c, false);
        call_inputs(e, &c);
        const struct zinf_operand carried =
            in_parts(e->p->setup) ? call_carried_alone(e, &c, false) : call_carried(e, &c, true);
        call_kept_aside(e, &c, &kept);
        emit_compute(e, &c.op, &c.uses);
        if (g + 1 == groups.end)
            emit_carried_made(e, s, emit_chunk(e, m), carried);
    }
    e->working = UINT64_MAX;
}

/* In the order of the sequence: this rank's chunks from the front, then those from the end. The
 * programs of all ranks have the same operations in the same order. */
static void carry_in_order(struct emitter *e, uint32_t s, int64_t first)
{
    for (int back = 0; back < 2; back++) {
        emit_hand(e, s, first, (struct handing){.rear = back, .takes = true});
        for (int64_t i = 0; i < e->p->setup->own_chunks / 2; i++)
            emit_carry_chunk(e, s, first + setup_ordered(e->p->setup, back, i));
        emit_hand(e, s, first, (struct handing){.rear = back});
    }
}

void emit_carry(struct emitter *e, uint32_t s, int64_t first)
{
    const struct setup *setup = e->p->setup;
    const int64_t last = first + setup->own_chunks - 1;
    const bool holds = e->carrying == emit_carried_number(e, s, first);
    const bool kept = e->walk->stages[s].ordinal == WALK_NONE || stage_is_kept(e->p, s);
    const bool all = kept || carried_groups(e->p) > 1 || emit_keys_first(e, s);
    const bool handed = kept && !e->walk->stages[s].carried[1] && !in_parts(setup);
    if (!e->walk->stages[s].carried[0] || holds || handed)
        return;
    if (emit_in_order(e, s))
        carry_in_order(e, s, first);
    for (int64_t m = first; !emit_in_order(e, s) && m < last + all; m++)
        emit_carry_chunk(e, s, m);
    if (in_parts(setup) && (!emit_in_order(e, s) || e->walk->stages[s].carried[1]))
        emit_gather_keys(e, s, first);
    e->carrying = emit_carried_number(e, s, first);
}

/* Computes again what backward reads, in parts of its own. */
static void emit_recompute(struct emitter *e, uint32_t s, int64_t m)
{
    const struct groups groups = call_groups(e, s, m);
    for (uint32_t g = groups.first; g < groups.end; g++) {
        struct call c = emit_call_of(e, s, ZINF_PASS_FORWARD, 0, m);
        c.op.flags = OP_RECOMPUTES;
        call_set_group(&c, groups, g);
        call_units(e, &c, false);
        call_inputs(e, &c);
        call_carried(e, &c, true);
        emit_compute(e, &c.op, &c.uses);
    }
    e->working = emit_number(e, s, m);
}

/* Uses the places of the call's previous part. */
static void add_same_contributions(struct emitter *e, struct call *c)
{
    for (uint32_t i = 0; i < call_n_units(c); i++) {
        struct contribution *of = &e->contributions[i];
        struct zinf_operand at = {0};
        if (of->n_sums) {
            uses_write(&c->uses, of->sums[of->n_sums - 1].resource);
            at = of->sums[of->n_sums - 1].at;
        }
        call_operand(e, c, at);
    }
}

struct call emit_backward_visit(struct emitter *e, uint32_t s, uint32_t v, int64_t m,
                                struct nth nth)
{
    const struct groups groups = call_groups(e, s, m);
    const bool in_parts = e->walk->stages[s].carried[0] && carried_groups(e->p) > 1;
    const bool leave = plan_gradients_leave(e->p);
    struct call c = {0};
    if (in_parts && recomputes(e, s, m))
        emit_recompute(e, s, m);
    for (uint32_t g = groups.first; g < groups.end; g++) {
        struct zinf_operand d_carried = {0};
        c = emit_call_of(e, s, ZINF_PASS_BACKWARD, v, m);
        if (recomputes(e, s, m)) {
            c.op.flags = OP_RECOMPUTES;
            c.op.flops += c.info->size[ZINF_PASS_FORWARD].work;
            e->working = emit_number(e, s, m);
        }
        call_set_group(&c, groups, g);
        add_units_back(e, &c);
        call_inputs(e, &c);
        call_outputs(e, &c, false, true);
        if (g == groups.first)
            call_contributions(e, &c, nth);
        else
            add_same_contributions(e, &c);
        if (leave)
            add_gradients(e, &c, g == groups.first);
        if (c.info->carried[0]) {
            call_carried(e, &c, c.op.flags & OP_RECOMPUTES);
            d_carried = call_d_carried(e, &c, part_of(e, m));
        }
        call_kept(e, &c, false);
        emit_compute(e, &c.op, &c.uses);
        if (c.info->carried[0])
            call_end_d_carried(e, &c, d_carried);
    }
    if (leave)
        end_gradients(e, &c);
    return c;
}

void emit_backward(struct emitter *e, uint32_t s, struct range micros)
{
    uint32_t visits = zinf_stage_visits(&e->walk->graph->stages[s]);
    const int64_t n_micros = micros.end - micros.first, chunks = e->p->setup->n_chunks;
    const bool apart = e->walk->stages[s].keys_first;
    struct nth nth = {0, apart ? 2 * n_micros : n_micros};
    for (uint32_t v = 0; v < visits; v++, nth.n = 0) {
        struct call c = {0};
        for (int64_t n = 0; n < n_micros; n++) {
            const int64_t m = backward_micro(e, micros, n), first = m + 1 - chunks;
            if (n % chunks == 0)
                emit_carry(e, s, first);
            c = emit_backward_visit(e, s, v, m, nth);
            call_join_contributions(e, &c, ++nth.n, nth.all);
            for (int64_t k = chunks; apart && (n + 1) % chunks == 0 && k-- > 0;) {
                c = emit_carry_back(e, s, m + k, nth);
                call_join_contributions(e, &c, ++nth.n, nth.all);
            }
        }
        call_end(e, &c, v + 1 == visits);
    }
}

/* All micro-batches add to one place, in order, as one contribution. That is not possible where
 * contributions are added in a tree. */
void emit_backward_last(struct emitter *e, uint32_t s, struct range micros)
{
    if (e->p->setup->exact) {
        emit_backward(e, s, micros);
        return;
    }
    uint32_t visits = zinf_stage_visits(&e->walk->graph->stages[s]);
    for (uint32_t v = 0; v < visits; v++) {
        struct call c = {0};
        for (int64_t m = micros.first; m < micros.end; m++) {
            bool adds = m > micros.first;
            c = emit_call_of(e, s, ZINF_PASS_BACKWARD, v, m);
            c.op.flags = adds ? OP_ADDS : 0;
            add_units_back(e, &c);
            call_inputs(e, &c);
            call_outputs(e, &c, false, true);
            for (uint32_t i = 0; i < call_n_units(&c) && adds; i++) {
                if (call_trains(e, call_unit(&c, i)))
                    uses_write(&c.uses, e->contributions[i].sums[0].resource);
                call_operand(e, &c, e->contributions[i].sums[0].at);
            }
            if (!adds)
                call_contributions(e, &c, (struct nth){0, 0});
            emit_compute(e, &c.op, &c.uses);
        }
        call_end(e, &c, v + 1 == visits);
    }
}

void emit_whole(struct emitter *e, uint32_t s, struct range micros)
{
    for (int64_t m = micros.first; m < micros.end; m++) {
        struct call c = emit_call_of(e, s, ZINF_PASS_WHOLE, 0, m);
        const struct zinf_ids *sweep = &c.stage->sweep;
        call_units(e, &c, true);
        call_inputs(e, &c);
        call_outputs(e, &c, false, true);
        emit_swept_targets(e, sweep, m == micros.first, &c.uses);
        for (uint32_t i = 0; i < sweep->n; i++)
            call_operand(e, &c, e->swept[i].at);
        emit_compute(e, &c.op, &c.uses);
        emit_swept_made(e, sweep, m == micros.first, m + 1 == micros.end);
    }
}

/* ---- logits ---- */

/* The row of one visit, from one micro-batch; with chunks, only the chunk that has the row runs. */
static void emit_row_of(struct emitter *e, uint32_t s, uint32_t v, int64_t micro)
{
    struct plan *p = e->p;
    const uint64_t bytes = logits_rows(p) * (uint64_t)e->walk->graph->row_cols * sizeof(float);
    const uint16_t flag = p->setup->n_chunks > 1 ? OP_OF_ROW : 0;
    struct call c = emit_call_of(e, s, ZINF_PASS_ROW, v, micro);
    struct uses out = {0};
    c.op.flags = flag;
    call_units(e, &c, false);
    call_inputs(e, &c);
    call_operand(e, &c, zinf_at(device_at(p, p->at.d_row)));
    uses_write(&c.uses, e->logits);
    emit_compute(e, &c.op, &c.uses);
    uses_read(&out, e->logits);
    e->flags |= flag;
    emit_copy(e,
              &(struct device_copy){.lane = ZINF_LANE_D2H,
                                    .unit = c.op.unit,
                                    .to = zinf_at(host_at(p, logits_at(p) + v * bytes)),
                                    .from = zinf_at(device_at(p, p->at.d_row)),
                                    .bytes = bytes},
              &out);
    e->flags &= (uint16_t)~flag;
}

void emit_row(struct emitter *e, uint32_t s, struct range micros)
{
    for (uint32_t v = 0; v < zinf_stage_visits(&e->walk->graph->stages[s]); v++)
        for (int64_t m = micros.first; m < micros.end; m++)
            emit_row_of(e, s, v, m);
}
