/*
 * emit_grad: a unit's gradient, from where it is computed to its sum, its norm and its update. A
 * unit gets a contribution from each micro-batch, or fewer where micro-batches run together. They
 * are added in fp32 in the same order wherever the sum is. A sum of several is made in the unit's
 * kept place; a single contribution is used where it is. In a pipeline contributions come one by
 * one and are added in the tree of one rank; sums that wait for a neighbour in the tree have
 * places of their own.
 */
#include "train/step/emit.h"

bool emit_grad_is_eager(const struct emitter *e, uint32_t unit)
{
    return e->speculates && e->p->ways[unit].eager && !e->p->deferred[unit];
}

struct made_grad emit_grad_part(struct emitter *e, uint32_t unit, struct uses *uses)
{
    struct made_grad g = {.resource = emit_grad_slot(e, unit)};
    g.at = zinf_in(g.resource, 0);
    uses_write(uses, g.resource);
    return g;
}

struct made_grad emit_grad_target(struct emitter *e, uint32_t unit, struct uses *uses)
{
    struct plan *p = e->p;
    if (!way_sums_in_place(&p->travel, &p->homes[unit]) || e->grads_seen[unit] > 0 ||
        unit_shared(p->setup, unit))
        return emit_grad_part(e, unit, uses);
    struct zinf_location where = zinf_tiers_unit_grad(p->tiers, unit);
    uses_write(uses, e->grad[unit]);
    return (struct made_grad){.at = zinf_of(&where), .resource = e->grad[unit]};
}

bool emit_grad_adds(const struct emitter *e, uint32_t unit, struct made_grad *sum)
{
    struct plan *p = e->p;
    const struct zinf_location where = zinf_tiers_unit_grad(p->tiers, unit);
    if (!way_sums_in_place(&p->travel, &p->homes[unit]) || p->travel.several || e->n_turns > 1 ||
        e->grads_seen[unit] == 0 || unit_shared(p->setup, unit))
        return false;
    *sum = (struct made_grad){.at = zinf_of(&where), .resource = e->grad[unit]};
    return true;
}

/* number: of the sum that is added to. */
static struct trip trip_of_grad(const struct emitter *e, uint32_t unit, uint32_t number)
{
    const struct plan *p = e->p;
    const struct zinf_layout_unit *u = &p->setup->layout.units[unit];
    struct trip t = {.unit = unit,
                     .home = zinf_tiers_unit_grad_sum(p->tiers, unit, number),
                     .whole_bytes = u->padded_elems * sizeof(float),
                     .slice_bytes = u->slice_elems * sizeof(float),
                     .slice_at = u->slice_first * sizeof(float),
                     .squares_bytes = u->slice_elems / ZINF_SUM_BLOCK * sizeof(double)};
    t.stops[GRAD_HOME] = (struct stop){zinf_of(&t.home), e->grad[unit], true};
    if (has_waypoint(p->waypoints, SQUARES)) {
        uint64_t first = first_square(p, unit) * sizeof(double);
        t.stops[SQUARES].at = zinf_at(device_at(p, p->at.d_squares + first));
        t.stops[SQUARES_STAGING].at = zinf_at(host_at(p, p->at.h_squares + first));
    }
    return t;
}

void emit_grad_join(struct emitter *e, uint32_t unit, struct made_grad sum, struct made_grad part,
                    struct zinf_span of)
{
    struct trip t = trip_of_grad(e, unit, 0);
    struct leg join = way_join(&e->p->travel);
    const uint64_t first = of.first * sizeof(float);
    t.flags = part.onto ? OP_ONTO : 0;
    t.stops[GRAD_SLOT] = (struct stop){zinf_beyond(part.at, first), part.resource, true};
    t.stops[GRAD_SLOT_2] = (struct stop){zinf_beyond(sum.at, first), sum.resource, true};
    if (of.n)
        t.whole_bytes = t.slice_bytes = of.n * sizeof(float);
    emit_leg(e, &t, &join);
}

/* Zeros of a unit that no row chose are not written; the update knows of them. A second slot on the
 * device is free only after the next computation. */
static void emit_contribution(struct emitter *e, struct trip *t, const struct legs *legs)
{
    uint32_t deadline = e->deadline;
    for (int i = 0; i < legs->n; i++) {
        const struct leg *leg = &legs->leg[i];
        bool slot = leg->to.place == GRAD_SLOT_2 && leg->from.place != GRAD_STAGING;
        e->deadline = e->position + (slot ? 0 : 2);
        bool packed = leg->to.place == GRAD_PACKED;
        bool written = leg[packed].kind == OP_WRITE;
        e->flags |= written && plan_keeps_chosen(e->p, t->unit) ? OP_CHOSEN : 0;
        if (packed)
            emit_packed(e, t, leg);
        else
            emit_leg(e, t, leg);
        i += packed;
        e->flags &= (uint16_t)~OP_CHOSEN;
    }
    e->deadline = deadline;
}

