/* emitter: rings, resources and fetches, for the files that build programs. */
#include "train/emit.h"

#include <stdlib.h>

static void resource(struct emitter *e, zinf_resource *out)
{
    if (!e->code)
        e->code = zinf_program_resource(e->program, out);
}

static void ring_init(struct emitter *e, struct ring *ring, uint32_t n)
{
    ring->n = n;
    for (uint32_t i = 0; i < n; i++) {
        resource(e, &ring->resource[i]);
        ring->unit[i] = NO_UNIT;
    }
}

static void *array(struct emitter *e, size_t n, size_t width)
{
    void *memory = calloc(n ? n : 1, width);
    if (!memory && !e->code)
        e->code = zinf_fail(-ENOMEM, "no memory to build a program");
    return memory;
}

static void resources(struct emitter *e, zinf_resource **out, uint32_t n)
{
    *out = array(e, n, sizeof **out);
    for (uint32_t i = 0; !e->code && i < n; i++)
        resource(e, &(*out)[i]);
}

int emitter_init(struct emitter *e, struct zinf_trainer *t, struct zinf_program *program,
                 const char *name)
{
    memset(e, 0, sizeof *e);
    e->t = t;
    e->program = program;
    e->working_layer = UINT32_MAX;
    e->code = zinf_program_init(program, name);
    uint32_t slots = (uint32_t)t->choice.look_ahead + 1;
    ring_init(e, &e->slots, slots);
    ring_init(e, &e->param_stages, slots);
    ring_init(e, &e->grad_slots, (uint32_t)t->choice.grad_slots);
    ring_init(e, &e->grad_stages, GRAD_STAGES);
    ring_init(e, &e->grad_sums, GRAD_STAGES);
    ring_init(e, &e->state_slots, STATE_SLOTS);
    ring_init(e, &e->outs, OUT_SLOTS);
    ring_init(e, &e->d_outs, OUT_SLOTS);
    resources(e, &e->device_param, t->n_units);
    resources(e, &e->param, t->n_units);
    resources(e, &e->grad, t->n_units);
    resources(e, &e->state, t->layout.n_groups);
    e->fetched = array(e, t->n_units, sizeof *e->fetched);
    e->grads_seen = array(e, t->n_units, sizeof *e->grads_seen);
    e->grads_total = array(e, t->n_units, sizeof *e->grads_total);
    resource(e, &e->tokens);
    resource(e, &e->losses);
    resource(e, &e->logits);
    resource(e, &e->tile_grads);
    return e->code;
}

int emitter_finish(struct emitter *e)
{
    free(e->device_param);
    free(e->param);
    free(e->grad);
    free(e->state);
    free(e->fetched);
    free(e->grads_seen);
    free(e->grads_total);
    zinf_program_seal(e->program);
    return e->code;
}

uint32_t ring_take(struct emitter *e, struct ring *ring)
{
    uint32_t oldest = 0;
    for (uint32_t i = 1; i < ring->n; i++)
        if (ring->used[i] < ring->used[oldest])
            oldest = i;
    ring->used[oldest] = ++e->clock;
    ring->unit[oldest] = NO_UNIT;
    return oldest;
}

void emit(struct emitter *e, const struct zinf_op *op, const struct uses *uses)
{
    if (e->code)
        return;
    struct zinf_op added = *op;
    added.micro = e->micro;
    struct zinf_uses u = {uses->reads, uses->writes, uses->n_reads, uses->n_writes};
    e->code = zinf_program_add(e->program, &added, &u);
}

/* Drive to staging to device, or host to device. target is leased from the first operation on, so
 * that look-ahead is bounded by device slots alone. */
static void emit_copy_in(struct emitter *e, uint32_t unit, void *memory, zinf_resource target)
{
    struct zinf_trainer *t = e->t;
    struct zinf_location where = zinf_tiers_param(t->tiers, unit);
    struct zinf_op copy = {.lane = ZINF_LANE_H2D,
                           .kind = OP_COPY_IN,
                           .unit = (int32_t)unit,
                           .memory = memory,
                           .memory2 = where.memory,
                           .bytes = where.bytes};
    struct uses copied = {0};
    if (where.tier == ZINF_TIER_DRIVE) {
        uint32_t stage = ring_take(e, &e->param_stages);
        char *staged = host_at(t, t->at.h_param_stages + stage * t->sizes.slot);
        struct zinf_op read = {.lane = ZINF_LANE_READ,
                               .kind = OP_DRIVE,
                               .unit = (int32_t)unit,
                               .memory = staged,
                               .where = where,
                               .bytes = where.bytes};
        struct uses uses = {0};
        uses_read(&uses, e->param[unit]);
        uses_write(&uses, e->param_stages.resource[stage]);
        uses_write(&uses, target);
        emit(e, &read, &uses);
        copy.memory2 = staged;
        uses_read(&copied, e->param_stages.resource[stage]);
    } else {
        uses_read(&copied, e->param[unit]);
    }
    uses_write(&copied, target);
    emit(e, &copy, &copied);
}

static void *own_slot(const struct zinf_trainer *t, uint32_t unit)
{
    uint64_t elems = 0;
    for (uint32_t u = 0; u < unit; u++)
        elems += t->layout.units[u].padded_elems;
    return device_at(t, t->at.d_own + elems * zinf_dtype_bytes(t->dtype));
}

void *emit_fetch(struct emitter *e, uint32_t unit, struct uses *uses)
{
    struct zinf_trainer *t = e->t;
    if (t->param_tier == ZINF_TIER_DEVICE) {
        uses_read(uses, e->device_param[unit]);
        return zinf_tiers_param(t->tiers, unit).memory;
    }
    if ((int)unit < t->choice.n_own) {
        void *memory = own_slot(t, unit);
        if (!e->fetched[unit])
            emit_copy_in(e, unit, memory, e->device_param[unit]);
        e->fetched[unit] = true;
        uses_read(uses, e->device_param[unit]);
        return memory;
    }
    struct ring *ring = &e->slots;
    uint32_t slot = 0;
    while (slot < ring->n && ring->unit[slot] != unit)
        slot++;
    bool hit = slot < ring->n;
    if (!hit)
        slot = ring_take(e, ring);
    ring->used[slot] = ++e->clock;
    ring->unit[slot] = unit;
    void *memory = device_at(t, t->at.d_slots + slot * t->sizes.slot);
    if (!hit)
        emit_copy_in(e, unit, memory, ring->resource[slot]);
    uses_read(uses, ring->resource[slot]);
    return memory;
}
