/* smollm3: SmolLM3 (Hugging Face, 2025): every fourth layer does not rotate. */
#include "model/families/family_described.h"

static const struct family_size sizes[] = {
    {"3b", {36, 2048, 16, 4, 0, 11008, 128256, 65536}, NULL},
};
static const struct described smollm3 = {
    DESCRIBED_TRAITS(sizes),
    .traits.absent = {36, 2048, 16, 4, 0, 11008, 128256, 32768},
    .traits.always = "{\"rms_norm_eps\": 1e-6, \"initializer_range\": 0.02, "
                     "\"rope_theta\": 5000000.0, \"hidden_act\": \"silu\", "
                     "\"no_rope_layer_interval\": 4, \"use_sliding_window\": false, "
                     "\"tie_word_embeddings\": true, \"bos_token_id\": 128000, "
                     "\"eos_token_id\": 128001, \"pad_token_id\": 128004}",
    .norm = ZINF_NORM_RMS,
    .eps = 1e-6,
    .qkv_bias = {"attention_bias", false},
    .proj_bias = {"attention_bias", false},
    .mlp_bias = {"mlp_bias", false},
    .tied = true,
    .theta = 2e6,
    .rotation = DESCRIBED_ROTATE_LISTED,
    .windows = DESCRIBED_REQUESTED_WINDOWS,
    .pattern = 1,
    .padding = 128004,
    .end_of_text = 128001,
};
DESCRIBED_FAMILY(smollm3, smollm3, "smollm3", "SmolLM3ForCausalLM");
