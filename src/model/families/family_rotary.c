/* family_rotary: config.json to a decoder. */
#include "model/families/family_rotary.h"
#include "model/rope.h"

#include <math.h>

enum { MAX_LAYERS = 4096, USUAL_LAYERS = 32, USUAL_HIDDEN = 4096, USUAL_HEADS = 32 };

/* What is read beside the decoder's own numbers. */
struct rotary {
    struct decoder d;
    const struct rotary_traits *traits;
    bool qkv_bias, proj_bias, mlp_bias, tied;
};

static int read_shape(const struct zinf_model_source *source, struct rotary *l)
{
    const struct rotary_traits *t = l->traits;
    struct decoder *d = &l->d;
    struct attention_spec *a = &d->attention;
    int64_t kv_heads = t->kv_heads, head_dim = t->head_dim;
    if (cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(source->config, "num_key_value_heads")))
        kv_heads = 0;
    const struct family_int list[] = {
        {ROTARY_LAYERS_KEY, &d->n_layers},
        {"hidden_size", &d->hidden},
        {"num_attention_heads", &a->n_heads},
        {"num_key_value_heads", &kv_heads},
        {"head_dim", &head_dim},
        {"intermediate_size", &d->ffn},
        {"vocab_size", &d->vocab},
        {"max_position_embeddings", &d->context},
        {NULL, NULL},
    };
    d->n_layers = USUAL_LAYERS;
    d->hidden = USUAL_HIDDEN;
    a->n_heads = USUAL_HEADS;
    d->ffn = t->ffn;
    d->vocab = t->vocab;
    d->context = t->context;
    int code = family_read_ints(source, list);
    if (code)
        return code;
    if (a->n_heads < 1 || d->hidden < 1 || (!head_dim && d->hidden % a->n_heads))
        return zinf_fail(-EINVAL,
                         "%s: hidden_size %lld must be a multiple of num_attention_heads %lld, or "
                         "head_dim must be given",
                         source->what, (long long)d->hidden, (long long)a->n_heads);
    if (d->n_layers < 1 || d->n_layers > MAX_LAYERS)
        return zinf_fail(-EINVAL, "%s: the number of layers is %lld; it must be between 1 and %d",
                         source->what, (long long)d->n_layers, MAX_LAYERS);
    a->n_kv_heads = kv_heads ? kv_heads : a->n_heads;
    a->head_dim = head_dim ? head_dim : d->hidden / a->n_heads;
    return 0;
}

static int read_numbers(const struct zinf_model_source *source, struct rotary *l)
{
    struct decoder *d = &l->d;
    int code = family_read_norms(source, d, ZINF_NORM_RMS, "rms_norm_eps", 1e-6);
    if (!code)
        code = family_read_init(source, d, "initializer_range", 0.02);
    if (!code)
        code = family_read_dropout(source, "attention_dropout", 0, &d->attention.dropout);
    d->attention.scale = 1.0f / sqrtf((float)d->attention.head_dim);
    d->mlp.gated = true;
    d->mlp.activation = ZINF_ACTIVATION_SILU;
    return code ? code : family_read_activation(source, "hidden_act", &d->mlp.activation);
}

static int read_switches(const struct zinf_model_source *source, struct rotary *l)
{
    const struct rotary_traits *t = l->traits;
    bool attention = false;
    int code = family_read_padding(source, &l->d, -1);
    if (!code)
        code = zinf_json_bool(source->config, source->what, "tie_word_embeddings", &l->tied);
    if (!code && t->attention_bias)
        code = zinf_json_bool(source->config, source->what, "attention_bias", &attention);
    if (!code && t->mlp_bias)
        code = zinf_json_bool(source->config, source->what, "mlp_bias", &l->mlp_bias);
    l->qkv_bias = t->qkv_bias || attention;
    if (!code && t->qkv_bias_key)
        code = zinf_json_bool(source->config, source->what, t->qkv_bias_key, &l->qkv_bias);
    l->proj_bias = attention;
    return code;
}

/* ---- windows ---- */

