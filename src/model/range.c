/*
 * range: makes a graph of a part of a model's stages. Values and units keep their numbers; those
 * that the part does not use are there, but empty. Lists, tensors and specs are the model's.
 */
#include "model/range.h"

#include "model/build.h"

#include <stdlib.h>

/* The stage that makes a value first, and the one that reads it last. */
struct life {
    uint32_t made, read;
};

static struct life life_of(const struct zinf_graph *g, uint32_t value)
{
    struct life l = {.made = UINT32_MAX};
    for (uint32_t s = 0; s < g->n_stages; s++) {
        if (zinf_ids_have(&g->stages[s].out, value) && l.made == UINT32_MAX)
            l.made = s;
        if (zinf_ids_have(&g->stages[s].in, value))
            l.read = s;
    }
    return l;
}

/* The number of the stage's range. */
static uint32_t range_of(const struct zinf_ranges *r, uint32_t stage)
{
    uint32_t k = 0;
    while (k < r->n && r->ends[k] <= stage)
        k++;
    return k;
}

static void add_id(struct zinf_ids *ids, uint32_t number)
{
    ids->at[ids->n++] = number;
}

/* A rank that had the value in an earlier range still has it. If nothing needs the value's
 * gradient, none is sent. */
static void place_value(struct zinf_graph *part, const struct zinf_graph *whole,
                        const struct zinf_ranges *r, uint32_t v)
{
    const struct life l = life_of(whole, v);
    const uint32_t made = range_of(r, l.made), read = range_of(r, l.read);
    const enum zinf_value_kind kind = whole->values[v].kind;
    bool crosses = false, here = false;
    if (kind == ZINF_VALUE_INPUT || kind == ZINF_VALUE_REFERENCE)
        return;
    for (uint32_t i = 0; i < part->n_ranges; i++) {
        struct zinf_range *range = &part->ranges[i];
        const uint32_t k = r->rank + i * r->n_ranks;
        const bool comes = made < k && read >= k, goes = made <= k && read > k;
        const bool crosses_now = kind == ZINF_VALUE_ACTIVATION && (comes || goes);
        crosses |= comes || goes;
        here |= comes || made == k;
        if (crosses_now && comes && k - made < r->n_ranks)
            add_id(&range->values_come, v);
        if (crosses_now && goes && k + 1 - made < r->n_ranks)
            add_id(&range->values_go, v);
        if (crosses_now && comes && r->flows[v])
            add_id(&range->gradients_go, v);
        if (crosses_now && goes && r->flows[v])
            add_id(&range->gradients_come, v);
    }
    if (crosses && !r->flows[v])
        part->values[v].gradient = ZINF_ELEMENT_NONE;
    part->values[v].away = !here;
    part->values[v].referred = r->referred[v];
}

static bool has_unit(const struct zinf_graph *part, uint32_t unit)
{
    for (uint32_t s = 0; s < part->n_stages; s++)
        if (zinf_ids_have(&part->stages[s].units, unit) ||
            zinf_ids_have(&part->stages[s].sweep, unit))
            return true;
    return false;
}

static void empty_unit(struct zinf_unit *unit)
{
    unit->trained = false;
    unit->tensors = NULL;
    unit->n_tensors = unit->n_adapted = 0;
    unit->elems = unit->decay_elems = unit->image_bytes = 0;
}

/* Fills in the rank's ranges and copies their stages, one after the other; there is room for the
 * lists. */
static bool take_stages(struct zinf_graph *part, const struct zinf_graph *whole,
                        const struct zinf_ranges *r)
{
    part->n_ranges = (r->n - r->rank + r->n_ranks - 1) / r->n_ranks;
    part->ranges = zinf_graph_take(part, part->n_ranges * sizeof *part->ranges);
    part->stages = zinf_graph_take(part, whole->n_stages * sizeof *part->stages);
    part->n_stages = 0;
    for (uint32_t i = 0; part->ranges && part->stages && i < part->n_ranges; i++) {
        const uint32_t k = r->rank + i * r->n_ranks, first = k ? r->ends[k - 1] : 0;
        const uint32_t n = r->ends[k] - first;
        uint32_t *ids = zinf_graph_take(part, 4 * (size_t)whole->n_values * sizeof *ids);
        if (!ids)
            return false;
        part->ranges[i] = (struct zinf_range){.first = part->n_stages,
                                              .end = part->n_stages + n,
                                              .values_come = {ids, 0},
                                              .values_go = {ids + whole->n_values, 0},
                                              .gradients_go = {ids + 2 * whole->n_values, 0},
                                              .gradients_come = {ids + 3 * whole->n_values, 0}};
        memcpy(part->stages + part->n_stages, whole->stages + first, n * sizeof *part->stages);
        part->n_stages += n;
    }
    return part->ranges && part->stages;
}

int graph_take_ranges(struct zinf_graph **out, const struct zinf_graph *whole,
                      const struct zinf_ranges *r)
{
    struct zinf_graph *part = NULL;
    int code = zinf_graph_create(&part);
    if (code)
        return code;
    *part = *whole;
    const bool good = take_stages(part, whole, r);
    part->values = zinf_graph_take(part, whole->n_values * sizeof *part->values);
    part->units = zinf_graph_take(part, whole->n_units * sizeof *part->units);
    if (!good || !part->values || !part->units) {
        zinf_graph_destroy(part);
        return zinf_fail(-ENOMEM, "no memory for a part of a model");
    }
    memcpy(part->values, whole->values, whole->n_values * sizeof *part->values);
    memcpy(part->units, whole->units, whole->n_units * sizeof *part->units);
    for (uint32_t v = 0; v < whole->n_values; v++)
        place_value(part, whole, r, v);
    for (uint32_t u = 0; u < whole->n_units; u++)
        if (!has_unit(part, u))
            empty_unit(&part->units[u]);
    *out = part;
    return 0;
}

/* ---- layers ---- */

/* The number behind the point in a stage's name; -1 if it has none. */
static int64_t number_of(const struct zinf_stage *stage)
{
    const char *point = strrchr(stage->name, '.');
    return point && point[1] >= '0' && point[1] <= '9' ? strtoll(point + 1, NULL, 10) : -1;
}

uint32_t graph_layers(const struct zinf_graph *g, uint32_t *first)
{
    uint32_t n = 0;
    int64_t last = 0;
    for (uint32_t s = 0; s < g->n_stages; s++) {
        const int64_t number = number_of(&g->stages[s]);
        if (!s || number != last)
            first[n++] = s;
        last = number;
    }
    first[n] = g->n_stages;
    return n;
}
