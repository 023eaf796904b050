/* mistral: Mistral (Jiang et al., arXiv 2310.06825): a sliding window unless it is null. */
#include "model/families/family_described.h"

#define LATER "{\"rope_theta\": 1000000, \"sliding_window\": null}"

static const struct family_size sizes[] = {
    {"7b", {32, 4096, 32, 8, 0, 14336, 32000, 32768}, NULL},
    {"7b-v0.2", {32, 4096, 32, 8, 0, 14336, 32000, 32768}, LATER},
    {"7b-v0.3", {32, 4096, 32, 8, 0, 14336, 32768, 32768}, LATER},
};
static const struct described mistral = {
    DESCRIBED_TRAITS(sizes),
    .traits.absent = {32, 4096, 32, 8, 0, 14336, 32000, 131072},
    .traits.always = "{\"rms_norm_eps\": 1e-5, \"initializer_range\": 0.02, "
                     "\"rope_theta\": 10000, \"hidden_act\": \"silu\", "
                     "\"tie_word_embeddings\": false, \"sliding_window\": 4096, "
                     "\"bos_token_id\": 1, \"eos_token_id\": 2}",
    .norm = ZINF_NORM_RMS,
    .eps = 1e-6,
    .windows = DESCRIBED_ALL_WINDOWS,
    .window = 4096,
    .padding = -1,
    .end_of_text = 2,
};
DESCRIBED_FAMILY(mistral, mistral, "mistral", "MistralForCausalLM");
