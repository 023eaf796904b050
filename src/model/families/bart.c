/*
 * family_bart: BART (Lewis et al., arXiv 1910.13461): norms behind the sums, learned positions that
 * begin at row 2 of their tables, a norm behind the lookup, and a fixed bias of the logits. The
 * families that came of it differ in where norms stand: bart_style.
 */
#include "model/families/bart.h"

#include "model/stack.h"

#include <math.h>

static const struct family_size sizes[] = {
    {"base", {6, 768, 12, 0, 0, 3072, 50265, 1024}, NULL},
    {"large", {12, 1024, 16, 0, 0, 4096, 50265, 1024}, NULL},
};
static const struct family_traits traits = {
    .keys = BART_KEYS,
    .absent = {12, 1024, 16, 0, 0, 4096, 50265, 1024},
    .only = BART_ONLY,
    .always = "{\"is_encoder_decoder\": true, \"activation_function\": \"gelu\", \"dropout\": 0.1, "
              "\"attention_dropout\": 0, \"activation_dropout\": 0, \"init_std\": 0.02, "
              "\"scale_embedding\": false, \"bos_token_id\": 0, \"pad_token_id\": 1, "
              "\"eos_token_id\": 2, \"decoder_start_token_id\": 2}",
    FAMILY_SIZES(sizes),
};

/* ---- tensors of a layer ---- */

static void list_norm(struct family_list *list, enum decoder_place weight,
                      const char *const name[2], int64_t h)
{
    family_add_vector(list, weight, name[0], h, ZINF_INIT_ONE);
    family_add_vector(list, weight + 1, name[1], h, ZINF_INIT_ZERO);
}

static void list_own(struct family_list *list, int64_t h)
{
    static const char *const norm[] = {"self_attn_layer_norm.weight", "self_attn_layer_norm.bias"};
    family_add_matrix(list, DECODER_QKV_W, "self_attn.q_proj.weight", h, h);
    family_add_matrix(list, DECODER_QKV_W, "self_attn.k_proj.weight", h, h);
    family_add_matrix(list, DECODER_QKV_W, "self_attn.v_proj.weight", h, h);
    family_add_matrix(list, DECODER_PROJ_W, "self_attn.out_proj.weight", h, h);
    family_add_vector(list, DECODER_QKV_B, "self_attn.q_proj.bias", h, ZINF_INIT_ZERO);
    family_add_vector(list, DECODER_QKV_B, "self_attn.k_proj.bias", h, ZINF_INIT_ZERO);
    family_add_vector(list, DECODER_QKV_B, "self_attn.v_proj.bias", h, ZINF_INIT_ZERO);
    family_add_vector(list, DECODER_PROJ_B, "self_attn.out_proj.bias", h, ZINF_INIT_ZERO);
    list_norm(list, DECODER_NORM1_W, norm, h);
}

static void list_cross(struct family_list *list, int64_t h)
{
    static const char *const norm[] = {"encoder_attn_layer_norm.weight",
                                       "encoder_attn_layer_norm.bias"};
    family_add_matrix(list, DECODER_CROSS_Q_W, "encoder_attn.q_proj.weight", h, h);
    family_add_matrix(list, DECODER_CROSS_KV_W, "encoder_attn.k_proj.weight", h, h);
    family_add_matrix(list, DECODER_CROSS_KV_W, "encoder_attn.v_proj.weight", h, h);
    family_add_matrix(list, DECODER_CROSS_PROJ_W, "encoder_attn.out_proj.weight", h, h);
    family_add_vector(list, DECODER_CROSS_Q_B, "encoder_attn.q_proj.bias", h, ZINF_INIT_ZERO);
    family_add_vector(list, DECODER_CROSS_KV_B, "encoder_attn.k_proj.bias", h, ZINF_INIT_ZERO);
    family_add_vector(list, DECODER_CROSS_KV_B, "encoder_attn.v_proj.bias", h, ZINF_INIT_ZERO);
    family_add_vector(list, DECODER_CROSS_PROJ_B, "encoder_attn.out_proj.bias", h, ZINF_INIT_ZERO);
    list_norm(list, DECODER_CROSS_NORM_W, norm, h);
}

static void list_mlp(struct family_list *list, int64_t h, int64_t ffn)
{
    static const char *const norm[] = {"final_layer_norm.weight", "final_layer_norm.bias"};
    family_add_matrix(list, DECODER_UP_W, "fc1.weight", ffn, h);
    family_add_matrix(list, DECODER_DOWN_W, "fc2.weight", h, ffn);
    family_add_vector(list, DECODER_UP_B, "fc1.bias", ffn, ZINF_INIT_ZERO);
    family_add_vector(list, DECODER_DOWN_B, "fc2.bias", h, ZINF_INIT_ZERO);
    list_norm(list, DECODER_NORM2_W, norm, h);
}

/* ---- config.json ---- */

static int read_dropouts(const struct zinf_model_source *source, struct stack *k)
{
    struct decoder *d = &k->d;
    float dropout;
    int code = family_read_dropout(source, "dropout", 0.1, &dropout);
    d->attention.residual_dropout = d->mlp.residual_dropout = dropout;
    if (d->embedding_w)
        d->embedding_norm_dropout = dropout;
    else
        d->embedding_dropout = dropout;
    if (!code)
        code = family_read_dropout(source, "attention_dropout", 0, &d->attention.dropout);
    return code ? code : family_read_dropout(source, "activation_dropout", 0, &k->inner_dropout);
}

/* What the decoder has is under keys of its own; where it differs in more than its layers and its
 * feed-forward size, nothing here could hold it. */
