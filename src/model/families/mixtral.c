/* mixtral: Mixtral (Jiang et al., arXiv 2401.04088): experts in every layer, whose weights sum to
 * 1. */
#include "model/families/family_described.h"

static const struct family_size sizes[] = {
    {"8x7b", {32, 4096, 32, 8, 0, 14336, 32000, 32768}, NULL},
    {"8x22b", {56, 6144, 48, 8, 0, 16384, 32768, 65536}, NULL},
};
static const struct described_experts experts = {
    .n_keys = {"num_local_experts", "num_experts"},
    .usual = {8, 2, 0, 0},
    .jitters = true,
    .names.gate = "block_sparse_moe.gate.weight",
    .names.list = "block_sparse_moe.experts.",
    .names.w_gate = "w1.weight",
    .names.w_up = "w3.weight",
    .names.w_down = "w2.weight",
};
static const struct described mixtral = {
    DESCRIBED_TRAITS(sizes),
    .traits.absent = {32, 4096, 32, 8, 0, 14336, 32000, 131072},
    .traits.always = "{\"rms_norm_eps\": 1e-5, \"initializer_range\": 0.02, "
                     "\"rope_theta\": 1000000, \"hidden_act\": \"silu\", "
                     "\"tie_word_embeddings\": false, \"num_local_experts\": 8, "
                     "\"num_experts_per_tok\": 2, \"bos_token_id\": 1, \"eos_token_id\": 2}",
    .norm = ZINF_NORM_RMS,
    .eps = 1e-6,
    .windows = DESCRIBED_ALL_WINDOWS,
    .experts = &experts,
    .padding = -1,
    .end_of_text = 2,
};
DESCRIBED_FAMILY(mixtral, mixtral, "mixtral", "MixtralForCausalLM");
