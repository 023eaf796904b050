/* decoder_parts: tensors from a list, hidden values, the spec of a block. */
#include "model/decoder_parts.h"

#include <stdio.h>

/* The piece that t is, behind `first` rows of the unit's tensor. */
static void add_piece(struct zinf_graph *graph, uint32_t unit, const struct decoder_tensor *t,
                      const char *prefix, uint64_t first)
{
    uint64_t cols = t->cols ? t->cols : 1;
    struct zinf_piece piece = {
        .rank = t->cols ? 2 : 1,
        .shape = {t->transposed ? cols : t->rows, t->transposed ? t->rows : cols},
        .transposed = t->transposed,
        .rows = {.flat_first = first, .rows = t->rows, .count = 1},
    };
    snprintf(piece.name, sizeof piece.name, "%s%s", prefix, t->name);
    zinf_graph_add_piece(graph, unit, &piece);
}

void decoder_add_tensors(struct zinf_graph *graph, uint32_t unit, const char *prefix,
                         const struct decoder_tensor *list, size_t n, int at[DECODER_PLACES])
{
    for (int place = 0; place < DECODER_PLACES; place++)
        at[place] = -1;
    for (size_t i = 0, next; i < n; i = next) {
        struct zinf_tensor tensor = {
            .rank = list[i].cols ? 2 : 1,
            .cols = list[i].cols ? list[i].cols : 1,
            .decay = list[i].cols != 0,
            .init = list[i].init,
            .init_std = list[i].std,
        };
        for (next = i; next < n && list[next].place == list[i].place; next++)
            tensor.rows += list[next].rows;
        at[list[i].place] = (int)zinf_graph_add_tensor(graph, unit, &tensor);
        for (uint64_t first = 0; i < next; first += list[i++].rows)
            add_piece(graph, unit, &list[i], prefix, first);
    }
}

uint32_t decoder_add_hidden(struct zinf_graph *graph, const struct decoder *d, const char *name,
                            int64_t layer)
{
    struct zinf_value value = {
        .kind = ZINF_VALUE_ACTIVATION,
        .axis = ZINF_AXIS_TARGET,
        .cols = d->hidden,
        .element = ZINF_ELEMENT_PARAM,
        .gradient = ZINF_ELEMENT_PARAM,
        .leaves = true,
    };
    snprintf(value.name, sizeof value.name, "%s.%lld", name, (long long)layer);
    return zinf_graph_add_value(graph, &value);
}

struct block_spec decoder_make_block(const struct decoder *d, int64_t layer,
                                     const int at[DECODER_PLACES])
{
    struct block_spec spec = {d->attention, d->mlp};
    struct attention_spec *a = &spec.attention;
    struct mlp_spec *m = &spec.mlp;
    a->hidden = m->hidden = d->hidden;
    m->ffn = d->ffn;
    if (d->scale_by_inverse_layer)
        a->scale /= (float)(layer + 1);
    if (d->windowed && !d->windowed[layer])
        a->window = 0;
    a->norm.w = at[DECODER_NORM1_W];
    a->norm.b = at[DECODER_NORM1_B];
    a->qkv_w = at[DECODER_QKV_W];
    a->qkv_b = at[DECODER_QKV_B];
    a->proj_w = at[DECODER_PROJ_W];
    a->proj_b = at[DECODER_PROJ_B];
    a->q_norm = a->k_norm = a->norm;
    a->q_norm.w = at[DECODER_Q_NORM];
    a->k_norm.w = at[DECODER_K_NORM];
    a->q_norm.b = a->k_norm.b = -1;
    m->norm.w = at[DECODER_NORM2_W];
    m->norm.b = at[DECODER_NORM2_B];
    m->up_w = at[DECODER_UP_W];
    m->up_b = at[DECODER_UP_B];
    m->down_w = at[DECODER_DOWN_W];
    m->down_b = at[DECODER_DOWN_B];
    a->site = 1 + 3 * (uint32_t)layer;
    m->site = a->site + 2;
    return spec;
}
