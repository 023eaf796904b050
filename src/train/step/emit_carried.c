/*
 * emit_carried: what a stage carries from chunk to chunk of a sequence (carried data), and its
 * gradient. Chunks are in groups, and a group is in a slot on the device while a stage looks at it.
 * If one slot has room for all chunks, the data never leaves the device. Else it lives where block
 * inputs do. Each group then has one home, and moves in as few transfers as staging has room for.
 * A home holds the data of one stage and one sample at a time: forward makes it chunk by chunk, and
 * backward begins by making it again.
 *
 * If ranks share a sequence, the data comes from all of them (emit_keys.c). Each chunk then has a
 * home of its own, in the order of places. Gradients begin as zeros and exist once for each part
 * that the rank has.
 */
#include "train/step/emit.h"

/* What ranks exchange in RAM has one resource for all chunks. */
zinf_resource emit_carried_home(const struct emitter *e, uint64_t number, bool gradient)
{
    const bool one = in_parts(e->p->setup) && carried_tier(e->p) != ZINF_TIER_DRIVE;
    return e->carried_home[(gradient ? carried_homes(e->p, false) : 0) + (one ? 0 : number)];
}

/* The number of a chunk's home. */
static uint64_t number_of(const struct emitter *e, uint32_t chunk, bool gradient)
{
    const struct setup *s = e->p->setup;
    const uint64_t part = gradient ? e->part : 0;
    return in_parts(s) ? part * (uint64_t)s->n_chunks +
                             (uint64_t)zinf_chunk_place(chunk, s->n_chunks, s->n_parts)
                       : chunk / (uint32_t)carried_span(e->p);
}

struct zinf_location emit_carried_at(const struct emitter *e, uint32_t s, uint64_t number,
                                     bool gradient)
{
    const struct plan *p = e->p;
    const uint64_t base = gradient ? p->at.h_carried_gradient : p->at.h_carried;
    const uint64_t bytes = e->walk->stages[s].carried[gradient];
    const uint64_t stride = in_parts(p->setup) ? bytes : carried_home_bytes(p, gradient);
    struct zinf_location at = {.tier = carried_tier(p), .bytes = bytes};
    if (at.tier == ZINF_TIER_DRIVE)
        at.extent = p->carried_extents[(gradient ? carried_homes(p, false) : 0) + number];
    else
        at.memory = host_at(p, base + number * stride);
    return at;
}

/* The trip of chunks that have one home. It moves either what is carried, in the parameters' type,
 * or its gradient in fp32. */
static struct trip trip_of(const struct emitter *e, uint32_t s, struct span_of chunks,
                           bool gradient, struct zinf_operand slot)
{
    const struct plan *p = e->p;
    const uint64_t number = number_of(e, chunks.first, gradient);
    const uint64_t each = e->walk->stages[s].carried[gradient];
    const uint64_t behind = chunks.first % (uint32_t)carried_span(p) * each;
    struct zinf_location home = emit_carried_at(e, s, number, gradient);
    home.bytes = (chunks.end - chunks.first) * each;
    if (!in_parts(p->setup) && home.tier == ZINF_TIER_DRIVE)
        home.offset = behind;
    else if (!in_parts(p->setup))
        home.memory += behind;
    struct trip t = {.unit = e->walk->graph->stages[s].in.at[0],
                     .is_value = true,
                     .gradient = gradient,
                     .flags = OP_CARRIED,
                     .stage = s,
                     .of_chunk = chunks.first,
                     .home = home,
                     .whole_bytes = home.bytes};
    t.stops[VALUE_HOME] =
        (struct stop){zinf_of(&home), emit_carried_home(e, number, gradient), true};
    t.stops[VALUE_SLOT] =
        (struct stop){zinf_beyond(slot, behind), zinf_operand_buffer(&slot), true};
    return t;
}

/* How many chunks of a group one transfer may move: those of one home, and no more than staging has
 * room for if the way leads through it. */
static uint32_t most_at_once(const struct emitter *e, uint32_t s, bool gradient,
                             const struct legs *legs)
{
    const uint64_t room = plan_value_staging_bytes(e->p) / e->walk->stages[s].carried[gradient];
    bool staged = false;
    for (int i = 0; i < legs->n; i++)
        staged |= legs->leg[i].to.place == VALUE_STAGING;
    return in_parts(e->p->setup) ? 1 : staged ? (uint32_t)room : UINT32_MAX;
}

/* Moves chunks of one group out of its slot, or into it. An empty span moves nothing. */
static void move(struct emitter *e, uint32_t s, struct span_of chunks, bool gradient,
                 struct zinf_operand slot, bool out)
{
    const struct travel *travel = &e->p->travel;
    const enum zinf_tier tier = carried_tier(e->p);
    struct legs legs = out ? way_value_out(travel, tier) : way_value_back(travel, tier);
    const uint32_t most = most_at_once(e, s, gradient, &legs), deadline = e->deadline;
    e->deadline = out ? e->position + 2 : INHERITED;
    while (!e->code && chunks.first < chunks.end) { /* after an error staging may have no room */
        const uint32_t left = chunks.end - chunks.first;
        const struct span_of now = {chunks.first, chunks.first + (left < most ? left : most)};
        struct trip t = trip_of(e, s, now, gradient, slot);
        emit_way(e, &t, &legs);
        chunks.first = now.end;
    }
    e->deadline = deadline;
}

