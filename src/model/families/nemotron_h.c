/*
 * nemotron_h: Nemotron-H (NVIDIA, arXiv 2504.03624), Nemotron Nano 2 and 3: each layer is one part
 * behind a norm: Mamba-2 (Dao and Gu, arXiv 2405.21060), attention without positions, a
 * feed-forward part without a gate behind the square of relu, or experts of that kind.
 */
#include "model/families/family_described.h"

static const struct described_kinds kinds = {
    .list_key = "layers_block_type",
    .letters_key = "hybrid_override_pattern",
    .words = {[KIND_MIXER] = {"linear_attention", "mamba"},
              [KIND_ATTENTION] = {"full_attention", "attention"},
              [KIND_MLP] = {"mlp"},
              [KIND_EXPERTS] = {"moe"}},
    .letters = {[KIND_MIXER] = 'M', [KIND_ATTENTION] = '*', [KIND_MLP] = '-', [KIND_EXPERTS] = 'E'},
    .usual = "ME*-",
};

static const struct described_mixer mixer = {
    .rule = ZINF_RECURRENCE_DECAY,
    .keys = {"n_groups", "mamba_num_heads", "ssm_state_size", "mamba_head_dim", "conv_kernel"},
    .absent = {.key_heads = 8, .value_heads = 128, .key_dim = 128, .value_dim = 64, .width = 4},
    .conv_bias_key = "use_conv_bias",
    .bias_key = "use_bias",
    .lowest_key = "time_step_min",
    .lowest = 1e-3,
    MIXER_DECAY_NAMES("mixer"),
};

static const struct described_experts experts = {
    .n_keys = {"n_routed_experts", "num_local_experts"},
    .ffn_key = "moe_intermediate_size",
    .usual = {8, 2, 7688, 7688},
    .normalised_key = "norm_topk_prob",
    .normalised = true,
    .shared_key = "moe_shared_expert_intermediate_size",
    .scale_key = "routed_scaling_factor",
    .groups_key = "n_group",
    .groups_chosen_key = "topk_group",
    .names = {.gate = "mixer.gate.weight",
              .choice_bias = "mixer.gate.e_score_correction_bias",
              .sigmoid = true,
              .group_top = 2,
              .list = "mixer.experts.",
              .stacked_up = "mixer.experts.up_proj",
              .stacked_down = "mixer.experts.down_proj",
              .w_up = "up_proj.weight",
              .w_down = "down_proj.weight",
              .shared = "mixer.shared_experts."},
};

/* The row of the token of padding is trained as the others. */
static int read_names(const struct zinf_model_source *source, struct decoder *d)
{
    (void)source;
    d->has_padding = false;
    d->table = "embeddings.weight";
    d->final_w = "norm_f.weight";
    return 0;
}

static const struct family_size sizes[] = {
    {"8b",
     {52, 4096, 32, 8, 128, 21504, 131072, 8192},
     "{\"hybrid_override_pattern\": \"M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-\"}"},
    {"nano-2-9b",
     {56, 4480, 40, 8, 128, 15680, 131072, 131072},
     "{\"mamba_head_dim\": 80, \"hybrid_override_pattern\": "
     "\"M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-\"}"},
    {"nano-3-30b-a3b",
     {52, 2688, 32, 2, 128, 1856, 131072, 262144},
     "{\"mamba_num_heads\": 64, \"n_routed_experts\": 128, \"num_experts_per_tok\": 6, "
     "\"moe_intermediate_size\": 1856, \"moe_shared_expert_intermediate_size\": 3712, "
     "\"routed_scaling_factor\": 2.5, \"hybrid_override_pattern\": "
     "\"MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME\"}"},
};
static const struct described nemotron_h = {
    DESCRIBED_TRAITS(sizes),
    .traits.absent = {4, 4096, 32, 8, 128, 21504, 131072, 4096},
    .traits.only = "{\"mamba_hidden_act\": \"silu\", \"residual_in_fp32\": false, "
                   "\"moe_latent_size\": null, \"output_router_logits\": false}",
    .traits.always = "{\"layer_norm_epsilon\": 1e-5, \"initializer_range\": 0.02, "
                     "\"mlp_hidden_act\": \"relu2\", \"mamba_hidden_act\": \"silu\", "
                     "\"mlp_bias\": false, \"use_bias\": false, "
                     "\"use_conv_bias\": true, \"mamba_num_heads\": 128, "
                     "\"mamba_head_dim\": 64, \"n_groups\": 8, \"ssm_state_size\": 128, "
                     "\"conv_kernel\": 4, \"expand\": 2, \"time_step_min\": 0.001, "
                     "\"n_routed_experts\": 8, \"moe_intermediate_size\": 7688, "
                     "\"moe_shared_expert_intermediate_size\": 7688, "
                     "\"tie_word_embeddings\": false, \"bos_token_id\": 1, "
                     "\"eos_token_id\": 2, \"pad_token_id\": 0}",
    .traits.in_proportion = {"moe_intermediate_size", "moe_shared_expert_intermediate_size"},
    .norm = ZINF_NORM_RMS,
    .eps_key = "layer_norm_epsilon",
    .eps = 1e-5,
    .before1 = "norm",
    .before2 = "norm",
    .attention = "mixer",
    .plain_up = true,
    .up = "mixer.up_proj",
    .down = "mixer.down_proj",
    .activation_key = "mlp_hidden_act",
    .activation = "relu2",
    .kinds = &kinds,
    .experts = &experts,
    .mixer = &mixer,
    .mlp_bias = {"mlp_bias", false},
    .rotation = DESCRIBED_ROTATE_NONE,
    .padding = -1,
    .end_of_text = 2,
    .read_more = read_names,
};
const struct zinf_family zinf_family_nemotron_h = {
    .model_type = "nemotron_h",
    .architecture = "NemotronHForCausalLM",
    .prefix = "backbone.",
    .module_prefix = DESCRIBED_PREFIX,
    .layers_key = DESCRIBED_LAYERS_KEY,
    .traits = &nemotron_h.traits,
    .build = described_build,
    .make_config = family_make_config,
    .ignored = {"mtp.*"},
};
