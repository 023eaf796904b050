/* family_qwen3_moe: Qwen3 with experts: many small ones, in all layers or in some. */
#include "model/families/family_rotary.h"

static const struct rotary_size sizes[] = {
    {"30b-a3b", 48, 2048, 32, 4, 6144, 151936, 40960, 1e6, 1e-6, 128, false, 0, 0, 151643, 151645},
    {"235b-a22b", 94, 4096, 64, 4, 12288, 151936, 40960, 1e6, 1e-6, 128, false, 0, 0, 151643,
     151645},
};
static const struct rotary_expert_size expert_sizes[] = {{128, 8, 768, 0}, {128, 8, 1536, 0}};
static const struct rotary_experts experts = {
    .n_keys = {"num_experts", "num_local_experts"},
    .ffn_key = "moe_intermediate_size",
    .usual = {128, 8, 768, 0},
    .sizes = expert_sizes,
    .normalised_key = "norm_topk_prob",
    .new_normalised = true,
    .in_some_layers = true,
    .names.gate = "mlp.gate.weight",
    .names.list = "mlp.experts.",
    .names.w_gate = "gate_proj.weight",
    .names.w_up = "up_proj.weight",
    .names.w_down = "down_proj.weight",
};
static const struct rotary_traits traits = {
    .kv_heads = 4,
    .ffn = 6144,
    .vocab = 151936,
    .context = 32768,
    .end_of_text = -1,
    .attention_bias = true,
    .head_norms = true,
    .window = ROTARY_WINDOW_LAYERS,
    .experts = &experts,
    .sizes = sizes,
    .n_sizes = sizeof sizes / sizeof *sizes,
};

const struct zinf_family zinf_family_qwen3_moe = {
    .model_type = "qwen3_moe",
    .architecture = "Qwen3MoeForCausalLM",
    ROTARY_FAMILY,
};
