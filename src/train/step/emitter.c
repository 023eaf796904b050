/* emitter: pools, resources and fetches, for the files that build programs. */
#include "train/step/emit.h"

#include <stdlib.h>

static void resource(struct emitter *e, zinf_resource *out)
{
    if (!e->code)
        e->code = zinf_program_resource(e->program, out);
}

static void *array(struct emitter *e, size_t n, size_t width)
{
    void *memory = calloc(n ? n : 1, width);
    if (!memory && !e->code)
        e->code = zinf_fail(-ENOMEM, "no memory to build a program");
    return memory;
}

static void resources(struct emitter *e, zinf_resource **out, size_t n)
{
    *out = array(e, n, sizeof **out);
    for (size_t i = 0; !e->code && i < n; i++)
        resource(e, &(*out)[i]);
}

static void pool(struct emitter *e, const char *name, char *base, uint64_t stride, int n_slots,
                 bool in_order, zinf_pool *out)
{
    struct zinf_pool_options options = {name, base, stride, (uint32_t)n_slots, in_order};
    if (!e->code)
        e->code = zinf_program_pool(e->program, &options, out);
}

static void ring_init(struct emitter *e, struct ring *ring, uint32_t n)
{
    ring->n = n;
    ring->buffer = array(e, n, sizeof *ring->buffer);
    ring->holds = array(e, n, sizeof *ring->holds);
    ring->used = array(e, n, sizeof *ring->used);
    for (uint32_t i = 0; ring->buffer && i < n; i++)
        ring->buffer[i] = ZINF_NO_BUFFER;
}

static void ring_fini(struct ring *ring)
{
    free(ring->buffer);
    free(ring->holds);
    free(ring->used);
}

static void uses_add(struct uses *u, zinf_resource *list, uint32_t *n, zinf_resource r)
{
    if (*n < (u->many ? u->capacity : FEW_USES))
        list[(*n)++] = r;
    else
        u->overflow = true;
}

void uses_read(struct uses *u, zinf_resource r)
{
    uses_add(u, u->many ? u->many : u->few_reads, &u->n_reads, r);
}

void uses_write(struct uses *u, zinf_resource r)
{
    uses_add(u, u->many ? u->many + u->capacity : u->few_writes, &u->n_writes, r);
}

static void make_pools(struct emitter *e)
{
    struct plan *p = e->p;
    int slots = (int)param_slots(p, &p->choice);
    pool(e, "parameter slots", device_at(p, p->at.d_slots), p->sizes.slot, slots, true,
         &e->slots.pool);
    pool(e, "parameter staging", host_at(p, p->at.h_param_stages), p->sizes.slot, slots, true,
         &e->stages);
    pool(e, "gradient slots", device_at(p, p->at.d_grad_slots), p->sizes.grad_slot,
         (int)grad_slots(p, &p->choice), true, &e->grads);
    pool(e, "gradient staging", host_at(p, p->at.h_grad_stages), p->sizes.grad_slot, GRAD_STAGES,
         true, &e->host_grads);
    pool(e, "sub-groups under way", host_at(p, p->at.h_tiles), p->sizes.tile, p->choice.state_slots,
         true, &e->tiles);
    pool(e, "activations between stages", device_at(p, p->at.d_x), e->walk->leaving_bytes,
         (int)x_slots(p), true, &e->xs.pool);
    pool(e, "activations on their way", host_at(p, p->at.h_x_stages), e->walk->leaving_bytes,
         X_STAGES, true, &e->x_stages);
    ring_init(e, &e->slots, (uint32_t)slots);
    ring_init(e, &e->xs, x_slots(p));
}

