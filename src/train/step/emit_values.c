/*
 * emit_values: values between stages on their way to and from the tier where they live between
 * forward and backward. Those that stay on the device have places of their own.
 */
#include "train/step/emit.h"

static uint64_t x_number(const struct emitter *e, uint32_t value, int64_t micro)
{
    uint64_t n = (uint64_t)e->p->itinerary.live;
    return (uint64_t)e->walk->values[value].number * n + (uint64_t)micro % n;
}

/* On the device, in a place of its own, as long as anything needs it. */
static bool stays(const struct emitter *e, uint32_t value)
{
    const struct plan *p = e->p;
    return !e->walk->graph->values[value].leaves || p->x_tier == ZINF_TIER_DEVICE ||
           !has_backward(p->setup);
}

static struct zinf_operand fixed(const struct emitter *e, uint32_t value, int64_t micro)
{
    const struct plan *p = e->p;
    const struct walk_value *v = &e->walk->values[value];
    uint64_t n = (uint64_t)p->itinerary.live, copy = (uint64_t)micro % n;
    uint64_t base = e->walk->graph->values[value].leaves ? p->at.d_x : p->at.d_staying;
    if (!has_backward(p->setup)) {
        const uint64_t before = (uint64_t)micro * e->walk->n_slots + v->slot;
        return zinf_at(device_at(p, p->at.d_x + before * e->walk->slot_bytes));
    }
    return zinf_at(device_at(p, base + n * v->bytes_before + copy * v->bytes));
}

struct zinf_operand emit_value_new(struct emitter *e, uint32_t value, int64_t micro,
                                   struct uses *uses)
{
    bool hit;
    if (stays(e, value))
        return fixed(e, value, micro);
    uint32_t at = ring_find(e, &e->xs, x_number(e, value, micro), &hit);
    uses_write(uses, e->xs.buffer[at]);
    return zinf_in(e->xs.buffer[at], 0);
}

static struct zinf_location value_location(const struct emitter *e, uint32_t value, int64_t micro)
{
    const struct plan *p = e->p;
    const struct walk_value *v = &e->walk->values[value];
    uint64_t n = (uint64_t)p->itinerary.live, offset = n * v->bytes_before;
    if (p->x_tier == ZINF_TIER_DRIVE)
        return (struct zinf_location){.tier = ZINF_TIER_DRIVE,
                                      .extent = p->x_extents[x_number(e, value, micro)],
                                      .bytes = v->bytes};
    offset += (uint64_t)micro % n * v->bytes;
    return (struct zinf_location){
        .tier = ZINF_TIER_HOST, .memory = host_at(p, p->at.h_x + offset), .bytes = v->bytes};
}

/* Of transfers of a value only the rows that a step's samples have are made (batch.c). */
static struct trip trip_of_value(const struct emitter *e, uint32_t value, int64_t micro,
                                 struct zinf_operand x)
{
    struct trip t = {.unit = value,
                     .is_value = true,
                     .flags = OP_VALUE,
                     .home = value_location(e, value, micro),
                     .whole_bytes = e->walk->values[value].bytes};
    t.stops[VALUE_HOME] = (struct stop){zinf_of(&t.home), e->x[x_number(e, value, micro)], true};
    t.stops[VALUE_SLOT] = (struct stop){x, zinf_operand_buffer(&x), true};
    return t;
}

void emit_value_made(struct emitter *e, uint32_t value, int64_t micro, struct zinf_operand x)
{
    if (stays(e, value))
        return;
    struct legs legs = way_value_out(&e->p->travel, e->p->x_tier);
    struct trip t = trip_of_value(e, value, micro, x);
    uint32_t deadline = e->deadline;
    e->deadline = e->position + 2;
    emit_way(e, &t, &legs);
    e->deadline = deadline;
}

struct zinf_operand emit_value(struct emitter *e, uint32_t value, int64_t micro, struct uses *uses)
{
    bool hit;
    if (stays(e, value))
        return fixed(e, value, micro);
    uint32_t at = ring_find(e, &e->xs, x_number(e, value, micro), &hit), deadline = e->deadline;
    struct zinf_operand x = zinf_in(e->xs.buffer[at], 0);
    uses_read(uses, e->xs.buffer[at]);
    if (hit)
        return x;
    struct legs legs = way_value_back(&e->p->travel, e->p->x_tier);
    struct trip t = trip_of_value(e, value, micro, x);
    e->deadline = INHERITED;
    emit_way(e, &t, &legs);
    e->deadline = deadline;
    return x;
}
