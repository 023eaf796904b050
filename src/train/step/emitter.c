/* emitter: pools and resources of a program that is being built, for the files that emit
 * operations. */
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

static void make_slots(struct emitter *e, uint32_t size)
{
    struct plan *p = e->p;
    const struct amounts *c = &p->amounts;
    const int n = (int)param_slots(p, c, size);
    const uint64_t at = p->at.d_slots + param_slots_bytes(p, c, size);
    const uint64_t staging = p->at.h_param_staging + param_stagings_bytes(p, c, size);
    pool(e, "parameter slots", device_at(p, at), p->slots[size].bytes, n, true,
         &e->slots[size].pool);
    pool(e, "parameter staging", host_at(p, staging), p->slots[size].staging,
         (int)param_stagings(p, c, size), true, &e->staging[size]);
    ring_init(e, &e->slots[size], (uint32_t)n);
}

static void make_pools(struct emitter *e)
{
    struct plan *p = e->p;
    for (uint32_t size = 0; size < param_slot_sizes(p, &p->amounts); size++)
        make_slots(e, size);
    pool(e, "weights as the folder has them", host_at(p, p->at.h_files),
         p->setup->weights ? zinf_align_up(p->setup->weights->most_bytes, ZINF_MEMORY_ALIGN) : 0,
         FILE_STAGINGS, true, &e->files);
    pool(e, "packed parameters on their way", host_at(p, p->at.h_packed),
         plan_packed_fetch_bytes(p), PACKED_STAGINGS, true, &e->packed);
    pool(e, "packed parameters on the device", device_at(p, p->at.d_packed),
         plan_packed_fetch_bytes(p), PACKED_STAGINGS, true, &e->packed_slots);
    pool(e, "parameters in 8 bits on their way", host_at(p, p->at.h_codes),
         plan_code_bytes(p, true), CODE_STAGINGS, true, &e->codes);
    pool(e, "parameters in 8 bits on the device", device_at(p, p->at.d_codes),
         plan_code_bytes(p, false), CODE_STAGINGS, true, &e->code_slots);
    pool(e, "updated parameters, for 8 bits", host_at(p, p->at.h_updated), plan_updated_bytes(p), 1,
         true, &e->updated);
    pool(e, "packed gradients on their way", host_at(p, p->at.h_packed_grads),
         setup_packed_bytes(p->setup, ZINF_PACKABLE_GRAD), PACKED_STAGINGS, true, &e->packed_grads);
    pool(e, "gradient slots", device_at(p, p->at.d_grad_slots), p->sizes.grad_slot,
         (int)grad_slots(p, &p->amounts), true, &e->grads);
    pool(e, "gradient slots of shared tables", device_at(p, p->at.d_beside_slots),
         p->sizes.beside_slot, (int)beside_slots(p), true, &e->beside_grads);
    pool(e, "gradient staging", host_at(p, p->at.h_grad_staging), p->sizes.grad_staging,
         GRAD_STAGINGS, true, &e->host_grads);
    pool(e, "sub-groups under way", host_at(p, p->at.h_tiles), p->sizes.tile,
         p->amounts.state_slots, true, &e->tiles);
    pool(e, "activations between stages", device_at(p, p->at.d_x), plan_leaving_bytes(p),
         (int)x_slots(p), true, &e->xs.pool);
    pool(e, "activations kept for backward", device_at(p, p->at.d_kept_always), e->walk->kept_most,
         KEPT_SLOTS, true, &e->kept.pool);
    pool(e, "activations on their way", host_at(p, p->at.h_x_staging), plan_value_staging_bytes(p),
         p->amounts.x_stagings, true, &e->x_staging);
    pool(e, "keys and values between ranks", host_at(p, p->at.h_exchanged), plan_exchanged_bytes(p),
         EXCHANGED, true, &e->exchanged);
    pool(e, "keys and values at hand", device_at(p, p->at.d_cache), e->walk->largest_cache,
         CACHE_SLOTS, true, &e->caches);
    pool(e, "keys and values of chunks", device_at(p, p->at.d_carried),
         carried_group_bytes(p, false), (int)carried_slots(p), true, &e->carried.pool);
    pool(e, "gradients of keys and values", device_at(p, p->at.d_carried_gradient),
         carried_slot_bytes(p, true), (int)carried_slots(p), true, &e->d_carried.pool);
    ring_init(e, &e->carried, carried_slots(p));
    ring_init(e, &e->d_carried, carried_slots(p));
    ring_init(e, &e->xs, x_slots(p));
    ring_init(e, &e->kept, KEPT_SLOTS);
}

