/*
 * emit_carried: what a stage carries from chunk to chunk of a sequence, and its gradient. It lies
 * in groups of chunks, each in a slot on the device while a stage looks at it. Where there is a
 * slot for all of it that is all; else its chunks live where block inputs do, and come and go one
 * by one. A home has one stage's and sample's at a time: forward makes it chunk by chunk, and
 * backward begins with making it again. Of sequences that ranks share it comes from all of them, to
 * the device of each, or, where that has groups, to its RAM: there chunks lie by their places, and
 * gradients, which begin as zeros, once for each part that the rank has.
 */
#include "train/step/emit.h"

/* Whether ranks bring together what lives in RAM. */
static bool is_shared_home(const struct emitter *e)
{
    return in_parts(e->p->setup) && carried_groups(e->p) > 1;
}

/* Of what ranks bring together there is one resource for all chunks. */
static zinf_resource home_of(const struct emitter *e, uint32_t chunk, bool gradient)
{
    const uint32_t n = (uint32_t)e->p->setup->n_chunks;
    return e->carried_home[gradient * n + (in_parts(e->p->setup) ? 0 : chunk)];
}

/* Chunks before it in a home in RAM. */
static uint64_t chunks_before(const struct emitter *e, uint32_t chunk, bool gradient)
{
    const struct setup *s = e->p->setup;
    const uint64_t part = gradient ? e->part : 0;
    return in_parts(s) ? part * (uint64_t)s->n_chunks +
                             (uint64_t)zinf_chunk_place(chunk, s->n_chunks, s->n_parts)
                       : chunk;
}

/* Of both sorts: what is carried, in the parameters' type, and its gradient in fp32. */
static struct trip trip_of_chunk(const struct emitter *e, uint32_t s, uint32_t chunk, bool gradient,
                                 struct zinf_operand slot)
{
    const struct plan *p = e->p;
    const uint32_t n = (uint32_t)p->setup->n_chunks;
    const enum zinf_tier tier = carried_tier(p);
    const uint64_t stride =
        in_parts(p->setup) ? e->walk->stages[s].carried[gradient] : e->walk->carried[gradient];
    const uint64_t base = gradient ? p->at.h_carried_gradient : p->at.h_carried;
    struct trip t = {.unit = e->walk->graph->stages[s].in.at[0],
                     .is_value = true,
                     .flags = OP_CARRIED,
                     .whole_bytes = e->walk->stages[s].carried[gradient]};
    t.home = (struct zinf_location){.tier = tier, .bytes = t.whole_bytes};
    if (tier == ZINF_TIER_DRIVE)
        t.home.extent = p->carried_extents[gradient * n + chunk];
    else
        t.home.memory = host_at(p, base + chunks_before(e, chunk, gradient) * stride);
    t.stops[VALUE_HOME] = (struct stop){zinf_of(&t.home), home_of(e, chunk, gradient), true};
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
    const enum zinf_tier tier = carried_tier(e->p);
    struct legs legs = out ? way_value_out(travel, tier) : way_value_back(travel, tier);
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
    const uint32_t part = is_shared_home(e) ? e->part : 0, parts = MAX_PARTIAL_SUMS;
    const uint64_t number = (sample * parts + part) * carried_groups(e->p) + group;
    const uint32_t next = ring_next(&e->d_carried, number);
    if (carried_groups(e->p) > 1 && !is_shared_home(e) && e->d_carried.holds[next] != number)
        leave(e, s, sample, next);
    const uint32_t at = ring_find(e, &e->d_carried, number, &hit);
    const struct zinf_operand slot = zinf_in(e->d_carried.buffer[at], 0);
    e->d_carried_left[at] = (struct d_carried_left){sample, group};
    for (uint32_t chunk = chunks.first; !hit && !fresh && chunk < chunks.end; chunk++)
        move(e, s, chunk, true, slot, false);
    uses_write(uses, e->d_carried.buffer[at]);
    return slot;
}

void emit_d_carried_made(struct emitter *e, uint32_t s, struct span_of chunks,
                         struct zinf_operand slot)
{
    for (uint32_t chunk = chunks.first; carried_groups(e->p) > 1 && chunk < chunks.end; chunk++)
        move(e, s, chunk, true, slot, true);
}

