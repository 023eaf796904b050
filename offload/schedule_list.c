/*
 * schedule_list: list scheduling. It simulates the lanes. Each takes the operation with the
 * earliest deadline among those that are ready and find slots for their buffers; the order of
 * starting is the result. Ready operations are in a heap. One that finds no slot is put aside
 * until the pool that it needs can serve it.
 */
#include "offload/builder.h"

#include <stdlib.h>

struct ready { /* heap of ready operations, the most urgent first */
    uint32_t *ops;
    uint32_t n;
};

struct list {
    const struct zinf_program *program;
    const struct zinf_builder *b;
    uint32_t *urgency;      /* [n_ops] */
    uint32_t *unmet;        /* [n_ops] waits that have not ended */
    uint32_t *first_after;  /* [n_ops + 1] range of each operation in after */
    uint32_t *after;        /* operations that wait for it */
    uint32_t *first_touch;  /* [n_ops + 1] into b->touches */
    uint32_t *touches_left; /* [n_resources] uses that are left */
    uint32_t *slots_free;   /* [n_pools] */
    zinf_buffer *in_turn;   /* [n_pools] of a pool in order: the buffer that gets the next slot */
    uint8_t *aside;         /* [n_ops] it is ready but found no slot */
    uint8_t *started;       /* [n_ops] */
    struct ready ready[ZINF_LANES];
    uint32_t active[ZINF_LANES];
    uint32_t *order, n_started;
};

static void *take(size_t n, size_t width, bool *good)
{
    void *memory = calloc(n + 1, width);
    *good = *good && memory;
    return memory;
}

static void release(struct list *l)
{
    free(l->urgency);
    free(l->unmet);
    free(l->first_after);
    free(l->after);
    free(l->first_touch);
    free(l->touches_left);
    free(l->slots_free);
    free(l->in_turn);
    free(l->aside);
    free(l->started);
    for (int lane = 0; lane < ZINF_LANES; lane++)
        free(l->ready[lane].ops);
}

/* Whether it is a buffer that gets its slot in this program, not in an earlier piece. */
static bool comes_here(const struct resource *r)
{
    return r->first != NONE && r->first != BEFORE;
}

/* The first buffer of a pool with number `from` or more. */
static zinf_buffer next_buffer(const struct zinf_builder *b, zinf_pool pool, zinf_buffer from)
{
    while (from < b->n_resources &&
           (b->resources[from].pool != pool || !comes_here(&b->resources[from])))
        from++;
    return from;
}

static int prepare(struct list *l)
{
    const struct zinf_program *p = l->program;
    bool good = true;
    uint32_t n = p->n_ops;
    l->urgency = take(n, sizeof(uint32_t), &good);
    l->unmet = take(n, sizeof(uint32_t), &good);
    l->first_after = take(n + 1, sizeof(uint32_t), &good);
    l->after = take(p->n_waits, sizeof(uint32_t), &good);
    l->first_touch = take(n + 1, sizeof(uint32_t), &good);
    l->touches_left = take(l->b->n_resources, sizeof(uint32_t), &good);
    l->slots_free = take(l->b->n_pools, sizeof(uint32_t), &good);
    l->in_turn = take(l->b->n_pools, sizeof(uint32_t), &good);
    l->aside = take(n, sizeof *l->aside, &good);
    l->started = take(n, sizeof *l->started, &good);
    for (int lane = 0; lane < ZINF_LANES; lane++) {
        l->ready[lane].ops = take(n, sizeof(uint32_t), &good);
        l->active[lane] = NONE;
    }
    if (!good)
        return zinf_fail(-ENOMEM, "no memory to schedule %u operations", n);
    for (uint32_t i = 0; i < l->b->n_resources; i++)
        l->touches_left[i] = l->b->resources[i].n_touches + l->b->resources[i].stays;
    for (uint32_t i = 0; i < l->b->n_pools; i++) {
        l->slots_free[i] = l->b->pools[i].n_slots;
        l->in_turn[i] = next_buffer(l->b, i, 0);
    }
    for (uint32_t i = l->b->n_fixed; i < l->b->n_old; i++)
        if (l->b->resources[i].pool != NONE && holds_slot(&l->b->resources[i]))
            l->slots_free[l->b->resources[i].pool]--;
    return 0;
}

