/*
 * emit_fetch: parameters on their way to the device: into a slot of their own, or into one of those
 * that are used in turn. What is there already is used again, unless it may have been left out: a
 * unit that rows choose among is then fetched anew for every range of micro-batches.
 */
#include "train/step/emit.h"

/* From the model's folder: what its files have, then the unit put together of it at memory. */
static void read_files(struct emitter *e, uint32_t unit, const struct zinf_location *where,
                       struct zinf_operand memory, zinf_resource target)
{
    zinf_buffer files = emit_buffer(e, e->files);
    struct uses read = {0}, made = {0};
    emit_choice_awaits(e, unit, &read);
    emit_choice_awaits(e, unit, &made);
    uses_read(&read, e->param[unit]);
    uses_write(&read, files);
    emit_drive(e, ZINF_LANE_READ, (int32_t)unit, 0, where, zinf_in(files, 0), &read);
    uses_read(&made, files);
    uses_write(&made, target);
    struct zinf_op op = {.lane = ZINF_LANE_HOST,
                         .kind = OP_ASSEMBLE,
                         .unit = (int32_t)unit,
                         .at = (struct zinf_operand[]){memory, zinf_in(files, 0)},
                         .n_at = 2,
                         .bytes = where->bytes};
    emit(e, &op, &made);
}

/* Into memory that the drive, or the CPU, writes itself. */
static void read_in(struct emitter *e, uint32_t unit, const struct zinf_location *where,
                    struct zinf_operand memory, zinf_resource target)
{
    struct uses read = {0};
    if (e->p->routes[unit].in_files) {
        read_files(e, unit, where, memory, target);
        return;
    }
    emit_choice_awaits(e, unit, &read);
    uses_read(&read, e->param[unit]);
    uses_write(&read, target);
    emit_drive(e, ZINF_LANE_READ, (int32_t)unit, 0, where, memory, &read);
}

/* Drive to staging to device, or host to device, or drive to device. */
static void copy_in(struct emitter *e, uint32_t unit, struct zinf_operand memory,
                    zinf_resource target)
{
    struct zinf_location where = zinf_tiers_param(e->p->tiers, unit, 0);
    struct zinf_operand from = zinf_of(&where);
    const struct setup *setup = e->p->setup;
    struct uses copied = {0};
    if (where.tier == ZINF_TIER_DRIVE && setup->direct) {
        read_in(e, unit, &where, memory, target);
        return;
    }
    emit_choice_awaits(e, unit, &copied);
    if (where.tier == ZINF_TIER_DRIVE) {
        zinf_buffer stage = emit_buffer(e, e->stages);
        from = zinf_in(stage, 0);
        e->staged[unit] = stage;
        e->staged_as[unit] = ++e->n_staged;
        read_in(e, unit, &where, from, stage);
        uses_read(&copied, stage);
    } else {
        uses_read(&copied, e->param[unit]);
    }
    uses_write(&copied, target);
    emit_copy(e, ZINF_LANE_H2D, (int32_t)unit, memory, from,
              zinf_layout_unit_bytes(&setup->layout, unit, setup->dtype), &copied);
}

static void fetch(struct emitter *e, uint32_t unit, struct zinf_operand memory,
                  zinf_resource target)
{
    e->flags |= e->only_chosen ? OP_CHOSEN : 0;
    if (e->p->routes[unit].gathered)
        emit_gather(e, unit, memory, target);
    else
        copy_in(e, unit, memory, target);
    e->flags &= (uint16_t)~OP_CHOSEN;
    e->fetched[unit] = (struct fetched){true, e->only_chosen, e->range};
}

static char *own_slot(const struct plan *p, uint32_t unit)
{
    return device_at(p, p->at.d_own + unit_own_offset(p, unit));
}

/* What a slot holds that holds the unit for certain; or only in this range, if it was chosen. */
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

