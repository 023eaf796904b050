/* decoder: numbers and names of a causal decoder to values, units and stages. */
#include "model/decoder_units.h"

#include <stdio.h>

/* Numbers of the values that stages share. */
struct values {
    uint32_t ids, positions, targets, x;
};

static int check_range(const struct decoder *d, const char *name, int64_t value, int64_t most)
{
    if (value >= 1 && value <= most)
        return 0;
    return zinf_fail(-EINVAL, "%s: %s is %lld; it must be between 1 and %lld", d->what, name,
                     (long long)value, (long long)most);
}

static int check_numbers(const struct decoder *d)
{
    int code;
    if ((code = check_range(d, "the number of layers", d->n_layers, 4096)) ||
        (code = check_range(d, "the hidden size", d->hidden, 1 << 20)) ||
        (code = check_range(d, "the feed-forward size", d->ffn, 1 << 22)) ||
        (code = check_range(d, "the vocabulary size", d->vocab, 1 << 24)) ||
        (code = check_range(d, "the context length", d->context, 1 << 24)))
        return code;
    const struct attention_spec *a = &d->attention;
    if ((code = check_range(d, "the number of heads", a->n_heads, 1 << 16)) ||
        (code = check_range(d, "the number of key and value heads", a->n_kv_heads, a->n_heads)) ||
        (code = check_range(d, "the size of a head", a->head_dim, 1 << 16)))
        return code;
    if (a->n_heads % a->n_kv_heads)
        return zinf_fail(-EINVAL, "%s: %lld heads cannot share %lld key and value heads evenly",
                         d->what, (long long)a->n_heads, (long long)a->n_kv_heads);
    const float drops[] = {d->embedding_dropout, a->residual_dropout, a->dropout};
    for (int i = 0; i < 3; i++)
        if (!(drops[i] >= 0 && drops[i] < 1))
            return zinf_fail(-EINVAL, "%s: a dropout of %g is out of range; it must be in [0, 1)",
                             d->what, (double)drops[i]);
    return 0;
}

/* ---- values ---- */

static uint32_t add_input(struct zinf_graph *graph, const char *name, enum zinf_input input,
                          int64_t limit)
{
    struct zinf_value value = {
        .kind = ZINF_VALUE_INPUT,
        .input = input,
        .limit = limit,
        .axis = ZINF_AXIS_TARGET,
        .cols = 1,
        .element = ZINF_ELEMENT_ID,
    };
    snprintf(value.name, sizeof value.name, "%s", name);
    return zinf_graph_add_value(graph, &value);
}

static uint32_t add_hidden(struct zinf_graph *graph, const struct decoder *d, const char *name)
{
    struct zinf_value value = {
        .kind = ZINF_VALUE_ACTIVATION,
        .axis = ZINF_AXIS_TARGET,
        .cols = d->hidden,
        .element = ZINF_ELEMENT_PARAM,
        .gradient = ZINF_ELEMENT_PARAM,
        .leaves = true,
    };
    snprintf(value.name, sizeof value.name, "%s", name);
    return zinf_graph_add_value(graph, &value);
}

static struct values add_inputs(struct zinf_graph *graph, const struct decoder *d)
{
    struct values v = {0};
    v.ids = add_input(graph, "ids", ZINF_INPUT_IDS, d->vocab);
    if (d->positions || d->attention.rope.rotary_dims)
        v.positions =
            add_input(graph, "positions", ZINF_INPUT_POSITIONS, d->positions ? d->context : 0);
    v.targets = add_input(graph, "targets", ZINF_INPUT_TARGETS, d->vocab);
    v.x = add_hidden(graph, d, d->embedding_w ? "embedded" : "x.0");
    graph->targets = v.targets;
    graph->vocab = d->vocab;
    return v;
}

/* ---- stages ---- */

