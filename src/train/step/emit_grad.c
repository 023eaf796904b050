/*
 * emit_grad: a unit's gradient from where it is computed to its sum, its norm and its update. A
 * unit has one contribution a micro-batch, or fewer where micro-batches run together; they are
 * added in fp32 in the same order wherever the sum lives. A sum of several is made in the unit's
 * kept place; a single one is used from where it is.
 */
#include "train/step/emit.h"

/* Updated as soon as it is complete. */
static bool is_eager(const struct emitter *e, uint32_t unit)
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
    if (!way_sums_in_place(&p->travel, &p->homes[unit]) || e->grads_seen[unit] > 0)
        return emit_grad_part(e, unit, uses);
    struct zinf_location where = zinf_tiers_unit_grad(p->tiers, unit);
    uses_write(uses, e->grad[unit]);
    return (struct made_grad){.at = zinf_of(&where), .resource = e->grad[unit]};
}

static struct trip trip_of_grad(const struct emitter *e, uint32_t unit)
{
    const struct plan *p = e->p;
    const struct zinf_layout_unit *u = &p->setup->layout.units[unit];
    struct trip t = {.unit = unit,
                     .home = zinf_tiers_unit_grad(p->tiers, unit),
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
    struct trip t = trip_of_grad(e, unit);
    struct leg join = way_join(&e->p->travel);
    const uint64_t first = of.first * sizeof(float);
    t.stops[GRAD_SLOT] = (struct stop){zinf_beyond(part.at, first), part.resource, true};
    t.stops[GRAD_SLOT_2] = (struct stop){zinf_beyond(sum.at, first), sum.resource, true};
    if (of.n)
        t.whole_bytes = t.slice_bytes = of.n * sizeof(float);
    emit_leg(e, &t, &join);
}

/* Zeros of a unit that no row chose are not written: the update knows of them. A second slot on the
 * device is not free before the next computation. */
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

void emit_grad_made(struct emitter *e, uint32_t unit, struct made_grad g)
{
    const struct plan *p = e->p;
    uint32_t seen = ++e->grads_seen[unit];
    struct turn turn = {
        .first = seen == 1, .last = seen == e->grads_total[unit], .eager = is_eager(e, unit)};
    struct legs legs = way_contribution(&p->travel, &p->homes[unit], turn);
    struct trip t = trip_of_grad(e, unit);
    t.stops[GRAD_SLOT] = (struct stop){g.at, g.resource, true};
    emit_contribution(e, &t, &legs);
    if (!turn.last || !turn.eager)
        return;
    struct stop sum = t.stops[legs.end.place];
    if (legs.end.portion == SLICE)
        sum.at = zinf_beyond(sum.at, t.slice_at);
    emit_update_eager(e, unit, legs.end, &sum);
}
