/* apertus: Apertus (Swiss AI Initiative, arXiv 2509.14233): norms of each query and key head, and a
 * feed-forward part without a gate, behind an activation whose two numbers are trained. */
#include "model/families/family_described.h"

static const struct family_size sizes[] = {
    {"8b", {32, 4096, 32, 8, 0, 21504, 131072, 65536}, NULL},
    {"70b", {80, 8192, 64, 8, 0, 43008, 131072, 65536}, NULL},
};
static const struct described_xielu xielu = {
    .word = "xielu",
    .alpha_p = "mlp.act_fn.alpha_p",
    .alpha_n = "mlp.act_fn.alpha_n",
    .beta = "mlp.act_fn.beta",
    .eps = "mlp.act_fn.eps",
};
static const struct described apertus = {
    DESCRIBED_TRAITS(sizes),
    .traits.absent = {32, 4096, 32, 0, 0, 14336, 131072, 65536},
    .traits.always =
        "{\"rms_norm_eps\": 1e-5, \"initializer_range\": 0.02, \"rope_theta\": 12000000.0, "
        "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0, "
        "\"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "
        "\"original_max_position_embeddings\": 8192}, \"hidden_act\": \"xielu\", "
        "\"tie_word_embeddings\": false, \"bos_token_id\": 1, \"eos_token_id\": 2, "
        "\"pad_token_id\": 3}",
    .norm = ZINF_NORM_RMS,
    .eps = 1e-5,
    .before1 = "attention_layernorm",
    .before2 = "feedforward_layernorm",
    .head_norms = DESCRIBED_HEAD_NORMS,
    .plain_up = true,
    .activation = "xielu",
    .xielu = &xielu,
    .qkv_bias = {"attention_bias", false},
    .proj_bias = {"attention_bias", false},
    .theta = 12e6,
    .padding = 3,
    .end_of_text = 2,
};
const struct zinf_family zinf_family_apertus = {.model_type = "apertus",
                                                .architecture = "ApertusForCausalLM",
                                                .prefix = DESCRIBED_PREFIX,
                                                .layers_key = DESCRIBED_LAYERS_KEY,
                                                .traits = &apertus.traits,
                                                .no_classes = true,
                                                .build = described_build,
                                                .make_config = family_make_config,
                                                .ignored = {DESCRIBED_IGNORED}};
