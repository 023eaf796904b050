/* family_described: a description and config.json to a decoder. */
#include "model/families/family_described.h"
#include "model/rope.h"

#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 64, NAMES = 64 };

/* What a decoder borrows until its graph is made. */
struct reading {
    struct decoder d;
    /* Of blocks with attention, with a mixer, of the feed-forward part alone, and with the
     * attention of layers without a window where that is another. */
    struct family_list list, mixed, alone, unwindowed;
    struct attention_spec other; /* the latter's numbers */
    const struct described *of;
    bool qkv_bias, proj_bias, mlp_bias, head_norms, interleaved;
    struct rope_spec windowed_rope;
    char names[NAMES][NAME_BYTES]; /* of tensors */
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
    return family_read_activation(source, of->activation_key ? of->activation_key : "hidden_act",
                                  of->activation ? of->activation : "silu", &d->mlp.activation);
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

/* ---- layers ---- */

static int read_upper_windows(struct zinf_graph *graph, const struct zinf_model_source *source,
                              struct reading *r)
{
    struct decoder *d = &r->d;
    int64_t first = 28;
    int code = zinf_json_int(source->config, source->what, "max_window_layers", &first);
    bool *windowed = zinf_graph_take(graph, (size_t)d->n_layers);
    if (code || !windowed)
        return code ? code : zinf_fail(-ENOMEM, "no memory for the layers of %s", source->what);
    for (int64_t i = 0; i < d->n_layers; i++)
        windowed[i] =
            r->of->windows == DESCRIBED_EVEN_WINDOWS ? i < first && i % 2 == 0 : i >= first;
    d->windowed = windowed;
    return 0;
}

static int read_windows(struct zinf_graph *graph, const struct zinf_model_source *source,
                        struct reading *r)
{
    const struct described *of = r->of;
    const bool listed = zinf_json_has(source->config, "layer_types");
    int64_t pattern = of->pattern ? of->pattern : 1;
    bool use = of->windows < DESCRIBED_REQUESTED_WINDOWS;
    int code = 0;
    if (of->windows == DESCRIBED_NO_WINDOWS)
        return 0;
    if (!use)
        code = zinf_json_bool(source->config, source->what, "use_sliding_window", &use);
    if (code || !use)
        return code;
    code = family_read_window(source, &r->d, of->window);
    if (code || of->windows == DESCRIBED_ALL_WINDOWS ||
        (!r->d.attention.window && !of->local_theta_key))
        return code;
    if (!listed && of->windows >= DESCRIBED_UPPER_WINDOWS)
        return read_upper_windows(graph, source, r);
    if (!listed)
        code = zinf_json_int(source->config, source->what, "sliding_window_pattern", &pattern);
    return code ? code
                : family_read_layer_types(graph, source, &r->d, pattern,
                                          of->unwindowed && of->unwindowed->last);
}

/* What the object of a layer has in place of the numbers of all of them, which must be the same in
 * all layers without a window and is in no other. */
static int read_layer_numbers(const struct zinf_model_source *source, struct reading *r)
{
    const char *key = r->of->unwindowed->layers_key;
    const cJSON *all = cJSON_GetObjectItemCaseSensitive(source->config, key), *first = NULL;
    int code = 0;
    for (int64_t i = 0; i < r->d.n_layers; i++) {
        char name[24];
        snprintf(name, sizeof name, "%lld", (long long)i);
        const cJSON *one = cJSON_GetObjectItemCaseSensitive(all, name);
        const bool windowed = !r->d.windowed || r->d.windowed[i];
        if (!windowed && !first)
            first = one;
        if (windowed ? one != NULL : !one || !cJSON_Compare(one, first, true))
            return zinf_fail(-ENOTSUP,
                             "%s: %s: layer %lld differs from others of its kind; it must have "
                             "numbers for all layers without a window, the same ones, and for no "
                             "other",
                             source->what, key, (long long)i);
    }
    if (first) {
        r->other.n_kv_heads = r->d.attention.n_kv_heads;
        r->other.head_dim = r->d.attention.head_dim;
        code = zinf_json_int(first, source->what, "head_dim", &r->other.head_dim);
        if (!code)
            code = zinf_json_int(first, source->what, "num_key_value_heads", &r->other.n_kv_heads);
    }
    return code;
}

static int read_unwindowed(const struct zinf_model_source *source, struct reading *r)
{
    const struct described_unwindowed *of = r->of->unwindowed;
    struct attention_spec *a = &r->other;
    int64_t kv_heads = 0;
    int code;
    if (!of)
        return 0;
    a->n_kv_heads = r->d.attention.n_kv_heads;
    a->head_dim = of->head_dim;
    if ((code = zinf_json_bool(source->config, source->what, of->same_key, &a->keys_are_values)))
        return code;
    if (zinf_json_has(source->config, of->layers_key))
        return read_layer_numbers(source, r);
    if (zinf_json_has(source->config, of->kv_heads_key))
        code = zinf_json_int(source->config, source->what, of->kv_heads_key, &kv_heads);
    if (a->keys_are_values && kv_heads)
        a->n_kv_heads = kv_heads;
    return code ? code
                : zinf_json_int(source->config, source->what, of->head_dim_key, &a->head_dim);
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

/* The rotation of layers with a window where others have another: an object of its own in
 * rope_parameters; in the form of version 4 the base alone, without rope_scaling. */
static int read_local_rope(struct zinf_graph *graph, const struct zinf_model_source *source,
                           struct rope_source rope, struct reading *r)
{
    struct zinf_model_source local = *source;
    struct rope_spec *out = &r->windowed_rope;
    int64_t context;
    rope.theta = r->of->local_theta;
    rope.layers = "sliding_attention";
    if (zinf_json_has(source->config, "rope_parameters"))
        return rope_read(graph, source, &rope, out, &context);
    cJSON *nothing = cJSON_CreateObject();
    int code = nothing ? zinf_json_double(source->config, source->what, r->of->local_theta_key,
                                          &rope.theta)
                       : zinf_fail(-ENOMEM, "no memory for the configuration %s", source->what);
    local.config = nothing;
    if (!code)
        code = rope_read(graph, &local, &rope, out, &context);
    cJSON_Delete(nothing);
    return code;
}

static int read_named(const struct zinf_model_source *source, struct decoder *d)
{
    static const char key[] = "position_embedding_type";
    const char *name = NULL;
    int code = zinf_json_string(source->config, source->what, key, &name);
    if (code || !name || !strcmp(name, "nope"))
        d->attention.rope.rotary_dims = 0;
    else if (strcmp(name, "rope"))
        code =
            zinf_fail(-ENOTSUP, "%s: %s \"%s\" is not supported, only \"rope\", \"nope\" or null",
                      source->what, key, name);
    return code;
}

static bool has_null_base(const struct zinf_model_source *source)
{
    const cJSON *rope = cJSON_GetObjectItemCaseSensitive(source->config, "rope_parameters");
    return cJSON_IsNull(rope) || cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(rope, "rope_theta"));
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
                               .has_alpha = of->rope_alpha,
                               .original = of->original};
    int code = 0;
    if (of->local_theta_key) {
        code = read_local_rope(graph, source, rope, r);
        r->windowed_rope.interleaved = r->interleaved;
        d->windowed_rope = d->windowed ? &r->windowed_rope : NULL;
        rope.layers = "full_attention";
    }
    if (of->unwindowed) {
        rope.head_dim = r->other.head_dim;
        rope.kind = of->unwindowed->rope_kind;
        rope.partial = of->unwindowed->partial;
    }
    if (!code && of->rotation == DESCRIBED_ROTATE_LISTED)
        code = read_rotated_list(graph, source, d);
    if (of->rotation == DESCRIBED_ROTATE_WINDOWED)
        d->rotated = d->windowed;
    if (of->rotation == DESCRIBED_ROTATE_GIVEN && has_null_base(source))
        return code;
    if (!code)
        code = rope_read(graph, source, &rope, &d->attention.rope, &d->context);
    d->attention.rope.interleaved = r->interleaved;
    if (of->rotation == DESCRIBED_ROTATE_NONE)
        d->attention.rope.rotary_dims = 0;
    return code || of->rotation != DESCRIBED_ROTATE_NAMED ? code : read_named(source, d);
}

