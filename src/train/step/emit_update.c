/*
 * emit_update: the optimizer's part of programs, sub-group by sub-group. State and parameters are
 * updated where they are in RAM or on the device; from the drive they come into a tile, are
 * updated there, and go back. With two generations the new ones go beside the old; where steps
 * outlive the process, not before the record of the step before names the generation beside. Tiles
 * are taken in the order of the updates, so state may be read ahead of its gradient: an update
 * never waits for a tile that a later one holds.
 */
#include "train/rules/rules.h"
#include "train/step/emit.h"

/* The operations that bring state, parameters and gradient into the slot; the first also takes the
 * slot. */
#define MAX_PARTS 3
#define MOST_OPERANDS 6 /* of an update, by op.h */

struct group {
    uint32_t number, unit;
    uint64_t n;
    struct zinf_location state[2], param[2]; /* now, and after the update */
    /* the state's part behind the head, which follows it in the tile; and that of parameters: */
    struct zinf_location tail;
    struct zinf_location param_tail[2]; /* now, and after the update */
    struct zinf_location grad_home;
    zinf_buffer tile;               /* ZINF_NO_BUFFER: no tile is needed */
    bool tile_ready;                /* something is in it already */
    zinf_resource parts[MAX_PARTS]; /* other resources that the update waits for */
    uint32_t n_parts;
    zinf_resource grad;
    /* buffer of the unit's parameters from which an image is made; ZINF_NO_BUFFER: none */
    zinf_buffer updated;
};

static struct group group_at(struct emitter *e, uint32_t number)
{
    struct plan *p = e->p;
    const struct zinf_layout_group *g = &p->setup->layout.groups[number];
    struct group group = {.number = number, .unit = g->unit, .n = g->n, .tile = ZINF_NO_BUFFER};
    for (uint8_t relative = 0; relative < 2; relative++) {
        group.state[relative] = zinf_tiers_group_state(p->tiers, number, relative);
        group.param[relative] = zinf_tiers_group_param(p->tiers, number, relative);
        group.param_tail[relative] = zinf_tiers_group_param_tail(p->tiers, number, relative);
    }
    group.tail = zinf_tiers_group_tail(p->tiers, number);
    group.grad_home = zinf_tiers_group_grad(p->tiers, number);
    /* the copy of parameters is only written */
    group.state[0].bytes -= durable_copy_bytes(p->setup, g->n);
    return group;
}

/* Adds the resources of an operation that fills a part of the tile; the first one takes the tile.
 */
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

/* Offset of a place in the tile. */
static uint64_t tile_at(const struct plan *p, enum waypoint place)
{
    return place == STATE_TILE ? p->sizes.tile_state : place == GRAD_TILE ? p->sizes.tile_grad : 0;
}

/* Flag of an operation with packed state or parameters on the drive. */
static uint16_t packed_flag(const struct emitter *e, const struct group *g, bool state, bool param)
{
    const struct rule_thing t = {e->p->setup, ZINF_PACKABLE_STATE, g->number, false};
    const struct zinf_home *home = &e->p->homes[g->unit];
    return (uint16_t)((state && rule_packs(&t) ? OP_PACKED : 0) |
                      (param && (home->packed || home->packs_copy || home->param_headed) ? OP_PARAM
                                                                                         : 0));
}

/* Flag of an operation with a packed gradient from its home. */
static uint16_t grad_flag(const struct emitter *e, const struct group *g, bool kept)
{
    return kept && e->p->homes[g->unit].packs_grad ? OP_GRAD : 0;
}

/* Moves a part between its home and memory that the CPU can read, as the leg says. */
static void emit_part(struct emitter *e, const struct group *g, const struct leg *leg,
                      const struct zinf_location *home, struct zinf_operand memory,
                      const struct uses *uses)
{
    const bool from_home = leg->lane == ZINF_LANE_READ || leg->lane == ZINF_LANE_D2H;
    const struct drive_transfer transfer = {.lane = leg->lane,
                                            .unit = (int32_t)g->unit,
                                            .group = (int32_t)g->number,
                                            .where = home,
                                            .memory = memory};
    if (leg->lane == ZINF_LANE_READ || leg->lane == ZINF_LANE_WRITE) {
        emit_drive(e, &transfer, uses);
        return;
    }
    emit_copy(e,
              &(struct device_copy){.lane = leg->lane,
                                    .unit = (int32_t)g->unit,
                                    .to = from_home ? memory : zinf_of(home),
                                    .from = from_home ? zinf_of(home) : memory,
                                    .bytes = home->bytes},
              uses);
}

