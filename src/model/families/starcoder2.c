/*
 * family_starcoder2: StarCoder2 (Lozhkov et al., arXiv 2402.19173): rotary positions, grouped
 * queries and a sliding window beside layer norms, biases and a plain feed-forward part.
 */
#include "model/families/family_rotary.h"

static const struct family_size sizes[] = {
    {"3b",
     {30, 3072, 24, 2, 0, 12288, 49152, 16384},
     "{\"rope_theta\": 999999.4420358813, \"initializer_range\": 0.018042}"},
    {"7b",
     {32, 4608, 36, 4, 0, 18432, 49152, 16384},
     "{\"rope_theta\": 1000000, \"initializer_range\": 0.018042}"},
    {"15b",
     {40, 6144, 48, 4, 0, 24576, 49152, 16384},
     "{\"rope_theta\": 100000, \"initializer_range\": 0.01275, \"tie_word_embeddings\": false}"},
};
static const struct family_traits traits = {
    .keys = ROTARY_KEYS,
    .absent = {30, 3072, 24, 2, 0, 12288, 49152, 4096},
    .only = "{\"norm_type\": \"layer_norm\", \"mlp_type\": \"default\"}",
    .always = "{\"norm_epsilon\": 1e-5, \"hidden_act\": \"gelu_pytorch_tanh\", \"use_bias\": true, "
              "\"sliding_window\": 4096, \"tie_word_embeddings\": true, \"bos_token_id\": 0, "
              "\"eos_token_id\": 0}",
    .sizes = sizes,
    .n_sizes = sizeof sizes / sizeof *sizes,
};

static void list_matrices(struct family_list *list, const struct decoder *d)
{
    const struct attention_spec *a = &d->attention;
    int64_t h = d->hidden, q = a->n_heads * a->head_dim, kv = a->n_kv_heads * a->head_dim;
    family_add_matrix(list, DECODER_QKV_W, "self_attn.q_proj.weight", q, h);
    family_add_matrix(list, DECODER_QKV_W, "self_attn.k_proj.weight", kv, h);
    family_add_matrix(list, DECODER_QKV_W, "self_attn.v_proj.weight", kv, h);
    family_add_matrix(list, DECODER_PROJ_W, "self_attn.o_proj.weight", h, q);
    family_add_matrix(list, DECODER_UP_W, "mlp.c_fc.weight", d->ffn, h);
    family_add_matrix(list, DECODER_DOWN_W, "mlp.c_proj.weight", h, d->ffn);
}

static void list_vectors(struct family_list *list, const struct decoder *d, bool bias)
{
    int64_t h = d->hidden;
    family_add_vector(list, DECODER_NORM1_W, "input_layernorm.weight", h, ZINF_INIT_ONE);
    family_add_vector(list, DECODER_NORM1_B, "input_layernorm.bias", h, ZINF_INIT_ZERO);
    family_add_vector(list, DECODER_NORM2_W, "post_attention_layernorm.weight", h, ZINF_INIT_ONE);
    family_add_vector(list, DECODER_NORM2_B, "post_attention_layernorm.bias", h, ZINF_INIT_ZERO);
    if (!bias)
        return;
    rotary_list_qkv_biases(list, d);
    family_add_vector(list, DECODER_PROJ_B, "self_attn.o_proj.bias", h, ZINF_INIT_ZERO);
    family_add_vector(list, DECODER_UP_B, "mlp.c_fc.bias", d->ffn, ZINF_INIT_ZERO);
    family_add_vector(list, DECODER_DOWN_B, "mlp.c_proj.bias", h, ZINF_INIT_ZERO);
}

static int read_switches(const struct zinf_model_source *source, struct decoder *d, bool *bias)
{
    bool tied = true;
    int code;
    *bias = true;
    d->mlp.activation = ZINF_ACTIVATION_GELU_TANH;
    if ((code = family_read_activation(source, "hidden_act", &d->mlp.activation)) ||
        (code = family_read_dropout(source, "attention_dropout", 0, &d->attention.dropout)) ||
        (code = family_read_dropout(source, "residual_dropout", 0, &d->mlp.residual_dropout)) ||
        (code = family_read_dropout(source, "embedding_dropout", 0, &d->embedding_dropout)) ||
        (code = zinf_json_bool(source->config, source->what, "use_bias", bias)) ||
        (code = zinf_json_bool(source->config, source->what, "tie_word_embeddings", &tied)))
        return code;
    d->attention.residual_dropout = d->mlp.residual_dropout;
    d->head = tied ? NULL : "lm_head.weight";
    return family_read_window(source, d, 0);
}

static int build(struct zinf_graph *graph, struct zinf_model_facts *facts,
                 const struct zinf_model_source *source)
{
    struct decoder d = {.table = "embed_tokens.weight",
                        .blocks = "layers",
                        .final_w = "norm.weight",
                        .final_b = "norm.bias"};
    struct family_list list = {0};
    bool bias;
    int code;
    if ((code = family_read_counts(source, &d)) || (code = read_switches(source, &d, &bias)) ||
        (code = family_read_norms(source, &d, ZINF_NORM_LAYER, "norm_epsilon", 1e-5)) ||
        (code = family_read_init(source, &d, "initializer_range", 0.018042)) ||
        (code = family_read_padding(source, &d, -1)))
        return code;
    if ((code = rotary_read_rope(graph, source, &d)))
        return code;
    list.std = d.init_std;
    list_matrices(&list, &d);
    list_vectors(&list, &d, bias);
    return family_finish(graph, facts, source, &d, &list, 50256);
}

const struct zinf_family zinf_family_starcoder2 = {
    .model_type = "starcoder2",
    .architecture = "Starcoder2ForCausalLM",
    .prefix = ROTARY_PREFIX,
    .layers_key = ROTARY_LAYERS_KEY,
    .traits = &traits,
    .build = build,
    .make_config = family_make_config,
    .ignores = rotary_ignores,
};
