/*
 * adapter: a finished graph with frozen units, and beside each unit with wanted modules a second
 * one that has their A and B. Which tensors are linear layers is learnt from the stages themselves,
 * whose code is run without a queue: an adapter that no product would add cannot be made.
 */
#include "model/adapter.h"
#include "model/frame.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Sites of adapters' dropout: beyond those of any family. */
#define FIRST_SITE ((uint32_t)1 << 24)

/* Of a graph that is being adapted, by the units' numbers before. */
struct attaching {
    struct zinf_graph *graph;
    struct adapter_choice *choice;
    const char *prefix;
    uint32_t n_base;
    bool **linear;     /* [n_base][its tensors] */
    uint32_t *adapter; /* [n_base]: its second unit; 0: none */
    const struct zinf_stage *seen;
};

/* ---- linear layers ---- */

static void see_linear(void *seer, uint32_t unit, int tensor)
{
    struct attaching *at = seer;
    if (unit < at->seen->units.n)
        at->linear[at->seen->units.at[unit]][tensor] = true;
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
        code = zinf_stage_linears(at->graph, s, see_linear, at);
    }
    return code;
}

/* ---- modules ---- */

/* The path of the module whose weight the piece is, into path; false: it is none's. */
static bool path_of(const struct zinf_piece *piece, const char *prefix, char path[128])
{
    static const char weight[] = ".weight";
    size_t n = strlen(piece->name), tail = sizeof weight - 1;
    if (n <= tail || strcmp(piece->name + n - tail, weight))
        return false;
    snprintf(path, 128, "%s%.*s", piece->plain_name ? "" : prefix, (int)(n - tail), piece->name);
    return true;
}

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
    uint64_t side = m->rows < m->cols ? m->rows : m->cols;
    char name[160];
    int length = snprintf(name, sizeof name, ADAPTER_KEY_PREFIX "%s.lora_A.weight", m->path);
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

static uint32_t add_tensor(struct attaching *at, const struct module *m, uint64_t rows,
                           uint64_t cols, bool is_a)
{
    bool gaussian = at->choice->gaussian;
    float bound = gaussian ? 1.0f / (float)m->how.rank : 1.0f / sqrtf((float)m->cols);
    struct zinf_tensor tensor = {
        .rank = 2,
        .rows = rows,
        .cols = cols,
        .decay = true,
        .init = !is_a      ? ZINF_INIT_ZERO
                : gaussian ? ZINF_INIT_NORMAL
                           : ZINF_INIT_UNIFORM,
        .init_std = is_a ? bound : 0,
    };
    return zinf_graph_add_tensor(at->graph, at->adapter[m->unit], &tensor);
}

static struct zinf_piece make_piece(const struct module *m, const char *which, uint64_t rows,
                                    uint64_t cols)
{
    struct zinf_piece piece = {
        .plain_name = true,
        .rank = 2,
        .shape = {rows, cols},
        .rows = {.rows = rows, .count = 1},
    };
    snprintf(piece.name, sizeof piece.name, ADAPTER_KEY_PREFIX "%.*s.lora_%s.weight",
             (int)(sizeof piece.name - 40), m->path, which);
    return piece;
}

/* The file has B's rows in the order in which it has those of the module's weight. */
static void add_pieces_of_b(struct attaching *at, const struct module *m)
{
    const struct zinf_tensor *t = &at->graph->units[m->unit].tensors[m->tensor];
    struct zinf_piece piece = make_piece(m, "B", m->rows, (uint64_t)m->how.rank);
    for (uint32_t p = 0; p < t->n_pieces; p++) {
        if (!same_file_tensor(&t->pieces[m->piece], &t->pieces[p]))
            continue;
        piece.rows = t->pieces[p].rows;
        piece.rows.flat_first -= m->first;
        zinf_graph_add_piece(at->graph, at->adapter[m->unit], &piece);
    }
}

