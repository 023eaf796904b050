/*
 * family_phi3: Phi-3 (Abdin et al., arXiv 2404.14219): q, k and v in one matrix of the file, gate
 * and up in another; rotation of a part of each head, with other frequencies for long sequences
 * where the configuration has "longrope"; a sliding window. Phi-4 and Phi-4-mini are of this
 * family, too (arXiv 2412.08905, 2503.01743).
 */
#include "model/families/family_rotary.h"
#include "model/rope.h"

static const struct family_size sizes[] = {
    {"mini",
     {32, 3072, 32, 32, 0, 8192, 32064, 4096},
     "{\"sliding_window\": 2047, \"original_max_position_embeddings\": 4096}"},
    {"medium",
     {40, 5120, 40, 10, 0, 17920, 32064, 4096},
     "{\"sliding_window\": 2047, \"original_max_position_embeddings\": 4096}"},
    {"4-mini",
     {32, 3072, 24, 8, 0, 8192, 200064, 4096},
     "{\"sliding_window\": null, \"original_max_position_embeddings\": 4096, "
     "\"partial_rotary_factor\": 0.75, \"tie_word_embeddings\": true}"},
    {"4-14b",
     {40, 5120, 40, 10, 0, 17920, 100352, 16384},
     "{\"sliding_window\": null, \"original_max_position_embeddings\": 16384, "
     "\"rope_theta\": 250000.0}"},
};
static const struct family_traits traits = {
    .keys = ROTARY_KEYS,
    .absent = {32, 3072, 32, 0, 0, 8192, 32064, 4096},
    .only = "{\"embd_pdrop\": 0, \"attention_bias\": false}",
    .always = "{\"rms_norm_eps\": 1e-5, \"initializer_range\": 0.02, \"rope_theta\": 10000.0, "
              "\"hidden_act\": \"silu\", \"tie_word_embeddings\": false, \"bos_token_id\": 1, "
              "\"eos_token_id\": 32000, \"pad_token_id\": 32000}",
    .sizes = sizes,
    .n_sizes = sizeof sizes / sizeof *sizes,
};

static void list_tensors(struct family_list *list, const struct decoder *d)
{
    int64_t h = d->hidden;
    family_add_matrix(list, DECODER_QKV_W, "self_attn.qkv_proj.weight", family_qkv_rows(d), h);
    family_add_matrix(list, DECODER_PROJ_W, "self_attn.o_proj.weight", h,
                      d->attention.n_heads * d->attention.head_dim);
    family_add_matrix(list, DECODER_UP_W, "mlp.gate_up_proj.weight", 2 * d->ffn, h);
    family_add_matrix(list, DECODER_DOWN_W, "mlp.down_proj.weight", h, d->ffn);
    family_add_vector(list, DECODER_NORM1_W, "input_layernorm.weight", h, ZINF_INIT_ONE);
    family_add_vector(list, DECODER_NORM2_W, "post_attention_layernorm.weight", h, ZINF_INIT_ONE);
}

static int read_switches(const struct zinf_model_source *source, struct decoder *d)
{
    bool tied = false;
    int code;
    d->mlp.gated = true;
    d->mlp.activation = ZINF_ACTIVATION_SILU;
    if ((code = family_read_activation(source, "hidden_act", &d->mlp.activation)) ||
        (code = family_read_dropout(source, "attention_dropout", 0, &d->attention.dropout)) ||
        (code = family_read_dropout(source, "resid_pdrop", 0, &d->mlp.residual_dropout)) ||
        (code = zinf_json_bool(source->config, source->what, "tie_word_embeddings", &tied)))
        return code;
    d->attention.residual_dropout = d->mlp.residual_dropout;
    d->head = tied ? NULL : "lm_head.weight";
    return family_read_window(source, d, 0);
}

static int build(struct zinf_graph *graph, struct zinf_model_facts *facts,
                 const struct zinf_model_source *source)
{
    struct decoder d = {
        .table = "embed_tokens.weight", .blocks = "layers", .final_w = "norm.weight"};
    struct family_list list = {0};
    int code;
    if ((code = family_read_counts(source, &d)) || (code = read_switches(source, &d)) ||
        (code = family_read_norms(source, &d, ZINF_NORM_RMS, "rms_norm_eps", 1e-5)) ||
        (code = family_read_init(source, &d, "initializer_range", 0.02)) ||
        (code = family_read_padding(source, &d, 32000)))
        return code;
    const struct rope_source of = {
        .head_dim = d.attention.head_dim, .positions = d.context, .theta = 1e4, .original = 4096};
    if ((code = rope_read(graph, source, &of, &d.attention.rope, &d.context)))
        return code;
    list.std = d.init_std;
    list_tensors(&list, &d);
    return family_finish(graph, facts, source, &d, &list, 32000);
}

const struct zinf_family zinf_family_phi3 = {
    .model_type = "phi3",
    .architecture = "Phi3ForCausalLM",
    .prefix = ROTARY_PREFIX,
    .layers_key = ROTARY_LAYERS_KEY,
    .traits = &traits,
    .build = build,
    .make_config = family_make_config,
    .ignores = rotary_ignores,
};
