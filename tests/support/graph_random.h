/*
 * graph_random: random models. A graph begins with lookups over tiles of a table, goes on with
 * stages of graph_stages.h that take any values before them and any units, new ones or those of an
 * earlier stage, and ends with what joins all that is left, a norm and a head over the same tiles
 * or its own. Units have up to 200 tensors, some frozen; what the file has is cut, transposed and
 * put together in every way that row maps know.
 */
#ifndef ZINF_GRAPH_RANDOM_H
#define ZINF_GRAPH_RANDOM_H

#include "base/random.h"
#include "graph_stages.h"
#include "model/build.h"
#include "model/stages/stages.h"
#include "tap.h"

#include <stdlib.h>

/* Numbers from one stream a case: a case is its seed. */
struct dice {
    uint64_t seed;
    uint32_t drawn;
};

static inline uint32_t draw(struct dice *d, uint32_t sides)
{
    uint32_t counter[4] = {d->drawn++, 0, 0, 7}, bits[4];
    zinf_philox(counter, d->seed, bits);
    return bits[0] % sides;
}

/* One in n. */
static inline bool chance(struct dice *d, uint32_t n)
{
    return draw(d, n) == 0;
}

enum { MOST_OPEN = 64, MOST_TENSORS = 200, MOST_TILES = 40 };

struct growing {
    struct zinf_graph *graph;
    struct dice *dice;
    int64_t cols, vocab, seq;
    uint32_t ids, targets, positions;    /* values */
    uint32_t n_frozen;                   /* one unit in so many is frozen; 0: none */
    uint32_t open[MOST_OPEN], n_open;    /* values that no stage has taken yet */
    uint32_t made[MOST_OPEN], n_made;    /* all activations */
    uint32_t mixed[MOST_OPEN], n_mixed;  /* units of mix stages */
    uint32_t tiles[MOST_TILES], n_tiles; /* of the first table */
    uint32_t n_tables, n_shared;         /* uses of a unit by a further stage */
    uint32_t n_visited;                  /* units at hand in a sweep of several visits */
    uint32_t n_choices;                  /* sweeps whose rows choose visits */
};

static inline bool draw_trained(struct growing *g)
{
    return !g->n_frozen || !chance(g->dice, g->n_frozen);
}

/* ---- values ---- */

static inline uint32_t add_input(struct growing *g, enum zinf_input input, const char *name,
                                 int64_t limit)
{
    struct zinf_value v = {.kind = ZINF_VALUE_INPUT,
                           .input = input,
                           .limit = limit,
                           .rows_of = ZINF_ROWS_OF_TARGET,
                           .cols = 1,
                           .element = ZINF_ELEMENT_ID};
    snprintf(v.name, sizeof v.name, "%s", name);
    return zinf_graph_add_value(g->graph, &v);
}

/* What a stage makes; taken: the joining and the last stages see to it themselves. */
static inline uint32_t add_activation(struct growing *g, bool leaves, bool taken)
{
    struct zinf_value v = {.kind = ZINF_VALUE_ACTIVATION,
                           .rows_of = ZINF_ROWS_OF_TARGET,
                           .cols = g->cols,
                           .element = ZINF_ELEMENT_PARAM,
                           .gradient = ZINF_ELEMENT_PARAM,
                           .leaves = leaves};
    snprintf(v.name, sizeof v.name, "x.%u", g->n_made);
    uint32_t value = zinf_graph_add_value(g->graph, &v);
    if (!taken)
        g->open[g->n_open++] = value;
    g->made[g->n_made++] = value;
    return value;
}

static inline void take_value(struct growing *g, uint32_t stage, uint32_t value)
{
    zinf_stage_append(g->graph, stage, ZINF_STAGE_IN, value);
    for (uint32_t i = 0; i < g->n_open; i++)
        if (g->open[i] == value)
            g->open[i--] = g->open[--g->n_open];
}

/* ---- units ---- */

/* The tensor in the file: as it is, transposed, or in two halves of which the second comes first.
 */
