/* ernie4_5: ERNIE 4.5, dense (Baidu, 2025): rotation by neighbouring pairs. */
#include "model/families/family_described.h"

static const struct family_size sizes[] = {
    {"0.3b", {18, 1024, 16, 2, 128, 3072, 103424, 131072}, NULL},
};
static const struct described ernie = {
    DESCRIBED_TRAITS(sizes),
    .traits.absent = {18, 1024, 16, 2, 128, 3072, 103424, 131072},
    .traits.always = "{\"rms_norm_eps\": 1e-5, \"initializer_range\": 0.02, "
                     "\"rope_theta\": 500000.0, \"hidden_act\": \"silu\", \"use_bias\": false, "
                     "\"tie_word_embeddings\": true, \"bos_token_id\": 1, "
                     "\"eos_token_id\": 2, \"pad_token_id\": 0}",
    .norm = ZINF_NORM_RMS,
    .eps = 1e-5,
    .qkv_bias = {"use_bias", false},
    .proj_bias = {"use_bias", false},
    .mlp_bias = {"use_bias", false},
    .tied = true,
    .theta = 5e5,
    .interleaved = true,
    .padding = 0,
    .end_of_text = 2,
};
DESCRIBED_FAMILY(ernie4_5, ernie, "ernie4_5", "Ernie4_5ForCausalLM");
