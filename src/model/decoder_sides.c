/*
 * decoder_sides: a second table of tokens, which has some columns for each layer. Its rows are
 * looked up once and added to a product of the embedded rows. Each layer gets its columns of the
 * result and adds something to the hidden rows by them. Tensor parallelism cuts the table by
 * tokens; the small matrices behind it are whole on each rank.
 */
#include "model/decoder_parts.h"

#include <math.h>
#include <stdio.h>

/* Tiles have about as many elements as those of the model's table, whose rows are shorter. */
static int64_t choose_rows(const struct decoder *d, int64_t cols)
{
    const int64_t rows = decoder_choose_tile_rows(d) * d->hidden / cols / 64 * 64;
    return decoder_even_rows(d, rows > 64 ? rows : 64);
}

static uint32_t look_up(struct zinf_graph *graph, const struct decoder *d,
                        const struct decoder_values *v, int64_t cols)
{
    struct decoder wide = *d;
    struct lookup_spec spec = {
        .has_padding = d->has_padding,
        .padding = d->padding,
        .scale = sqrtf((float)d->side.cols),
        .quiet = true,
    };
    const int64_t rows = d->join_tiles ? d->vocab : choose_rows(d, cols);
    const uint32_t first = graph->n_units;
    const uint32_t out = decoder_add_columns(graph, d, "side_rows", cols);
    wide.hidden = cols;
    wide.embedding = 0;
    wide.tile_bias = NULL;
    for (int64_t at = 0; at < d->vocab; at += rows, spec.n_tiles++) {
        uint32_t unit = zinf_graph_add_unit(graph, true, "side_table.%u", spec.n_tiles);
        decoder_add_tile(graph, unit, &wide, d->side.table, at, rows);
    }
    uint32_t stage =
        zinf_graph_add_stage(graph, &zinf_stage_lookup, &spec, sizeof spec, "side_lookup");
    zinf_stage_append(graph, stage, ZINF_STAGE_IN, v->ids);
    zinf_stage_append(graph, stage, ZINF_STAGE_OUT, out);
    for (uint32_t t = 0; t < spec.n_tiles; t++)
        zinf_stage_append(graph, stage, ZINF_STAGE_SWEEP, first + t);
    return out;
}

void decoder_add_sides(struct zinf_graph *graph, const struct decoder *d, struct decoder_values *v)
{
    const int64_t cols = d->n_layers * d->side.cols;
    const struct decoder_tensor list[] = {
        {DECODER_UP_W, d->side.w, (uint64_t)cols, (uint64_t)d->hidden, DECODER_ROWS,
         ZINF_INIT_NORMAL, d->init_std},
        {DECODER_NORM1_W, d->side.norm_w, (uint64_t)d->side.cols, 0, DECODER_ROWS, ZINF_INIT_ONE,
         0},
    };
    const struct decoder_tensors tensors = {.prefix = "", .list = list, .n = 2};
    struct sides_spec spec = {
        .hidden = d->hidden, .cols = d->side.cols, .n = d->n_layers, .norm = d->mlp.norm};
    const uint32_t rows = look_up(graph, d, v, cols);
    int at[DECODER_PLACES];
    uint32_t unit = zinf_graph_add_unit(graph, true, "sides.0");
    decoder_add_tensors(graph, unit, d, &tensors, at);
    spec.w = at[DECODER_UP_W];
    spec.norm.w = at[DECODER_NORM1_W];
    spec.norm.b = -1;
    /* The model divides the product by sqrt(hidden) before the norm. That changes nothing but the
     * weight of the epsilon. */
    spec.norm.eps *= (float)d->hidden;
    uint32_t stage = zinf_graph_add_stage(graph, &zinf_stage_sides, &spec, sizeof spec, "sides");
    zinf_stage_append(graph, stage, ZINF_STAGE_IN, rows);
    zinf_stage_append(graph, stage, ZINF_STAGE_IN, v->x);
    v->side = graph->n_values;
    for (int64_t i = 0; i < d->n_layers; i++) {
        char name[32];
        snprintf(name, sizeof name, "side.%lld", (long long)i);
        zinf_stage_append(graph, stage, ZINF_STAGE_OUT,
                          decoder_add_columns(graph, d, name, d->side.cols));
    }
    zinf_stage_append(graph, stage, ZINF_STAGE_UNITS, unit);
}

uint32_t decoder_add_side(struct zinf_graph *graph, const struct decoder *d,
                          const struct decoder_values *v, int64_t layer, uint32_t x)
{
    const uint64_t hidden = (uint64_t)d->hidden, cols = (uint64_t)d->side.cols;
    const struct decoder_tensor list[] = {
        {DECODER_UP_W, d->side.gate_w, cols, hidden, DECODER_ROWS, ZINF_INIT_NORMAL, d->init_std},
        {DECODER_DOWN_W, d->side.out_w, hidden, cols, DECODER_ROWS, ZINF_INIT_NORMAL, d->init_std},
        {DECODER_AFTER2_W, d->side.after_w, hidden, 0, DECODER_ROWS, ZINF_INIT_ONE, 0},
    };
    struct side_spec spec = {.hidden = d->hidden,
                             .cols = d->side.cols,
                             .activation = d->mlp.activation,
                             .after = d->mlp.norm,
                             .scaled = d->block_scale != NULL};
    char prefix[48], name[24];
    int at[DECODER_PLACES];
    snprintf(prefix, sizeof prefix, "%s.%lld.", d->blocks, (long long)layer);
    snprintf(name, sizeof name, "x.%lld", (long long)layer + 1);
    const struct decoder_tensors tensors = {.prefix = prefix, .list = list, .n = 3};
    uint32_t unit = zinf_graph_add_unit(graph, true, "side.%lld", (long long)layer);
    decoder_add_tensors(graph, unit, d, &tensors, at);
    uint32_t scale = spec.scaled ? decoder_add_scale(graph, d, layer, prefix) : 0;
    spec.gate_w = at[DECODER_UP_W];
    spec.out_w = at[DECODER_DOWN_W];
    spec.after.w = at[DECODER_AFTER2_W];
    spec.after.b = -1;
    uint32_t out = decoder_add_hidden(graph, d, name);
    uint32_t stage = zinf_graph_add_stage(graph, &zinf_stage_side, &spec, sizeof spec, "side.%lld",
                                          (long long)layer);
    zinf_stage_append(graph, stage, ZINF_STAGE_IN, x);
    zinf_stage_append(graph, stage, ZINF_STAGE_IN, v->side + (uint32_t)layer);
    zinf_stage_append(graph, stage, ZINF_STAGE_OUT, out);
    zinf_stage_append(graph, stage, ZINF_STAGE_UNITS, unit);
    if (spec.scaled)
        zinf_stage_append(graph, stage, ZINF_STAGE_UNITS, scale);
    return out;
}
