/* family_decoder: config.json to a decoder, as far as families agree, and the decoder to a graph.
 */
#include "model/families/family_decoder.h"

#include "model/heads.h"

#include <math.h>

enum { MAX_LAYERS = 4096 };

/* ---- counts ---- */

static int no_memory(const struct zinf_model_source *source)
{
    return zinf_fail(-ENOMEM, "no memory for the configuration %s", source->what);
}

/* Refuses every key that has another value than that of `only`; null is as if it were absent. */
static int check_only(const struct zinf_model_source *source, const char *only)
{
    cJSON *list = cJSON_Parse(only ? only : "{}");
    int code = list ? 0 : no_memory(source);
    for (const cJSON *one = list ? list->child : NULL; !code && one; one = one->next) {
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(source->config, one->string);
        if (!item || cJSON_IsNull(item) || cJSON_Compare(item, one, true))
            continue;
        char *has = cJSON_PrintUnformatted(item), *must = cJSON_PrintUnformatted(one);
        code = zinf_fail(-ENOTSUP, "%s: %s %s is not supported for %s; it must be %s", source->what,
                         one->string, has ? has : "", source->family->model_type, must ? must : "");
        cJSON_free(has);
        cJSON_free(must);
    }
    cJSON_Delete(list);
    return code;
}

static int read_counts(const struct zinf_model_source *source, const struct family_keys *keys,
                       struct family_counts *c)
{
    const struct family_int list[] = {
        {keys->layers, &c->layers},     {keys->hidden, &c->hidden},     {keys->heads, &c->heads},
        {keys->kv_heads, &c->kv_heads}, {keys->head_dim, &c->head_dim}, {keys->ffn, &c->ffn},
        {keys->vocab, &c->vocab},       {keys->context, &c->context},
    };
    int code = 0;
    for (size_t i = 0; !code && i < sizeof list / sizeof *list; i++) {
        bool null = list[i].key &&
                    cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(source->config, list[i].key));
        if (null)
            *list[i].out = 0;
        else if (list[i].key)
            code = zinf_json_int(source->config, source->what, list[i].key, list[i].out);
    }
    return code;
}

int family_read_counts(const struct zinf_model_source *source, struct decoder *d)
{
    const struct family_traits *t = source->family->traits;
    struct family_counts c = t->absent;
    struct attention_spec *a = &d->attention;
    int code = check_only(source, t->only);
    if (!code)
        code = read_counts(source, &t->other, &c);
    if (!code)
        code = read_counts(source, &t->keys, &c);
    if (code)
        return code;
    if (c.heads < 1 || c.hidden < 1 || (!c.head_dim && c.hidden % c.heads))
        return zinf_fail(-EINVAL, "%s: %s %lld must be a multiple of %s %lld%s", source->what,
                         t->keys.hidden, (long long)c.hidden, t->keys.heads, (long long)c.heads,
                         t->keys.head_dim ? ", or head_dim must be given" : "");
    if (c.layers < 1 || c.layers > MAX_LAYERS)
        return zinf_fail(-EINVAL, "%s: the number of layers is %lld; it must be between 1 and %d",
                         source->what, (long long)c.layers, MAX_LAYERS);
    d->what = source->what;
    d->join_tiles = source->join_tiles;
    d->packed = source->packed;
    d->shards = source->shards;
    d->n_layers = c.layers;
    d->hidden = c.hidden;
    d->vocab = c.vocab;
    d->context = c.context;
    d->ffn = c.ffn ? c.ffn : 4 * c.hidden;
    a->n_heads = c.heads;
    a->n_kv_heads = c.kv_heads ? c.kv_heads : c.heads;
    a->head_dim = c.head_dim ? c.head_dim : c.hidden / c.heads;
    a->scale = 1.0f / sqrtf((float)a->head_dim);
    return 0;
}

/* ---- numbers ---- */

int family_read_norms(const struct zinf_model_source *source, struct decoder *d,
                      enum zinf_norm_kind kind, const char *key, double eps)
{
    int code = zinf_json_double(source->config, source->what, key, &eps);
    if (!code && !(eps > 0))
        code = zinf_fail(-EINVAL, "%s: %s is %g; it must be above 0", source->what, key, eps);
    d->attention.norm = d->mlp.norm = (struct norm_spec){.kind = kind, .eps = (float)eps};
    return code;
}

int family_read_init(const struct zinf_model_source *source, struct decoder *d, const char *key,
                     double std)
{
    int code = zinf_json_double(source->config, source->what, key, &std);
    if (!code && !(std >= 0))
        code = zinf_fail(-EINVAL, "%s: %s is %g; it must be at least 0", source->what, key, std);
    d->init_std = (float)std;
    return code;
}

int family_read_dropout(const struct zinf_model_source *source, const char *key, double usual,
                        float *out)
{
    int code = zinf_json_double(source->config, source->what, key, &usual);
    *out = source->dropout >= 0 ? source->dropout : (float)usual;
    return code;
}

int family_read_padding(const struct zinf_model_source *source, struct decoder *d, int64_t usual)
{
    static const char key[] = "pad_token_id";
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(source->config, key);
    const bool given = item && !cJSON_IsNull(item);
    int64_t padding = usual;
    int code = given ? zinf_json_int(source->config, source->what, key, &padding) : 0;
    if (given && padding < 0)
        padding += d->vocab;
    d->has_padding = (given || (!item && usual >= 0)) && padding >= 0 && padding < d->vocab;
    d->padding = padding;
    return code;
}

