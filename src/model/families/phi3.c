/*
 * phi3: Phi-3 (Abdin et al., arXiv 2404.14219): q, k and v in one matrix of the file, gate
 * and up in another; rotation of a part of each head, with other frequencies for long sequences
 * where the configuration has "longrope"; a sliding window. Phi-4 and Phi-4-mini are of this
 * family, too (arXiv 2412.08905, 2503.01743).
 */
#include "model/families/family_described.h"

static const struct family_size sizes[] = {
    {"mini",
     {32, 3072, 32, 32, 0, 8192, 32064, 4096},
     "{\"sliding_window\": 2047, \"original_max_position_embeddings\": 4096}"},
    {"medium",
     {40, 5120, 40, 10, 0, 17920, 32064, 4096},
     "{\"sliding_window\": 2047, \"original_max_position_embeddings\": 4096}"},
    {"4-mini",
     {32, 3072, 24, 8, 0, 8192, 200064, 4096},
     "{\"sliding_window\": null, \"original_max_position_embeddings\": 4096, "
     "\"partial_rotary_factor\": 0.75, \"tie_word_embeddings\": true}"},
    {"4-14b",
     {40, 5120, 40, 10, 0, 17920, 100352, 16384},
     "{\"sliding_window\": null, \"original_max_position_embeddings\": 16384, "
     "\"rope_theta\": 250000.0}"},
};
static const struct described phi3 = {
    DESCRIBED_TRAITS(sizes),
    .traits.absent = {32, 3072, 32, 0, 0, 8192, 32064, 4096},
    .traits.only = "{\"embd_pdrop\": 0, \"attention_bias\": false}",
    .traits.always = "{\"rms_norm_eps\": 1e-5, \"initializer_range\": 0.02, "
                     "\"rope_theta\": 10000.0, \"hidden_act\": \"silu\", "
                     "\"tie_word_embeddings\": false, \"bos_token_id\": 1, "
                     "\"eos_token_id\": 32000, \"pad_token_id\": 32000}",
    .norm = ZINF_NORM_RMS,
    .eps = 1e-5,
    .fused_qkv = "self_attn.qkv_proj",
    .fused_up = true,
    .original = 4096,
    .windows = DESCRIBED_ALL_WINDOWS,
    .residual_key = "resid_pdrop",
    .padding = 32000,
    .end_of_text = 32000,
};
DESCRIBED_FAMILY(phi3, phi3, "phi3", "Phi3ForCausalLM");
