/*
 * schedule: ends the building of a program. It finds an order of all operations; gives slots to
 * buffers in that order, the slot that has been free for longest first; and makes the waits anew:
 * true dependencies, and waits for the slot's previous buffer, without those that the order of a
 * lane implies.
 */
#include "offload/builder.h"

#include <stdlib.h>

struct slot {
    zinf_buffer tenant; /* buffer that has the slot; NONE: none yet */
    uint32_t left_at;   /* position of its last use */
    bool taken;
};

struct freeze {
    struct zinf_program *program;
    const struct zinf_builder *b;
    /* [n_ops] operation at each position, and position of each operation */
    uint32_t *order, *position;
    uint32_t *first_touch;        /* [n_ops + 1] into b->touches, by operation */
    uint32_t *touches_left;       /* [n_resources] uses that are left */
    uint32_t *slot_of;            /* [n_resources] slot of each buffer */
    zinf_buffer *before;          /* [n_resources] previous buffer of the slot, or NONE */
    struct slot **slots;          /* [n_pools][n_slots] */
    uint32_t *first_slot;         /* [n_pools] index of the pool's first slot among all slots */
    uint32_t *first_user, *users; /* users of each buffer, in the order of operations */
    uint32_t *waits, n_waits, waits_capacity;
    /* Waits of the operation at position `at`. */
    uint32_t at; /* its position */
    uint32_t *found, n_found, found_capacity;
    uint32_t found_of[ZINF_LANES]; /* index in it of the wait for each in-order lane, or NONE */
    uint32_t *wanted_by;           /* [n_ops] 1 + the last position that waits for the operation */
};

static int out_of_memory(const struct zinf_program *p)
{
    return zinf_fail(-ENOMEM, "no memory to schedule %u operations", p->n_ops);
}

/* Those that buffers have from earlier pieces. */
static void take_old_slots(struct freeze *f)
{
    for (uint32_t i = f->b->n_fixed; i < f->b->n_old; i++) {
        const struct resource *r = &f->b->resources[i];
        f->slot_of[i] = r->slot;
        if (r->pool != NONE && holds_slot(r))
            f->slots[r->pool][r->slot] = (struct slot){.tenant = i, .taken = true};
    }
}

static int prepare(struct freeze *f)
{
    const struct zinf_builder *b = f->b;
    uint32_t n = f->program->n_ops, r = b->n_resources;
    f->order = calloc(n + 1, sizeof *f->order);
    f->position = calloc(n + 1, sizeof *f->position);
    f->first_touch = calloc(n + 2, sizeof *f->first_touch);
    f->touches_left = calloc(r + 1, sizeof *f->touches_left);
    f->slot_of = calloc(r + 1, sizeof *f->slot_of);
    f->before = calloc(r + 1, sizeof *f->before);
    f->slots = calloc(b->n_pools + 1, sizeof *f->slots);
    f->first_user = calloc(r + 2, sizeof *f->first_user);
    f->users = calloc(b->n_touches + 1, sizeof *f->users);
    f->wanted_by = calloc(n + 1, sizeof *f->wanted_by);
    f->first_slot = calloc(b->n_pools + 1, sizeof *f->first_slot);
    if (!f->order || !f->position || !f->first_touch || !f->touches_left || !f->slot_of ||
        !f->before || !f->slots || !f->first_user || !f->users || !f->wanted_by || !f->first_slot)
        return out_of_memory(f->program);
    for (uint32_t i = 0; i < b->n_pools; i++) {
        f->slots[i] = calloc(b->pools[i].n_slots + 1, sizeof **f->slots);
        if (!f->slots[i])
            return out_of_memory(f->program);
        for (uint32_t k = 0; k < b->pools[i].n_slots; k++)
            f->slots[i][k].tenant = NONE;
        f->first_slot[i + 1] = f->first_slot[i] + b->pools[i].n_slots;
    }
    for (uint32_t i = 0; i < b->n_touches; i++) {
        f->first_touch[b->touches[i].op + 1]++;
        f->first_user[b->touches[i].buffer + 1]++;
    }
    for (uint32_t i = 0; i < n; i++)
        f->first_touch[i + 1] += f->first_touch[i];
    for (uint32_t i = 0; i < r; i++) {
        f->first_user[i + 1] += f->first_user[i];
        f->touches_left[i] = f->first_user[i]; /* serves as a cursor while users are filled in */
        f->before[i] = NONE;
    }
    for (uint32_t i = 0; i < b->n_touches; i++)
        f->users[f->touches_left[b->touches[i].buffer]++] = b->touches[i].op;
    for (uint32_t i = 0; i < r; i++)
        f->touches_left[i] = b->resources[i].n_touches + b->resources[i].stays;
    take_old_slots(f);
    return 0;
}

