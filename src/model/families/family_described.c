/* family_described: a description and config.json to a decoder. */
#include "model/families/family_described.h"
#include "model/rope.h"

#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 64 };

/* What a decoder borrows until its graph is made. */
struct reading {
    struct decoder d;
    struct family_list list;
    const struct described *of;
    bool qkv_bias, proj_bias, mlp_bias, tied, head_norms, interleaved;
    struct rope_spec windowed_rope;
    char names[8][NAME_BYTES]; /* of norms */
    int n_names;
};

static int read_switch(const struct zinf_model_source *source, const struct described_switch *s,
                       bool *out)
{
    *out = s->usual;
    return s->key ? zinf_json_bool(source->config, source->what, s->key, out) : 0;
}

static int read_switches(const struct zinf_model_source *source, struct reading *r)
{
    const struct described *of = r->of;
    struct decoder *d = &r->d;
    const struct described_switch head_norms = {of->head_norms_key, !of->head_norms_key};
    const struct described_switch interleaved = {of->interleaved_key, of->interleaved};
    int code;
    d->mlp.gated = !of->plain_up;
    d->mlp.activation = of->plain_up ? of->plain_activation : ZINF_ACTIVATION_SILU;
    d->parallel = d->one_norm = of->parallel;
    d->attention.whole_norms = of->head_norms == DESCRIBED_WHOLE_NORMS;
    d->attention.norms_after_rotation = of->head_norms == DESCRIBED_ROTATED_HEAD_NORMS;
    if ((code = read_switch(source, &of->qkv_bias, &r->qkv_bias)) ||
        (code = read_switch(source, &of->proj_bias, &r->proj_bias)) ||
        (code = read_switch(source, &of->mlp_bias, &r->mlp_bias)) ||
        (code = read_switch(source, &of->tied, &r->tied)) ||
        (code = read_switch(source, &interleaved, &r->interleaved)) ||
        (code = read_switch(source, &head_norms, &r->head_norms)))
        return code;
    d->head = r->tied ? NULL : "lm_head.weight";
    return family_read_activation(source, "hidden_act", &d->mlp.activation);
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
    return code;
}

/* ---- layers ---- */

static int read_windows(struct zinf_graph *graph, const struct zinf_model_source *source,
                        struct reading *r)
{
    const struct described *of = r->of;
    int64_t pattern = of->pattern;
    bool use = of->windows == DESCRIBED_LAYER_WINDOWS;
    int code = 0;
    if (of->windows == DESCRIBED_REQUESTED_WINDOWS)
        code = zinf_json_bool(source->config, source->what, "use_sliding_window", &use);
    if (code || !use)
        return code;
    if ((code = family_read_window(source, &r->d, of->window)) || !r->d.attention.window)
        return code;
    if (!zinf_json_has(source->config, "layer_types"))
        code = zinf_json_int(source->config, source->what, "sliding_window_pattern", &pattern);
    return code ? code : family_read_layer_types(graph, source, &r->d, pattern);
}

/* "no_rope_layers": a number a layer; longer where a model is looked at with fewer layers. */
static int read_rotated_list(struct zinf_graph *graph, const struct zinf_model_source *source,
                             struct decoder *d)
{
    static const char key[] = "no_rope_layers";
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(source->config, key);
    const bool given = list && !cJSON_IsNull(list);
    int64_t interval = 4;
    bool *rotated = zinf_graph_take(graph, (size_t)d->n_layers);
    int code = zinf_json_int(source->config, source->what, "no_rope_layer_interval", &interval);
    if (code || !rotated)
        return code ? code : zinf_fail(-ENOMEM, "no memory for the layers of %s", source->what);
    if (interval < 1)
        return zinf_fail(-EINVAL, "%s: no_rope_layer_interval is %lld; it must be at least 1",
                         source->what, (long long)interval);
    if (given && (!cJSON_IsArray(list) || cJSON_GetArraySize(list) < d->n_layers))
        return zinf_fail(-EINVAL, "%s: %s must have a number for each of %lld layers", source->what,
                         key, (long long)d->n_layers);
    const cJSON *item = given ? list->child : NULL;
    for (int64_t i = 0; i < d->n_layers; i++, item = item ? item->next : NULL)
        rotated[i] =
            given ? cJSON_IsNumber(item) && item->valuedouble != 0 : (i + 1) % interval != 0;
    d->rotated = rotated;
    return 0;
}

static int read_rotation(struct zinf_graph *graph, const struct zinf_model_source *source,
                         struct reading *r)
{
    const struct described *of = r->of;
    struct decoder *d = &r->d;
    struct rope_source rope = {.head_dim =
                                   of->latent ? d->attention.latent.rotated : d->attention.head_dim,
                               .positions = d->context,
                               .theta = of->theta > 0 ? of->theta : 1e4,
                               .partial = of->partial,
                               .has_alpha = of->rope_alpha};
    int code = 0;
    if (of->rope_by_type) {
        code = rotary_read_windowed_rope(graph, source, rope, "rope_theta", &r->windowed_rope);
        r->windowed_rope.interleaved = r->interleaved;
        d->windowed_rope = d->windowed ? &r->windowed_rope : NULL;
        rope.layers = "full_attention";
    }
    if (!code && of->rotation == DESCRIBED_ROTATE_LISTED)
        code = read_rotated_list(graph, source, d);
    if (of->rotation == DESCRIBED_ROTATE_WINDOWED)
        d->rotated = d->windowed;
    if (!code)
        code = rope_read(graph, source, &rope, &d->attention.rope, &d->context);
    d->attention.rope.interleaved = r->interleaved;
    return code;
}

