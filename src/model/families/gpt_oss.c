/*
 * gpt_oss: gpt-oss (OpenAI, arXiv 2508.10925): sinks in the softmax of every head, a window in
 * every other layer, experts with biases whose gate and up are clamped. Files have the experts of
 * a layer in one tensor, [in][out], gate and up by turns.
 */
#include "model/families/family_described.h"

#define EXPERTS(n) "{\"num_local_experts\": " #n "}"

static const struct family_size sizes[] = {
    {"20b", {24, 2880, 64, 8, 64, 2880, 201088, 131072}, EXPERTS(32)},
    {"120b", {36, 2880, 64, 8, 64, 2880, 201088, 131072}, EXPERTS(128)},
};
static const struct described_experts experts = {
    .n_keys = {"num_local_experts", "num_experts"},
    .usual = {128, 4, 2880, 0},
    .clamped = true,
    .names =
        {
            .gate = "mlp.router.weight",
            .gate_b = "mlp.router.bias",
            .fused_up = "mlp.experts.gate_up_proj",
            .fused_up_b = "mlp.experts.gate_up_proj_bias",
            .fused_down = "mlp.experts.down_proj",
            .fused_down_b = "mlp.experts.down_proj_bias",
            .fused_order = DECODER_COLUMNS_BY_TURNS,
        },
};
static const struct described gpt_oss = {
    DESCRIBED_TRAITS(sizes),
    .traits.absent = {36, 2880, 64, 8, 64, 2880, 201088, 131072},
    .traits.only = "{\"swiglu_alpha\": 1.702, \"swiglu_limit\": 7}",
    .traits.always = "{\"rms_norm_eps\": 1e-5, \"initializer_range\": 0.02, "
                     "\"rope_theta\": 150000, \"rope_scaling\": {\"rope_type\": \"yarn\", "
                     "\"factor\": 32.0, \"beta_fast\": 32.0, \"beta_slow\": 1.0, "
                     "\"truncate\": false, \"original_max_position_embeddings\": 4096}, "
                     "\"hidden_act\": \"silu\", \"attention_bias\": true, "
                     "\"sliding_window\": 128, \"num_experts_per_tok\": 4, "
                     "\"experts_per_token\": 4, \"swiglu_limit\": 7.0, "
                     "\"tie_word_embeddings\": false, \"eos_token_id\": 200002, "
                     "\"pad_token_id\": 199999}",
    .norm = ZINF_NORM_RMS,
    .eps = 1e-5,
    .experts = &experts,
    .sinks = true,
    .qkv_bias = {"attention_bias", true},
    .proj_bias = {"attention_bias", true},
    .theta = 150000,
    .windows = DESCRIBED_LAYER_WINDOWS,
    .window = 128,
    .pattern = 2,
    .padding = -1,
    .end_of_text = 200002,
};
DESCRIBED_FAMILY(gpt_oss, gpt_oss, "gpt_oss", "GptOssForCausalLM");
