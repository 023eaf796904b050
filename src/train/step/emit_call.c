/*
 * emit_call: one operation of a stage while it is made: its operands, the data of other chunks
 * that it looks at, and where gradients of its units go.
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

struct call emit_call_of(struct emitter *e, uint32_t s, enum zinf_pass pass, uint32_t visit,
                         int64_t micro)
{
    const struct walk_stage *info = &e->walk->stages[s];
    const struct zinf_stage_size *size = &info->size[pass];
    const struct zinf_stage *stage = &e->walk->graph->stages[s];
    emit_cut(e);
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
               .chunk = (int16_t)emit_chunk(e, micro),
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

struct zinf_operand emit_input_at(const struct emitter *e, uint32_t value, int64_t micro)
{
    const struct plan *p = e->p;
    const struct walk_value *v = &e->walk->values[value];
    const bool loss = zinf_value_is_told(e->walk->graph->values[value].kind);
    const uint64_t n = loss ? plan_losses(p, false) : plan_inputs(p, false);
    const int64_t number = p->setup->n_chunks > 1 ? 0 : loss ? micro : setup_input(p->setup, micro);
    const uint64_t offset = n * v->bytes_before + (uint64_t)number * v->bytes;
    return zinf_at(device_at(p, (loss ? p->at.d_losses : p->at.d_inputs) + offset));
}

/* Values that a stage makes for the reference model: in slots of their own, free again after the
 * last consumer. Computations follow each other, and nothing else uses them. */
struct zinf_operand emit_reference_at(const struct emitter *e, uint32_t value, int64_t micro)
{
    const struct plan *p = e->p;
    const struct walk *w = e->walk;
    uint64_t copy = (uint64_t)micro % (uint64_t)p->itinerary.live;
    return zinf_at(device_at(p, p->at.d_reference +
                                    (copy * w->n_slots + w->values[value].slot) * w->slot_bytes));
}

/* Values that only forward reads may not exist any more. */
static bool looks_at(const struct call *c, const struct zinf_value *v)
{
    const bool forward = kind_pass(c->op.kind) == ZINF_PASS_FORWARD;
    if (v->kind != ZINF_VALUE_ACTIVATION || (forward && !(c->op.flags & OP_RECOMPUTES)))
        return true;
    return !v->passing && !c->stage->ops->backward_without_inputs;
}

/* With chunks, a stage that reads another sequence uses its carried keys and values. It reads the
 * sequence itself only where it makes these, and goes back through them. */
bool call_reads(const struct emitter *e, const struct call *c, uint32_t value)
{
    const struct zinf_value *v = &e->walk->graph->values[value];
    const enum zinf_pass pass = kind_pass(c->op.kind);
    const bool carries = pass == ZINF_PASS_CARRY || pass == ZINF_PASS_CARRY_BACK;
    if (v->kind == ZINF_VALUE_ACTIVATION && carries && c->stage->carried)
        return value == c->stage->in.at[c->stage->carried];
    return v->kind != ZINF_VALUE_ACTIVATION || v->rows_of != ZINF_ROWS_OF_SOURCE ||
           !c->info->keys_first || walk_is_of_source(e->walk->graph, (uint32_t)c->op.stage) ||
           carries;
}

void call_inputs(struct emitter *e, struct call *c)
{
    for (uint32_t i = 0; i < c->stage->in.n; i++) {
        uint32_t v = c->stage->in.at[i];
        const struct zinf_value *value = &e->walk->graph->values[v];
        if (!call_reads(e, c, v) || !looks_at(c, value)) {
            call_operand(e, c, (struct zinf_operand){0});
        } else if (value->kind == ZINF_VALUE_INPUT) {
            uses_read(&c->uses, e->inputs);
            call_operand(e, c, emit_input_at(e, v, e->micro));
        } else if (value->kind == ZINF_VALUE_REFERENCE) {
            call_operand(e, c, emit_reference_at(e, value->of, e->micro));
        } else {
            call_operand(e, c, emit_value(e, v, e->micro, &c->uses));
        }
    }
    if (c->stage->choice.n)
        emit_choice_reads(e, (uint32_t)c->op.stage, e->micro, &c->uses);
}

/* begins: the stage begins to make its outputs. Backward needs only those that stayed on the
 * device, and those that it reads. */
