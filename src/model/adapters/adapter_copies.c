/*
 * adapter_copies: what PEFT trains beside low-rank adapters: biases (bias) and whole modules
 * (modules_to_save). They are tensors of the base that begin as they are there, move to the
 * adapters' units, and are saved in the adapter's file under PEFT's names.
 */
#include "model/adapters/adapter_attach.h"
#include "model/model.h"
#include "model/tensors.h"

#include <stdio.h>
#include <stdlib.h>

/* Of one unit. */
struct copying {
    const struct attaching *at;
    uint32_t unit;
};

/* ---- what is copied ---- */

/* The path of the module that the piece is of, whatever tensor of it. */
static void module_of(const struct attaching *at, const struct zinf_piece *piece, char path[128])
{
    zinf_piece_name(piece, at->prefix, path, 128);
    char *dot = strrchr(path, '.');
    if (dot)
        *dot = 0;
}

static bool is_adapted(const struct attaching *at, uint32_t unit, const char *path)
{
    const struct zinf_graph *g = at->graph;
    const struct zinf_unit *u = &g->units[unit];
    char name[192];
    snprintf(name, sizeof name, ADAPTER_KEY_PREFIX "%s.lora_A.weight", path);
    for (uint32_t i = 0; i < u->n_adapted; i++) {
        const struct zinf_adapted *a = &g->adapted[u->first_adapted + i];
        if (!strcmp(name, g->units[a->adapter].tensors[a->a].pieces[0].name))
            return true;
    }
    return false;
}

static bool is_copied(const struct attaching *at, uint32_t unit, const struct zinf_piece *piece)
{
    enum adapter_bias bias = at->choice->bias;
    const char *dot = strrchr(piece->name, '.');
    char path[128];
    module_of(at, piece, path);
    if (adapter_is_saved(at->choice, path))
        return true;
    if (bias == ADAPTER_BIAS_NONE || !dot || strcmp(dot, ".bias"))
        return false;
    return bias == ADAPTER_BIAS_ALL || is_adapted(at, unit, path);
}

/* Tensors of the file that are one of ours move together or not at all. */
static int mark_tensor(const struct attaching *at, uint32_t unit, const struct zinf_tensor *t,
                       bool *marked)
{
    const struct zinf_piece *other = NULL;
    uint32_t n = 0;
    for (uint32_t p = 0; p < t->n_pieces; p++) {
        bool copied = is_copied(at, unit, &t->pieces[p]);
        n += copied;
        other = copied ? other : &t->pieces[p];
    }
    *marked = n > 0;
    if (n && n < t->n_pieces)
        return zinf_fail(-ENOTSUP,
                         "%s: bias and modules_to_save train some of what is one tensor here, but "
                         "not %s: choose all of it, or none",
                         at->choice->what, other->name);
    if (n && t->form != ZINF_FORM_PLAIN)
        return zinf_fail(-ENOTSUP,
                         "%s: modules_to_save: %s is quantised, and so is not trained itself",
                         at->choice->what, t->pieces[0].name);
    return 0;
}

/* ---- names ---- */

static int rename_piece(void *context, struct zinf_piece *piece)
{
    const struct copying *c = context;
    char path[128], name[256];
    const char *dot = strrchr(piece->name, '.');
    module_of(c->at, piece, path);
    int length =
        snprintf(name, sizeof name, ADAPTER_KEY_PREFIX "%s%s%s", path,
                 is_adapted(c->at, c->unit, path) ? ADAPTER_BASE_LAYER : "", dot ? dot : "");
    if (length >= (int)sizeof piece->name)
        return zinf_fail(-ENAMETOOLONG, "%s: the name of %s is too long", c->at->choice->what,
                         path);
    memcpy(piece->name, name, (size_t)length + 1);
    piece->plain_name = piece->of_base = true;
    return 0;
}

const char *zinf_adapter_base_name(char buffer[160], const char *name)
{
    const char *path = name + sizeof ADAPTER_KEY_PREFIX - 1;
    const char *layer = strstr(path, ADAPTER_BASE_LAYER ".");
    int n = layer ? (int)(layer - path) : (int)strlen(path);
    snprintf(buffer, 160, "%.*s%s", n, path, layer ? layer + sizeof ADAPTER_BASE_LAYER - 1 : "");
    return buffer;
}

/* ---- units ---- */

/* The table of tokens that is also the head: PEFT would train one of the two. */
static int check_ties(const struct attaching *at, uint32_t unit)
{
    const struct zinf_graph *g = at->graph;
    uint32_t n = 0;
    for (uint32_t s = 0; s < g->n_stages; s++)
        for (uint32_t i = 0; i < g->stages[s].units.n + g->stages[s].sweep.n; i++) {
            const struct zinf_stage *stage = &g->stages[s];
            uint32_t u =
                i < stage->units.n ? stage->units.at[i] : stage->sweep.at[i - stage->units.n];
            n += u == unit;
        }
    if (!at->second.swept[unit] || n < 2)
        return 0;
    return zinf_fail(-ENOTSUP,
                     "%s: modules_to_save: %s is the table of tokens and the head at once: PEFT "
                     "would train a copy of one of them",
                     at->choice->what, g->units[unit].tensors[0].pieces[0].name);
}

static int copy_of_unit(struct attaching *at, uint32_t unit)
{
    struct zinf_unit *u = &at->graph->units[unit];
    struct copying copying = {at, unit};
    bool *marked = calloc(u->n_tensors, sizeof *marked), any = false;
    int code = marked ? 0 : zinf_fail(-ENOMEM, "no memory to adapt a model");
    for (uint32_t i = 0; !code && i < u->n_tensors; i++) {
        code = mark_tensor(at, unit, &u->tensors[i], &marked[i]);
        any = any || marked[i];
    }
    any = any && !u->constant; /* PEFT takes the base's where an adapter has none */
    if (!code && any)
        code = check_ties(at, unit);
    if (!code && any)
        code = companion_move(&at->second, unit, marked, rename_piece, &copying);
    free(marked);
    return code;
}

static int check_saved(const struct attaching *at)
{
    const struct adapter_names *saved = &at->choice->saved;
    const cJSON *item;
    size_t i = 0;
    if (at->choice->for_classes && !at->choice->classifies)
        return zinf_fail(-ENOTSUP,
                         "%s: task_type is SEQ_CLS, and the model has no such head: zinf train "
                         "--task classification (or regression, reward) with the adapter's data "
                         "and --steps 0 makes one that has",
                         at->choice->what);
    cJSON_ArrayForEach(item, saved->list)
    {
        bool head = at->choice->classifies && adapter_is_head(item->valuestring);
        if (!saved->met[i++] && !head)
            return zinf_fail(-EINVAL, "%s: modules_to_save: the model has no module %s",
                             at->choice->what, item->valuestring);
    }
    return 0;
}

int attach_copies(struct attaching *at)
{
    int code = 0;
    for (uint32_t u = 0; !code && u < at->n_base; u++)
        code = copy_of_unit(at, u);
    return code ? code : check_saved(at);
}
