/*
 * emit_grad: a unit's gradient from where it is computed to its sum, its norm and its update. A
 * unit has one contribution a micro-batch, or fewer where micro-batches run together; they are
 * added in fp32 in the same order wherever the sum lives. A sum of several is made in the unit's
 * kept place; a single one is used from where it is.
 */
#include "train/step/emit.h"

/* Of the rank's slice: of what is computed, which is always the whole unit's, no more is copied,
 * added and kept. */
static uint64_t grad_bytes(const struct emitter *e, uint32_t unit)
{
    return e->p->setup->layout.units[unit].slice_elems * sizeof(float);
}

/* Of what is added up before ranks share it: all of the unit. */
static uint64_t part_bytes(const struct emitter *e, uint32_t unit)
{
    const struct zinf_layout_unit *u = &e->p->setup->layout.units[unit];
    return (data_axis(e->p->setup)->net ? u->padded_elems : u->slice_elems) * sizeof(float);
}

static struct zinf_operand slice_of(const struct emitter *e, uint32_t unit,
                                    struct zinf_operand whole)
{
    return zinf_beyond(whole, e->p->setup->layout.units[unit].slice_first * sizeof(float));
}

/* Updated as soon as it is complete. */
static bool is_eager(const struct emitter *e, uint32_t unit)
{
    return e->speculates && e->p->routes[unit].eager && !e->p->deferred[unit];
}

/* A slot for the unit's gradient. */
static zinf_resource grad_slot(struct emitter *e, uint32_t unit)
{
    return emit_buffer(e, e->walk->units[unit].beside ? e->beside_grads : e->grads);
}

struct made_grad emit_grad_part(struct emitter *e, uint32_t unit, struct uses *uses)
{
    struct made_grad g = {.resource = grad_slot(e, unit)};
    g.at = zinf_in(g.resource, 0);
    uses_write(uses, g.resource);
    return g;
}

struct made_grad emit_grad_target(struct emitter *e, uint32_t unit, struct uses *uses)
{
    struct plan *p = e->p;
    if (p->routes[unit].grad_in_place && e->grads_seen[unit] == 0) {
        struct zinf_location where = zinf_tiers_unit_grad(p->tiers, unit);
        struct made_grad g = {.at = zinf_of(&where), .resource = e->grad[unit], .is_sum = true};
        uses_write(uses, g.resource);
        return g;
    }
    return emit_grad_part(e, unit, uses);
}

static void emit_add(struct emitter *e, uint32_t unit, enum zinf_lane lane,
                     const struct made_grad *sum, const struct made_grad *part, uint64_t bytes)
{
    bool far = lane == ZINF_LANE_DEVICE && device_is_far(e->p->setup);
    struct zinf_op op = {.lane = lane,
                         .kind = far ? OP_DEVICE_ADD : OP_GRAD_ADD,
                         .unit = (int32_t)unit,
                         .at = (struct zinf_operand[]){sum->at, part->at},
                         .n_at = 2,
                         .bytes = bytes};
    struct uses uses = {0};
    uses_read(&uses, part->resource);
    uses_write(&uses, sum->resource);
    emit(e, &op, &uses);
}

void emit_grad_join(struct emitter *e, uint32_t unit, struct made_grad sum, struct made_grad part)
{
    if (!data_axis(e->p->setup)->net) {
        sum.at = slice_of(e, unit, sum.at);
        part.at = slice_of(e, unit, part.at);
    }
    emit_add(e, unit, ZINF_LANE_DEVICE, &sum, &part, part_bytes(e, unit));
}

/* On a device that the CPU cannot read: parts of the sum there, the sum of parts on the CPU. */
static void emit_norm_of_parts(struct emitter *e, uint32_t unit, struct zinf_operand grad,
                               zinf_resource resource)
{
    struct plan *p = e->p;
    uint64_t first = first_square(p, unit) * sizeof(double);
    uint64_t bytes = p->setup->layout.units[unit].slice_elems / ZINF_SUM_BLOCK * sizeof(double);
    struct zinf_operand parts = zinf_at(device_at(p, p->at.d_squares + first));
    struct zinf_operand on_host = zinf_at(host_at(p, p->at.h_squares + first));
    struct zinf_op squares = {.lane = ZINF_LANE_DEVICE,
                              .kind = OP_SQUARES,
                              .unit = (int32_t)unit,
                              .at = (struct zinf_operand[]){parts, grad},
                              .n_at = 2,
                              .bytes = grad_bytes(e, unit)};
    struct zinf_op fold = {.lane = ZINF_LANE_HOST,
                           .kind = OP_NORM_PART,
                           .unit = (int32_t)unit,
                           .arg = 1,
                           .at = &on_host,
                           .n_at = 1,
                           .bytes = bytes};
    struct uses made = {0}, copied = {0}, folded = {0};
    zinf_resource there = 0, here = 0;
    if (!e->code && !(e->code = zinf_program_resource(e->program, &there)))
        e->code = zinf_program_resource(e->program, &here);
    uses_read(&made, resource);
    uses_write(&made, there);
    emit(e, &squares, &made);
    uses_read(&copied, there);
    uses_write(&copied, here);
    emit_copy(e, ZINF_LANE_D2H, (int32_t)unit, on_host, parts, bytes, &copied);
    uses_read(&folded, here);
    emit(e, &fold, &folded);
}

