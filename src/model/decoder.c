/* decoder: makes values, units and stages from the description of a causal decoder. */
#include "model/decoder_parts.h"

#include <stdio.h>

static int check_range(const struct decoder *d, const char *name, int64_t value, int64_t most)
{
    if (value >= 1 && value <= most)
        return 0;
    return zinf_fail(-EINVAL, "%s: %s is %lld; it must be between 1 and %lld", d->what, name,
                     (long long)value, (long long)most);
}

static int check_heads(const struct decoder *d, const struct attention_spec *a)
{
    int code;
    if ((code = check_range(d, "the number of heads", a->n_heads, 1 << 16)) ||
        (code = check_range(d, "the number of key and value heads", a->n_kv_heads, a->n_heads)) ||
        (code = check_range(d, "the size of a head", a->head_dim, 1 << 16)))
        return code;
    if (a->n_heads % a->n_kv_heads)
        return zinf_fail(-EINVAL, "%s: %lld heads cannot share %lld key and value heads evenly",
                         d->what, (long long)a->n_heads, (long long)a->n_kv_heads);
    return 0;
}

static int check_kinds(const struct decoder *d)
{
    int code = 0;
    for (int64_t i = 0; !code && i < d->n_layers; i++)
        code = check_heads(d, &d->kinds[d->kind[i]].attention);
    return code;
}

int decoder_check_numbers(const struct decoder *d)
{
    int code;
    if ((code = check_range(d, "the number of layers", d->n_layers, 4096)) ||
        (code = check_range(d, "the hidden size", d->hidden, 1 << 20)) ||
        (code = check_range(d, "the feed-forward size", d->ffn, 1 << 22)) ||
        (code = check_range(d, "the vocabulary size", d->vocab, 1 << 24)) ||
        (code = check_range(d, "the context length", d->context, 1 << 24)))
        return code;
    const struct attention_spec *a = &d->attention;
    if ((code = check_heads(d, a)) || (d->kinds && (code = check_kinds(d))))
        return code;
    const struct decoder_experts *e = &d->experts;
    if (e->n && ((code = check_range(d, "the number of experts", e->n, ZINF_ROUTE_MAX_COLS)) ||
                 (code = check_range(d, "the number of experts of a token", e->n_chosen, e->n)) ||
                 (code = check_range(d, "the size of an expert", e->ffn, 1 << 22)) ||
                 (e->shared && (code = check_range(d, "the size of the shared expert",
                                                   e->shared_ffn, 1 << 22)))))
        return code;
    const float drops[] = {d->embedding_dropout, a->residual_dropout, a->dropout};
    for (int i = 0; i < 3; i++)
        if (!(drops[i] >= 0 && drops[i] < 1))
            return zinf_fail(-EINVAL, "%s: a dropout of %g is out of range; it must be in [0, 1)",
                             d->what, (double)drops[i]);
    return 0;
}

/* ---- values ---- */

uint32_t decoder_add_input(struct zinf_graph *graph, const struct decoder *d, const char *name,
                           enum zinf_input input, int64_t limit)
{
    struct zinf_value value = {
        .kind = ZINF_VALUE_INPUT,
        .input = input,
        .limit = limit,
        .rows_of = d->source ? ZINF_ROWS_OF_SOURCE : ZINF_ROWS_OF_TARGET,
        .cols = 1,
        .element = ZINF_ELEMENT_ID,
    };
    snprintf(value.name, sizeof value.name, "%s", name);
    return zinf_graph_add_value(graph, &value);
}

static struct decoder_values add_inputs(struct zinf_graph *graph, const struct decoder *d)
{
    struct decoder_values v = {0};
    v.ids = decoder_add_input(graph, d, "ids", ZINF_INPUT_IDS, d->vocab);
    if (d->positions || d->attention.rope.rotary_dims)
        v.positions = decoder_add_input(graph, d, "positions", ZINF_INPUT_POSITIONS,
                                        d->positions ? d->context : 0);
    if (d->packed)
        v.segments = decoder_add_input(graph, d, "segments", ZINF_INPUT_SEGMENTS, 0);
    if (d->piece) {
        v.pieces = decoder_add_input(graph, d, "pieces", ZINF_INPUT_PIECES, 0);
        graph->values[v.pieces].piece = d->piece;
    }
    if (d->embeds) {
        decoder_add_pulls(graph, d, &v);
    } else if (d->classes.n) {
        decoder_add_labels(graph, &d->classes, &v);
    } else {
        v.targets = decoder_add_input(graph, d, "targets", ZINF_INPUT_TARGETS, d->vocab);
        graph->targets = v.targets;
        graph->vocab = d->vocab;
    }
    v.x = decoder_add_hidden(graph, d, d->embedding_w ? "embedded" : "x.0");
    return v;
}