static int read_window_layers(struct zinf_graph *graph, const struct zinf_model_source *source,
                              struct rotary *l)
{
    const cJSON *types = cJSON_GetObjectItemCaseSensitive(source->config, "layer_types");
    int64_t first = 28;
    bool use = false;
    int code = zinf_json_bool(source->config, source->what, "use_sliding_window", &use);
    if (!code)
        code = zinf_json_int(source->config, source->what, "max_window_layers", &first);
    if (code || !use) {
        l->d.attention.window = 0;
        return code;
    }
    if (types && !cJSON_IsNull(types))
        return family_read_layer_types(graph, source, &l->d, 1);
    bool *windowed = zinf_graph_take(graph, (size_t)l->d.n_layers);
    if (!windowed)
        return zinf_fail(-ENOMEM, "no memory for the layers of %s", source->what);
    l->d.windowed = windowed;
    for (int64_t i = 0; i < l->d.n_layers; i++)
        windowed[i] =
            l->traits->window == ROTARY_WINDOW_EVEN ? i < first && i % 2 == 0 : i >= first;
    return 0;
}

static int read_window(struct zinf_graph *graph, const struct zinf_model_source *source,
                       struct rotary *l)
{
    static const char key[] = "sliding_window";
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(source->config, key);
    bool given = l->traits->window == ROTARY_WINDOW_GIVEN;
    int64_t window = cJSON_IsNull(item) || (!item && given) ? 0 : 4096;
    if (l->traits->window == ROTARY_WINDOW_NONE)
        return 0;
    int code = zinf_json_int(source->config, source->what, key, &window);
    l->d.attention.window = window;
    if (!code &&
        (l->traits->window == ROTARY_WINDOW_LAYERS || l->traits->window == ROTARY_WINDOW_EVEN))
        code = read_window_layers(graph, source, l);
    bool always = l->traits->window == ROTARY_WINDOW_ALL || (given && item);
    bool used = !cJSON_IsNull(item) && (always || l->d.windowed);
    if (!code && (window < 0 || (used && !window)))
        code = zinf_fail(-EINVAL, "%s: %s is %lld; it must be at least 1, or null", source->what,
                         key, (long long)window);
    return code;
}

/* ---- tensors ---- */

void rotary_list_attention(struct family_list *list, const struct decoder *d)
{
    const struct attention_spec *a = &d->attention;
    int64_t q = a->n_heads * a->head_dim, kv = a->n_kv_heads * a->head_dim;
    family_add_matrix(list, DECODER_QKV_W, "self_attn.q_proj.weight", q, d->hidden);
    family_add_matrix(list, DECODER_QKV_W, "self_attn.k_proj.weight", kv, d->hidden);
    family_add_matrix(list, DECODER_QKV_W, "self_attn.v_proj.weight", kv, d->hidden);
    family_add_matrix(list, DECODER_PROJ_W, "self_attn.o_proj.weight", d->hidden, q);
}

void rotary_list_mlp(struct family_list *list, const struct decoder *d)
{
    family_add_matrix(list, DECODER_UP_W, "mlp.gate_proj.weight", d->ffn, d->hidden);
    family_add_matrix(list, DECODER_UP_W, "mlp.up_proj.weight", d->ffn, d->hidden);
    family_add_matrix(list, DECODER_DOWN_W, "mlp.down_proj.weight", d->hidden, d->ffn);
}

void rotary_list_matrices(struct family_list *list, const struct decoder *d)
{
    rotary_list_attention(list, d);
    rotary_list_mlp(list, d);
}

void rotary_list_qkv_biases(struct family_list *list, const struct decoder *d)
{
    const struct attention_spec *a = &d->attention;
    int64_t q = a->n_heads * a->head_dim, kv = a->n_kv_heads * a->head_dim;
    family_add_vector(list, DECODER_QKV_B, "self_attn.q_proj.bias", q, ZINF_INIT_ZERO);
    family_add_vector(list, DECODER_QKV_B, "self_attn.k_proj.bias", kv, ZINF_INIT_ZERO);
    family_add_vector(list, DECODER_QKV_B, "self_attn.v_proj.bias", kv, ZINF_INIT_ZERO);
}