static void emit_norm(struct emitter *e, uint32_t unit, enum zinf_lane lane,
                      struct zinf_operand grad, zinf_resource resource)
{
    if (lane == ZINF_LANE_DEVICE && e->p->routes[unit].norm == NORM_BY_DEVICE) {
        emit_norm_of_parts(e, unit, grad, resource);
        return;
    }
    struct zinf_op op = {.lane = lane,
                         .kind = OP_NORM_PART,
                         .unit = (int32_t)unit,
                         .at = &grad,
                         .n_at = 1,
                         .bytes = grad_bytes(e, unit)};
    struct uses uses = {0};
    uses_read(&uses, resource);
    emit(e, &op, &uses);
}

static void copy(struct emitter *e, uint32_t unit, enum zinf_lane lane, const struct made_grad *to,
                 const struct made_grad *from, uint64_t bytes)
{
    struct uses uses = {0};
    uses_read(&uses, from->resource);
    uses_write(&uses, to->resource);
    emit_copy(e, lane, (int32_t)unit, to->at, from->at, bytes, &uses);
}

/* Zeros of a unit that no row chose are not written: the update knows of them. */
static void to_drive(struct emitter *e, uint32_t unit, const struct made_grad *from)
{
    struct zinf_location where = zinf_tiers_unit_grad(e->p->tiers, unit);
    struct uses uses = {0};
    uses_read(&uses, from->resource);
    uses_write(&uses, e->grad[unit]);
    e->flags |= plan_keeps_chosen(e->p, unit) ? OP_CHOSEN : 0;
    emit_drive(e, ZINF_LANE_WRITE, (int32_t)unit, 0, &where, from->at, &uses);
    e->flags &= (uint16_t)~OP_CHOSEN;
}

static struct made_grad from_drive(struct emitter *e, uint32_t unit)
{
    struct zinf_location where = zinf_tiers_unit_grad(e->p->tiers, unit);
    struct made_grad sum = {.resource = emit_buffer(e, e->host_grads)};
    struct uses uses = {0};
    sum.at = zinf_in(sum.resource, 0);
    uses_read(&uses, e->grad[unit]);
    uses_write(&uses, sum.resource);
    emit_drive(e, ZINF_LANE_READ, (int32_t)unit, 0, &where, sum.at, &uses);
    return sum;
}

/* Where the CPU and the drive can read a gradient: itself, or a copy in host memory. */
static struct made_grad bytes_on_host(struct emitter *e, uint32_t unit, struct made_grad g,
                                      uint64_t bytes)
{
    if (e->p->setup->direct || g.on_host)
        return g;
    struct made_grad there = {.resource = emit_buffer(e, e->host_grads), .on_host = true};
    there.at = zinf_in(there.resource, 0);
    copy(e, unit, ZINF_LANE_D2H, &there, &g, bytes);
    return there;
}

static struct made_grad on_host(struct emitter *e, uint32_t unit, struct made_grad g)
{
    return bytes_on_host(e, unit, g, grad_bytes(e, unit));
}

/* Back to a device that the CPU cannot reach, where sums are kept. */
static struct made_grad on_device(struct emitter *e, uint32_t unit, struct made_grad g)
{
    if (e->p->setup->direct || !g.on_host)
        return g;
    struct made_grad there = {.resource = grad_slot(e, unit)};
    there.at = zinf_in(there.resource, 0);
    copy(e, unit, ZINF_LANE_H2D, &there, &g, grad_bytes(e, unit));
    return there;
}

static struct made_grad kept(const struct emitter *e, uint32_t unit)
{
    struct zinf_location where = zinf_tiers_unit_grad(e->p->tiers, unit);
    return (struct made_grad){.at = zinf_of(&where), .resource = e->grad[unit], .is_sum = true};
}

/* The sum is complete: in its kept place if is_sum, else in a buffer that CPU and drive can read.
 */
static void complete(struct emitter *e, uint32_t unit, struct made_grad g)
{
    struct plan *p = e->p;
    enum gradient_way way = p->routes[unit].gradient;
    bool eager = is_eager(e, unit), device = g.is_sum && way == GRADIENT_SUM_ON_DEVICE;
    if (!g.is_sum && !eager && way == GRADIENT_SUM_ON_HOST) {
        struct made_grad place = kept(e, unit);
        copy(e, unit, ZINF_LANE_D2H, &place, &g, grad_bytes(e, unit));
        if (!p->setup->direct)
            g = place;
    } else if (!g.is_sum && !eager && way == GRADIENT_SUM_ON_DRIVE) {
        to_drive(e, unit, &g);
    }
    emit_norm(e, unit, device ? ZINF_LANE_DEVICE : ZINF_LANE_HOST, g.at, g.resource);
    if (!eager)
        return;
    if (device)
        g = on_host(e, unit, g);
    emit_update_eager(e, unit, g.at, g.resource);
}