/* ---- stages ---- */

/* A further table that the lookup adds, such as that of positions. */
struct side_table {
    const char *unit, *name;
    int64_t rows;
};
static void add_table(struct zinf_graph *graph, const struct decoder *d, uint32_t stage,
                      uint32_t input, const struct side_table *table)
{
    uint32_t unit = zinf_graph_add_unit(graph, true, "%s", table->unit);
    decoder_add_rows(graph, unit, d, table->name,
                     (struct zinf_row_map){.rows = (uint64_t)table->rows, .count = 1}, table->rows);
    zinf_stage_append(graph, stage, ZINF_STAGE_IN, input);
    zinf_stage_append(graph, stage, ZINF_STAGE_SWEEP, unit);
}

void decoder_add_lookup(struct zinf_graph *graph, const struct decoder *d,
                        const struct decoder_values *v, uint32_t tiles, uint32_t n)
{
    struct lookup_spec spec = {
        .n_tiles = n,
        .first_position = d->first_position,
        .has_padding = d->has_padding,
        .padding = d->padding,
        .scale = d->embedding_scale,
        .dropout = d->embedding_dropout,
        .site = d->first_site,
    };
    uint32_t stage = zinf_graph_add_stage(graph, &zinf_stage_lookup, &spec, sizeof spec, "%s",
                                          d->source ? "source" : "lookup");
    zinf_stage_append(graph, stage, ZINF_STAGE_IN, v->ids);
    zinf_stage_append(graph, stage, ZINF_STAGE_OUT, v->x);
    for (uint32_t t = 0; t < n; t++)
        zinf_stage_append(graph, stage, ZINF_STAGE_SWEEP, tiles + t);
    const int64_t positions = d->first_position + d->context;
    if (d->positions)
        add_table(graph, d, stage, v->positions,
                  &(struct side_table){d->source ? "source_position.0" : "position.0", d->positions,
                                       positions});
    if (d->types)
        add_table(graph, d, stage, v->types, &(struct side_table){"type.0", d->types, d->n_types});
}

/* The operations of a layer: those of a block, or of one of its parts. */
struct runner {
    const struct zinf_stage_ops *ops;
    const void *spec;
    size_t bytes;
};

static struct runner runner_of(const struct decoder *d, int64_t layer,
                               const struct block_spec *spec)
{
    const enum decoder_parts parts = decoder_parts_of(d, layer);
    if (parts == DECODER_ATTENTION_ALONE)
        return (struct runner){&zinf_stage_attention, &spec->attention, sizeof spec->attention};
    if (parts == DECODER_MLP_ALONE)
        return (struct runner){&zinf_stage_mlp, &spec->mlp, sizeof spec->mlp};
    return (struct runner){d->shards.of ? &zinf_stage_shards : &zinf_stage_block, spec,
                           sizeof *spec};
}

