/*
 * adapter_describe: a graph's adapters as the adapter_config.json that PEFT reads. "all-linear" is
 * written as what it chose: the last parts of the modules' paths where these choose the same ones
 * again, which most readers understand, else whole paths.
 */
#include "model/adapters/adapter.h"

#include <stdio.h>
#include <stdlib.h>

/* The module's path, from the name of its A. */
static void path_of(const struct zinf_graph *graph, const struct zinf_adapted *adapted,
                    char path[128])
{
    static const char tail[] = ".lora_A.weight";
    const struct zinf_unit *unit = &graph->units[adapted->adapter];
    const char *name = unit->tensors[adapted->a].pieces[0].name;
    size_t prefix = sizeof ADAPTER_KEY_PREFIX - 1, n = strlen(name) - (sizeof tail - 1);
    snprintf(path, 128, "%.*s", (int)(n - prefix), name + prefix);
}

static const char *last_part(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

static bool is_listed(const cJSON *list, const char *name)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, list) if (!strcmp(item->valuestring, name)) return true;
    return false;
}

/* How many of the file's tensors the name means, adapters' own aside. */
static uint32_t count_named(const struct zinf_graph *graph, const char *name)
{
    char path[128];
    uint32_t n = 0;
    for (uint32_t u = 0; u < graph->n_units; u++)
        for (uint32_t i = 0; !graph->units[u].trained && i < graph->units[u].n_tensors; i++) {
            const struct zinf_tensor *t = &graph->units[u].tensors[i];
            for (uint32_t p = 0; p < t->n_pieces; p++) {
                snprintf(path, sizeof path, "%s", t->pieces[p].name);
                char *weight = strstr(path, ".weight");
                if (weight)
                    *weight = 0;
                bool first = p == 0 || strcmp(t->pieces[p].name, t->pieces[p - 1].name) != 0;
                n += weight && first && adapter_name_is(name, path);
            }
        }
    return n;
}

static bool short_names_do(const struct zinf_graph *graph)
{
    char path[128], other[128];
    for (uint32_t i = 0; i < graph->n_adapted; i++) {
        uint32_t n = 0;
        if (graph->adapted[i].stacked)
            continue;
        path_of(graph, &graph->adapted[i], path);
        for (uint32_t k = 0; k < graph->n_adapted; k++) {
            path_of(graph, &graph->adapted[k], other);
            n += !graph->adapted[k].stacked && !strcmp(last_part(path), last_part(other));
        }
        if (n != count_named(graph, last_part(path)))
            return false;
    }
    return true;
}

static int ascending(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* A sorted list of names, each once. */
static cJSON *sorted(const cJSON *names)
{
    size_t n = (size_t)cJSON_GetArraySize(names), i = 0;
    const char **list = calloc(n + 1, sizeof *list);
    cJSON *out = cJSON_CreateArray();
    const cJSON *item;
    cJSON_ArrayForEach(item, names) if (list) list[i++] = item->valuestring;
    if (list)
        qsort(list, n, sizeof *list, ascending);
    for (i = 0; list && out && i < n; i++)
        if (!is_listed(out, list[i]))
            cJSON_AddItemToArray(out, cJSON_CreateString(list[i]));
    free(list);
    return out;
}

static cJSON *list_chosen(const struct zinf_graph *graph)
{
    bool brief = short_names_do(graph);
    cJSON *names = cJSON_CreateArray(), *out = NULL;
    char path[128];
    for (uint32_t i = 0; names && i < graph->n_adapted; i++) {
        path_of(graph, &graph->adapted[i], path);
        const char *name = brief ? last_part(path) : path;
        if (!graph->adapted[i].stacked && !is_listed(names, name))
            cJSON_AddItemToArray(names, cJSON_CreateString(name));
    }
    if (names)
        out = sorted(names);
    cJSON_Delete(names);
    return out;
}

static cJSON *targets_of(const struct zinf_graph *graph, const struct adapter_choice *choice)
{
    if (choice->targets.all)
        return list_chosen(graph);
    if (choice->targets.list)
        return sorted(choice->targets.list);
    if (!choice->targets.expression)
        return cJSON_CreateArray();
    return cJSON_Duplicate(cJSON_GetObjectItemCaseSensitive(choice->config, "target_modules"),
                           true);
}

static cJSON *object_of(const struct adapter_choice *choice, const char *key)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(choice->config, key);
    return cJSON_IsObject(value) ? cJSON_Duplicate(value, true) : cJSON_CreateObject();
}

