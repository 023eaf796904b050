/*
 * build: adds items to lists in memory that the graph owns. A full list moves to memory for twice
 * as many items. The memory that it leaves is freed with the graph; all of that together is no more
 * than the list itself.
 */
#include "model/build.h"
#include "model/build_check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define CHUNK_BYTES ((size_t)16 << 10)
#define MIN_ROOM 4 /* items of a list at first */
#define MAX_ITEMS ((uint32_t)1 << 30)

struct chunk {
    struct chunk *next;
    size_t bytes, used;
    _Alignas(16) char data[];
};

/* A struct zinf_graph and what belongs to its building. */
struct built {
    struct zinf_graph graph; /* first, so that both have one address */
    struct chunk *chunks;    /* the newest is first */
    int code;                /* of the first failure */
    char error[512];
};

static struct built *built_of(struct zinf_graph *graph)
{
    return (struct built *)graph;
}

int zinf_graph_create(struct zinf_graph **out)
{
    struct built *b = calloc(1, sizeof *b);
    if (!b)
        return zinf_fail(-ENOMEM, "no memory for a model's graph");
    *out = &b->graph;
    return 0;
}

void zinf_graph_destroy(struct zinf_graph *graph)
{
    if (!graph)
        return;
    for (struct chunk *c = built_of(graph)->chunks, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    free(built_of(graph));
}

/* Remembers code, with the present zinf_error(), unless something failed before. */
static void reject(struct zinf_graph *graph, int code)
{
    struct built *b = built_of(graph);
    if (b->code)
        return;
    b->code = code;
    snprintf(b->error, sizeof b->error, "%s", zinf_error());
}

void *zinf_graph_take(struct zinf_graph *graph, size_t bytes)
{
    struct built *b = built_of(graph);
    size_t size = (size_t)zinf_align_up(bytes, 16);
    if (b->code)
        return NULL;
    if (!b->chunks || b->chunks->bytes - b->chunks->used < size) {
        size_t room = size > CHUNK_BYTES ? size : CHUNK_BYTES;
        struct chunk *c = calloc(1, sizeof *c + room);
        if (!c) {
            reject(graph, zinf_fail(-ENOMEM, "no memory for a model's graph"));
            return NULL;
        }
        c->bytes = room;
        c->next = b->chunks;
        b->chunks = c;
    }
    void *taken = b->chunks->data + b->chunks->used;
    b->chunks->used += size;
    return taken;
}

/* Makes room for one more item in a list of n items. Returns the list's address, or NULL after a
 * failure. */
static void *grow(struct zinf_graph *graph, void *list, uint32_t n, size_t item)
{
    if (n >= MAX_ITEMS) {
        reject(graph, zinf_fail(-EINVAL, "a list of a model's graph is too long"));
        return NULL;
    }
    bool full = n == 0 || (n >= MIN_ROOM && (n & (n - 1)) == 0);
    if (!full)
        return built_of(graph)->code ? NULL : list;
    void *larger = zinf_graph_take(graph, item * (n < MIN_ROOM ? MIN_ROOM : 2 * (size_t)n));
    if (larger && n)
        memcpy(larger, list, item * n);
    return larger;
}

/* Whether number is below n, the number of items of that kind. If it is not, the graph fails with a
 * message. */
static bool is_one_of(struct zinf_graph *graph, const char *what, uint32_t number, uint32_t n)
{
    if (built_of(graph)->code)
        return false;
    if (number < n)
        return true;
    reject(graph, zinf_fail(-EINVAL, "the graph has no %s %u", what, number));
    return false;
}

uint32_t zinf_graph_add_value(struct zinf_graph *graph, const struct zinf_value *value)
{
    struct zinf_value *list = grow(graph, graph->values, graph->n_values, sizeof *list);
    if (!list)
        return 0;
    graph->values = list;
    list[graph->n_values] = *value;
    return graph->n_values++;
}

uint32_t zinf_graph_add_unit(struct zinf_graph *graph, bool trained, const char *format, ...)
{
    struct zinf_unit *list = grow(graph, graph->units, graph->n_units, sizeof *list);
    va_list args;
    if (!list)
        return 0;
    graph->units = list;
    struct zinf_unit *unit = &list[graph->n_units];
    unit->trained = trained;
    unit->constant = !trained;
    va_start(args, format);
    vsnprintf(unit->name, sizeof unit->name, format, args);
    va_end(args);
    return graph->n_units++;
}

uint32_t zinf_graph_add_tensor(struct zinf_graph *graph, uint32_t unit,
                               const struct zinf_tensor *tensor)
{
    if (!is_one_of(graph, "unit", unit, graph->n_units))
        return 0;
    struct zinf_unit *u = &graph->units[unit];
    struct zinf_tensor *list = grow(graph, u->tensors, u->n_tensors, sizeof *list);
    if (!list)
        return 0;
    u->tensors = list;
    list[u->n_tensors] = *tensor;
    list[u->n_tensors].pieces = NULL;
    list[u->n_tensors].n_pieces = 0;
    return u->n_tensors++;
}

void zinf_graph_add_piece(struct zinf_graph *graph, uint32_t unit, const struct zinf_piece *piece)
{
    if (!is_one_of(graph, "unit", unit, graph->n_units))
        return;
    const struct zinf_unit *u = &graph->units[unit];
    if (!is_one_of(graph, "tensor", 0, u->n_tensors))
        return;
    struct zinf_tensor *t = &u->tensors[u->n_tensors - 1];
    struct zinf_piece *list = grow(graph, t->pieces, t->n_pieces, sizeof *list);
    if (!list)
        return;
    t->pieces = list;
    list[t->n_pieces++] = *piece;
}

uint32_t zinf_graph_add_stage(struct zinf_graph *graph, const struct zinf_stage_ops *ops,
                              const void *spec, size_t spec_bytes, const char *format, ...)
{
    struct zinf_stage *list = grow(graph, graph->stages, graph->n_stages, sizeof *list);
    void *copy = list ? zinf_graph_take(graph, spec_bytes) : NULL;
    va_list args;
    if (!copy)
        return 0;
    if (spec_bytes)
        memcpy(copy, spec, spec_bytes);
    graph->stages = list;
    struct zinf_stage *stage = &list[graph->n_stages];
    stage->ops = ops;
    stage->spec = copy;
    va_start(args, format);
    vsnprintf(stage->name, sizeof stage->name, format, args);
    va_end(args);
    return graph->n_stages++;
}

void zinf_stage_append(struct zinf_graph *graph, uint32_t stage, enum zinf_stage_list list,
                       uint32_t number)
{
    if (!is_one_of(graph, "stage", stage, graph->n_stages))
        return;
    struct zinf_stage *s = &graph->stages[stage];
    struct zinf_ids *ids[] = {&s->in, &s->out, &s->units, &s->sweep};
    bool values = list == ZINF_STAGE_IN || list == ZINF_STAGE_OUT;
    if (!is_one_of(graph, values ? "value" : "unit", number,
                   values ? graph->n_values : graph->n_units))
        return;
    uint32_t *at = grow(graph, ids[list]->at, ids[list]->n, sizeof *at);
    if (!at)
        return;
    ids[list]->at = at;
    at[ids[list]->n++] = number;
}

void zinf_stage_pass(struct zinf_graph *graph, uint32_t stage, uint32_t value)
{
    zinf_stage_append(graph, stage, ZINF_STAGE_IN, value);
    if (is_one_of(graph, "stage", stage, graph->n_stages))
        graph->stages[stage].passed = graph->stages[stage].in.n - 1;
}

void zinf_stage_choose(struct zinf_graph *graph, uint32_t stage, struct zinf_choice choice)
{
    if (is_one_of(graph, "stage", stage, graph->n_stages))
        graph->stages[stage].choice = choice;
}

int zinf_graph_finish(struct zinf_graph *graph)
{
    struct built *b = built_of(graph);
    if (b->code)
        return zinf_fail(b->code, "%s", b->error);
    for (uint32_t u = 0; u < graph->n_units && graph->shards.first; u++)
        for (uint32_t i = 0; i < graph->units[u].n_tensors; i++)
            graph->units[u].tensors[i].counted_elsewhere |= !graph->units[u].tensors[i].cut;
    for (uint32_t u = 0; u < graph->n_units; u++)
        build_place_tensors(&graph->units[u], graph->shards.of);
    return build_check(graph);
}

void zinf_unit_keep_exact(struct zinf_graph *graph, uint32_t unit, uint32_t tensor)
{
    struct zinf_tensor *t = graph->n_units ? &graph->units[unit].tensors[tensor] : NULL;
    if (!t) /* there was no memory, which zinf_graph_finish reports */
        return;
    t->exact = true;
    t->rows *= 3;
}

void zinf_unit_count_elsewhere(struct zinf_graph *graph, uint32_t unit, uint32_t tensor)
{
    if (graph->n_units && graph->units[unit].n_tensors)
        graph->units[unit].tensors[tensor].counted_elsewhere = true;
}

void zinf_unit_turn(struct zinf_graph *graph, uint32_t unit, uint32_t tensor)
{
    if (graph->n_units && graph->units[unit].n_tensors)
        graph->units[unit].tensors[tensor].turned = true;
}

void zinf_unit_set_shard(struct zinf_graph *graph, uint32_t unit, uint32_t shard)
{
    const struct zinf_unit *u = graph->n_units ? &graph->units[unit] : NULL;
    if (u && u->n_tensors)
        u->tensors[u->n_tensors - 1].shard = shard;
}
