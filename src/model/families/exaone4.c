/*
 * exaone4: EXAONE 4.0 (LG AI Research, arXiv 2507.11407): norms behind the parts of a block and
 * none in front, norms of every query and key head. With a window three of four layers have it, and
 * only these rotate.
 */
#include "model/families/family_described.h"

static const struct family_size sizes[] = {
    {"1.2b",
     {30, 2048, 32, 8, 64, 4096, 102400, 65536},
     "{\"sliding_window\": null, \"tie_word_embeddings\": true}"},
    {"32b",
     {64, 5120, 40, 8, 128, 27392, 102400, 131072},
     "{\"sliding_window\": 4096, \"sliding_window_pattern\": 4, \"tie_word_embeddings\": false}"},
};
static const struct described exaone4 = {
    DESCRIBED_TRAITS(sizes),
    .traits.absent = {32, 4096, 32, 32, 0, 16384, 102400, 2048},
    .traits.always = "{\"rms_norm_eps\": 1e-5, \"initializer_range\": 0.02, "
                     "\"rope_theta\": 1000000.0, \"hidden_act\": \"silu\", "
                     "\"bos_token_id\": 1, \"eos_token_id\": 361, \"pad_token_id\": 0}",
    .norm = ZINF_NORM_RMS,
    .eps = 1e-5,
    .after1 = "post_attention_layernorm",
    .after2 = "post_feedforward_layernorm",
    .head_norms = DESCRIBED_HEAD_NORMS,
    .rotation = DESCRIBED_ROTATE_WINDOWED,
    .windows = DESCRIBED_LAYER_WINDOWS,
    .window = 4096,
    .pattern = 4,
    .padding = -1,
    .end_of_text = 2,
};
DESCRIBED_FAMILY(exaone4, exaone4, "exaone4", "Exaone4ForCausalLM");