/* Makes the lists of operations that wait for each, and gives each the urgency of the most urgent
 * of them. */
static void link_operations(struct list *l)
{
    const struct zinf_program *p = l->program;
    for (uint32_t i = 0; i < p->n_waits; i++)
        l->first_after[p->waits[i] + 1]++;
    for (uint32_t i = 0; i < p->n_ops; i++)
        l->first_after[i + 1] += l->first_after[i];
    for (uint32_t i = p->n_ops; i-- > 0;) { /* ranges are filled from their ends */
        const struct zinf_op *op = &p->ops[i];
        l->unmet[i] = op->n_waits;
        l->urgency[i] = op->deadline;
    }
    uint32_t *fill = l->first_touch; /* not used yet; serves as a cursor of each operation */
    memcpy(fill, l->first_after, (p->n_ops + 1) * sizeof *fill);
    for (uint32_t i = 0; i < p->n_ops; i++)
        for (uint32_t k = 0; k < p->ops[i].n_waits; k++)
            l->after[fill[p->waits[p->ops[i].first_wait + k]]++] = i;
    for (uint32_t i = p->n_ops; i-- > 0;)
        for (uint32_t k = l->first_after[i]; k < l->first_after[i + 1]; k++)
            if (l->urgency[l->after[k]] < l->urgency[i])
                l->urgency[i] = l->urgency[l->after[k]];
    memset(l->first_touch, 0, (p->n_ops + 1) * sizeof *l->first_touch);
    for (uint32_t i = 0; i < l->b->n_touches; i++)
        l->first_touch[l->b->touches[i].op + 1]++;
    for (uint32_t i = 0; i < p->n_ops; i++)
        l->first_touch[i + 1] += l->first_touch[i];
}

/* Order of two ready operations: by urgency, then by the order of adding. */
static bool goes_before(const struct list *l, uint32_t a, uint32_t b)
{
    return l->urgency[a] < l->urgency[b] || (l->urgency[a] == l->urgency[b] && a < b);
}

static void push(struct list *l, uint32_t op)
{
    struct ready *r = &l->ready[l->program->ops[op].lane];
    uint32_t at = r->n++;
    for (; at && goes_before(l, op, r->ops[(at - 1) / 2]); at = (at - 1) / 2)
        r->ops[at] = r->ops[(at - 1) / 2];
    r->ops[at] = op;
}

static uint32_t pop(struct list *l, struct ready *r)
{
    uint32_t first = r->ops[0], last = r->ops[--r->n], at = 0;
    for (uint32_t next; (next = 2 * at + 1) < r->n; at = next) {
        if (next + 1 < r->n && goes_before(l, r->ops[next + 1], r->ops[next]))
            next++;
        if (!goes_before(l, r->ops[next], last))
            break;
        r->ops[at] = r->ops[next];
    }
    r->ops[at] = last;
    return first;
}

static void take_back(struct list *l, uint32_t op)
{
    if (!l->aside[op])
        return;
    l->aside[op] = 0;
    push(l, op);
}

/* Puts operations back into the heap that waited for a slot of the pool. */
static void wake(struct list *l, zinf_pool pool)
{
    const struct zinf_builder *b = l->b;
    if (!l->slots_free[pool])
        return;
    if (!b->pools[pool].in_order) {
        for (uint32_t i = 0; i < b->n_resources; i++)
            if (b->resources[i].pool == pool && comes_here(&b->resources[i]))
                take_back(l, b->resources[i].first);
    } else if (l->in_turn[pool] < b->n_resources) {
        take_back(l, b->resources[l->in_turn[pool]].first);
    }
}

/* Whether all buffers of the pool before this one have slots, or are used first by op as well. */
static bool is_in_turn(const struct list *l, uint32_t op, zinf_pool pool, zinf_buffer buffer)
{
    zinf_buffer turn = l->in_turn[pool];
    while (turn < buffer && l->b->resources[turn].first == op)
        turn = next_buffer(l->b, pool, turn + 1);
    return turn == buffer;
}

/* Number of buffers of the pool of which op is the first user. */
static uint32_t count_first(const struct list *l, uint32_t op, zinf_pool pool)
{
    uint32_t n = 0;
    for (uint32_t i = l->first_touch[op]; i < l->first_touch[op + 1]; i++) {
        const struct resource *r = &l->b->resources[l->b->touches[i].buffer];
        n += r->first == op && r->pool == pool;
    }
    return n;
}

