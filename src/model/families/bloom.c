/*
 * family_bloom: BLOOM (BigScience Workshop, arXiv 2211.05100): ALiBi in place of positions, a norm
 * behind the lookup; the file has queries, keys and values by head.
 */
#include "model/families/family_decoder.h"

static const struct family_size sizes[] = {
    {"560m", {24, 1024, 16, 0, 0, 0, 250880, 2048}, NULL},
    {"1b1", {24, 1536, 16, 0, 0, 0, 250880, 2048}, NULL},
    {"1b7", {24, 2048, 16, 0, 0, 0, 250880, 2048}, NULL},
    {"3b", {30, 2560, 32, 0, 0, 0, 250880, 2048}, NULL},
    {"7b1", {30, 4096, 32, 0, 0, 0, 250880, 2048}, NULL},
    {"176b", {70, 14336, 112, 0, 0, 0, 250880, 2048}, NULL},
};
static const struct family_traits traits = {
    .keys = {"n_layer", "hidden_size", "n_head", NULL, NULL, NULL, "vocab_size", "seq_length"},
    .other = {.layers = "num_hidden_layers", .hidden = "n_embed", .heads = "num_attention_heads"},
    .absent = {2, 64, 8, 0, 0, 0, 250880, 2048},
    .only = "{\"apply_residual_connection_post_layernorm\": false, \"tie_word_embeddings\": true}",
    .always = "{\"layer_norm_epsilon\": 1e-5, \"initializer_range\": 0.02, \"hidden_dropout\": 0, "
              "\"attention_dropout\": 0, \"apply_residual_connection_post_layernorm\": false, "
              "\"bos_token_id\": 1, \"eos_token_id\": 2, \"pad_token_id\": 3}",
    FAMILY_SIZES(sizes),
};

static void list_tensors(struct family_list *list, const struct decoder *d)
{
    int64_t h = d->hidden, f = d->ffn;
    family_add_matrix(list, DECODER_QKV_W, "self_attention.query_key_value.weight", 3 * h, h);
    family_list_is_grouped(list);
    family_add_matrix(list, DECODER_PROJ_W, "self_attention.dense.weight", h, h);
    family_add_matrix(list, DECODER_UP_W, "mlp.dense_h_to_4h.weight", f, h);
    family_add_matrix(list, DECODER_DOWN_W, "mlp.dense_4h_to_h.weight", h, f);
    family_add_vector(list, DECODER_NORM1_W, "input_layernorm.weight", h, ZINF_INIT_ONE);
    family_add_vector(list, DECODER_NORM1_B, "input_layernorm.bias", h, ZINF_INIT_ZERO);
    family_add_vector(list, DECODER_QKV_B, "self_attention.query_key_value.bias", 3 * h,
                      ZINF_INIT_ZERO);
    family_list_is_grouped(list);
    family_add_vector(list, DECODER_PROJ_B, "self_attention.dense.bias", h, ZINF_INIT_ZERO);
    family_add_vector(list, DECODER_NORM2_W, "post_attention_layernorm.weight", h, ZINF_INIT_ONE);
    family_add_vector(list, DECODER_NORM2_B, "post_attention_layernorm.bias", h, ZINF_INIT_ZERO);
    family_add_vector(list, DECODER_UP_B, "mlp.dense_h_to_4h.bias", f, ZINF_INIT_ZERO);
    family_add_vector(list, DECODER_DOWN_B, "mlp.dense_4h_to_h.bias", h, ZINF_INIT_ZERO);
}

static int build(struct zinf_graph *graph, struct zinf_model_facts *facts,
                 const struct zinf_model_source *source)
{
    struct decoder d = {.table = "word_embeddings.weight",
                        .embedding_w = "word_embeddings_layernorm.weight",
                        .embedding_b = "word_embeddings_layernorm.bias",
                        .blocks = "h",
                        .final_w = "ln_f.weight",
                        .final_b = "ln_f.bias"};
    struct family_list list = {0};
    int code;
    d.mlp.activation = ZINF_ACTIVATION_GELU_TANH;
    if ((code = family_read_counts(source, &d)) ||
        (code = family_read_norms(source, &d, ZINF_NORM_LAYER, "layer_norm_epsilon", 1e-5)) ||
        (code = family_read_init(source, &d, "initializer_range", 0.02)) ||
        (code = family_read_dropout(source, "attention_dropout", 0, &d.attention.dropout)) ||
        (code = family_read_dropout(source, "hidden_dropout", 0, &d.mlp.residual_dropout)) ||
        (code = family_make_slopes(graph, &d, 1)))
        return code;
    d.attention.residual_dropout = d.mlp.residual_dropout;
    list.std = d.init_std;
    list_tensors(&list, &d);
    return family_finish(graph, facts, source, &d, &list, 2);
}

const struct zinf_family zinf_family_bloom = {
    .model_type = "bloom",
    .architecture = "BloomForCausalLM",
    .prefix = "transformer.",
    .layers_key = "n_layer",
    .traits = &traits,
    .build = build,
    .make_config = family_make_config,
    .ignored = {"lm_head.weight"},
};
