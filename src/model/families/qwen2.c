/* qwen2: Qwen2 and Qwen2.5: biases of q, k and v, windows in the upper layers if asked. */
#include "model/families/family_described.h"

#define TIED "{\"tie_word_embeddings\": true}"

static const struct family_size sizes[] = {
    {"0.5b", {24, 896, 14, 2, 0, 4864, 151936, 32768}, TIED},
    {"1.5b", {28, 1536, 12, 2, 0, 8960, 151936, 131072}, TIED},
    {"3b", {36, 2048, 16, 2, 0, 11008, 151936, 32768}, TIED},
    {"7b", {28, 3584, 28, 4, 0, 18944, 152064, 131072}, NULL},
    {"14b", {48, 5120, 40, 8, 0, 13824, 152064, 131072}, NULL},
    {"32b", {64, 5120, 40, 8, 0, 27648, 152064, 131072}, NULL},
    {"72b", {80, 8192, 64, 8, 0, 29568, 152064, 131072}, NULL},
};
static const struct described qwen2 = {
    DESCRIBED_TRAITS(sizes),
    .traits.absent = {32, 4096, 32, 32, 0, 22016, 151936, 32768},
    .traits.always = "{\"rms_norm_eps\": 1e-6, \"initializer_range\": 0.02, "
                     "\"rope_theta\": 1000000, \"hidden_act\": \"silu\", "
                     "\"tie_word_embeddings\": false, \"bos_token_id\": 151643, "
                     "\"eos_token_id\": 151643}",
    .norm = ZINF_NORM_RMS,
    .eps = 1e-6,
    .qkv_bias = {NULL, true},
    .windows = DESCRIBED_UPPER_WINDOWS,
    .window = 4096,
    .padding = -1,
    .end_of_text = -1,
};
DESCRIBED_FAMILY(qwen2, qwen2, "qwen2", "Qwen2ForCausalLM");
