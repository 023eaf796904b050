/*
 * family_opt: OPT (Zhang et al., arXiv 2205.01068): learned positions that begin at row 2 of their
 * table. The 350m model, whose norms are behind the residual and whose embeddings are narrower than
 * its rows, is refused.
 */
#include "model/families/family_decoder.h"

static const struct family_size sizes[] = {
    {"125m", {12, 768, 12, 0, 0, 3072, 50272, 2048}, NULL},
    {"1.3b", {24, 2048, 32, 0, 0, 8192, 50272, 2048}, NULL},
    {"2.7b", {32, 2560, 32, 0, 0, 10240, 50272, 2048}, NULL},
    {"6.7b", {32, 4096, 32, 0, 0, 16384, 50272, 2048}, NULL},
    {"13b", {40, 5120, 40, 0, 0, 20480, 50272, 2048}, NULL},
    {"30b", {48, 7168, 56, 0, 0, 28672, 50272, 2048}, NULL},
    {"66b", {64, 9216, 72, 0, 0, 36864, 50272, 2048}, NULL},
};
static const struct family_traits traits = {
    .keys = {"num_hidden_layers", "hidden_size", "num_attention_heads", NULL, NULL, "ffn_dim",
             "vocab_size", "max_position_embeddings"},
    .absent = {12, 768, 12, 0, 0, 3072, 50272, 2048},
    .only = "{\"do_layer_norm_before\": true, \"_remove_final_layer_norm\": false, "
            "\"layer_norm_elementwise_affine\": true, \"layerdrop\": 0}",
    .always = "{\"activation_function\": \"relu\", \"do_layer_norm_before\": true, \"dropout\": "
              "0.1, \"attention_dropout\": 0, \"init_std\": 0.02, \"bos_token_id\": 2, "
              "\"eos_token_id\": 2, \"pad_token_id\": 1}",
    FAMILY_SIZES(sizes),
};

static void list_matrices(struct family_list *list, const struct decoder *d)
{
    int64_t h = d->hidden;
    family_add_matrix(list, DECODER_QKV_W, "self_attn.q_proj.weight", h, h);
    family_add_matrix(list, DECODER_QKV_W, "self_attn.k_proj.weight", h, h);
    family_add_matrix(list, DECODER_QKV_W, "self_attn.v_proj.weight", h, h);
    family_add_matrix(list, DECODER_PROJ_W, "self_attn.out_proj.weight", h, h);
    family_add_matrix(list, DECODER_UP_W, "fc1.weight", d->ffn, h);
    family_add_matrix(list, DECODER_DOWN_W, "fc2.weight", h, d->ffn);
}

static void list_vectors(struct family_list *list, const struct decoder *d, bool bias)
{
    int64_t h = d->hidden;
    family_add_vector(list, DECODER_NORM1_W, "self_attn_layer_norm.weight", h, ZINF_INIT_ONE);
    family_add_vector(list, DECODER_NORM1_B, "self_attn_layer_norm.bias", h, ZINF_INIT_ZERO);
    family_add_vector(list, DECODER_NORM2_W, "final_layer_norm.weight", h, ZINF_INIT_ONE);
    family_add_vector(list, DECODER_NORM2_B, "final_layer_norm.bias", h, ZINF_INIT_ZERO);
    if (!bias)
        return;
    family_add_vector(list, DECODER_QKV_B, "self_attn.q_proj.bias", h, ZINF_INIT_ZERO);
    family_add_vector(list, DECODER_QKV_B, "self_attn.k_proj.bias", h, ZINF_INIT_ZERO);
    family_add_vector(list, DECODER_QKV_B, "self_attn.v_proj.bias", h, ZINF_INIT_ZERO);
    family_add_vector(list, DECODER_PROJ_B, "self_attn.out_proj.bias", h, ZINF_INIT_ZERO);
    family_add_vector(list, DECODER_UP_B, "fc1.bias", d->ffn, ZINF_INIT_ZERO);
    family_add_vector(list, DECODER_DOWN_B, "fc2.bias", h, ZINF_INIT_ZERO);
}

static int read_switches(const struct zinf_model_source *source, struct decoder *d, bool *bias)
{
    bool tied = true;
    int64_t width = d->hidden;
    int code;
    *bias = true;
    if ((code =
             family_read_activation(source, "activation_function", "relu", &d->mlp.activation)) ||
        (code = family_read_dropout(source, "attention_dropout", 0, &d->attention.dropout)) ||
        (code = family_read_dropout(source, "dropout", 0.1, &d->mlp.residual_dropout)) ||
        (code = zinf_json_int(source->config, source->what, "word_embed_proj_dim", &width)) ||
        (code = zinf_json_bool(source->config, source->what, "enable_bias", bias)) ||
        (code = zinf_json_bool(source->config, source->what, "tie_word_embeddings", &tied)))
        return code;
    if (width != d->hidden)
        return zinf_fail(-ENOTSUP,
                         "%s: word_embed_proj_dim %lld is not supported; it must be hidden_size, "
                         "%lld",
                         source->what, (long long)width, (long long)d->hidden);
    d->attention.residual_dropout = d->mlp.residual_dropout;
    d->head = tied ? NULL : "lm_head.weight";
    return 0;
}

static int build(struct zinf_graph *graph, struct zinf_model_facts *facts,
                 const struct zinf_model_source *source)
{
    struct decoder d = {.table = "embed_tokens.weight",
                        .positions = "embed_positions.weight",
                        .first_position = 2,
                        .blocks = "layers",
                        .final_w = "final_layer_norm.weight",
                        .final_b = "final_layer_norm.bias"};
    struct family_list list = {0};
    bool bias;
    int code;
    if ((code = family_read_counts(source, &d)) || (code = read_switches(source, &d, &bias)) ||
        (code = family_read_init(source, &d, "init_std", 0.02)) ||
        (code = family_read_padding(source, &d, 1)))
        return code;
    d.attention.norm = d.mlp.norm = (struct norm_spec){.kind = ZINF_NORM_LAYER, .eps = 1e-5f};
    list.std = d.init_std;
    list_matrices(&list, &d);
    list_vectors(&list, &d, bias);
    return family_finish(graph, facts, source, &d, &list, 2);
}

const struct zinf_family zinf_family_opt = {
    .model_type = "opt",
    .architecture = "OPTForCausalLM",
    .prefix = "model.decoder.",
    .layers_key = "num_hidden_layers",
    .traits = &traits,
    .build = build,
    .make_config = family_make_config,
    .ignored = {"lm_head.weight"},
};
