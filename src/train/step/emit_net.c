/*
 * emit_net: what goes between ranks. A fetch gathers a unit of all ranks' slices: each reads its
 * own to its place in the whole, in memory that the CPU can reach, and the others' come beside it.
 * Where ranks have units whole (stages below 3), slices go to all after their update instead.
 * A contribution to a gradient, which is of the whole unit, is summed over all ranks as soon as it
 * is made, and each rank goes on with its slice of the sum.
 *
 * GPUs with a way to each other do the same among themselves, on the same lane: each brings its
 * slice from its host, and takes its slice of a sum back there.
 *
 * Collectives meet because all ranks have them in one order: the same programs, ordered by the same
 * rates (agree.h). So none is ever left out by what a rank alone has seen: whether rows have chosen
 * a unit is first agreed on (emit_choice.c).
 */
#include "train/step/emit.h"

static void emit_net(struct emitter *e, int kind, uint32_t unit, uint64_t unit_bytes,
                     const struct zinf_operand at[2], const struct uses *uses)
{
    uint64_t world = data_axis(e->p->setup)->world;
    struct zinf_op op = {.lane = ZINF_LANE_NET,
                         .kind = (uint16_t)kind,
                         .unit = (int32_t)unit,
                         .at = at,
                         .n_at = 2,
                         .bytes = unit_bytes / world * (world - 1)};
    emit(e, &op, uses);
}

/* This rank's slice to `own`, its place in the whole; or it is used from where it lives. */
static struct zinf_operand own_slice(struct emitter *e, uint32_t unit, struct zinf_operand own,
                                     zinf_resource whole)
{
    struct zinf_location where = zinf_tiers_param(e->p->tiers, unit, 0);
    struct uses uses = {0};
    if (where.tier != ZINF_TIER_DRIVE)
        return zinf_of(&where);
    emit_choice_awaits(e, unit, &uses);
    uses_read(&uses, e->param[unit]);
    uses_write(&uses, whole);
    emit_drive(e, ZINF_LANE_READ, (int32_t)unit, 0, &where, own, &uses);
    return own;
}

/* This rank's slice in a place of its own, or where it lives; adds the reads to uses. */
static struct zinf_operand slice_on_host(struct emitter *e, uint32_t unit,
                                         const struct zinf_location *where, struct uses *uses)
{
    uses_read(uses, e->param[unit]);
    if (where->tier != ZINF_TIER_DRIVE)
        return zinf_of(where);
    zinf_buffer stage = emit_buffer(e, e->stages);
    e->staged[unit] = stage;
    e->staged_as[unit] = ++e->n_staged;
    uses_read(uses, stage);
    return own_slice(e, unit, zinf_in(stage, 0), stage);
}

/* This rank's slice to its place in the whole on the GPU, or from where it lives there; then the
 * others' beside it. */
static void emit_link_gather(struct emitter *e, uint32_t unit, struct zinf_operand memory,
                             zinf_resource target)
{
    const struct setup *s = e->p->setup;
    struct zinf_location where = zinf_tiers_param(e->p->tiers, unit, 0);
    struct zinf_operand own = zinf_of(&where);
    struct uses gathered = {0}, copied = {0};
    emit_choice_awaits(e, unit, &gathered);
    emit_choice_awaits(e, unit, &copied);
    if (where.tier != ZINF_TIER_DEVICE) {
        struct zinf_operand from = slice_on_host(e, unit, &where, &copied);
        own = zinf_beyond(memory, zinf_layout_slice_at(&s->layout, unit, s->dtype));
        uses_write(&copied, target);
        emit_copy(e, ZINF_LANE_H2D, (int32_t)unit, own, from, where.bytes, &copied);
    } else {
        uses_read(&gathered, e->param[unit]);
    }
    uses_write(&gathered, target);
    emit_net(e, OP_LINK_GATHER, unit, zinf_layout_unit_bytes(&s->layout, unit, s->dtype),
             (struct zinf_operand[]){memory, own}, &gathered);
}

/* From where each rank has its slice, this one too: read to a place of its own, or as it lives. */
static void emit_pull(struct emitter *e, uint32_t unit, struct zinf_operand memory,
                      zinf_resource target)
{
    const struct setup *s = e->p->setup;
    struct zinf_location where = zinf_tiers_param(e->p->tiers, unit, 0);
    struct uses uses = {0};
    struct zinf_operand own = slice_on_host(e, unit, &where, &uses);
    emit_choice_awaits(e, unit, &uses);
    uses_write(&uses, target);
    uint64_t bytes = zinf_layout_unit_bytes(&s->layout, unit, s->dtype);
    emit_net(e, OP_PULL, unit, bytes, (struct zinf_operand[]){memory, own}, &uses);
}

