/*
 * emit_update: the optimizer's part of programs, sub-group by sub-group. State and parameters are
 * updated where they are in RAM or on the device; from the drive they come into a tile, are
 * updated there, and go back. With two generations the new ones go beside the old; where steps
 * outlive the process, not before the record of the step before names the generation beside. Tiles
 * are taken in the order of the updates, so state may be read ahead of its gradient: an update
 * never waits for a tile that a later one holds.
 */
#include "train/step/emit.h"

/* State, parameters and gradient come into the slot; the first to come is the slot itself. */
#define MAX_PARTS 3

struct group {
    uint32_t number, unit;
    uint64_t n;
    struct zinf_location state[2], param[2]; /* now, and after the update */
    zinf_buffer tile;                        /* ZINF_NO_BUFFER: none is needed */
    bool tile_ready;                         /* something has been put there */
    zinf_resource parts[MAX_PARTS];          /* what else the update waits for */
    uint32_t n_parts;
    zinf_resource grad;
};

static struct group group_at(struct emitter *e, uint32_t number)
{
    struct plan *p = e->p;
    const struct zinf_layout_group *g = &p->setup->layout.groups[number];
    struct group group = {.number = number, .unit = g->unit, .n = g->n, .tile = ZINF_NO_BUFFER};
    for (uint8_t relative = 0; relative < 2; relative++) {
        group.state[relative] = zinf_tiers_group_state(p->tiers, number, relative);
        group.param[relative] = zinf_tiers_group_param(p->tiers, number, relative);
    }
    group.state[0].bytes -= durable_copy_bytes(p->setup, g->n); /* only ever written */
    return group;
}

/* Adds what an operation that fills a part of the tile uses: the first takes the tile. */
static struct zinf_operand into_tile(struct emitter *e, struct group *g, uint64_t offset,
                                     struct uses *uses)
{
    if (g->tile == ZINF_NO_BUFFER)
        g->tile = emit_buffer(e, e->tiles);
    if (!g->tile_ready) {
        uses_write(uses, g->tile);
        g->tile_ready = true;
    } else {
        uses_read(uses, g->tile);
        if (!e->code)
            e->code = zinf_program_resource(e->program, &g->parts[g->n_parts]);
        uses_write(uses, g->parts[g->n_parts++]);
    }
    return zinf_in(g->tile, offset);
}

static struct zinf_operand read_part(struct emitter *e, struct group *g,
                                     const struct zinf_location *where, uint64_t offset,
                                     zinf_resource source)
{
    struct uses uses = {0};
    struct zinf_operand memory = into_tile(e, g, offset, &uses);
    uses_read(&uses, source);
    emit_drive(e, ZINF_LANE_READ, (int32_t)g->unit, (int32_t)g->number, where, memory, &uses);
    return memory;
}

static const struct route *route(const struct emitter *e, const struct group *g)
{
    return &e->p->routes[g->unit];
}

/* The gradient was computed with the parameters: where they are still at hand they need not be read
 * again. */
static bool fetched_in(struct emitter *e, struct group *g, struct zinf_operand at[2])
{
    const struct zinf_layout *layout = &e->p->setup->layout;
    uint64_t first = layout->groups[g->number].first;
    bool eager = e->flags & OP_EAGER;
    if (!eager || route(e, g)->fetch != FETCH_FROM_DRIVE ||
        !emit_fetched(e, g->unit, &at[0], &g->parts[g->n_parts]))
        return false;
    g->n_parts++;
    if (!plan_stages_slices(e->p)) /* of the whole unit */
        first += layout->units[g->unit].slice_first;
    at[0] = zinf_beyond(at[0], first * zinf_dtype_bytes(e->p->setup->dtype));
    if (g->tile == ZINF_NO_BUFFER)
        g->tile = emit_buffer(e, e->tiles);
    at[1] = zinf_in(g->tile, 0);
    return true;
}

