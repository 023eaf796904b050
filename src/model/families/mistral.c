/*
 * mistral: Mistral (Jiang et al., arXiv 2310.06825): a sliding window unless it is null. Ministral
 * 3 (2025) has none, a rotation for long sequences, and queries that grow with the logarithm of
 * their position behind the length that it was first trained with.
 */
#include "model/families/family_composite.h"

#define LATER "{\"rope_theta\": 1000000, \"sliding_window\": null}"

static const struct family_size sizes[] = {
    {"7b", {32, 4096, 32, 8, 0, 14336, 32000, 32768}, NULL},
    {"7b-v0.2", {32, 4096, 32, 8, 0, 14336, 32000, 32768}, LATER},
    {"7b-v0.3", {32, 4096, 32, 8, 0, 14336, 32768, 32768}, LATER},
};
static const struct described mistral = {
    DESCRIBED_TRAITS(sizes),
    .traits.absent = {32, 4096, 32, 8, 0, 14336, 32000, 131072},
    .traits.always = "{\"rms_norm_eps\": 1e-5, \"initializer_range\": 0.02, "
                     "\"rope_theta\": 10000, \"hidden_act\": \"silu\", "
                     "\"tie_word_embeddings\": false, \"sliding_window\": 4096, "
                     "\"bos_token_id\": 1, \"eos_token_id\": 2}",
    .norm = ZINF_NORM_RMS,
    .eps = 1e-6,
    .windows = DESCRIBED_ALL_WINDOWS,
    .window = 4096,
    .padding = -1,
    .end_of_text = 2,
};
DESCRIBED_FAMILY(mistral, mistral, "mistral", "MistralForCausalLM");

static const struct family_size sizes3[] = {
    {"3b", {26, 3072, 32, 8, 128, 9216, 131072, 262144}, "{\"tie_word_embeddings\": true}"},
    {"8b", {34, 4096, 32, 8, 128, 14336, 131072, 262144}, NULL},
    {"14b", {40, 5120, 32, 8, 128, 16384, 131072, 262144}, NULL},
};

static int read_growth(const struct zinf_model_source *source, struct decoder *d)
{
    const cJSON *rope = cJSON_GetObjectItemCaseSensitive(source->config, "rope_parameters");
    double beta = 0;
    int64_t every = d->context;
    if (!cJSON_IsObject(rope))
        return zinf_fail(-EINVAL, "%s: rope_parameters is missing", source->what);
    int code = zinf_json_double(rope, source->what, "llama_4_scaling_beta", &beta);
    if (!code)
        code = zinf_json_int(rope, source->what, "original_max_position_embeddings", &every);
    d->attention.rope.growth = (float)beta;
    d->attention.rope.growth_every = every;
    return code;
}

static const struct described ministral3 = {
    DESCRIBED_TRAITS(sizes3),
    .traits.absent = {34, 4096, 32, 8, 128, 14336, 131072, 262144},
    .traits.always =
        "{\"rms_norm_eps\": 1e-5, \"initializer_range\": 0.02, \"hidden_act\": \"silu\", "
        "\"rope_parameters\": {\"rope_type\": \"yarn\", \"rope_theta\": 1000000.0, "
        "\"factor\": 16.0, \"original_max_position_embeddings\": 16384, \"beta_fast\": 32.0, "
        "\"beta_slow\": 1.0, \"mscale\": 1.0, \"mscale_all_dim\": 1.0, "
        "\"llama_4_scaling_beta\": 0.1}, \"tie_word_embeddings\": false, "
        "\"sliding_window\": null, \"bos_token_id\": 1, \"eos_token_id\": 2, "
        "\"pad_token_id\": 11}",
    .norm = ZINF_NORM_RMS,
    .eps = 1e-5,
    .windows = DESCRIBED_ALL_WINDOWS,
    .theta = 1e6,
    .padding = 11,
    .end_of_text = 2,
    .read_more = read_growth,
};
DESCRIBED_FAMILY(ministral3, ministral3, "ministral3", "Ministral3ForCausalLM");
COMPOSITE_FAMILY(mistral3, "mistral3", "Mistral3ForConditionalGeneration", &zinf_family_ministral3,
                 &zinf_family_mistral);
