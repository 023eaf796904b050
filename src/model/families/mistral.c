/* family_mistral: Mistral (Jiang et al., arXiv 2310.06825): a sliding window unless it is null. */
#include "model/families/family_rotary.h"

static const struct rotary_size sizes[] = {
    {"7b", 32, 4096, 32, 8, 14336, 32000, 32768, 1e4, 1e-5, 0, false, 0, 4096, 1, 2},
    {"7b-v0.2", 32, 4096, 32, 8, 14336, 32000, 32768, 1e6, 1e-5, 0, false, 0, 0, 1, 2},
    {"7b-v0.3", 32, 4096, 32, 8, 14336, 32768, 32768, 1e6, 1e-5, 0, false, 0, 0, 1, 2},
};
static const struct rotary_traits traits = {
    .kv_heads = 8,
    .ffn = 14336,
    .vocab = 32000,
    .context = 131072,
    .end_of_text = 2,
    .window = ROTARY_WINDOW_ALL,
    .sizes = sizes,
    .n_sizes = sizeof sizes / sizeof *sizes,
};

const struct zinf_family zinf_family_mistral = {
    .model_type = "mistral",
    .architecture = "MistralForCausalLM",
    ROTARY_FAMILY,
};
