/* seed_oss: Seed-OSS (ByteDance Seed, 2025): biases of queries, keys and values, and
 * dropout of both branches. */
#include "model/families/family_described.h"

static const struct family_size sizes[] = {
    {"36b", {64, 5120, 80, 8, 128, 27648, 155136, 524288}, NULL},
};
static const struct described seed_oss = {
    DESCRIBED_TRAITS(sizes),
    .traits.absent = {64, 4096, 80, 8, 128, 27648, 155136, 524288},
    .traits.always = "{\"rms_norm_eps\": 1e-6, \"initializer_range\": 0.02, "
                     "\"rope_theta\": 10000000.0, \"hidden_act\": \"silu\", "
                     "\"attention_bias\": true, \"attention_out_bias\": false, "
                     "\"attention_dropout\": 0.1, \"residual_dropout\": 0.1, "
                     "\"tie_word_embeddings\": false, \"bos_token_id\": 0, "
                     "\"eos_token_id\": 2, \"pad_token_id\": 1}",
    .norm = ZINF_NORM_RMS,
    .eps = 1e-6,
    .qkv_bias = {"attention_bias", true},
    .proj_bias = {"attention_out_bias", false},
    .mlp_bias = {"mlp_bias", false},
    .attention_dropout = 0.1,
    .residual_dropout = 0.1,
    .residual_key = "residual_dropout",
    .padding = 1,
    .end_of_text = 2,
};
DESCRIBED_FAMILY(seed_oss, seed_oss, "seed_oss", "SeedOssForCausalLM");