/* ---- chunks that nobody has rows of ---- */

/* Chunk `chunk` looks at what some operations have brought. They are left out if the first chunk
 * that does so has no rows; any: they are needed for others as well. */
static void look_at(struct emitter *e, uint32_t at, uint32_t chunk, bool any)
{
    const struct loads *loads = &e->carried_loads[at];
    for (uint32_t i = loads->first; i < loads->end && !e->code; i++) {
        struct zinf_op *op = &e->program->ops[i];
        if (any || op->chunk > (int)chunk)
            op->chunk = any ? 0 : (int16_t)chunk;
    }
}

void emit_carried_cut(struct emitter *e)
{
    for (uint32_t at = 0; at < e->carried.n; at++) {
        look_at(e, at, 0, true);
        e->carried_loads[at] = (struct loads){0, 0};
    }
}

/* Ranks that share a sequence exchange all chunks. */
static int16_t for_chunk(const struct emitter *e, uint32_t chunk)
{
    return in_parts(e->p->setup) ? 0 : (int16_t)chunk;
}

static uint32_t own_chunk(const struct emitter *e)
{
    return (uint32_t)setup_chunk(e->p->setup, e->micro);
}

/* Brings chunks to a slot of the ring that may have others of the group already (hit). */
static void bring(struct emitter *e, uint32_t s, struct span_of chunks, uint32_t at, bool hit)
{
    const struct zinf_operand slot = zinf_in(e->carried.buffer[at], 0);
    const uint32_t own = own_chunk(e), first = e->program->n_ops;
    e->chunk = for_chunk(e, own);
    move(e, s, chunks, false, slot, false);
    e->chunk = 0;
    const bool more = e->program->n_ops > first;
    if (hit)
        look_at(e, at, own, more);
    if (!hit || more)
        e->carried_loads[at] = (struct loads){first, e->program->n_ops};
}

/* ---- slots ---- */

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
    bring(e, s, (struct span_of){e->carried_filled[at], made.first}, at, hit);
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
    e->chunk = for_chunk(e, chunk);
    if (carried_groups(e->p) > 1)
        move(e, s, (struct span_of){chunk, chunk + 1}, false, slot, true);
    e->chunk = 0;
}

/* Gradients of a group leave the device when another one takes its slot, if a chunk that is still
 * to come looks at them: backward goes from the last chunk to the first, and each up to its own. */
static void leave(struct emitter *e, uint32_t s, uint64_t sample, uint32_t at)
{
    const uint32_t own = own_chunk(e);
    const uint32_t span = (uint32_t)carried_span(e->p);
    const struct d_carried_left *left = &e->d_carried_left[at];
    const uint32_t first = left->group * span, end = first + span;
    const bool there = e->d_carried.buffer[at] != ZINF_NO_BUFFER && left->sample == sample;
    const struct zinf_operand slot = zinf_in(e->d_carried.buffer[at], 0);
    e->chunk = for_chunk(e, left->chunk);
    if (there)
        move(e, s, (struct span_of){first, end < own + 1 ? end : own + 1}, true, slot, true);
    e->chunk = 0;
}

/* The first chunk with rows in backward finds no gradients: it makes the group's zeros. */
struct zinf_operand emit_d_carried(struct emitter *e, uint32_t s, uint64_t sample, uint32_t group,
                                   struct span_of chunks, bool fresh, struct uses *uses)
{
    bool hit;
    const uint32_t part = plan_shares_homes(e->p) ? e->part : 0, parts = MAX_PARTIAL_SUMS;
    const uint64_t number = (sample * parts + part) * carried_groups(e->p) + group;
    const uint32_t next = ring_next(&e->d_carried, number);
    if (carried_groups(e->p) > 1 && !plan_shares_homes(e->p) && e->d_carried.holds[next] != number)
        leave(e, s, sample, next);
    const uint32_t at = ring_find(e, &e->d_carried, number, &hit);
    const struct zinf_operand slot = zinf_in(e->d_carried.buffer[at], 0);
    e->d_carried_left[at] = (struct d_carried_left){sample, group, own_chunk(e)};
    e->chunk = for_chunk(e, own_chunk(e) + 1);
    if (!hit && !fresh)
        move(e, s, chunks, true, slot, false);
    e->chunk = 0;
    uses_write(uses, e->d_carried.buffer[at]);
    return slot;
}

void emit_d_carried_made(struct emitter *e, uint32_t s, struct span_of chunks,
                         struct zinf_operand slot)
{
    if (carried_groups(e->p) > 1)
        move(e, s, chunks, true, slot, true);
}

struct zinf_operand emit_carried_alone(struct emitter *e, uint32_t s, uint32_t chunk, bool gradient,
                                       struct uses *uses)
{
    struct ring *ring = gradient ? &e->d_carried : &e->carried;
    bool hit;
    const uint32_t at = ring_find(e, ring, UINT64_MAX - e->clock, &hit);
    const struct zinf_operand slot = zinf_in(ring->buffer[at], 0);
    if (gradient)
        move(e, s, (struct span_of){chunk, chunk + 1}, true, slot, false);
    uses_write(uses, ring->buffer[at]);
    return slot;
}
