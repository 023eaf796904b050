/* decoder_parts: makes values of hidden rows and the spec of a block. */
#include "model/decoder_parts.h"
#include "model/shards.h"

#include <stddef.h>
#include <stdio.h>

uint32_t decoder_add_columns(struct zinf_graph *graph, const struct decoder *d, const char *name,
                             int64_t cols)
{
    struct zinf_value value = {
        .kind = ZINF_VALUE_ACTIVATION,
        .rows_of = d->source ? ZINF_ROWS_OF_SOURCE : ZINF_ROWS_OF_TARGET,
        .cols = cols,
        .element = ZINF_ELEMENT_PARAM,
        .gradient = ZINF_ELEMENT_PARAM,
        .leaves = true,
    };
    snprintf(value.name, sizeof value.name, "%s", name);
    return zinf_graph_add_value(graph, &value);
}

uint32_t decoder_add_hidden(struct zinf_graph *graph, const struct decoder *d, const char *name)
{
    return decoder_add_columns(graph, d, name, d->hidden);
}

/* Whether a layer has a recurrent mixer in the place of attention. */
static bool is_mixed(const struct decoder *d, int64_t layer)
{
    return d->mixed && d->mixed[layer] && !d->mixer_beside;
}

static const struct decoder_kind *kind_of(const struct decoder *d, int64_t layer)
{
    return d->kinds ? &d->kinds[d->kind[layer]] : NULL;
}

struct decoder decoder_of_layer(const struct decoder *d, int64_t layer)
{
    const struct decoder_kind *kind = kind_of(d, layer);
    struct decoder of = *d;
    if (kind) {
        of.attention = kind->attention;
        of.ffn = kind->ffn;
    }
    return of;
}

enum decoder_parts decoder_parts_of(const struct decoder *d, int64_t layer)
{
    return d->parts ? d->parts[layer] : DECODER_BOTH_PARTS;
}

struct decoder_tensors decoder_list(const struct decoder *d, int64_t layer, const char *prefix)
{
    struct decoder_tensors tensors = {.prefix = prefix, .list = d->tensors, .n = d->n_tensors};
    if (decoder_parts_of(d, layer) == DECODER_MLP_ALONE) {
        tensors.list = d->mlp_tensors;
        tensors.n = d->n_mlp_tensors;
    } else if (is_mixed(d, layer)) {
        tensors.list = d->mixed_tensors;
        tensors.n = d->n_mixed_tensors;
    } else if (kind_of(d, layer)) {
        tensors.list = kind_of(d, layer)->tensors;
        tensors.n = kind_of(d, layer)->n_tensors;
    }
    return tensors;
}

/* ---- places of tensors ---- */

/* A field of a part's spec that has a tensor's number, an int. */
struct placed {
    size_t at;
    enum decoder_place place;
};
#define ATTENTION(field, place)                                                                    \
    {                                                                                              \
        offsetof(struct attention_spec, field), place                                              \
    }
#define MLP(field, place)                                                                          \
    {                                                                                              \
        offsetof(struct mlp_spec, field), place                                                    \
    }

static const struct placed of_attention[] = {
    ATTENTION(norm.w, DECODER_NORM1_W),
    ATTENTION(norm.b, DECODER_NORM1_B),
    ATTENTION(qkv_w, DECODER_QKV_W),
    ATTENTION(qkv_b, DECODER_QKV_B),
    ATTENTION(kv_w, DECODER_KV_W),
    ATTENTION(kv_b, DECODER_KV_B),
    ATTENTION(proj_w, DECODER_PROJ_W),
    ATTENTION(proj_b, DECODER_PROJ_B),
    ATTENTION(sinks, DECODER_SINKS),
    ATTENTION(q_norm.w, DECODER_Q_NORM),
    ATTENTION(k_norm.w, DECODER_K_NORM),
    ATTENTION(after.w, DECODER_AFTER1_W),
    ATTENTION(latent.q_w, DECODER_LATENT_Q_W),
    ATTENTION(latent.kv_w, DECODER_LATENT_KV_W),
};
static const struct placed of_mixer[] = {
    ATTENTION(mixer.conv_w, DECODER_MIXER_CONV_W),
    ATTENTION(mixer.conv_b, DECODER_MIXER_CONV_B),
    ATTENTION(mixer.a_log, DECODER_MIXER_A_LOG),
    ATTENTION(mixer.step_bias, DECODER_MIXER_STEP_BIAS),
    ATTENTION(mixer.skip, DECODER_MIXER_SKIP),
    ATTENTION(mixer.norm.w, DECODER_MIXER_NORM),
    ATTENTION(mixer.keys_conv_w, DECODER_MIXER_KEYS_CONV_W),
    ATTENTION(mixer.keys_conv_b, DECODER_MIXER_KEYS_CONV_B),
    ATTENTION(kv_w, DECODER_MIXER_KEYS_W),
    ATTENTION(kv_b, DECODER_MIXER_KEYS_B),
    ATTENTION(qkv_w, DECODER_MIXER_IN_W),
    ATTENTION(qkv_b, DECODER_MIXER_IN_B),
    ATTENTION(proj_w, DECODER_MIXER_OUT_W),
    ATTENTION(proj_b, DECODER_MIXER_OUT_B),
};
static const struct placed of_mlp[] = {
    MLP(norm.w, DECODER_NORM2_W), MLP(norm.b, DECODER_NORM2_B), MLP(after.w, DECODER_AFTER2_W),
    MLP(up_w, DECODER_UP_W),      MLP(up_b, DECODER_UP_B),      MLP(down_w, DECODER_DOWN_W),
    MLP(down_b, DECODER_DOWN_B),  MLP(alphas, DECODER_ALPHAS),
};
#define PLACE(spec, list, at) place(spec, list, sizeof(list) / sizeof *(list), at)

