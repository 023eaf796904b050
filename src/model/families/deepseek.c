/*
 * deepseek: DeepSeek-V2 (arXiv 2405.04434) and V3 (arXiv 2412.19437), and models that are V3 with
 * other numbers: Moonlight, Kimi-K2. Attention is latent; experts are chosen in
 * groups, V2's by a softmax, V3's by sigmoids with a bias of the choice; all tokens have one more
 * expert, and the first layers none.
 */
#include "model/families/family_described.h"

#define LATENT(q, kv, plain, value)                                                                \
    "\"q_lora_rank\": " #q ", \"kv_lora_rank\": " #kv ", \"qk_nope_head_dim\": " #plain            \
    ", \"qk_rope_head_dim\": 64, \"v_head_dim\": " #value
#define EXPERTS(n, chosen, wide, shared, dense, groups, groups_chosen, scale)                      \
    ", \"n_routed_experts\": " #n ", \"num_experts_per_tok\": " #chosen                            \
    ", \"moe_intermediate_size\": " #wide ", \"n_shared_experts\": " #shared                       \
    ", \"first_k_dense_replace\": " #dense ", \"n_group\": " #groups                               \
    ", \"topk_group\": " #groups_chosen ", \"routed_scaling_factor\": " #scale
#define V2_METHOD(word) ", \"topk_method\": \"" word "\""

#define NAMES                                                                                      \
    .list = "mlp.experts.", .w_gate = "gate_proj.weight", .w_up = "up_proj.weight",                \
    .w_down = "down_proj.weight", .gate = "mlp.gate.weight", .shared = "mlp.shared_experts."
#define COMMON_EXPERTS                                                                             \
    .n_keys = {"n_routed_experts", "num_local_experts"}, .ffn_key = "moe_intermediate_size",       \
    .shared_key = "n_shared_experts", .shared_counts = true, .scale_key = "routed_scaling_factor", \
    .groups_key = "n_group", .groups_chosen_key = "topk_group"
#define SIGMOIDS .choice_bias = "mlp.gate.e_score_correction_bias", .sigmoid = true, .group_top = 2
#define COMMON                                                                                     \
    .norm = ZINF_NORM_RMS, .qkv_bias = {"attention_bias", false},                                  \
    .proj_bias = {"attention_bias", false}, .interleaved = true, .padding = -1
/* "head_dim" is that of what is rotated, and all heads have keys of their own. */
#define KEYS                                                                                       \
    {                                                                                              \
        DESCRIBED_LAYERS_KEY, "hidden_size", "num_attention_heads", NULL, NULL,                    \
            "intermediate_size", "vocab_size", "max_position_embeddings"                           \
    }
#define ONLY "{\"output_router_logits\": false}"
#define ALWAYS                                                                                     \
    "\"initializer_range\": 0.02, \"hidden_act\": \"silu\", \"attention_bias\": false, "           \
    "\"tie_word_embeddings\": false, \"pad_token_id\": null"

/* ---- V2 ---- */

static const struct family_size v2_sizes[] = {
    {"lite",
     {27, 2048, 16, 0, 0, 10944, 102400, 163840},
     "{" LATENT(null, 512, 128, 128) EXPERTS(64, 6, 1408, 2, 1, 1, 1, 1.0) V2_METHOD("greedy") "}"},
    {"236b",
     {60, 5120, 128, 0, 0, 12288, 102400, 163840},
     "{" LATENT(1536, 512, 128, 128) EXPERTS(160, 6, 1536, 2, 1, 8, 3, 16.0)
         V2_METHOD("group_limited_greedy") "}"},
};
static const struct described_experts v2_experts = {
    COMMON_EXPERTS,
    .usual = {64, 0, 1407, 2},
    .never_normalised = true,
    .dense_key = "first_k_dense_replace",
    .groups_switch = "topk_method",
    .groups_word = "group_limited_greedy",
    .names = {NAMES, .group_top = 1},
};
static const struct described_latent usual_latent = {1536, 512, 128, 64, 128};
static const struct described v2 = {
    .traits =
        {
            .keys = KEYS,
            .absent = {32, 4096, 32, 0, 64, 11008, 102400, 2048},
            .only = "{\"output_router_logits\": false, \"mlp_bias\": false}",
            .always = "{" ALWAYS ", \"rms_norm_eps\": 1e-6, \"rope_theta\": 10000.0, "
                      "\"bos_token_id\": 100000, \"eos_token_id\": 100001}",
            FAMILY_SIZES(v2_sizes),
        },
    COMMON,
    .eps = 1e-6,
    .latent = &usual_latent,
    .experts = &v2_experts,
    .end_of_text = 2,
};
DESCRIBED_FAMILY(deepseek_v2, v2, "deepseek_v2", "DeepseekV2ForCausalLM");

/* ---- V3 ---- */

static const struct family_size v3_sizes[] = {
    {"671b",
     {61, 7168, 128, 0, 0, 18432, 129280, 163840},
     "{" LATENT(1536, 512, 128, 128) EXPERTS(256, 8, 2048, 1, 3, 8, 4, 2.5) "}"},
    {"moonlight-16b",
     {27, 2048, 16, 0, 0, 11264, 163840, 8192},
     "{" LATENT(null, 512, 128, 128) EXPERTS(
         64, 6, 1408, 2, 1, 1, 1, 2.446) ", \"rms_norm_eps\": 1e-5, \"rope_theta\": 50000.0}"},
    {"kimi-k2",
     {61, 7168, 64, 0, 0, 18432, 163840, 131072},
     "{" LATENT(1536, 512, 128, 128)
         EXPERTS(384, 8, 2048, 1, 1, 1, 1, 2.827) ", \"rope_theta\": 50000.0}"},
};
static const struct described_experts v3_experts = {
    COMMON_EXPERTS,
    .usual = {256, 8, 2048, 1},
    .normalised_key = "norm_topk_prob",
    .normalised = true,
    .usual_scale = 2.5,
    .usual_groups = 8,
    .usual_groups_chosen = 4,
    .dense_key = "first_k_dense_replace",
    .dense = 3,
    .names = {NAMES, SIGMOIDS},
};
static const struct described v3 = {
    .traits =
        {
            .keys = KEYS,
            .absent = {61, 7168, 128, 0, 64, 18432, 129280, 4096},
            .only = ONLY,
            .always = "{" ALWAYS ", \"rms_norm_eps\": 1e-6, \"rope_theta\": 10000.0, "
                      "\"norm_topk_prob\": true, \"rope_interleave\": true, "
                      "\"bos_token_id\": 0, \"eos_token_id\": 1}",
            FAMILY_SIZES(v3_sizes),
        },
    COMMON,
    .eps = 1e-6,
    .interleaved_key = "rope_interleave",
    .latent = &usual_latent,
    .experts = &v3_experts,
    .end_of_text = 1,
};
DESCRIBED_FAMILY(deepseek_v3, v3, "deepseek_v3", "DeepseekV3ForCausalLM");
/* What its folders call it; the class is V3's. */
DESCRIBED_FAMILY(kimi_k2, v3, "kimi_k2", "DeepseekV3ForCausalLM");