/* ---- tensors ---- */

static const char *name_of(struct reading *r, const char *name, const char *end)
{
    char *whole = r->names[r->n_names++];
    snprintf(whole, NAME_BYTES, "%s.%s", name, end);
    return whole;
}

static void add_matrix(struct reading *r, enum decoder_place place, const char *name, int64_t rows,
                       int64_t cols)
{
    family_add_matrix(&r->list, place, name_of(r, name, "weight"), rows, cols);
}

static void add_bias(struct reading *r, enum decoder_place place, const char *name, int64_t n)
{
    family_add_vector(&r->list, place, name_of(r, name, "bias"), n, ZINF_INIT_ZERO);
}

/* The weight of a norm of n numbers. */
static void add_norm_weight(struct reading *r, enum decoder_place place, const char *name,
                            int64_t n)
{
    family_add_vector(&r->list, place, name_of(r, name, "weight"), n,
                      r->of->norm_add != 0 ? ZINF_INIT_ZERO : ZINF_INIT_ONE);
}

/* Of all of a row. */
static void add_norm(struct reading *r, enum decoder_place place, const char *name)
{
    if (!name)
        return;
    add_norm_weight(r, place, name, r->d.hidden);
    if (r->of->norm_bias)
        add_bias(r, place == DECODER_NORM1_W ? DECODER_NORM1_B : DECODER_NORM2_B, name,
                 r->d.hidden);
}

