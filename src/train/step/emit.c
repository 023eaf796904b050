/*
 * emit: a stage's operations. Forward, backward visit by visit, both at once for a sweep that is at
 * hand whole, one row of logits. Each for a range of micro-batches, so that what was fetched serves
 * all of them.
 */
#include "train/step/emit_call.h"

void emit_compute(struct emitter *e, struct zinf_op *op, struct uses *uses)
{
    op->lane = ZINF_LANE_DEVICE;
    e->deadline = e->position++;
    uses_write(uses, e->sequence);
    if (e->crossing)
        uses_write(uses, e->crossing[e->micro % e->p->itinerary.live]);
    emit(e, op, uses);
    e->deadline = INHERITED;
}

/* ---- one operation of a stage ---- */

struct call emit_call_of(struct emitter *e, uint32_t s, enum zinf_pass pass, uint32_t visit,
                         int64_t micro)
{
    const struct walk_stage *info = &e->walk->stages[s];
    const struct zinf_stage_size *size = &info->size[pass];
    const struct zinf_stage *stage = &e->walk->graph->stages[s];
    int32_t unit = stage->units.n ? (int32_t)stage->units.at[0] : -1;
    if (stage->sweep.n)
        unit = (int32_t)stage->sweep.at[visit];
    e->micro = (int16_t)micro;
    e->only_chosen = info->choice != WALK_NONE &&
                     (pass == ZINF_PASS_BACKWARD ? e->p->chosen_backward : e->p->chosen_forward);
    return (struct call){
        .stage = stage,
        .info = info,
        .op = {.kind = stage_kind(info->kind, pass),
               .unit = unit,
               .stage = (int32_t)s,
               .visit = (int32_t)visit,
               .at = e->operands,
               .flops = size->work,
               .bytes = (uint64_t)size->bytes},
        .uses = {.many = e->stage_uses, .capacity = e->walk->most_operands + FEW_USES},
    };
}

void call_operand(struct emitter *e, struct call *c, struct zinf_operand operand)
{
    if (c->op.n_at < e->walk->most_operands)
        e->operands[c->op.n_at++] = operand;
    else
        c->uses.overflow = true;
}

void call_units(struct emitter *e, struct call *c, bool whole)
{
    const struct zinf_ids *sweep = &c->stage->sweep;
    const bool only_chosen = e->only_chosen;
    e->only_chosen = false;
    for (uint32_t i = 0; i < c->stage->units.n; i++)
        call_operand(e, c, emit_fetch(e, c->stage->units.at[i], &c->uses));
    e->only_chosen = only_chosen;
    for (uint32_t i = 0; whole && i < sweep->n; i++)
        call_operand(e, c, emit_fetch(e, sweep->at[i], &c->uses));
    if (!whole && sweep->n)
        call_operand(e, c, emit_fetch(e, sweep->at[c->op.visit], &c->uses));
}

static struct zinf_operand input_at(const struct emitter *e, uint32_t value, int64_t micro)
{
    const struct plan *p = e->p;
    const struct walk_value *v = &e->walk->values[value];
    const bool loss = zinf_value_is_told(e->walk->graph->values[value].kind);
    const int64_t n = loss ? p->setup->n_micro : setup_n_inputs(p->setup);
    const int64_t number = loss ? micro : setup_input(p->setup, micro);
    const uint64_t offset = (uint64_t)n * v->bytes_before + (uint64_t)number * v->bytes;
    return zinf_at(device_at(p, (loss ? p->at.d_losses : p->at.d_inputs) + offset));
}

/* What a stage makes for a reference: in slots of its own, which are free again after the last
 * consumer. Computations come one after the other, and nothing else looks there. */
static struct zinf_operand reference_at(const struct emitter *e, uint32_t value, int64_t micro)
{
    const struct plan *p = e->p;
    const struct walk *w = e->walk;
    uint64_t copy = (uint64_t)micro % (uint64_t)p->itinerary.live;
    return zinf_at(device_at(p, p->at.d_reference +
                                    (copy * w->n_slots + w->values[value].slot) * w->slot_bytes));
}

