/* family_qwen2_moe: Qwen2 (and 1.5) with experts, and beside them one that all tokens have, weighed
 * by a sigmoid. */
#include "model/families/family_rotary.h"

static const struct rotary_size sizes[] = {
    {"1.5-a2.7b", 24, 2048, 16, 16, 5632, 151936, 8192, 1e6, 1e-6, 0, false, 0, 0, 151643, 151643},
    {"57b-a14b", 28, 3584, 28, 4, 18944, 151936, 131072, 1e6, 1e-6, 0, false, 0, 0, 151643, 151643},
};
static const struct rotary_expert_size expert_sizes[] = {{60, 4, 1408, 5632}, {64, 8, 2560, 20480}};
static const struct rotary_experts experts = {
    .n_keys = {"num_experts", "num_local_experts"},
    .ffn_key = "moe_intermediate_size",
    .shared_key = "shared_expert_intermediate_size",
    .usual = {60, 4, 1408, 5632},
    .sizes = expert_sizes,
    .normalised_key = "norm_topk_prob",
    .in_some_layers = true,
    .names.gate = "mlp.gate.weight",
    .names.list = "mlp.experts.",
    .names.w_gate = "gate_proj.weight",
    .names.w_up = "up_proj.weight",
    .names.w_down = "down_proj.weight",
    .names.shared = "mlp.shared_expert.",
    .names.shared_gate = "mlp.shared_expert_gate.weight",
};
static const struct rotary_traits traits = {
    .kv_heads = 16,
    .ffn = 5632,
    .vocab = 151936,
    .context = 32768,
    .end_of_text = -1,
    .qkv_bias = true,
    .qkv_bias_key = "qkv_bias",
    .window = ROTARY_WINDOW_EVEN,
    .experts = &experts,
    .sizes = sizes,
    .n_sizes = sizeof sizes / sizeof *sizes,
};

const struct zinf_family zinf_family_qwen2_moe = {
    .model_type = "qwen2_moe",
    .architecture = "Qwen2MoeForCausalLM",
    ROTARY_FAMILY,
};
