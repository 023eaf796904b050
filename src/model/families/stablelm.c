/* stablelm: StableLM (Stability AI, 2023): norms with a mean and a bias, rotation of a quarter of
 * each head. */
#include "model/families/family_described.h"

static const struct family_size sizes[] = {
    {"3b", {32, 2560, 32, 32, 0, 6912, 50304, 4096}, "{\"use_qkv_bias\": false}"},
    {"1.6b", {24, 2048, 32, 32, 0, 5632, 100352, 4096}, "{\"use_qkv_bias\": true}"},
};
static const struct described stablelm = {
    DESCRIBED_TRAITS(sizes),
    .traits.absent = {32, 2560, 32, 32, 0, 6912, 50304, 4096},
    .traits.only = "{\"qk_layernorm\": false, \"use_parallel_residual\": false, "
                   "\"hidden_dropout\": 0}",
    .traits.always = "{\"layer_norm_eps\": 1e-5, \"initializer_range\": 0.02, "
                     "\"rope_theta\": 10000.0, \"partial_rotary_factor\": 0.25, "
                     "\"hidden_act\": \"silu\", \"tie_word_embeddings\": false, "
                     "\"bos_token_id\": 0, \"eos_token_id\": 0}",
    .norm = ZINF_NORM_LAYER,
    .norm_bias = true,
    .eps_key = "layer_norm_eps",
    .eps = 1e-5,
    .qkv_bias = {"use_qkv_bias", false},
    .partial = 0.25,
    .padding = -1,
    .end_of_text = 0,
};
DESCRIBED_FAMILY(stablelm, stablelm, "stablelm", "StableLmForCausalLM");