/* Weights that the file has as [in][out]; of those that are no parameters by themselves. */
static bool is_transposed(const struct zinf_graph *graph)
{
    const struct zinf_adapted *first = &graph->adapted[0];
    while (first->stacked && first + 1 < graph->adapted + graph->n_adapted)
        first++;
    const struct zinf_tensor *t = &graph->units[first->unit].tensors[first->tensor];
    return !first->stacked && t->pieces[0].transposed != t->turned;
}

static cJSON *init_of(const struct adapter_choice *choice)
{
    return choice->gaussian ? cJSON_CreateString("gaussian") : cJSON_CreateTrue();
}

/* What the model is for, as PEFT has it: by what comes with a batch. */
static const char *task_of(const struct zinf_graph *graph, const struct adapter_choice *choice)
{
    for (uint32_t v = 0; v < graph->n_values; v++)
        if (graph->values[v].input == ZINF_INPUT_SOURCE_IDS)
            return "SEQ_2_SEQ_LM";
    return choice->classifies ? "SEQ_CLS" : "CAUSAL_LM";
}

static cJSON *saved_of(const struct adapter_choice *choice)
{
    static const char *const heads[] = {"classifier", "score"};
    if (choice->classifies && !choice->saved.list)
        return cJSON_CreateStringArray(heads, 2);
    return choice->saved.list ? sorted(choice->saved.list) : cJSON_CreateNull();
}

int adapter_describe(const struct zinf_graph *graph, const struct adapter_choice *choice,
                     const char *base, cJSON **out)
{
    static const char *const bias_names[] = {"none", "lora_only", "all"}; /* enum adapter_bias */
    const cJSON *excluded = cJSON_GetObjectItemCaseSensitive(choice->config, "exclude_modules");
    const struct {
        const char *key;
        cJSON *value;
    } members[] = {
        {"alpha_pattern", object_of(choice, "alpha_pattern")},
        {"base_model_name_or_path", cJSON_CreateString(base)},
        {"bias", cJSON_CreateString(bias_names[choice->bias])},
        {"exclude_modules", excluded ? cJSON_Duplicate(excluded, true) : cJSON_CreateNull()},
        {"fan_in_fan_out", cJSON_CreateBool(is_transposed(graph))},
        {"inference_mode", cJSON_CreateTrue()},
        {"init_lora_weights", init_of(choice)},
        {"layers_pattern", cJSON_CreateNull()},
        {"layers_to_transform", cJSON_CreateNull()},
        {"lora_alpha", cJSON_CreateNumber(choice->alpha)},
        {"lora_dropout", cJSON_CreateNumber(choice->dropout)},
        {"modules_to_save", saved_of(choice)},
        {"peft_type", cJSON_CreateString("LORA")},
        {"r", cJSON_CreateNumber((double)choice->rank)},
        {"rank_pattern", object_of(choice, "rank_pattern")},
        {"revision", cJSON_CreateNull()},
        {"target_modules", targets_of(graph, choice)},
        {"target_parameters",
         choice->parameters.list ? sorted(choice->parameters.list) : cJSON_CreateNull()},
        {"task_type", cJSON_CreateString(task_of(graph, choice))},
        {"use_dora", cJSON_CreateBool(choice->has_magnitude)},
        {"use_rslora", cJSON_CreateBool(choice->root_of_rank)},
    };
    cJSON *object = cJSON_CreateObject();
    bool good = object;
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        bool added = good && members[i].value &&
                     cJSON_AddItemToObject(object, members[i].key, members[i].value);
        if (!added)
            cJSON_Delete(members[i].value);
        good = added;
    }
    if (good) {
        *out = object;
        return 0;
    }
    cJSON_Delete(object);
    return zinf_fail(-ENOMEM, "no memory to describe an adapter");
}
