/*
 * program: building a step. Resources say who touches what, and waits follow from that: nobody
 * writes a dependency by hand. Program order is a topological order, lanes run in order, so a
 * program cannot deadlock.
 */
#include "offload/offload.h"

#include <stdlib.h>

#define NONE UINT32_MAX

struct resource {
    uint32_t writer;   /* last operation that wrote, or NONE */
    uint32_t *readers; /* operations that read since */
    uint32_t n_readers, capacity;
};

struct zinf_builder {
    struct resource *resources;
    uint32_t n_resources, resources_capacity;
    uint32_t ops_capacity, waits_capacity;
    uint32_t *found; /* waits of the operation being added */
    uint32_t n_found, found_capacity;
};

const char *zinf_lane_name(enum zinf_lane lane)
{
    static const char *const names[] = {"read", "write", "h2d", "d2h", "device", "host", "net"};
    return names[lane];
}

static int grow(void **array, uint32_t *capacity, uint32_t need, size_t width)
{
    if (need <= *capacity)
        return 0;
    uint32_t wanted = *capacity ? 2 * *capacity : 64;
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
    return program->builder ? 0 : zinf_fail(-ENOMEM, "no memory for a program");
}

void zinf_program_seal(struct zinf_program *program)
{
    struct zinf_builder *b = program->builder;
    if (!b)
        return;
    for (uint32_t i = 0; i < b->n_resources; i++)
        free(b->resources[i].readers);
    free(b->resources);
    free(b->found);
    free(b);
    program->builder = NULL;
}

void zinf_program_fini(struct zinf_program *program)
{
    zinf_program_seal(program);
    free(program->ops);
    free(program->waits);
    memset(program, 0, sizeof *program);
}

int zinf_program_resource(struct zinf_program *program, zinf_resource *out)
{
    struct zinf_builder *b = program->builder;
    int code = grow((void **)&b->resources, &b->resources_capacity, b->n_resources + 1,
                    sizeof *b->resources);
    if (code)
        return code;
    b->resources[b->n_resources] = (struct resource){.writer = NONE};
    *out = b->n_resources++;
    return 0;
}

/* A lane whose operations end in the order in which they began. Drive lanes do not. */
static bool in_order(enum zinf_lane lane)
{
    return lane != ZINF_LANE_READ && lane != ZINF_LANE_WRITE;
}

static int want(struct zinf_program *program, enum zinf_lane lane, uint32_t earlier)
{
    struct zinf_builder *b = program->builder;
    if (earlier == NONE || (program->ops[earlier].lane == lane && in_order(lane)))
        return 0;
    for (uint32_t i = 0; i < b->n_found; i++) {
        uint32_t other = b->found[i];
        if (other == earlier)
            return 0;
        /* Of two operations of one in-order lane only the later one need be waited for. */
        if (program->ops[other].lane == program->ops[earlier].lane &&
            in_order(program->ops[other].lane)) {
            b->found[i] = other > earlier ? other : earlier;
            return 0;
        }
    }
    int code = grow((void **)&b->found, &b->found_capacity, b->n_found + 1, sizeof *b->found);
    if (!code)
        b->found[b->n_found++] = earlier;
    return code;
}

static int want_writers(struct zinf_program *program, enum zinf_lane lane,
                        const struct zinf_uses *uses)
{
    struct zinf_builder *b = program->builder;
    int code = 0;
    for (uint32_t i = 0; !code && i < uses->n_reads; i++)
        code = want(program, lane, b->resources[uses->reads[i]].writer);
    for (uint32_t i = 0; !code && i < uses->n_writes; i++) {
        const struct resource *r = &b->resources[uses->writes[i]];
        code = want(program, lane, r->writer);
        for (uint32_t k = 0; !code && k < r->n_readers; k++)
            code = want(program, lane, r->readers[k]);
    }
    return code;
}

static int note_uses(struct zinf_program *program, uint32_t op, const struct zinf_uses *uses)
{
    struct zinf_builder *b = program->builder;
    for (uint32_t i = 0; i < uses->n_reads; i++) {
        struct resource *r = &b->resources[uses->reads[i]];
        int code = grow((void **)&r->readers, &r->capacity, r->n_readers + 1, sizeof *r->readers);
        if (code)
            return code;
        r->readers[r->n_readers++] = op;
    }
    for (uint32_t i = 0; i < uses->n_writes; i++) {
        struct resource *r = &b->resources[uses->writes[i]];
        r->writer = op;
        r->n_readers = 0;
    }
    return 0;
}

int zinf_program_add(struct zinf_program *program, const struct zinf_op *op,
                     const struct zinf_uses *uses)
{
    struct zinf_builder *b = program->builder;
    b->n_found = 0;
    int code = want_writers(program, op->lane, uses);
    if (!code)
        code = grow((void **)&program->ops, &b->ops_capacity, program->n_ops + 1,
                    sizeof *program->ops);
    if (!code)
        code = grow((void **)&program->waits, &b->waits_capacity, program->n_waits + b->n_found,
                    sizeof *program->waits);
    if (code)
        return code;
    struct zinf_op *added = &program->ops[program->n_ops];
    *added = *op;
    added->first_wait = program->n_waits;
    added->n_waits = b->n_found;
    if (b->n_found)
        memcpy(program->waits + program->n_waits, b->found, b->n_found * sizeof *b->found);
    program->n_waits += b->n_found;
    return note_uses(program, program->n_ops++, uses);
}
