/*
 * gemma4: the text models of Gemma 4 (Google DeepMind, 2026). Norms have plain weights and stand in
 * front of the parts and behind them; queries, keys and values are normalised by head and scores
 * are not scaled. Layers without a window have wider heads, of which a part turns, and in the
 * larger models take their keys for values. The smaller models' last layers take keys and values of
 * earlier ones, and each layer adds what a table of its own has for a token. The file scales what
 * each block gives. Layers may have a choice of experts beside the feed-forward part, by a norm of
 * its own and with a trained factor of each expert.
 */
#include "model/families/family_composite.h"

#include <math.h>

static int read_side(const struct zinf_model_source *source, struct decoder *d)
{
    int64_t cols = 256, vocab = 262144;
    int code = zinf_json_int(source->config, source->what, "hidden_size_per_layer_input", &cols);
    if (!code)
        code = zinf_json_int(source->config, source->what, "vocab_size_per_layer_input", &vocab);
    if (code || !cols)
        return code;
    if (cols < 0 || vocab != d->vocab)
        return zinf_fail(-ENOTSUP,
                         "%s: hidden_size_per_layer_input %lld with vocab_size_per_layer_input "
                         "%lld is not supported; the latter must be vocab_size %lld",
                         source->what, (long long)cols, (long long)vocab, (long long)d->vocab);
    d->side = (struct decoder_side){.cols = cols,
                                    .table = "embed_tokens_per_layer.weight",
                                    .w = "per_layer_model_projection.weight",
                                    .norm_w = "per_layer_projection_norm.weight",
                                    .gate_w = "per_layer_input_gate.weight",
                                    .out_w = "per_layer_projection.weight",
                                    .after_w = "post_per_layer_input_norm.weight"};
    return 0;
}

static int read_more(const struct zinf_model_source *source, struct decoder *d)
{
    double cap = 0;
    int code = zinf_json_double(source->config, source->what, "final_logit_softcapping", &cap);
    if (!code && cap < 0)
        code = zinf_fail(-EINVAL, "%s: final_logit_softcapping is %g; it must be above 0, or null",
                         source->what, cap);
    d->head_softcap = (float)cap;
    d->embedding_scale = sqrtf((float)d->hidden);
    d->attention.scale = 1;
    return code ? code : read_side(source, d);
}

static const struct described_unwindowed global = {
    .head_dim_key = "global_head_dim",
    .head_dim = 512,
    .same_key = "attention_k_eq_v",
    .kv_heads_key = "num_global_key_value_heads",
    .layers_key = "per_layer_config",
    .rope_kind = "proportional",
    .partial = 0.25,
    .last = true,
    .takers_key = "num_kv_shared_layers",
    .wide_key = "use_double_wide_mlp",
};
static const struct described_experts experts = {
    .n_keys = {"num_experts", "num_experts"},
    .switch_key = "enable_moe_block",
    .chosen_key = "top_k_experts",
    .ffn_key = "moe_intermediate_size",
    .names =
        {
            .gate = "router.proj.weight",
            .gate_norm = "router.scale",
            .factor = "router.per_expert_scale",
            .fused_up = "experts.gate_up_proj",
            .fused_down = "experts.down_proj",
            .beside_before = "pre_feedforward_layernorm_2.weight",
            .beside_usual = "post_feedforward_layernorm_1.weight",
            .beside_after = "post_feedforward_layernorm_2.weight",
        },
};
static const struct family_size sizes[] = {
    {"31b", {60, 5376, 32, 16, 256, 21504, 262144, 262144}, NULL},
};
static const struct described gemma4 = {
    DESCRIBED_TRAITS(sizes),
    .traits.absent = {30, 2304, 8, 4, 256, 9216, 262144, 131072},
    /* Rows of images alone would see both ways. */
    .traits.only = "{\"use_bidirectional_attention\": \"vision\"}",
    .traits.always =
        "{\"rms_norm_eps\": 1e-6, \"initializer_range\": 0.02, \"bos_token_id\": 2, "
        "\"eos_token_id\": 1, \"pad_token_id\": 0, \"hidden_activation\": \"gelu_pytorch_tanh\", "
        "\"sliding_window\": 1024, \"final_logit_softcapping\": 30.0, "
        "\"global_head_dim\": 512, \"num_global_key_value_heads\": 4, \"attention_k_eq_v\": true, "
        "\"hidden_size_per_layer_input\": 0, \"num_kv_shared_layers\": 0, "
        "\"enable_moe_block\": false, \"rope_parameters\": {"
        "\"sliding_attention\": {\"rope_type\": \"default\", \"rope_theta\": 10000.0}, "
        "\"full_attention\": {\"rope_type\": \"proportional\", \"rope_theta\": 1000000.0, "
        "\"partial_rotary_factor\": 0.25}}}",
    .norm = ZINF_NORM_RMS,
    .eps = 1e-6,
    .order = DESCRIBED_ORDER_NORMS_LAST,
    .activation_key = "hidden_activation",
    .activation = "gelu_pytorch_tanh",
    .experts = &experts,
    .qkv_bias = {"attention_bias", false},
    .proj_bias = {"attention_bias", false},
    .tied = true,
    .padding = 0,
    .end_of_text = 1,
    .before1 = "input_layernorm",
    .after1 = "post_attention_layernorm",
    .before2 = "pre_feedforward_layernorm",
    .after2 = "post_feedforward_layernorm",
    .windows = DESCRIBED_LAYER_WINDOWS,
    .window = 512,
    .pattern = 6,
    .head_norms = DESCRIBED_HEAD_NORMS,
    .value_norms = true,
    .unwindowed = &global,
    .block_scale = "layer_scalar",
    .theta = 1e6,
    .local_theta_key = "rope_local_base_freq",
    .local_theta = 1e4,
    .read_more = read_more,
};

/* Old files have in layers that take keys and values what would make their own. */
#define TAKEN "layers.*.self_attn.[kv]_proj.weight", "layers.*.self_attn.[kv]_norm.weight"

/* With other heads all layers have as many keys and values. */
static int make_config(cJSON *config, const struct zinf_family *family,
                       const struct zinf_model_shape *shape)
{
    const int code = family_make_config(config, family, shape);
    if (shape->heads)
        cJSON_DeleteItemFromObjectCaseSensitive(config, global.kv_heads_key);
    return code;
}

const struct zinf_family zinf_family_gemma4_text = {.model_type = "gemma4_text",
                                                    .architecture = "Gemma4ForCausalLM",
                                                    .prefix = DESCRIBED_PREFIX,
                                                    .layers_key = DESCRIBED_LAYERS_KEY,
                                                    .traits = &gemma4.traits,
                                                    .build = described_build,
                                                    .make_config = make_config,
                                                    .ignored = {DESCRIBED_IGNORED, TAKEN}};

static const struct zinf_family *const texts[] = {&zinf_family_gemma4_text, NULL};
const struct zinf_family zinf_family_gemma4 = {.model_type = "gemma4",
                                               .architecture = "Gemma4ForConditionalGeneration",
                                               .prefix = COMPOSITE_PREFIX,
                                               .layers_key = DESCRIBED_LAYERS_KEY,
                                               .traits = texts,
                                               .no_classes = true,
                                               .build = composite_build,
                                               .make_config = composite_make_config,
                                               .ignored = {DESCRIBED_IGNORED, TAKEN}};
