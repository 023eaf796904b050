/* family_layers: which layers of a described decoder have a window or a rotation, and which one,
 * from config.json. */
#include "model/families/family_reading.h"

#include <stdio.h>
#include <string.h>

/* ---- windows ---- */

static int read_upper_windows(struct zinf_graph *graph, const struct zinf_model_source *source,
                              struct reading *r)
{
    struct decoder *d = &r->d;
    int64_t first = 28;
    int code = zinf_json_int(source->config, source->what, "max_window_layers", &first);
    bool *windowed = zinf_graph_take(graph, (size_t)d->n_layers);
    if (code || !windowed)
        return code ? code : zinf_fail(-ENOMEM, "no memory for the layers of %s", source->what);
    for (int64_t i = 0; i < d->n_layers; i++)
        windowed[i] =
            r->of->windows == DESCRIBED_EVEN_WINDOWS ? i < first && i % 2 == 0 : i >= first;
    d->windowed = windowed;
    return 0;
}

static int read_windowed(struct zinf_graph *graph, const struct zinf_model_source *source,
                         struct reading *r)
{
    const struct described *of = r->of;
    const bool listed = zinf_json_has(source->config, "layer_types");
    int64_t pattern = of->pattern ? of->pattern : 1;
    bool use = of->windows < DESCRIBED_REQUESTED_WINDOWS;
    int code = 0;
    if (of->windows == DESCRIBED_NO_WINDOWS)
        return 0;
    if (!use)
        code = zinf_json_bool(source->config, source->what, "use_sliding_window", &use);
    if (code || !use)
        return code;
    code = family_read_window(source, &r->d, of->window);
    if (code || of->windows == DESCRIBED_ALL_WINDOWS ||
        (!r->d.attention.window && !of->local_theta_key))
        return code;
    if (!listed && of->windows >= DESCRIBED_UPPER_WINDOWS)
        return read_upper_windows(graph, source, r);
    if (!listed)
        code = zinf_json_int(source->config, source->what, "sliding_window_pattern", &pattern);
    return code ? code
                : family_read_layer_types(graph, source, &r->d, pattern,
                                          of->unwindowed && of->unwindowed->last);
}

/* What the object of a layer has in place of the numbers of all of them, which must be the same in
 * all layers without a window and is in no other. */
static int read_layer_numbers(const struct zinf_model_source *source, struct reading *r)
{
    const char *key = r->of->unwindowed->layers_key;
    const cJSON *all = cJSON_GetObjectItemCaseSensitive(source->config, key), *first = NULL;
    int code = 0;
    for (int64_t i = 0; i < r->d.n_layers; i++) {
        char name[24];
        snprintf(name, sizeof name, "%lld", (long long)i);
        const cJSON *one = cJSON_GetObjectItemCaseSensitive(all, name);
        const bool windowed = !r->d.windowed || r->d.windowed[i];
        if (!windowed && !first)
            first = one;
        if (windowed ? one != NULL : !one || !cJSON_Compare(one, first, true))
            return zinf_fail(-ENOTSUP,
                             "%s: %s: layer %lld differs from others of its kind; it must have "
                             "numbers for all layers without a window, the same ones, and for no "
                             "other",
                             source->what, key, (long long)i);
    }
    if (first) {
        r->other.n_kv_heads = r->d.attention.n_kv_heads;
        r->other.head_dim = r->d.attention.head_dim;
        code = zinf_json_int(first, source->what, "head_dim", &r->other.head_dim);
        if (!code)
            code = zinf_json_int(first, source->what, "num_key_value_heads", &r->other.n_kv_heads);
    }
    return code;
}

static int read_unwindowed(const struct zinf_model_source *source, struct reading *r)
{
    const struct described_unwindowed *of = r->of->unwindowed;
    struct attention_spec *a = &r->other;
    int64_t kv_heads = 0;
    int code;
    if (!of)
        return 0;
    a->n_kv_heads = r->d.attention.n_kv_heads;
    a->head_dim = of->head_dim;
    if ((code = zinf_json_bool(source->config, source->what, of->same_key, &a->keys_are_values)))
        return code;
    if (zinf_json_has(source->config, of->layers_key))
        return read_layer_numbers(source, r);
    if (zinf_json_has(source->config, of->kv_heads_key))
        code = zinf_json_int(source->config, source->what, of->kv_heads_key, &kv_heads);
    if (a->keys_are_values && kv_heads)
        a->n_kv_heads = kv_heads;
    return code ? code
                : zinf_json_int(source->config, source->what, of->head_dim_key, &a->head_dim);
}

int reading_windows(struct zinf_graph *graph, const struct zinf_model_source *source,
                    struct reading *r)
{
    const int code = read_windowed(graph, source, r);
    return code ? code : read_unwindowed(source, r);
}

/* ---- rotation ---- */