void call_inputs(struct emitter *e, struct call *c)
{
    for (uint32_t i = 0; i < c->stage->in.n; i++) {
        uint32_t v = c->stage->in.at[i];
        const struct zinf_value *value = &e->walk->graph->values[v];
        if (value->kind == ZINF_VALUE_INPUT) {
            uses_read(&c->uses, e->inputs);
            call_operand(e, c, input_at(e, v, e->micro));
        } else if (value->kind == ZINF_VALUE_REFERENCE) {
            call_operand(e, c, reference_at(e, value->of, e->micro));
        } else {
            call_operand(e, c, emit_value(e, v, e->micro, &c->uses));
        }
    }
    if (c->stage->choice.n)
        emit_choice_reads(e, (uint32_t)c->op.stage, e->micro, &c->uses);
}

/* begins: the stage begins to make them. Backward needs only those that never left the device. */
static void add_outputs(struct emitter *e, struct call *c, bool begins, bool backward)
{
    for (uint32_t i = 0; i < c->stage->out.n; i++) {
        uint32_t v = c->stage->out.at[i];
        const struct zinf_value *value = &e->walk->graph->values[v];
        struct zinf_operand at = {0};
        if (zinf_value_is_told(value->kind)) {
            uses_write(&c->uses, e->losses);
            at = input_at(e, v, e->micro);
        } else if (!backward || !e->walk->values[v].leaves) {
            uint32_t chooser = e->walk->values[v].chooser;
            if (begins && chooser != WALK_NONE)
                emit_choice_makes(e, chooser, e->micro, &c->uses);
            at = begins ? emit_value_new(e, v, e->micro, &c->uses)
                        : emit_value(e, v, e->micro, &c->uses);
            if (!begins && at.tenant)
                uses_write(&c->uses, zinf_operand_buffer(&at));
        }
        call_operand(e, c, at);
    }
}

static uint64_t number_of(const struct emitter *e, uint32_t s, int64_t micro)
{
    return (uint64_t)s * (uint64_t)e->p->setup->n_micro + (uint64_t)micro;
}

/* The same of a sample that is visited in chunks. */
static uint64_t carried_number(const struct emitter *e, uint32_t s, int64_t micro)
{
    return number_of(e, s, setup_sample(e->p->setup, micro));
}

static uint32_t chunk_of(const struct emitter *e, int64_t micro)
{
    return (uint32_t)setup_chunk(e->p->setup, micro);
}

/* ---- what a stage carries from chunk to chunk ---- */

/* Groups of chunks that an operation looks at, one part of it a group; the chunk's own is the last.
 */
struct groups {
    uint32_t first, end;
};

static struct groups groups_of(const struct emitter *e, uint32_t s, int64_t micro)
{
    const uint32_t chunk = chunk_of(e, micro);
    if (!e->walk->stages[s].carried[0])
        return (struct groups){0, 1};
    return (struct groups){carried_first(e->p, s, chunk), chunk / (uint32_t)carried_span(e->p) + 1};
}

static void set_group(struct call *c, struct groups groups, uint32_t group)
{
    c->op.arg = (int32_t)group;
    c->op.flops /= groups.end - groups.first;
    c->op.bytes /= groups.end - groups.first;
}

/* Those of the call's group up to the call's own chunk. */
static struct span_of chunks_of(const struct emitter *e, const struct call *c)
{
    const uint32_t own = chunk_of(e, e->micro), span = (uint32_t)carried_span(e->p);
    const uint32_t first = (uint32_t)c->op.arg * span;
    return (struct span_of){first, own < first + span ? own + 1 : first + span};
}

static bool has_own(const struct emitter *e, const struct call *c)
{
    return (uint32_t)c->op.arg == chunk_of(e, e->micro) / (uint32_t)carried_span(e->p);
}

