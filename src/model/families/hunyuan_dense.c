/*
 * hunyuan_dense: Hunyuan, dense (Tencent, 2025): norms of every query and key head
 * behind the rotation. Its kind "dynamic" with an "alpha" is a larger base, whatever the length.
 */
#include "model/families/family_described.h"

static const struct family_size sizes[] = {
    {"7b", {32, 4096, 32, 8, 128, 14336, 128167, 32768}, NULL},
};
static const struct described hunyuan = {
    DESCRIBED_TRAITS(sizes),
    .traits.absent = {32, 4096, 32, 0, 0, 11008, 290943, 2048},
    .traits.always = "{\"rms_norm_eps\": 1e-5, \"initializer_range\": 0.02, "
                     "\"rope_theta\": 10000.0, \"hidden_act\": \"silu\", "
                     "\"attention_bias\": false, \"tie_word_embeddings\": true, "
                     "\"bos_token_id\": 1, \"eos_token_id\": 127960, \"pad_token_id\": 127961}",
    .norm = ZINF_NORM_RMS,
    .eps = 1e-5,
    .head_norms = DESCRIBED_ROTATED_HEAD_NORMS,
    .q_norm = "self_attn.query_layernorm",
    .k_norm = "self_attn.key_layernorm",
    .qkv_bias = {"attention_bias", false},
    .proj_bias = {"attention_bias", false},
    .rope_alpha = true,
    .padding = 0,
    .end_of_text = 2,
};
DESCRIBED_FAMILY(hunyuan_dense, hunyuan, "hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM");
