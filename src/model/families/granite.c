/* granite: Granite 3 (IBM, 2024): factors for embeddings, scores, branches and logits; and the same
 * with experts, whose tensors files have a layer at a time. */
#include "model/families/family_described.h"

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
static const struct described_experts experts = {
    .n_keys = {"num_local_experts", "num_experts"},
    .usual = {8, 2, 11008, 0},
    .names =
        {
            .gate = "block_sparse_moe.router.layer.weight",
            .stacked_up = "block_sparse_moe.experts.gate_up_proj",
            .stacked_down = "block_sparse_moe.experts.down_proj",
            .fused_up = "block_sparse_moe.input_linear.weight",
            .fused_down = "block_sparse_moe.output_linear.weight",
        },
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
