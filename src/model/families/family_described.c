/* family_described: a description and config.json to a decoder. */
#include "model/families/family_reading.h"

#include <string.h>

static int read_switch(const struct zinf_model_source *source, const struct described_switch *s,
                       bool *out)
{
    *out = s->usual;
    return s->key ? zinf_json_bool(source->config, source->what, s->key, out) : 0;
}

/* A usual one, or one with trained numbers. */
static int read_activation(const struct zinf_model_source *source, const struct described *of,
                           struct decoder *d)
{
    const char *key = of->activation_key ? of->activation_key : "hidden_act";
    const char *usual = of->activation ? of->activation : "silu", *name = usual;
    int code = zinf_json_string(source->config, source->what, key, &name);
    if (code || !of->xielu || !name || strcmp(name, of->xielu->word))
        return code ? code : family_read_activation(source, key, usual, &d->mlp.activation);
    d->mlp.xielu = true;
    d->xielu_beta = of->xielu->beta;
    d->xielu_eps = of->xielu->eps;
    return 0;
}

static int read_switches(const struct zinf_model_source *source, struct reading *r)
{
    const struct described *of = r->of;
    struct decoder *d = &r->d;
    const struct described_switch head_norms = {of->head_norms_key, !of->head_norms_key};
    const struct described_switch interleaved = {of->interleaved_key, of->interleaved};
    bool tied = of->tied;
    int code;
    d->mlp.gated = !of->plain_up;
    d->parallel = d->one_norm = of->parallel;
    d->attention.whole_norms = of->head_norms == DESCRIBED_WHOLE_NORMS;
    d->attention.norms_after_rotation = of->head_norms == DESCRIBED_ROTATED_HEAD_NORMS;
    if ((code = read_switch(source, &of->qkv_bias, &r->qkv_bias)) ||
        (code = read_switch(source, &of->proj_bias, &r->proj_bias)) ||
        (code = read_switch(source, &of->mlp_bias, &r->mlp_bias)) ||
        (code = zinf_json_bool(source->config, source->what, "tie_word_embeddings", &tied)) ||
        (code = read_switch(source, &interleaved, &r->interleaved)) ||
        (code = read_switch(source, &head_norms, &r->head_norms)))
        return code;
    d->head = tied ? NULL : "lm_head.weight";
    return read_activation(source, of, d);
}

/* ---- numbers ---- */

/* A factor above 0; without a key usual. */
static int read_factor(const struct zinf_model_source *source, const char *key, double usual,
                       double *out)
{
    *out = usual;
    int code = key ? zinf_json_double(source->config, source->what, key, out) : 0;
    if (!code && !(*out > 0 && *out < 1e9))
        code = zinf_fail(-EINVAL, "%s: %s is %g; it must be above 0", source->what, key, *out);
    return code;
}

static int read_factors(const struct zinf_model_source *source, struct reading *r)
{
    const struct described *of = r->of;
    struct decoder *d = &r->d;
    double embedding, scores, branch, logits, divisor;
    int code;
    if ((code = read_factor(source, of->embedding_key, 1, &embedding)) ||
        (code = read_factor(source, of->attention_key, 1, &scores)) ||
        (code = read_factor(source, of->branch_key, 1, &branch)) ||
        (code = read_factor(source, of->logits_key, of->logits_key ? of->logits : 1, &logits)) ||
        (code = read_factor(source, of->divisor_key, 1, &divisor)))
        return code;
    d->embedding_scale = (float)embedding;
    if (of->attention_key)
        d->attention.scale = (float)scores;
    d->attention.branch_scale = d->mlp.branch_scale = (float)branch;
    d->head_scale = (float)(logits / divisor);
    return 0;
}

static int read_dropouts(const struct zinf_model_source *source, struct reading *r)
{
    const struct described *of = r->of;
    struct decoder *d = &r->d;
    int code = family_read_dropout(source, "attention_dropout", of->attention_dropout,
                                   &d->attention.dropout);
    if (!code && of->residual_key)
        code = family_read_dropout(source, of->residual_key, of->residual_dropout,
                                   &d->mlp.residual_dropout);
    d->attention.residual_dropout = d->mlp.residual_dropout;
    if (!code && of->embedding_dropout_key)
        code = family_read_dropout(source, of->embedding_dropout_key, 0, &d->embedding_dropout);
    return code;
}

/* ---- the whole ---- */

/* Where no layer has experts the model has none. */
static void take_experts(struct decoder *d, const bool *in_layer)
{
    if (!in_layer)
        d->experts = (struct decoder_experts){0};
    d->experts.in_layer = in_layer;
}

int described_build(struct zinf_graph *graph, struct zinf_model_facts *facts,
                    const struct zinf_model_source *source)
{
    const struct described *of = source->family->traits;
    struct reading r = {
        .d = {.table = "embed_tokens.weight", .blocks = "layers", .final_w = "norm.weight"},
        .of = of,
    };
    const bool *in_layer = NULL;
    int code;
    if ((code = family_read_counts(source, &r.d)) ||
        (of->kinds && (code = kinds_read(graph, source, of->kinds, &r.d, &in_layer))) ||
        (code = read_switches(source, &r)) ||
        (code = family_read_norms(source, &r.d, of->norm,
                                  of->eps_key ? of->eps_key : "rms_norm_eps", of->eps)) ||
        (code = family_read_init(source, &r.d, "initializer_range",
                                 of->init_std > 0 ? of->init_std : 0.02)) ||
        (code = family_read_padding(source, &r.d, of->padding)) ||
        (of->latent && (code = latent_read(source, of->latent, &r.d))) ||
        (code = read_factors(source, &r)) || (code = read_dropouts(source, &r)) ||
        (code = reading_windows(graph, source, &r)) ||
        (code = reading_rotation(graph, source, &r)) ||
        (code = described_read_experts(graph, source, of->experts, &r.d)) ||
        (of->mixer && (code = mixer_read(graph, source, of->mixer, &r.d))))
        return code;
    if (of->kinds)
        take_experts(&r.d, in_layer);
    r.d.mixer_beside = of->mixer_beside;
    r.d.attention.gated = of->gated;
    r.d.attention.value_norms = of->value_norms;
    r.d.block_scale = of->block_scale;
    r.d.experts.scale *= r.d.mlp.branch_scale;
    r.d.attention.norm.w_add = r.d.mlp.norm.w_add = of->norm_add;
    r.d.final_b = of->norm_bias ? "norm.bias" : NULL;
    if (of->read_more && (code = of->read_more(source, &r.d)))
        return code;
    code = reading_tensors(graph, source, &r);
    return code ? code : family_finish(graph, facts, source, &r.d, &r.list, of->end_of_text);
}