static int note_adapted(struct attaching *at, const struct module *m, uint32_t a, uint32_t b)
{
    struct zinf_graph *g = at->graph;
    struct zinf_adapted *list = g->adapted;
    bool full = (g->n_adapted & (g->n_adapted - 1)) == 0; /* doubled at powers of two */
    if (full) {
        list = zinf_graph_take(g, 2 * ((size_t)g->n_adapted + 1) * sizeof *list);
        if (!list)
            return zinf_fail(-ENOMEM, "no memory to adapt a model");
        if (g->n_adapted)
            memcpy(list, g->adapted, g->n_adapted * sizeof *list);
        g->adapted = list;
    }
    struct zinf_unit *unit = &g->units[m->unit];
    unit->first_adapted = unit->n_adapted++ ? unit->first_adapted : g->n_adapted;
    list[g->n_adapted] = (struct zinf_adapted){
        .unit = m->unit,
        .tensor = m->tensor,
        .first_row = (uint32_t)m->first,
        .rows = (uint32_t)m->rows,
        .adapter = at->adapter[m->unit],
        .a = a,
        .b = b,
        .scale = (float)m->how.scale,
        .dropout = (float)at->choice->dropout,
        .site = FIRST_SITE + g->n_adapted,
    };
    g->n_adapted++;
    return 0;
}

static int add_module(struct attaching *at, const struct module *m)
{
    uint64_t rank = (uint64_t)m->how.rank;
    struct zinf_piece piece = make_piece(m, "A", rank, m->cols);
    if (!at->adapter[m->unit])
        at->adapter[m->unit] =
            zinf_graph_add_unit(at->graph, true, "adapter.%s", at->graph->units[m->unit].name);
    uint32_t a = add_tensor(at, m, rank, m->cols, true);
    zinf_graph_add_piece(at->graph, at->adapter[m->unit], &piece);
    uint32_t b = add_tensor(at, m, m->rows, rank, false);
    add_pieces_of_b(at, m);
    return note_adapted(at, m, a, b);
}

static bool begins_module(const struct zinf_tensor *t, uint32_t piece)
{
    for (uint32_t p = 0; p < piece; p++)
        if (same_file_tensor(&t->pieces[p], &t->pieces[piece]))
            return false;
    return true;
}

static int adapt_tensor(struct attaching *at, uint32_t unit, uint32_t tensor)
{
    int code = 0;
    for (uint32_t p = 0; !code && p < at->graph->units[unit].tensors[tensor].n_pieces; p++) {
        const struct zinf_tensor *t = &at->graph->units[unit].tensors[tensor];
        struct module m = {.unit = unit, .tensor = tensor, .piece = p};
        if (!begins_module(t, p) || !path_of(&t->pieces[p], at->prefix, m.path))
            continue;
        code = adapter_choose(at->choice, m.path, &m.how);
        if (code || !m.how.wanted)
            continue;
        code = find_rows(at, &m);
        if (!code)
            code = check_module(at, &m);
        if (!code)
            code = add_module(at, &m);
    }
    return code;
}

/* ---- names that are no module's ---- */

/* A path that the name is of, among those of all tensors; NULL: of none. */
static const char *find_other(const struct attaching *at, const char *name, char path[128])
{
    for (uint32_t u = 0; u < at->n_base; u++)
        for (uint32_t i = 0; i < at->graph->units[u].n_tensors; i++) {
            const struct zinf_tensor *t = &at->graph->units[u].tensors[i];
            for (uint32_t p = 0; p < t->n_pieces; p++)
                if (path_of(&t->pieces[p], at->prefix, path) && adapter_name_is(name, path))
                    return path;
        }
    return NULL;
}

/* Appends the word to a list with commas, unless it is there. */
static void add_word(char *list, size_t bytes, const char *word)
{
    size_t used = strlen(list), n = strlen(word);
    for (const char *at = strstr(list, word); at; at = strstr(at + 1, word))
        if ((at == list || at[-1] == ' ') && (!at[n] || at[n] == ','))
            return;
    snprintf(list + used, bytes - used, "%s%s", used ? ", " : "", word);
}

