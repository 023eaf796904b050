/*
 * emit_keys: what ranks that share sequences exchange: keys and values, or other data that a stage
 * carries, from each rank to all; and their gradients, summed over all parts, to the rank that
 * made them. They are on the device of each rank. Where that has groups of chunks they are kept in
 * RAM or on the drive. From a drive they go through RAM chunk by chunk, one of each rank at a
 * time, so memory does not grow with the sequence.
 */
#include "train/step/emit.h"

/* Memory of the sample's carried rows, or of their gradients, unless it is on a drive. */
static struct zinf_operand slot_of(struct emitter *e, uint32_t s, int64_t first, bool gradient,
                                   struct uses *uses)
{
    struct ring *ring = gradient ? &e->d_carried : &e->carried;
    bool hit;
    if (plan_shares_homes(e->p)) {
        const struct zinf_location home = emit_carried_at(e, s, 0, gradient);
        uses_write(uses, emit_carried_home(e, 0, gradient));
        return zinf_of(&home);
    }
    uint64_t sample =
        (uint64_t)s * (uint64_t)e->p->setup->n_micro + (uint64_t)setup_sample(e->p->setup, first);
    sample *= gradient ? MAX_PARTIAL_SUMS : 1;
    const uint32_t at = ring_find(e, ring, sample, &hit);
    uses_write(uses, ring->buffer[at]);
    return zinf_in(ring->buffer[at], 0);
}

/* Bytes of a chunk, and of a rank's part of it. */
static uint64_t chunk_bytes(const struct emitter *e, uint32_t s, bool gradient)
{
    return e->walk->stages[s].carried[gradient];
}

static uint64_t own_bytes(const struct emitter *e, uint32_t s, bool gradient)
{
    return (uint64_t)e->p->setup->own_chunks * chunk_bytes(e, s, gradient);
}

/* Bytes of the gradients of one part. */
static uint64_t part_bytes(const struct emitter *e, uint32_t s)
{
    const uint64_t all = (uint64_t)e->p->setup->n_chunks;
    return plan_shares_homes(e->p) ? all * chunk_bytes(e, s, true)
                                   : carried_group_bytes(e->p, true);
}

static bool is_on_drive(const struct emitter *e)
{
    return plan_shares_homes(e->p) && carried_tier(e->p) == ZINF_TIER_DRIVE;
}

/* ---- operations ---- */

static uint16_t meeting_kind(const struct emitter *e, bool gradient)
{
    if (plan_links_keys(e->p))
        return gradient ? OP_LINK_SUM_KEYS : OP_LINK_GATHER_KEYS;
    return gradient ? OP_SUM_KEYS : OP_GATHER_KEYS;
}

static int32_t keys_at(const struct emitter *e)
{
    return is_on_drive(e)            ? KEYS_OF_ONE_CHUNK
           : plan_shares_homes(e->p) ? KEYS_IN_RAM
                                     : KEYS_ON_DEVICE;
}

/* An exchange of `bytes` of each rank that shares sequences. Bytes received from others count. */
static void emit_meeting(struct emitter *e, uint32_t s, bool gradient, struct zinf_operand at,
                         uint64_t bytes, const struct uses *uses)
{
    const struct zinf_axis *context = context_axis(e->p->setup);
    struct zinf_op op = {.lane = ZINF_LANE_NET,
                         .kind = meeting_kind(e, gradient),
                         .axis = ZINF_CONTEXT,
                         .flags = OP_CARRIED,
                         .unit = -1,
                         .stage = (int32_t)s,
                         .arg = keys_at(e),
                         .at = &at,
                         .n_at = 1,
                         .bytes = (context->world - 1) * bytes};
    if (context->world > 1)
        emit(e, &op, uses);
}

static void emit_clear(struct emitter *e, struct zinf_operand at, uint64_t bytes,
                       const struct uses *uses)
{
    struct zinf_op op = {.lane = ZINF_LANE_HOST,
                         .kind = OP_CLEAR,
                         .flags = OP_CARRIED,
                         .unit = -1,
                         .at = &at,
                         .n_at = 1,
                         .bytes = bytes};
    emit(e, &op, uses);
}

static void emit_joining(struct emitter *e, struct leg join, struct zinf_operand to,
                         struct zinf_operand from, uint64_t bytes, const struct uses *uses)
{
    const struct zinf_operand both[2] = {to, from};
    struct zinf_op op = {.lane = join.lane,
                         .kind = join.kind,
                         .flags = OP_CARRIED,
                         .unit = -1,
                         .at = both,
                         .n_at = 2,
                         .bytes = bytes};
    emit(e, &op, uses);
}

/* ---- by way of a buffer, which has room for a chunk of each rank ---- */

