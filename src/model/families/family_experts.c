/* family_experts: the experts of families that have them, from config.json. */
#include "model/families/family_described.h"

#include <string.h>

static const char step_key[] = "decoder_sparse_step", only_key[] = "mlp_only_layers",
                  jitter_key[] = "router_jitter_noise";

/* What is so of the layers whose numbers a list has. */
static void mark_listed(const cJSON *list, int64_t n_layers, bool is, bool *layers)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, list) if (cJSON_IsNumber(item) && item->valuedouble >= 0 &&
                                       item->valuedouble < (double)n_layers)
        layers[(int64_t)item->valuedouble] = is;
}

/* Layers with experts: each decoder_sparse_step'th but those of a list. */
static int read_layers(struct zinf_graph *graph, const struct zinf_model_source *source,
                       struct decoder *d)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(source->config, only_key);
    int64_t step = 1;
    int code = zinf_json_int(source->config, source->what, step_key, &step);
    if (code)
        return code;
    if (step < 1 || (list && !cJSON_IsNull(list) && !cJSON_IsArray(list)))
        return zinf_fail(-EINVAL, "%s: %s must be at least 1, and %s a list of layers",
                         source->what, step_key, only_key);
    bool *in_layer = zinf_graph_take(graph, (size_t)d->n_layers);
    if (!in_layer)
        return zinf_fail(-ENOMEM, "no memory for the layers of %s", source->what);
    for (int64_t i = 0; i < d->n_layers; i++)
        in_layer[i] = (i + 1) % step == 0;
    mark_listed(list, d->n_layers, false, in_layer);
    d->experts.in_layer = in_layer;
    return 0;
}

/* Layers with experts: those of a list, or, without one, each step_key'th. */
static int read_listed(struct zinf_graph *graph, const struct zinf_model_source *source,
                       const struct described_experts *e, struct decoder *d)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(source->config, e->layers_key);
    const bool given = list && !cJSON_IsNull(list);
    int64_t step = 1;
    int code = zinf_json_int(source->config, source->what, e->step_key, &step);
    if (code)
        return code;
    if (step < 1 || (given && !cJSON_IsArray(list)))
        return zinf_fail(-EINVAL, "%s: %s must be at least 1, and %s a list of layers",
                         source->what, e->step_key, e->layers_key);
    bool *in_layer = zinf_graph_take(graph, (size_t)d->n_layers);
    if (!in_layer)
        return zinf_fail(-ENOMEM, "no memory for the layers of %s", source->what);
    for (int64_t i = 0; i < d->n_layers; i++)
        in_layer[i] = !given && (i + 1) % step == 0;
    if (given)
        mark_listed(list, d->n_layers, true, in_layer);
    d->experts.in_layer = in_layer;
    return 0;
}

static int read_numbers(const struct zinf_model_source *source, const struct described_experts *e,
                        struct decoder *d)
{
    struct decoder_experts *x = &d->experts;
    const struct family_int list[] =
        {
            {e->n_keys[0], &x->n},
            {e->n_keys[1], &x->n},
            {e->chosen_key ? e->chosen_key : "num_experts_per_tok", &x->n_chosen},
            {e->ffn_key, &x->ffn},
            {NULL, NULL},
        },
                            shared[] = {{e->shared_key, &x->shared_ffn}, {NULL, NULL}};
    x->n = e->usual.n;
    x->n_chosen = e->usual.n_chosen;
    x->ffn = e->ffn_key ? e->usual.ffn : d->ffn;
    x->shared_ffn = e->usual.shared;
    int code = family_read_ints(source, list);
    if (!code)
        code = family_read_ints(source, shared);
    if (e->shared_counts)
        x->shared_ffn *= x->ffn;
    if (!code && x->n < (e->in_some_layers || e->may_be_none ? 0 : 1))
        code = zinf_fail(-EINVAL, "%s: %s is %lld; it must be at least 1", source->what,
                         e->n_keys[0], (long long)x->n);
    return code;
}

/* Noise on what the experts are given, which nobody's published configuration has. */
static int refuse_jitter(const struct zinf_model_source *source)
{
    double jitter = 0;
    const struct family_double list[] = {{jitter_key, &jitter}, {NULL, NULL}};
    int code = family_read_doubles(source, list);
    if (!code && jitter != 0)
        code = zinf_fail(-ENOTSUP, "%s: %s is %g, which is not supported; make it 0", source->what,
                         jitter_key, jitter);
    return code;
}

/* Added to the loss where the routers' logits are put out, as transformers has it. */
static int read_balance(const struct zinf_model_source *source, const struct described_experts *e,
                        float *balance)
{
    bool put_out = false;
    double coefficient = e->balance > 0 ? e->balance : 0.001;
    const struct family_double list[] = {{"router_aux_loss_coef", &coefficient}, {NULL, NULL}};
    int code = zinf_json_bool(source->config, source->what, "output_router_logits", &put_out);
    if (!code)
        code = family_read_doubles(source, list);
    *balance = put_out ? (float)coefficient : 0;
    return code;
}

