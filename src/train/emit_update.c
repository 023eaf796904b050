/*
 * emit_update: the optimizer as a program. Sub-group by sub-group: state and gradient come to where
 * the update runs, new parameters and state go back to their tiers. Reads run ahead of updates and
 * writes behind them, as far as there are slots.
 */
#include "train/emit.h"

struct group {
    uint32_t number, unit;
    uint64_t n;
    struct zinf_location state, grad, param;
};

static struct group group_at(const struct zinf_trainer *t, uint32_t number)
{
    const struct zinf_layout_group *g = &t->layout.groups[number];
    return (struct group){
        .number = number,
        .unit = g->unit,
        .n = g->n,
        .state = zinf_tiers_group_state(t->tiers, number),
        .grad = zinf_tiers_group_grad(t->tiers, number),
        .param = zinf_tiers_group_param(t->tiers, number),
    };
}

static void drive(struct emitter *e, const struct group *g, enum zinf_lane lane,
                  struct zinf_location where, void *memory, zinf_resource on_drive,
                  zinf_resource in_memory)
{
    struct zinf_op op = {.lane = lane,
                         .kind = OP_DRIVE,
                         .unit = (int32_t)g->unit,
                         .arg = (int32_t)g->number,
                         .memory = memory,
                         .where = where,
                         .bytes = where.bytes};
    struct uses uses = {0};
    uses_read(&uses, lane == ZINF_LANE_READ ? on_drive : in_memory);
    uses_write(&uses, lane == ZINF_LANE_READ ? in_memory : on_drive);
    emit(e, &op, &uses);
}

static void copy(struct emitter *e, const struct group *g, enum zinf_lane lane, void *to,
                 zinf_resource to_resource, void *from, zinf_resource from_resource)
{
    struct zinf_op op = {.lane = lane,
                         .kind = (uint16_t)(lane == ZINF_LANE_H2D ? OP_COPY_IN : OP_COPY_OUT),
                         .unit = (int32_t)g->unit,
                         .arg = (int32_t)g->number,
                         .memory = to,
                         .memory2 = from,
                         .bytes = g->param.bytes};
    struct uses uses = {0};
    uses_read(&uses, from_resource);
    uses_write(&uses, to_resource);
    emit(e, &op, &uses);
}

static void update(struct emitter *e, const struct group *g, enum zinf_lane lane, void *state,
                   void *param, void *grad, struct uses *uses)
{
    struct zinf_op op = {.lane = lane,
                         .kind = OP_UPDATE,
                         .unit = (int32_t)g->unit,
                         .arg = (int32_t)g->number,
                         .memory = state,
                         .memory2 = param,
                         .memory3 = grad,
                         .bytes = g->state.bytes + g->n * sizeof(float) + g->param.bytes};
    emit(e, &op, uses);
}

/* State in RAM or on the drive: the update runs on the CPU. */
static void emit_on_host(struct emitter *e, const struct group *g)
{
    struct zinf_trainer *t = e->t;
    struct uses uses = {0};
    char *state = g->state.memory, *grad = g->grad.memory, *param = g->param.memory;
    zinf_resource state_resource = e->state[g->number], param_resource = e->param[g->unit];
    if (g->state.tier == ZINF_TIER_DRIVE) {
        uint32_t slot = ring_take(e, &e->state_slots);
        state = host_at(t, t->at.h_state_slots + slot * t->sizes.state_slot);
        state_resource = e->state_slots.resource[slot];
        drive(e, g, ZINF_LANE_READ, g->state, state, e->state[g->number], state_resource);
        if (g->grad.tier == ZINF_TIER_DRIVE) {
            grad = state + g->state.bytes;
            drive(e, g, ZINF_LANE_READ, g->grad, grad, e->grad[g->unit], state_resource);
        }
    }
    if (g->param.tier != ZINF_TIER_HOST) {
        uint32_t slot = ring_take(e, &e->outs);
        param = host_at(t, t->at.h_out + slot * t->sizes.out);
        param_resource = e->outs.resource[slot];
    }
    uses_write(&uses, state_resource);
    uses_write(&uses, param_resource);
    update(e, g, ZINF_LANE_HOST, state, param, grad, &uses);
    if (g->state.tier == ZINF_TIER_DRIVE)
        drive(e, g, ZINF_LANE_WRITE, g->state, state, e->state[g->number], state_resource);
    if (g->param.tier == ZINF_TIER_DRIVE)
        drive(e, g, ZINF_LANE_WRITE, g->param, param, e->param[g->unit], param_resource);
    if (g->param.tier == ZINF_TIER_DEVICE)
        copy(e, g, ZINF_LANE_H2D, g->param.memory, e->device_param[g->unit], param, param_resource);
}

/* State on the device: the update runs there. */
static void emit_on_device(struct emitter *e, const struct group *g)
{
    struct zinf_trainer *t = e->t;
    struct uses uses = {0};
    char *param = g->param.memory;
    zinf_resource resource = e->device_param[g->unit];
    if (g->param.tier != ZINF_TIER_DEVICE) {
        uint32_t slot = ring_take(e, &e->d_outs);
        param = device_at(t, t->at.d_out + slot * t->sizes.out);
        resource = e->d_outs.resource[slot];
    }
    uses_write(&uses, e->state[g->number]);
    uses_write(&uses, resource);
    update(e, g, ZINF_LANE_DEVICE, g->state.memory, param, g->grad.memory, &uses);
    if (g->param.tier == ZINF_TIER_HOST)
        copy(e, g, ZINF_LANE_D2H, g->param.memory, e->param[g->unit], param, resource);
    if (g->param.tier == ZINF_TIER_DRIVE) {
        uint32_t slot = ring_take(e, &e->outs);
        char *staged = host_at(t, t->at.h_out + slot * t->sizes.out);
        zinf_resource staged_resource = e->outs.resource[slot];
        copy(e, g, ZINF_LANE_D2H, staged, staged_resource, param, resource);
        drive(e, g, ZINF_LANE_WRITE, g->param, staged, e->param[g->unit], staged_resource);
    }
}

int trainer_emit_update(struct zinf_trainer *t)
{
    struct emitter e;
    if (!emitter_init(&e, t, &t->update, "update")) {
        for (uint32_t i = 0; i < t->layout.n_groups; i++) {
            struct group g = group_at(t, i);
            if (t->state_tier == ZINF_TIER_DEVICE)
                emit_on_device(&e, &g);
            else
                emit_on_host(&e, &g);
        }
    }
    return emitter_finish(&e);
}
