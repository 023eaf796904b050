/* qwen2_moe: Qwen2 (and 1.5) with experts, and beside them one that all tokens have, weighed by a
 * sigmoid. */
#include "model/families/family_described.h"

#define MORE(n, chosen, wide, shared)                                                              \
    "{\"num_experts\": " #n ", \"num_experts_per_tok\": " #chosen                                  \
    ", \"moe_intermediate_size\": " #wide ", \"shared_expert_intermediate_size\": " #shared "}"

static const struct family_size sizes[] = {
    {"1.5-a2.7b", {24, 2048, 16, 16, 0, 5632, 151936, 8192}, MORE(60, 4, 1408, 5632)},
    {"57b-a14b", {28, 3584, 28, 4, 0, 18944, 151936, 131072}, MORE(64, 8, 2560, 20480)},
};
static const struct described_experts experts = {
    .n_keys = {"num_experts", "num_local_experts"},
    .ffn_key = "moe_intermediate_size",
    .shared_key = "shared_expert_intermediate_size",
    .usual = {60, 4, 1408, 5632},
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
static const struct described qwen2_moe = {
    DESCRIBED_TRAITS(sizes),
    .traits.absent = {32, 4096, 32, 16, 0, 5632, 151936, 32768},
    .traits.always = "{\"rms_norm_eps\": 1e-6, \"initializer_range\": 0.02, "
                     "\"rope_theta\": 1000000, \"hidden_act\": \"silu\", "
                     "\"tie_word_embeddings\": false, \"norm_topk_prob\": false, "
                     "\"bos_token_id\": 151643, \"eos_token_id\": 151643}",
    .traits.in_proportion = {"moe_intermediate_size", "shared_expert_intermediate_size"},
    .norm = ZINF_NORM_RMS,
    .eps = 1e-6,
    .experts = &experts,
    .qkv_bias = {"qkv_bias", true},
    .windows = DESCRIBED_EVEN_WINDOWS,
    .window = 4096,
    .padding = -1,
    .end_of_text = -1,
};
DESCRIBED_FAMILY(qwen2_moe, qwen2_moe, "qwen2_moe", "Qwen2MoeForCausalLM");