static void place(void *spec, const struct placed *list, size_t n, const int at[DECODER_PLACES])
{
    for (size_t i = 0; i < n; i++)
        memcpy((char *)spec + list[i].at, &at[list[i].place], sizeof *at);
}

/* ---- what differs by layer ---- */

/* A mixer does not use positions. */
static void place_mixer(const struct decoder *d, struct attention_spec *a,
                        const int at[DECODER_PLACES])
{
    a->mixer = d->mixer;
    PLACE(a, of_mixer, at);
    a->mixer.norm.b = -1;
    a->gated = false;
    a->rope.rotary_dims = 0;
}

/* The norms of low-rank rows always have the default epsilon of the class. */
static void move_latent_norms(struct attention_spec *a)
{
    struct latent_spec *l = &a->latent;
    l->q_norm = a->q_norm;
    l->kv_norm = a->k_norm;
    l->q_norm.eps = l->kv_norm.eps = 1e-6f;
    a->q_norm.w = a->k_norm.w = -1;
}

/* Takes the window or the rotation away from layers that have none. */
static void choose_sight(const struct decoder *d, int64_t layer, struct attention_spec *a)
{
    const bool still = d->rotated && !d->rotated[layer];
    if (d->windowed && !d->windowed[layer])
        a->window = 0;
    else if (d->windowed_rope)
        a->rope = *d->windowed_rope;
    if (still)
        a->rope = d->still_rope;
    a->piece = still ? 0 : d->piece;
}

/* Sets whether a layer uses the keys and values of an earlier one, and whether later ones use its
 * own. */
static void share_keys(const struct decoder *d, int64_t layer, struct attention_spec *a)
{
    if (d->keys_of[layer] != layer)
        a->taken = 1 + (a->rope.rotary_dims > 0) + (a->segments > 0);
    for (int64_t i = layer + 1; i < d->n_layers; i++)
        a->gives |= d->keys_of[i] == layer;
}

/* The spec of the mixer beside attention. It has no norms of its own: both read what the norm in
 * front of attention makes. */
static struct attention_spec place_beside(const struct decoder *d, const struct attention_spec *a,
                                          const int at[DECODER_PLACES])
{
    struct attention_spec beside = *a;
    place_mixer(d, &beside, at);
    beside.norm.w = beside.norm.b = beside.q_norm.w = beside.k_norm.w = beside.after.w = -1;
    beside.branch_scale = d->mixer_branch_scale;
    beside.scales = d->mixer_scales;
    return beside;
}

/* Norms of heads, and the norm behind attention, are of the same kind as the norm in front of
 * it. */
static void copy_norms(const struct decoder *d, struct attention_spec *a)
{
    a->q_norm = a->k_norm = a->after = a->norm;
    a->q_norm.b = a->k_norm.b = a->after.b = -1;
    a->q_norm.plain = a->k_norm.plain =
        d->plain_head_norms && a->rope.rotary_dims && !a->rope.still;
}