/* Returns the number of the block's output. */
static uint32_t add_block(struct zinf_graph *graph, const struct decoder *d,
                          const struct decoder_values *v, int64_t layer)
{
    char prefix[48], name[24];
    int at[DECODER_PLACES];
    snprintf(prefix, sizeof prefix, "%s.%lld.", d->blocks, (long long)layer);
    snprintf(name, sizeof name, d->side.cols ? "x_mid.%lld" : "x.%lld", (long long)layer + 1);
    uint32_t unit = zinf_graph_add_unit(graph, true, "block.%lld", (long long)layer);
    const struct decoder_tensors tensors = decoder_list(d, layer, prefix);
    const struct decoder of = decoder_of_layer(d, layer);
    decoder_add_parts(graph, unit, &of, &tensors, at);
    struct block_spec spec = decoder_make_block(d, layer, at);
    uint32_t scale = spec.scaled      ? decoder_add_scale(graph, d, layer, prefix)
                     : spec.mlp.xielu ? decoder_add_constants(graph, d, layer, prefix)
                                      : 0;
    uint32_t out = decoder_add_hidden(graph, d, name);
    const struct runner r = runner_of(d, layer, &spec);
    uint32_t stage =
        zinf_graph_add_stage(graph, r.ops, r.spec, r.bytes, "block.%lld", (long long)layer);
    if (r.ops == &zinf_stage_mlp)
        zinf_stage_append(graph, stage, ZINF_STAGE_IN, v->x);
    else
        decoder_append_inputs(graph, stage, &spec.attention, v);
    zinf_stage_append(graph, stage, ZINF_STAGE_OUT, out);
    decoder_append_keys(graph, stage, d, v, layer, &spec.attention);
    zinf_stage_append(graph, stage, ZINF_STAGE_UNITS, unit);
    if (spec.scaled || spec.mlp.xielu)
        zinf_stage_append(graph, stage, ZINF_STAGE_UNITS, scale);
    return d->side.cols ? decoder_add_side(graph, d, v, layer, out) : out;
}

void decoder_add_norm(struct zinf_graph *graph, const struct decoder *d,
                      const struct decoder_norm *norm)
{
    struct norm_stage_spec spec = {d->attention.norm, norm->dropout, norm->site};
    const struct decoder_tensor list[] = {
        {DECODER_NORM1_W, norm->w, (uint64_t)d->hidden, 0, DECODER_ROWS,
         spec.norm.w_add != 0 ? ZINF_INIT_ZERO : ZINF_INIT_ONE, 0},
        {DECODER_NORM1_B, norm->b, (uint64_t)d->hidden, 0, DECODER_ROWS, ZINF_INIT_ZERO, 0},
    };
    int at[DECODER_PLACES];
    uint32_t unit = zinf_graph_add_unit(graph, true, "%s.0", norm->unit);
    const struct decoder_tensors tensors = {.prefix = "", .list = list, .n = norm->b ? 2 : 1};
    decoder_add_tensors(graph, unit, d, &tensors, at);
    spec.norm.w = at[DECODER_NORM1_W];
    spec.norm.b = at[DECODER_NORM1_B];
    uint32_t stage =
        zinf_graph_add_stage(graph, &zinf_stage_norm, &spec, sizeof spec, "%s", norm->stage);
    zinf_stage_append(graph, stage, ZINF_STAGE_IN, norm->x);
    zinf_stage_append(graph, stage, ZINF_STAGE_OUT, norm->out);
    zinf_stage_append(graph, stage, ZINF_STAGE_UNITS, unit);
}

/* Returns the number of the norm's output. */
static uint32_t add_embedding_norm(struct zinf_graph *graph, const struct decoder *d, uint32_t x)
{
    struct decoder_norm norm = {
        "embedding", "embedding", d->embedding_w, d->embedding_b, x, 0, 0, 0};
    norm.out = decoder_add_hidden(graph, d, "x.0");
    decoder_add_norm(graph, d, &norm);
    return norm.out;
}

uint32_t decoder_add_final_norm(struct zinf_graph *graph, const struct decoder *d, uint32_t x)
{
    struct decoder_norm norm = {"final", "norm", d->final_w,       d->final_b,
                                x,       0,      d->final_dropout, d->first_site + 1};
    struct zinf_value value = {
        .name = "normed",
        .kind = ZINF_VALUE_ACTIVATION,
        .rows_of = ZINF_ROWS_OF_TARGET,
        .cols = d->hidden,
        .element = ZINF_ELEMENT_PARAM,
        .gradient = ZINF_ELEMENT_F32,
    };
    norm.out = zinf_graph_add_value(graph, &value);
    if (d->final_w) {
        decoder_add_norm(graph, d, &norm);
        return norm.out;
    }
    uint32_t stage = zinf_graph_add_stage(graph, &zinf_stage_rows, NULL, 0, "rows");
    zinf_stage_append(graph, stage, ZINF_STAGE_IN, x);
    zinf_stage_append(graph, stage, ZINF_STAGE_OUT, norm.out);
    return norm.out;
}

