/*
 * falcon_h1: Falcon-H1 (TII, arXiv 2507.22448): Mamba-2 (Dao and Gu, arXiv 2405.21060) beside
 * attention in every layer, behind one norm; factors of what both take and give, of keys, of the
 * columns of the mixer's product and of the feed-forward part's gate.
 */
#include "model/families/family_described.h"

#include <math.h>

static const struct described_mixer mixer = {
    MIXER_DECAY_KEYS,
    .out_bias_key = "projectors_bias",
    .width_key = "mamba_d_ssm",
    .usual_width = 1024,
    .norm_key = "mamba_rms_norm",
    .norm_first_key = "mamba_norm_before_gate",
    MIXER_DECAY_NAMES("mamba"),
};

/* ---- factors ---- */

static int check_factor(const struct zinf_model_source *source, const char *key, double factor)
{
    return isfinite(factor) && factor != 0 && fabs(factor) < 1e9
               ? 0
               : zinf_fail(-EINVAL, "%s: %s has %g; a factor must not be 0", source->what, key,
                           factor);
}

static int read_factor(const struct zinf_model_source *source, const char *key, double *out)
{
    *out = 1;
    int code = zinf_json_double(source->config, source->what, key, out);
    return code ? code : check_factor(source, key, *out);
}

/* A list of n; absent: ones. */
static int read_list(const struct zinf_model_source *source, const char *key, int n, double *out)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(source->config, key);
    const bool given = list && !cJSON_IsNull(list);
    int code = 0;
    if (given && (!cJSON_IsArray(list) || cJSON_GetArraySize(list) != n))
        return zinf_fail(-EINVAL, "%s: %s must be a list of %d numbers", source->what, key, n);
    for (int i = 0; !code && i < n; i++) {
        out[i] = given ? cJSON_GetNumberValue(cJSON_GetArrayItem(list, i)) : 1;
        code = check_factor(source, key, out[i]);
    }
    return code;
}

static void add_range(struct scales_spec *s, int64_t cols, double factor)
{
    s->ranges[s->n].cols = cols;
    s->ranges[s->n++].factor = (float)factor;
}

/* A factor of rows is one of their product where that has no bias. */
static int check_bias(const struct zinf_model_source *source, const char *key, const char *bias_key,
                      double factor)
{
    bool biased = false;
    int code = zinf_json_bool(source->config, source->what, bias_key, &biased);
    return code || !biased || factor == 1
               ? code
               : zinf_fail(-ENOTSUP, "%s: %s is %g and %s true: only one of them is supported",
                           source->what, key, factor, bias_key);
}

static int read_attention(const struct zinf_model_source *source, struct decoder *d)
{
    static const char in_key[] = "attention_in_multiplier";
    struct attention_spec *a = &d->attention;
    double in, keys, out;
    int code;
    if ((code = read_factor(source, in_key, &in)) ||
        (code = read_factor(source, "key_multiplier", &keys)) ||
        (code = read_factor(source, "attention_out_multiplier", &out)) ||
        (code = check_bias(source, in_key, "attention_bias", in)))
        return code;
    add_range(&a->scales, a->n_heads * a->head_dim, in);
    add_range(&a->scales, a->n_kv_heads * a->head_dim, in * keys);
    add_range(&a->scales, a->n_kv_heads * a->head_dim, in);
    a->branch_scale = (float)out;
    return 0;
}

/* In the order of the product's columns. */
static int read_mixer(const struct zinf_model_source *source, struct decoder *d)
{
    static const char in_key[] = "ssm_in_multiplier";
    const struct mixer_spec *m = &d->mixer;
    const int64_t values = m->value_heads * m->value_dim, keys = m->key_heads * m->key_dim;
    const int64_t cols[] = {values, values, keys, keys, m->value_heads};
    double in, out, parts[5];
    int code;
    if ((code = read_factor(source, in_key, &in)) ||
        (code = read_factor(source, "ssm_out_multiplier", &out)) ||
        (code = read_list(source, "ssm_multipliers", 5, parts)) ||
        (code = check_bias(source, in_key, "mamba_proj_bias", in)))
        return code;
    for (int i = 0; i < 5; i++)
        add_range(&d->mixer_scales, cols[i], in * parts[i]);
    d->mixer_branch_scale = (float)out;
    return 0;
}

static int read_more(const struct zinf_model_source *source, struct decoder *d)
{
    double mlp[2];
    int code;
    d->final_w = "final_layernorm.weight";
    if ((code = read_attention(source, d)) || (code = read_mixer(source, d)) ||
        (code = read_list(source, "mlp_multipliers", 2, mlp)))
        return code;
    add_range(&d->mlp.scales, d->ffn, mlp[0]);
    d->mlp.branch_scale = (float)mlp[1];
    return 0;
}

/* ---- the family ---- */

static const struct family_size sizes[] = {
    {"0.5b",
     {36, 1024, 8, 2, 64, 2048, 32784, 16384},
     "{\"rope_theta\": 100000000000.0, \"mamba_d_state\": 128}"},
};
static const struct described falcon_h1 = {
    DESCRIBED_TRAITS(sizes),
    .traits.absent = {32, 4096, 32, 8, 0, 14336, 128000, 8192},
    .traits.always = "{\"rms_norm_eps\": 1e-5, \"initializer_range\": 0.02, "
                     "\"hidden_act\": \"silu\", \"mamba_d_head\": \"auto\", "
                     "\"mamba_n_groups\": 1, \"mamba_d_conv\": 4, \"mamba_expand\": 2, "
                     "\"mamba_conv_bias\": true, \"mamba_proj_bias\": false, "
                     "\"projectors_bias\": false, \"mamba_rms_norm\": false, "
                     "\"attention_bias\": false, \"mlp_bias\": false, "
                     "\"tie_word_embeddings\": false, \"bos_token_id\": 1, "
                     "\"eos_token_id\": 11, \"pad_token_id\": 0}",
    .norm = ZINF_NORM_RMS,
    .eps = 1e-5,
    .before1 = "input_layernorm",
    .before2 = "pre_ff_layernorm",
    .gate = "feed_forward.gate_proj",
    .up = "feed_forward.up_proj",
    .down = "feed_forward.down_proj",
    .mixer = &mixer,
    .mixer_beside = true,
    .qkv_bias = {"attention_bias", false},
    .proj_bias = {"attention_bias", false},
    .mlp_bias = {"mlp_bias", false},
    .embedding_key = "embedding_multiplier",
    .logits_key = "lm_head_multiplier",
    .logits = 1,
    .padding = 0,
    .end_of_text = 2,
    .read_more = read_more,
};

static int make_config(cJSON *config, const struct zinf_family *family,
                       const struct zinf_model_shape *shape)
{
    int64_t values, heads;
    int code = family_make_config(config, family, shape);
    if (!code)
        code = mixer_make_heads(config, "mamba_n_heads", 1.5, &values, &heads);
    if (code)
        return code;
    return family_add_numbers(
        config,
        (struct family_number[]){{"mamba_d_ssm", (double)(values / heads * heads)}, {NULL, 0}});
}

const struct zinf_family zinf_family_falcon_h1 = {
    .model_type = "falcon_h1",
    .architecture = "FalconH1ForCausalLM",
    .prefix = DESCRIBED_PREFIX,
    .layers_key = DESCRIBED_LAYERS_KEY,
    .traits = &falcon_h1.traits,
    .build = described_build,
    .make_config = make_config,
    .ignored = {DESCRIBED_IGNORED},
};