void emit_grad_add(struct emitter *e, uint32_t unit, uint32_t number, struct turn turn,
                   struct carried *c)
{
    const struct plan *p = e->p;
    const struct zinf_home *home = &p->homes[unit];
    const bool made = c->end.place == GRAD_SLOT;
    struct legs legs =
        made ? way_contribution(&p->travel, home, turn) : way_fold(&p->travel, home, turn);
    struct trip t = trip_of_grad(e, unit, number);
    t.flags = c->onto ? OP_ONTO : 0;
    t.stops[made ? GRAD_SLOT : way_fold_from(home)] = c->at;
    emit_contribution(e, &t, &legs);
    *c = (struct carried){t.stops[legs.end.place], legs.end, false};
    if (legs.end.portion == SLICE)
        c->at.at = zinf_beyond(c->at.at, t.slice_at);
}

/* Whether another rank's contributions to the unit come before this one's. */
static bool follows(const struct emitter *e, uint32_t unit)
{
    const struct shared_unit *shared = unit_shared(e->p->setup, unit);
    return shared && shared->ranks[0] != pipe_axis(e->p->setup)->rank;
}

uint32_t emit_grad_base(const struct emitter *e, uint32_t unit, uint32_t turn)
{
    const uint32_t turns = plan_grad_turns(e->p, unit);
    const uint32_t sums = e->p->homes[unit].grad_sums / turns;
    return (follows(e, unit) ? turns - 1 - turn : turn) * sums;
}

/* Adds a leaf to a tree whose sums wait in the places from `base` on, one for each bit of the
 * number of leaves so far. The last leaf completes the sum, also over several stages, unless other
 * ranks add to them. */
static void add_leaf(struct emitter *e, uint32_t unit, uint32_t base, struct turn turn,
                     struct carried *c)
{
    const bool ends = e->turn + 1 == e->n_turns;
    const bool joins = ends && base && !follows(e, unit);
    const uint32_t there = (uint32_t)__builtin_popcountll((unsigned long long)e->turn);
    const uint32_t after =
        ends ? 1 : (uint32_t)__builtin_popcountll((unsigned long long)e->turn + 1);
    if (after > there)
        emit_grad_add(
            e, unit, base + there,
            (struct turn){.first = true, .eager = turn.eager, .apart = !turn.first || turn.apart},
            c);
    for (uint32_t at = there; at >= after; at--) {
        const bool goes_on = at > after || joins;
        emit_grad_add(
            e, unit, base + at - 1,
            (struct turn){.last = turn.last && !goes_on, .eager = turn.eager, .goes_on = goes_on},
            c);
    }
    if (joins)
        emit_grad_add(e, unit, 0, turn, c);
}

/* The first place of a contribution's sums. A visit of a pipeline has one turn; with parts it has
 * all of them. */
static uint32_t base_of(struct emitter *e, uint32_t unit)
{
    if (!e->crossing && !in_parts(e->p->setup))
        return 0;
    const bool ends = e->crossing || e->turn + 1 == e->n_turns;
    const uint32_t number = e->turns_seen[unit];
    e->turns_seen[unit] += ends;
    return emit_grad_base(e, unit, number);
}

void emit_grad_made(struct emitter *e, uint32_t unit, struct made_grad g)
{
    const struct shared_unit *shared = unit_shared(e->p->setup, unit);
    const uint32_t seen = ++e->grads_seen[unit];
    const uint32_t base = base_of(e, unit);
    struct turn turn = {.first = seen == 1 || (follows(e, unit) && e->n_turns == 1),
                        .last = seen == e->grads_total[unit] && !shared,
                        .eager = emit_grad_is_eager(e, unit),
                        .apart = shared};
    struct carried c = {.at = {g.at, g.resource, true}, .end = {GRAD_SLOT, WHOLE}, .onto = g.onto};
    if (e->n_turns > 1)
        add_leaf(e, unit, base, turn, &c);
    else
        emit_grad_add(e, unit, follows(e, unit) ? base : 0, turn, &c);
    if (turn.last && turn.eager)
        emit_update_eager(e, unit, c.end, &c.at);
}

struct carried emit_grad_sum(struct emitter *e, uint32_t unit)
{
    const struct leg read = {.lane = ZINF_LANE_READ,
                             .kind = OP_READ,
                             .from = {GRAD_HOME, ALONE},
                             .to = {GRAD_STAGING, ALONE}};
    struct leg unpacked[] = {read, read};
    struct trip t = trip_of_grad(e, unit, 0);
    const bool on_drive = t.home.tier == ZINF_TIER_DRIVE;
    unpacked[0].to.place = unpacked[1].from.place = GRAD_PACKED;
    unpacked[1].lane = ZINF_LANE_HOST;
    unpacked[1].kind = OP_UNPACK;
    if (on_drive && e->p->homes[unit].packs_grad)
        emit_packed(e, &t, unpacked);
    else if (on_drive)
        emit_leg(e, &t, &read);
    const struct end end = on_drive ? read.to : read.from;
    return (struct carried){t.stops[end.place], end, false};
}