void emit_gather(struct emitter *e, uint32_t unit, struct zinf_operand memory, zinf_resource target)
{
    const struct plan *p = e->p;
    const struct zinf_layout *layout = &p->setup->layout;
    uint64_t bytes = zinf_layout_unit_bytes(layout, unit, p->setup->dtype);
    uint64_t first = zinf_layout_slice_at(layout, unit, p->setup->dtype);
    struct zinf_operand whole = memory;
    zinf_resource resource = target;
    struct uses gathered = {0}, copied = {0};
    if (p->variant.by_link || p->setup->lends) {
        if (p->variant.by_link)
            emit_link_gather(e, unit, memory, target);
        else
            emit_pull(e, unit, memory, target);
        return;
    }
    if (!p->setup->direct) {
        e->staged[unit] = resource = emit_buffer(e, e->stages);
        e->staged_as[unit] = ++e->n_staged;
        whole = zinf_in(resource, 0);
    }
    struct zinf_operand own = own_slice(e, unit, zinf_beyond(whole, first), resource);
    emit_choice_awaits(e, unit, &gathered);
    emit_choice_awaits(e, unit, &copied);
    uses_read(&gathered, e->param[unit]);
    uses_write(&gathered, resource);
    emit_net(e, OP_GATHER, unit, bytes, (struct zinf_operand[]){whole, own}, &gathered);
    if (p->setup->direct)
        return;
    uses_read(&copied, resource);
    uses_write(&copied, target);
    emit_copy(e, ZINF_LANE_H2D, (int32_t)unit, memory, whole, bytes, &copied);
}

/* Through host memory where that is another: the slice out, the whole back. */
void emit_spread(struct emitter *e, uint32_t unit)
{
    const struct plan *p = e->p;
    const struct zinf_layout_unit *u = &p->setup->layout.units[unit];
    uint64_t width = zinf_dtype_bytes(p->setup->dtype), bytes = u->padded_elems * width;
    struct zinf_location where = zinf_tiers_param(p->tiers, unit, 0);
    struct zinf_operand home = zinf_of(&where), whole = home;
    zinf_resource stage = 0;
    struct uses out = {0}, gathered = {0}, back = {0};
    if (!p->routes[unit].spread)
        return;
    uses_write(&gathered, e->done[unit]); /* after all that updates wrote */
    uses_write(&gathered, e->param[unit]);
    bool by_link = p->variant.by_link && where.tier == ZINF_TIER_DEVICE;
    bool by_host = !p->setup->direct && !by_link;
    if (by_host) {
        whole = zinf_in(stage = emit_buffer(e, e->stages), 0);
        uses_write(&out, e->done[unit]);
        uses_write(&out, stage);
        uses_write(&gathered, stage);
        emit_copy(e, ZINF_LANE_D2H, (int32_t)unit, zinf_beyond(whole, u->slice_first * width),
                  zinf_beyond(home, u->slice_first * width), u->slice_elems * width, &out);
    }
    struct zinf_operand own = zinf_beyond(whole, u->slice_first * width);
    emit_net(e, by_link ? OP_LINK_GATHER : OP_GATHER, unit, bytes,
             (struct zinf_operand[]){whole, own}, &gathered);
    if (!by_host)
        return;
    uses_read(&back, stage);
    uses_write(&back, e->done[unit]);
    uses_write(&back, e->param[unit]);
    emit_copy(e, ZINF_LANE_H2D, (int32_t)unit, home, whole, bytes, &back);
}

/* The first one's sum goes to where it is kept, if that is memory of the host. GPUs leave it in its
 * place in the whole. */
struct made_grad emit_scatter(struct emitter *e, uint32_t unit, struct made_grad whole,
                              const struct made_grad *place)
{
    uint64_t first = e->p->setup->layout.units[unit].slice_first * sizeof(float);
    uint64_t bytes = e->p->setup->layout.units[unit].padded_elems * sizeof(float);
    bytes *= whole_state(e->p->setup) ? 2 : 1; /* the sum of each slice comes back */
    struct made_grad sum = whole;
    struct uses uses = {0};
    sum.at = zinf_beyond(whole.at, first);
    if (place)
        sum = *place;
    uses_write(&uses, whole.resource);
    if (place)
        uses_write(&uses, place->resource);
    bool by_link = e->p->variant.by_link;
    emit_net(e, by_link ? OP_LINK_SCATTER : OP_SCATTER, unit, bytes,
             (struct zinf_operand[]){sum.at, whole.at}, &uses);
    sum.on_host = !by_link;
    return sum;
}
