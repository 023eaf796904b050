/* decoder_parts: hidden values, the spec of a block. */
#include "model/decoder_parts.h"

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

/* The norms of rows of low rank are always those of the class's default. */
static void place_latent(struct attention_spec *a, const int at[DECODER_PLACES])
{
    struct latent_spec *l = &a->latent;
    l->q_w = at[DECODER_LATENT_Q_W];
    l->kv_w = at[DECODER_LATENT_KV_W];
    l->q_norm = a->q_norm;
    l->kv_norm = a->k_norm;
    l->q_norm.eps = l->kv_norm.eps = 1e-6f;
    a->q_norm.w = a->k_norm.w = -1;
}

bool decoder_is_mixed(const struct decoder *d, int64_t layer)
{
    return d->mixed && d->mixed[layer] && !d->mixer_beside;
}

static const struct decoder_kind *kind_of(const struct decoder *d, int64_t layer)
{
    return d->kinds ? &d->kinds[d->kind[layer]] : NULL;
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
    } else if (decoder_is_mixed(d, layer)) {
        tensors.list = d->mixed_tensors;
        tensors.n = d->n_mixed_tensors;
    } else if (kind_of(d, layer)) {
        tensors.list = kind_of(d, layer)->tensors;
        tensors.n = kind_of(d, layer)->n_tensors;
    }
    return tensors;
}

/* A mixer knows no positions. */
static void place_mixer(const struct decoder *d, struct attention_spec *a,
                        const int at[DECODER_PLACES])
{
    struct mixer_spec *m = &a->mixer;
    *m = d->mixer;
    m->conv_w = at[DECODER_MIXER_CONV_W];
    m->conv_b = at[DECODER_MIXER_CONV_B];
    m->a_log = at[DECODER_MIXER_A_LOG];
    m->step_bias = at[DECODER_MIXER_STEP_BIAS];
    m->skip = at[DECODER_MIXER_SKIP];
    m->norm.w = at[DECODER_MIXER_NORM];
    m->norm.b = -1;
    a->qkv_w = at[DECODER_MIXER_IN_W];
    a->qkv_b = at[DECODER_MIXER_IN_B];
    a->proj_w = at[DECODER_MIXER_OUT_W];
    a->proj_b = at[DECODER_MIXER_OUT_B];
    a->gated = false;
    a->rope.rotary_dims = 0;
}

/* Whose keys and values it takes, and whether others take its own. */
static void share_keys(const struct decoder *d, int64_t layer, struct attention_spec *a)
{
    if (d->keys_of[layer] != layer)
        a->taken = 1 + (a->rope.rotary_dims > 0) + (a->segments > 0);
    for (int64_t i = layer + 1; i < d->n_layers; i++)
        a->gives |= d->keys_of[i] == layer;
}

/* Behind the norm of attention, whose places it has among what the stage takes. */
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

/* Those of heads and behind the part, which are as the first one is. */
static void place_norms(const struct decoder *d, struct attention_spec *a,
                        const int at[DECODER_PLACES])
{
    a->q_norm = a->k_norm = a->after = a->norm;
    a->q_norm.w = at[DECODER_Q_NORM];
    a->k_norm.w = at[DECODER_K_NORM];
    a->after.w = at[DECODER_AFTER1_W];
    a->q_norm.b = a->k_norm.b = a->after.b = -1;
    a->q_norm.plain = a->k_norm.plain =
        d->plain_head_norms && a->rope.rotary_dims && !a->rope.still;
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
    struct attention_spec *a = &spec.attention;
    struct mlp_spec *m = &spec.mlp;
    a->hidden = m->hidden = d->hidden;
    m->ffn = kind ? kind->ffn : d->ffn;
    if (d->scale_by_inverse_layer)
        a->scale /= (float)(layer + 1);
    if (d->windowed && !d->windowed[layer])
        a->window = 0;
    else if (d->windowed_rope)
        a->rope = *d->windowed_rope;
    const bool still = d->rotated && !d->rotated[layer];
    if (still)
        a->rope = d->still_rope;
    a->norm.w = at[DECODER_NORM1_W];
    a->norm.b = at[DECODER_NORM1_B];
    a->qkv_w = at[DECODER_QKV_W];
    a->qkv_b = at[DECODER_QKV_B];
    a->kv_w = at[DECODER_KV_W];
    a->kv_b = at[DECODER_KV_B];
    a->proj_w = at[DECODER_PROJ_W];
    a->proj_b = at[DECODER_PROJ_B];
    a->sinks = at[DECODER_SINKS];
    place_norms(d, a, at);
    if (a->latent.kv_rank)
        place_latent(a, at);
    if (decoder_is_mixed(d, layer))
        place_mixer(d, a, at);
    a->piece = still ? 0 : d->piece;
    if (d->packed || a->piece)
        a->segments = a->rope.rotary_dims ? 2 : 1;
    if (d->keys_of)
        share_keys(d, layer, a);
    if (d->mixer_beside)
        spec.beside = place_beside(d, a, at);
    m->norm.w = at[DECODER_NORM2_W];
    m->norm.b = at[DECODER_NORM2_B];
    m->after = m->norm;
    m->after.w = at[DECODER_AFTER2_W];
    m->after.b = -1;
    m->up_w = at[DECODER_UP_W];
    m->up_b = at[DECODER_UP_B];
    m->down_w = at[DECODER_DOWN_W];
    m->down_b = at[DECODER_DOWN_B];
    m->alphas = at[DECODER_ALPHAS];
    a->site = 1 + 3 * (uint32_t)layer;
    m->site = a->site + 2;
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
    v->kv[layer] = decoder_add_columns(graph, d, name, 2 * s->n_kv_heads * s->head_dim);
    zinf_stage_append(graph, stage, ZINF_STAGE_OUT, v->kv[layer]);
}

/* The number that scales a block is not trained: a unit of its own. */
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
