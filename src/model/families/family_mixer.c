/* family_mixer: layers with a recurrent mixer (kernels/recurrent.h), from config.json. */
#include "model/families/family_described.h"

#include <math.h>
#include <string.h>

static const char types_key[] = "layer_types", limit_key[] = "time_step_limit";

static bool lacks(const struct zinf_model_source *source, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(source->config, key);
    return !item || cJSON_IsNull(item);
}

static bool is_type(const struct described_mixer *of, const cJSON *item)
{
    bool is = false;
    for (int i = 0; i < 2; i++)
        is |= of->types[i] && cJSON_IsString(item) && !strcmp(item->valuestring, of->types[i]);
    return is;
}

/* Every layer has a mixer or attention. */
static int check_words(const struct zinf_model_source *source, const struct described_mixer *of,
                       const cJSON *list)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, list)
    {
        const char *word = cJSON_GetStringValue(item);
        if (is_type(of, item) ||
            (word && (!strcmp(word, "full_attention") || !strcmp(word, "attention"))))
            continue;
        char *has = cJSON_PrintUnformatted(item);
        const int code = zinf_fail(-EINVAL,
                                   "%s: %s has %.60s, which is no kind of layer; words are %s and "
                                   "full_attention",
                                   source->what, types_key, has ? has : "", of->types[0]);
        cJSON_free(has);
        return code;
    }
    return 0;
}

/* Longer where a model is looked at with fewer layers; with more where all are of one kind. */
static bool fits(const struct described_mixer *of, const cJSON *list, int64_t n_layers)
{
    const cJSON *item;
    bool uniform = cJSON_IsArray(list) && list->child;
    cJSON_ArrayForEach(item, list) uniform &= is_type(of, item) == is_type(of, list->child);
    return uniform || (cJSON_IsArray(list) && cJSON_GetArraySize(list) >= n_layers);
}

/* Layers that a list of numbers names have attention: of all layers of the model, which may be
 * looked at with fewer. */
static int leave_out(const struct zinf_model_source *source, const char *key, bool *mixed,
                     int64_t n_layers)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(source->config, key), *item;
    bool valid = !list || cJSON_IsNull(list) || cJSON_IsArray(list);
    cJSON_ArrayForEach(item, list)
    {
        const double layer = cJSON_IsNumber(item) ? item->valuedouble : -1;
        valid &= layer >= 0 && layer == trunc(layer);
        if (valid && layer < (double)n_layers)
            mixed[(int64_t)layer] = false;
    }
    return valid ? 0
                 : zinf_fail(-EINVAL, "%s: %s must be a list of numbers of layers, from 0 on",
                             source->what, key);
}

static int read_layers(struct zinf_graph *graph, const struct zinf_model_source *source,
                       const struct described_mixer *of, struct decoder *d)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(source->config, types_key);
    const bool given = list && !cJSON_IsNull(list);
    int64_t interval = of->interval;
    int code = of->interval_key
                   ? zinf_json_int(source->config, source->what, of->interval_key, &interval)
                   : 0;
    bool *mixed = zinf_graph_take(graph, (size_t)d->n_layers);
    if (code || !mixed)
        return code ? code : zinf_fail(-ENOMEM, "no memory for the layers of %s", source->what);
    if (of->interval_key && interval < 1)
        return zinf_fail(-EINVAL, "%s: %s is %lld; it must be at least 1", source->what,
                         of->interval_key, (long long)interval);
    if (given && !fits(of, list, d->n_layers))
        return zinf_fail(-EINVAL, "%s: %s must have a word for each of %lld layers", source->what,
                         types_key, (long long)d->n_layers);
    if (given && (code = check_words(source, of, list)))
        return code;
    const cJSON *item = given ? list->child : NULL;
    for (int64_t i = 0; i < d->n_layers; i++) {
        mixed[i] = given ? is_type(of, item) : !interval || (i + 1) % interval != 0;
        item = item && item->next ? item->next : item;
    }
    if (!given && interval && !of->interval_key && d->n_layers < interval)
        mixed[d->n_layers - 1] = false;
    if (!given && of->attention_key &&
        (code = leave_out(source, of->attention_key, mixed, d->n_layers)))
        return code;
    const bool none = !given && of->gates && lacks(source, of->attention_key);
    for (int64_t i = 0; !none && i < d->n_layers; i++)
        d->mixed = mixed[i] ? mixed : d->mixed;
    return 0;
}