/* The first is there already if it was computed in place. */
static void add_on_device(struct emitter *e, uint32_t unit, struct made_grad g, bool first)
{
    struct made_grad sum = kept(e, unit);
    if (g.is_sum)
        return;
    if (!first) {
        emit_add(e, unit, ZINF_LANE_DEVICE, &sum, &g, grad_bytes(e, unit));
        return;
    }
    struct zinf_op op = {.lane = ZINF_LANE_DEVICE,
                         .kind = OP_DEVICE_COPY,
                         .unit = (int32_t)unit,
                         .at = (struct zinf_operand[]){sum.at, g.at},
                         .n_at = 2,
                         .bytes = grad_bytes(e, unit)};
    struct uses uses = {0};
    uses_read(&uses, g.resource);
    uses_write(&uses, sum.resource);
    emit(e, &op, &uses);
}

/* By the GPU: the sum comes to it, and goes back. */
static void add_to_host_there(struct emitter *e, uint32_t unit, struct made_grad g)
{
    struct made_grad sum = kept(e, unit), there = {.resource = grad_slot(e, unit)};
    uint32_t deadline = e->deadline;
    there.at = zinf_in(there.resource, 0);
    e->deadline = e->position; /* two slots are not free before */
    copy(e, unit, ZINF_LANE_H2D, &there, &sum, grad_bytes(e, unit));
    emit_add(e, unit, ZINF_LANE_DEVICE, &there, &g, grad_bytes(e, unit));
    e->deadline = deadline;
    copy(e, unit, ZINF_LANE_D2H, &sum, &there, grad_bytes(e, unit));
}

static void add_to_host(struct emitter *e, uint32_t unit, struct made_grad g, bool first)
{
    struct made_grad sum = kept(e, unit);
    if (g.is_sum)
        return;
    if (!first && e->p->variant.device_adds && !e->p->setup->direct && !g.on_host) {
        add_to_host_there(e, unit, g);
        return;
    }
    if (first) {
        copy(e, unit, ZINF_LANE_D2H, &sum, &g, grad_bytes(e, unit));
        return;
    }
    g = on_host(e, unit, g);
    emit_add(e, unit, ZINF_LANE_HOST, &sum, &g, grad_bytes(e, unit));
}

/* On the drive a sum is read, added to and written back; the first is only written, the last only
 * read. */
static struct made_grad add_to_drive(struct emitter *e, uint32_t unit, struct made_grad g,
                                     bool first, bool last)
{
    struct made_grad sum = first ? (struct made_grad){0} : from_drive(e, unit);
    g = on_host(e, unit, g);
    if (!first)
        emit_add(e, unit, ZINF_LANE_HOST, &sum, &g, grad_bytes(e, unit));
    else
        sum = g;
    if (!last)
        to_drive(e, unit, &sum);
    return sum;
}

/* One contribution alone: kept, or used from where the CPU can read it. */
static void complete_at_once(struct emitter *e, uint32_t unit, struct made_grad g)
{
    bool copied = e->p->routes[unit].gradient == GRADIENT_SUM_ON_HOST && !e->p->setup->direct &&
                  !is_eager(e, unit);
    complete(e, unit, copied ? g : on_host(e, unit, g));
}

/* What this rank keeps of a contribution: its slice, of all ranks' sum. */
static struct made_grad slice_made(struct emitter *e, uint32_t unit, struct made_grad g, bool first,
                                   bool last)
{
    struct made_grad place = kept(e, unit);
    bool to_place = first && e->p->routes[unit].gradient == GRADIENT_SUM_ON_HOST &&
                    !(last && is_eager(e, unit)) && !e->p->variant.by_link;
    if (!data_axis(e->p->setup)->net) {
        if (!g.is_sum)
            g.at = slice_of(e, unit, g.at);
        return g;
    }
    if (!e->p->variant.by_link)
        g = bytes_on_host(e, unit, g, part_bytes(e, unit));
    return emit_scatter(e, unit, g, to_place ? &place : NULL);
}

void emit_grad_made(struct emitter *e, uint32_t unit, struct made_grad g)
{
    enum gradient_way way = e->p->routes[unit].gradient;
    bool first = e->grads_seen[unit]++ == 0;
    bool last = e->grads_seen[unit] == e->grads_total[unit];
    uint32_t deadline = e->deadline;
    e->deadline = e->position + 2;
    g = slice_made(e, unit, g, first, last);
    if (way == GRADIENT_SUM_ON_DEVICE) {
        add_on_device(e, unit, on_device(e, unit, g), first);
        if (last)
            complete(e, unit, kept(e, unit));
    } else if (first && last) {
        complete_at_once(e, unit, g);
    } else if (way == GRADIENT_SUM_ON_DRIVE) {
        struct made_grad sum = add_to_drive(e, unit, g, first, last);
        if (last)
            complete(e, unit, sum);
    } else {
        add_to_host(e, unit, g, first);
        if (last)
            complete(e, unit, kept(e, unit));
    }
    e->deadline = deadline;
}