/* What was added last has each head's queries, then its gate. */
static void list_gate(struct reading *r)
{
    if (r->d.attention.gated)
        r->list.items[r->list.n - 1].order = DECODER_GATED;
}

static const char *proj_of(const struct reading *r)
{
    return r->of->proj ? r->of->proj : "o_proj";
}

/* Of a tensor in the module of attention. */
static const char *attention_name(struct reading *r, const char *name)
{
    return name_of(r, r->of->attention ? r->of->attention : "self_attn", name);
}

static int list_attention(struct reading *r)
{
    const struct described *of = r->of;
    const struct decoder *d = &r->d;
    const struct attention_spec *a = &d->attention;
    const int64_t h = d->hidden, q = a->n_heads * a->head_dim, kv = a->n_kv_heads * a->head_dim;
    if (of->latent)
        return latent_list(&r->list, d, r->qkv_bias);
    if (of->fused_qkv) {
        add_matrix(r, DECODER_QKV_W, of->fused_qkv, family_qkv_rows(d), h);
    } else {
        add_matrix(r, DECODER_QKV_W, attention_name(r, "q_proj"), d->attention.gated ? 2 * q : q,
                   h);
        list_gate(r);
        add_matrix(r, DECODER_QKV_W, attention_name(r, "k_proj"), kv, h);
        if (!a->keys_are_values)
            add_matrix(r, DECODER_QKV_W, attention_name(r, "v_proj"), kv, h);
    }
    add_matrix(r, DECODER_PROJ_W, attention_name(r, proj_of(r)), h, q);
    return 0;
}

static const char *gate_of(const struct reading *r)
{
    return r->of->gate ? r->of->gate : "mlp.gate_proj";
}

static void list_mlp(struct reading *r)
{
    const struct described *of = r->of;
    const struct decoder *d = &r->d;
    const int64_t h = d->hidden;
    if (of->fused_up) {
        add_matrix(r, DECODER_UP_W, of->up ? of->up : "mlp.gate_up_proj", 2 * d->ffn, h);
    } else {
        if (d->mlp.gated)
            add_matrix(r, DECODER_UP_W, gate_of(r), d->ffn, h);
        add_matrix(r, DECODER_UP_W, of->up ? of->up : "mlp.up_proj", d->ffn, h);
    }
    add_matrix(r, DECODER_DOWN_W, of->down ? of->down : "mlp.down_proj", h, d->ffn);
}

static void list_first_norm(struct reading *r)
{
    const struct described *of = r->of;
    add_norm(r, DECODER_NORM1_W, of->before1 || of->after1 ? of->before1 : "input_layernorm");
}

static void list_other_norms(struct reading *r)
{
    const struct described *of = r->of;
    const bool usual = !of->before1 && !of->after1;
    add_norm(r, DECODER_AFTER1_W, of->after1);
    add_norm(r, DECODER_NORM2_W, usual ? "post_attention_layernorm" : of->before2);
    add_norm(r, DECODER_AFTER2_W, of->after2);
}

static void list_attention_biases(struct reading *r)
{
    const struct attention_spec *a = &r->d.attention;
    const int64_t q = a->n_heads * a->head_dim, kv = a->n_kv_heads * a->head_dim;
    if (r->qkv_bias && !r->of->latent) {
        add_bias(r, DECODER_QKV_B, attention_name(r, "q_proj"), a->gated ? 2 * q : q);
        list_gate(r);
        add_bias(r, DECODER_QKV_B, attention_name(r, "k_proj"), kv);
        if (!a->keys_are_values)
            add_bias(r, DECODER_QKV_B, attention_name(r, "v_proj"), kv);
    }
    if (r->proj_bias)
        add_bias(r, DECODER_PROJ_B, attention_name(r, proj_of(r)), r->d.hidden);
}

static void list_mlp_biases(struct reading *r)
{
    const struct described *of = r->of;
    if (!r->mlp_bias)
        return;
    if (r->d.mlp.gated)
        add_bias(r, DECODER_UP_B, gate_of(r), r->d.ffn);
    add_bias(r, DECODER_UP_B, of->up ? of->up : "mlp.up_proj", r->d.ffn);
    add_bias(r, DECODER_DOWN_B, of->down ? of->down : "mlp.down_proj", r->d.hidden);
}