int emitter_init(struct emitter *e, struct plan *p, struct zinf_program *program, const char *name)
{
    memset(e, 0, sizeof *e);
    e->p = p;
    e->walk = &p->setup->walk;
    e->program = program;
    e->working = UINT64_MAX;
    e->deadline = INHERITED;
    zinf_program_fini(program);
    e->code = zinf_program_init(program, name);
    make_pools(e);
    uint32_t n = p->setup->n_units;
    resources(e, &e->own, n);
    resources(e, &e->param, n);
    resources(e, &e->grad, n);
    resources(e, &e->done, n);
    resources(e, &e->x, (size_t)e->walk->n_leaving * (size_t)p->n_x_micros);
    e->staged = array(e, n, sizeof *e->staged);
    e->staged_as = array(e, n, sizeof *e->staged_as);
    e->fetched = array(e, n, sizeof *e->fetched);
    e->grads_seen = array(e, n, sizeof *e->grads_seen);
    e->grads_total = array(e, n, sizeof *e->grads_total);
    e->operands = array(e, e->walk->most_operands, sizeof *e->operands);
    e->stage_uses = array(e, 2 * (e->walk->most_operands + FEW_USES), sizeof *e->stage_uses);
    e->contributions = array(e, e->walk->most_units, sizeof *e->contributions);
    resource(e, &e->inputs);
    resource(e, &e->losses);
    resource(e, &e->logits);
    resource(e, &e->whole_grads);
    resource(e, &e->sequence);
    resource(e, &e->record);
    resources(e, &e->weighed, (size_t)e->walk->n_choices * (size_t)p->n_x_micros);
    resources(e, &e->listed, (size_t)e->walk->n_choices * (size_t)p->n_x_micros);
    resources(e, &e->decided, e->walk->n_choices);
    resource(e, &e->choice);
    return e->code;
}

int emitter_finish(struct emitter *e)
{
    ring_fini(&e->slots);
    ring_fini(&e->xs);
    free(e->staged);
    free(e->staged_as);
    free(e->own);
    free(e->param);
    free(e->grad);
    free(e->done);
    free(e->x);
    free(e->fetched);
    free(e->grads_seen);
    free(e->grads_total);
    free(e->operands);
    free(e->stage_uses);
    free(e->contributions);
    free(e->weighed);
    free(e->listed);
    free(e->decided);
    return e->code;
}

void emit(struct emitter *e, struct zinf_op *op, const struct uses *uses)
{
    if (!e->code && uses->overflow)
        e->code = zinf_fail(-EINVAL, "an operation uses more than %u things at once",
                            uses->many ? uses->capacity : FEW_USES);
    if (e->code)
        return;
    op->micro = e->micro;
    op->flags |= e->flags;
    op->deadline = e->deadline;
    plan_cost(e->p, op);
    struct zinf_uses u = {.reads = uses->many ? uses->many : uses->few_reads,
                          .writes = uses->many ? uses->many + uses->capacity : uses->few_writes,
                          .n_reads = uses->n_reads,
                          .n_writes = uses->n_writes};
    e->code = zinf_program_add(e->program, op, &u);
}

zinf_buffer emit_buffer(struct emitter *e, zinf_pool from)
{
    zinf_buffer buffer = ZINF_NO_BUFFER;
    if (!e->code)
        e->code = zinf_program_buffer(e->program, from, &buffer);
    return buffer;
}

void emit_drive(struct emitter *e, enum zinf_lane lane, int32_t unit, int32_t arg,
                const struct zinf_location *where, struct zinf_operand memory,
                const struct uses *uses)
{
    struct zinf_op op = {.lane = lane,
                         .kind = lane == ZINF_LANE_READ ? OP_READ : OP_WRITE,
                         .unit = unit,
                         .arg = arg,
                         .at = &memory,
                         .n_at = 1,
                         .where = *where,
                         .bytes = where->bytes};
    emit(e, &op, uses);
}

void emit_copy(struct emitter *e, enum zinf_lane lane, int32_t unit, struct zinf_operand to,
               struct zinf_operand from, uint64_t bytes, const struct uses *uses)
{
    struct zinf_op op = {.lane = lane,
                         .kind = lane == ZINF_LANE_H2D ? OP_COPY_IN : OP_COPY_OUT,
                         .unit = unit,
                         .at = (struct zinf_operand[]){to, from},
                         .n_at = 2,
                         .bytes = bytes};
    emit(e, &op, uses);
}

/* ---- parameters ---- */