static inline void add_pieces(struct growing *g, uint32_t unit, uint32_t number,
                              const struct zinf_tensor *t)
{
    struct zinf_piece piece = {.rank = t->rank,
                               .shape = {t->rows, t->rank == 2 ? t->cols : 0},
                               .rows = {.rows = t->rows, .count = 1}};
    uint32_t form = draw(g->dice, 6);
    snprintf(piece.name, sizeof piece.name, "u%u.t%u", unit, number);
    if (form == 0 && t->rank == 2) {
        piece.transposed = true;
        piece.shape[0] = t->cols;
        piece.shape[1] = t->rows;
    }
    if (form == 1 && t->rows % 2 == 0) {
        piece.rows =
            (struct zinf_row_map){.file_first = t->rows / 2, .rows = t->rows / 2, .count = 1};
        zinf_graph_add_piece(g->graph, unit, &piece);
        piece.rows =
            (struct zinf_row_map){.flat_first = t->rows / 2, .rows = t->rows / 2, .count = 1};
    }
    if (form == 2 && t->rows % 4 == 0) /* heads of two rows, even ones first */
        piece.rows = (struct zinf_row_map){
            .file_stride = 4, .flat_stride = 2, .rows = 2, .count = t->rows / 4};
    zinf_graph_add_piece(g->graph, unit, &piece);
    if (form == 2 && t->rows % 4 == 0) {
        piece.rows = (struct zinf_row_map){.file_first = 2,
                                           .file_stride = 4,
                                           .flat_first = t->rows / 2,
                                           .flat_stride = 2,
                                           .rows = 2,
                                           .count = t->rows / 4};
        zinf_graph_add_piece(g->graph, unit, &piece);
    }
}

static inline void add_tensor(struct growing *g, uint32_t unit, bool matrix, float std)
{
    struct zinf_tensor t = {.rank = matrix ? 2 : 1,
                            .rows = (uint64_t)g->cols,
                            .cols = matrix ? (uint64_t)g->cols : 1,
                            .decay = matrix != chance(g->dice, 8),
                            .init = chance(g->dice, 9) ? ZINF_INIT_ZERO : ZINF_INIT_NORMAL,
                            .init_std = std};
    add_pieces(g, unit, zinf_graph_add_tensor(g->graph, unit, &t), &t);
}

/* n matrices, each with a bias or without. */
static inline uint32_t add_matrices(struct growing *g, const char *name, uint32_t n)
{
    uint32_t unit =
        zinf_graph_add_unit(g->graph, draw_trained(g), "%s.%u", name, g->graph->n_units);
    for (uint32_t i = 0; i < n; i++) {
        add_tensor(g, unit, true, 0.5f / (float)(1 + n));
        if (!chance(g->dice, 3))
            add_tensor(g, unit, false, 0.1f);
    }
    return unit;
}

/* Rows of a table that several units hold one after the other. */
static inline uint32_t add_tile(struct growing *g, uint32_t table, int64_t first, int64_t rows)
{
    uint32_t unit =
        zinf_graph_add_unit(g->graph, draw_trained(g), "table.%u.%lld", table, (long long)first);
    struct zinf_tensor t = {.rank = 2,
                            .rows = (uint64_t)rows,
                            .cols = (uint64_t)g->cols,
                            .decay = true,
                            .init_std = 0.7f};
    struct zinf_piece piece = {
        .rank = 2,
        .shape = {(uint64_t)g->vocab, (uint64_t)g->cols},
        .rows = {.file_first = (uint64_t)first, .rows = (uint64_t)rows, .count = 1}};
    snprintf(piece.name, sizeof piece.name, "table.%u", table);
    zinf_graph_add_tensor(g->graph, unit, &t);
    zinf_graph_add_piece(g->graph, unit, &piece);
    return unit;
}

/* ---- stages ---- */

