/* family_kinds: which one part each layer of a model has, from config.json. */
#include "model/families/family_described.h"

#include <string.h>

/* What layers are called: a list of words, or letters. */
struct naming {
    const struct described_kinds *of;
    const char *key, *letters;
    const cJSON *list;
    int64_t n;
};

static struct naming find_naming(const struct zinf_model_source *source,
                                 const struct described_kinds *of)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(source->config, of->list_key);
    const cJSON *text = cJSON_GetObjectItemCaseSensitive(source->config, of->letters_key);
    struct naming n = {.of = of, .key = of->letters_key, .letters = of->usual};
    if (cJSON_IsArray(list)) {
        n.list = list;
        n.key = of->list_key;
        n.n = cJSON_GetArraySize(list);
        return n;
    }
    if (cJSON_IsString(text))
        n.letters = text->valuestring;
    n.n = (int64_t)strlen(n.letters);
    return n;
}

/* KINDS: of none. */
static enum described_kind kind_of(const struct naming *n, const cJSON *item, int64_t i)
{
    const char *word = n->list ? cJSON_GetStringValue(item) : NULL;
    for (int kind = 0; kind < KINDS; kind++) {
        if (!n->list && n->of->letters[kind] == n->letters[i])
            return (enum described_kind)kind;
        for (int k = 0; k < 2; k++)
            if (word && n->of->words[kind][k] && !strcmp(word, n->of->words[kind][k]))
                return (enum described_kind)kind;
    }
    return KINDS;
}

static int refuse(const struct zinf_model_source *source, const struct naming *n, const cJSON *item,
                  int64_t i)
{
    const char letter[] = {n->list ? 0 : n->letters[i], 0};
    const char *const(*words)[2] = n->of->words;
    const char *word = n->list ? cJSON_GetStringValue(item) : letter;
    return zinf_fail(-EINVAL,
                     "%s: %s has \"%s\", which is no kind of layer; words are %s, %s, %s and %s, "
                     "and letters %c, %c, %c and %c",
                     source->what, n->key, word ? word : "", words[KIND_MIXER][0],
                     words[KIND_ATTENTION][0], words[KIND_MLP][0], words[KIND_EXPERTS][0],
                     n->of->letters[KIND_MIXER], n->of->letters[KIND_ATTENTION],
                     n->of->letters[KIND_MLP], n->of->letters[KIND_EXPERTS]);
}

/* A list of another type would be the usual layers. */
static int check_types(const struct zinf_model_source *source, const struct described_kinds *of)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(source->config, of->list_key);
    const cJSON *text = cJSON_GetObjectItemCaseSensitive(source->config, of->letters_key);
    if (list && !cJSON_IsNull(list) && !cJSON_IsArray(list))
        return zinf_fail(-EINVAL, "%s: %s must be a list of words, one for each layer",
                         source->what, of->list_key);
    if (text && !cJSON_IsNull(text) && !cJSON_IsString(text))
        return zinf_fail(-EINVAL, "%s: %s must be a text, a letter for each layer", source->what,
                         of->letters_key);
    return 0;
}

int kinds_read(struct zinf_graph *graph, const struct zinf_model_source *source,
               const struct described_kinds *of, struct decoder *d, const bool **in_layer)
{
    const struct family_traits *t = source->family->traits;
    const struct naming n = find_naming(source, of);
    int code = check_types(source, of);
    if (code)
        return code;
    if (n.n < 1 || n.n > 4096)
        return zinf_fail(-EINVAL, "%s: %s has %lld layers; it must have between 1 and 4096",
                         source->what, n.key, (long long)n.n);
    if (!zinf_json_has(source->config, t->keys.layers))
        d->n_layers = n.n;
    const size_t layers = (size_t)d->n_layers;
    enum decoder_parts *parts = zinf_graph_take(graph, layers * sizeof *parts);
    bool *mixed = zinf_graph_take(graph, layers), *experts = zinf_graph_take(graph, layers);
    if (!parts || !mixed || !experts)
        return zinf_fail(-ENOMEM, "no memory for the layers of %s", source->what);
    const cJSON *item = n.list ? n.list->child : NULL;
    for (size_t i = 0; i < layers; i++) {
        const enum described_kind kind = kind_of(&n, item, (int64_t)i % n.n);
        if (kind == KINDS)
            return refuse(source, &n, item, (int64_t)i % n.n);
        const bool attention = kind == KIND_MIXER || kind == KIND_ATTENTION;
        parts[i] = attention ? DECODER_ATTENTION_ALONE : DECODER_MLP_ALONE;
        mixed[i] = kind == KIND_MIXER;
        experts[i] = kind == KIND_EXPERTS;
        d->mixed = mixed[i] ? mixed : d->mixed;
        *in_layer = experts[i] ? experts : *in_layer;
        item = item && item->next ? item->next : n.list ? n.list->child : NULL;
    }
    d->parts = parts;
    return 0;
}