/* Whether there is a slot for every buffer of which op is the first user. */
static bool has_slots(const struct list *l, uint32_t op)
{
    for (uint32_t i = l->first_touch[op]; i < l->first_touch[op + 1]; i++) {
        zinf_buffer buffer = l->b->touches[i].buffer;
        const struct resource *r = &l->b->resources[buffer];
        if (r->first != op)
            continue;
        if (l->slots_free[r->pool] < count_first(l, op, r->pool) ||
            (l->b->pools[r->pool].in_order && !is_in_turn(l, op, r->pool, buffer)))
            return false;
    }
    return true;
}

static void take_slots(struct list *l, uint32_t op)
{
    for (uint32_t i = l->first_touch[op]; i < l->first_touch[op + 1]; i++) {
        zinf_buffer buffer = l->b->touches[i].buffer;
        zinf_pool pool = l->b->resources[buffer].pool;
        if (l->b->resources[buffer].first != op)
            continue;
        l->slots_free[pool]--;
        if (!l->b->pools[pool].in_order)
            continue;
        if (buffer >= l->in_turn[pool])
            l->in_turn[pool] = next_buffer(l->b, pool, buffer + 1);
        wake(l, pool);
    }
}

static void start_lane(struct list *l, struct simulation *s, int lane)
{
    struct ready *r = &l->ready[lane];
    while (r->n) {
        uint32_t op = pop(l, r);
        if (!has_slots(l, op)) {
            l->aside[op] = 1;
            continue;
        }
        l->started[op] = 1;
        take_slots(l, op);
        l->active[lane] = op;
        l->order[l->n_started++] = op;
        simulation_start(s, &l->program->ops[op]);
        return;
    }
}

static void end_operation(struct list *l, uint32_t op)
{
    for (uint32_t i = l->first_after[op]; i < l->first_after[op + 1]; i++)
        if (--l->unmet[l->after[i]] == 0)
            push(l, l->after[i]);
    for (uint32_t i = l->first_touch[op]; i < l->first_touch[op + 1]; i++) {
        zinf_buffer buffer = l->b->touches[i].buffer;
        zinf_pool pool = l->b->resources[buffer].pool;
        if (--l->touches_left[buffer])
            continue;
        l->slots_free[pool]++;
        wake(l, pool);
    }
}

static int fail_blocked(const struct list *l)
{
    for (uint32_t op = 0; op < l->program->n_ops; op++) {
        if (l->started[op] || l->unmet[op])
            continue;
        for (uint32_t k = l->first_touch[op]; k < l->first_touch[op + 1]; k++) {
            const struct resource *r = &l->b->resources[l->b->touches[k].buffer];
            if (r->first == op && l->slots_free[r->pool] < count_first(l, op, r->pool))
                return zinf_fail(-EINVAL, "program %s: %u slots of \"%s\" are too few",
                                 l->program->name, l->b->pools[r->pool].n_slots,
                                 l->b->pools[r->pool].name);
        }
    }
    return zinf_fail(-EINVAL, "program %s cannot end", l->program->name);
}

static int run(struct list *l, const struct zinf_machine *machine)
{
    struct simulation s = {.machine = machine};
    for (uint32_t i = 0; i < l->program->n_ops; i++)
        if (!l->unmet[i])
            push(l, i);
    for (;;) {
        for (int lane = 0; lane < ZINF_LANES; lane++)
            if (l->active[lane] == NONE)
                start_lane(l, &s, lane);
        const double step = simulation_step(&s);
        if (step < 0)
            break;
        const unsigned ended = simulation_advance(&s, step, NULL);
        for (int lane = 0; lane < ZINF_LANES; lane++)
            if (ended >> lane & 1) {
                end_operation(l, l->active[lane]);
                l->active[lane] = NONE;
            }
    }
    return l->n_started == l->program->n_ops ? 0 : fail_blocked(l);
}

int zinf_schedule_list(const struct zinf_program *program, const struct zinf_machine *machine,
                       uint32_t *order)
{
    struct list l = {.program = program, .b = program->builder, .order = order};
    int code = prepare(&l);
    if (!code) {
        link_operations(&l);
        code = run(&l, machine);
    }
    release(&l);
    return code;
}