int family_read_window(const struct zinf_model_source *source, struct decoder *d, int64_t usual)
{
    static const char key[] = "sliding_window";
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(source->config, key);
    int64_t window = item && cJSON_IsNull(item) ? 0 : usual;
    int code = zinf_json_int(source->config, source->what, key, &window);
    if (!code && (window < 0 || (!window && item && !cJSON_IsNull(item))))
        code = zinf_fail(-EINVAL, "%s: %s is %lld; it must be at least 1, or null", source->what,
                         key, (long long)window);
    d->attention.window = window;
    return code;
}

int family_read_layer_types(struct zinf_graph *graph, const struct zinf_model_source *source,
                            struct decoder *d, int64_t pattern, bool whole_last)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(source->config, "layer_types");
    bool *windowed = zinf_graph_take(graph, (size_t)d->n_layers);
    const bool given = list && !cJSON_IsNull(list);
    if (!windowed)
        return no_memory(source);
    if (pattern < 1)
        return zinf_fail(-EINVAL, "%s: the pattern of windows is %lld; it must be at least 1",
                         source->what, (long long)pattern);
    /* Longer where a model is looked at with fewer layers. */
    if (given && (!cJSON_IsArray(list) || cJSON_GetArraySize(list) < d->n_layers))
        return zinf_fail(-EINVAL, "%s: layer_types must have one name for each of %lld layers",
                         source->what, (long long)d->n_layers);
    const cJSON *item = given ? list->child : NULL;
    for (int64_t i = 0; i < d->n_layers; i++) {
        const char *name = item && cJSON_IsString(item) ? item->valuestring : "";
        windowed[i] = given ? !strcmp(name, "sliding_attention") : (i + 1) % pattern != 0;
        if (given && !windowed[i] && strcmp(name, "full_attention"))
            return zinf_fail(-ENOTSUP,
                             "%s: layer_types has \"%s\"; use full_attention or sliding_attention",
                             source->what, name);
        item = item ? item->next : NULL;
    }
    if (whole_last)
        windowed[d->n_layers - 1] = false;
    d->windowed = windowed;
    return 0;
}

/* Press et al., arXiv 2108.12409: of n heads, a power of two, head t = 1, 2, ... has 2^(-8 t / n);
 * of others those of the power of two below, then every second one of the power above. */
int family_make_slopes(struct zinf_graph *graph, struct decoder *d, double scale)
{
    int64_t n = d->attention.n_heads, power = 1;
    float *slopes = n > 0 ? zinf_graph_take(graph, (size_t)n * sizeof *slopes) : NULL;
    if (!slopes)
        return zinf_fail(-ENOMEM, "no memory for the slopes of %s", d->what);
    while (2 * power <= n)
        power *= 2;
    for (int64_t i = 0; i < n; i++) {
        double t = i < power ? (double)(i + 1) : (double)(2 * (i - power) + 1) / 2;
        slopes[i] = (float)(scale * pow(2, -8 * t / (double)power));
    }
    d->attention.slopes = slopes;
    return 0;
}

/* ---- tensors ---- */

void family_add_matrix(struct family_list *list, enum decoder_place place, const char *name,
                       int64_t rows, int64_t cols)
{
    list->items[list->n++] = (struct decoder_tensor){
        place, name, (uint64_t)rows, (uint64_t)cols, DECODER_ROWS, ZINF_INIT_NORMAL, list->std};
}

void family_add_vector(struct family_list *list, enum decoder_place place, const char *name,
                       int64_t rows, enum zinf_init init)
{
    list->items[list->n++] =
        (struct decoder_tensor){place, name, (uint64_t)rows, 0, DECODER_ROWS, init, 0};
}

void family_list_is_grouped(struct family_list *list)
{
    list->items[list->n - 1].order = DECODER_GROUPS;
}

int64_t family_qkv_rows(const struct decoder *d)
{
    return (d->attention.n_heads + 2 * d->attention.n_kv_heads) * d->attention.head_dim;
}

void family_tell(struct zinf_model_facts *facts, const struct zinf_model_source *source,
                 const struct decoder *d, int64_t end_of_text)
{
    facts->layers = d->n_layers;
    facts->hidden = d->hidden;
    facts->heads = d->attention.n_heads;
    facts->vocab = d->vocab;
    facts->context = d->context;
    facts->end_of_text = end_of_text < d->vocab ? end_of_text : -1;
    family_read_end_of_text(source, &facts->end_of_text);
}

int family_read_classes(const struct zinf_model_source *source, struct decoder *d)
{
    const cJSON *padding = cJSON_GetObjectItemCaseSensitive(source->config, "pad_token_id");
    d->embeds = heads_in(source->config, source->family) == ZINF_HEAD_NONE;
    d->packed |= d->embeds; /* samples are padded */
    if (d->embeds)
        d->experts.balance = 0;
    if (!classes_are_in(source->config))
        return 0;
    if (source->family->no_classes)
        return zinf_fail(-ENOTSUP, "%s: models of the family %s have no head for classes",
                         source->what, source->family->model_type);
    d->packed = true;
    d->experts.balance = 0; /* foretelling tokens has it */
    d->class_padding = cJSON_IsNumber(padding) ? (int64_t)padding->valuedouble : -1;
    return classes_read(source->config, source->what, &d->classes);
}

int family_finish(struct zinf_graph *graph, struct zinf_model_facts *facts,
                  const struct zinf_model_source *source, struct decoder *d,
                  const struct family_list *list, int64_t end_of_text)
{
    family_tell(facts, source, d, end_of_text);
    d->tensors = list->items;
    d->n_tensors = list->n;
    int code = family_read_classes(source, d);
    return code ? code : decoder_build(graph, d);
}
