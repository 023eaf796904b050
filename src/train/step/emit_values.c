/*
 * emit_values: transfers of values between the device and the tier where they are kept between
 * forward and backward. Values that stay on the device have places of their own.
 */
#include "train/step/emit.h"

/* What may be kept elsewhere, of one micro-batch: a value, the gradient of a value, or data that a
 * stage keeps beside the value that it makes. */
struct thing {
    struct ring *slots;
    uint32_t value, number;
    int64_t micro;
    uint64_t bytes, bytes_before;
    uint16_t flags; /* of transfers: only the rows that a step's samples have are moved (batch.c) */
};

static struct thing value_of(struct emitter *e, uint32_t value, int64_t micro)
{
    const struct walk_value *v = &e->walk->values[value];
    return (struct thing){&e->xs, value, v->number, micro, v->bytes, v->bytes_before, OP_VALUE};
}

/* Its number is behind those of all values. */
static struct thing gradient_of(struct emitter *e, uint32_t value, int64_t micro)
{
    const struct walk *w = e->walk;
    const uint32_t place = w->values[value].place;
    const struct walk_place *at = &w->places[place];
    return (struct thing){
        &e->xs, value,     w->n_leaving + place,
        micro,  at->bytes, w->all_leaving_bytes + at->end_before + at->turn_before,
        0};
}

/* Its number is behind those of all gradients. */
static struct thing kept_of(struct emitter *e, uint32_t stage, int64_t micro)
{
    const struct walk *w = e->walk;
    const struct walk_stage *info = &w->stages[stage];
    return (struct thing){&e->kept,
                          w->graph->stages[stage].out.at[0],
                          w->n_leaving + w->n_places + info->keeper,
                          micro,
                          info->kept,
                          w->all_leaving_bytes + w->end_bytes + w->turn_bytes + info->kept_before,
                          0};
}

static uint64_t x_number(const struct emitter *e, const struct thing *t)
{
    uint64_t n = (uint64_t)e->p->itinerary.live;
    return (uint64_t)t->number * n + (uint64_t)t->micro % n;
}

/* Whether the value has a place of its own on the device for as long as it is needed. */
static bool stays(const struct emitter *e, uint32_t value)
{
    const struct plan *p = e->p;
    return !e->walk->values[value].leaves || !plan_values_leave(p);
}

static struct zinf_operand fixed(const struct emitter *e, uint32_t value, int64_t micro)
{
    const struct plan *p = e->p;
    const struct walk_value *v = &e->walk->values[value];
    uint64_t n = (uint64_t)p->itinerary.live, copy = (uint64_t)micro % n;
    uint64_t base = v->leaves ? p->at.d_x : p->at.d_staying;
    if (!has_backward(p->setup) && !plan_values_leave(p)) {
        const uint64_t before = (uint64_t)micro * e->walk->n_slots + v->slot;
        return zinf_at(device_at(p, p->at.d_x + before * e->walk->slot_bytes));
    }
    return zinf_at(device_at(p, base + n * v->bytes_before + copy * v->bytes));
}

static struct zinf_location location_of(const struct emitter *e, const struct thing *t)
{
    const struct plan *p = e->p;
    uint64_t n = (uint64_t)p->itinerary.live, offset = n * t->bytes_before;
    if (p->x_tier == ZINF_TIER_DRIVE)
        return (struct zinf_location){
            .tier = ZINF_TIER_DRIVE, .extent = p->x_extents[x_number(e, t)], .bytes = t->bytes};
    offset += (uint64_t)t->micro % n * t->bytes;
    return (struct zinf_location){
        .tier = ZINF_TIER_HOST, .memory = host_at(p, p->at.h_x + offset), .bytes = t->bytes};
}

static struct trip trip_of(const struct emitter *e, const struct thing *of, struct zinf_operand x)
{
    struct trip t = {.unit = of->value,
                     .is_value = true,
                     .flags = of->flags,
                     .home = location_of(e, of),
                     .whole_bytes = of->bytes};
    t.stops[VALUE_HOME] = (struct stop){zinf_of(&t.home), e->x[x_number(e, of)], true};
    t.stops[VALUE_SLOT] = (struct stop){x, zinf_operand_buffer(&x), true};
    return t;
}

