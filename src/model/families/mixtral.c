/* family_mixtral: Mixtral (Jiang et al., arXiv 2401.04088): experts in every layer, whose weights
 * sum to 1. */
#include "model/families/family_rotary.h"

static const struct rotary_size sizes[] = {
    {"8x7b", 32, 4096, 32, 8, 14336, 32000, 32768, 1e6, 1e-5, 0, false, 0, 0, 1, 2},
    {"8x22b", 56, 6144, 48, 8, 16384, 32768, 65536, 1e6, 1e-5, 0, false, 0, 0, 1, 2},
};
static const struct rotary_expert_size expert_sizes[] = {{8, 2, 0, 0}, {8, 2, 0, 0}};
static const struct rotary_experts experts = {
    .n_keys = {"num_local_experts", "num_experts"},
    .usual = {8, 2, 0, 0},
    .sizes = expert_sizes,
    .jitters = true,
    .names.gate = "block_sparse_moe.gate.weight",
    .names.list = "block_sparse_moe.experts.",
    .names.w_gate = "w1.weight",
    .names.w_up = "w3.weight",
    .names.w_down = "w2.weight",
};
static const struct rotary_traits traits = {
    .kv_heads = 8,
    .ffn = 14336,
    .vocab = 32000,
    .context = 131072,
    .end_of_text = 2,
    .window = ROTARY_WINDOW_GIVEN,
    .experts = &experts,
    .sizes = sizes,
    .n_sizes = sizeof sizes / sizeof *sizes,
};

const struct zinf_family zinf_family_mixtral = {
    .model_type = "mixtral",
    .architecture = "MixtralForCausalLM",
    ROTARY_FAMILY,
};