/* A sweep over the tiles of the first table, or of a new one, which is then cut anew. */
static inline void sweep_table(struct growing *g, uint32_t stage, int64_t tile_rows, bool first)
{
    if (!first && g->n_tiles) {
        for (uint32_t i = 0; i < g->n_tiles; i++)
            zinf_stage_append(g->graph, stage, ZINF_STAGE_SWEEP, g->tiles[i]);
        g->n_shared++;
        return;
    }
    bool keep = g->n_tiles == 0;
    for (int64_t row = 0; row < g->vocab; row += tile_rows) {
        int64_t left = g->vocab - row;
        uint32_t unit = add_tile(g, g->n_tables, row, left < tile_rows ? left : tile_rows);
        zinf_stage_append(g->graph, stage, ZINF_STAGE_SWEEP, unit);
        if (keep)
            g->tiles[g->n_tiles++] = unit;
    }
    g->n_tables++;
}

static inline void add_lookup(struct growing *g, int64_t tile_rows)
{
    struct lookup_spec spec = {.dropout = chance(g->dice, 2) ? 0.2f : 0,
                               .site = g->graph->n_stages,
                               .n_tiles = (uint32_t)((g->vocab + tile_rows - 1) / tile_rows)};
    bool positions = chance(g->dice, 2), own = chance(g->dice, 2);
    uint32_t out = add_activation(g, !chance(g->dice, 3), false);
    uint32_t stage = zinf_graph_add_stage(g->graph, &zinf_stage_lookup, &spec, sizeof spec,
                                          "lookup.%u", g->graph->n_stages);
    zinf_stage_append(g->graph, stage, ZINF_STAGE_IN, g->ids);
    zinf_stage_append(g->graph, stage, ZINF_STAGE_OUT, out);
    sweep_table(g, stage, tile_rows, own);
    if (!positions)
        return;
    int64_t vocab = g->vocab;
    g->vocab = g->seq;
    zinf_stage_append(g->graph, stage, ZINF_STAGE_IN, g->positions);
    uint32_t unit = add_tile(g, g->n_tables++, 0, g->seq);
    zinf_stage_append(g->graph, stage, ZINF_STAGE_SWEEP, unit);
    g->vocab = vocab;
}

/* A term for every matrix of the stage's units, of any input; partial: some are left out. */
static inline void add_terms(struct growing *g, struct mix_spec *spec, const uint32_t *units,
                             uint32_t n_units, uint32_t n_in)
{
    for (uint32_t u = 0; u < n_units; u++) {
        const struct zinf_unit *unit = &g->graph->units[units[u]];
        for (uint32_t i = 0; i < unit->n_tensors; i++) {
            bool bias = i + 1 < unit->n_tensors && unit->tensors[i + 1].rank == 1;
            uint32_t in = spec->n_terms < 2 ? 0 : draw(g->dice, n_in);
            bool left_out = spec->partial && chance(g->dice, 4);
            if (!left_out)
                spec->terms[spec->n_terms++] =
                    (struct mix_term){in, u, (int)i, bias ? (int)i + 1 : -1};
            i += bias;
        }
    }
    spec->curved = spec->n_terms > 1 && !chance(g->dice, 3);
}

/* New units, or those of an earlier stage again. */
static inline uint32_t draw_units(struct growing *g, uint32_t units[3])
{
    uint32_t n = chance(g->dice, 5) ? 0 : 1 + draw(g->dice, 3);
    for (uint32_t i = 0; i < n; i++) {
        bool shares = g->n_mixed && chance(g->dice, 4), repeated = false;
        uint32_t matrices = chance(g->dice, 6) ? 40 + draw(g->dice, 60) : 1 + draw(g->dice, 5);
        uint32_t again = shares ? g->mixed[draw(g->dice, g->n_mixed)] : 0;
        for (uint32_t k = 0; k < i; k++)
            repeated = repeated || units[k] == again;
        if (shares && !repeated) {
            units[i] = again;
            g->n_shared++;
        } else {
            units[i] = add_matrices(g, "mix", matrices);
            g->mixed[g->n_mixed++] = units[i];
        }
    }
    return n;
}

