/* adapter_names: names of an adapter's document that are no module's, with those that would do. */
#include "model/adapters/adapter_attach.h"

#include <stdio.h>

bool attach_path_of(const struct attaching *at, const struct zinf_piece *piece, char path[128])
{
    static const char weight[] = ".weight";
    size_t n = strlen(piece->name), tail = sizeof weight - 1;
    if (n <= tail || strcmp(piece->name + n - tail, weight))
        return false;
    snprintf(path, 128, "%s%.*s", piece->plain_name ? "" : at->prefix, (int)(n - tail),
             piece->name);
    return true;
}

/* A path that the name is of, among those of all tensors; NULL: of none. */
static const char *find_other(const struct attaching *at, const char *name, char path[128])
{
    for (uint32_t u = 0; u < at->n_base; u++)
        for (uint32_t i = 0; i < at->graph->units[u].n_tensors; i++) {
            const struct zinf_tensor *t = &at->graph->units[u].tensors[i];
            for (uint32_t p = 0; p < t->n_pieces; p++)
                if (attach_path_of(at, &t->pieces[p], path) && adapter_name_is(name, path))
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
                if (!attach_path_of(at, &t->pieces[p], path))
                    continue;
                const char *dot = strrchr(path, '.');
                add_word(list, bytes, dot ? dot + 1 : path);
            }
        }
}

/* Parameters that all experts of a layer share: as the model has them in its first one. */
static int check_parameters(const struct attaching *at)
{
    const struct adapter_names *parameters = &at->choice->parameters;
    char list[512] = "";
    const cJSON *item;
    size_t i = 0;
    for (uint32_t u = 0; u < at->n_base; u++)
        for (uint32_t k = 0; k < at->graph->units[u].n_tensors; k++) {
            const char *stack = at->graph->units[u].tensors[k].stack, *dot;
            if (stack && (dot = strrchr(stack, '.')))
                add_word(list, sizeof list, dot + 1);
        }
    cJSON_ArrayForEach(item, parameters->list)
    {
        if (!parameters->met[i++])
            return zinf_fail(-EINVAL,
                             "%s: target_parameters: the model has no parameter %s of all experts "
                             "of a layer; it has %s",
                             at->choice->what, item->valuestring, list[0] ? list : "none");
    }
    return 0;
}

int attach_check_targets(const struct attaching *at)
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
    int code = check_parameters(at);
    if (code)
        return code;
    if (at->graph->n_adapted)
        return 0;
    list_linears(at, linears, sizeof linears);
    return zinf_fail(-EINVAL, "%s: target_modules chooses no linear layer; the model has %s", what,
                     linears);
}
