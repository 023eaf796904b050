/*
 * glm4: GLM-4-0414 (Z.ai, 2025): norms in front of the parts of a block and behind them, rotation
 * of half a head by neighbouring pairs. GLM-4 of 2024 (arXiv 2406.12793) has those in front alone.
 */
#include "model/families/family_described.h"

#define GLM_ALWAYS                                                                                 \
    "{\"rms_norm_eps\": 1e-5, \"initializer_range\": 0.02, \"partial_rotary_factor\": 0.5, "       \
    "\"hidden_act\": \"silu\", \"tie_word_embeddings\": false, \"eos_token_id\": 151329, "         \
    "\"pad_token_id\": 151329, "
#define GLM_BLOCK                                                                                  \
    .norm = ZINF_NORM_RMS, .eps = 1.5625e-7, .before1 = "input_layernorm",                         \
    .before2 = "post_attention_layernorm", .fused_up = true, .qkv_bias = {"attention_bias", true}, \
    .partial = 0.5, .interleaved = true, .padding = 151329, .end_of_text = 151329

static const struct family_size sizes[] = {
    {"9b", {40, 4096, 32, 2, 128, 13696, 151552, 32768}, NULL},
    {"32b", {61, 6144, 48, 2, 128, 23040, 151552, 32768}, NULL},
};
static const struct described glm4 = {
    DESCRIBED_TRAITS(sizes),
    .traits.absent = {40, 4096, 32, 2, 128, 13696, 151552, 131072},
    .traits.always = GLM_ALWAYS "\"rope_theta\": 10000.0, \"attention_bias\": false}",
    GLM_BLOCK,
    .after1 = "post_self_attn_layernorm",
    .after2 = "post_mlp_layernorm",
};
DESCRIBED_FAMILY(glm4, glm4, "glm4", "Glm4ForCausalLM");

static const struct family_size earlier_sizes[] = {
    {"9b", {40, 4096, 32, 2, 128, 13696, 151552, 131072}, NULL},
};
static const struct described glm = {
    DESCRIBED_TRAITS(earlier_sizes),
    .traits.absent = {40, 4096, 32, 2, 128, 13696, 151552, 131072},
    .traits.always = GLM_ALWAYS "\"rope_theta\": 5000000.0, \"attention_bias\": true}",
    GLM_BLOCK,
};
DESCRIBED_FAMILY(glm, glm, "glm", "GlmForCausalLM");