struct zinf_operand emit_carried_alone(struct emitter *e, uint32_t s, uint32_t chunk, bool gradient,
                                       struct uses *uses)
{
    struct ring *ring = gradient ? &e->d_carried : &e->carried;
    bool hit;
    const uint32_t at = ring_find(e, ring, UINT64_MAX - e->clock, &hit);
    const struct zinf_operand slot = zinf_in(ring->buffer[at], 0);
    if (gradient)
        move(e, s, chunk, true, slot, false);
    uses_write(uses, ring->buffer[at]);
    return slot;
}

/* ---- sequences that ranks share ---- */

/* Where the carried rows of the sample at hand are, or their gradients. */
static struct zinf_operand slot_of(struct emitter *e, uint32_t s, int64_t first, bool gradient,
                                   struct uses *uses)
{
    struct ring *ring = gradient ? &e->d_carried : &e->carried;
    bool hit;
    if (is_shared_home(e)) {
        uses_write(uses, home_of(e, 0, gradient));
        return zinf_at(host_at(e->p, gradient ? e->p->at.h_carried_gradient : e->p->at.h_carried));
    }
    uint64_t sample =
        (uint64_t)s * (uint64_t)e->p->setup->n_micro + (uint64_t)setup_sample(e->p->setup, first);
    sample *= gradient ? MAX_PARTIAL_SUMS : 1;
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
                         .arg = is_shared_home(e),
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

/* Where that is of which this rank takes or gives something; of what there is no neighbour for,
 * anywhere. */
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
    return zinf_beyond(slot_of(e, s, first, false, uses), (uint64_t)place * info->carried[0]);
}

void emit_hand(struct emitter *e, uint32_t s, int64_t first, struct handing how)
{
    const struct walk_stage *info = &e->walk->stages[s];
    const bool next = (how.rear != how.gradient) != !how.takes;
    struct uses uses = {0};
    if (is_shared_home(e) && !e->code)
        e->code = zinf_fail(-ENOTSUP,
                            "zinf.context_parts: stage %s hands over states from chunk to chunk, "
                            "and the device has room for some chunks of a layer only; give it "
                            "more memory, or make chunks longer (zinf.sequence_chunk)",
                            e->walk->graph->stages[s].name);
    /* What the neighbour waits for computes with these: they must not come behind this. */
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
                         .bytes = how.gradient ? info->d_handed : info->carried[0]};
    e->micro = (int16_t)first;
    uses_write(&uses, e->sequence);
    if (context_axis(e->p->setup)->world > 1)
        emit(e, &op, &uses);
}

/* Bytes of one part's gradients, and who adds two of them. */
static uint64_t part_bytes(const struct emitter *e, uint32_t s)
{
    const uint64_t all = (uint64_t)e->p->setup->n_chunks;
    return is_shared_home(e) ? all * e->walk->stages[s].carried[1]
                             : carried_group_bytes(e->p, true);
}

static struct leg joining(const struct emitter *e)
{
    return is_shared_home(e) ? (struct leg){.lane = ZINF_LANE_HOST, .kind = OP_GRAD_ADD}
                             : way_join(&e->p->travel);
}

void emit_clear_keys(struct emitter *e, uint32_t s, int64_t first)
{
    struct uses uses = {0};
    struct zinf_op op = {.lane = ZINF_LANE_HOST,
                         .kind = OP_CLEAR,
                         .flags = OP_CARRIED,
                         .unit = -1,
                         .bytes = (uint64_t)setup_own_parts(e->p->setup) * part_bytes(e, s)};
    if (!is_shared_home(e))
        return;
    const struct zinf_operand at = slot_of(e, s, first, true, &uses);
    op.at = &at;
    op.n_at = 1;
    e->micro = (int16_t)first;
    emit(e, &op, &uses);
}

/* This rank's parts to the first one, then over ranks. */
void emit_sum_keys(struct emitter *e, uint32_t s, int64_t first)
{
    const uint64_t bytes = own_bytes(e, s, true) * context_axis(e->p->setup)->world;
    const int64_t parts = setup_own_parts(e->p->setup);
    const struct leg join = joining(e);
    e->micro = (int16_t)first;
    for (int64_t step = 1; step < parts; step *= 2)
        for (int64_t i = 0; i + step < parts; i += 2 * step) {
            struct uses uses = {0};
            const struct zinf_operand at = slot_of(e, s, first, true, &uses);
            const struct zinf_operand both[2] = {
                zinf_beyond(at, (uint64_t)i * part_bytes(e, s)),
                zinf_beyond(at, (uint64_t)(i + step) * part_bytes(e, s))};
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
