/*
 * family_chatglm: ChatGLM3 (GLM, Du et al., arXiv 2103.10360), whose code travels with the model:
 * interleaved rotation of the first half of a head, grouped queries, gate and up in one matrix.
 */
#include "model/families/family_decoder.h"
#include "model/rope.h"

static const struct family_size sizes[] = {
    {"6b", {28, 4096, 32, 2, 128, 13696, 65024, 8192}, NULL},
    {"6b-32k", {28, 4096, 32, 2, 128, 13696, 65024, 32768}, "{\"rope_ratio\": 50}"},
};
static const struct family_traits traits = {
    .keys = {"num_layers", "hidden_size", "num_attention_heads", "multi_query_group_num",
             "kv_channels", "ffn_hidden_size", "padded_vocab_size", "seq_length"},
    .absent = {28, 4096, 32, 1, 128, 13696, 65024, 2048},
    .only = "{\"add_bias_linear\": false, \"rmsnorm\": true, \"post_layer_norm\": true, "
            "\"apply_residual_connection_post_layernorm\": false, \"original_rope\": true, "
            "\"pre_seq_len\": null, \"prefix_projection\": false, \"quantization_bit\": 0, "
            "\"tie_word_embeddings\": false}",
    .always = "{\"add_bias_linear\": false, \"add_qkv_bias\": true, \"rmsnorm\": true, "
              "\"post_layer_norm\": true, \"multi_query_attention\": true, "
              "\"layernorm_epsilon\": 1e-5, \"original_rope\": true, \"hidden_dropout\": 0, "
              "\"attention_dropout\": 0, \"apply_query_key_layer_scaling\": true, "
              "\"apply_residual_connection_post_layernorm\": false, "
              "\"attention_softmax_in_fp32\": true, \"fp32_residual_connection\": false, "
              "\"tie_word_embeddings\": false, \"eos_token_id\": 2, \"pad_token_id\": 0}",
    FAMILY_SIZES(sizes),
};

static void list_tensors(struct family_list *list, const struct decoder *d, bool qkv_bias)
{
    const struct attention_spec *a = &d->attention;
    int64_t h = d->hidden, qkv = family_qkv_rows(d);
    family_add_matrix(list, DECODER_QKV_W, "self_attention.query_key_value.weight", qkv, h);
    family_add_matrix(list, DECODER_PROJ_W, "self_attention.dense.weight", h,
                      a->n_heads * a->head_dim);
    family_add_matrix(list, DECODER_UP_W, "mlp.dense_h_to_4h.weight", 2 * d->ffn, h);
    family_add_matrix(list, DECODER_DOWN_W, "mlp.dense_4h_to_h.weight", h, d->ffn);
    family_add_vector(list, DECODER_NORM1_W, "input_layernorm.weight", h, ZINF_INIT_ONE);
    if (qkv_bias)
        family_add_vector(list, DECODER_QKV_B, "self_attention.query_key_value.bias", qkv,
                          ZINF_INIT_ZERO);
    family_add_vector(list, DECODER_NORM2_W, "post_attention_layernorm.weight", h, ZINF_INIT_ONE);
}

static int read_switches(const struct zinf_model_source *source, struct decoder *d, bool *qkv_bias)
{
    bool grouped = false;
    int code;
    *qkv_bias = false;
    d->mlp.gated = true;
    d->mlp.activation = ZINF_ACTIVATION_SILU;
    if ((code = family_read_dropout(source, "attention_dropout", 0, &d->attention.dropout)) ||
        (code = family_read_dropout(source, "hidden_dropout", 0, &d->mlp.residual_dropout)) ||
        (code = zinf_json_bool(source->config, source->what, "multi_query_attention", &grouped)) ||
        (code = zinf_json_bool(source->config, source->what, "add_qkv_bias", qkv_bias)))
        return code;
    d->attention.residual_dropout = d->mlp.residual_dropout;
    if (!grouped)
        d->attention.n_kv_heads = d->attention.n_heads;
    return 0;
}

static int build(struct zinf_graph *graph, struct zinf_model_facts *facts,
                 const struct zinf_model_source *source)
{
    struct decoder d = {.table = "embedding.word_embeddings.weight",
                        .blocks = "encoder.layers",
                        .final_w = "encoder.final_layernorm.weight",
                        .head = "output_layer.weight",
                        .head_prefixed = true};
    struct family_list list = {0};
    double ratio = 1;
    bool qkv_bias;
    int code;
    if ((code = family_read_counts(source, &d)) || (code = read_switches(source, &d, &qkv_bias)) ||
        (code = family_read_norms(source, &d, ZINF_NORM_RMS, "layernorm_epsilon", 1e-5)) ||
        (code = family_read_init(source, &d, "initializer_range", 0.02)) ||
        (code = zinf_json_double(source->config, source->what, "rope_ratio", &ratio)))
        return code;
    const struct rope_source of = {.head_dim = d.attention.head_dim,
                                   .positions = d.context,
                                   .theta = 1e4 * ratio,
                                   .partial = 0.5,
                                   .unscaled = true};
    if ((code = rope_read(graph, source, &of, &d.attention.rope, &d.context)))
        return code;
    d.attention.rope.interleaved = true;
    list.std = d.init_std;
    list_tensors(&list, &d, qkv_bias);
    return family_finish(graph, facts, source, &d, &list, 2);
}

const struct zinf_family zinf_family_chatglm = {
    .model_type = "chatglm",
    .architecture = "ChatGLMModel",
    .prefix = "transformer.",
    .layers_key = "num_layers",
    .traits = &traits,
    .no_classes = true,
    .build = build,
    .make_config = family_make_config,
    /* frequencies follow from the configuration */
    .ignored = {"rotary_pos_emb.inv_freq"},
};