/* Last parts of the paths of linear layers. */
static void list_linears(const struct attaching *at, char *list, size_t bytes)
{
    char path[128];
    list[0] = 0;
    for (uint32_t u = 0; u < at->n_base; u++)
        for (uint32_t i = 0; i < at->graph->units[u].n_tensors; i++) {
            const struct zinf_tensor *t = &at->graph->units[u].tensors[i];
            for (uint32_t p = 0; at->linear[u][i] && p < t->n_pieces; p++) {
                if (!path_of(&t->pieces[p], at->prefix, path))
                    continue;
                const char *dot = strrchr(path, '.');
                add_word(list, bytes, dot ? dot + 1 : path);
            }
        }
}

static int check_names(const struct attaching *at)
{
    const struct adapter_names *targets = &at->choice->targets;
    const char *what = at->choice->what;
    char path[128], linears[512];
    const cJSON *item;
    size_t i = 0;
    cJSON_ArrayForEach(item, targets->list)
    {
        if (targets->met[i++])
            continue;
        list_linears(at, linears, sizeof linears);
        if (find_other(at, item->valuestring, path))
            return zinf_fail(-ENOTSUP,
                             "%s: target_modules: %s is no linear layer of a block: only those can "
                             "be adapted: %s",
                             what, path, linears);
        return zinf_fail(-EINVAL, "%s: target_modules: the model has no module %s; it has %s", what,
                         item->valuestring, linears);
    }
    if (at->graph->n_adapted)
        return 0;
    list_linears(at, linears, sizeof linears);
    return zinf_fail(-EINVAL, "%s: target_modules chooses no linear layer; the model has %s", what,
                     linears);
}

/* ---- the graph ---- */

/* Adapters at hand wherever their units are. */
static void put_at_hand(struct attaching *at)
{
    for (uint32_t s = 0; s < at->graph->n_stages; s++) {
        uint32_t n = at->graph->stages[s].units.n;
        for (uint32_t i = 0; i < n; i++) {
            uint32_t adapter = at->adapter[at->graph->stages[s].units.at[i]];
            if (adapter)
                zinf_stage_append(at->graph, s, ZINF_STAGE_UNITS, adapter);
        }
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

/* Units are numbered in the order in which stages first need them. */
static int number_units(struct attaching *at)
{
    struct zinf_graph *g = at->graph;
    uint32_t *number = malloc(g->n_units * sizeof *number), next = 0;
    struct zinf_unit *units = zinf_graph_take(g, g->n_units * sizeof *units);
    if (!number || !units) {
        free(number);
        return zinf_fail(-ENOMEM, "no memory to adapt a model");
    }
    memset(number, 0xff, g->n_units * sizeof *number);
    for (uint32_t s = 0; s < g->n_stages; s++) {
        number_list(&g->stages[s].units, number, &next);
        number_list(&g->stages[s].sweep, number, &next);
    }
    for (uint32_t u = 0; u < g->n_units; u++)
        units[number[u]] = g->units[u];
    g->units = units;
    for (uint32_t i = 0; i < g->n_adapted; i++) {
        g->adapted[i].unit = number[g->adapted[i].unit];
        g->adapted[i].adapter = number[g->adapted[i].adapter];
    }
    free(number);
    return 0;
}

int adapter_attach(struct zinf_graph *graph, struct adapter_choice *choice, const char *prefix)
{
    struct attaching at = {
        .graph = graph,
        .choice = choice,
        .prefix = prefix,
        .n_base = graph->n_units,
        .linear = calloc(graph->n_units, sizeof *at.linear),
        .adapter = calloc(graph->n_units, sizeof *at.adapter),
    };
    int code = at.linear && at.adapter ? find_linears(&at)
                                       : zinf_fail(-ENOMEM, "no memory to adapt a model");
    for (uint32_t u = 0; !code && u < at.n_base; u++) {
        graph->units[u].trained = false;
        for (uint32_t i = 0; !code && i < graph->units[u].n_tensors; i++)
            if (at.linear[u][i])
                code = adapt_tensor(&at, u, i);
    }
    if (!code)
        code = check_names(&at);
    if (!code) {
        put_at_hand(&at);
        code = number_units(&at);
    }
    for (uint32_t u = 0; at.linear && u < at.n_base; u++)
        free(at.linear[u]);
    free(at.linear);
    free(at.adapter);
    return code;
}
