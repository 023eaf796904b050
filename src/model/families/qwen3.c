/* qwen3: Qwen3: norms of every query and key head, heads of 128 whatever the hidden size. */
#include "model/families/family_described.h"

#define TIED "{\"tie_word_embeddings\": true}"

static const struct family_size sizes[] = {
    {"0.6b", {28, 1024, 16, 8, 128, 3072, 151936, 40960}, TIED},
    {"1.7b", {28, 2048, 16, 8, 128, 6144, 151936, 40960}, TIED},
    {"4b", {36, 2560, 32, 8, 128, 9728, 151936, 40960}, TIED},
    {"8b", {36, 4096, 32, 8, 128, 12288, 151936, 40960}, NULL},
    {"14b", {40, 5120, 40, 8, 128, 17408, 151936, 40960}, NULL},
    {"32b", {64, 5120, 64, 8, 128, 25600, 151936, 40960}, NULL},
};
static const struct described qwen3 = {
    DESCRIBED_TRAITS(sizes),
    .traits.absent = {32, 4096, 32, 32, 128, 22016, 151936, 32768},
    .traits.always = "{\"rms_norm_eps\": 1e-6, \"initializer_range\": 0.02, "
                     "\"rope_theta\": 1000000, \"hidden_act\": \"silu\", "
                     "\"tie_word_embeddings\": false, \"bos_token_id\": 151643, "
                     "\"eos_token_id\": 151645}",
    .norm = ZINF_NORM_RMS,
    .eps = 1e-6,
    .head_norms = DESCRIBED_HEAD_NORMS,
    .qkv_bias = {"attention_bias", false},
    .proj_bias = {"attention_bias", false},
    .windows = DESCRIBED_UPPER_WINDOWS,
    .window = 4096,
    .padding = -1,
    .end_of_text = -1,
};
DESCRIBED_FAMILY(qwen3, qwen3, "qwen3", "Qwen3ForCausalLM");
