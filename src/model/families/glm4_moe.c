/*
 * glm4_moe: GLM-4.5 to 4.7 (Z.ai, arXiv 2508.06471): experts by sigmoids with a bias of the choice,
 * one that all tokens have, and first layers without; half of each head rotates.
 */
#include "model/families/family_described.h"

#define MORE(experts, wide, dense, scale, norms)                                                   \
    "{\"n_routed_experts\": " #experts ", \"moe_intermediate_size\": " #wide                       \
    ", \"first_k_dense_replace\": " #dense ", \"routed_scaling_factor\": " #scale                  \
    ", \"use_qk_norm\": " #norms "}"

static const struct family_size sizes[] = {
    {"4.5-air", {46, 4096, 96, 8, 128, 10944, 151552, 131072}, MORE(128, 1408, 1, 1.0, false)},
    {"4.5", {92, 5120, 96, 8, 128, 12288, 151552, 131072}, MORE(160, 1536, 3, 2.5, true)},
};
static const struct described_experts experts = {
    .n_keys = {"n_routed_experts", "num_local_experts"},
    .ffn_key = "moe_intermediate_size",
    .usual = {128, 8, 1408, 1},
    .normalised_key = "norm_topk_prob",
    .normalised = true,
    .shared_key = "n_shared_experts",
    .shared_counts = true,
    .scale_key = "routed_scaling_factor",
    .groups_key = "n_group",
    .groups_chosen_key = "topk_group",
    .dense_key = "first_k_dense_replace",
    .dense = 1,
    .names =
        {
            .gate = "mlp.gate.weight",
            .choice_bias = "mlp.gate.e_score_correction_bias",
            .sigmoid = true,
            .group_top = 2,
            .list = "mlp.experts.",
            .w_gate = "gate_proj.weight",
            .w_up = "up_proj.weight",
            .w_down = "down_proj.weight",
            .shared = "mlp.shared_experts.",
        },
};
static const struct described glm4_moe = {
    .traits =
        {
            .keys = DESCRIBED_KEYS,
            .absent = {46, 4096, 96, 8, 0, 10944, 151552, 131072},
            .only = "{\"output_router_logits\": false}",
            .always = "{\"rms_norm_eps\": 1e-5, \"initializer_range\": 0.02, "
                      "\"rope_theta\": 1000000.0, \"partial_rotary_factor\": 0.5, "
                      "\"hidden_act\": \"silu\", \"attention_bias\": true, "
                      "\"num_experts_per_tok\": 8, \"n_shared_experts\": 1, \"n_group\": 1, "
                      "\"topk_group\": 1, \"norm_topk_prob\": true, "
                      "\"tie_word_embeddings\": false, \"eos_token_id\": 151329, "
                      "\"pad_token_id\": 151329}",
            FAMILY_SIZES(sizes),
        },
    .norm = ZINF_NORM_RMS,
    .eps = 1e-5,
    .head_norms = DESCRIBED_HEAD_NORMS,
    .head_norms_key = "use_qk_norm",
    .experts = &experts,
    .qkv_bias = {"attention_bias", false},
    .partial = 0.5,
    .padding = -1,
    .end_of_text = 151329,
};
const struct zinf_family zinf_family_glm4_moe = {
    .model_type = "glm4_moe", .architecture = "Glm4MoeForCausalLM", DESCRIBED_FAMILY(glm4_moe)};