/* joins: takes all open values. */
static inline void add_mix(struct growing *g, bool joins)
{
    uint32_t units[3], n_units = draw_units(g, units), n_in = 0, in[MOST_OPEN];
    struct mix_spec *spec =
        calloc(1, sizeof *spec + (3 * MOST_TENSORS + MOST_OPEN) * sizeof spec->terms[0]);
    if (joins)
        for (; n_in < g->n_open && n_in < 12; n_in++)
            in[n_in] = g->open[n_in];
    else
        in[n_in++] = chance(g->dice, 3) ? g->made[draw(g->dice, g->n_made)]
                                        : g->open[draw(g->dice, g->n_open)];
    for (uint32_t i = 0; !joins && i < draw(g->dice, 3); i++) {
        uint32_t value = g->made[draw(g->dice, g->n_made)];
        if (value != in[0] && (n_in < 2 || value != in[1]))
            in[n_in++] = value;
    }
    spec->partial = n_units && chance(g->dice, 5);
    add_terms(g, spec, units, n_units, n_in);
    for (uint32_t i = 1; i < n_in; i++)
        spec->terms[spec->n_terms++] = (struct mix_term){i, 0, -1, -1};
    uint32_t out = add_activation(g, !chance(g->dice, 4), false);
    uint32_t stage = zinf_graph_add_stage(g->graph, &mix_ops[draw(g->dice, MIX_KINDS)], spec,
                                          sizeof *spec + spec->n_terms * sizeof spec->terms[0],
                                          "mix.%u", g->graph->n_stages);
    for (uint32_t i = 0; i < n_in; i++)
        take_value(g, stage, in[i]);
    for (uint32_t i = 0; i < n_units; i++)
        zinf_stage_append(g->graph, stage, ZINF_STAGE_UNITS, units[i]);
    zinf_stage_append(g->graph, stage, ZINF_STAGE_OUT, out);
    free(spec);
}

static inline void add_experts(struct growing *g)
{
    uint32_t n = chance(g->dice, 4) ? 1 + draw(g->dice, 24) : 1 + draw(g->dice, 5);
    uint32_t n_hand = draw(g->dice, 3);
    uint32_t in = g->open[draw(g->dice, g->n_open)];
    uint32_t out = add_activation(g, !chance(g->dice, 3), false);
    uint32_t stage =
        zinf_graph_add_stage(g->graph, &experts_ops, "", 1, "experts.%u", g->graph->n_stages);
    take_value(g, stage, in);
    zinf_stage_append(g->graph, stage, ZINF_STAGE_OUT, out);
    for (uint32_t i = 0; i < n_hand; i++)
        zinf_stage_append(g->graph, stage, ZINF_STAGE_UNITS, add_matrices(g, "hand", 1));
    for (uint32_t i = 0; i < n; i++)
        zinf_stage_append(g->graph, stage, ZINF_STAGE_SWEEP, add_matrices(g, "expert", 1));
    g->n_visited += n > 1 ? n_hand : 0;
}

/* Matrices and vectors of rows each, cols 0: a vector. */
static inline uint32_t add_shapes(struct growing *g, const char *name, const int64_t (*shapes)[2],
                                  uint32_t n)
{
    uint32_t unit =
        zinf_graph_add_unit(g->graph, draw_trained(g), "%s.%u", name, g->graph->n_units);
    for (uint32_t i = 0; i < n; i++) {
        struct zinf_tensor t = {.rank = shapes[i][1] ? 2 : 1,
                                .rows = (uint64_t)shapes[i][0],
                                .cols = shapes[i][1] ? (uint64_t)shapes[i][1] : 1,
                                .decay = shapes[i][1] != 0,
                                .init = shapes[i][1] ? ZINF_INIT_NORMAL : ZINF_INIT_ONE,
                                .init_std = 0.4f};
        add_pieces(g, unit, zinf_graph_add_tensor(g->graph, unit, &t), &t);
    }
    return unit;
}

static inline uint32_t add_chosen_value(struct growing *g, const char *name, int64_t cols,
                                        enum zinf_element element, bool leaves)
{
    struct zinf_value v = {.kind = ZINF_VALUE_ACTIVATION,
                           .rows_of = ZINF_ROWS_OF_TARGET,
                           .cols = cols,
                           .element = element,
                           .gradient = ZINF_ELEMENT_F32,
                           .leaves = leaves};
    snprintf(v.name, sizeof v.name, "%s.%u", name, g->graph->n_values);
    return zinf_graph_add_value(g->graph, &v);
}

