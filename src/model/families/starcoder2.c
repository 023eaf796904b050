/*
 * starcoder2: StarCoder2 (Lozhkov et al., arXiv 2402.19173): rotary positions, grouped
 * queries and a sliding window beside layer norms, biases and a plain feed-forward part.
 */
#include "model/families/family_described.h"

static const struct family_size sizes[] = {
    {"3b",
     {30, 3072, 24, 2, 0, 12288, 49152, 16384},
     "{\"rope_theta\": 999999.4420358813, \"initializer_range\": 0.018042}"},
    {"7b",
     {32, 4608, 36, 4, 0, 18432, 49152, 16384},
     "{\"rope_theta\": 1000000, \"initializer_range\": 0.018042}"},
    {"15b",
     {40, 6144, 48, 4, 0, 24576, 49152, 16384},
     "{\"rope_theta\": 100000, \"initializer_range\": 0.01275, \"tie_word_embeddings\": false}"},
};
static const struct described starcoder2 = {
    DESCRIBED_TRAITS(sizes),
    .traits.absent = {30, 3072, 24, 2, 0, 12288, 49152, 4096},
    .traits.only = "{\"norm_type\": \"layer_norm\", \"mlp_type\": \"default\"}",
    .traits.always = "{\"norm_epsilon\": 1e-5, \"hidden_act\": \"gelu_pytorch_tanh\", "
                     "\"use_bias\": true, \"sliding_window\": 4096, "
                     "\"tie_word_embeddings\": true, \"bos_token_id\": 0, "
                     "\"eos_token_id\": 0}",
    .norm = ZINF_NORM_LAYER,
    .norm_bias = true,
    .eps_key = "norm_epsilon",
    .eps = 1e-5,
    .plain_up = true,
    .up = "mlp.c_fc",
    .down = "mlp.c_proj",
    .activation = "gelu_pytorch_tanh",
    .order = DESCRIBED_ORDER_BIASES_LAST,
    .qkv_bias = {"use_bias", true},
    .proj_bias = {"use_bias", true},
    .mlp_bias = {"use_bias", true},
    .tied = true,
    .windows = DESCRIBED_ALL_WINDOWS,
    .residual_key = "residual_dropout",
    .embedding_dropout_key = "embedding_dropout",
    .init_std = 0.018042,
    .padding = -1,
    .end_of_text = 50256,
};
DESCRIBED_FAMILY(starcoder2, starcoder2, "starcoder2", "Starcoder2ForCausalLM");
