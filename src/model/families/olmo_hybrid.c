/*
 * olmo_hybrid: OLMo hybrid (Ai2, 2026): a gated delta rule (Yang et al., arXiv 2412.06464), behind
 * a norm and with strengths of up to 2, in three of four layers; in the others attention as OLMo
 * 2's, with norms behind the parts, mostly without positions.
 */
#include "model/families/family_described.h"

static const struct described_mixer mixer = {
    .rule = ZINF_RECURRENCE_DELTA,
    .types = {"linear_attention"},
    .interval = 4,
    .keys = {"linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim",
             "linear_value_head_dim", "linear_conv_kernel_dim"},
    .absent = {.width = 4},
    .follows_heads = true,
    .doubled_key = "linear_allow_neg_eigval",
    .norm_eps = 1e-5,
    .before1 = "attention_layer_norm",
    .before2 = "feedforward_layer_norm",
    .names = {[MIXER_IN] = "linear_attn.q_proj.weight",
              [MIXER_IN_K] = "linear_attn.k_proj.weight",
              [MIXER_IN_V] = "linear_attn.v_proj.weight",
              [MIXER_IN_GATE] = "linear_attn.g_proj.weight",
              [MIXER_IN_B] = "linear_attn.b_proj.weight",
              [MIXER_IN_A] = "linear_attn.a_proj.weight",
              [MIXER_OUT] = "linear_attn.o_proj.weight",
              [MIXER_CONV] = "linear_attn.q_conv1d.weight",
              [MIXER_CONV_K] = "linear_attn.k_conv1d.weight",
              [MIXER_CONV_V] = "linear_attn.v_conv1d.weight",
              [MIXER_STEP_BIAS] = "linear_attn.dt_bias",
              [MIXER_A_LOG] = "linear_attn.A_log",
              [MIXER_NORM] = "linear_attn.o_norm.weight"},
};
static const struct family_size sizes[] = {
    {"7b", {32, 3840, 30, 30, 0, 11008, 100352, 65536}, NULL},
};
static const struct described olmo_hybrid = {
    DESCRIBED_TRAITS(sizes),
    .traits.absent = {32, 3840, 30, 0, 0, 11008, 100352, 65536},
    .traits.always = "{\"rms_norm_eps\": 1e-6, \"initializer_range\": 0.02, "
                     "\"rope_parameters\": {\"rope_theta\": null, \"rope_type\": \"default\"}, "
                     "\"hidden_act\": \"silu\", \"attention_bias\": false, "
                     "\"linear_conv_kernel_dim\": 4, \"linear_allow_neg_eigval\": true, "
                     "\"tie_word_embeddings\": false, \"eos_token_id\": 100257, "
                     "\"pad_token_id\": 100277}",
    .norm = ZINF_NORM_RMS,
    .eps = 1e-6,
    .after1 = "post_attention_layernorm",
    .after2 = "post_feedforward_layernorm",
    .head_norms = DESCRIBED_WHOLE_NORMS,
    .mixer = &mixer,
    .qkv_bias = {"attention_bias", false},
    .proj_bias = {"attention_bias", false},
    .rotation = DESCRIBED_ROTATE_GIVEN,
    .padding = 100277,
    .end_of_text = 100257,
};
DESCRIBED_FAMILY(olmo_hybrid, olmo_hybrid, "olmo_hybrid", "OlmoHybridForCausalLM");
