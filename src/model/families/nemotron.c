/* nemotron: Nemotron-4 and Minitron (NVIDIA, arXiv 2402.16819): norms with a mean whose weights
 * begin at 0, and a feed-forward part without a gate behind the square of relu. */
#include "model/families/family_described.h"

static const struct family_size sizes[] = {
    {"4b", {32, 3072, 24, 8, 128, 9216, 256000, 4096}, NULL},
    {"8b", {32, 4096, 48, 8, 128, 16384, 256000, 4096}, NULL},
    {"15b", {32, 6144, 48, 8, 128, 24576, 256000, 4096}, NULL},
};
static const struct described nemotron = {
    DESCRIBED_TRAITS(sizes),
    .traits.absent = {32, 6144, 48, 0, 0, 24576, 256000, 4096},
    .traits.always = "{\"norm_eps\": 1e-5, \"initializer_range\": 0.0134, "
                     "\"rope_theta\": 10000.0, \"partial_rotary_factor\": 0.5, "
                     "\"hidden_act\": \"relu2\", \"tie_word_embeddings\": false, "
                     "\"bos_token_id\": 2, \"eos_token_id\": 3}",
    .norm = ZINF_NORM_LAYER,
    .norm_bias = true,
    .norm_add = 1,
    .eps_key = "norm_eps",
    .eps = 1e-5,
    .plain_up = true,
    .activation = "relu2",
    .qkv_bias = {"attention_bias", false},
    .proj_bias = {"attention_bias", false},
    .mlp_bias = {"mlp_bias", false},
    .partial = 0.5,
    .padding = -1,
    .end_of_text = 3,
};
DESCRIBED_FAMILY(nemotron, nemotron, "nemotron", "NemotronForCausalLM");
