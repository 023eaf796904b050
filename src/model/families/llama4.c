/*
 * llama4: the text models of Llama 4 (Meta, 2025) of which every layer has experts. Three layers of
 * four rotate neighbouring pairs of queries and keys, then divide both by their size, and see the
 * chunk of the sequence that they are in; the fourth does neither and sees all, and far behind the
 * beginning its scores grow. Up to the end of the first chunk there is no difference, and sequences
 * end there. The one expert of a token is given its rows times the sigmoid of the choice.
 */
#include "model/families/family_composite.h"

static const struct family_size sizes[] = {
    {"scout", {48, 5120, 40, 8, 128, 8192, 202048, 10485760}, NULL},
};
static const struct described_experts experts = {
    .n_keys = {"num_local_experts", "num_local_experts"},
    .usual = {16, 1, 8192, 8192},
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

/* Every layer is in the list of those that have experts. */
static int check_layers(const struct zinf_model_source *source, const struct decoder *d)
{
    static const char key[] = "moe_layers";
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(source->config, key), *item;
    int64_t n = 0;
    if (!list || cJSON_IsNull(list))
        return 0;
    cJSON_ArrayForEach(item, list) n +=
        cJSON_IsNumber(item) && item->valuedouble >= 0 && item->valuedouble < (double)d->n_layers;
    if (n >= d->n_layers)
        return 0;
    return zinf_fail(-ENOTSUP,
                     "%s: %s has %lld of %lld layers, which is not supported; all must be in it",
                     source->what, key, (long long)n, (long long)d->n_layers);
}

/* Where the first chunk ends, or scores would begin to grow, no sequence is longer. */
static int end_context(const struct zinf_model_source *source, struct decoder *d)
{
    int64_t chunk = 8192, grows = 8192;
    bool tuned = true;
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(source->config, "attention_chunk_size");
    int code = zinf_json_int(source->config, source->what, "attention_chunk_size", &chunk);
    if (!code)
        code = zinf_json_int(source->config, source->what, "floor_scale", &grows);
    if (!code)
        code = zinf_json_bool(source->config, source->what, "attn_temperature_tuning", &tuned);
    if (!code && (chunk < 1 || grows < 2))
        code = zinf_fail(
            -EINVAL,
            "%s: attention_chunk_size is %lld, floor_scale %lld; they must be at least 1 and 2",
            source->what, (long long)chunk, (long long)grows);
    if (!(item && cJSON_IsNull(item)) && d->context > chunk)
        d->context = chunk;
    if (tuned && d->context > grows - 1)
        d->context = grows - 1;
    return code;
}

static int read_more(const struct zinf_model_source *source, struct decoder *d)
{
    d->plain_head_norms = d->attention.norms_after_rotation = true;
    int code = zinf_json_bool(source->config, source->what, "use_qk_norm", &d->plain_head_norms);
    if (!code)
        code = check_layers(source, d);
    return code ? code : end_context(source, d);
}

static const struct described llama4 = {
    DESCRIBED_TRAITS(sizes),
    .traits.absent = {48, 5120, 40, 8, 128, 8192, 202048, 131072},
    .traits.only = "{\"interleave_moe_layer_step\": 1}",
    .traits.always =
        "{\"rms_norm_eps\": 1e-5, \"initializer_range\": 0.02, \"rope_theta\": 500000.0, "
        "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 16.0, "
        "\"low_freq_factor\": 1.0, \"high_freq_factor\": 1.0, "
        "\"original_max_position_embeddings\": 8192}, \"hidden_act\": \"silu\", "
        "\"tie_word_embeddings\": false, \"num_local_experts\": 16, \"num_experts_per_tok\": 1, "
        "\"intermediate_size_mlp\": 16384, \"interleave_moe_layer_step\": 1, "
        "\"no_rope_layer_interval\": 4, \"use_qk_norm\": true, \"attention_chunk_size\": 8192, "
        "\"attn_temperature_tuning\": true, \"floor_scale\": 8192, \"attn_scale\": 0.1, "
        "\"bos_token_id\": 200000, \"eos_token_id\": 200001, \"pad_token_id\": 200018}",
    .norm = ZINF_NORM_RMS,
    .eps = 1e-5,
    .experts = &experts,
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