struct zinf_operand call_carried(struct emitter *e, struct call *c, bool makes)
{
    const uint32_t s = (uint32_t)c->op.stage, end = chunks_of(e, c).end;
    const bool all = in_parts(e->p->setup) && carried_groups(e->p) == 1; /* whoever makes them */
    const struct span_of made = {all ? 0 : end - (makes && has_own(e, c)), end};
    const struct zinf_operand at =
        emit_carried(e, s, carried_number(e, s, e->micro), (uint32_t)c->op.arg, made, &c->uses);
    call_operand(e, c, at);
    return at;
}

struct zinf_operand call_carried_alone(struct emitter *e, struct call *c, bool gradient)
{
    const uint32_t s = (uint32_t)c->op.stage, chunk = chunk_of(e, e->micro);
    if (carried_groups(e->p) == 1)
        return gradient ? call_d_carried(e, c, 0) : call_carried(e, c, true);
    c->op.arg = (int32_t)(chunk / (uint32_t)carried_span(e->p));
    e->part = 0;
    const struct zinf_operand at = emit_carried_alone(e, s, chunk, gradient, &c->uses);
    call_operand(e, c, at);
    return at;
}

/* Nothing of a stage that has no keys and values. */
struct zinf_operand call_d_carried(struct emitter *e, struct call *c, uint32_t part)
{
    if (!c->info->carried[1])
        return (struct zinf_operand){0};
    const uint32_t s = (uint32_t)c->op.stage, group = (uint32_t)c->op.arg;
    const bool stays = carried_groups(e->p) == 1;
    const bool fresh =
        in_parts(e->p->setup) ? stays : carried_last(e->p, s, group) == chunk_of(e, e->micro);
    e->part = part;
    const struct zinf_operand at = emit_d_carried(e, s, carried_number(e, s, e->micro), group,
                                                  chunks_of(e, c), fresh, &c->uses);
    call_operand(e, c, stays ? zinf_beyond(at, part * carried_group_bytes(e->p, true)) : at);
    return at;
}

/* Nobody will see the own chunk's any more, unless there are parts. */
static void end_d_carried(struct emitter *e, const struct call *c, struct zinf_operand at)
{
    struct span_of chunks = chunks_of(e, c);
    chunks.end -= has_own(e, c) && !in_parts(e->p->setup);
    if (c->info->carried[1])
        emit_d_carried_made(e, (uint32_t)c->op.stage, chunks, at);
}

/* ---- forward ---- */

/* Whether what the stage's visits add to may leave its slot between two of them: there are not as
 * many slots as a visit of all micro-batches looks at. */
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

/* A visit has made its part of the stage's values, of a micro-batch of the range; last: all. */
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

/* The same call for a reference, in front of the other, which may leave something at hand. */
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
        call_operand(e, &c, input ? input_at(e, value, m) : reference_at(e, value, m));
    }
    for (uint32_t i = 0; i < c.stage->out.n; i++)
        call_operand(e, &c, reference_at(e, c.stage->out.at[i], m));
    emit_compute(e, &c.op, &c.uses);
    if (c.info->ordinal != WALK_NONE)
        e->working = UINT64_MAX;
}

/* One micro-batch through one visit, in as many parts as what it looks at of other chunks. */
static void emit_forward_visit(struct emitter *e, uint32_t s, uint32_t v, int64_t m,
                               struct range micros)
{
    const struct groups groups = groups_of(e, s, m);
    const bool last = v + 1 == zinf_stage_visits(&e->walk->graph->stages[s]);
    for (uint32_t g = groups.first; g < groups.end; g++) {
        struct call c = emit_call_of(e, s, ZINF_PASS_FORWARD, v, m);
        set_group(&c, groups, g);
        call_units(e, &c, false);
        call_inputs(e, &c);
        add_outputs(e, &c, v == 0 && g == groups.first, false);
        const struct zinf_operand *out = e->operands + c.op.n_at - c.stage->out.n;
        struct zinf_operand cache = {0}, carried = {0};
        if (c.info->cache_bytes)
            call_operand(e, &c, cache = emit_cache(e, s, &c.uses));
        if (c.info->carried[0])
            carried = call_carried(e, &c, true);
        emit_compute(e, &c.op, &c.uses);
        if (c.info->cache_bytes)
            emit_cache_made(e, s, cache);
        if (c.info->carried[0] && g + 1 == groups.end && !in_parts(e->p->setup))
            emit_carried_made(e, s, chunk_of(e, m), carried);
        if (g + 1 == groups.end)
            end_values(e, &c, micros, last, out);
        if (c.info->ordinal != WALK_NONE && !stage_is_kept(e->p, s))
            e->working = number_of(e, s, m);
    }
    if (e->walk->stages[s].carried[0])
        e->carrying = carried_number(e, s, m);
}

