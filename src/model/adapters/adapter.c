/*
 * adapter: a finished graph with frozen units, and beside each unit with wanted modules a second
 * one that has their A and B. Which tensors are linear layers is learnt from the stages themselves,
 * whose code is run without a queue: an adapter that no product would add cannot be made.
 */
#include "model/adapters/adapter_attach.h"
#include "model/frame.h"

#include <stdio.h>
#include <stdlib.h>

/* PEFT's names of a module's tensors, behind its path. */
static const char name_a[] = ".lora_A.weight", name_b[] = ".lora_B.weight",
                  name_magnitude[] = ".lora_magnitude_vector";

/* ---- linear layers ---- */

/* All units of a sweep that rows choose have the same tensors. */
static void see_linear(void *seer, uint32_t unit, int tensor)
{
    struct attaching *at = seer;
    const struct zinf_ids *sweep = &at->seen->sweep;
    if (unit < at->seen->units.n)
        at->linear[at->seen->units.at[unit]][tensor] = true;
    else if (at->seen->choice.n && !at->linear[sweep->at[0]][tensor])
        for (uint32_t i = 0; i < sweep->n; i++)
            at->linear[sweep->at[i]][tensor] = true;
}

static int find_linears(struct attaching *at)
{
    int code = 0;
    for (uint32_t u = 0; u < at->n_base; u++) {
        at->linear[u] = calloc(at->graph->units[u].n_tensors, sizeof **at->linear);
        if (!at->linear[u])
            return zinf_fail(-ENOMEM, "no memory to adapt a model");
    }
    for (uint32_t s = 0; !code && s < at->graph->n_stages; s++) {
        at->seen = &at->graph->stages[s];
        code = zinf_stage_linears(at->graph, s, false, see_linear, at);
    }
    return code;
}

/* ---- modules ---- */

/* The rows of a unit's tensor that the p-th piece's module has. */
struct module {
    uint32_t unit, tensor, piece;
    char path[128];
    uint64_t first, rows, cols;
    struct adapter_module how;
};

static bool same_file_tensor(const struct zinf_piece *a, const struct zinf_piece *b)
{
    return !strcmp(a->name, b->name);
}

/* All pieces of one tensor of the file: together they must be it, and lie together. */
static int find_rows(const struct attaching *at, struct module *m)
{
    const struct zinf_tensor *t = &at->graph->units[m->unit].tensors[m->tensor];
    const struct zinf_piece *first = &t->pieces[m->piece];
    uint64_t low = UINT64_MAX, high = 0;
    m->rows = 0;
    for (uint32_t p = 0; p < t->n_pieces; p++) {
        const struct zinf_row_map *map = &t->pieces[p].rows;
        uint64_t end = map->flat_first + (map->count - 1) * map->flat_stride + map->rows;
        if (!same_file_tensor(first, &t->pieces[p]))
            continue;
        m->rows += map->rows * map->count;
        low = map->flat_first < low ? map->flat_first : low;
        high = end > high ? end : high;
    }
    m->first = low;
    m->cols = t->cols;
    if (high - low == m->rows && m->rows == first->shape[first->transposed ? 1 : 0])
        return 0;
    return zinf_fail(-ENOTSUP, "%s: the rows of %s do not lie together: it cannot be adapted",
                     at->choice->what, m->path);
}

static int check_module(const struct attaching *at, const struct module *m)
{
    int code = at->second.swept[m->unit] ? attach_check_swept(at, m->path) : 0;
    if (code)
        return code;
    uint64_t side = m->rows < m->cols ? m->rows : m->cols;
    char name[160];
    int length = snprintf(name, sizeof name, ADAPTER_KEY_PREFIX "%s%s", m->path, name_magnitude);
    if (length >= (int)sizeof((struct zinf_piece *)0)->name)
        return zinf_fail(-ENAMETOOLONG, "%s: the name of %s is too long", at->choice->what,
                         m->path);
    if ((uint64_t)m->how.rank <= side)
        return 0;
    return zinf_fail(-EINVAL,
                     "%s: rank %lld is above the smaller side of %s, which is %llu: take a smaller "
                     "r, or one in rank_pattern",
                     at->choice->what, (long long)m->how.rank, m->path, (unsigned long long)side);
}

/* ---- tensors ---- */

static struct zinf_piece make_piece(const struct module *m, const char *which, uint64_t rows,
                                    uint64_t cols)
{
    struct zinf_piece piece = {
        .plain_name = true,
        .rank = cols ? 2 : 1,
        .shape = {rows, cols},
        .rows = {.rows = rows, .count = 1},
    };
    snprintf(piece.name, sizeof piece.name, ADAPTER_KEY_PREFIX "%.*s%s",
             (int)(sizeof piece.name - 40), m->path, which);
    return piece;
}

/* Of B, or of magnitudes: the file has their rows in the order in which it has those of the
 * module's weight. */