/* The tiles' first number. */
static uint32_t add_lookup(struct zinf_graph *graph, const struct decoder *d,
                           const struct values *v)
{
    uint32_t tiles = decoder_add_tiles(graph, d, "table", d->table);
    struct lookup_spec spec = {
        .n_tiles = graph->n_units - tiles,
        .first_position = d->first_position,
        .scale = d->embedding_scale,
        .dropout = d->embedding_dropout,
    };
    uint32_t stage = zinf_graph_add_stage(graph, &zinf_stage_lookup, &spec, sizeof spec, "lookup");
    zinf_stage_append(graph, stage, ZINF_STAGE_IN, v->ids);
    zinf_stage_append(graph, stage, ZINF_STAGE_OUT, v->x);
    for (uint32_t t = 0; t < spec.n_tiles; t++)
        zinf_stage_append(graph, stage, ZINF_STAGE_SWEEP, tiles + t);
    if (d->positions) {
        uint32_t unit = zinf_graph_add_unit(graph, true, "position.0");
        int64_t rows = d->first_position + d->context;
        decoder_add_rows(graph, unit, d, d->positions,
                         (struct zinf_row_map){.rows = (uint64_t)rows, .count = 1}, rows);
        zinf_stage_append(graph, stage, ZINF_STAGE_IN, v->positions);
        zinf_stage_append(graph, stage, ZINF_STAGE_SWEEP, unit);
    }
    return tiles;
}

/* The block's spec: the decoder's, with its own numbers. Dropout sites: three places a layer, and
 * the lookup at 0. */
static struct block_spec make_block(const struct decoder *d, int64_t layer,
                                    const int at[DECODER_PLACES])
{
    struct block_spec spec = {d->attention, d->mlp, d->parallel, d->one_norm};
    struct attention_spec *a = &spec.attention;
    struct mlp_spec *m = &spec.mlp;
    a->hidden = m->hidden = d->hidden;
    m->ffn = d->ffn;
    if (d->scale_by_inverse_layer)
        a->scale /= (float)(layer + 1);
    if (d->windowed && !d->windowed[layer])
        a->window = 0;
    else if (d->windowed_rope)
        a->rope = *d->windowed_rope;
    a->norm.w = at[DECODER_NORM1_W];
    a->norm.b = at[DECODER_NORM1_B];
    a->qkv_w = at[DECODER_QKV_W];
    a->qkv_b = at[DECODER_QKV_B];
    a->proj_w = at[DECODER_PROJ_W];
    a->proj_b = at[DECODER_PROJ_B];
    a->q_norm = a->k_norm = a->after = a->norm;
    a->q_norm.w = at[DECODER_Q_NORM];
    a->k_norm.w = at[DECODER_K_NORM];
    a->after.w = at[DECODER_AFTER1_W];
    a->q_norm.b = a->k_norm.b = a->after.b = -1;
    m->norm.w = at[DECODER_NORM2_W];
    m->norm.b = at[DECODER_NORM2_B];
    m->after = m->norm;
    m->after.w = at[DECODER_AFTER2_W];
    m->after.b = -1;
    m->up_w = at[DECODER_UP_W];
    m->up_b = at[DECODER_UP_B];
    m->down_w = at[DECODER_DOWN_W];
    m->down_b = at[DECODER_DOWN_B];
    a->site = 1 + 3 * (uint32_t)layer;
    m->site = a->site + 2;
    return spec;
}

/* The number of its output. */
static uint32_t add_block(struct zinf_graph *graph, const struct decoder *d, const struct values *v,
                          int64_t layer)
{
    char prefix[48], name[24];
    int at[DECODER_PLACES];
    snprintf(prefix, sizeof prefix, "%s.%lld.", d->blocks, (long long)layer);
    snprintf(name, sizeof name, "x.%lld", (long long)layer + 1);
    uint32_t unit = zinf_graph_add_unit(graph, true, "block.%lld", (long long)layer);
    const struct decoder_tensors tensors = {prefix, d->tensors, d->n_tensors};
    decoder_add_tensors(graph, unit, d, &tensors, at);
    struct block_spec spec = make_block(d, layer, at);
    uint32_t out = add_hidden(graph, d, name);
    uint32_t stage = zinf_graph_add_stage(graph, &zinf_stage_block, &spec, sizeof spec,
                                          "block.%lld", (long long)layer);
    zinf_stage_append(graph, stage, ZINF_STAGE_IN, v->x);
    if (spec.attention.rope.rotary_dims)
        zinf_stage_append(graph, stage, ZINF_STAGE_IN, v->positions);
    zinf_stage_append(graph, stage, ZINF_STAGE_OUT, out);
    zinf_stage_append(graph, stage, ZINF_STAGE_UNITS, unit);
    return out;
}

