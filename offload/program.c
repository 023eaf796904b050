/*
 * program: builds a step. Operations say which resources they use, and dependencies follow from
 * that; none is written by hand. The order of adding is a topological order, so a program cannot
 * deadlock.
 */
#include "offload/builder.h"

#include <stdlib.h>

const char *zinf_lane_name(enum zinf_lane lane)
{
    static const char *const names[] = {"read", "write", "h2d", "d2h", "device", "host", "net"};
    return names[lane];
}

int zinf_builder_grow(void **array, uint32_t *capacity, uint32_t need, size_t width)
{
    if (need <= *capacity)
        return 0;
    uint32_t wanted = *capacity ? 2 * *capacity : 4; /* most resources have few readers */
    if (wanted < need)
        wanted = need;
    void *moved = realloc(*array, (size_t)wanted * width);
    if (!moved)
        return zinf_fail(-ENOMEM, "no memory for a program of %u entries", wanted);
    *array = moved;
    *capacity = wanted;
    return 0;
}

int zinf_program_init(struct zinf_program *program, const char *name)
{
    memset(program, 0, sizeof *program);
    program->name = name;
    program->builder = calloc(1, sizeof *program->builder);
    program->shared = zinf_shared_create();
    if (program->builder && program->shared)
        return 0;
    zinf_program_fini(program);
    return zinf_fail(-ENOMEM, "no memory for a program");
}

void zinf_builder_destroy(struct zinf_builder *b)
{
    if (!b)
        return;
    for (uint32_t i = 0; i < b->n_resources; i++)
        free(b->resources[i].readers);
    free(b->resources);
    free(b->old);
    free(b->pools);
    free(b->touches);
    free(b->found);
    free(b->list);
    free(b->wanted_by);
    free(b);
}

void zinf_program_fini(struct zinf_program *program)
{
    zinf_builder_destroy(program->builder);
    free(program->ops);
    free(program->waits);
    free(program->tenants);
    free(program->slots);
    zinf_shared_destroy(program->shared);
    free(program->pieces);
    memset(program, 0, sizeof *program);
}

/* Of one in pieces one runs while the next is made. */
uint64_t zinf_program_bytes(const struct zinf_program *p)
{
    return p->pieces ? 2 * p->pieces->bytes : zinf_program_bytes_now(p);
}

uint64_t zinf_program_bytes_now(const struct zinf_program *p)
{
    return p->n_ops * sizeof *p->ops + p->n_waits * sizeof *p->waits +
           p->n_tenants * sizeof *p->tenants + p->n_slots * sizeof *p->slots +
           zinf_shared_bytes(p->shared);
}

/* Memory of the builder and of the arrays of schedule.c: waits in their new order, and some numbers
 * of each operation, resource and use of a buffer. schedule_list.c needs less, and frees it before.
 */
uint64_t zinf_program_scheduling_bytes(const struct zinf_program *p)
{
    enum { OF_OP = 5, OF_RESOURCE = 4, HEAD = 16 }; /* numbers of each; bytes that malloc adds */
    const struct zinf_builder *b = p->builder;
    const uint64_t number = sizeof(uint32_t);
    uint64_t bytes = p->n_ops * OF_OP * number + p->n_waits * sizeof *p->waits;
    if (p->pieces && !b)
        return p->pieces->scheduling_bytes;
    if (!b)
        return bytes;
    bytes += b->n_resources * (sizeof *b->resources + OF_RESOURCE * number) +
             b->n_touches * (sizeof *b->touches + number);
    for (uint32_t i = 0; i < b->n_resources; i++)
        if (b->resources[i].readers)
            bytes += b->resources[i].capacity * number + HEAD;
    return bytes;
}

int zinf_program_resource(struct zinf_program *program, zinf_resource *out)
{
    struct zinf_builder *b = program->builder;
    int code = zinf_builder_grow((void **)&b->resources, &b->resources_capacity, b->n_resources + 1,
                                 sizeof *b->resources);
    if (code)
        return code;
    b->resources[b->n_resources] =
        (struct resource){.writer = NONE, .pool = NONE, .first = NONE, .last_touch = NONE};
    *out = b->first_new + (b->n_resources++ - b->n_old);
    return 0;
}

