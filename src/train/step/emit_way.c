/*
 * emit_way: makes operations of the legs of a way. A leg reads the place that it begins at and
 * writes the one where it ends, so waits follow from places. Memory on the way (staging, slots) is
 * taken when a leg first uses it. Legs on the lane NET meet the same legs of other ranks, which
 * works because all ranks have them in one order: the same programs, ordered by the same rates
 * (agree.h). So no rank may leave one out by what it alone knows; whether rows have chosen a unit
 * is agreed on first (emit_choice.c).
 */
#include "train/step/emit.h"

/* A slot for the unit's gradient. */
zinf_resource emit_grad_slot(struct emitter *e, uint32_t unit)
{
    return emit_buffer(e, e->walk->units[unit].beside ? e->beside_grads : e->grads);
}

static zinf_resource take(struct emitter *e, const struct trip *t, enum waypoint place)
{
    zinf_resource resource = 0;
    switch (place) {
    case PARAM_STAGING:
        e->staged_as[t->unit] = ++e->n_staged[param_slot_size(e->p, t->unit)];
        return e->staged[t->unit] = emit_buffer(e, e->staging[param_slot_size(e->p, t->unit)]);
    case FILE_STAGING:
        return emit_buffer(e, e->files);
    case CODE_STAGING:
        return emit_buffer(e, e->codes);
    case CODE_SLOT:
        return emit_buffer(e, e->code_slots);
    case GRAD_SLOT_2:
        return emit_grad_slot(e, t->unit);
    case GRAD_STAGING:
    case SUM_STAGING:
        return emit_buffer(e, e->host_grads);
    case VALUE_STAGING:
        return emit_buffer(e, e->x_staging);
    default: /* has memory of its own; only its use is noted */
        if (!e->code)
            e->code = zinf_program_resource(e->program, &resource);
        return resource;
    }
}

static struct stop *stop_at(struct emitter *e, struct trip *t, enum waypoint place)
{
    struct stop *stop = &t->stops[place];
    if (!stop->known) {
        stop->resource = take(e, t, place);
        if (place != SQUARES && place != SQUARES_STAGING)
            stop->at = zinf_in(stop->resource, 0);
        stop->known = true;
    }
    return stop;
}

static struct zinf_operand operand_of(const struct trip *t, const struct stop *stop, struct end end)
{
    return end.portion == SLICE ? zinf_beyond(stop->at, t->slice_at) : stop->at;
}

static uint64_t bytes_of(const struct emitter *e, const struct trip *t, const struct leg *leg)
{
    uint64_t world = e->p->setup->mesh.at[leg->axis].world;
    bool of_home = leg->lane == ZINF_LANE_READ || leg->lane == ZINF_LANE_WRITE;
    if (of_home || leg->from.place == FILE_STAGING)
        return t->home.bytes;
    /* bytes of all other ranks; a sum for all ranks comes back as well */
    if (leg->lane == ZINF_LANE_NET)
        return (leg->kind == OP_SUM_FOR_ALL ? 2 : 1) * t->whole_bytes / world * (world - 1);
    if (leg->from.place == SQUARES || leg->from.place == SQUARES_STAGING)
        return t->squares_bytes;
    /* reads twice, for the largest numbers and for the codes; frozen parameters once */
    if (leg->kind == OP_ENCODE)
        return plan_keeps_image(e->p, t->unit) && !unit_trains(e->p->setup, t->unit)
                   ? 0
                   : 2 * t->whole_bytes + t->code_bytes;
    if (leg->from.place == CODE_STAGING || leg->from.place == CODE_SLOT)
        return t->code_bytes + (leg->kind == OP_WIDEN ? t->whole_bytes : 0);
    return leg->from.portion == WHOLE ? t->whole_bytes : t->slice_bytes;
}

/* A sum over all ranks replaces its operands. */
static void add_uses(struct uses *uses, const struct leg *leg, zinf_resource from, zinf_resource to)
{
    bool spends = leg->kind == OP_SCATTER || leg->kind == OP_SUM_FOR_ALL;
    if (spends && from != to)
        uses_write(uses, from);
    else if (from != to || leg->kind == OP_NORM_PART)
        uses_read(uses, from);
    if (leg->kind != OP_NORM_PART)
        uses_write(uses, to);
}