static int read_lowest(const struct zinf_model_source *source, const struct described_mixer *of,
                       struct mixer_spec *m)
{
    double lowest = of->lowest;
    int code = zinf_json_double(source->config, source->what, of->lowest_key, &lowest);
    if (!code && !(lowest >= 0))
        code = zinf_fail(-EINVAL, "%s: %s is %g; it must be at least 0", source->what,
                         of->lowest_key, lowest);
    m->step_low = (float)lowest;
    return code;
}

/* DECAY: [low, high], where the latter may be infinity, as transformers writes it. */
static int read_limits(const struct zinf_model_source *source, const struct described_mixer *of,
                       struct mixer_spec *m)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(source->config, limit_key);
    m->step_low = 0;
    m->step_high = INFINITY;
    if (of->lowest_key)
        return read_lowest(source, of, m);
    if (!list || cJSON_IsNull(list))
        return 0;
    const cJSON *low = cJSON_GetArrayItem(list, 0), *high = cJSON_GetArrayItem(list, 1);
    if (!cJSON_IsNumber(low) || (!cJSON_IsNumber(high) && !cJSON_IsObject(high)))
        return zinf_fail(-EINVAL, "%s: %s must be a list of two numbers", source->what, limit_key);
    m->step_low = (float)low->valuedouble;
    if (cJSON_IsNumber(high))
        m->step_high = (float)high->valuedouble;
    return m->step_low >= 0 && m->step_high >= m->step_low
               ? 0
               : zinf_fail(-EINVAL,
                           "%s: %s is [%g, %g]; it must be two ascending numbers from 0 on",
                           source->what, limit_key, (double)m->step_low, (double)m->step_high);
}

/* DECAY: the size of a value head, or what it must be. */
static int read_expansion(const struct zinf_model_source *source, const struct described_mixer *of,
                          const struct decoder *d, struct mixer_spec *m)
{
    const cJSON *size = cJSON_GetObjectItemCaseSensitive(source->config, of->keys.value_dim);
    double expand = 2;
    int64_t given = of->usual_width;
    int code = zinf_json_double(source->config, source->what, of->expand_key, &expand);
    if (!code && of->width_key)
        code = zinf_json_int(source->config, source->what, of->width_key, &given);
    if (of->width_key &&
        cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(source->config, of->width_key)))
        given = 0;
    if (!code && size && !cJSON_IsNumber(size) && !cJSON_IsNull(size) &&
        (!cJSON_IsString(size) || strcmp(size->valuestring, "auto")))
        code = zinf_fail(-EINVAL, "%s: %s must be a number or \"auto\"", source->what,
                         of->keys.value_dim);
    if (!code && cJSON_IsNumber(size))
        code = zinf_json_int(source->config, source->what, of->keys.value_dim, &m->value_dim);
    if (code)
        return code;
    /* In double: a file's numbers may be such that integers overflow. */
    const double all = given ? (double)given : trunc(expand * (double)d->hidden);
    const int64_t heads = m->value_heads;
    if (!cJSON_IsNumber(size) && heads > 0 && fabs(all) < 1e9)
        m->value_dim = (int64_t)all / heads;
    if (heads > 0 && (double)heads * (double)m->value_dim == all)
        return 0;
    if (given)
        return zinf_fail(-EINVAL, "%s: %lld heads of size %lld must be %s, %lld, together",
                         source->what, (long long)heads, (long long)m->value_dim, of->width_key,
                         (long long)given);
    return zinf_fail(-EINVAL, "%s: %lld heads of size %lld must be %s, %g, times hidden_size, %lld",
                     source->what, (long long)heads, (long long)m->value_dim, of->expand_key,
                     expand, (long long)d->hidden);
}

