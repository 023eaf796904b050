/*
 * gemma: Gemma (Gemma Team, arXiv 2403.08295): norm weights stored around 0, a scaled lookup, wide
 * heads, GELU by tanh also where the configuration says "gelu". Gemma 2 (arXiv 2408.00118) has
 * norms in front of the parts and behind them, soft caps of scores and logits, a window in every
 * second block. The text models of Gemma 3 (arXiv 2503.19786) have norms of every query and key
 * head in place of the soft cap of scores; five blocks with a window, then one without, each kind
 * with its own base of the rotation.
 */
#include "model/families/family_composite.h"

#include <math.h>

/* ---- what no other family has ---- */

static int read_scale(const struct zinf_model_source *source, struct decoder *d)
{
    double scalar = 256;
    int code = zinf_json_double(source->config, source->what, "query_pre_attn_scalar", &scalar);
    if (!code && !(scalar > 0))
        code = zinf_fail(-EINVAL, "%s: query_pre_attn_scalar is %g; it must be above 0",
                         source->what, scalar);
    d->attention.scale = (float)(1 / sqrt(scalar));
    return code;
}

/* A soft cap: *out 0 where it is null. */
static int read_cap(const struct zinf_model_source *source, const char *key, double usual,
                    float *out)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(source->config, key);
    *out = 0;
    if (item && cJSON_IsNull(item))
        return 0;
    int code = zinf_json_double(source->config, source->what, key, &usual);
    if (!code && item && !(usual > 0))
        code = zinf_fail(-EINVAL, "%s: %s is %g; it must be above 0, or null", source->what, key,
                         usual);
    *out = (float)usual;
    return code;
}

static int read_first(const struct zinf_model_source *source, struct decoder *d)
{
    enum zinf_activation *kind = &d->mlp.activation;
    int code = 0;
    d->embedding_scale = sqrtf((float)d->hidden);
    if (!zinf_json_has(source->config, "hidden_activation"))
        code = family_read_activation(source, "hidden_act", "gelu_pytorch_tanh", kind);
    if (*kind == ZINF_ACTIVATION_GELU_ERF)
        *kind = ZINF_ACTIVATION_GELU_TANH;
    return code;
}

static int read_second(const struct zinf_model_source *source, struct decoder *d)
{
    d->embedding_scale = sqrtf((float)d->hidden);
    int code = read_scale(source, d);
    if (!code)
        code = read_cap(source, "attn_logit_softcapping", 50, &d->attention.softcap);
    return code ? code : read_cap(source, "final_logit_softcapping", 30, &d->head_softcap);
}

static int read_third(const struct zinf_model_source *source, struct decoder *d)
{
    d->embedding_scale = sqrtf((float)d->hidden);
    int code = read_scale(source, d);
    return code ? code : read_cap(source, "final_logit_softcapping", 0, &d->head_softcap);
}

/* ---- the generations ---- */

#define GEMMA_ALWAYS                                                                               \
    "{\"rms_norm_eps\": 1e-6, \"initializer_range\": 0.02, \"bos_token_id\": 2, "                  \
    "\"eos_token_id\": 1, \"pad_token_id\": 0, "
#define GEMMA_BLOCK                                                                                \
    .norm = ZINF_NORM_RMS, .norm_add = 1, .eps = 1e-6, .order = DESCRIBED_ORDER_NORMS_LAST,        \
    .activation_key = "hidden_activation", .activation = "gelu_pytorch_tanh",                      \
    .qkv_bias = {"attention_bias", false}, .proj_bias = {"attention_bias", false}, .tied = true,   \
    .padding = 0, .end_of_text = 1
#define GEMMA_SANDWICH                                                                             \
    GEMMA_BLOCK, .before1 = "input_layernorm", .after1 = "post_attention_layernorm",               \
                 .before2 = "pre_feedforward_layernorm", .after2 = "post_feedforward_layernorm",   \
                 .windows = DESCRIBED_LAYER_WINDOWS, .window = 4096

static const struct family_size sizes[] = {
    {"2b", {18, 2048, 8, 1, 256, 16384, 256000, 8192}, NULL},
    {"7b", {28, 3072, 16, 16, 256, 24576, 256000, 8192}, NULL},
};
static const struct described gemma = {
    DESCRIBED_TRAITS(sizes),
    .traits.absent = {28, 3072, 16, 16, 256, 24576, 256000, 8192},
    .traits.only = "{\"use_bidirectional_attention\": false}",
    .traits.always = GEMMA_ALWAYS "\"rope_theta\": 10000.0, \"hidden_act\": \"gelu_pytorch_tanh\"}",
    GEMMA_BLOCK,
    .read_more = read_first,
};
DESCRIBED_FAMILY(gemma, gemma, "gemma", "GemmaForCausalLM");

static const struct family_size sizes2[] = {
    {"2b", {26, 2304, 8, 4, 256, 9216, 256000, 8192}, "{\"query_pre_attn_scalar\": 256}"},
    {"9b", {42, 3584, 16, 8, 256, 14336, 256000, 8192}, "{\"query_pre_attn_scalar\": 256}"},
    {"27b", {46, 4608, 32, 16, 128, 36864, 256000, 8192}, "{\"query_pre_attn_scalar\": 144}"},
};
static const struct described gemma2 = {
    DESCRIBED_TRAITS(sizes2),
    .traits.absent = {26, 2304, 8, 4, 256, 9216, 256000, 8192},
    .traits.only = "{\"use_bidirectional_attention\": false}",
    .traits.always =
        GEMMA_ALWAYS "\"rope_theta\": 10000.0, \"hidden_activation\": \"gelu_pytorch_tanh\", "
                     "\"sliding_window\": 4096, \"attn_logit_softcapping\": 50.0, "
                     "\"final_logit_softcapping\": 30.0}",
    GEMMA_SANDWICH,
    .pattern = 2,
    .read_more = read_second,
};
DESCRIBED_FAMILY(gemma2, gemma2, "gemma2", "Gemma2ForCausalLM");

static const struct family_size sizes3[] = {
    {"1b", {26, 1152, 4, 1, 256, 6912, 262144, 32768}, NULL},
    {"270m", {18, 640, 4, 1, 256, 2048, 262144, 32768}, NULL},
};
static const struct described gemma3 = {
    DESCRIBED_TRAITS(sizes3),
    .traits.absent = {26, 2304, 8, 4, 256, 9216, 262208, 131072},
    /* Its class in transformers reads the cap of scores and does nothing with it. */
    .traits.only = "{\"use_bidirectional_attention\": false, \"attn_logit_softcapping\": null}",
    .traits.always = GEMMA_ALWAYS
    "\"rope_theta\": 1000000.0, \"rope_local_base_freq\": 10000.0, "
    "\"query_pre_attn_scalar\": 256, \"hidden_activation\": \"gelu_pytorch_tanh\", "
    "\"sliding_window\": 512, \"sliding_window_pattern\": 6}",
    GEMMA_SANDWICH,
    .pattern = 6,
    .head_norms = DESCRIBED_HEAD_NORMS,
    .theta = 1e6,
    .local_theta_key = "rope_local_base_freq",
    .local_theta = 1e4,
    .read_more = read_third,
};
DESCRIBED_FAMILY(gemma3_text, gemma3, "gemma3_text", "Gemma3ForCausalLM");
COMPOSITE_FAMILY(gemma3, "gemma3", "Gemma3ForConditionalGeneration", &zinf_family_gemma3_text);
