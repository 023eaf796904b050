/*
 * emit_fetch: brings parameters to the device, into a slot of their own or into one of those that
 * are used in turn. What is there is used again, unless its fetch may have been left out: a unit
 * that rows choose is fetched anew for every range of micro-batches.
 */
#include "train/step/emit.h"

static void fetch(struct emitter *e, uint32_t unit, struct zinf_operand memory,
                  zinf_resource target)
{
    struct legs legs = way_fetch(&e->p->travel, &e->p->homes[unit]);
    struct trip t = trip_of_params(e, unit);
    t.is_fetch = true;
    t.stops[PARAM_SLOT] = (struct stop){memory, target, true};
    if (e->p->homes[unit].imaged) {
        t.home = zinf_tiers_image(e->p->tiers, unit, 0);
        t.stops[IMAGE_HOME] = (struct stop){zinf_of(&t.home), e->param[unit], true};
    }
    if (plan_keeps_image(e->p, unit)) {
        char *image = host_at(e->p, e->p->at.h_images + plan_image_offset(e->p, unit));
        t.stops[CODE_STAGING] = (struct stop){zinf_at(image), e->images[unit], true};
        t.encoded = e->encoded[unit];
        e->encoded[unit] = true;
    }
    e->flags |= e->only_chosen ? OP_CHOSEN : 0;
    emit_way(e, &t, &legs);
    e->flags &= (uint16_t)~OP_CHOSEN;
    e->fetched[unit] = (struct fetched){true, e->only_chosen, e->range};
}

static char *own_slot(const struct plan *p, uint32_t unit)
{
    return device_at(p, p->at.d_own + unit_own_offset(p, unit));
}

/* The content of a slot: the unit for certain, or only in this range, if it was chosen. */
static uint64_t slot_key(const struct emitter *e, uint32_t unit, bool maybe)
{
    return unit | (maybe ? (uint64_t)(e->range + 1) << 32 : 0);
}

static bool ring_holds(const struct ring *ring, uint64_t thing)
{
    for (uint32_t i = 0; i < ring->n; i++)
        if (ring->buffer[i] != ZINF_NO_BUFFER && ring->holds[i] == thing)
            return true;
    return false;
}

/* Whether the unit is in its own slot and may be used. */
static bool is_here(const struct emitter *e, uint32_t unit)
{
    const struct fetched *f = &e->fetched[unit];
    return f->here && (!f->maybe || (e->only_chosen && f->range == e->range));
}

struct zinf_operand emit_fetch(struct emitter *e, uint32_t unit, struct uses *uses)
{
    struct plan *p = e->p;
    uint32_t deadline = e->deadline;
    if (!p->ways[unit].fetched) {
        struct zinf_location where = zinf_tiers_param(p->tiers, unit, 0);
        uses_read(uses, e->param[unit]);
        return zinf_of(&where);
    }
    e->deadline = INHERITED;
    struct zinf_operand memory;
    struct ring *slots = &e->slots[param_slot_size(p, unit)];
    if (unit_has_own(p, unit)) {
        memory = zinf_at(own_slot(p, unit));
        if (!is_here(e, unit))
            fetch(e, unit, memory, e->own[unit]);
        uses_read(uses, e->own[unit]);
    } else {
        bool hit, certain = ring_holds(slots, slot_key(e, unit, false));
        uint32_t at = ring_find(e, slots, slot_key(e, unit, e->only_chosen && !certain), &hit);
        memory = zinf_in(slots->buffer[at], 0);
        if (!hit)
            fetch(e, unit, memory, slots->buffer[at]);
        uses_read(uses, slots->buffer[at]);
    }
    e->deadline = deadline;
    return memory;
}

void emit_own_slots(struct emitter *e)
{
    const struct setup *s = e->p->setup;
    for (uint32_t u = 0; u < s->n_units; u++) /* units of other ranks' stages are empty */
        if (e->p->ways[u].fetched && s->graph->units[u].n_tensors && unit_stays(e->p, u))
            fetch(e, u, zinf_at(own_slot(e->p, u)), e->own[u]);
}

bool emit_is_staged(const struct emitter *e, uint32_t unit)
{
    const uint32_t size = param_slot_size(e->p, unit);
    const uint64_t kept = param_stagings(e->p, &e->p->amounts, size);
    return e->staged_as[unit] && e->n_staged[size] - e->staged_as[unit] < kept;
}

/* The slot that the unit is in, if any. */
static bool find_slot(struct emitter *e, uint32_t unit, struct stop *slot)
{
    if (unit_has_own(e->p, unit)) {
        *slot = (struct stop){zinf_at(own_slot(e->p, unit)), e->own[unit], true};
        return true;
    }
    const struct ring *slots = &e->slots[param_slot_size(e->p, unit)];
    for (uint32_t i = 0; i < slots->n; i++)
        if (slots->buffer[i] != ZINF_NO_BUFFER &&
            slots->holds[i] == slot_key(e, unit, e->fetched[unit].maybe)) {
            *slot = (struct stop){zinf_in(slots->buffer[i], 0), slots->buffer[i], true};
            return true;
        }
    return false;
}

bool emit_fetched(struct emitter *e, uint32_t unit, struct stop *hand, enum portion *portion)
{
    const struct fetched *f = &e->fetched[unit];
    struct end end = way_fetch(&e->p->travel, &e->p->homes[unit]).by_cpu;
    if (e->code || !f->here || (f->maybe && f->range != e->range) || end.place == NOWHERE)
        return false;
    *portion = end.portion;
    if (end.place == PARAM_SLOT)
        return find_slot(e, unit, hand);
    *hand = (struct stop){zinf_in(e->staged[unit], 0), e->staged[unit], true};
    return emit_is_staged(e, unit);
}

void emit_fetch_unchosen(struct emitter *e, uint32_t unit)
{
    struct legs legs = way_fetch(&e->p->travel, &e->p->homes[unit]);
    struct trip t = trip_of_params(e, unit);
    struct stop hand;
    enum portion portion;
    if (t.home.tier != ZINF_TIER_DRIVE || !e->fetched[unit].maybe ||
        !emit_fetched(e, unit, &hand, &portion))
        return;
    t.is_fetch = true;
    t.stops[legs.leg[e->p->homes[unit].packed].to.place] = hand;
    e->flags |= OP_UNCHOSEN;
    emit_off_drive(e, &t, &legs);
    e->flags &= (uint16_t)~OP_UNCHOSEN;
}