/* Moves a chunk between its home on the drive and a place in the buffer. */
static void emit_passage(struct emitter *e, uint32_t s, enum zinf_lane lane, uint64_t number,
                         bool gradient, zinf_buffer buffer, uint64_t place)
{
    const struct zinf_location home = emit_carried_at(e, s, number, gradient);
    const zinf_resource resource = emit_carried_home(e, number, gradient);
    struct uses uses = {0};
    uses_read(&uses, lane == ZINF_LANE_READ ? resource : buffer);
    uses_write(&uses, lane == ZINF_LANE_READ ? buffer : resource);
    e->flags |= OP_CARRIED;
    emit_drive(
        e,
        &(struct drive_transfer){.lane = lane,
                                 .unit = -1,
                                 .where = &home,
                                 .memory = zinf_in(buffer, place * chunk_bytes(e, s, gradient))},
        &uses);
    e->flags &= (uint16_t)~OP_CARRIED;
}

/* The first in the sequence of the n-th chunks of all ranks. */
static int16_t first_of(const struct setup *s, int64_t n)
{
    int64_t first = s->n_chunks;
    for (int64_t r = 0; r < (int64_t)context_axis(s)->world; r++) {
        const int64_t chunk = zinf_chunk_at(r * s->own_chunks + n, s->n_chunks, s->n_parts);
        first = chunk < first ? chunk : first;
    }
    return (int16_t)first;
}

/* Exchanges the n-th chunks of all ranks, unless none of them has tokens: each to all, or the sum
 * of their gradients over ranks. Drives have all chunks, since groups are read whole. */
static void emit_exchange(struct emitter *e, uint32_t s, int64_t n, bool gradient)
{
    const struct zinf_axis *context = context_axis(e->p->setup);
    const uint64_t own = (uint64_t)e->p->setup->own_chunks;
    const zinf_buffer buffer = emit_buffer(e, e->exchanged);
    struct uses uses = {0};
    uses_write(&uses, buffer);
    for (uint64_t r = 0; r < context->world; r++)
        if (gradient || r == context->rank)
            emit_passage(e, s, ZINF_LANE_READ, r * own + (uint64_t)n, gradient, buffer, r);
    e->chunk = first_of(e->p->setup, n);
    emit_meeting(e, s, gradient, zinf_in(buffer, 0), chunk_bytes(e, s, gradient), &uses);
    e->chunk = 0;
    for (uint64_t r = 0; r < context->world; r++)
        if (gradient == (r == context->rank))
            emit_passage(e, s, ZINF_LANE_WRITE, r * own + (uint64_t)n, gradient, buffer, r);
}

static void emit_exchanges(struct emitter *e, uint32_t s, bool gradient)
{
    for (int64_t n = 0; context_axis(e->p->setup)->world > 1 && n < e->p->setup->own_chunks; n++)
        emit_exchange(e, s, n, gradient);
}

static void clear_drive(struct emitter *e, uint32_t s)
{
    const zinf_buffer buffer = emit_buffer(e, e->exchanged);
    struct uses uses = {0};
    uses_write(&uses, buffer);
    emit_clear(e, zinf_in(buffer, 0), chunk_bytes(e, s, true), &uses);
    for (uint64_t number = 0; number < carried_homes(e->p, true); number++)
        emit_passage(e, s, ZINF_LANE_WRITE, number, true, buffer, 0);
}

/* Adds the gradients of one part to another's. */
static void join_on_drive(struct emitter *e, uint32_t s, uint64_t to, uint64_t from)
{
    const uint64_t n = (uint64_t)e->p->setup->n_chunks, bytes = chunk_bytes(e, s, true);
    const struct leg join = {.lane = ZINF_LANE_HOST, .kind = OP_GRAD_ADD};
    for (uint64_t place = 0; place < n; place++) {
        const zinf_buffer buffer = emit_buffer(e, e->exchanged);
        struct uses uses = {0};
        uses_write(&uses, buffer);
        emit_passage(e, s, ZINF_LANE_READ, to * n + place, true, buffer, 0);
        emit_passage(e, s, ZINF_LANE_READ, from * n + place, true, buffer, 1);
        emit_joining(e, join, zinf_in(buffer, 0), zinf_in(buffer, bytes), bytes, &uses);
        emit_passage(e, s, ZINF_LANE_WRITE, to * n + place, true, buffer, 0);
    }
}

/* ---- of a sample ---- */

void emit_gather_keys(struct emitter *e, uint32_t s, int64_t first)
{
    struct uses uses = {0};
    e->micro = (int16_t)first;
    if (is_on_drive(e)) {
        emit_exchanges(e, s, false);
        return;
    }
    const struct zinf_operand at = slot_of(e, s, first, false, &uses);
    emit_meeting(e, s, false, at, own_bytes(e, s, false), &uses);
}