static void release(struct freeze *f)
{
    for (uint32_t i = 0; f->slots && i < f->b->n_pools; i++)
        free(f->slots[i]);
    free(f->order);
    free(f->position);
    free(f->first_touch);
    free(f->touches_left);
    free(f->slot_of);
    free(f->before);
    free(f->slots);
    free(f->first_slot);
    free(f->first_user);
    free(f->users);
    free(f->wanted_by);
    free(f->found);
}

static int take_slot(struct freeze *f, zinf_buffer buffer)
{
    const struct zinf_pool_options *pool = &f->b->pools[f->b->resources[buffer].pool];
    struct slot *slots = f->slots[f->b->resources[buffer].pool];
    uint32_t best = NONE;
    for (uint32_t i = 0; i < pool->n_slots; i++)
        if (!slots[i].taken && (best == NONE || slots[i].left_at < slots[best].left_at))
            best = i;
    if (best == NONE)
        return zinf_fail(-EINVAL, "program %s: %u slots of \"%s\" are too few", f->program->name,
                         pool->n_slots, pool->name);
    f->slot_of[buffer] = best;
    f->before[buffer] = slots[best].tenant;
    slots[best] = (struct slot){.tenant = buffer, .taken = true};
    return 0;
}

static int give_slots(struct freeze *f)
{
    for (uint32_t at = 0; at < f->program->n_ops; at++) {
        uint32_t op = f->order[at];
        f->position[op] = at;
        for (uint32_t i = f->first_touch[op]; i < f->first_touch[op + 1]; i++) {
            zinf_buffer buffer = f->b->touches[i].buffer;
            int code = f->b->resources[buffer].first == op ? take_slot(f, buffer) : 0;
            if (code)
                return code;
        }
        for (uint32_t i = f->first_touch[op]; i < f->first_touch[op + 1]; i++) {
            zinf_buffer buffer = f->b->touches[i].buffer;
            if (--f->touches_left[buffer])
                continue;
            struct slot *slot = &f->slots[f->b->resources[buffer].pool][f->slot_of[buffer]];
            slot->taken = false;
            slot->left_at = at + 1;
        }
    }
    return 0;
}

/* Adds a wait, as a position, unless it is there. Constant time, since an operation may have
 * thousands. */
static int want(struct freeze *f, enum zinf_lane lane, uint32_t earlier)
{
    enum zinf_lane other = f->program->ops[earlier].lane;
    if ((other == lane && lane_in_order(lane)) || f->wanted_by[earlier] == f->at + 1)
        return 0;
    f->wanted_by[earlier] = f->at + 1;
    /* Of an in-order lane only the latest operation need be waited for. */
    uint32_t *same = lane_in_order(other) ? &f->found_of[other] : NULL;
    if (same && *same != NONE) {
        f->found[*same] = f->found[*same] > earlier ? f->found[*same] : earlier;
        return 0;
    }
    int code =
        zinf_builder_grow((void **)&f->found, &f->found_capacity, f->n_found + 1, sizeof *f->found);
    if (code)
        return code;
    if (same)
        *same = f->n_found;
    f->found[f->n_found++] = earlier;
    return 0;
}

static int want_last_tenants(struct freeze *f, uint32_t op, enum zinf_lane lane)
{
    int code = 0;
    for (uint32_t i = f->first_touch[op]; i < f->first_touch[op + 1]; i++) {
        zinf_buffer buffer = f->b->touches[i].buffer, before = f->before[buffer];
        if (f->b->resources[buffer].first != op || before == NONE)
            continue;
        for (uint32_t k = f->first_user[before]; !code && k < f->first_user[before + 1]; k++)
            code = want(f, lane, f->position[f->users[k]]);
    }
    return code;
}