/* Brings a part into the tile from its home. */
static void emit_in(struct emitter *e, struct group *g, const struct leg *leg)
{
    const bool tail = leg->from.place == STATE_TAIL, grad = leg->from.place == GRAD_HOME;
    const bool state = tail || leg->from.place == STATE_HOME;
    const bool param_tail = leg->from.place == PARAM_TAIL;
    const struct zinf_location *where = tail         ? &g->tail
                                        : state      ? &g->state[0]
                                        : grad       ? &g->grad_home
                                        : param_tail ? &g->param_tail[0]
                                                     : &g->param[0];
    struct uses uses = {0};
    const uint64_t at = tile_at(e->p, leg->to.place) + (tail || param_tail ? where->head : 0);
    struct zinf_operand to = into_tile(e, g, at, &uses);
    uses_read(&uses, state ? e->done[g->unit] : grad ? e->grad[g->unit] : e->param[g->unit]);
    e->flags |= grad && plan_keeps_chosen(e->p, g->unit) ? OP_KEPT : 0;
    if (leg->lane == ZINF_LANE_READ)
        e->flags |= packed_flag(e, g, state, !state && !grad) | grad_flag(e, g, grad);
    emit_part(e, g, leg, where, to, &uses);
    e->flags &= (uint16_t) ~(OP_KEPT | OP_ANY_PACKED);
}

/* Takes a part back, in the new generation; or from RAM to its copy on the drive. */
static void emit_out(struct emitter *e, const struct group *g, const struct leg *leg)
{
    const struct zinf_location backing = zinf_tiers_group_backing(e->p->tiers, g->number, 1);
    const bool tail = leg->to.place == STATE_TAIL, state = tail || leg->to.place == STATE_HOME;
    const bool param_tail = leg->to.place == PARAM_TAIL;
    const struct zinf_location *where = tail                             ? &g->tail
                                        : state                          ? &g->state[1]
                                        : param_tail                     ? &g->param_tail[1]
                                        : leg->to.place == PARAM_BACKING ? &backing
                                                                         : &g->param[1];
    const uint64_t at = tile_at(e->p, leg->from.place) + (tail || param_tail ? where->head : 0);
    struct zinf_operand from =
        leg->from.place == PARAM_HOME ? zinf_of(&g->param[1]) : zinf_in(g->tile, at);
    struct uses uses = {0};
    uses_read(&uses, g->tile);
    uses_read(&uses, e->done[g->unit]);
    uses_read(&uses, e->record);
    if (leg->lane == ZINF_LANE_WRITE)
        e->flags |= packed_flag(e, g, state, !state);
    emit_part(e, g, leg, where, from, &uses);
    e->flags &= (uint16_t)~OP_ANY_PACKED;
}

/* Whether the update packs parameters that are unpacked in RAM; if they are packed there, that is
 * the copy. */
static bool makes_copy(const struct zinf_home *home)
{
    return home->packs_copy && !home->param_headed;
}

/* Whether the update also leaves its parameters in another place. */
static bool has_copy(const struct emitter *e, const struct group *g)
{
    return makes_copy(&e->p->homes[g->unit]) || g->updated != ZINF_NO_BUFFER;
}

