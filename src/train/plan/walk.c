/*
 * walk: one pass over the list to see where gradients flow, one back to give them places. A value's
 * gradient is first written by the last of its consumers; the others add to it. A stage that passes
 * the gradient of its first output on in place lends it that output's place, so a chain of blocks
 * has one.
 */
#include "train/plan/walk.h"

#include "base/memory.h"

#include <stdlib.h>

/* ---- where gradients flow ---- */

static bool any_trained(const struct zinf_graph *g, const struct zinf_ids *units)
{
    for (uint32_t i = 0; i < units->n; i++)
        if (g->units[units->at[i]].trained)
            return true;
    return false;
}

/* A gradient is wanted of what comes after something trained. */
static void find_flow(struct walk *w)
{
    const struct zinf_graph *g = w->graph;
    for (uint32_t r = 0; r < g->n_ranges; r++)
        for (uint32_t i = 0; i < g->ranges[r].gradients_go.n; i++)
            w->values[g->ranges[r].gradients_go.at[i]].flows = true;
    for (uint32_t s = 0; s < g->n_stages; s++) {
        const struct zinf_stage *stage = &g->stages[s];
        bool wanted = any_trained(g, &stage->units) || any_trained(g, &stage->sweep);
        for (uint32_t i = 0; i < stage->in.n; i++)
            wanted = wanted || w->values[stage->in.at[i]].flows;
        for (uint32_t i = 0; i < stage->out.n; i++) {
            uint32_t v = stage->out.at[i];
            w->values[v].flows = wanted && g->values[v].gradient != ZINF_ELEMENT_NONE;
        }
        w->stages[s].differentiates = wanted;
    }
}

/* And only of what reaches the loss. */
static void find_reach(struct walk *w, bool *reached)
{
    const struct zinf_graph *g = w->graph;
    for (uint32_t v = 0; v < g->n_values; v++)
        reached[v] = g->values[v].kind == ZINF_VALUE_LOSS;
    for (uint32_t r = 0; r < g->n_ranges; r++)
        for (uint32_t i = 0; i < g->ranges[r].gradients_come.n; i++)
            reached[g->ranges[r].gradients_come.at[i]] = true;
    for (uint32_t s = g->n_stages; s-- > 0;) {
        const struct zinf_stage *stage = &g->stages[s];
        bool any = false;
        for (uint32_t i = 0; i < stage->out.n; i++)
            any = any || reached[stage->out.at[i]];
        w->stages[s].differentiates = w->stages[s].differentiates && any;
        for (uint32_t i = 0; any && i < stage->in.n; i++)
            reached[stage->in.at[i]] = true;
    }
    for (uint32_t v = 0; v < g->n_values; v++)
        w->values[v].flows = w->values[v].flows && reached[v];
}

/* What leads to a value that there is a reference of. */
static void find_references(struct walk *w, bool *wanted)
{
    const struct zinf_graph *g = w->graph;
    memset(wanted, 0, g->n_values * sizeof *wanted);
    for (uint32_t v = 0; v < g->n_values; v++)
        if (g->values[v].kind == ZINF_VALUE_REFERENCE)
            w->has_reference = wanted[g->values[v].of] = true;
    for (uint32_t v = 0; g->n_ranges && v < g->n_values; v++)
        wanted[v] |= g->values[v].referred;
    for (uint32_t s = g->n_stages; s-- > 0;) {
        const struct zinf_stage *stage = &g->stages[s];
        bool *referenced = &w->stages[s].referenced;
        for (uint32_t i = 0; i < stage->out.n; i++)
            *referenced = *referenced || wanted[stage->out.at[i]];
        for (uint32_t i = 0; *referenced && i < stage->in.n; i++)
            wanted[stage->in.at[i]] = true;
    }
}

static uint64_t aligned(uint64_t bytes)
{
    return zinf_align_up(bytes, ZINF_MEMORY_ALIGN);
}

/* One that nothing is in any more, or a new one. */
static uint32_t new_place(struct walk *w, uint64_t bytes)
{
    for (uint32_t i = 0; i < w->n_places; i++)
        if (w->places[i].idle && w->places[i].bytes == aligned(bytes)) {
            w->places[i].idle = false;
            return i;
        }
    w->places[w->n_places].bytes = aligned(bytes);
    return w->n_places++;
}

/* The stage has read the gradients of what it makes: for the last time, unless it runs last or has
 * passed a place on. */
static void leave_places(struct walk *w, uint32_t s)
{
    const struct zinf_stage *stage = &w->graph->stages[s];
    for (uint32_t i = 0; i < stage->out.n; i++) {
        uint32_t place = w->values[stage->out.at[i]].place;
        bool passed = w->values[stage->in.at[stage->passed]].place == place;
        if (place != WALK_NONE && w->stages[s].runs_last)
            w->places[place].to_the_end = true;
        else if (place != WALK_NONE && !passed)
            w->places[place].idle = true;
    }
}

/* Of a part of a model micro-batches come one by one, and their gradients are added in a tree that
 * has places of its own: none need wait for the last. */
static bool is_part(const struct zinf_graph *g)
{
    return g->n_ranges;
}

/* Of gradients that come from the range behind the stage before any stage adds to them. */
static void give_places_that_come(struct walk *w, const struct zinf_compute *c, uint32_t s)
{
    const struct zinf_graph *g = w->graph;
    for (uint32_t r = 0; r < g->n_ranges; r++)
        for (uint32_t i = 0; s + 1 == g->ranges[r].end && i < g->ranges[r].gradients_come.n; i++) {
            const uint32_t v = g->ranges[r].gradients_come.at[i];
            if (w->values[v].place == WALK_NONE)
                w->values[v].place = new_place(w, zinf_value_gradient_bytes(c, &g->values[v]));
        }
}

