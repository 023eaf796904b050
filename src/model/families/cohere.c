/*
 * cohere: Command R and Aya (Cohere, 2024): attention and feed-forward part beside each other
 * behind one norm with a mean, rotation by neighbouring pairs, scaled logits. Cohere 2 is the same
 * with windows in three of four layers, and only these rotate.
 */
#include "model/families/family_described.h"

#define COHERE_ALWAYS                                                                              \
    "{\"layer_norm_eps\": 1e-5, \"initializer_range\": 0.02, \"hidden_act\": \"silu\", "           \
    "\"use_qk_norm\": false, \"attention_bias\": false, \"tie_word_embeddings\": true, "           \
    "\"bos_token_id\": 5, \"eos_token_id\": 255001, \"pad_token_id\": 0, "
#define COHERE_BLOCK                                                                               \
    .norm = ZINF_NORM_LAYER, .eps_key = "layer_norm_eps", .eps = 1e-5,                             \
    .before1 = "input_layernorm", .parallel = true, .qkv_bias = {"attention_bias", false},         \
    .proj_bias = {"attention_bias", false}, .tied = true, .interleaved = true,                     \
    .logits_key = "logit_scale", .logits = 0.0625, .padding = 0, .end_of_text = 255001

static const struct family_size sizes[] = {
    {"r-35b",
     {40, 8192, 64, 64, 0, 22528, 256000, 131072},
     "{\"logit_scale\": 0.0625, \"rope_theta\": 8000000.0}"},
    {"aya-8b",
     {32, 4096, 32, 8, 0, 14336, 256000, 8192},
     "{\"logit_scale\": 0.125, \"rope_theta\": 10000.0}"},
};
static const struct described cohere = {
    DESCRIBED_TRAITS(sizes),
    .traits.absent = {40, 8192, 64, 0, 0, 22528, 256000, 8192},
    .traits.only = "{\"use_qk_norm\": false}",
    .traits.always = COHERE_ALWAYS "\"model_max_length\": 131072}",
    COHERE_BLOCK,
};
DESCRIBED_FAMILY(cohere, cohere, "cohere", "CohereForCausalLM");

static const struct family_size sizes2[] = {
    {"r7b", {32, 4096, 32, 8, 128, 14336, 256000, 132096}, "{\"logit_scale\": 0.25}"},
    {"a-111b", {64, 12288, 96, 8, 128, 36864, 256000, 16384}, "{\"logit_scale\": 0.25}"},
};
static const struct described cohere2 = {
    DESCRIBED_TRAITS(sizes2),
    .traits.absent = {40, 8192, 64, 0, 0, 22528, 256000, 8192},
    .traits.only = "{\"use_qk_norm\": false, \"use_parallel_block\": true, "
                   "\"use_parallel_embedding\": false}",
    .traits.always = COHERE_ALWAYS "\"rope_theta\": 50000.0, \"sliding_window\": 4096, "
                                   "\"sliding_window_pattern\": 4}",
    COHERE_BLOCK,
    .rotation = DESCRIBED_ROTATE_WINDOWED,
    .windows = DESCRIBED_LAYER_WINDOWS,
    .window = 4096,
    .pattern = 4,
};
DESCRIBED_FAMILY(cohere2, cohere2, "cohere2", "Cohere2ForCausalLM");