/* A router and a sweep of which each row takes some visits: there are so many that some are often
 * chosen by no row. */
static inline void add_mixture(struct growing *g)
{
    int64_t n = 2 + draw(g->dice, chance(g->dice, 2) ? 40 : 6), ffn = 4 * (1 + draw(g->dice, 4));
    int64_t n_chosen = 1 + draw(g->dice, 2);
    const int64_t gate[2][2] = {{g->cols, 0}, {n, g->cols}};
    const int64_t expert[2][2] = {{2 * ffn, g->cols}, {g->cols, ffn}};
    struct router_spec router = {.hidden = g->cols,
                                 .n_experts = n,
                                 .n_chosen = n_chosen,
                                 .normalised = chance(g->dice, 2),
                                 .norm = {.kind = ZINF_NORM_RMS, .eps = 1e-5f, .b = -1},
                                 .gate_w = 1,
                                 .gate_b = -1};
    struct experts_spec experts = {.hidden = g->cols,
                                   .ffn = ffn,
                                   .activation = ZINF_ACTIVATION_SILU,
                                   .down_w = 1,
                                   .up_b = -1,
                                   .down_b = -1};
    uint32_t in =
        chance(g->dice, 3) ? g->made[draw(g->dice, g->n_made)] : g->open[draw(g->dice, g->n_open)];
    uint32_t normed =
        add_chosen_value(g, "normed", g->cols, ZINF_ELEMENT_PARAM, chance(g->dice, 2));
    uint32_t weights = add_chosen_value(g, "weights", n, ZINF_ELEMENT_F32, false);
    uint32_t out = add_activation(g, !chance(g->dice, 3), false);
    uint32_t stage = zinf_graph_add_stage(g->graph, &zinf_stage_router, &router, sizeof router,
                                          "router.%u", g->graph->n_stages);
    zinf_stage_append(g->graph, stage, ZINF_STAGE_IN, in);
    zinf_stage_append(g->graph, stage, ZINF_STAGE_OUT, normed);
    zinf_stage_append(g->graph, stage, ZINF_STAGE_OUT, weights);
    zinf_stage_append(g->graph, stage, ZINF_STAGE_UNITS, add_shapes(g, "router", gate, 2));
    stage = zinf_graph_add_stage(g->graph, &zinf_stage_experts, &experts, sizeof experts,
                                 "chosen.%u", g->graph->n_stages);
    take_value(g, stage, in);
    zinf_stage_append(g->graph, stage, ZINF_STAGE_IN, normed);
    zinf_stage_append(g->graph, stage, ZINF_STAGE_IN, weights);
    zinf_stage_append(g->graph, stage, ZINF_STAGE_OUT, out);
    for (int64_t i = 0; i < n; i++)
        zinf_stage_append(g->graph, stage, ZINF_STAGE_SWEEP, add_shapes(g, "chosen", expert, 2));
    zinf_stage_choose(g->graph, stage, (struct zinf_choice){2, (uint32_t)n_chosen});
    g->n_choices++;
}

