/*
 * emit_values: values between stages on their way to and from the tier where they live between
 * forward and backward. Those that stay on the device have places of their own.
 */
#include "train/step/emit.h"

static uint64_t x_number(const struct emitter *e, uint32_t value, int64_t micro)
{
    uint64_t n = (uint64_t)e->p->n_x_micros;
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
    uint64_t n = (uint64_t)p->n_x_micros, copy = (uint64_t)micro % n;
    uint64_t base = e->walk->graph->values[value].leaves ? p->at.d_x : p->at.d_staying;
    if (!has_backward(p->setup))
        return zinf_at(device_at(p, p->at.d_x + v->slot * e->walk->slot_bytes));
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
    uint64_t n = (uint64_t)p->n_x_micros, offset = n * v->bytes_before;
    if (p->x_tier == ZINF_TIER_DRIVE)
        return (struct zinf_location){.tier = ZINF_TIER_DRIVE,
                                      .extent = p->x_extents[x_number(e, value, micro)],
                                      .bytes = v->bytes};
    offset += (uint64_t)micro % n * v->bytes;
    return (struct zinf_location){
        .tier = ZINF_TIER_HOST, .memory = host_at(p, p->at.h_x + offset), .bytes = v->bytes};
}

/* Of transfers of a value only the rows that a step's samples have are made (lengths.c). */
static void copy_value(struct emitter *e, enum zinf_lane lane, uint32_t value,
                       struct zinf_operand to, struct zinf_operand from, const struct uses *uses)
{
    struct zinf_op op = {.lane = lane,
                         .kind = lane == ZINF_LANE_H2D ? OP_COPY_IN : OP_COPY_OUT,
                         .flags = OP_VALUE,
                         .unit = -1,
                         .arg = (int32_t)value,
                         .at = (struct zinf_operand[]){to, from},
                         .n_at = 2,
                         .bytes = e->walk->values[value].bytes};
    emit(e, &op, uses);
}

static void drive_value(struct emitter *e, enum zinf_lane lane, uint32_t value,
                        const struct zinf_location *where, struct zinf_operand memory,
                        const struct uses *uses)
{
    const uint16_t flags = e->flags;
    e->flags |= OP_VALUE;
    emit_drive(e, lane, -1, (int32_t)value, where, memory, uses);
    e->flags = flags;
}

void emit_value_made(struct emitter *e, uint32_t value, int64_t micro, struct zinf_operand x)
{
    struct plan *p = e->p;
    if (stays(e, value))
        return;
    zinf_resource there = e->x[x_number(e, value, micro)];
    struct zinf_location where = value_location(e, value, micro);
    struct uses out = {0}, written = {0};
    uint32_t deadline = e->deadline;
    e->deadline = e->position + 2;
    uses_read(&out, x.tenant - 1);
    if (where.tier == ZINF_TIER_HOST) {
        uses_write(&out, there);
        copy_value(e, ZINF_LANE_D2H, value, zinf_of(&where), x, &out);
    } else if (p->setup->direct) {
        uses_write(&out, there);
        drive_value(e, ZINF_LANE_WRITE, value, &where, x, &out);
    } else {
        zinf_buffer stage = emit_buffer(e, e->x_stages);
        uses_write(&out, stage);
        copy_value(e, ZINF_LANE_D2H, value, zinf_in(stage, 0), x, &out);
        uses_read(&written, stage);
        uses_write(&written, there);
        drive_value(e, ZINF_LANE_WRITE, value, &where, zinf_in(stage, 0), &written);
    }
    e->deadline = deadline;
}

/* Host or drive, through staging where the drive cannot reach the device, to slot x. */
static void bring_back(struct emitter *e, uint32_t value, int64_t micro, struct zinf_operand x)
{
    zinf_resource there = e->x[x_number(e, value, micro)];
    struct zinf_location where = value_location(e, value, micro);
    struct zinf_operand from = zinf_of(&where);
    struct uses in = {0}, read = {0};
    if (where.tier == ZINF_TIER_DRIVE && e->p->setup->direct) {
        uses_read(&read, there);
        uses_write(&read, x.tenant - 1);
        drive_value(e, ZINF_LANE_READ, value, &where, x, &read);
        return;
    }
    if (where.tier == ZINF_TIER_DRIVE) {
        zinf_buffer stage = emit_buffer(e, e->x_stages);
        from = zinf_in(stage, 0);
        uses_read(&read, there);
        uses_write(&read, stage);
        drive_value(e, ZINF_LANE_READ, value, &where, from, &read);
        uses_read(&in, stage);
    } else {
        uses_read(&in, there);
    }
    uses_write(&in, x.tenant - 1);
    copy_value(e, ZINF_LANE_H2D, value, x, from, &in);
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
    e->deadline = INHERITED;
    bring_back(e, value, micro, x);
    e->deadline = deadline;
    return x;
}