/* Lists the addresses of all slots, and replaces each operand's buffer by its slot's number. */
static int name_slots(struct freeze *f)
{
    const struct zinf_builder *b = f->b;
    struct zinf_program *p = f->program;
    p->n_slots = f->first_slot[b->n_pools];
    p->slots = calloc(p->n_slots + 1, sizeof *p->slots);
    if (!p->slots)
        return out_of_memory(p);
    for (uint32_t i = 0; i < b->n_pools; i++)
        for (uint32_t k = 0; k < b->pools[i].n_slots; k++)
            p->slots[f->first_slot[i] + k] = b->pools[i].base + b->pools[i].stride * k;
    for (uint32_t i = 0; i < p->n_tenants; i++) {
        const uint32_t buffer = p->tenants[i];
        p->tenants[i] = f->first_slot[b->resources[buffer].pool] + f->slot_of[buffer];
    }
    return 0;
}

/* Moves the operations into their order in place. */
static void put_in_order(struct freeze *f)
{
    struct zinf_op *ops = f->program->ops;
    uint32_t *moved = f->wanted_by; /* not used yet */
    for (uint32_t first = 0; first < f->program->n_ops; first++) {
        if (moved[first])
            continue;
        const struct zinf_op op = ops[first];
        uint32_t at = first;
        for (; f->order[at] != first; at = f->order[at]) {
            ops[at] = ops[f->order[at]];
            moved[at] = 1;
        }
        ops[at] = op;
        moved[at] = 1;
    }
    memset(moved, 0, f->program->n_ops * sizeof *moved);
}

static int freeze_operation(struct freeze *f, uint32_t at, enum zinf_order order)
{
    const struct zinf_program *p = f->program;
    uint32_t number = f->order[at];
    struct zinf_op *op = &f->program->ops[at];
    const uint32_t *waits = p->waits + op->first_wait;
    int code = 0;
    f->at = at;
    f->n_found = 0;
    for (int lane = 0; lane < ZINF_LANES; lane++)
        f->found_of[lane] = NONE;
    if (order == ZINF_ORDER_SERIAL && at)
        code = want(f, ZINF_LANES, at - 1);
    for (uint32_t i = 0; !code && i < op->n_waits; i++)
        code = want(f, op->lane, f->position[waits[i]]);
    if (!code)
        code = want_last_tenants(f, number, op->lane);
    if (!code)
        code = zinf_builder_grow((void **)&f->waits, &f->waits_capacity, f->n_waits + f->n_found,
                                 sizeof *f->waits);
    if (code)
        return code;
    op->first_wait = f->n_waits;
    op->n_waits = f->n_found;
    for (uint32_t i = 0; i < f->n_found; i++)
        f->waits[f->n_waits++] = f->found[i];
    return 0;
}

/* For the next piece. */
static void note_slots(struct freeze *f, struct zinf_builder *b)
{
    for (uint32_t i = b->n_fixed; i < b->n_resources; i++)
        b->resources[i].slot = f->slot_of[i];
}

int zinf_program_freeze(struct zinf_program *program, enum zinf_order order,
                        const struct zinf_machine *machine)
{
    static const struct zinf_machine plain = {0};
    struct freeze f = {.program = program, .b = program->builder};
    int code = prepare(&f);
    for (uint32_t i = 0; !code && i < program->n_ops; i++)
        f.order[i] = i;
    if (!code && order == ZINF_ORDER_DEADLINE)
        code = zinf_schedule_list(program, machine ? machine : &plain, f.order);
    if (!code)
        code = give_slots(&f);
    if (!code)
        code = name_slots(&f);
    if (!code && program->n_ops)
        put_in_order(&f);
    for (uint32_t at = 0; !code && at < program->n_ops; at++)
        code = freeze_operation(&f, at, order);
    if (!code)
        note_slots(&f, program->builder);
    release(&f); /* needs the builder */
    if (code) {
        free(f.waits);
        return code;
    }
    free(program->waits);
    program->waits = f.waits;
    program->n_waits = f.n_waits;
    zinf_shared_end(program->shared);
    return 0;
}

int zinf_program_schedule(struct zinf_program *program, enum zinf_order order,
                          const struct zinf_machine *machine)
{
    if (program->pieces) {
        program->pieces->order = order;
        return 0;
    }
    const int code = zinf_program_freeze(program, order, machine);
    if (code)
        return code;
    zinf_builder_destroy(program->builder);
    program->builder = NULL;
    return 0;
}