static void make_attention(const struct decoder *d, int64_t layer, const int at[DECODER_PLACES],
                           struct attention_spec *a)
{
    a->hidden = d->hidden;
    a->site = 1 + 3 * (uint32_t)layer;
    if (d->scale_by_inverse_layer)
        a->scale /= (float)(layer + 1);
    choose_sight(d, layer, a);
    copy_norms(d, a);
    PLACE(a, of_attention, at);
    if (a->latent.kv_rank)
        move_latent_norms(a);
    if (is_mixed(d, layer))
        place_mixer(d, a, at);
    if (d->packed || a->piece)
        a->segments = a->rope.rotary_dims ? 2 : 1;
    if (d->keys_of)
        share_keys(d, layer, a);
}

struct block_spec decoder_make_block(const struct decoder *d, int64_t layer,
                                     const int at[DECODER_PLACES])
{
    const struct decoder_kind *kind = kind_of(d, layer);
    struct block_spec spec = {
        .attention = kind ? kind->attention : d->attention,
        .mlp = d->mlp,
        .parallel = d->parallel,
        .one_norm = d->one_norm,
        .scaled = d->block_scale && !d->side.cols,
    };
    struct mlp_spec *m = &spec.mlp;
    make_attention(d, layer, at, &spec.attention);
    if (d->mixer_beside)
        spec.beside = place_beside(d, &spec.attention, at);
    m->hidden = d->hidden;
    m->ffn = kind ? kind->ffn : d->ffn;
    m->site = spec.attention.site + 2;
    m->after = m->norm;
    m->after.b = -1;
    PLACE(m, of_mlp, at);
    return spec;
}

void decoder_append_inputs(struct zinf_graph *graph, uint32_t stage, const struct attention_spec *s,
                           const struct decoder_values *v)
{
    zinf_stage_append(graph, stage, ZINF_STAGE_IN, v->x);
    if (s->rope.rotary_dims)
        zinf_stage_append(graph, stage, ZINF_STAGE_IN, v->positions);
    if (s->segments)
        zinf_stage_append(graph, stage, ZINF_STAGE_IN, s->piece ? v->pieces : v->segments);
}

/* The number of columns of keys and values: of all heads, or of those of this rank's shards. */
static int64_t count_given(const struct decoder *d, const struct attention_spec *s)
{
    const int64_t heads = d->shards.of
                              ? d->shards.n * shard_groups_of(&d->shards, s->n_kv_heads).heads
                              : s->n_kv_heads;
    return 2 * heads * s->head_dim;
}

void decoder_append_keys(struct zinf_graph *graph, uint32_t stage, const struct decoder *d,
                         const struct decoder_values *v, int64_t layer,
                         const struct attention_spec *s)
{
    char name[24];
    if (s->taken)
        zinf_stage_append(graph, stage, ZINF_STAGE_IN, v->kv[d->keys_of[layer]]);
    if (!s->gives)
        return;
    snprintf(name, sizeof name, "kv.%lld", (long long)layer);
    v->kv[layer] = decoder_add_columns(graph, d, name, count_given(d, s));
    zinf_stage_append(graph, stage, ZINF_STAGE_OUT, v->kv[layer]);
}

/* Adds the number that scales a block. It is not trained and so is a unit of its own. */
uint32_t decoder_add_scale(struct zinf_graph *graph, const struct decoder *d, int64_t layer,
                           const char *prefix)
{
    const struct decoder_tensor one = {DECODER_NORM1_W, d->block_scale, 1, 0,
                                       DECODER_ROWS,    ZINF_INIT_ONE,  0};
    const struct decoder_tensors tensors = {.prefix = prefix, .list = &one, .n = 1};
    int at[DECODER_PLACES];
    uint32_t unit = zinf_graph_add_unit(graph, false, "scale.%lld", (long long)layer);
    decoder_add_tensors(graph, unit, d, &tensors, at);
    return unit;
}

uint32_t decoder_add_constants(struct zinf_graph *graph, const struct decoder *d, int64_t layer,
                               const char *prefix)
{
    const struct decoder_tensor list[] = {
        {DECODER_ALPHAS, d->xielu_beta, 1, 0, DECODER_SCALAR, ZINF_INIT_VALUE, 0.5f},
        {DECODER_ALPHAS, d->xielu_eps, 1, 0, DECODER_SCALAR, ZINF_INIT_VALUE, -1e-6f},
    };
    const struct decoder_tensors tensors = {.prefix = prefix, .list = list, .n = 2};
    int at[DECODER_PLACES];
    uint32_t unit = zinf_graph_add_unit(graph, false, "xielu.%lld", (long long)layer);
    decoder_add_tensors(graph, unit, d, &tensors, at);
    return unit;
}