void call_outputs(struct emitter *e, struct call *c, bool begins, bool backward)
{
    for (uint32_t i = 0; i < c->stage->out.n; i++) {
        uint32_t v = c->stage->out.at[i];
        const struct zinf_value *value = &e->walk->graph->values[v];
        struct zinf_operand at = {0};
        if (zinf_value_is_told(value->kind)) {
            uses_write(&c->uses, e->losses);
            at = emit_input_at(e, v, e->micro);
        } else if (!backward || !e->walk->values[v].leaves || e->walk->values[v].returns) {
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

uint64_t emit_number(const struct emitter *e, uint32_t s, int64_t micro)
{
    return (uint64_t)s * (uint64_t)e->p->setup->n_micro + (uint64_t)micro;
}

/* The same of a sample that is visited in chunks. */
uint64_t emit_carried_number(const struct emitter *e, uint32_t s, int64_t micro)
{
    return emit_number(e, s, setup_sample(e->p->setup, micro));
}

uint32_t emit_chunk(const struct emitter *e, int64_t micro)
{
    return (uint32_t)setup_chunk(e->p->setup, micro);
}

/* ---- what a stage carries from chunk to chunk ---- */

/* Whether the carried data of all chunks are made before any chunk looks at them. */
bool emit_keys_first(const struct emitter *e, uint32_t s)
{
    return in_parts(e->p->setup) || e->walk->stages[s].keys_first;
}

bool emit_in_order(const struct emitter *e, uint32_t s)
{
    return e->walk->stages[s].in_order;
}

struct groups call_groups(const struct emitter *e, uint32_t s, int64_t micro)
{
    const uint32_t chunk = emit_chunk(e, micro);
    if (!e->walk->stages[s].carried[0])
        return (struct groups){0, 1};
    return (struct groups){carried_first(e->p, s, chunk), chunk / (uint32_t)carried_span(e->p) + 1};
}

void call_set_group(struct call *c, struct groups groups, uint32_t group)
{
    c->op.arg = (int32_t)group;
    c->op.flops /= groups.end - groups.first;
    c->op.bytes /= groups.end - groups.first;
}

/* The chunks of the call's group up to its own. */
static struct span_of chunks_of(const struct emitter *e, const struct call *c)
{
    const uint32_t own = emit_chunk(e, e->micro), span = (uint32_t)carried_span(e->p);
    const uint32_t first = (uint32_t)c->op.arg * span;
    return (struct span_of){first, own < first + span ? own + 1 : first + span};
}

static bool has_own(const struct emitter *e, const struct call *c)
{
    return (uint32_t)c->op.arg == emit_chunk(e, e->micro) / (uint32_t)carried_span(e->p);
}

struct zinf_operand call_carried(struct emitter *e, struct call *c, bool makes)
{
    const uint32_t s = (uint32_t)c->op.stage, end = chunks_of(e, c).end;
    /* Nothing is brought to the slot where it keeps what earlier calls have made for all chunks;
     * nor for a call that only needs a state, which is among the stage's kept activations. */
    const bool stays = carried_groups(e->p) == 1;
    const bool all = (emit_keys_first(e, s) && stays) || (!makes && !c->info->carried[1]);
    const struct span_of made = {all ? 0 : end - (makes && has_own(e, c)), end};
    const struct zinf_operand at = emit_carried(e, s, emit_carried_number(e, s, e->micro),
                                                (uint32_t)c->op.arg, made, &c->uses);
    call_operand(e, c, at);
    return at;
}

/* No operand if the stage has no keys and values. */
struct zinf_operand call_d_carried(struct emitter *e, struct call *c, uint32_t part)
{
    if (!c->info->carried[1])
        return (struct zinf_operand){0};
    const uint32_t s = (uint32_t)c->op.stage, group = (uint32_t)c->op.arg;
    const bool stays = carried_groups(e->p) == 1;
    const bool fresh =
        emit_keys_first(e, s) ? stays : carried_last(e->p, s, group) == emit_chunk(e, e->micro);
    e->part = part;
    const struct zinf_operand at = emit_d_carried(e, s, emit_carried_number(e, s, e->micro), group,
                                                  chunks_of(e, c), fresh, &c->uses);
    call_operand(e, c, stays ? zinf_beyond(at, part * carried_group_bytes(e->p, true)) : at);
    return at;
}

struct zinf_operand call_carried_alone(struct emitter *e, struct call *c, bool gradient)
{
    const uint32_t s = (uint32_t)c->op.stage, chunk = emit_chunk(e, e->micro);
    if (carried_groups(e->p) == 1)
        return gradient ? call_d_carried(e, c, 0) : call_carried(e, c, true);
    c->op.arg = (int32_t)(chunk / (uint32_t)carried_span(e->p));
    e->part = 0;
    const struct zinf_operand at = emit_carried_alone(e, s, chunk, gradient, &c->uses);
    call_operand(e, c, at);
    return at;
}

void call_end_d_carried(struct emitter *e, const struct call *c, struct zinf_operand at)
{
    if (c->info->carried[1] && in_parts(e->p->setup))
        emit_d_carried_made(e, (uint32_t)c->op.stage, chunks_of(e, c), at);
}

/* ---- what a stage keeps for its backward ---- */

struct zinf_operand call_kept(struct emitter *e, struct call *c, bool fresh)
{
    const uint32_t s = (uint32_t)c->op.stage;
    struct zinf_operand at = {0};
    if (plan_kept_leaves(e->p, s))
        call_operand(e, c, at = emit_kept(e, s, e->micro, fresh, &c->uses));
    return at;
}

void call_kept_aside(struct emitter *e, struct call *c, struct zinf_operand *at)
{
    if (!plan_kept_leaves(e->p, (uint32_t)c->op.stage))
        return;
    if (at->tenant)
        uses_write(&c->uses, zinf_operand_buffer(at));
    else
        *at = emit_kept_aside(e, &c->uses);
    call_operand(e, c, *at);
}

void call_end_kept(struct emitter *e, const struct call *c, struct zinf_operand at)
{
    const uint32_t s = (uint32_t)c->op.stage;
    const bool again = (uint32_t)c->op.visit + 1 < zinf_stage_visits(c->stage);
    const bool read = !e->forward_alone && (c->info->differentiates || again);
    if (plan_kept_leaves(e->p, s) && read) /* in forward alone visits follow each other */
        emit_kept_made(e, s, e->micro, at);
}

/* ---- gradients of units ---- */

uint32_t call_unit(const struct call *c, uint32_t i)
{
    return i < c->stage->units.n ? c->stage->units.at[i] : c->stage->sweep.at[c->op.visit];
}

uint32_t call_n_units(const struct call *c)
{
    return c->stage->units.n + (c->stage->sweep.n > 0);
}

bool call_trains(const struct emitter *e, uint32_t unit)
{
    return e->walk->graph->units[unit].trained;
}

/* Each visit makes its own part of the gradient of a unit beside a sweep that rows choose; together
 * they are one contribution. */
static bool is_shared(const struct call *c, uint32_t i)
{
    return c->stage->choice.n && i < c->stage->units.n;
}

/* Contributions of a sample to a gradient: one of each chunk, and one more where its own keys and
 * values are apart. */
static int64_t n_of_sample(const struct emitter *e, const struct call *c)
{
    return e->p->setup->n_chunks * (c->info->keys_first ? 2 : 1);
}

/* Partial sums after the first n contributions: one for each level of the tree with a sum that has
 * no neighbour yet. A leaf is a sample, whose chunks are added in the order of backward: one more
 * sum while it is in progress. Without a tree there is one. */
static uint32_t n_partial_sums(const struct emitter *e, const struct call *c, int64_t n)
{
    const int64_t each = n_of_sample(e, c);
    const uint32_t leaves = (uint32_t)__builtin_popcountll((unsigned long long)(n / each));
    return e->p->setup->exact ? leaves + (n % each > 0) : 1;
}

/* Whether a micro-batch's gradient of the unit is added to an existing sum at once, and to which:
 * products then add it themselves, without another kernel. Not for parts that are made one by one,
 * nor where rows choose. */
static bool adds_at_once(const struct emitter *e, const struct call *c, uint32_t i, struct nth nth,
                         struct made_grad *onto)
{
    const struct contribution *of = &e->contributions[i];
    const uint32_t left = nth.n + 1 < nth.all ? n_partial_sums(e, c, nth.n + 1) : 1;
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
        } else if (call_trains(e, call_unit(c, i))) {
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

/* Adapters of parts of a matrix share one of their factors, which is joined once. */
static bool comes_before(const struct zinf_graph *g, const struct zinf_unit *swept, uint32_t number,
                         struct zinf_span span, int b)
{
    bool found = false;
    for (uint32_t i = 0; i < number; i++)
        found |= zinf_adapted_span(g, &g->adapted[swept->first_adapted + i], b).first == span.first;
    return found;
}

/* Joins the visit's gradients of the unit beside it: A and B of each of its adapters. */
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
    e->chunk = c->op.chunk;
    if (is_shared(c, i))
        join_shares(e, c, unit, both);
    else
        emit_grad_join(e, unit, both[0], both[1], (struct zinf_span){0});
    e->chunk = 0;
    e->deadline = INHERITED;
}

/* Adds the last partial sum to the one before it until `left` are there. */
static void join_sums(struct emitter *e, const struct call *c, uint32_t i, uint32_t left)
{
    struct contribution *of = &e->contributions[i];
    for (; of->n_sums > left; of->n_sums--)
        call_join(e, c, i, of->n_sums - 2, of->n_sums - 1);
}

/* n: micro-batches of the range so far, of all its. */
void call_join_contributions(struct emitter *e, const struct call *c, int64_t n, int64_t all)
{
    for (uint32_t i = 0; i < call_n_units(c); i++)
        if (call_trains(e, call_unit(c, i)))
            join_sums(e, c, i, n < all ? n_partial_sums(e, c, n) : 1);
}

void call_end(struct emitter *e, const struct call *c, bool last)
{
    for (uint32_t i = 0; i < call_n_units(c); i++) {
        if (is_shared(c, i) && !last)
            continue;
        if (call_trains(e, call_unit(c, i)))
            emit_grad_made(e, call_unit(c, i), e->contributions[i].sums[0]);
        e->contributions[i] = (struct contribution){0};
    }
}

/* ---- back through what is carried ---- */

bool emit_has_gradient(const struct emitter *e, uint32_t value)
{
    const struct walk_value *v = &e->walk->values[value];
    return v->flows && v->place != WALK_NONE;
}

/* Whether the pass has to do with the gradient of an input. */
static bool goes_back_to(const struct emitter *e, const struct call *c, uint32_t i)
{
    const uint32_t carried = c->stage->carried;
    return i < c->stage->in.n && (!carried || i == carried) &&
           emit_has_gradient(e, c->stage->in.at[i]);
}

/* Gradients of what the stage takes: it adds to that of what it carries, and to others if a later
 * stage has left a gradient there. None of what it makes. */
static void add_carried_gradients(struct emitter *e, struct call *c)
{
    const struct zinf_ids *in = &c->stage->in;
    for (uint32_t i = 0; i < in->n + c->stage->out.n; i++) {
        const bool fresh = i != c->stage->carried && i < in->n && !c->info->d_in_adds[i];
        struct zinf_operand at = {0};
        if (goes_back_to(e, c, i))
            at = emit_gradient(e, in->at[i], e->micro, fresh, &c->uses);
        call_operand(e, c, at);
    }
}

static void end_carried_gradients(struct emitter *e, const struct call *c, uint32_t first)
{
    for (uint32_t i = 0; i < c->stage->in.n; i++)
        if (goes_back_to(e, c, i))
            emit_gradient_made(e, c->stage->in.at[i], e->micro, e->operands[first + i]);
}

struct call emit_carry_back(struct emitter *e, uint32_t s, int64_t m, struct nth nth)
{
    struct call c = emit_call_of(e, s, ZINF_PASS_CARRY_BACK, 0, m);
    const bool leave = plan_gradients_leave(e->p);
    call_units(e, &c, false);
    call_inputs(e, &c);
    call_contributions(e, &c, nth);
    const uint32_t first = c.op.n_at;
    if (leave)
        add_carried_gradients(e, &c);
    call_carried_alone(e, &c, false);
    call_carried_alone(e, &c, true);
    call_kept(e, &c, false);
    emit_compute(e, &c.op, &c.uses);
    if (leave)
        end_carried_gradients(e, &c, first);
    e->working = UINT64_MAX;
    return c;
}