/* Sizes that follow from the heads of attention where config.json does not state them. */
static void follow_heads(const struct zinf_model_source *source, const struct described_mixer *of,
                         const struct decoder *d, struct mixer_spec *m)
{
    int64_t heads = d->attention.n_heads, dim = 0;
    m->key_heads = m->value_heads = heads;
    if (!lacks(source, of->keys.key_heads) &&
        zinf_json_int(source->config, source->what, of->keys.key_heads, &heads))
        return; /* is refused when it is read */
    m->key_dim = heads > 0 ? (int64_t)(0.75 * (double)d->hidden / (double)heads) : 0;
    dim = m->key_dim;
    if (!lacks(source, of->keys.key_dim) &&
        zinf_json_int(source->config, source->what, of->keys.key_dim, &dim))
        return;
    m->value_dim = 2 * dim;
}

static int read_sizes(const struct zinf_model_source *source, const struct described_mixer *of,
                      const struct decoder *d, struct mixer_spec *m)
{
    const char *value_dim = of->expand_key ? NULL : of->keys.value_dim;
    if (of->follows_heads)
        follow_heads(source, of, d, m);
    const struct family_int list[] = {
        {of->keys.key_heads, &m->key_heads}, {of->keys.value_heads, &m->value_heads},
        {of->keys.key_dim, &m->key_dim},     {of->keys.width, &m->width},
        {value_dim, &m->value_dim},          {NULL, NULL},
    };
    int code = 0;
    for (int i = 0; !code && i < 5; i++)
        if (list[i].key && !(of->follows_heads && lacks(source, list[i].key)))
            code = zinf_json_int(source->config, source->what, list[i].key, list[i].out);
    return code || !of->expand_key ? code : read_expansion(source, of, d, m);
}

static int read_numbers(const struct zinf_model_source *source, const struct described_mixer *of,
                        const struct decoder *d, struct mixer_spec *m)
{
    bool doubled = true;
    int code = read_sizes(source, of, d, m);
    if (!code && of->doubled_key) {
        code = zinf_json_bool(source->config, source->what, of->doubled_key, &doubled);
        m->strength = doubled ? 2 : 1;
    }
    if (!code && of->rule == ZINF_RECURRENCE_DECAY)
        code = read_limits(source, of, m);
    if (code)
        return code;
    const int64_t most = 1 << 16;
    if (m->key_heads < 1 || m->value_heads < 1 || m->value_heads > most ||
        m->value_heads % m->key_heads || m->key_dim < 1 || m->key_dim > ZINF_SCAN_MAX_DIM ||
        m->value_dim < 1 || m->value_dim > ZINF_SCAN_MAX_DIM || m->width < 1 ||
        m->width > ZINF_CONVOLUTION_MAX_WIDTH)
        return zinf_fail(
            -EINVAL,
            "%s: %lld value heads of size %lld that share %lld key heads of size %lld "
            "behind a convolution of width %lld: all must be at least 1, value heads a "
            "multiple of key heads, head sizes at most %d and the width at most %d",
            source->what, (long long)m->value_heads, (long long)m->value_dim,
            (long long)m->key_heads, (long long)m->key_dim, (long long)m->width, ZINF_SCAN_MAX_DIM,
            ZINF_CONVOLUTION_MAX_WIDTH);
    return 0;
}

/* A convolution alone. */
static int read_gates(const struct zinf_model_source *source, const struct described_mixer *of,
                      const struct decoder *d, struct mixer_spec *m)
{
    int code = zinf_json_int(source->config, source->what, of->keys.width, &m->width);
    m->gates = true;
    m->value_heads = m->key_heads = 1;
    m->value_dim = d->hidden;
    if (code || (m->width >= 1 && m->width <= ZINF_CONVOLUTION_MAX_WIDTH))
        return code;
    return zinf_fail(-EINVAL, "%s: %s is %lld; it must be between 1 and %d", source->what,
                     of->keys.width, (long long)m->width, ZINF_CONVOLUTION_MAX_WIDTH);
}

