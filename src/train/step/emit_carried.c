/*
 * emit_carried: what a stage carries from chunk to chunk of a sequence, and its gradient. It lies
 * in groups of chunks, each in a slot on the device while a stage looks at it. Where there is a
 * slot for all of it that is all; else its chunks live where block inputs do, and come and go one
 * by one. A home has one stage's and sample's at a time: forward makes it chunk by chunk, and
 * backward begins with making it again. Of sequences that ranks share it is on the device of each,
 * and comes from all of them.
 */
#include "train/step/emit.h"

/* Of both sorts: what is carried, in the parameters' type, and its gradient in fp32. */
static struct trip trip_of_chunk(const struct emitter *e, uint32_t s, uint32_t chunk, bool gradient,
                                 struct zinf_operand slot)
{
    const struct plan *p = e->p;
    const uint32_t n = (uint32_t)p->setup->n_chunks;
    const uint64_t stride = e->walk->carried[gradient];
    const uint64_t base = gradient ? p->at.h_carried_gradient : p->at.h_carried;
    struct trip t = {.unit = e->walk->graph->stages[s].in.at[0],
                     .is_value = true,
                     .flags = OP_CARRIED,
                     .whole_bytes = e->walk->stages[s].carried[gradient]};
    t.home = (struct zinf_location){.tier = p->x_tier, .bytes = t.whole_bytes};
    if (p->x_tier == ZINF_TIER_DRIVE)
        t.home.extent = p->carried_extents[gradient * n + chunk];
    else
        t.home.memory = host_at(p, base + chunk * stride);
    t.stops[VALUE_HOME] =
        (struct stop){zinf_of(&t.home), e->carried_home[gradient * n + chunk], true};
    const uint64_t behind = chunk % (uint32_t)carried_span(p) * t.whole_bytes;
    t.stops[VALUE_SLOT] =
        (struct stop){zinf_beyond(slot, behind), zinf_operand_buffer(&slot), true};
    return t;
}

static void move(struct emitter *e, uint32_t s, uint32_t chunk, bool gradient,
                 struct zinf_operand slot, bool out)
{
    struct trip t = trip_of_chunk(e, s, chunk, gradient, slot);
    const struct travel *travel = &e->p->travel;
    struct legs legs =
        out ? way_value_out(travel, e->p->x_tier) : way_value_back(travel, e->p->x_tier);
    const uint32_t deadline = e->deadline;
    e->deadline = out ? e->position + 2 : INHERITED;
    emit_way(e, &t, &legs);
    e->deadline = deadline;
}

/* The group's slot, with chunks up to `end` in it, of which those from `made` on will be made. */
struct zinf_operand emit_carried(struct emitter *e, uint32_t s, uint64_t sample, uint32_t group,
                                 struct span_of made, struct uses *uses)
{
    bool hit;
    const uint32_t at = ring_find(e, &e->carried, sample * carried_groups(e->p) + group, &hit);
    const struct zinf_operand slot = zinf_in(e->carried.buffer[at], 0);
    if (!hit)
        e->carried_filled[at] = group * (uint32_t)carried_span(e->p);
    if (!e->code && carried_groups(e->p) == 1 && e->carried_filled[at] < made.first)
        e->code = zinf_fail(-EINVAL, "stage %u reads chunks that were not computed", s);
    for (uint32_t chunk = e->carried_filled[at]; chunk < made.first; chunk++)
        move(e, s, chunk, false, slot, false);
    if (e->carried_filled[at] < made.end)
        e->carried_filled[at] = made.end;
    if (made.end > made.first)
        uses_write(uses, e->carried.buffer[at]);
    else
        uses_read(uses, e->carried.buffer[at]);
    return slot;
}

void emit_carried_made(struct emitter *e, uint32_t s, uint32_t chunk, struct zinf_operand slot)
{
    if (carried_groups(e->p) > 1)
        move(e, s, chunk, false, slot, true);
}

/* Gradients of a group leave the device when another one takes its slot, if a chunk that is still
 * to come looks at them: backward goes from the last chunk to the first, and each up to its own. */
static void leave(struct emitter *e, uint32_t s, uint64_t sample, uint32_t at)
{
    const uint32_t own = (uint32_t)setup_chunk(e->p->setup, e->micro);
    const uint32_t span = (uint32_t)carried_span(e->p);
    const struct d_carried_left *left = &e->d_carried_left[at];
    const uint32_t first = left->group * span, end = first + span;
    const bool there = e->d_carried.buffer[at] != ZINF_NO_BUFFER && left->sample == sample;
    const struct zinf_operand slot = zinf_in(e->d_carried.buffer[at], 0);
    for (uint32_t chunk = first; there && chunk < end && chunk <= own; chunk++)
        move(e, s, chunk, true, slot, true);
}