static inline void add_norm_and_head(struct growing *g, int64_t tile_rows)
{
    bool layer = chance(g->dice, 2);
    struct norm_spec norm = {
        .kind = layer ? ZINF_NORM_LAYER : ZINF_NORM_RMS, .eps = 1e-5f, .b = layer ? 1 : -1};
    struct head_spec head = {.tile_rows = tile_rows};
    struct zinf_value loss = {.name = "loss",
                              .kind = ZINF_VALUE_LOSS,
                              .rows_of = ZINF_ROWS_OF_TARGET,
                              .cols = 1,
                              .element = ZINF_ELEMENT_F32};
    uint32_t in = g->open[0], out = add_activation(g, false, true);
    g->graph->values[out].gradient = ZINF_ELEMENT_F32;
    uint32_t unit = zinf_graph_add_unit(g->graph, draw_trained(g), "norm");
    for (int i = 0; i < 1 + layer; i++) {
        struct zinf_tensor t = {.rank = 1,
                                .rows = (uint64_t)g->cols,
                                .cols = 1,
                                .init = i ? ZINF_INIT_ZERO : ZINF_INIT_ONE};
        add_pieces(g, unit, zinf_graph_add_tensor(g->graph, unit, &t), &t);
    }
    uint32_t stage = zinf_graph_add_stage(g->graph, &zinf_stage_norm, &norm, sizeof norm, "norm");
    take_value(g, stage, in);
    zinf_stage_append(g->graph, stage, ZINF_STAGE_UNITS, unit);
    zinf_stage_append(g->graph, stage, ZINF_STAGE_OUT, out);
    g->graph->loss = zinf_graph_add_value(g->graph, &loss);
    stage = zinf_graph_add_stage(g->graph, &zinf_stage_head, &head, sizeof head, "head");
    zinf_stage_append(g->graph, stage, ZINF_STAGE_IN, out);
    zinf_stage_append(g->graph, stage, ZINF_STAGE_IN, g->targets);
    zinf_stage_append(g->graph, stage, ZINF_STAGE_OUT, g->graph->loss);
    sweep_table(g, stage, tile_rows, chance(g->dice, 2));
}

struct random_graph {
    struct zinf_graph *graph;
    int64_t cols, vocab;
    bool chooses; /* some sweep's rows choose its visits: gradients are not those of small steps */
    bool sums;    /* some unit but a table's tile has several contributions a micro-batch */
};

static inline void train_one(struct growing *g)
{
    for (uint32_t u = 0; u < g->graph->n_units; u++)
        if (g->graph->units[u].trained)
            return;
    g->graph->units[draw(g->dice, g->graph->n_units)].trained = true;
}

/* Appends all of it; zinf_graph_finish is the caller's. */
static inline struct random_graph grow_graph(struct zinf_graph *graph, uint64_t seed, int64_t seq,
                                             uint32_t most_stages)
{
    struct dice dice = {.seed = seed};
    struct growing g = {.graph = graph, .dice = &dice, .seq = seq};
    g.cols = 4 * (1 + draw(&dice, 5));
    uint32_t tiles = chance(&dice, 4) ? 1 + draw(&dice, MOST_TILES) : 1 + draw(&dice, 5);
    int64_t tile_rows = 3 + draw(&dice, 14);
    g.vocab = (int64_t)tiles * tile_rows - draw(&dice, 3);
    g.n_frozen = chance(&dice, 3) ? 0 : 2 + draw(&dice, 4);
    g.ids = add_input(&g, ZINF_INPUT_IDS, "ids", g.vocab);
    g.targets = add_input(&g, ZINF_INPUT_TARGETS, "targets", 0);
    g.positions = add_input(&g, ZINF_INPUT_POSITIONS, "positions", 0);
    uint32_t n_lookups = 1 + draw(&dice, 2), n_stages = 1 + draw(&dice, most_stages);
    for (uint32_t i = 0; i < n_lookups; i++)
        add_lookup(&g, tile_rows);
    uint32_t shared_tables = g.n_shared;
    for (uint32_t i = 0; i < n_stages; i++)
        if (chance(&dice, 4))
            add_experts(&g);
        else if (chance(&dice, 4))
            add_mixture(&g);
        else
            add_mix(&g, false);
    while (g.n_open > 1)
        add_mix(&g, true);
    bool sums = g.n_shared > shared_tables || g.n_visited;
    add_norm_and_head(&g, tile_rows);
    train_one(&g);
    g.graph->targets = g.targets;
    g.graph->vocab = g.vocab;
    g.graph->row_cols = tile_rows;
    return (struct random_graph){g.graph, g.cols, g.vocab, g.n_choices > 0, sums};
}

static inline struct random_graph draw_graph(uint64_t seed, int64_t seq, uint32_t most_stages)
{
    struct zinf_graph *graph = NULL;
    CHECKF(!zinf_graph_create(&graph), "%s", zinf_error());
    struct random_graph g = grow_graph(graph, seed, seq, most_stages);
    CHECKF(!zinf_graph_finish(graph), "%s", zinf_error());
    return g;
}

#endif