void emit_clear_keys(struct emitter *e, uint32_t s, int64_t first)
{
    struct uses uses = {0};
    e->micro = (int16_t)first;
    if (is_on_drive(e))
        clear_drive(e, s);
    else if (plan_shares_homes(e->p))
        emit_clear(e, slot_of(e, s, first, true, &uses),
                   (uint64_t)setup_own_parts(e->p->setup) * part_bytes(e, s), &uses);
}

static void join_parts(struct emitter *e, uint32_t s, int64_t first, uint64_t to, uint64_t from)
{
    const uint64_t bytes = own_bytes(e, s, true) * context_axis(e->p->setup)->world;
    const struct leg join = plan_shares_homes(e->p)
                                ? (struct leg){.lane = ZINF_LANE_HOST, .kind = OP_GRAD_ADD}
                                : way_join(&e->p->travel);
    struct uses uses = {0};
    const struct zinf_operand at = slot_of(e, s, first, true, &uses);
    emit_joining(e, join, zinf_beyond(at, to * part_bytes(e, s)),
                 zinf_beyond(at, from * part_bytes(e, s)), bytes, &uses);
}

/* Sums this rank's parts into the first one, then over ranks. */
void emit_sum_keys(struct emitter *e, uint32_t s, int64_t first)
{
    const uint64_t parts = (uint64_t)setup_own_parts(e->p->setup);
    struct uses uses = {0};
    e->micro = (int16_t)first;
    for (uint64_t step = 1; step < parts; step *= 2)
        for (uint64_t i = 0; i + step < parts; i += 2 * step)
            if (is_on_drive(e))
                join_on_drive(e, s, i, i + step);
            else
                join_parts(e, s, first, i, i + step);
    if (is_on_drive(e)) {
        emit_exchanges(e, s, true);
        return;
    }
    const struct zinf_operand at = slot_of(e, s, first, true, &uses);
    emit_meeting(e, s, true, at, own_bytes(e, s, true), &uses);
}

/* ---- from rank to rank ---- */

/* Where the state or gradient is that this rank takes or gives. Without a neighbour nothing is
 * moved, and the place does not matter. */
static struct zinf_operand handed_at(struct emitter *e, uint32_t s, int64_t first,
                                     struct handing how, struct uses *uses)
{
    const struct setup *setup = e->p->setup;
    const struct walk_stage *info = &e->walk->stages[s];
    const int64_t low = setup_chunk(setup, setup_ordered(setup, how.rear, 0));
    const int64_t high =
        setup_chunk(setup, setup_ordered(setup, how.rear, setup->own_chunks / 2 - 1));
    if (how.gradient) {
        const int64_t chunk = how.takes ? high : low - 1;
        return zinf_at(device_at(e->p, e->p->at.d_handed + (uint64_t)(chunk & 1) * info->d_handed));
    }
    const int64_t chunk = how.takes ? low - (low > 0) : high;
    const int64_t place = zinf_chunk_place(chunk, setup->n_chunks, setup->n_parts);
    return zinf_beyond(slot_of(e, s, first, false, uses),
                       (uint64_t)place * info->carried[0] + info->handed_at);
}

void emit_hand(struct emitter *e, uint32_t s, int64_t first, struct handing how)
{
    const struct walk_stage *info = &e->walk->stages[s];
    const bool next = (how.rear != how.gradient) != !how.takes;
    struct uses uses = {.many = e->stage_uses, .capacity = e->walk->most_operands + FEW_USES};
    if (plan_shares_homes(e->p) && !e->code)
        e->code = zinf_fail(-ENOTSUP,
                            "zinf.context_parts: stage %s hands over states from chunk to chunk, "
                            "and the device has room for some chunks of a layer only; give it "
                            "more memory, or make chunks longer (zinf.sequence_chunk)",
                            e->walk->graph->stages[s].name);
    /* The chunks between a take and the matching give are computed with these units: no rank meets
     * others there (check_hands). All are needed, whatever the layer before has chosen. */
    e->only_chosen = false;
    for (uint32_t i = 0; i < e->walk->graph->stages[s].units.n; i++)
        emit_fetch(e, e->walk->graph->stages[s].units.at[i], &uses);
    const struct zinf_operand at = handed_at(e, s, first, how, &uses);
    struct zinf_op op = {.lane = ZINF_LANE_DEVICE,
                         .kind = OP_HAND,
                         .axis = ZINF_CONTEXT,
                         .flags = OP_CARRIED,
                         .unit = -1,
                         .stage = (int32_t)s,
                         .arg = next,
                         .visit = how.takes,
                         .at = &at,
                         .n_at = 1,
                         .bytes = how.gradient ? info->d_handed : info->handed};
    e->micro = (int16_t)first;
    if (context_axis(e->p->setup)->world > 1)
        emit(e, &op, &uses);
}