static const char dense_word[] = "dense";

/* By a list of words, one for each layer. */
static int read_types(const struct zinf_model_source *source, const char *key, bool *in_layer,
                      int64_t n_layers)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(source->config, key);
    if (!list || cJSON_IsNull(list))
        return 0;
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) < n_layers)
        return zinf_fail(-EINVAL, "%s: %s must have a word for each of %lld layers", source->what,
                         key, (long long)n_layers);
    const cJSON *item = list->child;
    for (int64_t i = 0; i < n_layers; i++, item = item->next)
        in_layer[i] = !cJSON_IsString(item) || strcmp(item->valuestring, dense_word) != 0;
    return 0;
}

/* Layers in front that have a feed-forward part instead. */
static int read_dense(struct zinf_graph *graph, const struct zinf_model_source *source,
                      const struct described_experts *e, struct decoder *d)
{
    int64_t dense = e->dense;
    int code = e->dense_key ? zinf_json_int(source->config, source->what, e->dense_key, &dense) : 0;
    bool *in_layer = zinf_graph_take(graph, (size_t)d->n_layers);
    if (code || !in_layer)
        return code ? code : zinf_fail(-ENOMEM, "no memory for the layers of %s", source->what);
    for (int64_t i = 0; i < d->n_layers; i++)
        in_layer[i] = i >= dense;
    d->experts.in_layer = in_layer;
    return e->types_key ? read_types(source, e->types_key, in_layer, d->n_layers) : 0;
}

/* The factor of weights, and groups: one alone is as if there were none. */
static int read_choice(const struct zinf_model_source *source, const struct described_experts *e,
                       struct decoder_experts *x)
{
    double scale = e->usual_scale > 0 ? e->usual_scale : 1;
    x->n_groups = e->usual_groups ? e->usual_groups : 1;
    x->n_groups_chosen = e->usual_groups ? e->usual_groups_chosen : 1;
    const struct family_double numbers[] = {{e->scale_key, &scale}, {NULL, NULL}};
    const struct family_int groups[] = {
        {e->groups_key, &x->n_groups}, {e->groups_chosen_key, &x->n_groups_chosen}, {NULL, NULL}};
    const char *word = e->groups_word;
    int code = family_read_doubles(source, numbers);
    if (!code && e->groups_switch)
        code = zinf_json_string(source->config, source->what, e->groups_switch, &word);
    if (!code && (!e->groups_switch || (word && !strcmp(word, e->groups_word))))
        code = family_read_ints(source, groups);
    if (!code && (!(scale > 0) || x->n_groups < 1 || x->n % x->n_groups || x->n_groups_chosen < 1 ||
                  x->n_groups_chosen > x->n_groups))
        code = zinf_fail(-EINVAL,
                         "%s: a token chooses %lld of %lld groups of %lld experts, and weights are "
                         "times %g: that cannot be",
                         source->what, (long long)x->n_groups_chosen, (long long)x->n_groups,
                         (long long)x->n, scale);
    x->scale = (float)scale;
    if (x->n_groups == 1)
        x->n_groups = 0;
    return code;
}

int described_read_experts(struct zinf_graph *graph, const struct zinf_model_source *source,
                           const struct described_experts *e, struct decoder *d)
{
    bool normalised = e && e->normalised, there = e && !e->switch_key;
    int code = e && e->switch_key
                   ? zinf_json_bool(source->config, source->what, e->switch_key, &there)
                   : 0;
    if (code || !there)
        return code;
    d->experts = e->names;
    if (!e->names.fused_up && !e->names.stacked_up) {
        d->experts.stacked_up = "mlp.experts.gate_up_proj";
        d->experts.stacked_down = "mlp.experts.down_proj";
    }
    if (e->clamped)
        d->mlp.activation = ZINF_ACTIVATION_CLAMPED_SWISH;
    if ((code = read_balance(source, e, &d->experts.balance)) ||
        (code = read_numbers(source, e, d)) || (e->jitters && (code = refuse_jitter(source))) ||
        (e->in_some_layers && (code = read_layers(graph, source, d))) ||
        (e->step_key && (code = read_listed(graph, source, e, d))) ||
        ((e->dense_key || e->types_key) && (code = read_dense(graph, source, e, d))) ||
        (code = read_choice(source, e, &d->experts)))
        return code;
    if (e->normalised_key)
        code = zinf_json_bool(source->config, source->what, e->normalised_key, &normalised);
    d->experts.normalised = normalised || (!e->normalised_key && !e->never_normalised);
    return code;
}