void emit_leg(struct emitter *e, struct trip *t, const struct leg *leg)
{
    if (leg->kind == OP_ENCODE && t->encoded)
        return;
    struct stop *from = stop_at(e, t, leg->from.place), *to = stop_at(e, t, leg->to.place);
    struct zinf_operand at[2] = {operand_of(t, to, leg->to), operand_of(t, from, leg->from)};
    struct uses uses = {0};
    struct zinf_op op = {.lane = leg->lane,
                         .kind = leg->kind,
                         .flags = t->flags,
                         .axis = (uint8_t)leg->axis,
                         .unit = t->is_value ? -1 : (int32_t)t->unit,
                         .arg = t->is_value ? (int32_t)t->unit : 0,
                         .stage = (int32_t)t->stage,
                         .visit = t->gradient,
                         .of_chunk = (int16_t)t->of_chunk,
                         .at = at,
                         .n_at = 2,
                         .bytes = bytes_of(e, t, leg)};
    if (t->is_fetch)
        emit_choice_awaits(e, t->unit, &uses);
    if (t->updates_end)
        uses_write(&uses, e->done[t->unit]);
    if (t->is_update && leg->lane == ZINF_LANE_WRITE) {
        uses_read(&uses, e->done[t->unit]);
        uses_read(&uses, e->record);
    }
    add_uses(&uses, leg, from->resource, to->resource);
    if (leg->lane == ZINF_LANE_READ || leg->lane == ZINF_LANE_WRITE) {
        at[0] = leg->lane == ZINF_LANE_READ ? at[0] : at[1];
        op.where = &t->home;
        op.n_at = 1;
    } else if (leg->kind == OP_NORM_PART) {
        op.arg = leg->from.place == SQUARES_STAGING;
        op.n_at = 1;
    }
    emit(e, &op, &uses);
}

/* A sub-group that goes through packed memory. */
struct packed_part {
    uint32_t group;
    uint16_t flag;
    const struct leg *coder; /* the leg that packs or unpacks */
    struct stop *home, *plain;
    struct zinf_operand at;     /* unpacked */
    struct zinf_operand head;   /* its head in RAM; without memory: none */
    struct zinf_location where; /* its part on the drive */
    zinf_buffer buffer;
    zinf_buffer there; /* on a device that unpacks; otherwise the buffer */
};

static void emit_moved(struct emitter *e, const struct trip *t, const struct packed_part *p,
                       enum zinf_lane lane)
{
    struct uses uses = {0};
    if (t->is_fetch)
        emit_choice_awaits(e, t->unit, &uses);
    if (lane == ZINF_LANE_READ) {
        uses_read(&uses, p->home->resource);
        uses_write(&uses, p->buffer);
    } else {
        uses_read(&uses, p->buffer);
        uses_write(&uses, p->home->resource);
    }
    e->flags |= p->flag;
    emit_drive(e,
               &(struct drive_transfer){.lane = lane,
                                        .unit = (int32_t)t->unit,
                                        .group = (int32_t)p->group,
                                        .where = &p->where,
                                        .memory = zinf_in(p->buffer, p->where.head)},
               &uses);
    e->flags &= (uint16_t)~p->flag;
}

/* An operation with a packed part; the third operand counts if the part has a head. */
static struct zinf_op packed_op(const struct trip *t, const struct packed_part *p,
                                enum zinf_lane lane, enum op_kind kind,
                                const struct zinf_operand *at)
{
    return (struct zinf_op){.lane = lane,
                            .kind = kind,
                            .flags = p->flag,
                            .unit = (int32_t)t->unit,
                            .arg = (int32_t)p->group,
                            .at = at,
                            .n_at = p->where.head ? 3 : 2,
                            .where = &p->where,
                            .bytes = p->where.head + p->where.bytes};
}

/* Copies it to the device packed. */
static void emit_packed_in(struct emitter *e, const struct trip *t, const struct packed_part *p)
{
    const struct zinf_operand at[] = {zinf_in(p->there, 0), zinf_in(p->buffer, 0), p->head};
    struct zinf_op op = packed_op(t, p, ZINF_LANE_H2D, OP_PACKED_IN, at);
    struct uses uses = {0};
    emit_choice_awaits(e, t->unit, &uses);
    uses_read(&uses, p->home->resource);
    uses_read(&uses, p->buffer);
    uses_write(&uses, p->there);
    emit(e, &op, &uses);
}

