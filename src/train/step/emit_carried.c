/*
 * emit_carried: what a stage carries from chunk to chunk of a sequence, and its gradient. It lies
 * in groups of chunks, each in a slot on the device while a stage looks at it. Where there is a
 * slot for all of it that is all; else its chunks live where block inputs do, and come and go one
 * by one. A home has one stage's and sample's at a time: forward makes it chunk by chunk, and
 * backward begins with making it again.
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

struct zinf_operand emit_d_carried(struct emitter *e, uint32_t s, uint64_t sample, uint32_t group,
                                   struct span_of chunks, bool fresh, struct uses *uses)
{
    bool hit;
    const uint32_t at = ring_find(e, &e->d_carried, sample * carried_groups(e->p) + group, &hit);
    const struct zinf_operand slot = zinf_in(e->d_carried.buffer[at], 0);
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