/* at: operands of the update, see op.h. */
static void emit_step(struct emitter *e, struct group *g, const struct leg *leg,
                      const struct zinf_operand at[MOST_OPERANDS])
{
    const bool matrices = leg->kind == OP_UPDATE && e->p->setup->group_work[g->number].bytes > 0;
    const bool meets = matrices && setup_unit_meets(e->p->setup, g->unit);
    struct zinf_op op = {.lane = meets ? ZINF_LANE_DEVICE : leg->lane,
                         .kind = matrices ? OP_MATRIX_UPDATE : leg->kind,
                         .unit = (int32_t)g->unit,
                         .arg = (int32_t)g->number,
                         .at = at,
                         .n_at = has_copy(e, g) ? 6 : 5,
                         .bytes =
                             2 * (g->state[0].bytes + g->param[0].bytes) + g->n * sizeof(float)};
    struct uses uses = {0};
    const struct zinf_home *home = &e->p->homes[g->unit];
    op.flags = packed_flag(e, g, home->state == ZINF_TIER_DRIVE || home->headed, true) |
               grad_flag(e, g, leg->from.place == GRAD_TILE);
    op.flags |= !(e->flags & OP_EAGER) && plan_keeps_chosen(e->p, g->unit) ? OP_KEPT : 0;
    op.flags |= meets ? OP_MEETS : 0;
    const bool unpacks = op.flags & OP_ANY_PACKED;
    uses_read(&uses, g->grad);
    for (uint32_t i = 0; i < g->n_parts; i++)
        uses_read(&uses, g->parts[i]);
    uses_read(&uses, e->done[g->unit]);
    if (g->tile != ZINF_NO_BUFFER)
        uses_write(&uses, g->tile);
    if (g->updated != ZINF_NO_BUFFER)
        uses_write(&uses, g->updated);
    if (leg->kind == OP_UPDATE && (setup_unit_works(e->p->setup, g->unit) || unpacks))
        uses_write(&uses, e->update_work);
    emit(e, &op, &uses);
}

/* The common part of the updates of a unit's sub-groups. */
struct update {
    struct legs legs;
    uint32_t waypoints;
    bool at_hand; /* the unit's parameters if they are still in memory */
    struct stop hand;
    enum portion portion;
    zinf_buffer updated; /* of the unit, to make an image; ZINF_NO_BUFFER: none */
};

/* Parameters that the gradient was computed with need not be read again if they are still in
 * memory. */
static struct update update_of(struct emitter *e, uint32_t unit, struct end grad)
{
    const struct plan *p = e->p;
    struct update u = {0};
    u.at_hand = e->flags & OP_EAGER && p->travel.reads_params &&
                p->homes[unit].param == ZINF_TIER_DRIVE &&
                emit_fetched(e, unit, &u.hand, &u.portion);
    u.legs = way_update(&p->travel, &p->homes[unit], grad, u.at_hand);
    u.waypoints = legs_waypoints(u.legs);
    u.updated = p->homes[unit].imaged ? emit_buffer(e, e->updated) : ZINF_NO_BUFFER;
    return u;
}

/* The part of this sub-group. */
static struct zinf_operand fetched_in(const struct emitter *e, struct group *g,
                                      const struct update *u)
{
    const struct zinf_layout *layout = &e->p->setup->layout;
    uint64_t first = layout->groups[g->number].first;
    first += u->portion == ALONE ? 0 : layout->units[g->unit].slice_first;
    g->parts[g->n_parts++] = u->hand.resource;
    return zinf_beyond(u->hand.at, first * zinf_dtype_bytes(e->p->setup->dtype));
}

/* Finds operands in the tile, now and after the update, except the gradient of an early update. */
static void find_operands(struct emitter *e, struct group *g, uint32_t places,
                          struct zinf_operand at[MOST_OPERANDS])
{
    static const enum waypoint tiles[] = {STATE_TILE, STATE_TILE, PARAM_TILE,
                                          PARAM_TILE, GRAD_TILE,  COPY_TILE};
    const struct zinf_location *homes[] = {&g->state[0], &g->state[1],  &g->param[0],
                                           &g->param[1], &g->grad_home, &g->param[1]};
    for (int i = 0; i < MOST_OPERANDS; i++) {
        bool in_tile = has_waypoint(places, tiles[i]);
        if (in_tile && g->tile == ZINF_NO_BUFFER)
            g->tile = emit_buffer(e, e->tiles);
        at[i] = in_tile ? zinf_in(g->tile, tile_at(e->p, tiles[i])) : zinf_of(homes[i]);
    }
    if (has_waypoint(places, GRAD_TILE))
        g->grad = g->tile;
}

