/* olmoe: OLMoE (Muennighoff et al., arXiv 2409.02060): 64 small experts in every layer, and norms
 * of all queries of a row together, and of all keys. */
#include "model/families/family_described.h"

static const struct family_size sizes[] = {
    {"7b-a1b", {16, 2048, 16, 16, 0, 1024, 50304, 4096}, NULL},
};
static const struct described_experts experts = {
    .n_keys = {"num_experts", "num_local_experts"},
    .usual = {64, 8, 2048, 0},
    .normalised_key = "norm_topk_prob",
    .balance = 0.01,
    .names.gate = "mlp.gate.weight",
    .names.list = "mlp.experts.",
    .names.w_gate = "gate_proj.weight",
    .names.w_up = "up_proj.weight",
    .names.w_down = "down_proj.weight",
};
static const struct described olmoe = {
    DESCRIBED_TRAITS(sizes),
    .traits.absent = {16, 2048, 16, 0, 0, 2048, 50304, 4096},
    .traits.only = "{\"clip_qkv\": null}",
    .traits.always = "{\"rms_norm_eps\": 1e-5, \"initializer_range\": 0.02, "
                     "\"rope_theta\": 10000.0, \"hidden_act\": \"silu\", "
                     "\"attention_bias\": false, \"num_experts\": 64, "
                     "\"num_experts_per_tok\": 8, \"norm_topk_prob\": false, "
                     "\"tie_word_embeddings\": false, \"eos_token_id\": 50279, "
                     "\"pad_token_id\": 1}",
    .norm = ZINF_NORM_RMS,
    .eps = 1e-5,
    .head_norms = DESCRIBED_WHOLE_NORMS,
    .experts = &experts,
    .qkv_bias = {"attention_bias", false},
    .proj_bias = {"attention_bias", false},
    .padding = 1,
    .end_of_text = 50279,
};
DESCRIBED_FAMILY(olmoe, olmoe, "olmoe", "OlmoeForCausalLM");