/* Nothing moves of a chunk that nobody has rows of. */
static void emit_of_chunk(struct emitter *e, const struct thing *t, struct trip *trip,
                          const struct legs *legs)
{
    e->chunk = (int16_t)setup_chunk(e->p->setup, t->micro);
    emit_way(e, trip, legs);
    e->chunk = 0;
}

static struct zinf_operand make(struct emitter *e, const struct thing *t, struct uses *uses)
{
    bool hit;
    uint32_t at = ring_find(e, t->slots, x_number(e, t), &hit);
    uses_write(uses, t->slots->buffer[at]);
    return zinf_in(t->slots->buffer[at], 0);
}

static void send(struct emitter *e, const struct thing *t, struct zinf_operand x)
{
    struct legs legs = way_value_out(&e->p->travel, e->p->x_tier);
    struct trip trip = trip_of(e, t, x);
    uint32_t deadline = e->deadline;
    e->deadline = e->position + 2;
    emit_of_chunk(e, t, &trip, &legs);
    e->deadline = deadline;
}

static struct zinf_operand bring(struct emitter *e, const struct thing *t)
{
    bool hit;
    uint32_t at = ring_find(e, t->slots, x_number(e, t), &hit), deadline = e->deadline;
    struct zinf_operand x = zinf_in(t->slots->buffer[at], 0);
    if (hit)
        return x;
    struct legs legs = way_value_back(&e->p->travel, e->p->x_tier);
    struct trip trip = trip_of(e, t, x);
    e->deadline = INHERITED;
    emit_of_chunk(e, t, &trip, &legs);
    e->deadline = deadline;
    return x;
}

struct zinf_operand emit_value_new(struct emitter *e, uint32_t value, int64_t micro,
                                   struct uses *uses)
{
    const struct thing t = value_of(e, value, micro);
    return stays(e, value) ? fixed(e, value, micro) : make(e, &t, uses);
}

void emit_value_made(struct emitter *e, uint32_t value, int64_t micro, struct zinf_operand x)
{
    const struct thing t = value_of(e, value, micro);
    if (!stays(e, value))
        send(e, &t, x);
}

struct zinf_operand emit_value(struct emitter *e, uint32_t value, int64_t micro, struct uses *uses)
{
    const struct thing t = value_of(e, value, micro);
    if (stays(e, value))
        return fixed(e, value, micro);
    struct zinf_operand x = bring(e, &t);
    uses_read(uses, zinf_operand_buffer(&x));
    return x;
}

/* The memory in which the call uses it. */
static struct zinf_operand work_at(struct emitter *e, const struct thing *t, bool fresh,
                                   struct uses *uses)
{
    if (fresh)
        return make(e, t, uses);
    struct zinf_operand at = bring(e, t);
    uses_write(uses, zinf_operand_buffer(&at));
    return at;
}

struct zinf_operand emit_gradient(struct emitter *e, uint32_t value, int64_t micro, bool fresh,
                                  struct uses *uses)
{
    const struct thing t = gradient_of(e, value, micro);
    return work_at(e, &t, fresh, uses);
}

void emit_gradient_made(struct emitter *e, uint32_t value, int64_t micro, struct zinf_operand at)
{
    const struct thing t = gradient_of(e, value, micro);
    send(e, &t, at);
}

struct zinf_operand emit_kept(struct emitter *e, uint32_t stage, int64_t micro, bool fresh,
                              struct uses *uses)
{
    const struct thing t = kept_of(e, stage, micro);
    return work_at(e, &t, fresh, uses);
}

void emit_kept_made(struct emitter *e, uint32_t stage, int64_t micro, struct zinf_operand at)
{
    const struct thing t = kept_of(e, stage, micro);
    send(e, &t, at);
}

struct zinf_operand emit_kept_aside(struct emitter *e, struct uses *uses)
{
    bool hit;
    const uint32_t at = ring_find(e, &e->kept, UINT64_MAX - e->clock, &hit);
    uses_write(uses, e->kept.buffer[at]);
    return zinf_in(e->kept.buffer[at], 0);
}