/* Biases and the norm are there where their numbers are not -1; list_* give them others. */
static int read_biases(const struct zinf_model_source *source, const struct described_mixer *of,
                       struct decoder *d)
{
    bool convolution = !of->gates, in = false, out = false;
    int code = 0;
    if (of->conv_bias_key)
        code = zinf_json_bool(source->config, source->what, of->conv_bias_key, &convolution);
    if (!code && of->bias_key)
        code = zinf_json_bool(source->config, source->what, of->bias_key, &in);
    if (!code && of->out_bias_key)
        code = zinf_json_bool(source->config, source->what, of->out_bias_key, &out);
    d->mixer.conv_b = of->conv_bias_key && convolution ? 0 : -1;
    d->mixer_in_bias = in;
    d->mixer_out_bias = of->out_bias_key ? out : in;
    return code;
}

/* Whether there is one, and on which side of the gate. */
static int read_norm(const struct zinf_model_source *source, const struct described_mixer *of,
                     struct decoder *d)
{
    bool first = true;
    d->mixer_norm = false;
    int code = zinf_json_bool(source->config, source->what, of->norm_key, &d->mixer_norm);
    if (!code)
        code = zinf_json_bool(source->config, source->what, of->norm_first_key, &first);
    d->mixer.gate_first = !first;
    return code;
}

int mixer_read(struct zinf_graph *graph, const struct zinf_model_source *source,
               const struct described_mixer *of, struct decoder *d)
{
    struct mixer_spec *m = &d->mixer;
    const bool decay = of->rule == ZINF_RECURRENCE_DECAY;
    int code = d->parts ? 0 : read_layers(graph, source, of, d);
    *m = of->absent;
    m->rule = of->rule;
    if (!code && d->mixed)
        code = (of->gates ? read_gates : read_numbers)(source, of, d, m);
    if (!code)
        code = read_biases(source, of, d);
    m->norm =
        (struct norm_spec){.kind = ZINF_NORM_RMS,
                           .eps = of->norm_eps > 0 ? (float)of->norm_eps : d->attention.norm.eps};
    m->norm_groups = decay ? m->key_heads : m->value_heads;
    m->gate_first = m->weights_by_group = decay;
    d->mixer_norm = !of->gates;
    return code || !of->norm_key ? code : read_norm(source, of, d);
}

/* ---- tensors ---- */

/* What a mixer is made of, to a list of its tensors. */
struct listing {
    struct family_list *list;
    const struct described_mixer *of;
    const struct decoder *d;
    int64_t values, mixed; /* columns */
};

static struct decoder_tensor *add_matrix(const struct listing *l, enum decoder_place place,
                                         enum mixer_name name, int64_t rows, int64_t cols)
{
    family_add_matrix(l->list, place, l->of->names[name], rows, cols);
    return &l->list->items[l->list->n - 1];
}

static struct decoder_tensor *add_vector(const struct listing *l, enum decoder_place place,
                                         enum mixer_name name, int64_t rows, enum zinf_init init)
{
    family_add_vector(l->list, place, l->of->names[name], rows, init);
    return &l->list->items[l->list->n - 1];
}

static void list_matrices(const struct listing *l)
{
    const struct mixer_spec *m = &l->d->mixer;
    const int64_t h = l->d->hidden, heads = m->value_heads;
    const int64_t keys = m->key_heads * m->key_dim;
    if (m->gates) {
        add_matrix(l, DECODER_MIXER_IN_W, MIXER_IN, 3 * h, h);
    } else if (m->rule == ZINF_RECURRENCE_DECAY) {
        add_matrix(l, DECODER_MIXER_IN_W, MIXER_IN, l->values + l->mixed + heads, h);
    } else if (l->of->by_head) {
        add_matrix(l, DECODER_MIXER_IN_W, MIXER_IN, l->mixed + l->values, h)->order =
            DECODER_MIXED_GROUPS;
        add_matrix(l, DECODER_MIXER_IN_W, MIXER_IN_B, 2 * heads, h)->order = DECODER_MIXED_NUMBERS;
    } else {
        const bool apart = l->of->names[MIXER_IN_K] != NULL;
        add_matrix(l, DECODER_MIXER_IN_W, MIXER_IN, apart ? keys : l->mixed, h);
        if (apart) {
            add_matrix(l, DECODER_MIXER_IN_W, MIXER_IN_K, keys, h);
            add_matrix(l, DECODER_MIXER_IN_W, MIXER_IN_V, l->values, h);
        }
        add_matrix(l, DECODER_MIXER_IN_W, MIXER_IN_GATE, l->values, h);
        add_matrix(l, DECODER_MIXER_IN_W, MIXER_IN_B, heads, h);
        add_matrix(l, DECODER_MIXER_IN_W, MIXER_IN_A, heads, h);
    }
    add_matrix(l, DECODER_MIXER_OUT_W, MIXER_OUT, h, l->values);
    const bool apart = l->of->names[MIXER_CONV_K] != NULL;
    add_matrix(l, DECODER_MIXER_CONV_W, MIXER_CONV, apart ? keys : l->mixed, m->width)->order =
        DECODER_DEEP;
    if (!apart)
        return;
    add_matrix(l, DECODER_MIXER_CONV_W, MIXER_CONV_K, keys, m->width)->order = DECODER_DEEP;
    add_matrix(l, DECODER_MIXER_CONV_W, MIXER_CONV_V, l->values, m->width)->order = DECODER_DEEP;
}