static void list_vectors(struct family_list *list, const struct rotary *l)
{
    const struct decoder *d = &l->d;
    const struct attention_spec *a = &d->attention;
    family_add_vector(list, DECODER_NORM1_W, "input_layernorm.weight", d->hidden, ZINF_INIT_ONE);
    if (l->qkv_bias)
        rotary_list_qkv_biases(list, d);
    if (l->proj_bias)
        family_add_vector(list, DECODER_PROJ_B, "self_attn.o_proj.bias", d->hidden, ZINF_INIT_ZERO);
    if (l->traits->head_norms) {
        family_add_vector(list, DECODER_Q_NORM, "self_attn.q_norm.weight", a->head_dim,
                          ZINF_INIT_ONE);
        family_add_vector(list, DECODER_K_NORM, "self_attn.k_norm.weight", a->head_dim,
                          ZINF_INIT_ONE);
    }
    family_add_vector(list, DECODER_NORM2_W, "post_attention_layernorm.weight", d->hidden,
                      ZINF_INIT_ONE);
    if (!l->mlp_bias)
        return;
    family_add_vector(list, DECODER_UP_B, "mlp.gate_proj.bias", d->ffn, ZINF_INIT_ZERO);
    family_add_vector(list, DECODER_UP_B, "mlp.up_proj.bias", d->ffn, ZINF_INIT_ZERO);
    family_add_vector(list, DECODER_DOWN_B, "mlp.down_proj.bias", d->hidden, ZINF_INIT_ZERO);
}

int rotary_read_rope(struct zinf_graph *graph, const struct zinf_model_source *source,
                     struct decoder *d)
{
    const struct rope_source of = {
        .head_dim = d->attention.head_dim, .positions = d->context, .theta = 1e4};
    return rope_read(graph, source, &of, &d->attention.rope, &d->context);
}

int rotary_read_windowed_rope(struct zinf_graph *graph, const struct zinf_model_source *source,
                              struct rope_source of, const char *base_key, struct rope_spec *out)
{
    struct zinf_model_source local = *source;
    int64_t context;
    of.layers = "sliding_attention";
    if (zinf_json_has(source->config, "rope_parameters"))
        return rope_read(graph, source, &of, out, &context);
    cJSON *nothing = cJSON_CreateObject();
    int code = nothing ? zinf_json_double(source->config, source->what, base_key, &of.theta)
                       : zinf_fail(-ENOMEM, "no memory for the configuration %s", source->what);
    local.config = nothing;
    if (!code)
        code = rope_read(graph, &local, &of, out, &context);
    cJSON_Delete(nothing);
    return code;
}

int rotary_build(struct zinf_graph *graph, struct zinf_model_facts *facts,
                 const struct zinf_model_source *source)
{
    struct rotary l = {
        .d = {.what = source->what, .join_tiles = source->join_tiles, .packed = source->packed},
        .traits = source->family->traits,
    };
    int code;
    if ((code = read_shape(source, &l)) || (code = read_numbers(source, &l)) ||
        (code = read_switches(source, &l)) || (code = read_window(graph, source, &l)) ||
        (code = rotary_read_experts(graph, source, l.traits->experts, &l.d)))
        return code;
    if ((code = rotary_read_rope(graph, source, &l.d)))
        return code;
    struct family_list list = {.std = l.d.init_std};
    rotary_list_matrices(&list, &l.d);
    list_vectors(&list, &l);
    l.d.table = "embed_tokens.weight";
    l.d.blocks = "layers";
    l.d.final_w = "norm.weight";
    l.d.head = l.tied ? NULL : "lm_head.weight";
    return family_finish(graph, facts, source, &l.d, &list, l.traits->end_of_text);
}

int rotary_ignores(const char *name)
{
    static const char tail[] = ".rotary_emb.inv_freq";
    size_t length = strlen(name), n = sizeof tail - 1;
    return (length > n && !strcmp(name + length - n, tail)) || !strcmp(name, "lm_head.weight");
}
