/*
 * family_llama: LLaMA 1 to 3.3 (Touvron et al., arXiv 2302.13971). Biases where the configuration
 * asks for them.
 */
#include "model/families/family_rotary.h"

static const struct rotary_size sizes[] = {
    {"1-7b", 32, 4096, 32, 32, 11008, 32000, 2048, 1e4, 1e-6, 0, false, 0, 0, 1, 2},
    {"1-13b", 40, 5120, 40, 40, 13824, 32000, 2048, 1e4, 1e-6, 0, false, 0, 0, 1, 2},
    {"1-33b", 60, 6656, 52, 52, 17920, 32000, 2048, 1e4, 1e-6, 0, false, 0, 0, 1, 2},
    {"1-65b", 80, 8192, 64, 64, 22016, 32000, 2048, 1e4, 1e-6, 0, false, 0, 0, 1, 2},
    {"7b", 32, 4096, 32, 32, 11008, 32000, 4096, 1e4, 1e-5, 0, false, 0, 0, 1, 2},
    {"13b", 40, 5120, 40, 40, 13824, 32000, 4096, 1e4, 1e-5, 0, false, 0, 0, 1, 2},
    {"70b", 80, 8192, 64, 8, 28672, 32000, 4096, 1e4, 1e-5, 0, false, 0, 0, 1, 2},
    {"3-8b", 32, 4096, 32, 8, 14336, 128256, 8192, 5e5, 1e-5, 0, false, 0, 0, 128000, 128001},
    {"3-70b", 80, 8192, 64, 8, 28672, 128256, 8192, 5e5, 1e-5, 0, false, 0, 0, 128000, 128001},
    {"3.1-8b", 32, 4096, 32, 8, 14336, 128256, 131072, 5e5, 1e-5, 0, false, 8, 0, 128000, 128001},
    {"3.1-70b", 80, 8192, 64, 8, 28672, 128256, 131072, 5e5, 1e-5, 0, false, 8, 0, 128000, 128001},
    {"3.1-405b", 126, 16384, 128, 8, 53248, 128256, 131072, 5e5, 1e-5, 0, false, 8, 0, 128000,
     128001},
    {"3.2-1b", 16, 2048, 32, 8, 8192, 128256, 131072, 5e5, 1e-5, 64, true, 32, 0, 128000, 128001},
    {"3.2-3b", 28, 3072, 24, 8, 8192, 128256, 131072, 5e5, 1e-5, 128, true, 32, 0, 128000, 128001},
};
static const struct rotary_traits traits = {
    .ffn = 11008,
    .vocab = 32000,
    .context = 2048,
    .end_of_text = 2,
    .attention_bias = true,
    .mlp_bias = true,
    .sizes = sizes,
    .n_sizes = sizeof sizes / sizeof *sizes,
    .usual = 4,
};

const struct zinf_family zinf_family_llama = {
    .model_type = "llama",
    .architecture = "LlamaForCausalLM",
    ROTARY_FAMILY,
};
