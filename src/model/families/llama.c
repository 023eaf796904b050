/*
 * llama: LLaMA 1 to 3.3 (Touvron et al., arXiv 2302.13971). Biases where the configuration asks for
 * them.
 */
#include "model/families/family_described.h"

#define FIRST "{\"rms_norm_eps\": 1e-6}"
#define THIRD "{\"rope_theta\": 500000, \"bos_token_id\": 128000, \"eos_token_id\": 128001"
#define STRETCHED(factor)                                                                          \
    THIRD ", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": " #factor                   \
          ", \"low_freq_factor\": 1, \"high_freq_factor\": 4, "                                    \
          "\"original_max_position_embeddings\": 8192}"
#define TIED ", \"tie_word_embeddings\": true"

static const struct family_size sizes[] = {
    {"7b", {32, 4096, 32, 32, 0, 11008, 32000, 4096}, NULL},
    {"13b", {40, 5120, 40, 40, 0, 13824, 32000, 4096}, NULL},
    {"70b", {80, 8192, 64, 8, 0, 28672, 32000, 4096}, NULL},
    {"1-7b", {32, 4096, 32, 32, 0, 11008, 32000, 2048}, FIRST},
    {"1-13b", {40, 5120, 40, 40, 0, 13824, 32000, 2048}, FIRST},
    {"1-33b", {60, 6656, 52, 52, 0, 17920, 32000, 2048}, FIRST},
    {"1-65b", {80, 8192, 64, 64, 0, 22016, 32000, 2048}, FIRST},
    {"3-8b", {32, 4096, 32, 8, 0, 14336, 128256, 8192}, THIRD "}"},
    {"3-70b", {80, 8192, 64, 8, 0, 28672, 128256, 8192}, THIRD "}"},
    {"3.1-8b", {32, 4096, 32, 8, 0, 14336, 128256, 131072}, STRETCHED(8) "}"},
    {"3.1-70b", {80, 8192, 64, 8, 0, 28672, 128256, 131072}, STRETCHED(8) "}"},
    {"3.1-405b", {126, 16384, 128, 8, 0, 53248, 128256, 131072}, STRETCHED(8) "}"},
    {"3.2-1b", {16, 2048, 32, 8, 64, 8192, 128256, 131072}, STRETCHED(32) TIED "}"},
    {"3.2-3b", {28, 3072, 24, 8, 128, 8192, 128256, 131072}, STRETCHED(32) TIED "}"},
};
static const struct described llama = {
    DESCRIBED_TRAITS(sizes),
    .traits.absent = {32, 4096, 32, 0, 0, 11008, 32000, 2048},
    .traits.always = "{\"rms_norm_eps\": 1e-5, \"initializer_range\": 0.02, "
                     "\"rope_theta\": 10000, \"hidden_act\": \"silu\", "
                     "\"tie_word_embeddings\": false, \"bos_token_id\": 1, "
                     "\"eos_token_id\": 2}",
    .norm = ZINF_NORM_RMS,
    .eps = 1e-6,
    .order = DESCRIBED_ORDER_MLP_LAST,
    .qkv_bias = {"attention_bias", false},
    .proj_bias = {"attention_bias", false},
    .mlp_bias = {"mlp_bias", false},
    .padding = -1,
    .end_of_text = 2,
};
DESCRIBED_FAMILY(llama, llama, "llama", "LlamaForCausalLM");
