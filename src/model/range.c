/*
 * range: a part of a model's stages as a graph of its own. Values and units keep their numbers:
 * those that no stage of the part has to do with are there, but empty. Lists, tensors and specs are
 * the model's.
 */
#include "model/range.h"

#include "model/build.h"

#include <stdlib.h>

/* The first stage that makes a value, and the last one that reads it. */
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

/* Where the value's gradient comes to nothing, none crosses a border. */
static void place_value(struct zinf_graph *part, const struct graph_range *r, uint32_t v)
{
    const struct life l = life_of(r->whole, v);
    const enum zinf_value_kind kind = r->whole->values[v].kind;
    const bool before = l.made < r->first && l.read >= r->first;
    const bool after = l.made < r->end && l.read >= r->end;
    if (kind == ZINF_VALUE_INPUT || kind == ZINF_VALUE_REFERENCE)
        return;
    if (kind == ZINF_VALUE_ACTIVATION && before)
        part->from_before.at[part->from_before.n++] = v;
    if (kind == ZINF_VALUE_ACTIVATION && after)
        part->to_next.at[part->to_next.n++] = v;
    if ((before || after) && !r->flows[v])
        part->values[v].gradient = ZINF_ELEMENT_NONE;
    part->values[v].away = !before && !(l.made >= r->first && l.made < r->end);
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

int graph_take_range(struct zinf_graph **out, const struct graph_range *r)
{
    const struct zinf_graph *g = r->whole;
    struct zinf_graph *part = NULL;
    int code = zinf_graph_create(&part);
    if (code)
        return code;
    *part = *g;
    part->stages = g->stages + r->first;
    part->n_stages = r->end - r->first;
    part->values = zinf_graph_take(part, g->n_values * sizeof *part->values);
    part->units = zinf_graph_take(part, g->n_units * sizeof *part->units);
    part->from_before.at = zinf_graph_take(part, g->n_values * sizeof(uint32_t));
    part->to_next.at = zinf_graph_take(part, g->n_values * sizeof(uint32_t));
    if (!part->values || !part->units || !part->from_before.at || !part->to_next.at) {
        zinf_graph_destroy(part);
        return zinf_fail(-ENOMEM, "no memory for a part of a model");
    }
    memcpy(part->values, g->values, g->n_values * sizeof *part->values);
    memcpy(part->units, g->units, g->n_units * sizeof *part->units);
    for (uint32_t v = 0; v < g->n_values; v++)
        place_value(part, r, v);
    for (uint32_t u = 0; u < g->n_units; u++)
        if (!has_unit(part, u))
            empty_unit(&part->units[u]);
    *out = part;
    return 0;
}

/* ---- layers ---- */

/* The number behind the name's point; -1: it has none. */
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