static void list_heads(struct reading *r)
{
    const struct described *of = r->of;
    const struct attention_spec *a = &r->d.attention;
    const int64_t dim = a->head_dim;
    if (of->head_norms != DESCRIBED_NO_NORMS && r->head_norms) {
        add_norm_weight(r, DECODER_Q_NORM, of->q_norm ? of->q_norm : "self_attn.q_norm",
                        a->whole_norms ? a->n_heads * dim : dim);
        add_norm_weight(r, DECODER_K_NORM, of->k_norm ? of->k_norm : "self_attn.k_norm",
                        a->whole_norms ? a->n_kv_heads * dim : dim);
    }
    if (of->sinks)
        family_add_vector(&r->list, DECODER_SINKS, "self_attn.sinks", a->n_heads, ZINF_INIT_ZERO);
}

static int list_tensors(struct reading *r)
{
    typedef void list_vectors(struct reading * r);
    static list_vectors *const orders[DESCRIBED_ORDERS][5] = {
        [DESCRIBED_ORDER_USUAL] = {list_first_norm, list_attention_biases, list_mlp_biases,
                                   list_heads, list_other_norms},
        [DESCRIBED_ORDER_MLP_LAST] = {list_first_norm, list_attention_biases, list_heads,
                                      list_other_norms, list_mlp_biases},
        [DESCRIBED_ORDER_BIASES_LAST] = {list_first_norm, list_heads, list_other_norms,
                                         list_attention_biases, list_mlp_biases},
        [DESCRIBED_ORDER_NORMS_LAST] = {list_attention_biases, list_mlp_biases, list_heads,
                                        list_first_norm, list_other_norms},
    };
    const bool alone = r->of->kinds != NULL;
    r->list.std = r->d.init_std;
    int code = list_attention(r);
    if (code)
        return code;
    if (!alone)
        list_mlp(r);
    for (int i = 0; i < 5; i++)
        if (!alone || (orders[r->of->order][i] != list_mlp_biases &&
                       orders[r->of->order][i] != list_other_norms))
            orders[r->of->order][i](r);
    return 0;
}

/* The feed-forward part of a layer that has no other, apart. */
static void list_alone(struct reading *r)
{
    const struct family_list attention = r->list;
    if (!r->of->kinds)
        return;
    r->list = (struct family_list){.std = r->d.init_std};
    list_mlp(r);
    list_other_norms(r);
    list_mlp_biases(r);
    r->alone = r->list;
    r->list = attention;
    r->d.mlp_tensors = r->alone.items;
    r->d.n_mlp_tensors = r->alone.n;
}

static void list_mixed_norms(struct reading *r, bool alone)
{
    const struct described_mixer *m = r->of->mixer;
    if (m->before1)
        add_norm(r, DECODER_NORM1_W, m->before1);
    else
        list_first_norm(r);
    if (alone)
        return;
    list_mlp_biases(r);
    if (m->before2)
        add_norm(r, DECODER_NORM2_W, m->before2);
    else
        list_other_norms(r);
}

/* The block of a mixer, apart. */
static void list_mixed(struct reading *r)
{
    const struct family_list attention = r->list;
    const bool alone = r->of->kinds != NULL;
    if (!r->d.mixed)
        return;
    if (r->d.mixer_beside) {
        mixer_list(&r->list, r->of->mixer, &r->d, true);
        mixer_list(&r->list, r->of->mixer, &r->d, false);
        return;
    }
    r->list = (struct family_list){.std = r->d.init_std};
    mixer_list(&r->list, r->of->mixer, &r->d, true);
    if (!alone)
        list_mlp(r);
    mixer_list(&r->list, r->of->mixer, &r->d, false);
    list_mixed_norms(r, alone);
    r->mixed = r->list;
    r->list = attention;
    r->d.mixed_tensors = r->mixed.items;
    r->d.n_mixed_tensors = r->mixed.n;
}

/* The block of layers without a window, whose attention has other numbers, apart. */
static int list_unwindowed(struct reading *r)
{
    const struct family_list others = r->list;
    const struct attention_spec attention = r->d.attention;
    if (!r->of->unwindowed || !r->d.windowed)
        return 0;
    r->d.attention.n_kv_heads = r->other.n_kv_heads;
    r->d.attention.head_dim = r->other.head_dim;
    r->d.attention.keys_are_values = r->other.keys_are_values;
    r->other = r->d.attention;
    r->list = (struct family_list){0};
    int code = list_tensors(r);
    r->unwindowed = r->list;
    r->list = others;
    r->d.attention = attention;
    r->d.unwindowed = &r->other;
    r->d.unwindowed_tensors = r->unwindowed.items;
    r->d.n_unwindowed_tensors = r->unwindowed.n;
    return code;
}

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
        (code = read_windows(graph, source, &r)) || (code = read_unwindowed(source, &r)) ||
        (code = read_rotation(graph, source, &r)) ||
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
    if ((code = list_tensors(&r)) || (code = list_unwindowed(&r)))
        return code;
    list_alone(&r);
    list_mixed(&r);
    return family_finish(graph, facts, source, &r.d, &r.list, of->end_of_text);
}