/* ---- tensors ---- */

static void add_vector(struct reading *r, enum decoder_place place, const char *name,
                       const char *part, int64_t n, enum zinf_init init)
{
    char *whole = r->names[r->n_names++];
    snprintf(whole, NAME_BYTES, "%s.%s", name, part);
    family_add_vector(&r->list, place, whole, n, init);
}

/* Of all of a row. */
static void add_norm(struct reading *r, enum decoder_place place, const char *name)
{
    const enum zinf_init init = r->of->norm_add != 0 ? ZINF_INIT_ZERO : ZINF_INIT_ONE;
    if (!name)
        return;
    add_vector(r, place, name, "weight", r->d.hidden, init);
    if (!r->of->norm_bias)
        return;
    const enum decoder_place bias = place == DECODER_NORM1_W ? DECODER_NORM1_B : DECODER_NORM2_B;
    add_vector(r, bias, name, "bias", r->d.hidden, ZINF_INIT_ZERO);
}

static void list_biases(struct reading *r)
{
    const struct decoder *d = &r->d;
    struct family_list *list = &r->list;
    if (r->qkv_bias && !r->of->latent)
        rotary_list_qkv_biases(list, d);
    if (r->proj_bias)
        family_add_vector(list, DECODER_PROJ_B, "self_attn.o_proj.bias", d->hidden, ZINF_INIT_ZERO);
    if (!r->mlp_bias)
        return;
    if (d->mlp.gated)
        family_add_vector(list, DECODER_UP_B, "mlp.gate_proj.bias", d->ffn, ZINF_INIT_ZERO);
    family_add_vector(list, DECODER_UP_B, "mlp.up_proj.bias", d->ffn, ZINF_INIT_ZERO);
    family_add_vector(list, DECODER_DOWN_B, "mlp.down_proj.bias", d->hidden, ZINF_INIT_ZERO);
}

static void list_head_norms(struct reading *r)
{
    const struct described *of = r->of;
    const struct attention_spec *a = &r->d.attention;
    if (of->head_norms == DESCRIBED_NO_NORMS || !r->head_norms)
        return;
    add_vector(r, DECODER_Q_NORM, of->q_norm ? of->q_norm : "self_attn.q_norm", "weight",
               a->whole_norms ? a->n_heads * a->head_dim : a->head_dim, ZINF_INIT_ONE);
    add_vector(r, DECODER_K_NORM, of->k_norm ? of->k_norm : "self_attn.k_norm", "weight",
               a->whole_norms ? a->n_kv_heads * a->head_dim : a->head_dim, ZINF_INIT_ONE);
}

static int list_tensors(struct reading *r)
{
    const struct described *of = r->of;
    const struct decoder *d = &r->d;
    r->list.std = d->init_std;
    int code = of->latent ? latent_list(&r->list, d, r->qkv_bias) : 0;
    if (code)
        return code;
    if (!of->latent)
        rotary_list_attention(&r->list, d);
    if (of->fused_up || of->plain_up) {
        family_add_matrix(&r->list, DECODER_UP_W,
                          of->plain_up ? "mlp.up_proj.weight" : "mlp.gate_up_proj.weight",
                          (of->plain_up ? 1 : 2) * d->ffn, d->hidden);
        family_add_matrix(&r->list, DECODER_DOWN_W, "mlp.down_proj.weight", d->hidden, d->ffn);
    } else {
        rotary_list_mlp(&r->list, d);
    }
    add_norm(r, DECODER_NORM1_W, of->before1);
    list_biases(r);
    list_head_norms(r);
    if (of->sinks)
        family_add_vector(&r->list, DECODER_SINKS, "self_attn.sinks", d->attention.n_heads,
                          ZINF_INIT_ZERO);
    add_norm(r, DECODER_AFTER1_W, of->after1);
    add_norm(r, DECODER_NORM2_W, of->before2);
    add_norm(r, DECODER_AFTER2_W, of->after2);
    return 0;
}

int described_build(struct zinf_graph *graph, struct zinf_model_facts *facts,
                    const struct zinf_model_source *source)
{
    const struct described *of = source->family->traits;
    struct reading r = {
        .d = {.table = "embed_tokens.weight", .blocks = "layers", .final_w = "norm.weight"},
        .of = of,
    };
    int code;
    if ((code = family_read_counts(source, &r.d)) || (code = read_switches(source, &r)) ||
        (code = family_read_norms(source, &r.d, of->norm,
                                  of->eps_key ? of->eps_key : "rms_norm_eps", of->eps)) ||
        (code = family_read_init(source, &r.d, "initializer_range", 0.02)) ||
        (code = family_read_padding(source, &r.d, of->padding)) ||
        (of->latent && (code = latent_read(source, of->latent, &r.d))) ||
        (code = read_factors(source, &r)) || (code = read_dropouts(source, &r)) ||
        (code = read_windows(graph, source, &r)) || (code = read_rotation(graph, source, &r)) ||
        (code = rotary_read_experts(graph, source, of->experts, &r.d)))
        return code;
    r.d.experts.scale *= r.d.mlp.branch_scale;
    r.d.attention.norm.w_add = r.d.mlp.norm.w_add = of->norm_add;
    r.d.final_b = of->norm_bias ? "norm.bias" : NULL;
    if ((code = list_tensors(&r)))
        return code;
    return family_finish(graph, facts, source, &r.d, &r.list, of->end_of_text);
}