/* Drive to staging to device, or host to device, or drive to device. */
static void copy_in(struct emitter *e, uint32_t unit, struct zinf_operand memory,
                    zinf_resource target)
{
    struct zinf_location where = zinf_tiers_param(e->p->tiers, unit, 0);
    struct zinf_operand from = zinf_of(&where);
    struct uses read = {0}, copied = {0};
    if (where.tier == ZINF_TIER_DRIVE) {
        uses_read(&read, e->param[unit]);
        if (e->p->setup->direct) {
            uses_write(&read, target);
            emit_drive(e, ZINF_LANE_READ, (int32_t)unit, 0, &where, memory, &read);
            return;
        }
        zinf_buffer stage = emit_buffer(e, e->stages);
        from = zinf_in(stage, 0);
        e->staged[unit] = stage;
        e->staged_as[unit] = ++e->n_staged;
        uses_write(&read, stage);
        emit_drive(e, ZINF_LANE_READ, (int32_t)unit, 0, &where, from, &read);
        uses_read(&copied, stage);
    } else {
        uses_read(&copied, e->param[unit]);
    }
    uses_write(&copied, target);
    emit_copy(e, ZINF_LANE_H2D, (int32_t)unit, memory, from, where.bytes, &copied);
}

static char *own_slot(const struct plan *p, uint32_t unit)
{
    return device_at(p, p->at.d_own + unit_own_offset(p, unit));
}

uint32_t ring_find(struct emitter *e, struct ring *ring, uint64_t thing, bool *hit)
{
    uint32_t at = 0;
    *hit = false;
    for (uint32_t i = 0; i < ring->n; i++) {
        if (ring->buffer[i] != ZINF_NO_BUFFER && ring->holds[i] == thing) {
            *hit = true;
            at = i;
            break;
        }
        if (ring->used[i] < ring->used[at])
            at = i;
    }
    ring->used[at] = ++e->clock;
    if (*hit)
        return at;
    ring->holds[at] = thing;
    ring->buffer[at] = emit_buffer(e, ring->pool);
    return at;
}

struct zinf_operand emit_fetch(struct emitter *e, uint32_t unit, struct uses *uses)
{
    struct plan *p = e->p;
    uint32_t deadline = e->deadline;
    if (p->routes[unit].fetch == FETCH_STAYS) {
        struct zinf_location where = zinf_tiers_param(p->tiers, unit, 0);
        uses_read(uses, e->param[unit]);
        return zinf_of(&where);
    }
    e->deadline = INHERITED;
    struct zinf_operand memory;
    if (unit_has_own(p, unit)) {
        memory = zinf_at(own_slot(p, unit));
        if (!e->fetched[unit])
            copy_in(e, unit, memory, e->own[unit]);
        e->fetched[unit] = true;
        uses_read(uses, e->own[unit]);
    } else {
        bool hit;
        uint32_t at = ring_find(e, &e->slots, unit, &hit);
        memory = zinf_in(e->slots.buffer[at], 0);
        if (!hit)
            copy_in(e, unit, memory, e->slots.buffer[at]);
        uses_read(uses, e->slots.buffer[at]);
    }
    e->deadline = deadline;
    return memory;
}

static bool is_staged(const struct emitter *e, uint32_t unit)
{
    return e->staged_as[unit] && e->n_staged - e->staged_as[unit] < e->slots.n;
}

bool emit_fetched(struct emitter *e, uint32_t unit, struct zinf_operand *memory,
                  zinf_resource *resource)
{
    const struct plan *p = e->p;
    if (e->code)
        return false;
    if (!p->setup->direct) {
        *resource = e->staged[unit];
        *memory = zinf_in(*resource, 0);
        return is_staged(e, unit);
    }
    if (e->fetched[unit]) {
        *resource = e->own[unit];
        *memory = zinf_at(own_slot(p, unit));
        return true;
    }
    for (uint32_t i = 0; i < e->slots.n; i++)
        if (e->slots.buffer[i] != ZINF_NO_BUFFER && e->slots.holds[i] == unit) {
            *resource = e->slots.buffer[i];
            *memory = zinf_in(*resource, 0);
            return true;
        }
    return false;
}
