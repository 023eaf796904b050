/*
 * emit_swept: gradients of a sweep whose units are all on the device. Its operation runs for one
 * micro-batch at a time. Gradients of several micro-batches of a range are added up on the device
 * where there are slots, so that they go to the kept sums once.
 */
#include "train/step/emit.h"

/* All units of a sweep are used alike, so the first trained one stands for them. */
static uint32_t first_trained(const struct emitter *e, const struct zinf_ids *sweep)
{
    for (uint32_t i = 0; i < sweep->n; i++)
        if (unit_trains(e->p->setup, sweep->at[i]))
            return sweep->at[i];
    return sweep->at[0];
}

/* The first micro-batch's gradients are made where they are summed: in their kept places, or in
 * slots. */
void emit_swept_targets(struct emitter *e, const struct zinf_ids *sweep, bool first,
                        struct uses *uses)
{
    struct plan *p = e->p;
    uint32_t lead = first_trained(e, sweep);
    bool apart = way_sums_in_place(&p->travel, &p->homes[lead]) ? e->grads_seen[lead] > 0
                                                                : !first || !plan_sums_whole(p);
    uint64_t offset = p->at.d_whole_grads;
    if (apart)
        uses_write(uses, e->whole_grads);
    for (uint32_t i = 0; i < sweep->n; i++) {
        uint32_t unit = sweep->at[i];
        e->swept[i] = (struct made_grad){0};
        if (!unit_trains(p->setup, unit))
            continue;
        if (!apart) {
            e->swept[i] = emit_grad_target(e, unit, uses);
            continue;
        }
        e->swept[i] =
            (struct made_grad){.at = zinf_at(device_at(p, offset)), .resource = e->whole_grads};
        offset += p->setup->layout.units[unit].padded_elems * sizeof(float);
    }
}

void emit_swept_made(struct emitter *e, const struct zinf_ids *sweep, bool first, bool last)
{
    bool in_slots = plan_sums_whole(e->p);
    for (uint32_t i = 0; i < sweep->n; i++) {
        uint32_t unit = sweep->at[i];
        if (!unit_trains(e->p->setup, unit))
            continue;
        if (in_slots && first)
            e->swept_sums[i] = e->swept[i];
        else if (in_slots)
            emit_grad_join(e, unit, e->swept_sums[i], e->swept[i], (struct zinf_span){0});
        if (!in_slots || last)
            emit_grad_made(e, unit, in_slots ? e->swept_sums[i] : e->swept[i]);
        if (last)
            e->swept_sums[i] = (struct made_grad){0};
    }
}