/* "no_rope_layers": a number a layer; longer where a model is looked at with fewer layers. */
static int read_rotated_list(struct zinf_graph *graph, const struct zinf_model_source *source,
                             struct decoder *d)
{
    static const char key[] = "no_rope_layers";
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(source->config, key);
    const bool given = list && !cJSON_IsNull(list);
    int64_t interval = 4;
    bool *rotated = zinf_graph_take(graph, (size_t)d->n_layers);
    int code = zinf_json_int(source->config, source->what, "no_rope_layer_interval", &interval);
    if (code || !rotated)
        return code ? code : zinf_fail(-ENOMEM, "no memory for the layers of %s", source->what);
    if (interval < 1)
        return zinf_fail(-EINVAL, "%s: no_rope_layer_interval is %lld; it must be at least 1",
                         source->what, (long long)interval);
    if (given && (!cJSON_IsArray(list) || cJSON_GetArraySize(list) < d->n_layers))
        return zinf_fail(-EINVAL, "%s: %s must have a number for each of %lld layers", source->what,
                         key, (long long)d->n_layers);
    const cJSON *item = given ? list->child : NULL;
    for (int64_t i = 0; i < d->n_layers; i++, item = item ? item->next : NULL)
        rotated[i] =
            given ? cJSON_IsNumber(item) && item->valuedouble != 0 : (i + 1) % interval != 0;
    d->rotated = rotated;
    return 0;
}

/* The rotation of layers with a window where others have another: an object of its own in
 * rope_parameters; in the form of version 4 the base alone, without rope_scaling. */
static int read_local_rope(struct zinf_graph *graph, const struct zinf_model_source *source,
                           struct rope_source rope, struct reading *r)
{
    struct zinf_model_source local = *source;
    struct rope_spec *out = &r->windowed_rope;
    int64_t context;
    rope.theta = r->of->local_theta;
    rope.layers = "sliding_attention";
    if (zinf_json_has(source->config, "rope_parameters"))
        return rope_read(graph, source, &rope, out, &context);
    cJSON *nothing = cJSON_CreateObject();
    int code = nothing ? zinf_json_double(source->config, source->what, r->of->local_theta_key,
                                          &rope.theta)
                       : zinf_fail(-ENOMEM, "no memory for the configuration %s", source->what);
    local.config = nothing;
    if (!code)
        code = rope_read(graph, &local, &rope, out, &context);
    cJSON_Delete(nothing);
    return code;
}

static int read_named(const struct zinf_model_source *source, struct decoder *d)
{
    static const char key[] = "position_embedding_type";
    const char *name = NULL;
    int code = zinf_json_string(source->config, source->what, key, &name);
    if (code || !name || !strcmp(name, "nope"))
        d->attention.rope.rotary_dims = 0;
    else if (strcmp(name, "rope"))
        code =
            zinf_fail(-ENOTSUP, "%s: %s \"%s\" is not supported, only \"rope\", \"nope\" or null",
                      source->what, key, name);
    return code;
}

static bool has_null_base(const struct zinf_model_source *source)
{
    const cJSON *rope = cJSON_GetObjectItemCaseSensitive(source->config, "rope_parameters");
    return cJSON_IsNull(rope) || cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(rope, "rope_theta"));
}

int reading_rotation(struct zinf_graph *graph, const struct zinf_model_source *source,
                     struct reading *r)
{
    const struct described *of = r->of;
    struct decoder *d = &r->d;
    struct rope_source rope = {.head_dim =
                                   of->latent ? d->attention.latent.rotated : d->attention.head_dim,
                               .positions = d->context,
                               .theta = of->theta > 0 ? of->theta : 1e4,
                               .partial = of->partial,
                               .has_alpha = of->rope_alpha,
                               .original = of->original};
    int code = 0;
    if (of->local_theta_key) {
        code = read_local_rope(graph, source, rope, r);
        r->windowed_rope.interleaved = r->interleaved;
        d->windowed_rope = d->windowed ? &r->windowed_rope : NULL;
        rope.layers = "full_attention";
    }
    if (of->unwindowed) {
        rope.head_dim = r->other.head_dim;
        rope.kind = of->unwindowed->rope_kind;
        rope.partial = of->unwindowed->partial;
    }
    if (!code && of->rotation == DESCRIBED_ROTATE_LISTED)
        code = read_rotated_list(graph, source, d);
    if (of->rotation == DESCRIBED_ROTATE_WINDOWED)
        d->rotated = d->windowed;
    if (of->rotation == DESCRIBED_ROTATE_GIVEN && has_null_base(source))
        return code;
    if (!code)
        code = rope_read(graph, source, &rope, &d->attention.rope, &d->context);
    d->attention.rope.interleaved = r->interleaved;
    if (of->rotation == DESCRIBED_ROTATE_NONE)
        d->attention.rope.rotary_dims = 0;
    return code || of->rotation != DESCRIBED_ROTATE_NAMED ? code : read_named(source, d);
}
