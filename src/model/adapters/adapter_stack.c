/*
 * adapter_stack: adapters of parameters that transformers has of all experts of a layer at once, as
 * PEFT has them (target_parameters): one A of [experts rank][in], expert after expert, and one B of
 * [out][rank experts], in whose columns experts take turns. Here B is transposed, so that both have
 * an expert's rows together, and both are tensors of the layer's one unit of adapters.
 */
#include "model/adapters/adapter_attach.h"

#include <stdio.h>

static int name_of(const struct attaching *at, const struct zinf_tensor *t, char name[128])
{
    int length = snprintf(name, 128, "%s%s", at->prefix, t->stack);
    return length < 128 ? 0
                        : zinf_fail(-ENAMETOOLONG, "%s: the name of %s is too long",
                                    at->choice->what, t->stack);
}

/* Parameters of one module are wrapped around each other, in its order: the last is outermost. */
static int path_of(const struct attaching *at, uint32_t unit, uint32_t tensor, char path[128])
{
    const struct zinf_unit *u = &at->graph->units[unit];
    int code = name_of(at, &u->tensors[tensor], path);
    char other[128];
    struct adapter_module how = {0};
    size_t module = code ? 0 : (size_t)(strrchr(path, '.') - path);
    path[module] = 0;
    for (uint32_t i = tensor + 1; !code && i < u->n_tensors; i++) {
        if (!u->tensors[i].stack)
            continue;
        if (!(code = name_of(at, &u->tensors[i], other)))
            code = adapter_choose_parameter(at->choice, other, &how);
        const size_t n = strlen(path);
        if (!code && how.wanted && !strncmp(path, other, module) && other[module] == '.' &&
            !strchr(other + module + 1, '.'))
            snprintf(path + n, 128 - n, "%s", ADAPTER_BASE_LAYER);
    }
    return code;
}

int attach_check_swept(const struct attaching *at, const char *path)
{
    if (!at->choice->has_magnitude && at->choice->dropout == 0)
        return 0;
    return zinf_fail(-ENOTSUP,
                     "%s: %s is of an expert, for which there is no %s: leave it out, or the "
                     "experts",
                     at->choice->what, path,
                     at->choice->has_magnitude ? "use_dora" : "lora_dropout");
}

/* ---- tensors ---- */

/* What all shares of a stack have in common. */
struct stack {
    uint32_t unit, tensor, visit, n_visits;
    uint64_t rank;
    char path[128];
};

static struct zinf_piece make_piece(const struct stack *s, const char *which, uint64_t rows,
                                    uint64_t cols)
{
    struct zinf_piece piece = {.plain_name = true, .rank = 2, .shape = {rows, cols}};
    snprintf(piece.name, sizeof piece.name, ADAPTER_KEY_PREFIX "%.*s%s",
             (int)(sizeof piece.name - 40), s->path, which);
    return piece;
}

/* The file's even rows of outputs come first here, as they do of the weight. */
static bool takes_turns(const struct zinf_tensor *t)
{
    return t->n_pieces == 2 && t->pieces[0].rows.file_stride == 2 &&
           !strcmp(t->pieces[0].name, t->pieces[1].name);
}

static void add_tensors(struct attaching *at, const struct stack *s, struct zinf_adapted *adapted)
{
    const struct zinf_tensor t = at->graph->units[s->unit].tensors[s->tensor];
    const uint64_t all = s->n_visits * s->rank;
    struct zinf_piece a = make_piece(s, ".lora_A.weight", all, t.cols),
                      b = make_piece(s, ".lora_B.weight", t.rows, all);
    a.rows = (struct zinf_row_map){.rows = all, .count = 1};
    b.transposed = true;
    b.turns = takes_turns(&t);
    adapted->a = attach_add_a(at, s->unit, all, t.cols, (int64_t)s->rank);
    zinf_graph_add_piece(at->graph, adapted->adapter, &a);
    adapted->b = attach_add_b(at, s->unit, all, t.rows);
    for (uint64_t j = 0; j < s->rank; j++) {
        b.rows = (struct zinf_row_map){.file_first = j * s->n_visits,
                                       .file_stride = 1,
                                       .flat_first = j,
                                       .flat_stride = s->rank,
                                       .rows = 1,
                                       .count = s->n_visits};
        zinf_graph_add_piece(at->graph, adapted->adapter, &b);
    }
}

/* Those that the first share has made; B is behind A. */
static void find_tensors(const struct attaching *at, const struct stack *s,
                         struct zinf_adapted *adapted)
{
    const struct zinf_unit *u = &at->graph->units[adapted->adapter];
    const struct zinf_piece a = make_piece(s, ".lora_A.weight", 0, 0);
    for (uint32_t i = 0; i < u->n_tensors; i++)
        if (!strcmp(u->tensors[i].pieces[0].name, a.name))
            adapted->a = i;
    adapted->b = adapted->a + 1;
}

static int add_share(struct attaching *at, const struct stack *s, double scale)
{
    const struct zinf_tensor *t = &at->graph->units[s->unit].tensors[s->tensor];
    struct zinf_adapted adapted = {
        .unit = s->unit,
        .tensor = s->tensor,
        .rows = (uint32_t)t->rows,
        .rank = (uint32_t)s->rank,
        .first_rank = (uint32_t)s->rank * s->visit,
        .stacked = true,
        .adapter = companion_of(&at->second, s->unit),
        .scale = (float)scale,
        .site = ATTACH_FIRST_SITE + at->n_sites++,
    };
    if (s->visit)
        find_tensors(at, s, &adapted);
    else
        add_tensors(at, s, &adapted);
    return attach_note(at, &adapted);
}

static int check_rank(const struct attaching *at, const struct stack *s)
{
    const struct zinf_tensor *t = &at->graph->units[s->unit].tensors[s->tensor];
    const uint64_t side = t->rows < t->cols ? t->rows : t->cols;
    if (s->rank <= side)
        return attach_check_swept(at, t->stack);
    return zinf_fail(-EINVAL,
                     "%s: rank %llu is above the smaller side of %s, which is %llu: take a smaller "
                     "r, or one in rank_pattern",
                     at->choice->what, (unsigned long long)s->rank, t->stack,
                     (unsigned long long)side);
}

int attach_stack(struct attaching *at, uint32_t unit, uint32_t tensor, bool *chosen)
{
    const struct zinf_tensor *t = &at->graph->units[unit].tensors[tensor];
    const uint32_t stage = at->second.chooser[unit];
    struct stack s = {.unit = unit, .tensor = tensor};
    struct adapter_module how = {0};
    char name[128];
    *chosen = false;
    if (!t->stack || stage == UINT32_MAX)
        return 0;
    int code = name_of(at, t, name);
    if (!code)
        code = adapter_choose_parameter(at->choice, name, &how);
    if (code || !how.wanted)
        return code;
    const struct zinf_ids *sweep = &at->graph->stages[stage].sweep;
    while (sweep->at[s.visit] != unit)
        s.visit++;
    s.n_visits = sweep->n;
    s.rank = (uint64_t)how.rank;
    *chosen = true;
    code = path_of(at, unit, tensor, s.path);
    if (!code)
        code = check_rank(at, &s);
    return code ? code : add_share(at, &s, how.scale);
}