static void param_in(struct emitter *e, struct group *g, struct zinf_operand at[2])
{
    bool wanted = e->p->setup->form != ZINF_STATE_WHOLE;
    bool on_drive = route(e, g)->fetch == FETCH_FROM_DRIVE, far = route(e, g)->param_out_of_reach;
    struct uses uses = {0};
    for (int i = 0; i < 2; i++)
        at[i] = zinf_of(&g->param[i]);
    if (wanted && fetched_in(e, g, at))
        return;
    if (on_drive && wanted) {
        at[0] = at[1] = read_part(e, g, &g->param[0], 0, e->param[g->unit]);
    } else if (far && wanted) {
        struct zinf_operand memory = into_tile(e, g, 0, &uses);
        uses_read(&uses, e->param[g->unit]);
        emit_copy(e, ZINF_LANE_D2H, (int32_t)g->unit, memory, at[0], g->param[0].bytes, &uses);
        at[0] = at[1] = memory;
    } else if (on_drive || far) {
        if (g->tile == ZINF_NO_BUFFER)
            g->tile = emit_buffer(e, e->tiles);
        at[0] = at[1] = zinf_in(g->tile, 0);
    }
}

static void param_out(struct emitter *e, const struct group *g, struct zinf_operand from)
{
    struct uses uses = {0};
    if (g->tile != ZINF_NO_BUFFER)
        uses_read(&uses, g->tile);
    uses_read(&uses, e->done[g->unit]);
    uses_read(&uses, e->record);
    if (route(e, g)->fetch == FETCH_FROM_DRIVE)
        emit_drive(e, ZINF_LANE_WRITE, (int32_t)g->unit, (int32_t)g->number, &g->param[1], from,
                   &uses);
    else if (route(e, g)->param_out_of_reach)
        emit_copy(e, ZINF_LANE_H2D, (int32_t)g->unit, zinf_of(&g->param[1]), from,
                  g->param[1].bytes, &uses);
}

static void state_out(struct emitter *e, const struct group *g, struct zinf_operand from)
{
    struct uses uses = {0};
    if (g->state[1].tier != ZINF_TIER_DRIVE)
        return;
    uses_read(&uses, g->tile);
    uses_read(&uses, e->done[g->unit]);
    uses_read(&uses, e->record);
    emit_drive(e, ZINF_LANE_WRITE, (int32_t)g->unit, (int32_t)g->number, &g->state[1], from, &uses);
}

/* grad: this group's, in memory that the CPU can read. */
static void emit_group(struct emitter *e, struct group *g, struct zinf_operand grad)
{
    struct plan *p = e->p;
    struct zinf_operand state[2] = {zinf_of(&g->state[0]), zinf_of(&g->state[1])}, param[2];
    struct uses uses = {0};
    enum zinf_lane lane = route(e, g)->update_lane;
    if (g->state[0].tier == ZINF_TIER_DRIVE)
        state[0] = state[1] = read_part(e, g, &g->state[0], p->sizes.tile_state, e->done[g->unit]);
    param_in(e, g, param);
    struct zinf_op op = {
        .lane = lane,
        .kind = lane == ZINF_LANE_DEVICE && device_is_far(p->setup) ? OP_DEVICE_UPDATE : OP_UPDATE,
        .unit = (int32_t)g->unit,
        .arg = (int32_t)g->number,
        .at = (struct zinf_operand[]){state[0], state[1], param[0], param[1], grad},
        .n_at = 5,
        .bytes = 2 * (g->state[0].bytes + g->param[0].bytes) + g->n * sizeof(float)};
    op.flags = !(e->flags & OP_EAGER) && plan_keeps_chosen(p, g->unit) ? OP_KEPT : 0;
    uses_read(&uses, g->grad);
    for (uint32_t i = 0; i < g->n_parts; i++)
        uses_read(&uses, g->parts[i]);
    uses_read(&uses, e->done[g->unit]);
    if (g->tile != ZINF_NO_BUFFER)
        uses_write(&uses, g->tile);
    emit(e, &op, &uses);
    state_out(e, g, state[1]);
    param_out(e, g, param[1]);
}