static void take_arrays(struct emitter *e)
{
    const uint32_t n = e->p->setup->n_units;
    e->carried_filled = array(e, e->carried.n, sizeof *e->carried_filled);
    e->carried_loads = array(e, e->carried.n, sizeof *e->carried_loads);
    e->d_carried_left = array(e, e->d_carried.n, sizeof *e->d_carried_left);
    e->staged = array(e, n, sizeof *e->staged);
    e->staged_as = array(e, n, sizeof *e->staged_as);
    e->fetched = array(e, n, sizeof *e->fetched);
    e->encoded = array(e, n, sizeof *e->encoded);
    e->grads_seen = array(e, n, sizeof *e->grads_seen);
    e->grads_total = array(e, n, sizeof *e->grads_total);
    e->turns_seen = array(e, n, sizeof *e->turns_seen);
    e->operands = array(e, e->walk->most_operands, sizeof *e->operands);
    e->stage_uses = array(e, 2 * (e->walk->most_operands + FEW_USES), sizeof *e->stage_uses);
    e->contributions = array(e, e->walk->most_units, sizeof *e->contributions);
    e->swept = array(e, n, sizeof *e->swept);
    e->swept_sums = array(e, n, sizeof *e->swept_sums);
}

/* What a program's operations use from the beginning; n_fixed: how many there are. */
static void take_resources(struct emitter *e)
{
    const struct plan *p = e->p;
    const uint32_t n = p->setup->n_units;
    const size_t live = (size_t)p->itinerary.live;
    resources(e, &e->own, n);
    resources(e, &e->images, n);
    resources(e, &e->param, n);
    resources(e, &e->grad, n);
    resources(e, &e->done, n);
    resources(e, &e->x, (size_t)plan_n_leaving(p) * live);
    resources(e, &e->carried_home, carried_homes(p, false) + carried_homes(p, true));
    resource(e, &e->inputs);
    resource(e, &e->unpacked);
    resource(e, &e->losses);
    resource(e, &e->logits);
    resource(e, &e->whole_grads);
    resource(e, &e->sequence);
    resource(e, &e->update_work);
    resource(e, &e->wire);
    if (is_piped(p->setup))
        resources(e, &e->crossing, live);
    resource(e, &e->record);
    resources(e, &e->weighed, (size_t)e->walk->n_choices * live);
    resources(e, &e->listed, (size_t)e->walk->n_choices * live);
    resources(e, &e->decided, e->walk->n_choices);
    resource(e, &e->choice);
    e->n_fixed = e->choice + 1; /* the last that was made */
}

int emitter_init(struct emitter *e, struct plan *p, struct zinf_program *program, const char *name)
{
    memset(e, 0, sizeof *e);
    e->p = p;
    e->walk = &p->setup->walk;
    e->program = program;
    e->working = e->carrying = UINT64_MAX;
    e->micro = -1;
    e->deadline = INHERITED;
    zinf_program_fini(program);
    e->code = zinf_program_init(program, name);
    make_pools(e);
    take_resources(e);
    take_arrays(e);
    e->n_turns = 1;
    for (uint32_t u = 0; !e->code && u < p->setup->n_units; u++)
        e->fetched[u].here = program != &p->fill && unit_stays(p, u);
    return e->code;
}

int emitter_finish(struct emitter *e)
{
    for (uint32_t size = 0; size < SLOT_SIZES; size++)
        ring_fini(&e->slots[size]);
    ring_fini(&e->xs);
    ring_fini(&e->kept);
    ring_fini(&e->carried);
    ring_fini(&e->d_carried);
    free(e->carried_home);
    free(e->carried_filled);
    free(e->carried_loads);
    free(e->d_carried_left);
    free(e->staged);
    free(e->staged_as);
    free(e->own);
    free(e->images);
    free(e->encoded);
    free(e->param);
    free(e->grad);
    free(e->done);
    free(e->x);
    free(e->fetched);
    free(e->grads_seen);
    free(e->grads_total);
    free(e->turns_seen);
    free(e->crossing);
    free(e->operands);
    free(e->stage_uses);
    free(e->contributions);
    free(e->swept);
    free(e->swept_sums);
    free(e->weighed);
    free(e->listed);
    free(e->decided);
    free(e->lives_on);
    if (!e->code && e->program->pieces)
        e->code = zinf_program_end_cut(e->program, e->taker);
    if (e->hands && !e->code)
        return zinf_fail(-EINVAL, "a rank would not give on what it takes from another");
    return e->code;
}

