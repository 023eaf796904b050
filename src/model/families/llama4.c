/*
 * llama4: the text models of Llama 4 (Meta, 2025). Three layers of four rotate neighbouring pairs
 * of queries and keys, then divide both by their size, and see the piece of the text that they are
 * in; the fourth does neither and sees all, and its queries grow with their position. All layers
 * have experts, or every other one. The one expert of a token is given its rows times the sigmoid
 * of the choice.
 */
#include "model/families/family_composite.h"

#define MAVERICK                                                                                   \
    "{\"num_local_experts\": 128, \"interleave_moe_layer_step\": 2, \"use_qk_norm\": false, "      \
    "\"rope_scaling\": null}"

static const struct family_size sizes[] = {
    {"scout", {48, 5120, 40, 8, 128, 16384, 202048, 10485760}, NULL},
    {"maverick", {48, 5120, 40, 8, 128, 16384, 202048, 1048576}, MAVERICK},
};
static const struct described_experts experts = {
    .n_keys = {"num_local_experts", "num_local_experts"},
    .ffn_key = "intermediate_size",
    .usual = {16, 1, 8192, 8192},
    .step_key = "interleave_moe_layer_step",
    .layers_key = "moe_layers",
    .never_normalised = true,
    .shared_key = "intermediate_size",
    .names =
        {
            .gate = "feed_forward.router.weight",
            .sigmoid = true,
            .weighs_rows = true,
            .fused_up = "feed_forward.experts.gate_up_proj",
            .fused_down = "feed_forward.experts.down_proj",
            .fused_order = DECODER_COLUMNS,
            .shared = "feed_forward.shared_expert.",
            .w_gate = "gate_proj.weight",
            .w_up = "up_proj.weight",
            .w_down = "down_proj.weight",
        },
};

/* Pieces that are as long as a text may be cut nothing. */
static int read_lengths(const struct zinf_model_source *source, struct decoder *d)
{
    int64_t chunk = 8192, grows = 8192;
    double growth = 0.1;
    bool tuned = true;
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(source->config, "attention_chunk_size");
    int code = zinf_json_int(source->config, source->what, "attention_chunk_size", &chunk);
    if (!code)
        code = zinf_json_int(source->config, source->what, "floor_scale", &grows);
    if (!code)
        code = zinf_json_double(source->config, source->what, "attn_scale", &growth);
    if (!code)
        code = zinf_json_bool(source->config, source->what, "attn_temperature_tuning", &tuned);
    if (!code && (chunk < 1 || grows < 1))
        code = zinf_fail(
            -EINVAL, "%s: attention_chunk_size is %lld, floor_scale %lld; they must be at least 1",
            source->what, (long long)chunk, (long long)grows);
    if (!(item && cJSON_IsNull(item)) && d->context > chunk)
        d->piece = chunk;
    if (tuned && growth != 0)
        d->still_rope = (struct rope_spec){.rotary_dims = d->attention.head_dim,
                                           .scale = 1,
                                           .still = true,
                                           .growth = (float)growth,
                                           .growth_every = grows,
                                           .growth_ahead = 1};
    return code;
}

static int read_more(const struct zinf_model_source *source, struct decoder *d)
{
    d->plain_head_norms = d->attention.norms_after_rotation = true;
    int code = zinf_json_bool(source->config, source->what, "use_qk_norm", &d->plain_head_norms);
    return code ? code : read_lengths(source, d);
}

static const struct described llama4 = {
    .traits.keys = {DESCRIBED_LAYERS_KEY, "hidden_size", "num_attention_heads",
                    "num_key_value_heads", "head_dim", "intermediate_size_mlp", "vocab_size",
                    "max_position_embeddings"},
    .traits.sizes = sizes,
    .traits.n_sizes = sizeof sizes / sizeof *sizes,
    .traits.absent = {48, 5120, 40, 8, 128, 16384, 202048, 131072},
    .traits.in_proportion = {"intermediate_size"},
    .traits.always =
        "{\"rms_norm_eps\": 1e-5, \"initializer_range\": 0.02, \"rope_theta\": 500000.0, "
        "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 16.0, "
        "\"low_freq_factor\": 1.0, \"high_freq_factor\": 1.0, "
        "\"original_max_position_embeddings\": 8192}, \"hidden_act\": \"silu\", "
        "\"tie_word_embeddings\": false, \"num_local_experts\": 16, \"num_experts_per_tok\": 1, "
        "\"intermediate_size\": 8192, \"interleave_moe_layer_step\": 1, "
        "\"no_rope_layer_interval\": 4, \"use_qk_norm\": true, \"attention_chunk_size\": 8192, "
        "\"attn_temperature_tuning\": true, \"floor_scale\": 8192, \"attn_scale\": 0.1, "
        "\"bos_token_id\": 200000, \"eos_token_id\": 200001, \"pad_token_id\": 200018}",
    .norm = ZINF_NORM_RMS,
    .eps = 1e-5,
    .experts = &experts,
    .gate = "feed_forward.gate_proj",
    .up = "feed_forward.up_proj",
    .down = "feed_forward.down_proj",
    .qkv_bias = {"attention_bias", false},
    .proj_bias = {"attention_bias", false},
    .theta = 500000,
    .interleaved = true,
    .rotation = DESCRIBED_ROTATE_LISTED,
    .padding = -1,
    .end_of_text = 200001,
    .read_more = read_more,
};
DESCRIBED_FAMILY(llama4_text, llama4, "llama4_text", "Llama4ForCausalLM");
COMPOSITE_FAMILY(llama4, "llama4", "Llama4ForConditionalGeneration", &zinf_family_llama4_text);