/* grad: the sub-group's gradient in memory that the CPU can read; NULL: it is at its home. */
static void emit_group(struct emitter *e, struct group *g, const struct update *u,
                       const struct zinf_operand *grad)
{
    struct zinf_operand at[MOST_OPERANDS];
    find_operands(e, g, u->waypoints, at);
    if (u->at_hand)
        at[2] = fetched_in(e, g, u);
    if (grad)
        at[4] = *grad;
    g->updated = u->updated;
    if (u->updated != ZINF_NO_BUFFER)
        at[5] = zinf_in(u->updated, e->p->setup->layout.groups[g->number].first *
                                        zinf_dtype_bytes(e->p->setup->dtype));
    for (int i = 0; i < u->legs.n; i++) {
        const struct leg *leg = &u->legs.leg[i];
        if (leg->lane == ZINF_LANE_READ || leg->lane == ZINF_LANE_D2H)
            emit_in(e, g, leg);
        else if (leg->lane == ZINF_LANE_WRITE || leg->lane == ZINF_LANE_H2D)
            emit_out(e, g, leg);
        else
            emit_step(e, g, leg, at);
    }
}

/* Makes the image beside the unit's parameters, of the same generation. */
static void emit_image(struct emitter *e, uint32_t unit, const struct update *u)
{
    const struct legs legs = way_image();
    if (u->updated == ZINF_NO_BUFFER)
        return;
    struct trip t = trip_of_params(e, unit);
    t.home = zinf_tiers_image(e->p->tiers, unit, 1);
    t.stops[PARAM_UPDATED] = (struct stop){zinf_in(u->updated, 0), u->updated, true};
    t.stops[IMAGE_HOME] = (struct stop){zinf_of(&t.home), e->images[unit], true};
    t.is_update = true;
    for (int i = 0; i < legs.n; i++)
        emit_leg(e, &t, &legs.leg[i]);
}

void emit_update_eager(struct emitter *e, uint32_t unit, struct end sum, const struct stop *grad)
{
    const struct zinf_layout *layout = &e->p->setup->layout;
    const struct zinf_layout_unit *u = &layout->units[unit];
    uint32_t deadline = e->deadline;
    e->deadline = NEXT_STEP + unit;
    e->encoded[unit] = false;
    e->flags = OP_EAGER;
    if (e->p->travel.reads_params)
        emit_fetch_unchosen(e, unit);
    const struct update update = update_of(e, unit, sum);
    for (uint32_t i = u->first_group; i < u->first_group + u->n_groups; i++) {
        struct group g = group_at(e, i);
        g.grad = grad->resource;
        struct zinf_operand part = zinf_beyond(grad->at, layout->groups[i].first * sizeof(float));
        emit_group(e, &g, &update, &part);
    }
    emit_image(e, unit, &update);
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

void emit_update_late(struct emitter *e, uint32_t unit)
{
    struct plan *p = e->p;
    const struct zinf_layout_unit *u = &p->setup->layout.units[unit];
    uint32_t deadline = e->deadline;
    e->deadline = INHERITED - 1;
    e->encoded[unit] = false;
    e->flags = OP_DEFERRED;
    const struct update update = update_of(e, unit, (struct end){GRAD_HOME, ALONE});
    for (uint32_t i = u->first_group; i < u->first_group + u->n_groups; i++) {
        struct group g = group_at(e, i);
        g.grad = e->grad[unit];
        emit_group(e, &g, &update, NULL);
    }
    emit_image(e, unit, &update);
    emit_spread(e, unit);
    emit_flip(e, unit);
    e->flags = 0;
    e->deadline = deadline;
}

/* A point that all ranks reach before, or after, the exchanges of their stages. */
void emit_meet(struct emitter *e)
{
    struct zinf_op op = {.lane = ZINF_LANE_NET, .axis = ZINF_AXES, .kind = OP_MEET, .unit = -1};
    struct uses uses = {0};
    uint32_t deadline = e->deadline;
    uses_write(&uses, e->record);
    if (e->crossing)
        uses_write(&uses, e->wire);
    e->deadline = NEXT_STEP - 1;
    emit(e, &op, &uses);
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
    e->deadline = deadline;
    e->meets_late = is_piped(e->p->setup) && !e->speculates;
    if (e->p->setup->mesh.all && !e->meets_late)
        emit_meet(e);
}