static int read_decoder(const struct zinf_model_source *source, struct decoder *d)
{
    int64_t heads = d->attention.n_heads;
    const struct family_int list[] = {{"decoder_layers", &d->n_layers},
                                      {"decoder_ffn_dim", &d->ffn},
                                      {"decoder_attention_heads", &heads},
                                      {NULL, NULL}};
    int code = family_read_ints(source, list);
    if (!code && (heads < 1 || d->hidden % heads))
        code = zinf_fail(-EINVAL,
                         "%s: d_model %lld must be a multiple of decoder_attention_heads %lld",
                         source->what, (long long)d->hidden, (long long)heads);
    if (code)
        return code;
    d->attention.n_heads = d->attention.n_kv_heads = heads;
    d->attention.head_dim = d->hidden / heads;
    d->attention.scale = 1.0f / sqrtf((float)d->attention.head_dim);
    return 0;
}

static int read_stack(const struct zinf_model_source *source, const struct bart_style *style,
                      struct stack *k)
{
    struct decoder *d = &k->d;
    bool scaled = false;
    int code;
    if ((code = family_read_counts(source, d)) ||
        (code = family_read_init(source, d, "init_std", 0.02)) ||
        (code =
             family_read_activation(source, "activation_function", "gelu", &d->mlp.activation)) ||
        (code = zinf_json_bool(source->config, source->what, "scale_embedding", &scaled)) ||
        (code = read_dropouts(source, k)))
        return code;
    d->packed = true;
    d->attention.norm = d->mlp.norm = (struct norm_spec){.kind = ZINF_NORM_LAYER, .eps = 1e-5f};
    d->embedding_scale = scaled ? sqrtf((float)d->hidden) : 1.0f;
    d->first_position = style->first_position;
    k->norm_behind = style->norm_behind;
    return 0;
}

/* Names of the tensors around the layers. */
static void name_ends(struct decoder *d, const struct bart_style *style, bool source)
{
    d->positions = source ? "encoder.embed_positions.weight" : "decoder.embed_positions.weight";
    d->blocks = source ? "encoder.layers" : "decoder.layers";
    if (style->embedding_norm) {
        d->embedding_w =
            source ? "encoder.layernorm_embedding.weight" : "decoder.layernorm_embedding.weight";
        d->embedding_b =
            source ? "encoder.layernorm_embedding.bias" : "decoder.layernorm_embedding.bias";
    }
    if (!style->norm_behind) {
        d->final_w = source ? "encoder.layer_norm.weight" : "decoder.layer_norm.weight";
        d->final_b = source ? "encoder.layer_norm.bias" : "decoder.layer_norm.bias";
    }
}

/* ---- the graph ---- */

int bart_build(struct zinf_graph *graph, struct zinf_model_facts *facts,
               const struct zinf_model_source *source, const struct bart_style *style)
{
    struct stack from = {.d = {0}, .both_ways = true}, to = {.d = {0}};
    struct family_list first = {0}, second = {0};
    int code;
    name_ends(&from.d, style, true);
    name_ends(&to.d, style, false);
    if ((code = read_stack(source, style, &from)) || (code = read_stack(source, style, &to)))
        return code;
    to.d.n_layers = style->decoder_layers;
    if ((code = read_decoder(source, &to.d)))
        return code;
    to.d.table = "shared.weight";
    to.d.logits_bias = "final_logits_bias";
    first.std = second.std = to.d.init_std;
    list_own(&first, from.d.hidden);
    list_mlp(&first, from.d.hidden, from.d.ffn);
    list_own(&second, to.d.hidden);
    list_cross(&second, to.d.hidden);
    list_mlp(&second, to.d.hidden, to.d.ffn);
    from.d.tensors = first.items;
    from.d.n_tensors = first.n;
    to.d.tensors = second.items;
    to.d.n_tensors = second.n;
    family_tell(facts, source, &to.d, 2);
    return stack_build_pair(graph, &from, &to);
}

static int build(struct zinf_graph *graph, struct zinf_model_facts *facts,
                 const struct zinf_model_source *source)
{
    static const struct bart_style style = {
        .norm_behind = true, .embedding_norm = true, .first_position = 2, .decoder_layers = 12};
    return bart_build(graph, facts, source, &style);
}

/* The decoder is as large as the encoder where the size does not say otherwise. */
int bart_make_config(cJSON *config, const struct zinf_family *family,
                     const struct zinf_model_shape *shape)
{
    static const struct {
        const char *of, *own;
    } keys[] = {{"encoder_layers", "decoder_layers"},
                {"encoder_ffn_dim", "decoder_ffn_dim"},
                {"encoder_attention_heads", "decoder_attention_heads"}};
    int code = family_make_config(config, family, shape);
    for (size_t i = 0; !code && i < sizeof keys / sizeof *keys; i++) {
        const cJSON *of = cJSON_GetObjectItemCaseSensitive(config, keys[i].of);
        if (cJSON_HasObjectItem(config, keys[i].own) && !shape->layers)
            continue;
        cJSON_DeleteItemFromObjectCaseSensitive(config, keys[i].own);
        if (!cJSON_AddNumberToObject(config, keys[i].own, cJSON_GetNumberValue(of)))
            code = zinf_fail(-ENOMEM, "no memory for a configuration");
    }
    return code;
}

const struct zinf_family zinf_family_bart = {
    .model_type = "bart",
    .architecture = "BartForConditionalGeneration",
    .prefix = "model.",
    .layers_key = "encoder_layers",
    .traits = &traits,
    .build = build,
    .make_config = bart_make_config,
    .ignored = {BART_IGNORED},
};