/* Ranks of a sequence that hand states over wait for each other on two lanes, DEVICE and NET. Where
 * they look at groups of each other's chunks they have different operations, and would order their
 * lanes differently. So all that they meet in comes in the order of the program, which is one. */
static bool keeps_order(const struct emitter *e, const struct zinf_op *op)
{
    const bool meets = op->lane == ZINF_LANE_NET || op->kind == OP_HAND;
    return meets && context_axis(e->p->setup)->world > 1 &&
           (plan_shares_homes(e->p) || e->walk->in_order);
}

/* The other operations of the lane DEVICE then keep the program's order, too. If one that a
 * neighbour waits for came behind a take from that neighbour, both ranks would wait for ever. */
static bool keeps_sequence(const struct emitter *e, const struct zinf_op *op)
{
    return op->lane == ZINF_LANE_DEVICE && op->kind < OP_STAGES &&
           context_axis(e->p->setup)->world > 1 && e->walk->in_order;
}

/* Refuses programs in which ranks would wait for each other in a circle. A rank that has taken a
 * state must give it on, in the same direction, before it takes another or meets other ranks: until
 * then the next rank waits for it. */
static void check_hands(struct emitter *e, const struct zinf_op *op)
{
    const bool hand = op->kind == OP_HAND;
    const bool gives_on = e->hands && !op->visit && op->arg != e->hands_next;
    const bool circle =
        hand ? !gives_on && (e->hands || !op->visit) : e->hands && op->lane == ZINF_LANE_NET;
    char name[64];
    if (circle && !e->code)
        e->code = zinf_fail(-EINVAL, "ranks would wait for each other in \"%s\"",
                            plan_op_name(e->p->setup, op, name));
    if (hand) {
        e->hands = op->visit;
        e->hands_next = op->arg;
    }
}

void emit(struct emitter *e, struct zinf_op *op, const struct uses *given)
{
    struct uses own = *given;
    const struct uses *uses = &own;
    check_hands(e, op);
    if (keeps_order(e, op))
        uses_write(&own, e->wire);
    if (keeps_sequence(e, op))
        uses_write(&own, e->sequence);
    if (!e->code && uses->overflow)
        e->code = zinf_fail(-EINVAL, "an operation uses more than %u things at once",
                            uses->many ? uses->capacity : FEW_USES);
    if (e->code)
        return;
    op->micro = op_updates(op->kind) ? -1 : e->micro;
    op->flags |= e->flags;
    op->chunk = op->chunk ? op->chunk : e->chunk;
    op->deadline = e->deadline;
    const uint16_t kept = op->kind == OP_READ ? OP_KEPT : 0;
    if (op->flags & (OP_CHOSEN | OP_UNCHOSEN | kept)) {
        double unchosen = plan_unchosen(e->p, e->walk->units[op->unit].chooser);
        op->left_out = op->flags & OP_UNCHOSEN ? 1 - unchosen : unchosen;
    }
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

void emit_drive(struct emitter *e, const struct drive_transfer *transfer, const struct uses *uses)
{
    struct zinf_op op = {.lane = transfer->lane,
                         .kind = transfer->lane == ZINF_LANE_READ ? OP_READ : OP_WRITE,
                         .unit = transfer->unit,
                         .arg = transfer->group,
                         .at = &transfer->memory,
                         .n_at = 1,
                         .where = transfer->where,
                         .bytes = transfer->where->bytes};
    emit(e, &op, uses);
}

void emit_copy(struct emitter *e, const struct device_copy *copy, const struct uses *uses)
{
    struct zinf_op op = {.lane = copy->lane,
                         .kind = copy->lane == ZINF_LANE_H2D ? OP_COPY_IN : OP_COPY_OUT,
                         .unit = copy->unit,
                         .at = (struct zinf_operand[]){copy->to, copy->from},
                         .n_at = 2,
                         .bytes = copy->bytes};
    emit(e, &op, uses);
}

uint32_t ring_next(const struct ring *ring, uint64_t thing)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < ring->n; i++) {
        if (ring->buffer[i] != ZINF_NO_BUFFER && ring->holds[i] == thing)
            return i;
        if (ring->used[i] < ring->used[at])
            at = i;
    }
    return at;
}

uint32_t ring_find(struct emitter *e, struct ring *ring, uint64_t thing, bool *hit)
{
    const uint32_t at = ring_next(ring, thing);
    *hit = ring->buffer[at] != ZINF_NO_BUFFER && ring->holds[at] == thing;
    ring->used[at] = ++e->clock;
    if (*hit)
        return at;
    ring->holds[at] = thing;
    ring->buffer[at] = emit_buffer(e, ring->pool);
    return at;
}
