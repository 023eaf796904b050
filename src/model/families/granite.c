/* granite: Granite 3 (IBM, 2024): factors for embeddings, scores, branches and logits; the same
 * with experts, whose tensors files have a layer at a time; and Granite 4 (2025), most of whose
 * layers may be recurrent (Dao and Gu, arXiv 2405.21060), and which may have experts beside its
 * feed-forward part. */
#include "model/families/family_described.h"

#include <string.h>

#define GRANITE_BLOCK                                                                              \
    .norm = ZINF_NORM_RMS, .eps = 1e-6, .qkv_bias = {"attention_bias", false},                     \
    .proj_bias = {"attention_bias", false}, .mlp_bias = {"mlp_bias", false},                       \
    .embedding_key = "embedding_multiplier", .attention_key = "attention_multiplier",              \
    .branch_key = "residual_multiplier", .divisor_key = "logits_scaling", .padding = -1,           \
    .end_of_text = 2

static const struct family_size sizes[] = {
    {"8b",
     {40, 4096, 32, 8, 0, 12800, 49155, 4096},
     "{\"attention_multiplier\": 0.0078125, \"logits_scaling\": 16.0}"},
    {"2b",
     {40, 2048, 32, 8, 0, 8192, 49155, 4096},
     "{\"attention_multiplier\": 0.015625, \"logits_scaling\": 8.0}"},
};
static const struct described granite = {
    DESCRIBED_TRAITS(sizes),
    .traits.absent = {32, 4096, 32, 0, 0, 11008, 32000, 2048},
    .traits.always = "{\"rms_norm_eps\": 1e-5, \"initializer_range\": 0.02, "
                     "\"rope_theta\": 10000.0, \"hidden_act\": \"silu\", "
                     "\"embedding_multiplier\": 12.0, \"residual_multiplier\": 0.22, "
                     "\"tie_word_embeddings\": true, \"bos_token_id\": 0, "
                     "\"eos_token_id\": 0, \"pad_token_id\": 0}",
    GRANITE_BLOCK,
};
DESCRIBED_FAMILY(granite, granite, "granite", "GraniteForCausalLM");

static const struct family_size expert_sizes[] = {
    {"1b-a400m",
     {24, 1024, 16, 8, 0, 512, 49155, 4096},
     "{\"num_local_experts\": 32, \"attention_multiplier\": 0.015625, \"logits_scaling\": 6.0}"},
    {"3b-a800m",
     {32, 1536, 24, 8, 0, 512, 49155, 4096},
     "{\"num_local_experts\": 40, \"attention_multiplier\": 0.015625, \"logits_scaling\": 6.0}"},
};
#define EXPERT_NAMES                                                                               \
    .gate = "block_sparse_moe.router.layer.weight",                                                \
    .stacked_up = "block_sparse_moe.experts.gate_up_proj",                                         \
    .stacked_down = "block_sparse_moe.experts.down_proj",                                          \
    .fused_up = "block_sparse_moe.input_linear.weight",                                            \
    .fused_down = "block_sparse_moe.output_linear.weight"
static const struct described_experts experts = {
    .n_keys = {"num_local_experts", "num_experts"},
    .usual = {8, 2, 11008, 0},
    .names = {EXPERT_NAMES},
};
static const struct described granitemoe = {
    DESCRIBED_TRAITS(expert_sizes),
    .traits.absent = {32, 4096, 32, 0, 0, 11008, 32000, 2048},
    .traits.always = "{\"rms_norm_eps\": 1e-6, \"initializer_range\": 0.02, "
                     "\"rope_theta\": 10000.0, \"hidden_act\": \"silu\", "
                     "\"num_experts_per_tok\": 8, \"embedding_multiplier\": 12.0, "
                     "\"residual_multiplier\": 0.22, \"tie_word_embeddings\": true, "
                     "\"bos_token_id\": 0, \"eos_token_id\": 0, \"pad_token_id\": 0}",
    GRANITE_BLOCK,
    .experts = &experts,
};
DESCRIBED_FAMILY(granitemoe, granitemoe, "granitemoe", "GraniteMoeForCausalLM");

#define ROTATED "{\"position_embedding_type\": \"rope\"}"