/* Adds the file's row of numbers for all ids, which are added to logits and not trained. */
static uint32_t add_logits_bias(struct zinf_graph *graph, const struct decoder *d)
{
    const struct zinf_tensor tensor = {
        .rank = 2, .rows = 1, .cols = (uint64_t)d->vocab, .init = ZINF_INIT_ZERO};
    struct zinf_piece piece = {.plain_name = true,
                               .rank = 2,
                               .shape = {1, (uint64_t)d->vocab},
                               .rows = {.rows = 1, .count = 1}};
    uint32_t unit = zinf_graph_add_unit(graph, false, "logits_bias.0");
    snprintf(piece.name, sizeof piece.name, "%s", d->logits_bias);
    zinf_graph_add_tensor(graph, unit, &tensor);
    zinf_graph_add_piece(graph, unit, &piece);
    return unit;
}

void decoder_add_head(struct zinf_graph *graph, const struct decoder *d,
                      const struct decoder_values *v, uint32_t normed, uint32_t tiles)
{
    struct head_spec spec = {
        .tile_rows = decoder_choose_tile_rows(d),
        .scale = d->head_scale,
        .softcap = d->head_softcap,
        .unit_rows = d->unit_rows,
        .biased = d->logits_bias != NULL,
        .tile_bias = !d->tile_bias  ? 0
                     : d->shards.of ? (int)d->shards.n
                                    : 1,
    };
    uint32_t bias = spec.biased ? add_logits_bias(graph, d) : 0;
    int64_t n_tiles = (d->vocab + spec.tile_rows - 1) / spec.tile_rows;
    struct zinf_value loss = {
        .name = "loss",
        .kind = ZINF_VALUE_LOSS,
        .rows_of = ZINF_ROWS_OF_TARGET,
        .cols = 1,
        .element = ZINF_ELEMENT_F32,
    };
    if (d->head)
        tiles = decoder_add_tiles(graph, d, "head", d->head);
    graph->loss = zinf_graph_add_value(graph, &loss);
    graph->row_cols = spec.tile_rows;
    uint32_t stage = zinf_graph_add_stage(graph, &zinf_stage_head, &spec, sizeof spec, "head");
    zinf_stage_append(graph, stage, ZINF_STAGE_IN, normed);
    zinf_stage_append(graph, stage, ZINF_STAGE_IN, v->targets);
    zinf_stage_append(graph, stage, ZINF_STAGE_OUT, graph->loss);
    if (spec.biased)
        zinf_stage_append(graph, stage, ZINF_STAGE_UNITS, bias);
    for (int64_t t = 0; t < n_tiles; t++)
        zinf_stage_append(graph, stage, ZINF_STAGE_SWEEP, tiles + (uint32_t)t);
}

int decoder_build(struct zinf_graph *graph, const struct decoder *d)
{
    int code = decoder_check_numbers(d);
    if (!code)
        code = decoder_check_turns(d);
    if (!code)
        code = decoder_cut(graph, d);
    if (code)
        return code;
    struct decoder_values v = add_inputs(graph, d);
    uint32_t tiles = decoder_add_tiles(graph, d, "table", d->table);
    decoder_add_lookup(graph, d, &v, tiles, graph->n_units - tiles);
    if (d->embedding_w)
        v.x = add_embedding_norm(graph, d, v.x);
    v.kv = d->keys_of ? zinf_graph_take(graph, (size_t)d->n_layers * sizeof *v.kv) : NULL;
    if (d->keys_of && !v.kv)
        return zinf_fail(-ENOMEM, "no memory for the layers of %s", d->what);
    if (d->side.cols)
        decoder_add_sides(graph, d, &v);
    for (int64_t layer = 0; layer < d->n_layers; layer++)
        v.x = decoder_has_experts(d, layer) ? decoder_add_experts(graph, d, &v, layer)
              : d->shards.in_turn           ? decoder_add_turns(graph, d, &v, layer)
                                            : add_block(graph, d, &v, layer);
    if (v.n_shares)
        decoder_add_balance(graph, d, &v);
    uint32_t normed = decoder_add_final_norm(graph, d, v.x);
    if (d->embeds)
        decoder_add_pool(graph, &v, normed);
    else if (d->classes.n)
        decoder_add_classes(graph, d, normed);
    else
        decoder_add_head(graph, d, &v, normed, tiles);
    return 0;
}