/* What is in its own slot may be used now. */
static bool is_here(const struct emitter *e, uint32_t unit)
{
    const struct fetched *f = &e->fetched[unit];
    return f->here && (!f->maybe || (e->only_chosen && f->range == e->range));
}

struct zinf_operand emit_fetch(struct emitter *e, uint32_t unit, struct uses *uses)
{
    struct plan *p = e->p;
    uint32_t deadline = e->deadline;
    if (p->routes[unit].fetch == FETCH_STAYS) {
        struct zinf_location where = zinf_tiers_param(p->tiers, unit, 0);
        uses_read(uses, e->param[unit]);
        return zinf_of(&where);
    }
    e->deadline = INHERITED;
    struct zinf_operand memory;
    if (unit_has_own(p, unit)) {
        memory = zinf_at(own_slot(p, unit));
        if (!is_here(e, unit))
            fetch(e, unit, memory, e->own[unit]);
        uses_read(uses, e->own[unit]);
    } else {
        bool hit, certain = ring_holds(&e->slots, slot_key(e, unit, false));
        uint32_t at = ring_find(e, &e->slots, slot_key(e, unit, e->only_chosen && !certain), &hit);
        memory = zinf_in(e->slots.buffer[at], 0);
        if (!hit)
            fetch(e, unit, memory, e->slots.buffer[at]);
        uses_read(uses, e->slots.buffer[at]);
    }
    e->deadline = deadline;
    return memory;
}

void emit_own_slots(struct emitter *e)
{
    for (uint32_t u = 0; u < e->p->setup->n_units; u++)
        if (e->p->routes[u].fetch != FETCH_STAYS && unit_has_own(e->p, u))
            fetch(e, u, zinf_at(own_slot(e->p, u)), e->own[u]);
}

static bool is_staged(const struct emitter *e, uint32_t unit)
{
    return e->staged_as[unit] && e->n_staged - e->staged_as[unit] < e->slots.n;
}

bool emit_fetched(struct emitter *e, uint32_t unit, struct zinf_operand *memory,
                  zinf_resource *resource)
{
    const struct plan *p = e->p;
    const struct fetched *f = &e->fetched[unit];
    if (e->code || !f->here || (f->maybe && f->range != e->range))
        return false;
    if (!p->setup->direct) {
        *resource = e->staged[unit];
        *memory = zinf_in(*resource, 0);
        return is_staged(e, unit);
    }
    if (unit_has_own(p, unit)) {
        *resource = e->own[unit];
        *memory = zinf_at(own_slot(p, unit));
        return true;
    }
    for (uint32_t i = 0; i < e->slots.n; i++)
        if (e->slots.buffer[i] != ZINF_NO_BUFFER &&
            e->slots.holds[i] == slot_key(e, unit, f->maybe)) {
            *resource = e->slots.buffer[i];
            *memory = zinf_in(*resource, 0);
            return true;
        }
    return false;
}

void emit_fetch_unchosen(struct emitter *e, uint32_t unit)
{
    struct zinf_location where = zinf_tiers_param(e->p->tiers, unit, 0);
    struct zinf_operand memory;
    zinf_resource resource;
    struct uses uses = {0};
    if (where.tier != ZINF_TIER_DRIVE || !e->fetched[unit].maybe ||
        !emit_fetched(e, unit, &memory, &resource))
        return;
    if (e->p->setup->sliced && !plan_stages_slices(e->p))
        memory = zinf_beyond(memory,
                             zinf_layout_slice_at(&e->p->setup->layout, unit, e->p->setup->dtype));
    e->flags |= OP_UNCHOSEN;
    emit_choice_awaits(e, unit, &uses);
    uses_read(&uses, e->param[unit]);
    uses_write(&uses, resource);
    emit_drive(e, ZINF_LANE_READ, (int32_t)unit, 0, &where, memory, &uses);
    e->flags &= (uint16_t)~OP_UNCHOSEN;
}
