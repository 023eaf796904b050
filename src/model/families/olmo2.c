/*
 * family_olmo2: OLMo 2 (OLMo Team, arXiv 2501.00656): norms behind the parts of a block and none in
 * front; norms of all queries of a row together, and of all keys.
 */
#include "model/families/family_rotary.h"

static const struct family_size sizes[] = {
    {"7b", {32, 4096, 32, 32, 0, 11008, 100352, 4096}, NULL},
    {"1b", {16, 2048, 16, 16, 0, 8192, 100352, 4096}, NULL},
    {"13b", {40, 5120, 40, 40, 0, 13824, 100352, 4096}, NULL},
    {"32b", {64, 5120, 40, 8, 0, 27648, 100352, 4096}, NULL},
};
static const struct family_traits traits = {
    .keys = ROTARY_KEYS,
    .absent = {32, 4096, 32, 0, 0, 11008, 50304, 2048},
    .only = "{\"clip_qkv\": null}",
    .always = "{\"rms_norm_eps\": 1e-6, \"initializer_range\": 0.02, \"rope_theta\": 500000, "
              "\"hidden_act\": \"silu\", \"tie_word_embeddings\": false, \"eos_token_id\": 100257, "
              "\"pad_token_id\": 100277}",
    .sizes = sizes,
    .n_sizes = sizeof sizes / sizeof *sizes,
};

static void list_vectors(struct family_list *list, const struct decoder *d, bool bias)
{
    const struct attention_spec *a = &d->attention;
    int64_t h = d->hidden, q = a->n_heads * a->head_dim, kv = a->n_kv_heads * a->head_dim;
    if (bias) {
        rotary_list_qkv_biases(list, d);
        family_add_vector(list, DECODER_PROJ_B, "self_attn.o_proj.bias", h, ZINF_INIT_ZERO);
    }
    family_add_vector(list, DECODER_Q_NORM, "self_attn.q_norm.weight", q, ZINF_INIT_ONE);
    family_add_vector(list, DECODER_K_NORM, "self_attn.k_norm.weight", kv, ZINF_INIT_ONE);
    family_add_vector(list, DECODER_AFTER1_W, "post_attention_layernorm.weight", h, ZINF_INIT_ONE);
    family_add_vector(list, DECODER_AFTER2_W, "post_feedforward_layernorm.weight", h,
                      ZINF_INIT_ONE);
}

static int read_switches(const struct zinf_model_source *source, struct decoder *d, bool *bias)
{
    bool tied = false;
    int code;
    *bias = false;
    d->mlp.gated = d->attention.whole_norms = true;
    d->mlp.activation = ZINF_ACTIVATION_SILU;
    if ((code = family_read_activation(source, "hidden_act", &d->mlp.activation)) ||
        (code = family_read_dropout(source, "attention_dropout", 0, &d->attention.dropout)) ||
        (code = zinf_json_bool(source->config, source->what, "attention_bias", bias)) ||
        (code = zinf_json_bool(source->config, source->what, "tie_word_embeddings", &tied)))
        return code;
    d->head = tied ? NULL : "lm_head.weight";
    return 0;
}

static int build(struct zinf_graph *graph, struct zinf_model_facts *facts,
                 const struct zinf_model_source *source)
{
    struct decoder d = {
        .table = "embed_tokens.weight", .blocks = "layers", .final_w = "norm.weight"};
    struct family_list list = {0};
    bool bias;
    int code;
    if ((code = family_read_counts(source, &d)) || (code = read_switches(source, &d, &bias)) ||
        (code = family_read_norms(source, &d, ZINF_NORM_RMS, "rms_norm_eps", 1e-5)) ||
        (code = family_read_init(source, &d, "initializer_range", 0.02)) ||
        (code = family_read_padding(source, &d, 1)))
        return code;
    if ((code = rotary_read_rope(graph, source, &d)))
        return code;
    list.std = d.init_std;
    rotary_list_matrices(&list, &d);
    list_vectors(&list, &d, bias);
    return family_finish(graph, facts, source, &d, &list, 50279);
}

const struct zinf_family zinf_family_olmo2 = {
    .model_type = "olmo2",
    .architecture = "Olmo2ForCausalLM",
    .prefix = ROTARY_PREFIX,
    .layers_key = ROTARY_LAYERS_KEY,
    .traits = &traits,
    .build = build,
    .make_config = family_make_config,
    .ignores = rotary_ignores,
};
