/* qwen3_moe: Qwen3 with experts: many small ones, in all layers or in some. */
#include "model/families/family_described.h"

#define WIDE(n) "{\"moe_intermediate_size\": " #n "}"

static const struct family_size sizes[] = {
    {"30b-a3b", {48, 2048, 32, 4, 128, 6144, 151936, 40960}, WIDE(768)},
    {"235b-a22b", {94, 4096, 64, 4, 128, 12288, 151936, 40960}, WIDE(1536)},
};
static const struct described_experts experts = {
    .n_keys = {"num_experts", "num_local_experts"},
    .ffn_key = "moe_intermediate_size",
    .usual = {128, 8, 768, 0},
    .normalised_key = "norm_topk_prob",
    .in_some_layers = true,
    .names.gate = "mlp.gate.weight",
    .names.list = "mlp.experts.",
    .names.w_gate = "gate_proj.weight",
    .names.w_up = "up_proj.weight",
    .names.w_down = "down_proj.weight",
};
static const struct described qwen3_moe = {
    DESCRIBED_TRAITS(sizes),
    .traits.absent = {32, 4096, 32, 4, 0, 6144, 151936, 32768},
    .traits.always = "{\"rms_norm_eps\": 1e-6, \"initializer_range\": 0.02, "
                     "\"rope_theta\": 1000000, \"hidden_act\": \"silu\", "
                     "\"tie_word_embeddings\": false, \"num_experts\": 128, "
                     "\"num_experts_per_tok\": 8, \"norm_topk_prob\": true, "
                     "\"bos_token_id\": 151643, \"eos_token_id\": 151645}",
    .traits.in_proportion = {"moe_intermediate_size"},
    .norm = ZINF_NORM_RMS,
    .eps = 1e-6,
    .head_norms = DESCRIBED_HEAD_NORMS,
    .experts = &experts,
    .qkv_bias = {"attention_bias", false},
    .proj_bias = {"attention_bias", false},
    .windows = DESCRIBED_UPPER_WINDOWS,
    .window = 4096,
    .padding = -1,
    .end_of_text = -1,
};
DESCRIBED_FAMILY(qwen3_moe, qwen3_moe, "qwen3_moe", "Qwen3MoeForCausalLM");