static const struct family_size sizes4[] = {
    {"4.0-micro", {40, 2560, 40, 8, 0, 8192, 100352, 131072}, ROTATED},
    {"4.0-h-micro",
     {40, 2048, 32, 8, 0, 8192, 100352, 131072},
     "{\"mamba_n_heads\": 64, \"mamba_d_head\": \"auto\", \"mamba_n_groups\": 1, "
     "\"mamba_d_state\": 128, \"mamba_d_conv\": 4, \"mamba_expand\": 2, "
     "\"mamba_conv_bias\": true, \"mamba_proj_bias\": false, \"logits_scaling\": 8.0, "
     "\"position_embedding_type\": \"nope\"}"},
    {"4.0-h-tiny",
     {40, 1536, 12, 4, 0, 1024, 100352, 131072},
     "{\"mamba_n_heads\": 48, \"mamba_d_head\": \"auto\", \"mamba_n_groups\": 1, "
     "\"mamba_d_state\": 128, \"mamba_d_conv\": 4, \"mamba_expand\": 2, "
     "\"mamba_conv_bias\": true, \"mamba_proj_bias\": false, \"logits_scaling\": 6.0, "
     "\"attention_multiplier\": 0.0078125, \"num_local_experts\": 64, "
     "\"num_experts_per_tok\": 6, \"intermediate_size\": 512, "
     "\"position_embedding_type\": \"nope\"}"},
};

static const char types_key[] = "layer_types";

/* The part that all tokens have is a shared expert to them. */
static const struct described_experts experts4 = {
    .n_keys = {"num_local_experts", "num_experts"},
    .may_be_none = true,
    .ffn_key = "intermediate_size",
    .shared_key = "shared_intermediate_size",
    .usual = {8, 2, 11008, 1024},
    .names = {EXPERT_NAMES, .shared = "shared_mlp.", .shared_up = "input_linear.weight",
              .shared_down = "output_linear.weight"},
};

/* Every tenth layer from the sixth on has attention, where any is recurrent. */
static int make_config(cJSON *config, const struct zinf_family *family,
                       const struct zinf_model_shape *shape)
{
    int64_t layers = 0, values, heads;
    int code = family_make_config(config, family, shape);
    cJSON *list = code ? NULL : cJSON_AddArrayToObject(config, types_key);
    if (!code)
        code = zinf_json_int(config, "a new model", DESCRIBED_LAYERS_KEY, &layers);
    const bool mixed = cJSON_HasObjectItem(config, "mamba_n_heads");
    if (!code && mixed) /* of 64 columns each, whatever the width */
        code = mixer_make_heads(config, "mamba_n_heads", 2, &values, &heads);
    for (int64_t i = 0; list && i < layers; i++)
        cJSON_AddItemToArray(list,
                             cJSON_CreateString(mixed && i % 10 != 5 ? "mamba" : "attention"));
    return code || list ? code : zinf_fail(-ENOMEM, "no memory for a new configuration");
}

static const struct described_mixer mixer = {MIXER_DECAY_KEYS, MIXER_DECAY_NAMES("mamba")};
static const struct described granite4 = {
    .traits.keys = {DESCRIBED_LAYERS_KEY, "hidden_size", "num_attention_heads",
                    "num_key_value_heads", "head_dim", "shared_intermediate_size", "vocab_size",
                    "max_position_embeddings"},
    .traits.sizes = sizes4,
    .traits.n_sizes = sizeof sizes4 / sizeof *sizes4,
    .traits.absent = {32, 4096, 32, 0, 0, 1024, 32000, 2048},
    .traits.always = "{\"rms_norm_eps\": 1e-5, \"initializer_range\": 0.1, "
                     "\"rope_theta\": 10000000.0, \"hidden_act\": \"silu\", "
                     "\"embedding_multiplier\": 12.0, \"residual_multiplier\": 0.22, "
                     "\"attention_multiplier\": 0.015625, \"logits_scaling\": 10.0, "
                     "\"num_local_experts\": 0, "
                     "\"tie_word_embeddings\": true, \"bos_token_id\": 100257, "
                     "\"eos_token_id\": 100257, \"pad_token_id\": 100256}",
    GRANITE_BLOCK,
    .rotation = DESCRIBED_ROTATE_NAMED,
    .fused_up = true,
    .up = "shared_mlp.input_linear",
    .down = "shared_mlp.output_linear",
    .mixer = &mixer,
    .experts = &experts4,
};
const struct zinf_family zinf_family_granite4 = {
    .model_type = "granitemoehybrid",
    .architecture = "GraniteMoeHybridForCausalLM",
    .prefix = DESCRIBED_PREFIX,
    .layers_key = DESCRIBED_LAYERS_KEY,
    .traits = &granite4.traits,
    .build = described_build,
    .make_config = make_config,
    .ignored = {DESCRIBED_IGNORED},
};
