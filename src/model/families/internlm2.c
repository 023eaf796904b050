/*
 * internlm2: InternLM 2 and 2.5 (Cai et al., arXiv 2403.17297), whose code travels with the model:
 * norms without a mean, gates, and queries, keys and values in one matrix, by key and value head.
 */
#include "model/families/family_decoder.h"
#include "model/rope.h"

static const struct family_size sizes[] = {
    {"1.8b", {24, 2048, 16, 8, 0, 8192, 92544, 32768}, NULL},
    {"7b", {32, 4096, 32, 8, 0, 14336, 92544, 32768}, NULL},
    {"20b", {48, 6144, 48, 8, 0, 16384, 92544, 32768}, NULL},
};
static const struct family_traits traits = {
    .keys = {"num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", NULL,
             "intermediate_size", "vocab_size", "max_position_embeddings"},
    .absent = {32, 4096, 32, 0, 0, 11008, 103168, 2048},
    .only = "{\"bias\": false, \"tie_word_embeddings\": false}",
    .always = "{\"rms_norm_eps\": 1e-5, \"initializer_range\": 0.02, \"rope_theta\": 1000000, "
              "\"rope_scaling\": null, \"hidden_act\": \"silu\", \"bias\": false, "
              "\"tie_word_embeddings\": false, \"bos_token_id\": 1, \"eos_token_id\": 2, "
              "\"pad_token_id\": 2}",
    FAMILY_SIZES(sizes),
};

static void list_tensors(struct family_list *list, const struct decoder *d)
{
    const int64_t h = d->hidden;
    family_add_matrix(list, DECODER_QKV_W, "attention.wqkv.weight", family_qkv_rows(d), h);
    family_list_is_grouped(list);
    family_add_matrix(list, DECODER_PROJ_W, "attention.wo.weight", h, h);
    family_add_matrix(list, DECODER_UP_W, "feed_forward.w1.weight", d->ffn, h);
    family_add_matrix(list, DECODER_UP_W, "feed_forward.w3.weight", d->ffn, h);
    family_add_matrix(list, DECODER_DOWN_W, "feed_forward.w2.weight", h, d->ffn);
    family_add_vector(list, DECODER_NORM1_W, "attention_norm.weight", h, ZINF_INIT_ONE);
    family_add_vector(list, DECODER_NORM2_W, "ffn_norm.weight", h, ZINF_INIT_ONE);
}

static int build(struct zinf_graph *graph, struct zinf_model_facts *facts,
                 const struct zinf_model_source *source)
{
    struct decoder d = {.table = "tok_embeddings.weight",
                        .blocks = "layers",
                        .final_w = "norm.weight",
                        .head = "output.weight"};
    struct family_list list = {0};
    int code;
    d.mlp.gated = true;
    if ((code = family_read_counts(source, &d)) ||
        (code = family_read_activation(source, "hidden_act", "silu", &d.mlp.activation)) ||
        (code = family_read_norms(source, &d, ZINF_NORM_RMS, "rms_norm_eps", 1e-6)) ||
        (code = family_read_init(source, &d, "initializer_range", 0.02)) ||
        (code = family_read_padding(source, &d, 2)))
        return code;
    const struct rope_source of = {
        .head_dim = d.attention.head_dim, .positions = d.context, .theta = 1e4};
    if ((code = rope_read(graph, source, &of, &d.attention.rope, &d.context)))
        return code;
    list.std = d.init_std;
    list_tensors(&list, &d);
    return family_finish(graph, facts, source, &d, &list, 2);
}

const struct zinf_family zinf_family_internlm2 = {
    .model_type = "internlm2",
    .architecture = "InternLM2ForCausalLM",
    .prefix = "model.",
    .layers_key = "num_hidden_layers",
    .traits = &traits,
    .no_classes = true,
    .build = build,
    .make_config = family_make_config,
    /* frequencies follow from the configuration */
    .ignored = {"*.rotary_emb.inv_freq"},
};
