/*
 * glm4_moe: GLM-4.5 to 4.7 (Z.ai, arXiv 2508.06471): experts by sigmoids with a bias of the choice,
 * one that all tokens have, and first layers without; half of each head rotates.
 */
#include "model/families/family_described.h"

#define MORE(experts, wide, dense, scale, norms)                                                   \
    "{\"n_routed_experts\": " #experts ", \"moe_intermediate_size\": " #wide                       \
    ", \"first_k_dense_replace\": " #dense ", \"routed_scaling_factor\": " #scale                  \
    ", \"use_qk_norm\": " #norms "}"

#define EXPERT_NAMES                                                                               \
    .gate = "mlp.gate.weight", .choice_bias = "mlp.gate.e_score_correction_bias", .sigmoid = true, \
    .group_top = 2, .list = "mlp.experts.", .w_gate = "gate_proj.weight",                          \
    .w_up = "up_proj.weight", .w_down = "down_proj.weight", .shared = "mlp.shared_experts."

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
    .names = {EXPERT_NAMES},
};
static const struct described glm4_moe = {
    DESCRIBED_TRAITS(sizes),
    .traits.absent = {46, 4096, 96, 8, 0, 10944, 151552, 131072},
    .traits.only = "{\"output_router_logits\": false}",
    .traits.always = "{\"rms_norm_eps\": 1e-5, \"initializer_range\": 0.02, "
                     "\"rope_theta\": 1000000.0, \"partial_rotary_factor\": 0.5, "
                     "\"hidden_act\": \"silu\", \"attention_bias\": true, "
                     "\"num_experts_per_tok\": 8, \"n_shared_experts\": 1, \"n_group\": 1, "
                     "\"topk_group\": 1, \"norm_topk_prob\": true, "
                     "\"tie_word_embeddings\": false, \"eos_token_id\": 151329, "
                     "\"pad_token_id\": 151329}",
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
DESCRIBED_FAMILY(glm4_moe, glm4_moe, "glm4_moe", "Glm4MoeForCausalLM");

/* ---- GLM-4.7-Flash: latent attention ---- */

static const struct family_size flash_sizes[] = {
    {"4.7-flash",
     {47, 2048, 20, 0, 0, 10240, 154880, 202752},
     "{\"q_lora_rank\": 768, \"kv_lora_rank\": 512, \"qk_nope_head_dim\": 192, "
     "\"qk_rope_head_dim\": 64, \"v_head_dim\": 256, \"n_routed_experts\": 64, "
     "\"num_experts_per_tok\": 4, \"moe_intermediate_size\": 1536}"},
};
static const struct described_experts flash_experts = {
    .n_keys = {"n_routed_experts", "num_local_experts"},
    .ffn_key = "moe_intermediate_size",
    .usual = {64, 4, 1536, 1},
    .normalised_key = "norm_topk_prob",
    .normalised = true,
    .shared_key = "n_shared_experts",
    .shared_counts = true,
    .scale_key = "routed_scaling_factor",
    .usual_scale = 1.8,
    .groups_key = "n_group",
    .groups_chosen_key = "topk_group",
    .types_key = "mlp_layer_types",
    .dense = 1,
    .names = {EXPERT_NAMES},
};
static const struct described_latent flash_latent = {768, 512, 192, 64, 256};
static const struct described flash = {
    .traits =
        {
            /* "head_dim" is that of what is rotated, and all heads have keys of their own. */
            .keys = {DESCRIBED_LAYERS_KEY, "hidden_size", "num_attention_heads", NULL, NULL,
                     "intermediate_size", "vocab_size", "max_position_embeddings"},
            .absent = {47, 2048, 20, 0, 64, 10240, 154880, 202752},
            .only = "{\"output_router_logits\": false}",
            .always = "{\"rms_norm_eps\": 1e-5, \"initializer_range\": 0.02, "
                      "\"rope_theta\": 1000000.0, \"rope_interleave\": true, "
                      "\"hidden_act\": \"silu\", \"attention_bias\": false, "
                      "\"n_shared_experts\": 1, \"n_group\": 1, \"topk_group\": 1, "
                      "\"norm_topk_prob\": true, \"routed_scaling_factor\": 1.8, "
                      "\"tie_word_embeddings\": false, \"pad_token_id\": 154820, "
                      "\"eos_token_id\": 154820}",
            FAMILY_SIZES(flash_sizes),
        },
    .norm = ZINF_NORM_RMS,
    .eps = 1e-5,
    .latent = &flash_latent,
    .experts = &flash_experts,
    .qkv_bias = {"attention_bias", false},
    .proj_bias = {"attention_bias", false},
    .interleaved = true,
    .interleaved_key = "rope_interleave",
    .padding = -1,
    .end_of_text = 1,
};
DESCRIBED_FAMILY(glm4_moe_lite, flash, "glm4_moe_lite", "Glm4MoeLiteForCausalLM");