/* Packing changes the stored length, so it must wait until nothing reads there. */
static void emit_coder(struct emitter *e, const struct trip *t, const struct packed_part *p)
{
    const bool packs = p->coder->kind == OP_PACK;
    const struct zinf_operand packed = zinf_in(p->there, 0);
    const struct zinf_operand at[] = {packs ? packed : p->at, packs ? p->at : packed, p->head};
    struct zinf_op op = packed_op(t, p, p->coder->lane, p->coder->kind, at);
    struct uses uses = {0};
    if (t->is_fetch)
        emit_choice_awaits(e, t->unit, &uses);
    if (packs) {
        uses_read(&uses, p->plain->resource);
        uses_write(&uses, p->home->resource);
        uses_write(&uses, p->buffer);
    } else {
        if (p->there != p->buffer)
            uses_read(&uses, e->unpacked);
        uses_read(&uses, p->home->resource);
        uses_read(&uses, p->there);
        uses_write(&uses, p->plain->resource);
    }
    emit(e, &op, &uses);
}

int emit_packed(struct emitter *e, struct trip *t, const struct leg *legs)
{
    const struct setup *s = e->p->setup;
    const struct zinf_layout_unit *u = &s->layout.units[t->unit];
    const bool in = legs[0].lane == ZINF_LANE_READ, grad = legs[0].to.place == GRAD_PACKED;
    const bool far = in && legs[1].kind == OP_PACKED_IN;
    const struct end plain = in ? legs[1 + far].to : legs[0].from;
    struct packed_part p = {
        .flag = grad ? OP_GRAD : OP_PARAM,
        .coder = &legs[in + far],
        .home = stop_at(e, t, in ? legs[0].from.place : legs[1].to.place),
        .plain = stop_at(e, t, plain.place),
    };
    const uint64_t width = grad ? sizeof(float) : zinf_dtype_bytes(s->dtype);
    for (uint32_t g = u->first_group; g < u->first_group + u->n_groups; g++) {
        p.group = g;
        const struct zinf_location home = grad ? zinf_tiers_group_grad(e->p->tiers, g)
                                               : zinf_tiers_group_param(e->p->tiers, g, 0);
        p.where = home.head ? zinf_tiers_group_param_tail(e->p->tiers, g, 0) : home;
        p.head = zinf_of(&home);
        p.buffer = emit_buffer(e, grad ? e->packed_grads : e->packed);
        p.there = far ? emit_buffer(e, e->packed_slots) : p.buffer;
        p.at = zinf_beyond(operand_of(t, p.plain, plain), s->layout.groups[g].first * width);
        if (in)
            emit_moved(e, t, &p, ZINF_LANE_READ);
        if (far)
            emit_packed_in(e, t, &p);
        emit_coder(e, t, &p);
        if (!in)
            emit_moved(e, t, &p, ZINF_LANE_WRITE);
    }
    return far ? 3 : 2;
}

int emit_off_drive(struct emitter *e, struct trip *t, const struct legs *legs)
{
    if (legs->leg[0].to.place == PACKED_STAGING)
        return emit_packed(e, t, legs->leg);
    emit_leg(e, t, &legs->leg[0]);
    return 1;
}

void emit_way(struct emitter *e, struct trip *t, const struct legs *legs)
{
    for (int i = legs->n ? emit_off_drive(e, t, legs) : 0; i < legs->n; i++)
        emit_leg(e, t, &legs->leg[i]);
}

struct trip trip_of_params(const struct emitter *e, uint32_t unit)
{
    const struct plan *p = e->p;
    const struct setup *s = p->setup;
    struct trip t = {.unit = unit,
                     .home = zinf_tiers_param(p->tiers, unit, 0),
                     .whole_bytes = zinf_layout_unit_bytes(&s->layout, unit, s->dtype),
                     .slice_bytes = zinf_layout_slice_bytes(&s->layout, unit, s->dtype),
                     .slice_at = zinf_layout_slice_at(&s->layout, unit, s->dtype),
                     .code_bytes = unit_has_codes(s, unit) ? s->images[unit].bytes : 0};
    t.stops[PARAM_HOME] = t.stops[PARAM_TAIL] =
        (struct stop){zinf_of(&t.home), e->param[unit], true};
    return t;
}

void emit_spread(struct emitter *e, uint32_t unit)
{
    struct legs legs = way_spread(&e->p->travel, &e->p->homes[unit]);
    struct trip t = trip_of_params(e, unit);
    t.updates_end = true;
    emit_way(e, &t, &legs);
}
