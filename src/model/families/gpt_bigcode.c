/*
 * family_gpt_bigcode: SantaCoder and StarCoder (Li et al., arXiv 2305.06161): GPT-2 with one key
 * and value head for all queries, or by switch with as many, which the file then has by head.
 */
#include "model/families/family_decoder.h"

static const struct family_size sizes[] = {
    {"1b", {24, 2048, 16, 0, 0, 8192, 49152, 8192}, NULL},
    {"3b", {36, 2816, 22, 0, 0, 11264, 49152, 8192}, NULL},
    {"7b", {42, 4096, 32, 0, 0, 16384, 49152, 8192}, NULL},
    {"15b", {40, 6144, 48, 0, 0, 24576, 49152, 8192}, NULL},
    {"santacoder", {24, 2048, 16, 0, 0, 8192, 49280, 2048}, NULL},
};
static const struct family_traits traits = {
    .keys = {"n_layer", "n_embd", "n_head", NULL, NULL, "n_inner", "vocab_size", "n_positions"},
    .absent = {12, 768, 12, 0, 0, 0, 50257, 1024},
    .only = "{\"scale_attn_weights\": true, \"add_cross_attention\": false}",
    .always = "{\"activation_function\": \"gelu_pytorch_tanh\", \"attn_pdrop\": 0.1, "
              "\"embd_pdrop\": 0.1, \"resid_pdrop\": 0.1, \"layer_norm_epsilon\": 1e-5, "
              "\"initializer_range\": 0.02, \"multi_query\": true, \"bos_token_id\": 0, "
              "\"eos_token_id\": 0}",
    FAMILY_SIZES(sizes),
};

static void list_tensors(struct family_list *list, const struct decoder *d, bool by_head)
{
    const int64_t h = d->hidden, qkv = family_qkv_rows(d);
    family_add_matrix(list, DECODER_QKV_W, "attn.c_attn.weight", qkv, h);
    if (by_head)
        family_list_is_grouped(list);
    family_add_matrix(list, DECODER_PROJ_W, "attn.c_proj.weight", h, h);
    family_add_matrix(list, DECODER_UP_W, "mlp.c_fc.weight", d->ffn, h);
    family_add_matrix(list, DECODER_DOWN_W, "mlp.c_proj.weight", h, d->ffn);
    family_add_vector(list, DECODER_NORM1_W, "ln_1.weight", h, ZINF_INIT_ONE);
    family_add_vector(list, DECODER_NORM1_B, "ln_1.bias", h, ZINF_INIT_ZERO);
    family_add_vector(list, DECODER_QKV_B, "attn.c_attn.bias", qkv, ZINF_INIT_ZERO);
    if (by_head)
        family_list_is_grouped(list);
    family_add_vector(list, DECODER_PROJ_B, "attn.c_proj.bias", h, ZINF_INIT_ZERO);
    family_add_vector(list, DECODER_NORM2_W, "ln_2.weight", h, ZINF_INIT_ONE);
    family_add_vector(list, DECODER_NORM2_B, "ln_2.bias", h, ZINF_INIT_ZERO);
    family_add_vector(list, DECODER_UP_B, "mlp.c_fc.bias", d->ffn, ZINF_INIT_ZERO);
    family_add_vector(list, DECODER_DOWN_B, "mlp.c_proj.bias", h, ZINF_INIT_ZERO);
}

static int read_switches(const struct zinf_model_source *source, struct decoder *d, bool *one)
{
    bool tied = true;
    int code;
    *one = true;
    if ((code = family_read_activation(source, "activation_function", "gelu_pytorch_tanh",
                                       &d->mlp.activation)) ||
        (code = family_read_dropout(source, "attn_pdrop", 0.1, &d->attention.dropout)) ||
        (code = family_read_dropout(source, "embd_pdrop", 0.1, &d->embedding_dropout)) ||
        (code = family_read_dropout(source, "resid_pdrop", 0.1, &d->mlp.residual_dropout)) ||
        (code = zinf_json_bool(source->config, source->what, "multi_query", one)) ||
        (code = zinf_json_bool(source->config, source->what, "tie_word_embeddings", &tied)))
        return code;
    d->attention.residual_dropout = d->mlp.residual_dropout;
    d->head = tied ? NULL : "lm_head.weight";
    if (*one)
        d->attention.n_kv_heads = 1;
    return 0;
}

static int build(struct zinf_graph *graph, struct zinf_model_facts *facts,
                 const struct zinf_model_source *source)
{
    struct decoder d = {.table = "wte.weight",
                        .positions = "wpe.weight",
                        .blocks = "h",
                        .final_w = "ln_f.weight",
                        .final_b = "ln_f.bias"};
    struct family_list list = {0};
    bool one_key;
    int code;
    if ((code = family_read_counts(source, &d)) || (code = read_switches(source, &d, &one_key)) ||
        (code = family_read_norms(source, &d, ZINF_NORM_LAYER, "layer_norm_epsilon", 1e-5)) ||
        (code = family_read_init(source, &d, "initializer_range", 0.02)))
        return code;
    list.std = d.init_std;
    list_tensors(&list, &d, !one_key);
    return family_finish(graph, facts, source, &d, &list, 50256);
}

const struct zinf_family zinf_family_gpt_bigcode = {
    .model_type = "gpt_bigcode",
    .architecture = "GPTBigCodeForCausalLM",
    .prefix = "transformer.",
    .layers_key = "n_layer",
    .traits = &traits,
    .build = build,
    .make_config = family_make_config,
    /* buffers of old files, and a head that is tied */
    .ignored = {"*.attn.bias", "*.attn.masked_bias", "lm_head.weight"},
};