static void list_vectors(const struct listing *l)
{
    const struct mixer_spec *m = &l->d->mixer;
    const int64_t heads = m->value_heads, h = l->d->hidden;
    const bool decay = m->rule == ZINF_RECURRENCE_DECAY;
    if (!m->gates) {
        add_vector(l, DECODER_MIXER_STEP_BIAS, MIXER_STEP_BIAS, heads, ZINF_INIT_ONE);
        add_vector(l, DECODER_MIXER_A_LOG, MIXER_A_LOG, heads,
                   decay ? ZINF_INIT_LOG_COUNT : ZINF_INIT_LOG_UNIFORM)
            ->std = 16;
    }
    if (decay)
        add_vector(l, DECODER_MIXER_SKIP, MIXER_SKIP, heads, ZINF_INIT_ONE);
    if (l->d->mixer_norm)
        add_vector(l, DECODER_MIXER_NORM, MIXER_NORM, decay ? l->values : m->value_dim,
                   ZINF_INIT_ONE);
    if (m->conv_b >= 0)
        add_vector(l, DECODER_MIXER_CONV_B, MIXER_CONV_BIAS, l->mixed, ZINF_INIT_ZERO);
    if (l->d->mixer_in_bias)
        add_vector(l, DECODER_MIXER_IN_B, MIXER_IN_BIAS,
                   m->gates ? 3 * h : l->values + l->mixed + heads, ZINF_INIT_ZERO);
    if (l->d->mixer_out_bias)
        add_vector(l, DECODER_MIXER_OUT_B, MIXER_OUT_BIAS, h, ZINF_INIT_ZERO);
}

void mixer_list(struct family_list *list, const struct described_mixer *of, const struct decoder *d,
                bool matrices)
{
    const struct mixer_spec *m = &d->mixer;
    struct listing l = {.list = list, .of = of, .d = d};
    l.values = m->value_heads * m->value_dim;
    l.mixed = 2 * m->key_heads * m->key_dim + l.values; /* of gates: the hidden rows' */
    (matrices ? list_matrices : list_vectors)(&l);
}

/* ---- new models ---- */

int mixer_make_heads(cJSON *config, const char *key, double times, int64_t *values, int64_t *heads)
{
    int64_t hidden = 0;
    int code = zinf_json_int(config, "a new model", "hidden_size", &hidden);
    if (!code)
        code = zinf_json_int(config, "a new model", "num_attention_heads", heads);
    if (code)
        return code;
    *values = (int64_t)((double)hidden * times);
    *heads = *values % 64 ? *heads : *values / 64;
    cJSON *item = cJSON_CreateNumber((double)*heads);
    const bool fine = cJSON_HasObjectItem(config, key)
                          ? cJSON_ReplaceItemInObjectCaseSensitive(config, key, item)
                          : cJSON_AddItemToObject(config, key, item);
    return item && fine ? 0 : zinf_fail(-ENOMEM, "no memory for a new configuration");
}
