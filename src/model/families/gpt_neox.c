/*
 * family_gpt_neox: GPT-NeoX (Black et al., arXiv 2204.06745) and Pythia: both parts of a block
 * beside each other, with a norm each, or one behind the other; a quarter of each head rotates; the
 * file has queries, keys and values by head.
 */
#include "model/families/family_decoder.h"
#include "model/rope.h"

static const struct family_size sizes[] = {
    {"160m", {12, 768, 12, 0, 0, 3072, 50304, 2048}, NULL},
    {"70m", {6, 512, 8, 0, 0, 2048, 50304, 2048}, NULL},
    {"410m", {24, 1024, 16, 0, 0, 4096, 50304, 2048}, NULL},
    {"1b", {16, 2048, 8, 0, 0, 8192, 50304, 2048}, NULL},
    {"1.4b", {24, 2048, 16, 0, 0, 8192, 50304, 2048}, NULL},
    {"2.8b", {32, 2560, 32, 0, 0, 10240, 50304, 2048}, NULL},
    {"6.9b", {32, 4096, 32, 0, 0, 16384, 50432, 2048}, NULL},
    {"12b", {36, 5120, 40, 0, 0, 20480, 50688, 2048}, NULL},
    {"20b", {44, 6144, 64, 0, 0, 24576, 50432, 2048}, "{\"hidden_act\": \"gelu_fast\"}"},
};
static const struct family_traits traits = {
    .keys = {"num_hidden_layers", "hidden_size", "num_attention_heads", NULL, NULL,
             "intermediate_size", "vocab_size", "max_position_embeddings"},
    .absent = {44, 6144, 64, 0, 0, 24576, 50432, 2048},
    .always = "{\"layer_norm_eps\": 1e-5, \"initializer_range\": 0.02, \"rotary_pct\": 0.25, "
              "\"rotary_emb_base\": 10000, \"hidden_act\": \"gelu\", \"use_parallel_residual\": "
              "true, \"tie_word_embeddings\": false, \"bos_token_id\": 0, \"eos_token_id\": 0}",
    FAMILY_SIZES(sizes),
};

static void list_tensors(struct family_list *list, const struct decoder *d, bool attention_bias)
{
    int64_t h = d->hidden, qkv = family_qkv_rows(d);
    family_add_matrix(list, DECODER_QKV_W, "attention.query_key_value.weight", qkv, h);
    family_list_is_grouped(list);
    family_add_matrix(list, DECODER_PROJ_W, "attention.dense.weight", h, h);
    family_add_matrix(list, DECODER_UP_W, "mlp.dense_h_to_4h.weight", d->ffn, h);
    family_add_matrix(list, DECODER_DOWN_W, "mlp.dense_4h_to_h.weight", h, d->ffn);
    family_add_vector(list, DECODER_NORM1_W, "input_layernorm.weight", h, ZINF_INIT_ONE);
    family_add_vector(list, DECODER_NORM1_B, "input_layernorm.bias", h, ZINF_INIT_ZERO);
    if (attention_bias) {
        family_add_vector(list, DECODER_QKV_B, "attention.query_key_value.bias", qkv,
                          ZINF_INIT_ZERO);
        family_list_is_grouped(list);
        family_add_vector(list, DECODER_PROJ_B, "attention.dense.bias", h, ZINF_INIT_ZERO);
    }
    family_add_vector(list, DECODER_NORM2_W, "post_attention_layernorm.weight", h, ZINF_INIT_ONE);
    family_add_vector(list, DECODER_NORM2_B, "post_attention_layernorm.bias", h, ZINF_INIT_ZERO);
    family_add_vector(list, DECODER_UP_B, "mlp.dense_h_to_4h.bias", d->ffn, ZINF_INIT_ZERO);
    family_add_vector(list, DECODER_DOWN_B, "mlp.dense_4h_to_h.bias", h, ZINF_INIT_ZERO);
}

static int read_switches(const struct zinf_model_source *source, struct decoder *d, bool *bias)
{
    bool tied = false;
    int code;
    d->parallel = *bias = true;
    if ((code = family_read_activation(source, "hidden_act", "gelu", &d->mlp.activation)) ||
        (code = family_read_dropout(source, "attention_dropout", 0, &d->attention.dropout)) ||
        (code = family_read_dropout(source, "hidden_dropout", 0, &d->embedding_dropout)) ||
        (code =
             zinf_json_bool(source->config, source->what, "use_parallel_residual", &d->parallel)) ||
        (code = zinf_json_bool(source->config, source->what, "attention_bias", bias)) ||
        (code = zinf_json_bool(source->config, source->what, "tie_word_embeddings", &tied)))
        return code;
    d->attention.residual_dropout = d->mlp.residual_dropout = d->embedding_dropout;
    d->head = tied ? NULL : "embed_out.weight";
    return 0;
}

static int build(struct zinf_graph *graph, struct zinf_model_facts *facts,
                 const struct zinf_model_source *source)
{
    struct decoder d = {.table = "embed_in.weight",
                        .blocks = "layers",
                        .final_w = "final_layer_norm.weight",
                        .final_b = "final_layer_norm.bias"};
    struct family_list list = {0};
    bool attention_bias;
    int code;
    if ((code = family_read_counts(source, &d)) ||
        (code = read_switches(source, &d, &attention_bias)) ||
        (code = family_read_norms(source, &d, ZINF_NORM_LAYER, "layer_norm_eps", 1e-5)) ||
        (code = family_read_init(source, &d, "initializer_range", 0.02)))
        return code;
    const struct rope_source of = {.head_dim = d.attention.head_dim,
                                   .positions = d.context,
                                   .theta = 1e4,
                                   .partial = 0.25,
                                   .theta_key = "rotary_emb_base",
                                   .partial_key = "rotary_pct"};
    if ((code = rope_read(graph, source, &of, &d.attention.rope, &d.context)))
        return code;
    list.std = d.init_std;
    list_tensors(&list, &d, attention_bias);
    return family_finish(graph, facts, source, &d, &list, 2);
}

const struct zinf_family zinf_family_gpt_neox = {
    .model_type = "gpt_neox",
    .architecture = "GPTNeoXForCausalLM",
    .prefix = "gpt_neox.",
    .layers_key = "num_hidden_layers",
    .traits = &traits,
    .build = build,
    .make_config = family_make_config,
    /* buffers of old files, and a head that is tied */
    .ignored = {"*.attention.bias", "*.attention.masked_bias", "*.attention.rotary_emb.inv_freq",
                "embed_out.weight"},
};
