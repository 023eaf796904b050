/* family_tensors: the tensors of a described decoder's blocks, of every kind of block that it has:
 * their names in the file, shapes and order. */
#include "model/families/family_reading.h"

#include <stdio.h>

static const char *name_of(struct reading *r, const char *name, const char *end)
{
    char whole[NAME_BYTES];
    snprintf(whole, sizeof whole, "%s.%s", name, end);
    return memcpy(r->names[r->n_names++], whole, strlen(whole) + 1);
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

/* A norm over whole rows. */
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

/* The name of a tensor in the module of attention. */
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
        if (!r->takes)
            add_matrix(r, DECODER_QKV_W, attention_name(r, "k_proj"), kv, h);
        if (!r->takes && !a->keys_are_values)
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
        if (!r->takes)
            add_bias(r, DECODER_QKV_B, attention_name(r, "k_proj"), kv);
        if (!r->takes && !a->keys_are_values)
            add_bias(r, DECODER_QKV_B, attention_name(r, "v_proj"), kv);
    }
    if (r->proj_bias)
        add_bias(r, DECODER_PROJ_B, attention_name(r, proj_of(r)), r->d.hidden);
}

/* With the values that transformers begins with: softplus makes 0.8 and 0.3 of them. */
static void list_alphas(struct reading *r)
{
    const struct described_xielu *of = r->of->xielu;
    const struct decoder_tensor list[] = {
        {DECODER_ALPHAS, of->alpha_p, 1, 0, DECODER_ROWS, ZINF_INIT_VALUE, 0.20338232f},
        {DECODER_ALPHAS, of->alpha_n, 1, 0, DECODER_ROWS, ZINF_INIT_VALUE, -1.0502256f},
    };
    for (int i = 0; i < 2; i++)
        r->list.items[r->list.n++] = list[i];
}

static void list_mlp_biases(struct reading *r)
{
    const struct described *of = r->of;
    if (r->d.mlp.xielu)
        list_alphas(r);
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
        if (!r->takes)
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

/* Whether a layer takes keys and values of another one: of the last one in front of the first such
 * layer that has a window if it has. */
static int share_keys(struct zinf_graph *graph, const struct zinf_model_source *source,
                      struct reading *r, int64_t first)
{
    const struct decoder *d = &r->d;
    int64_t *keys_of = zinf_graph_take(graph, (size_t)d->n_layers * sizeof *keys_of);
    if (!keys_of)
        return zinf_fail(-ENOMEM, "no memory for the layers of %s", source->what);
    for (int64_t i = 0; i < d->n_layers; i++) {
        keys_of[i] = i < first ? i : first - 1;
        while (keys_of[i] >= 0 && d->windowed[keys_of[i]] != d->windowed[i])
            keys_of[i]--;
        if (keys_of[i] < 0)
            return zinf_fail(-EINVAL,
                             "%s: %s leaves no layer whose keys and values layer %lld could take",
                             source->what, r->of->unwindowed->takers_key, (long long)i);
    }
    r->d.keys_of = keys_of;
    return 0;
}

/* Blocks of one kind, apart. */
static int list_kind(struct reading *r, int number, bool wide)
{
    const struct family_list usual = r->list;
    struct decoder *d = &r->d;
    const struct attention_spec attention = d->attention;
    const int64_t ffn = d->ffn;
    struct decoder_kind *kind = &r->block_kinds[number];
    r->takes = number & TAKES_KEYS;
    if (number & UNWINDOWED) {
        d->attention.n_kv_heads = r->other.n_kv_heads;
        d->attention.head_dim = r->other.head_dim;
        d->attention.keys_are_values = r->other.keys_are_values && !r->takes;
    }
    if (r->takes && wide)
        d->ffn *= 2;
    r->list = (struct family_list){0};
    int code = list_tensors(r);
    r->lists[number] = r->list;
    *kind = (struct decoder_kind){d->attention, d->ffn, r->lists[number].items, r->list.n};
    r->list = usual;
    d->attention = attention;
    d->ffn = ffn;
    r->takes = false;
    return code;
}

/* Layers with a window and without one, those that take keys and values of others and those that
 * have their own. */
static int list_kinds(struct zinf_graph *graph, const struct zinf_model_source *source,
                      struct reading *r)
{
    const struct described_unwindowed *of = r->of->unwindowed;
    struct decoder *d = &r->d;
    int64_t n = 0;
    bool wide = false;
    int code;
    if (!of)
        return 0;
    uint8_t *kind = zinf_graph_take(graph, (size_t)d->n_layers);
    if (!kind)
        return zinf_fail(-ENOMEM, "no memory for the layers of %s", source->what);
    if ((code = zinf_json_int(source->config, source->what, of->takers_key, &n)) ||
        (code = zinf_json_bool(source->config, source->what, of->wide_key, &wide)))
        return code;
    if (n < 0 || n >= d->n_layers)
        return zinf_fail(-EINVAL, "%s: %s is %lld; it must be at least 0 and below %lld layers",
                         source->what, of->takers_key, (long long)n, (long long)d->n_layers);
    for (int64_t i = 0; i < d->n_layers; i++)
        kind[i] =
            (uint8_t)((d->windowed[i] ? 0 : UNWINDOWED) | (i < d->n_layers - n ? 0 : TAKES_KEYS));
    for (int number = 0; !code && number < BLOCK_KINDS; number++)
        code = list_kind(r, number, wide);
    d->kind = kind;
    d->kinds = r->block_kinds;
    return code || !n ? code : share_keys(graph, source, r, d->n_layers - n);
}

int reading_tensors(struct zinf_graph *graph, const struct zinf_model_source *source,
                    struct reading *r)
{
    int code = list_tensors(r);
    if (!code)
        code = list_kinds(graph, source, r);
    if (code)
        return code;
    list_alone(r);
    list_mixed(r);
    return 0;
}