static void add_pieces_of_rows(struct attaching *at, const struct module *m, const char *which,
                               uint64_t cols)
{
    const struct zinf_tensor *t = &at->graph->units[m->unit].tensors[m->tensor];
    struct zinf_piece piece = make_piece(m, which, m->rows, cols);
    for (uint32_t p = 0; p < t->n_pieces; p++) {
        if (!same_file_tensor(&t->pieces[m->piece], &t->pieces[p]))
            continue;
        piece.rows = t->pieces[p].rows;
        piece.rows.flat_first -= m->first;
        zinf_graph_add_piece(at->graph, companion_of(&at->second, m->unit), &piece);
    }
}

static uint32_t add_magnitude(struct attaching *at, const struct module *m)
{
    struct zinf_tensor tensor = {
        .rank = 1, .rows = m->rows, .cols = 1, .decay = true, .init = ZINF_INIT_MAGNITUDE};
    uint32_t number = zinf_graph_add_tensor(at->graph, companion_of(&at->second, m->unit), &tensor);
    add_pieces_of_rows(at, m, name_magnitude, 0);
    return number;
}

static int add_module(struct attaching *at, const struct module *m)
{
    uint64_t rank = (uint64_t)m->how.rank;
    struct zinf_piece piece = make_piece(m, name_a, rank, m->cols);
    struct zinf_adapted adapted = {
        .unit = m->unit,
        .tensor = m->tensor,
        .first_row = (uint32_t)m->first,
        .rows = (uint32_t)m->rows,
        .adapter = companion_of(&at->second, m->unit),
        .has_magnitude = at->choice->has_magnitude,
        .rank = (uint32_t)rank,
        .scale = (float)m->how.scale,
        .dropout = (float)at->choice->dropout,
        .site = ATTACH_FIRST_SITE + at->n_sites++,
    };
    adapted.a = attach_add_a(at, m->unit, rank, m->cols, m->how.rank);
    zinf_graph_add_piece(at->graph, adapted.adapter, &piece);
    adapted.b = attach_add_b(at, m->unit, m->rows, rank);
    add_pieces_of_rows(at, m, name_b, rank);
    if (adapted.has_magnitude)
        adapted.magnitude = add_magnitude(at, m);
    return attach_note(at, &adapted);
}

static bool begins_module(const struct zinf_tensor *t, uint32_t piece)
{
    for (uint32_t p = 0; p < piece; p++)
        if (same_file_tensor(&t->pieces[p], &t->pieces[piece]))
            return false;
    return true;
}

/* "all-linear" means what transformers has as linear layers, among which experts are not. */
static bool may_choose(const struct attaching *at, uint32_t unit, const struct zinf_piece *piece)
{
    return !at->second.swept[unit] || (!at->choice->targets.all && !piece->n_slabs);
}

static int adapt_tensor(struct attaching *at, uint32_t unit, uint32_t tensor)
{
    bool stacked = false;
    int code = attach_stack(at, unit, tensor, &stacked);
    if (code || stacked)
        return code;
    for (uint32_t p = 0; !code && p < at->graph->units[unit].tensors[tensor].n_pieces; p++) {
        const struct zinf_tensor *t = &at->graph->units[unit].tensors[tensor];
        struct module m = {.unit = unit, .tensor = tensor, .piece = p};
        if (!begins_module(t, p) || !may_choose(at, unit, &t->pieces[p]) ||
            !attach_path_of(at, &t->pieces[p], m.path))
            continue;
        code = adapter_choose(at->choice, m.path, &m.how);
        if (code || !m.how.wanted)
            continue;
        if (t->dealt)
            return zinf_fail(-ENOTSUP,
                             "%s: %s has keys that zinf.tensor_parts share: it cannot be adapted; "
                             "use fewer parts, or name other target_modules",
                             at->choice->what, m.path);
        if (t->cut) {
            code = attach_shard(at, unit, tensor, p, m.path, &m.how);
            continue;
        }
        code = find_rows(at, &m);
        if (!code)
            code = check_module(at, &m);
        if (!code)
            code = add_module(at, &m);
    }
    return code;
}

/* ---- the graph ---- */

static int attach(struct attaching *at)
{
    int code = find_linears(at);
    for (uint32_t u = 0; !code && u < at->n_base; u++) {
        at->graph->units[u].trained = false;
        for (uint32_t i = 0; !code && i < at->graph->units[u].n_tensors; i++)
            if (at->linear[u][i])
                code = adapt_tensor(at, u, i);
    }
    if (!code)
        code = attach_check_targets(at);
    if (!code)
        code = attach_copies(at);
    return code ? code : companions_finish(&at->second);
}

int adapter_attach(struct zinf_graph *graph, struct adapter_choice *choice, const char *prefix)
{
    struct attaching at = {
        .graph = graph,
        .choice = choice,
        .prefix = prefix,
        .n_base = graph->n_units,
        .linear = calloc(graph->n_units, sizeof *at.linear),
    };
    for (uint32_t v = 0; v < graph->n_values; v++)
        choice->classifies |= graph->values[v].input == ZINF_INPUT_LABELS;
    int code = at.linear ? companions_init(&at.second, graph, "adapter")
                         : zinf_fail(-ENOMEM, "no memory to adapt a model");
    if (!code)
        code = attach(&at);
    for (uint32_t u = 0; at.linear && u < at.n_base; u++)
        free(at.linear[u]);
    free(at.linear);
    companions_fini(&at.second);
    return code;
}
