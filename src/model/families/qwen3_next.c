/*
 * qwen3_next: Qwen3-Next (Qwen Team, 2025) and the text models of Qwen3.5 (2026): three layers with
 * a gated delta rule (Yang et al., arXiv 2412.06464) to one with attention, whose heads are gated;
 * norm weights stored around 0; a quarter of each head rotates. The former and the larger of the
 * latter have experts, and one beside them that all tokens have.
 */
#include "model/families/family_composite.h"

#define LINEAR_KEYS                                                                                \
    .keys = {"linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim",              \
             "linear_value_head_dim", "linear_conv_kernel_dim"},                                   \
    .absent = {.key_heads = 16, .value_heads = 32, .key_dim = 128, .value_dim = 128, .width = 4}
#define LINEAR_LAYERS                                                                              \
    .rule = ZINF_RECURRENCE_DELTA, .types = {"linear_attention"},                                  \
    .interval_key = "full_attention_interval", .interval = 4, LINEAR_KEYS

#define LINEAR_NAMES                                                                               \
    [MIXER_OUT] = "linear_attn.out_proj.weight", [MIXER_CONV] = "linear_attn.conv1d.weight",       \
    [MIXER_STEP_BIAS] = "linear_attn.dt_bias", [MIXER_A_LOG] = "linear_attn.A_log",                \
    [MIXER_NORM] = "linear_attn.norm.weight"

static const struct described_mixer by_head = {
    LINEAR_LAYERS,
    .by_head = true,
    .names = {[MIXER_IN] = "linear_attn.in_proj_qkvz.weight",
              [MIXER_IN_B] = "linear_attn.in_proj_ba.weight",
              LINEAR_NAMES},
};
static const struct described_mixer apart = {
    LINEAR_LAYERS,
    .names = {[MIXER_IN] = "linear_attn.in_proj_qkv.weight",
              [MIXER_IN_GATE] = "linear_attn.in_proj_z.weight",
              [MIXER_IN_B] = "linear_attn.in_proj_b.weight",
              [MIXER_IN_A] = "linear_attn.in_proj_a.weight",
              LINEAR_NAMES},
};

#define EXPERTS(chosen, n_experts)                                                                 \
    .n_keys = {"num_experts", "num_local_experts"}, .ffn_key = "moe_intermediate_size",            \
    .shared_key = "shared_expert_intermediate_size", .usual = {n_experts, chosen, 512, 512},       \
    .names = {.gate = "mlp.gate.weight",                                                           \
              .list = "mlp.experts.",                                                              \
              .w_gate = "gate_proj.weight",                                                        \
              .w_up = "up_proj.weight",                                                            \
              .w_down = "down_proj.weight",                                                        \
              .shared = "mlp.shared_expert.",                                                      \
              .shared_gate = "mlp.shared_expert_gate.weight"}

static const struct described_experts experts = {EXPERTS(10, 512),
                                                 .normalised_key = "norm_topk_prob",
                                                 .normalised = true, .in_some_layers = true};

#define ALWAYS                                                                                     \
    "{\"rms_norm_eps\": 1e-6, \"initializer_range\": 0.02, \"rope_theta\": 10000000, "             \
    "\"partial_rotary_factor\": 0.25, \"full_attention_interval\": 4, \"hidden_act\": \"silu\", "  \
    "\"attention_bias\": false, \"tie_word_embeddings\": false, "                                  \
    "\"linear_num_key_heads\": 16, \"linear_num_value_heads\": 32, \"linear_key_head_dim\": 128, " \
    "\"linear_value_head_dim\": 128, \"linear_conv_kernel_dim\": 4, "
#define BLOCK                                                                                      \
    .norm = ZINF_NORM_RMS, .norm_add = 1, .eps = 1e-6, .head_norms = DESCRIBED_HEAD_NORMS,         \
    .qkv_bias = {"attention_bias", false}, .proj_bias = {"attention_bias", false}, .gated = true,  \
    .partial = 0.25, .padding = -1, .end_of_text = -1

static const struct family_size sizes[] = {
    {"80b-a3b",
     {48, 2048, 16, 2, 256, 5120, 151936, 262144},
     "{\"num_experts\": 512, \"num_experts_per_tok\": 10, \"moe_intermediate_size\": 512, "
     "\"shared_expert_intermediate_size\": 512}"},
};
static const struct described qwen3_next = {
    DESCRIBED_TRAITS(sizes),
    .traits.absent = {48, 2048, 16, 2, 256, 5632, 151936, 32768},
    .traits.always = ALWAYS "\"norm_topk_prob\": true, \"bos_token_id\": 151643, "
                            "\"eos_token_id\": 151645}",
    .traits.in_proportion = {"moe_intermediate_size", "shared_expert_intermediate_size"},
    BLOCK,
    .experts = &experts,
    .mixer = &by_head,
};
DESCRIBED_FAMILY(qwen3_next, qwen3_next, "qwen3_next", "Qwen3NextForCausalLM");

static const struct family_size sizes5[] = {
    {"9b", {32, 4096, 16, 4, 256, 12288, 248320, 262144}, NULL},
};
static const struct described qwen3_5 = {
    DESCRIBED_TRAITS(sizes5),
    .traits.absent = {32, 4096, 16, 4, 256, 12288, 248320, 32768},
    .traits.always = ALWAYS "\"bos_token_id\": 248044, \"eos_token_id\": 248044}",
    BLOCK,
    .mixer = &apart,
};
DESCRIBED_FAMILY(qwen3_5_text, qwen3_5, "qwen3_5_text", "Qwen3_5ForCausalLM");
COMPOSITE_FAMILY(qwen3_5, "qwen3_5", "Qwen3_5ForConditionalGeneration", &zinf_family_qwen3_5_text);

static const struct described_experts many = {EXPERTS(8, 256), .normalised = true};
static const struct family_size sizes5_moe[] = {
    {"35b-a3b",
     {40, 2048, 16, 2, 256, 512, 248320, 262144},
     "{\"num_experts\": 256, \"num_experts_per_tok\": 8, \"moe_intermediate_size\": 512, "
     "\"shared_expert_intermediate_size\": 512}"},
};
/* No layer is without experts, and "intermediate_size" is not read. */
static const struct described qwen3_5_moe = {
    DESCRIBED_TRAITS(sizes5_moe),
    .traits.absent = {40, 2048, 16, 2, 256, 512, 248320, 32768},
    .traits.always = ALWAYS "\"bos_token_id\": 248044, \"eos_token_id\": 248044}",
    .traits.in_proportion = {"moe_intermediate_size", "shared_expert_intermediate_size"},
    BLOCK,
    .experts = &many,
    .mixer = &apart,
};
DESCRIBED_FAMILY(qwen3_5_moe_text, qwen3_5_moe, "qwen3_5_moe_text", "Qwen3_5MoeForCausalLM");
COMPOSITE_FAMILY(qwen3_5_moe, "qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration",
                 &zinf_family_qwen3_5_moe_text);