void emit_forward(struct emitter *e, uint32_t s, struct range micros)
{
    uint32_t visits = zinf_stage_visits(&e->walk->graph->stages[s]);
    bool referenced = e->walk->stages[s].referenced && !e->makes_rows;
    for (uint32_t v = 0; v < visits; v++)
        for (int64_t m = micros.first; m < micros.end; m++) {
            if (referenced)
                emit_reference(e, s, v, m);
            if (in_parts(e->p->setup) && m % e->p->setup->own_chunks == 0)
                emit_carry(e, s, m);
            emit_forward_visit(e, s, v, m, micros);
        }
}

/* ---- backward ---- */

/* Of this rank's parts the one that the micro-batch's chunk is of. */
static uint32_t part_of(const struct emitter *e, int64_t micro)
{
    const struct setup *s = e->p->setup;
    return (uint32_t)(micro % s->own_chunks * setup_own_parts(s) / s->own_chunks);
}

uint32_t call_unit(const struct call *c, uint32_t i)
{
    return i < c->stage->units.n ? c->stage->units.at[i] : c->stage->sweep.at[c->op.visit];
}

uint32_t call_n_units(const struct call *c)
{
    return c->stage->units.n + (c->stage->sweep.n > 0);
}

static bool is_trained(const struct emitter *e, uint32_t unit)
{
    return e->walk->graph->units[unit].trained;
}

/* The weights of a stage whose backward does not read them are not fetched for it. */
static void add_units_back(struct emitter *e, struct call *c)
{
    if (!c->stage->ops->backward_without_weights)
        call_units(e, c, false);
    for (uint32_t i = c->op.n_at; i < call_n_units(c); i++)
        call_operand(e, c, (struct zinf_operand){0});
}

/* Of a unit beside a sweep that rows choose each visit makes its own part of the gradient: all of
 * them together are one contribution. */
static bool is_shared(const struct call *c, uint32_t i)
{
    return c->stage->choice.n && i < c->stage->units.n;
}

/* Partial sums that are there after the first n micro-batches: one for each level of the tree that
 * has one without a neighbour. A leaf of the tree is a sample, whose chunks are added in the order
 * of backward: one more while it is under way. In order there is one. */
static uint32_t n_partial_sums(const struct emitter *e, int64_t n)
{
    const int64_t chunks = e->p->setup->n_chunks;
    const uint32_t leaves = (uint32_t)__builtin_popcountll((unsigned long long)(n / chunks));
    return e->p->setup->exact ? leaves + (n % chunks > 0) : 1;
}

/* Whether what the micro-batch makes of the unit is added at once to what is there, and to what:
 * then its products add it themselves, and no kernel has to. Not of parts that are made one by one,
 * nor where rows choose. */
static bool adds_at_once(const struct emitter *e, const struct call *c, uint32_t i, struct nth nth,
                         struct made_grad *onto)
{
    const struct contribution *of = &e->contributions[i];
    const uint32_t left = nth.n + 1 < nth.all ? n_partial_sums(e, nth.n + 1) : 1;
    if (!nth.all || !e->p->travel.own_kernels || c->stage->sweep.n || c->stage->choice.n ||
        c->info->carried[0])
        return false;
    if (!of->n_sums)
        return nth.all == 1 && emit_grad_adds(e, call_unit(c, i), onto);
    *onto = of->sums[of->n_sums - 1];
    return left <= of->n_sums;
}

