/* freeze: finds the units that patterns over names freeze, and makes companions for tensors that
 * stay trained. */
#include "model/freeze.h"
#include "model/companion.h"
#include "model/tensors.h"

#include <fnmatch.h>
#include <stdlib.h>

/* ---- the choice ---- */

static int take_patterns(struct freeze_choice *c, const cJSON *patterns)
{
    const cJSON *item;
    c->patterns = cJSON_IsString(patterns) ? cJSON_CreateArray() : cJSON_Duplicate(patterns, true);
    if (cJSON_IsString(patterns) && c->patterns)
        cJSON_AddItemToArray(c->patterns, cJSON_CreateString(patterns->valuestring));
    if (!c->patterns)
        return zinf_fail(-ENOMEM, "no memory for %s", c->what);
    bool good = cJSON_IsArray(c->patterns) && cJSON_GetArraySize(c->patterns);
    cJSON_ArrayForEach(item, c->patterns) good =
        good && cJSON_IsString(item) && item->valuestring[0];
    if (!good)
        return zinf_fail(-EINVAL,
                         "%s must be a list of patterns over names of tensors, such as "
                         "[\"*\", \"!lm_head.*\"]",
                         c->what);
    c->met = calloc((size_t)cJSON_GetArraySize(c->patterns), sizeof *c->met);
    return c->met ? 0 : zinf_fail(-ENOMEM, "no memory for %s", c->what);
}

int freeze_choice_init(struct freeze_choice *c, const cJSON *patterns, const char *what)
{
    *c = (struct freeze_choice){.what = strdup(what)};
    int code = c->what ? take_patterns(c, patterns) : zinf_fail(-ENOMEM, "no memory for %s", what);
    if (code)
        freeze_choice_fini(c);
    return code;
}

void freeze_choice_fini(struct freeze_choice *c)
{
    cJSON_Delete(c->patterns);
    free(c->met);
    free(c->what);
    *c = (struct freeze_choice){0};
}

/* ---- the graph ---- */

static bool is_frozen(struct freeze_choice *c, const struct zinf_piece *piece, const char *prefix)
{
    char name[192];
    bool frozen = false;
    size_t i = 0;
    const cJSON *item;
    zinf_piece_name(piece, prefix, name, sizeof name);
    cJSON_ArrayForEach(item, c->patterns)
    {
        bool stays = item->valuestring[0] == '!';
        if (!fnmatch(item->valuestring + stays, name, 0)) {
            frozen = !stays;
            c->met[i] = true;
        }
        i++;
    }
    return frozen;
}

/* Tensors of the file that are one tensor here must be frozen together. */
static int look_at(struct freeze_choice *c, const struct zinf_tensor *t, const char *prefix,
                   bool *trained)
{
    uint32_t n = 0;
    for (uint32_t p = 0; p < t->n_pieces; p++)
        n += is_frozen(c, &t->pieces[p], prefix);
    *trained = !n;
    if (!n || n == t->n_pieces)
        return 0;
    return zinf_fail(-ENOTSUP,
                     "%s freezes some of %s and what is one tensor with it here, but not all: "
                     "freeze all of it, or nothing",
                     c->what, t->pieces[0].name);
}

static int freeze_unit(struct companions *second, struct freeze_choice *c, uint32_t unit,
                       const char *prefix, bool *any)
{
    const struct zinf_unit *u = &second->graph->units[unit];
    bool *trained = calloc(u->n_tensors, sizeof *trained);
    int code = trained ? 0 : zinf_fail(-ENOMEM, "no memory to freeze a model");
    for (uint32_t i = 0; !code && i < u->n_tensors; i++) {
        code = look_at(c, &u->tensors[i], prefix, &trained[i]);
        trained[i] = trained[i] && !u->constant;
        *any = *any || trained[i];
    }
    if (!code)
        code = companion_move(second, unit, trained, NULL, NULL);
    free(trained);
    return code;
}

static int check(const struct freeze_choice *c, bool any)
{
    size_t i = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, c->patterns) if (!c->met[i++]) return zinf_fail(
        -EINVAL, "%s: \"%s\" matches the name of no tensor (zinf inspect lists them)", c->what,
        item->valuestring);
    return any ? 0 : zinf_fail(-EINVAL, "%s leaves nothing to train", c->what);
}

int freeze_graph(struct zinf_graph *graph, struct freeze_choice *choice, const char *prefix)
{
    struct companions second;
    bool any = false;
    int code = companions_init(&second, graph, "trained");
    for (uint32_t u = 0; !code && u < second.n_base; u++)
        code = freeze_unit(&second, choice, u, prefix, &any);
    if (!code)
        code = check(choice, any);
    if (!code)
        code = companions_finish(&second);
    companions_fini(&second);
    return code;
}