void emit_update_eager(struct emitter *e, uint32_t unit, struct zinf_operand grad,
                       zinf_resource resource)
{
    const struct zinf_layout *layout = &e->p->setup->layout;
    const struct zinf_layout_unit *u = &layout->units[unit];
    uint32_t deadline = e->deadline;
    e->deadline = NEXT_STEP + unit;
    e->flags = OP_EAGER;
    if (e->p->setup->form != ZINF_STATE_WHOLE)
        emit_fetch_unchosen(e, unit);
    for (uint32_t i = u->first_group; i < u->first_group + u->n_groups; i++) {
        struct group g = group_at(e, i);
        g.grad = resource;
        emit_group(e, &g, zinf_beyond(grad, layout->groups[i].first * sizeof(float)));
    }
    e->flags = 0;
    emit_spread(e, unit);
    e->deadline = deadline;
}

static void emit_flip(struct emitter *e, uint32_t unit)
{
    struct zinf_op op = {.lane = ZINF_LANE_HOST, .kind = OP_FLIP, .unit = (int32_t)unit};
    struct uses uses = {0};
    uses_write(&uses, e->done[unit]);
    uses_write(&uses, e->param[unit]);
    uses_read(&uses, e->record);
    emit(e, &op, &uses);
}

/* A kept gradient that the CPU cannot reach comes through the tile. */
static struct zinf_operand late_grad(struct emitter *e, struct group *g)
{
    struct plan *p = e->p;
    struct zinf_location where = zinf_tiers_group_grad(p->tiers, g->number);
    struct zinf_operand grad = zinf_of(&where), copy;
    struct uses uses = {0};
    bool on_drive = route(e, g)->gradient == GRADIENT_SUM_ON_DRIVE;
    g->grad = e->grad[g->unit];
    if (!on_drive && !route(e, g)->grad_out_of_reach)
        return grad;
    if (on_drive) {
        e->flags |= plan_keeps_chosen(p, g->unit) ? OP_KEPT : 0;
        copy = read_part(e, g, &where, p->sizes.tile_grad, g->grad);
        e->flags &= (uint16_t)~OP_KEPT;
    } else {
        copy = into_tile(e, g, p->sizes.tile_grad, &uses);
        uses_read(&uses, g->grad);
        emit_copy(e, ZINF_LANE_D2H, (int32_t)g->unit, copy, grad, where.bytes, &uses);
    }
    g->grad = g->tile;
    return copy;
}

void emit_update_late(struct emitter *e, uint32_t unit)
{
    struct plan *p = e->p;
    const struct zinf_layout_unit *u = &p->setup->layout.units[unit];
    uint32_t deadline = e->deadline;
    e->deadline = INHERITED - 1;
    e->flags = OP_DEFERRED;
    for (uint32_t i = u->first_group; i < u->first_group + u->n_groups; i++) {
        struct group g = group_at(e, i);
        struct zinf_operand grad = late_grad(e, &g);
        emit_group(e, &g, grad);
    }
    emit_spread(e, unit);
    emit_flip(e, unit);
    e->flags = 0;
    e->deadline = deadline;
}

void emit_commit(struct emitter *e)
{
    struct zinf_op op = {
        .lane = ZINF_LANE_HOST, .kind = OP_COMMIT, .unit = -1, .bytes = DURABLE_SCALARS_BYTES};
    struct uses uses = {0};
    uint32_t deadline = e->deadline;
    if (!e->p->setup->durable)
        return;
    uses_write(&uses, e->record);
    e->deadline = NEXT_STEP - 1; /* late updates stay in the order of the forward */
    emit(e, &op, &uses);
    op.lane = ZINF_LANE_NET;
    op.kind = OP_MEET;
    op.bytes = 0;
    if (e->p->setup->mesh.all)
        emit(e, &op, &uses);
    e->deadline = deadline;
}
