/*
 * olmo2: OLMo 2 (OLMo Team, arXiv 2501.00656): norms behind the parts of a block and none in front;
 * norms of all queries of a row together, and of all keys. OLMo 3 is the same with windows in three
 * of four layers, whose rotation no scaling changes.
 */
#include "model/families/family_described.h"

#define OLMO_ALWAYS                                                                                \
    "\"rms_norm_eps\": 1e-6, \"initializer_range\": 0.02, \"rope_theta\": 500000, "                \
    "\"hidden_act\": \"silu\", \"tie_word_embeddings\": false, \"eos_token_id\": 100257, "         \
    "\"pad_token_id\": 100277"
#define OLMO_BLOCK                                                                                 \
    .norm = ZINF_NORM_RMS, .eps = 1e-5, .after1 = "post_attention_layernorm",                      \
    .after2 = "post_feedforward_layernorm", .head_norms = DESCRIBED_WHOLE_NORMS,                   \
    .qkv_bias = {"attention_bias", false}, .proj_bias = {"attention_bias", false}, .padding = 1,   \
    .end_of_text = 50279

static const struct family_size sizes2[] = {
    {"7b", {32, 4096, 32, 32, 0, 11008, 100352, 4096}, NULL},
    {"1b", {16, 2048, 16, 16, 0, 8192, 100352, 4096}, NULL},
    {"13b", {40, 5120, 40, 40, 0, 13824, 100352, 4096}, NULL},
    {"32b", {64, 5120, 40, 8, 0, 27648, 100352, 4096}, NULL},
};
static const struct described olmo2 = {
    DESCRIBED_TRAITS(sizes2),
    .traits.absent = {32, 4096, 32, 0, 0, 11008, 50304, 2048},
    .traits.only = "{\"clip_qkv\": null}",
    .traits.always = "{" OLMO_ALWAYS "}",
    OLMO_BLOCK,
};
DESCRIBED_FAMILY(olmo2, olmo2, "olmo2", "Olmo2ForCausalLM");

static const struct family_size sizes3[] = {
    {"7b", {32, 4096, 32, 32, 0, 11008, 100278, 65536}, NULL},
    {"32b", {64, 5120, 40, 8, 0, 27648, 100278, 65536}, NULL},
};
static const struct described olmo3 = {
    DESCRIBED_TRAITS(sizes3),
    .traits.absent = {32, 4096, 32, 0, 0, 11008, 50304, 2048},
    .traits.always = "{" OLMO_ALWAYS ", \"sliding_window\": 4096}",
    OLMO_BLOCK,
    .windows = DESCRIBED_LAYER_WINDOWS,
    .window = 4096,
    .pattern = 4,
    .local_theta_key = "rope_theta",
    .local_theta = 5e5,
    .theta = 5e5,
};
DESCRIBED_FAMILY(olmo3, olmo3, "olmo3", "Olmo3ForCausalLM");
