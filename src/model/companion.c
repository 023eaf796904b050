/* companion: second units, beside those that are frozen. */
#include "model/companion.h"

#include <stdlib.h>

static int no_memory(void)
{
    return zinf_fail(-ENOMEM, "no memory for what is trained beside frozen units");
}

int companions_init(struct companions *out, struct zinf_graph *graph, const char *word)
{
    *out = (struct companions){
        .graph = graph,
        .word = word,
        .n_base = graph->n_units,
        .of = calloc(graph->n_units, sizeof *out->of),
        .swept = calloc(graph->n_units, sizeof *out->swept),
        .chooser = malloc(graph->n_units * sizeof *out->chooser),
        .beside = calloc(graph->n_stages, sizeof *out->beside),
    };
    if (!out->of || !out->swept || !out->chooser || !out->beside)
        return no_memory();
    memset(out->chooser, 0xff, graph->n_units * sizeof *out->chooser);
    for (uint32_t s = 0; s < graph->n_stages; s++)
        for (uint32_t i = 0; i < graph->stages[s].sweep.n; i++) {
            const uint32_t unit = graph->stages[s].sweep.at[i];
            out->swept[unit] = true;
            if (graph->stages[s].choice.n)
                out->chooser[unit] = s;
        }
    return 0;
}

void companions_fini(struct companions *c)
{
    free(c->of);
    free(c->swept);
    free(c->chooser);
    free(c->beside);
    *c = (struct companions){0};
}

uint32_t companion_of(struct companions *c, uint32_t unit)
{
    const uint32_t stage = c->chooser[unit];
    uint32_t *of = stage == UINT32_MAX ? &c->of[unit] : &c->beside[stage];
    const char *name =
        stage == UINT32_MAX ? c->graph->units[unit].name : c->graph->stages[stage].name;
    if (!*of)
        *of = zinf_graph_add_unit(c->graph, true, "%s.%s", c->word, name);
    return *of;
}

/* ---- moving ---- */

static int move_tensor(struct companions *c, uint32_t unit, uint32_t tensor)
{
    uint32_t home = companion_of(c, unit);
    struct zinf_tensor *from = &c->graph->units[unit].tensors[tensor];
    uint32_t number = zinf_graph_add_tensor(c->graph, home, from);
    for (uint32_t p = 0; p < from->n_pieces; p++)
        zinf_graph_add_piece(c->graph, home, &from->pieces[p]);
    from->n_pieces = 0;
    from->offset = 0;
    from->moved = true;
    from->home_unit = home;
    from->home_tensor = number;
    return 0;
}

static int rename_pieces(struct zinf_tensor *tensor,
                         int (*rename)(void *context, struct zinf_piece *piece), void *context)
{
    int code = 0;
    for (uint32_t p = 0; !code && rename && p < tensor->n_pieces; p++)
        code = rename(context, &tensor->pieces[p]);
    return code;
}

int companion_move(struct companions *c, uint32_t unit, const bool *trained,
                   int (*rename)(void *context, struct zinf_piece *piece), void *context)
{
    struct zinf_unit *u = &c->graph->units[unit];
    uint32_t n = 0;
    int code = 0;
    for (uint32_t i = 0; !code && i < u->n_tensors; i++)
        if (trained[i]) {
            code = rename_pieces(&u->tensors[i], rename, context);
            n++;
        }
    u->trained = n == u->n_tensors;
    if (code || !n || u->trained)
        return code;
    if (c->swept[unit])
        return zinf_fail(-ENOTSUP,
                         "some of %s would be trained and others frozen: here it is one or the "
                         "other for all of it",
                         u->name);
    for (uint32_t i = 0; !code && i < c->graph->units[unit].n_tensors; i++)
        if (trained[i])
            code = move_tensor(c, unit, i);
    return code;
}

/* ---- the graph ---- */

static void put_at_hand(struct companions *c)
{
    for (uint32_t s = 0; s < c->graph->n_stages; s++) {
        uint32_t n = c->graph->stages[s].units.n;
        for (uint32_t i = 0; i < n; i++) {
            uint32_t unit = c->graph->stages[s].units.at[i];
            if (unit < c->n_base && c->of[unit])
                zinf_stage_append(c->graph, s, ZINF_STAGE_UNITS, c->of[unit]);
        }
        if (c->beside[s])
            zinf_stage_append(c->graph, s, ZINF_STAGE_UNITS, c->beside[s]);
    }
}

static void number_list(struct zinf_ids *ids, uint32_t *number, uint32_t *next)
{
    for (uint32_t i = 0; i < ids->n; i++) {
        uint32_t *of = &number[ids->at[i]];
        if (*of == UINT32_MAX)
            *of = (*next)++;
        ids->at[i] = *of;
    }
}

static void number_mentions(struct zinf_graph *g, const uint32_t *number)
{
    for (uint32_t u = 0; u < g->n_units; u++)
        for (uint32_t i = 0; i < g->units[u].n_tensors; i++) {
            struct zinf_tensor *t = &g->units[u].tensors[i];
            t->home_unit = t->moved ? number[t->home_unit] : 0;
        }
    for (uint32_t i = 0; i < g->n_adapted; i++) {
        g->adapted[i].unit = number[g->adapted[i].unit];
        g->adapted[i].adapter = number[g->adapted[i].adapter];
    }
}

int companions_finish(struct companions *c)
{
    struct zinf_graph *g = c->graph;
    put_at_hand(c);
    uint32_t *number = malloc(g->n_units * sizeof *number), next = 0;
    struct zinf_unit *units = zinf_graph_take(g, g->n_units * sizeof *units);
    if (!number || !units) {
        free(number);
        return no_memory();
    }
    memset(number, 0xff, g->n_units * sizeof *number);
    for (uint32_t s = 0; s < g->n_stages; s++) {
        number_list(&g->stages[s].units, number, &next);
        number_list(&g->stages[s].sweep, number, &next);
    }
    for (uint32_t u = 0; u < g->n_units; u++)
        units[number[u]] = g->units[u];
    g->units = units;
    number_mentions(g, number);
    free(number);
    return 0;
}