/* From x to the value `out`, by a unit of its own with tensors w and b (NULL: none). */
static void add_norm(struct zinf_graph *graph, const struct decoder *d, const char *unit_name,
                     const char *const names[2], uint32_t x, uint32_t out)
{
    struct norm_spec spec = d->attention.norm;
    const struct decoder_tensor list[] = {
        {DECODER_NORM1_W, names[0], (uint64_t)d->hidden, 0, DECODER_ROWS,
         spec.w_add != 0 ? ZINF_INIT_ZERO : ZINF_INIT_ONE, 0},
        {DECODER_NORM1_B, names[1], (uint64_t)d->hidden, 0, DECODER_ROWS, ZINF_INIT_ZERO, 0},
    };
    int at[DECODER_PLACES];
    uint32_t unit = zinf_graph_add_unit(graph, true, "%s.0", unit_name);
    const struct decoder_tensors tensors = {"", list, names[1] ? 2 : 1};
    decoder_add_tensors(graph, unit, d, &tensors, at);
    spec.w = at[DECODER_NORM1_W];
    spec.b = at[DECODER_NORM1_B];
    uint32_t stage = zinf_graph_add_stage(graph, &zinf_stage_norm, &spec, sizeof spec, "%s",
                                          strcmp(unit_name, "final") ? unit_name : "norm");
    zinf_stage_append(graph, stage, ZINF_STAGE_IN, x);
    zinf_stage_append(graph, stage, ZINF_STAGE_OUT, out);
    zinf_stage_append(graph, stage, ZINF_STAGE_UNITS, unit);
}

/* The number of its output. */
static uint32_t add_embedding_norm(struct zinf_graph *graph, const struct decoder *d, uint32_t x)
{
    const char *const names[] = {d->embedding_w, d->embedding_b};
    uint32_t out = add_hidden(graph, d, "x.0");
    add_norm(graph, d, "embedding", names, x, out);
    return out;
}

/* The number of its output. */
static uint32_t add_final_norm(struct zinf_graph *graph, const struct decoder *d, uint32_t x)
{
    const char *const names[] = {d->final_w, d->final_b};
    struct zinf_value value = {
        .name = "normed",
        .kind = ZINF_VALUE_ACTIVATION,
        .axis = ZINF_AXIS_TARGET,
        .cols = d->hidden,
        .element = ZINF_ELEMENT_PARAM,
        .gradient = ZINF_ELEMENT_F32,
    };
    uint32_t out = zinf_graph_add_value(graph, &value);
    add_norm(graph, d, "final", names, x, out);
    return out;
}

static void add_head(struct zinf_graph *graph, const struct decoder *d, const struct values *v,
                     uint32_t normed, uint32_t tiles)
{
    struct head_spec spec = {
        .tile_rows = decoder_choose_tile_rows(d),
        .softcap = d->head_softcap,
        .unit_rows = d->unit_rows,
    };
    int64_t n_tiles = (d->vocab + spec.tile_rows - 1) / spec.tile_rows;
    struct zinf_value loss = {
        .name = "loss",
        .kind = ZINF_VALUE_LOSS,
        .axis = ZINF_AXIS_TARGET,
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
    for (int64_t t = 0; t < n_tiles; t++)
        zinf_stage_append(graph, stage, ZINF_STAGE_SWEEP, tiles + (uint32_t)t);
}

int decoder_build(struct zinf_graph *graph, const struct decoder *d)
{
    int code = check_numbers(d);
    if (code)
        return code;
    struct values v = add_inputs(graph, d);
    uint32_t tiles = add_lookup(graph, d, &v);
    if (d->embedding_w)
        v.x = add_embedding_norm(graph, d, v.x);
    for (int64_t layer = 0; layer < d->n_layers; layer++)
        v.x = add_block(graph, d, &v, layer);
    add_head(graph, d, &v, add_final_norm(graph, d, v.x), tiles);
    return 0;
}
