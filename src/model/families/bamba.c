/* bamba: Bamba (IBM, Princeton, CMU and UIUC, 2024): Mamba-2 layers (Dao and Gu, arXiv 2405.21060),
 * and attention in those that a list names, half of whose heads rotates. */
#include "model/families/family_described.h"

static const struct family_size sizes[] = {
    {"9b", {32, 4096, 32, 8, 0, 14336, 128256, 4096}, "{\"attn_layer_indices\": [9, 18, 27]}"},
};

static int read_names(const struct zinf_model_source *source, struct decoder *d)
{
    (void)source;
    d->final_w = "final_layernorm.weight";
    return 0;
}

static const struct described_mixer mixer = {
    MIXER_DECAY_KEYS,
    .attention_key = "attn_layer_indices",
    MIXER_DECAY_NAMES("mamba"),
};
static const struct described bamba = {
    DESCRIBED_TRAITS(sizes),
    .traits.absent = {32, 4096, 32, 8, 0, 14336, 128000, 262144},
    .traits.only = "{\"z_loss_coefficient\": 0.0}",
    .traits.always = "{\"rms_norm_eps\": 1e-5, \"initializer_range\": 0.02, "
                     "\"rope_theta\": 10000.0, \"partial_rotary_factor\": 0.5, "
                     "\"hidden_act\": \"silu\", \"mamba_n_heads\": 128, "
                     "\"mamba_d_head\": \"auto\", \"mamba_n_groups\": 1, "
                     "\"mamba_d_state\": 128, \"mamba_d_conv\": 4, \"mamba_expand\": 2, "
                     "\"mamba_conv_bias\": true, \"mamba_proj_bias\": false, "
                     "\"tie_word_embeddings\": false, \"bos_token_id\": 128000, "
                     "\"eos_token_id\": 128001}",
    .norm = ZINF_NORM_RMS,
    .eps = 1e-5,
    .before1 = "input_layernorm",
    .before2 = "pre_ff_layernorm",
    .gate = "feed_forward.gate_proj",
    .up = "feed_forward.up_proj",
    .down = "feed_forward.down_proj",
    .mixer = &mixer,
    .qkv_bias = {"attention_bias", false},
    .proj_bias = {"attention_bias", false},
    .mlp_bias = {"mlp_bias", false},
    .partial = 0.5,
    .padding = 0,
    .end_of_text = 2,
    .read_more = read_names,
};

static int make_config(cJSON *config, const struct zinf_family *family,
                       const struct zinf_model_shape *shape)
{
    int64_t values, heads;
    const int code = family_make_config(config, family, shape);
    return code ? code : mixer_make_heads(config, "mamba_n_heads", 2, &values, &heads);
}

const struct zinf_family zinf_family_bamba = {
    .model_type = "bamba",
    .architecture = "BambaForCausalLM",
    .prefix = DESCRIBED_PREFIX,
    .layers_key = DESCRIBED_LAYERS_KEY,
    .traits = &bamba.traits,
    .build = described_build,
    .make_config = make_config,
    .ignored = {DESCRIBED_IGNORED},
};