/* Gradients that have gone to the range before are of no more use, unless they will pass again. */
static void leave_places_that_go(struct walk *w, uint32_t s)
{
    const struct zinf_graph *g = w->graph;
    for (uint32_t r = 0; r < g->n_ranges; r++)
        for (uint32_t i = 0; s == g->ranges[r].first && i < g->ranges[r].gradients_go.n; i++) {
            const uint32_t v = g->ranges[r].gradients_go.at[i];
            const bool returns = r && zinf_ids_have(&g->ranges[r - 1].gradients_come, v);
            w->places[w->values[v].place].idle |= !returns;
        }
}

/* From the last stage to the first: who writes a gradient first gives it its place. */
static void give_places(struct walk *w, const struct zinf_compute *c)
{
    const struct zinf_graph *g = w->graph;
    for (uint32_t s = g->n_stages; s-- > 0;) {
        const struct zinf_stage *stage = &g->stages[s];
        struct walk_stage *info = &w->stages[s];
        bool inner = false;
        give_places_that_come(w, c, s);
        for (uint32_t i = 0; info->differentiates && i < stage->in.n; i++) {
            uint32_t v = stage->in.at[i];
            uint64_t bytes = zinf_value_gradient_bytes(c, &g->values[v]);
            struct walk_value *value = &w->values[v], *out = &w->values[stage->out.at[0]];
            if (!value->flows)
                continue;
            inner = true;
            info->d_in_adds[i] = value->place != WALK_NONE;
            bool passed = i == stage->passed && stage->ops->passes && out->place != WALK_NONE &&
                          w->places[out->place].bytes == aligned(bytes);
            if (info->d_in_adds[i])
                continue;
            value->place = passed ? out->place : new_place(w, bytes);
        }
        info->runs_last = info->differentiates && !inner && stage->ops->adds && !is_part(g);
        leave_places(w, s);
        leave_places_that_go(w, s);
    }
}

/* ---- the list, which zinf_graph_finish has checked ---- */

static int take_arrays(struct walk *w)
{
    const struct zinf_graph *g = w->graph;
    w->stages = calloc(g->n_stages + 1, sizeof *w->stages);
    w->values = calloc(g->n_values + 1, sizeof *w->values);
    w->units = calloc(g->n_units + 1, sizeof *w->units);
    w->places = calloc(g->n_values + 1, sizeof *w->places);
    w->kinds = calloc(g->n_stages + 1, sizeof *w->kinds);
    w->layers = calloc(g->n_units + 1, sizeof *w->layers);
    w->by_own_order = calloc(g->n_units + 1, sizeof *w->by_own_order);
    bool good =
        w->stages && w->values && w->units && w->places && w->kinds && w->layers && w->by_own_order;
    for (uint32_t s = 0; good && s < g->n_stages; s++) {
        w->stages[s].d_in_adds = calloc(g->stages[s].in.n + 1, sizeof(bool));
        good = w->stages[s].d_in_adds;
    }
    for (uint32_t v = 0; good && v < g->n_values; v++)
        w->values[v].place = w->values[v].number = w->values[v].chooser = WALK_NONE;
    w->whole = w->row = WALK_NONE;
    return good ? 0 : zinf_fail(-ENOMEM, "no memory for a list of %u stages", g->n_stages);
}

int walk_flows(const struct zinf_graph *graph, bool *flows)
{
    struct walk w = {.graph = graph};
    bool *reached = calloc(graph->n_values + 1, sizeof *reached);
    int code = reached ? take_arrays(&w) : zinf_fail(-ENOMEM, "no memory for a list of stages");
    if (!code) {
        find_flow(&w);
        find_reach(&w, reached);
    }
    for (uint32_t v = 0; !code && v < graph->n_values; v++)
        flows[v] = w.values[v].flows;
    walk_fini(&w);
    free(reached);
    return code;
}

int walk_referred(const struct zinf_graph *graph, bool *referred)
{
    struct walk w = {.graph = graph};
    int code = take_arrays(&w);
    if (!code)
        find_references(&w, referred);
    walk_fini(&w);
    return code;
}

int walk_init(struct walk *w, const struct zinf_graph *graph, const struct zinf_compute *compute,
              bool backward)
{
    *w = (struct walk){.graph = graph, .alone = !backward && !graph->n_ranges};
    bool *reached = calloc(graph->n_values + 1, sizeof *reached);
    int code = reached ? take_arrays(w) : zinf_fail(-ENOMEM, "no memory for a list of stages");
    if (!code && backward) {
        find_flow(w);
        find_reach(w, reached);
        give_places(w, compute);
    }
    if (!code)
        find_references(w, reached);
    if (!code)
        code = walk_measure(w, compute);
    free(reached);
    if (code)
        walk_fini(w);
    return code;
}

void walk_fini(struct walk *w)
{
    for (uint32_t s = 0; w->stages && s < w->graph->n_stages; s++)
        free(w->stages[s].d_in_adds);
    free(w->stages);
    free(w->values);
    free(w->units);
    free(w->places);
    free(w->kinds);
    free(w->layers);
    free(w->by_own_order);
    *w = (struct walk){0};
}
