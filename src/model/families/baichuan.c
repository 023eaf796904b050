/*
 * family_baichuan: Baichuan 1 and 2 (Yang et al., arXiv 2309.10305), whose code travels with the
 * model. q, k and v are one matrix. A configuration without max_position_embeddings is of the 13b
 * models, which have ALiBi in place of a rotation; one with z_loss_weight is of version 2, whose
 * head has unit rows.
 */
#include "model/families/family_described.h"
#include "model/rope.h"

static const char positions_key[] = "max_position_embeddings", length_key[] = "model_max_length";

static const struct family_size sizes[] = {
    {"2-7b", {32, 4096, 32, 0, 0, 11008, 125696, 4096}, "{\"z_loss_weight\": 0}"},
    {"2-13b",
     {40, 5120, 40, 0, 0, 13696, 125696, 4096},
     "{\"z_loss_weight\": 0, \"max_position_embeddings\": null}"},
    {"1-7b", {32, 4096, 32, 0, 0, 11008, 64000, 4096}, NULL},
    {"1-13b", {40, 5120, 40, 0, 0, 13696, 64000, 4096}, "{\"max_position_embeddings\": null}"},
};
static const struct family_traits traits = {
    .keys = {DESCRIBED_LAYERS_KEY, "hidden_size", "num_attention_heads", NULL, NULL,
             "intermediate_size", "vocab_size", positions_key},
    .other = {.context = length_key},
    .absent = {32, 4096, 32, 0, 0, 11008, 125696, 4096},
    .only = "{\"z_loss_weight\": 0, \"tie_word_embeddings\": false, \"rope_scaling\": null}",
    .always = "{\"rms_norm_eps\": 1e-6, \"initializer_range\": 0.02, \"hidden_act\": \"silu\", "
              "\"tie_word_embeddings\": false, \"bos_token_id\": 1, \"eos_token_id\": 2, "
              "\"pad_token_id\": 0}",
    FAMILY_SIZES(sizes),
};

static void list_tensors(struct family_list *list, const struct decoder *d)
{
    int64_t h = d->hidden;
    family_add_matrix(list, DECODER_QKV_W, "self_attn.W_pack.weight", family_qkv_rows(d), h);
    family_add_matrix(list, DECODER_PROJ_W, "self_attn.o_proj.weight", h, h);
    family_add_matrix(list, DECODER_UP_W, "mlp.gate_proj.weight", d->ffn, h);
    family_add_matrix(list, DECODER_UP_W, "mlp.up_proj.weight", d->ffn, h);
    family_add_matrix(list, DECODER_DOWN_W, "mlp.down_proj.weight", h, d->ffn);
    family_add_vector(list, DECODER_NORM1_W, "input_layernorm.weight", h, ZINF_INIT_ONE);
    family_add_vector(list, DECODER_NORM2_W, "post_attention_layernorm.weight", h, ZINF_INIT_ONE);
}

static int read_positions(struct zinf_graph *graph, const struct zinf_model_source *source,
                          struct decoder *d)
{
    const struct rope_source of = {
        .head_dim = d->attention.head_dim, .positions = d->context, .theta = 1e4, .unscaled = true};
    const cJSON *positions = cJSON_GetObjectItemCaseSensitive(source->config, positions_key);
    return cJSON_IsNumber(positions)
               ? rope_read(graph, source, &of, &d->attention.rope, &d->context)
               : family_make_slopes(graph, d, 1);
}

static int build(struct zinf_graph *graph, struct zinf_model_facts *facts,
                 const struct zinf_model_source *source)
{
    struct decoder d = {.table = "embed_tokens.weight",
                        .blocks = "layers",
                        .final_w = "norm.weight",
                        .head = "lm_head.weight"};
    struct family_list list = {0};
    int code;
    d.mlp.gated = true;
    d.unit_rows = cJSON_GetObjectItemCaseSensitive(source->config, "z_loss_weight") != NULL;
    if ((code = family_read_counts(source, &d)) ||
        (code = family_read_activation(source, "hidden_act", "silu", &d.mlp.activation)) ||
        (code = family_read_norms(source, &d, ZINF_NORM_RMS, "rms_norm_eps", 1e-6)) ||
        (code = family_read_init(source, &d, "initializer_range", 0.02)) ||
        (code = family_read_padding(source, &d, 0)) || (code = read_positions(graph, source, &d)))
        return code;
    list.std = d.init_std;
    list_tensors(&list, &d);
    return family_finish(graph, facts, source, &d, &list, 2);
}

/* The positions also under the key that all of these models have, and under that one alone where
 * they only bound the length. */
static int make_config(cJSON *config, const struct zinf_family *family,
                       const struct zinf_model_shape *shape)
{
    int code = family_make_config(config, family, shape);
    const cJSON *positions = cJSON_GetObjectItemCaseSensitive(config, positions_key);
    double length = cJSON_IsNumber(positions) ? positions->valuedouble
                    : shape->context          ? (double)shape->context
                                              : (double)traits.absent.context;
    if (!code && !cJSON_AddNumberToObject(config, length_key, length))
        code = zinf_fail(-ENOMEM, "no memory for a configuration");
    if (!code && cJSON_IsNull(positions))
        cJSON_DeleteItemFromObjectCaseSensitive(config, positions_key);
    return code;
}

const struct zinf_family zinf_family_baichuan = {
    .model_type = "baichuan",
    .architecture = "BaichuanForCausalLM",
    .prefix = DESCRIBED_PREFIX,
    .layers_key = DESCRIBED_LAYERS_KEY,
    .traits = &traits,
    .no_classes = true,
    .build = build,
    .make_config = make_config,
    .ignored = {DESCRIBED_IGNORED},
};