struct zinf_operand emit_d_carried(struct emitter *e, uint32_t s, uint64_t sample, uint32_t group,
                                   struct span_of chunks, bool fresh, struct uses *uses)
{
    bool hit;
    const uint64_t number = sample * carried_groups(e->p) + group;
    const uint32_t next = ring_next(&e->d_carried, number);
    if (carried_groups(e->p) > 1 && e->d_carried.holds[next] != number)
        leave(e, s, sample, next);
    const uint32_t at = ring_find(e, &e->d_carried, number, &hit);
    const struct zinf_operand slot = zinf_in(e->d_carried.buffer[at], 0);
    e->d_carried_left[at] = (struct d_carried_left){sample, group};
    for (uint32_t chunk = chunks.first; !hit && !fresh && chunk < chunks.end; chunk++)
        move(e, s, chunk, true, slot, false);
    uses_write(uses, e->d_carried.buffer[at]);
    return slot;
}

/* ---- sequences that ranks share ---- */

/* Where the carried rows of the sample at hand are, or their gradients. */
static struct zinf_operand slot_of(struct emitter *e, uint32_t s, int64_t first, bool gradient,
                                   struct uses *uses)
{
    struct ring *ring = gradient ? &e->d_carried : &e->carried;
    bool hit;
    const uint64_t sample =
        (uint64_t)s * (uint64_t)e->p->setup->n_micro + (uint64_t)setup_sample(e->p->setup, first);
    const uint32_t at = ring_find(e, ring, sample, &hit);
    uses_write(uses, ring->buffer[at]);
    return zinf_in(ring->buffer[at], 0);
}

/* Bytes of what a rank has of it. */
static uint64_t own_bytes(const struct emitter *e, uint32_t s, bool gradient)
{
    return (uint64_t)e->p->setup->own_chunks * e->walk->stages[s].carried[gradient];
}

/* Between ranks that share sequences. Counted is what comes from others. */
static void emit_meeting(struct emitter *e, uint32_t s, int64_t first, bool gradient)
{
    const struct zinf_axis *context = context_axis(e->p->setup);
    struct uses uses = {0};
    const struct zinf_operand at = slot_of(e, s, first, gradient, &uses);
    struct zinf_op op = {.lane = ZINF_LANE_NET,
                         .kind = gradient ? OP_SUM_KEYS : OP_GATHER_KEYS,
                         .axis = ZINF_CONTEXT,
                         .flags = OP_CARRIED,
                         .unit = -1,
                         .stage = (int32_t)s,
                         .at = &at,
                         .n_at = 1,
                         .bytes = (context->world - 1) * own_bytes(e, s, gradient)};
    e->micro = (int16_t)first;
    if (context->world > 1)
        emit(e, &op, &uses);
}

void emit_gather_keys(struct emitter *e, uint32_t s, int64_t first)
{
    emit_meeting(e, s, first, false);
}

/* This rank's parts to the first one, then over ranks. */
void emit_sum_keys(struct emitter *e, uint32_t s, int64_t first)
{
    const uint64_t part_bytes = carried_group_bytes(e->p, true);
    const uint64_t bytes = own_bytes(e, s, true) * context_axis(e->p->setup)->world;
    const int64_t parts = setup_own_parts(e->p->setup);
    const struct leg join = way_join(&e->p->travel);
    e->micro = (int16_t)first;
    for (int64_t step = 1; step < parts; step *= 2)
        for (int64_t i = 0; i + step < parts; i += 2 * step) {
            struct uses uses = {0};
            const struct zinf_operand at = slot_of(e, s, first, true, &uses);
            const struct zinf_operand both[2] = {
                zinf_beyond(at, (uint64_t)i * part_bytes),
                zinf_beyond(at, (uint64_t)(i + step) * part_bytes)};
            struct zinf_op op = {.lane = join.lane,
                                 .kind = join.kind,
                                 .flags = OP_CARRIED,
                                 .unit = -1,
                                 .at = both,
                                 .n_at = 2,
                                 .bytes = bytes};
            emit(e, &op, &uses);
        }
    emit_meeting(e, s, first, true);
}