static struct zinf_operand add_contribution(struct emitter *e, struct call *c, uint32_t i,
                                            struct nth nth)
{
    struct contribution *of = &e->contributions[i];
    const uint32_t unit = call_unit(c, i);
    struct made_grad *made = &of->sums[of->n_sums];
    const bool onto = adds_at_once(e, c, i, nth, &of->onto);
    *made = of->n_sums ? emit_grad_part(e, unit, &c->uses) : emit_grad_target(e, unit, &c->uses);
    made->onto = onto;
    c->op.flags |= onto ? OP_ONTO : 0;
    of->n_sums++;
    return made->at;
}

void call_contributions(struct emitter *e, struct call *c, struct nth nth)
{
    for (uint32_t i = 0; i < call_n_units(c); i++) {
        struct contribution *of = &e->contributions[i];
        struct zinf_operand at = {0};
        if (nth.n == 0 && of->n_sums) {
            uses_write(&c->uses, of->sums[0].resource);
            at = of->sums[0].at;
        } else if (is_trained(e, call_unit(c, i))) {
            at = add_contribution(e, c, i, nth);
        }
        call_operand(e, c, at);
    }
    for (uint32_t i = 0; c->op.flags & OP_ONTO && i < call_n_units(c); i++) {
        const struct contribution *of = &e->contributions[i];
        const bool onto = of->n_sums && of->sums[of->n_sums - 1].onto;
        if (onto)
            uses_write(&c->uses, of->onto.resource);
        call_operand(e, c, onto ? of->onto.at : (struct zinf_operand){0});
    }
}

/* Adapters of a matrix's parts have one of their factors in common, which is joined once. */
static bool comes_before(const struct zinf_graph *g, const struct zinf_unit *swept, uint32_t number,
                         struct zinf_span span, int b)
{
    bool found = false;
    for (uint32_t i = 0; i < number; i++)
        found |= zinf_adapted_span(g, &g->adapted[swept->first_adapted + i], b).first == span.first;
    return found;
}

/* What the visit has made of the unit beside it: of each of its adapters A and B. */
static void join_shares(struct emitter *e, const struct call *c, uint32_t unit,
                        const struct made_grad sum[2])
{
    const struct zinf_graph *g = e->walk->graph;
    const struct zinf_unit *swept = &g->units[c->stage->sweep.at[c->op.visit]];
    for (uint32_t i = 0; i < swept->n_adapted; i++)
        for (int b = 0; b < 2; b++) {
            const struct zinf_span span =
                zinf_adapted_span(g, &g->adapted[swept->first_adapted + i], b);
            if (!comes_before(g, swept, i, span, b))
                emit_grad_join(e, unit, sum[0], sum[1], span);
        }
}

void call_join(struct emitter *e, const struct call *c, uint32_t i, uint32_t sum, uint32_t part)
{
    const struct made_grad both[2] = {e->contributions[i].sums[sum],
                                      e->contributions[i].sums[part]};
    const uint32_t unit = call_unit(c, i);
    e->deadline = e->position + 1;
    if (is_shared(c, i))
        join_shares(e, c, unit, both);
    else
        emit_grad_join(e, unit, both[0], both[1], (struct zinf_span){0});
    e->deadline = INHERITED;
}

/* Adds the last of the partial sums to the one before it until there are `left`. */
static void join_sums(struct emitter *e, const struct call *c, uint32_t i, uint32_t left)
{
    struct contribution *of = &e->contributions[i];
    for (; of->n_sums > left; of->n_sums--)
        call_join(e, c, i, of->n_sums - 2, of->n_sums - 1);
}

/* n: micro-batches of the range so far, of all its. */
static void join_contributions(struct emitter *e, const struct call *c, int64_t n, int64_t all)
{
    for (uint32_t i = 0; i < call_n_units(c); i++)
        if (is_trained(e, call_unit(c, i)))
            join_sums(e, c, i, n < all ? n_partial_sums(e, n) : 1);
}

void call_end(struct emitter *e, const struct call *c, bool last)
{
    for (uint32_t i = 0; i < call_n_units(c); i++) {
        if (is_shared(c, i) && !last)
            continue;
        if (is_trained(e, call_unit(c, i)))
            emit_grad_made(e, call_unit(c, i), e->contributions[i].sums[0]);
        e->contributions[i] = (struct contribution){0};
    }
}

