/*
 * family_gemma: Gemma (Gemma Team, arXiv 2403.08295): norm weights stored around 0, a scaled
 * lookup, wide heads, GELU by tanh also where the configuration says "gelu".
 */
#include "model/families/gemma.h"

#include <math.h>

/* ---- what the generations share ---- */

int gemma_read(const struct zinf_model_source *source, struct decoder *d, struct gemma_block *block)
{
    bool tied = true;
    int code;
    d->table = "embed_tokens.weight";
    d->blocks = "layers";
    d->final_w = "norm.weight";
    d->mlp.gated = true;
    d->mlp.activation = ZINF_ACTIVATION_GELU_TANH;
    if ((code = family_read_counts(source, d)) ||
        (code = family_read_norms(source, d, ZINF_NORM_RMS, "rms_norm_eps", 1e-6)) ||
        (code = family_read_init(source, d, "initializer_range", 0.02)) ||
        (code = family_read_padding(source, d, 0)) ||
        (code = family_read_dropout(source, "attention_dropout", 0, &d->attention.dropout)) ||
        (code = zinf_json_bool(source->config, source->what, "attention_bias", &block->bias)) ||
        (code = zinf_json_bool(source->config, source->what, "tie_word_embeddings", &tied)))
        return code;
    d->attention.norm.w_add = d->mlp.norm.w_add = 1;
    d->embedding_scale = sqrtf((float)d->hidden);
    d->head = tied ? NULL : "lm_head.weight";
    return family_read_activation(source, "hidden_activation", &d->mlp.activation);
}

int gemma_read_scale(const struct zinf_model_source *source, struct decoder *d)
{
    double scalar = 256;
    int code = zinf_json_double(source->config, source->what, "query_pre_attn_scalar", &scalar);
    if (!code && !(scalar > 0))
        code = zinf_fail(-EINVAL, "%s: query_pre_attn_scalar is %g; it must be above 0",
                         source->what, scalar);
    d->attention.scale = (float)(1 / sqrt(scalar));
    return code;
}

int gemma_read_cap(const struct zinf_model_source *source, const char *key, double usual,
                   float *out)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(source->config, key);
    *out = 0;
    if (item && cJSON_IsNull(item))
        return 0;
    int code = zinf_json_double(source->config, source->what, key, &usual);
    if (!code && item && !(usual > 0))
        code = zinf_fail(-EINVAL, "%s: %s is %g; it must be above 0, or null", source->what, key,
                         usual);
    *out = (float)usual;
    return code;
}

void gemma_list(struct family_list *list, const struct decoder *d, const struct gemma_block *block)
{
    const struct attention_spec *a = &d->attention;
    int64_t h = d->hidden;
    list->std = d->init_std;
    rotary_list_matrices(list, d);
    if (block->bias) {
        rotary_list_qkv_biases(list, d);
        family_add_vector(list, DECODER_PROJ_B, "self_attn.o_proj.bias", h, ZINF_INIT_ZERO);
    }
    if (block->head_norms) {
        family_add_vector(list, DECODER_Q_NORM, "self_attn.q_norm.weight", a->head_dim,
                          ZINF_INIT_ZERO);
        family_add_vector(list, DECODER_K_NORM, "self_attn.k_norm.weight", a->head_dim,
                          ZINF_INIT_ZERO);
    }
    family_add_vector(list, DECODER_NORM1_W, "input_layernorm.weight", h, ZINF_INIT_ZERO);
    family_add_vector(list, block->sandwich ? DECODER_AFTER1_W : DECODER_NORM2_W,
                      "post_attention_layernorm.weight", h, ZINF_INIT_ZERO);
    if (!block->sandwich)
        return;
    family_add_vector(list, DECODER_NORM2_W, "pre_feedforward_layernorm.weight", h, ZINF_INIT_ZERO);
    family_add_vector(list, DECODER_AFTER2_W, "post_feedforward_layernorm.weight", h,
                      ZINF_INIT_ZERO);
}

/* ---- the first generation ---- */

static const struct family_size sizes[] = {
    {"2b", {18, 2048, 8, 1, 256, 16384, 256000, 8192}, NULL},
    {"7b", {28, 3072, 16, 16, 256, 24576, 256000, 8192}, NULL},
};
static const struct family_traits traits = {
    .keys = ROTARY_KEYS,
    .absent = {28, 3072, 16, 16, 256, 24576, 256000, 8192},
    .only = "{\"use_bidirectional_attention\": false}",
    .always = "{\"rms_norm_eps\": 1e-6, \"initializer_range\": 0.02, \"rope_theta\": 10000.0, "
              "\"hidden_act\": \"gelu_pytorch_tanh\", \"bos_token_id\": 2, \"eos_token_id\": 1, "
              "\"pad_token_id\": 0}",
    .sizes = sizes,
    .n_sizes = sizeof sizes / sizeof *sizes,
};

static int build(struct zinf_graph *graph, struct zinf_model_facts *facts,
                 const struct zinf_model_source *source)
{
    struct decoder d = {0};
    struct gemma_block block = {0};
    struct family_list list = {0};
    enum zinf_activation activation = ZINF_ACTIVATION_GELU_TANH;
    bool newer = zinf_json_has(source->config, "hidden_activation");
    int code = gemma_read(source, &d, &block);
    if (!code && !newer)
        code = family_read_activation(source, "hidden_act", &activation);
    if (code)
        return code;
    if (!newer)
        d.mlp.activation = activation;
    if (d.mlp.activation == ZINF_ACTIVATION_GELU_ERF)
        d.mlp.activation = ZINF_ACTIVATION_GELU_TANH;
    if ((code = rotary_read_rope(graph, source, &d)))
        return code;
    gemma_list(&list, &d, &block);
    return family_finish(graph, facts, source, &d, &list, 1);
}

const struct zinf_family zinf_family_gemma = {
    .model_type = "gemma",
    .architecture = "GemmaForCausalLM",
    .prefix = ROTARY_PREFIX,
    .layers_key = ROTARY_LAYERS_KEY,
    .traits = &traits,
    .build = build,
    .make_config = family_make_config,
    .ignores = rotary_ignores,
};