uint32_t zinf_builder_find(const struct zinf_builder *b, uint32_t number)
{
    if (number >= b->first_new)
        return number - b->first_new + b->n_old;
    if (number < b->n_fixed)
        return number;
    uint32_t low = 0, high = b->n_old - b->n_fixed;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (b->old[middle] < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < b->n_old - b->n_fixed && b->old[low] == number ? b->n_fixed + low : NONE;
}

static struct resource *find(const struct zinf_builder *b, uint32_t number)
{
    return &b->resources[zinf_builder_find(b, number)];
}

int zinf_program_pool(struct zinf_program *program, const struct zinf_pool_options *options,
                      zinf_pool *out)
{
    struct zinf_builder *b = program->builder;
    int code =
        zinf_builder_grow((void **)&b->pools, &b->pools_capacity, b->n_pools + 1, sizeof *b->pools);
    if (code)
        return code;
    b->pools[b->n_pools] = *options;
    *out = b->n_pools++;
    return 0;
}

int zinf_program_buffer(struct zinf_program *program, zinf_pool pool, zinf_buffer *out)
{
    int code = zinf_program_resource(program, out);
    if (!code)
        find(program->builder, *out)->pool = pool;
    return code;
}

/* Adds a wait unless op has it already. */
static int want(struct zinf_builder *b, uint32_t op, uint32_t earlier)
{
    if (earlier == NONE || b->wanted_by[earlier] == op + 1)
        return 0;
    b->wanted_by[earlier] = op + 1;
    int code =
        zinf_builder_grow((void **)&b->found, &b->found_capacity, b->n_found + 1, sizeof *b->found);
    if (!code)
        b->found[b->n_found++] = earlier;
    return code;
}

static int want_writers(struct zinf_builder *b, uint32_t op, const struct zinf_uses *uses)
{
    int code = zinf_builder_grow((void **)&b->wanted_by, &b->wanted_capacity, op + 1,
                                 sizeof *b->wanted_by);
    if (!code)
        b->wanted_by[op] = 0;
    for (uint32_t i = 0; !code && i < uses->n_reads; i++)
        code = want(b, op, find(b, uses->reads[i])->writer);
    for (uint32_t i = 0; !code && i < uses->n_writes; i++) {
        const struct resource *r = find(b, uses->writes[i]);
        code = want(b, op, r->writer);
        for (uint32_t k = 0; !code && k < r->n_readers; k++)
            code = want(b, op, r->readers[k]);
    }
    return code;
}

static int note_touch(struct zinf_builder *b, uint32_t op, struct resource *r)
{
    if (r->pool == NONE || r->last_touch == op)
        return 0;
    int code = zinf_builder_grow((void **)&b->touches, &b->touches_capacity, b->n_touches + 1,
                                 sizeof *b->touches);
    if (code)
        return code;
    b->touches[b->n_touches++] = (struct touch){op, (uint32_t)(r - b->resources)};
    r->n_touches++;
    r->last_touch = op;
    if (r->first == NONE)
        r->first = op;
    return 0;
}

static int note_uses(struct zinf_builder *b, uint32_t op, const struct zinf_uses *uses)
{
    for (uint32_t i = 0; i < uses->n_reads; i++) {
        struct resource *r = find(b, uses->reads[i]);
        int code = note_touch(b, op, r);
        if (!code)
            code = zinf_builder_grow((void **)&r->readers, &r->capacity, r->n_readers + 1,
                                     sizeof *r->readers);
        if (code)
            return code;
        r->readers[r->n_readers++] = op;
    }
    for (uint32_t i = 0; i < uses->n_writes; i++) {
        struct resource *r = find(b, uses->writes[i]);
        int code = note_touch(b, op, r);
        if (code)
            return code;
        r->writer = op;
        r->n_readers = 0;
    }
    return 0;
}

static bool moves(enum zinf_lane lane)
{
    return lane == ZINF_LANE_READ || lane == ZINF_LANE_WRITE || lane == ZINF_LANE_H2D ||
           lane == ZINF_LANE_D2H;
}

static int check_found(const struct zinf_program *program, uint32_t number)
{
    if (zinf_builder_find(program->builder, number) != NONE)
        return 0;
    return zinf_fail(-EINVAL,
                     "program %s: operation %u uses what an earlier piece has dropped: this is an "
                     "error in zinf, please report it",
                     program->name, program->n_ops);
}

/* -EINVAL: a piece uses a resource of an earlier piece that was not kept. */
static int check_uses(const struct zinf_program *program, const struct zinf_op *op,
                      const struct zinf_uses *uses)
{
    int code = 0;
    for (uint32_t i = 0; !code && i < uses->n_reads; i++)
        code = check_found(program, uses->reads[i]);
    for (uint32_t i = 0; !code && i < uses->n_writes; i++)
        code = check_found(program, uses->writes[i]);
    for (uint32_t i = 0; !code && i < op->n_at; i++)
        code = op->at[i].tenant ? check_found(program, zinf_operand_buffer(&op->at[i])) : 0;
    return code;
}

/* -EINVAL: a transfer reaches beyond its buffer, where another operation's slot is. */
static int check_room(const struct zinf_program *program, const struct zinf_op *op)
{
    const struct zinf_builder *b = program->builder;
    for (uint32_t i = 0; moves(op->lane) && i < op->n_at; i++) {
        const struct zinf_operand *o = &op->at[i];
        if (!o->tenant)
            continue;
        const struct zinf_pool_options *pool = &b->pools[find(b, zinf_operand_buffer(o))->pool];
        uint64_t first = (uint64_t)(uintptr_t)o->memory;
        if (first > pool->stride || op->bytes > pool->stride - first)
            return zinf_fail(-EINVAL,
                             "program %s: operation %u moves %llu bytes at %llu of a buffer of "
                             "\"%s\", which has %llu: this is an error in zinf, please report it",
                             program->name, program->n_ops, (unsigned long long)op->bytes,
                             (unsigned long long)first, pool->name,
                             (unsigned long long)pool->stride);
    }
    return 0;
}

/* Stores the operands, once for all operations with an equal list. Their buffers differ between
 * operations and are kept in program->tenants. */
static int keep_operands(struct zinf_program *program, struct zinf_op *added,
                         const struct zinf_op *op)
{
    struct zinf_builder *b = program->builder;
    int code = zinf_builder_grow((void **)&b->list, &b->list_capacity, op->n_at, sizeof *b->list);
    if (!code)
        code = zinf_builder_grow((void **)&program->tenants, &b->tenants_capacity,
                                 program->n_tenants + op->n_at, sizeof *program->tenants);
    if (code)
        return code;
    added->first_tenant = program->n_tenants;
    added->at = NULL;
    if (!op->n_at)
        return 0;
    memset(b->list, 0, op->n_at * sizeof *b->list); /* also clears padding */
    for (uint32_t i = 0; i < op->n_at; i++) {
        const struct zinf_operand *o = &op->at[i];
        b->list[i].memory = o->memory;
        b->list[i].tenant = o->tenant != 0;
        b->list[i].stride = o->stride;
        b->list[i].live = o->live;
        b->list[i].relative = o->relative;
        if (o->tenant)
            program->tenants[program->n_tenants++] = zinf_builder_find(b, zinf_operand_buffer(o));
    }
    added->at = zinf_shared_keep(program->shared, b->list, op->n_at * sizeof *b->list);
    if (op->n_at > program->most_operands)
        program->most_operands = op->n_at;
    return added->at ? 0 : zinf_fail(-ENOMEM, "no memory for a program's operands");
}

/* Copies field by field into zeroed memory, since locations are compared as bytes, with padding. */
static int keep_location(struct zinf_program *program, struct zinf_op *added)
{
    static const struct zinf_location nowhere;
    const struct zinf_location *where = added->where;
    struct zinf_location kept;
    added->where = &nowhere;
    if (!where)
        return 0;
    memset(&kept, 0, sizeof kept); /* also clears padding */
    kept.tier = where->tier;
    kept.memory = where->memory;
    kept.stride = where->stride;
    kept.beside = where->beside;
    kept.extent = where->extent;
    kept.offset = where->offset;
    kept.bytes = where->bytes;
    kept.head = where->head;
    kept.live = where->live;
    kept.relative = where->relative;
    added->where = zinf_shared_keep(program->shared, &kept, sizeof kept);
    return added->where ? 0 : zinf_fail(-ENOMEM, "no memory for a program's locations");
}

int zinf_program_add(struct zinf_program *program, const struct zinf_op *op,
                     const struct zinf_uses *uses)
{
    struct zinf_builder *b = program->builder;
    struct zinf_op added = *op;
    b->n_found = 0;
    int code = b->first_new ? check_uses(program, op, uses) : 0;
    if (!code)
        code = check_room(program, op);
    if (!code)
        code = want_writers(b, program->n_ops, uses);
    if (!code)
        code = zinf_builder_grow((void **)&program->ops, &b->ops_capacity, program->n_ops + 1,
                                 sizeof *program->ops);
    if (!code)
        code = zinf_builder_grow((void **)&program->waits, &b->waits_capacity,
                                 program->n_waits + b->n_found, sizeof *program->waits);
    if (!code)
        code = keep_operands(program, &added, op);
    if (!code)
        code = keep_location(program, &added);
    if (code)
        return code;
    added.first_wait = program->n_waits;
    added.n_waits = b->n_found;
    if (b->n_found)
        memcpy(program->waits + program->n_waits, b->found, b->n_found * sizeof *b->found);
    program->n_waits += b->n_found;
    program->ops[program->n_ops] = added;
    return note_uses(b, program->n_ops++, uses);
}

void zinf_program_operands(const struct zinf_program *program, const struct zinf_op *op,
                           struct zinf_operand *out)
{
    const uint32_t *slot = program->tenants + op->first_tenant;
    for (uint32_t i = 0; i < op->n_at; i++) {
        out[i] = op->at[i];
        if (!out[i].tenant)
            continue;
        out[i].memory = program->slots[*slot++] + (uintptr_t)out[i].memory;
        out[i].tenant = 0;
    }
}