/* ---- gradients of values that leave ---- */

bool emit_has_gradient(const struct emitter *e, uint32_t value)
{
    const struct walk_value *v = &e->walk->values[value];
    return v->flows && v->place != WALK_NONE;
}

/* What is made by the stage's first visit and was not there before: not what it is the gradient of
 * an output in the same place, or added to. */
static bool is_fresh(const struct emitter *e, const struct call *c, uint32_t i)
{
    const struct walk_value *values = e->walk->values;
    bool fresh = !c->op.visit && !c->info->d_in_adds[i];
    for (uint32_t k = 0; k < c->stage->out.n; k++)
        fresh &= values[c->stage->out.at[k]].place != values[c->stage->in.at[i]].place;
    return fresh;
}

/* Operands behind all others: gradients of what goes in, then of what comes out. Outputs' come
 * first into their slots, since inputs' may be made in the same. begins: it is the call's first
 * part. */
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
    for (uint32_t i = 0; i < in->n && !c->uses.overflow; i++)
        if (emit_has_gradient(e, in->at[i]))
            e->operands[first + i] =
                emit_gradient(e, in->at[i], e->micro, begins && is_fresh(e, c, i), &c->uses);
}

/* Back to where they live: what the stage has made, and what its next visit reads, where the stage
 * may have worked. */
static void end_gradients(struct emitter *e, const struct call *c)
{
    const struct zinf_ids *in = &c->stage->in, *out = &c->stage->out;
    const uint32_t behind = walk_n_carried(c->info, true);
    const struct zinf_operand *at = e->operands + c->op.n_at - in->n - out->n - behind;
    for (uint32_t i = 0; i < in->n; i++)
        if (emit_has_gradient(e, in->at[i]))
            emit_gradient_made(e, in->at[i], e->micro, at[i]);
    const bool again = (uint32_t)c->op.visit + 1 < zinf_stage_visits(c->stage);
    for (uint32_t i = 0; again && i < out->n; i++)
        if (emit_has_gradient(e, out->at[i]))
            emit_gradient_made(e, out->at[i], e->micro, at[in->n + i]);
}

/* The n-th micro-batch of a range that goes backward: samples are in order, and the chunks of each
 * from the last one. */
static int64_t backward_micro(const struct emitter *e, struct range micros, int64_t n)
{
    const int64_t chunks = e->p->setup->n_chunks;
    return micros.first + n / chunks * chunks + chunks - 1 - n % chunks;
}

/* Whether what backward of a stage reads is made again for it. */
static bool recomputes(const struct emitter *e, uint32_t s, int64_t micro)
{
    return e->walk->stages[s].ordinal != WALK_NONE && !stage_is_kept(e->p, s) &&
           e->working != number_of(e, s, micro);
}

/* One chunk's, in a part more where it begins a group and is handed something. */
static void emit_carry_chunk(struct emitter *e, uint32_t s, int64_t m)
{
    const struct groups groups = {carried_needs(e->p, s, chunk_of(e, m)), groups_of(e, s, m).end};
    for (uint32_t g = groups.first; g < groups.end; g++) {
        struct call c = emit_call_of(e, s, ZINF_PASS_CARRY, 0, m);
        set_group(&c, groups, g);
        call_units(e, &c, false);
        call_inputs(e, &c);
        const struct zinf_operand carried =
            in_parts(e->p->setup) ? call_carried_alone(e, &c, false) : call_carried(e, &c, true);
        emit_compute(e, &c.op, &c.uses);
        if (g + 1 == groups.end)
            emit_carried_made(e, s, chunk_of(e, m), carried);
    }
    e->working = UINT64_MAX;
}

void emit_carry(struct emitter *e, uint32_t s, int64_t first)
{
    const struct setup *setup = e->p->setup;
    const int64_t last = first + setup->own_chunks - 1;
    const bool holds = e->carrying == carried_number(e, s, first);
    const bool kept = e->walk->stages[s].ordinal == WALK_NONE || stage_is_kept(e->p, s);
    const bool all = kept || carried_groups(e->p) > 1 || in_parts(setup);
    if (!e->walk->stages[s].carried[0] || holds)
        return;
    for (int64_t m = first; m < last + all; m++)
        emit_carry_chunk(e, s, m);
    if (in_parts(setup))
        emit_gather_keys(e, s, first);
    e->carrying = carried_number(e, s, first);
}

/* What backward reads, in parts of its own. */
static void emit_recompute(struct emitter *e, uint32_t s, int64_t m)
{
    const struct groups groups = groups_of(e, s, m);
    for (uint32_t g = groups.first; g < groups.end; g++) {
        struct call c = emit_call_of(e, s, ZINF_PASS_FORWARD, 0, m);
        c.op.flags = OP_RECOMPUTES;
        set_group(&c, groups, g);
        call_units(e, &c, false);
        call_inputs(e, &c);
        call_carried(e, &c, true);
        emit_compute(e, &c.op, &c.uses);
    }
    e->working = number_of(e, s, m);
}

/* The places that the call's part before had. */
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
    const struct groups groups = groups_of(e, s, m);
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
            e->working = number_of(e, s, m);
        }
        set_group(&c, groups, g);
        add_units_back(e, &c);
        call_inputs(e, &c);
        add_outputs(e, &c, false, true);
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
        emit_compute(e, &c.op, &c.uses);
        if (c.info->carried[0])
            end_d_carried(e, &c, d_carried);
    }
    if (leave)
        end_gradients(e, &c);
    return c;
}

void emit_backward(struct emitter *e, uint32_t s, struct range micros)
{
    uint32_t visits = zinf_stage_visits(&e->walk->graph->stages[s]);
    const int64_t n_micros = micros.end - micros.first;
    for (uint32_t v = 0; v < visits; v++) {
        struct call c = {0};
        for (int64_t n = 0; n < n_micros; n++) {
            const int64_t m = backward_micro(e, micros, n);
            if (n % e->p->setup->n_chunks == 0)
                emit_carry(e, s, m + 1 - e->p->setup->n_chunks);
            c = emit_backward_visit(e, s, v, m, (struct nth){n, n_micros});
            join_contributions(e, &c, n + 1, n_micros);
        }
        call_end(e, &c, v + 1 == visits);
    }
}

/* All micro-batches add to one place, in their order: one contribution. In a tree they cannot. */
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
            add_outputs(e, &c, false, true);
            for (uint32_t i = 0; i < call_n_units(&c) && adds; i++) {
                if (is_trained(e, call_unit(&c, i)))
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
        add_outputs(e, &c, false, true);
        emit_swept_targets(e, sweep, m == micros.first, &c.uses);
        for (uint32_t i = 0; i < sweep->n; i++)
            call_operand(e, &c, e->swept[i].at);
        emit_compute(e, &c.op, &c.uses);
        emit_swept_made(e, sweep, m == micros.first, m + 1 == micros.end);
    }
}

/* ---- logits ---- */

void emit_row(struct emitter *e, uint32_t s)
{
    struct plan *p = e->p;
    uint64_t bytes = logits_rows(p) * (uint64_t)e->walk->graph->row_cols * sizeof(float);
    for (uint32_t v = 0; v < zinf_stage_visits(&e->walk->graph->stages[s]); v++) {
        struct call c = emit_call_of(e, s, ZINF_PASS_ROW, v, 0);
        struct uses out = {0};
        call_units(e, &c, false);
        call_inputs(e, &c);
        call_operand(e, &c, zinf_at(device_at(p, p->at.d_row)));
        uses_write(&c.uses, e->logits);
        emit_compute(e, &c.op, &c.uses);
        uses_read(&out, e->logits);
        emit_copy(e, ZINF_LANE_D2H, c.op.unit, zinf_at(host_at(p, logits_at(p) + v * bytes)),
                  zinf_at(device_at(p, p->at.d_row)), bytes, &out);
    }
}
