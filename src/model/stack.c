/* stack: makes values, units and stages from the description of an encoder, and of a decoder that
 * reads one. */
#include "model/stack_parts.h"

#include <math.h>
#include <stdio.h>

/* The order of a layer's inputs. */
enum { IN_X, IN_SEGMENTS, IN_SOURCE, IN_SOURCE_SEGMENTS };

/* ---- a layer's spec ---- */

static struct norm_spec no_norm(struct norm_spec norm)
{
    norm.w = norm.b = -1;
    return norm;
}

/* The spec of attention to the source, made from that of attention to the sequence itself. */
static struct attention_spec cross_of(const struct attention_spec *own,
                                      const int at[DECODER_PLACES])
{
    struct attention_spec s = *own;
    s.both_ways = true;
    s.distance.n_buckets = 0;
    s.relative.half = 0;
    s.norm.w = at[DECODER_CROSS_NORM_W];
    s.norm.b = at[DECODER_CROSS_NORM_B];
    s.qkv_w = at[DECODER_CROSS_Q_W];
    s.qkv_b = at[DECODER_CROSS_Q_B];
    s.kv_w = at[DECODER_CROSS_KV_W];
    s.kv_b = at[DECODER_CROSS_KV_B];
    s.proj_w = at[DECODER_CROSS_PROJ_W];
    s.proj_b = at[DECODER_CROSS_PROJ_B];
    s.sinks = -1;
    s.source = IN_SOURCE;
    s.source_segments = IN_SOURCE_SEGMENTS;
    s.site += STACK_CROSS_SITE;
    return s;
}

static struct layer_spec make_layer(const struct stack *k, int64_t layer, bool crosses,
                                    const int at[DECODER_PLACES])
{
    struct block_spec block = decoder_make_block(&k->d, layer, at);
    struct layer_spec s = {.crosses = crosses, .mlp = block.mlp};
    struct attention_spec *a = &s.attention[LAYER_ATTENTION];
    *a = block.attention;
    a->both_ways = k->both_ways;
    a->segments = IN_SEGMENTS;
    a->site = k->d.first_site + STACK_SITES + STACK_LAYER_SITES * (uint32_t)layer;
    a->distance = (struct distance_spec){.n_buckets = k->distance.n_buckets,
                                         .both_ways = k->distance.both_ways,
                                         .starts = k->distance.starts,
                                         .unit = 1};
    a->relative = stack_relative_spec(k);
    a->relative.site = a->site + STACK_CROSS_SITE;
    a->relative.w = at[DECODER_RELATIVE_W];
    a->relative.b = at[DECODER_RELATIVE_B];
    s.attention[LAYER_CROSS] = cross_of(a, at);
    s.mlp.inner_site = a->site + 4;
    s.mlp.site = a->site + 5;
    s.mlp.dropout = k->inner_dropout;
    struct norm_spec *norms[LAYER_PARTS] = {&a->norm, &s.attention[LAYER_CROSS].norm, &s.mlp.norm};
    for (int part = 0; part < LAYER_PARTS; part++) {
        s.joined[part] = k->norm_behind ? *norms[part] : no_norm(*norms[part]);
        if (k->norm_behind)
            *norms[part] = no_norm(*norms[part]);
    }
    return s;
}

/* ---- stages ---- */

static void add_layer(struct zinf_graph *graph, const struct stack *k, struct stack_shared *v,
                      int64_t layer)
{
    const struct decoder *d = &k->d;
    const char *kind = d->source ? "source_block" : "block";
    const uint32_t in[] = {v->x, v->segments, v->source, v->source_segments};
    char prefix[64], name[32];
    int at[DECODER_PLACES];
    snprintf(prefix, sizeof prefix, "%s.%lld.", d->blocks, (long long)layer);
    snprintf(name, sizeof name, "%s.%lld", d->source ? "source" : "x", (long long)layer + 1);
    uint32_t unit = zinf_graph_add_unit(graph, true, "%s.%lld", kind, (long long)layer);
    const struct decoder_tensors tensors = {
        .prefix = prefix, .list = d->tensors, .n = d->n_tensors};
    decoder_add_parts(graph, unit, d, &tensors, at);
    if (!layer && stack_has_table(k))
        v->table = stack_add_table(graph, k);
    struct layer_spec spec = make_layer(k, layer, v->crosses, at);
    uint32_t out = decoder_add_hidden(graph, d, name);
    uint32_t stage = zinf_graph_add_stage(graph, &zinf_stage_layer, &spec, sizeof spec, "%s.%lld",
                                          kind, (long long)layer);
    for (int i = IN_X; i <= (v->crosses ? IN_SOURCE_SEGMENTS : IN_SEGMENTS); i++)
        zinf_stage_append(graph, stage, ZINF_STAGE_IN, in[i]);
    zinf_stage_append(graph, stage, ZINF_STAGE_OUT, out);
    zinf_stage_append(graph, stage, ZINF_STAGE_UNITS, unit);
    if (stack_has_table(k))
        zinf_stage_append(graph, stage, ZINF_STAGE_UNITS, v->table);
    v->x = out;
}

/* Adds the stages from tokens to the first layer's input. The table has n tiles from unit `tiles`
 * on. */
static void add_entry(struct zinf_graph *graph, const struct stack *k, struct decoder_values *v,
                      uint32_t tiles, uint32_t n)
{
    const struct decoder *d = &k->d;
    const char *first = d->source ? "source.0" : "x.0";
    v->x = k->projection ? decoder_add_columns(graph, d, "looked_up", d->embedding)
                         : decoder_add_hidden(graph, d, d->embedding_w ? "embedded" : first);
    decoder_add_lookup(graph, d, v, tiles, n);
    if (k->projection)
        v->x = stack_add_projection(graph, k, v->x);
    if (!d->embedding_w)
        return;
    struct decoder_norm norm = {.unit = d->source ? "source_embedding" : "embedding",
                                .stage = d->source ? "source_embedding" : "embedding",
                                .w = d->embedding_w,
                                .b = d->embedding_b,
                                .x = v->x,
                                .dropout = d->embedding_norm_dropout,
                                .site = d->first_site};
    norm.out = v->x = decoder_add_hidden(graph, d, first);
    decoder_add_norm(graph, d, &norm);
}

/* ---- an encoder alone ---- */

struct decoder_values stack_add_inputs(struct zinf_graph *graph, const struct decoder *d)
{
    struct decoder_values v = {0};
    v.ids = decoder_add_input(graph, d, "ids", ZINF_INPUT_IDS, d->vocab);
    if (d->positions)
        v.positions = decoder_add_input(graph, d, "positions", ZINF_INPUT_POSITIONS, d->context);
    if (d->types)
        v.types = decoder_add_input(graph, d, "types", ZINF_INPUT_TOKEN_TYPES, d->n_types);
    v.segments = decoder_add_input(graph, d, "segments", ZINF_INPUT_SEGMENTS, 0);
    return v;
}

uint32_t stack_add_encoder(struct zinf_graph *graph, const struct stack *k,
                           struct decoder_values *v)
{
    const struct decoder *d = &k->d;
    const uint32_t tiles = decoder_add_tiles(graph, d, "table", d->table);
    add_entry(graph, k, v, tiles, graph->n_units - tiles);
    struct stack_shared shared = {.x = v->x, .segments = v->segments};
    for (int64_t layer = 0; layer < d->n_layers; layer++) {
        add_layer(graph, k, &shared, layer);
        if (!layer && k->convolution.width)
            stack_add_convolution(graph, k, &shared, v->x);
    }
    v->x = shared.x;
    return tiles;
}

/* ---- a pair ---- */

/* Returns the value that the decoder reads: the last layer's output, or its norm. */
static uint32_t add_source_end(struct zinf_graph *graph, const struct decoder *d, uint32_t x)
{
    struct decoder_norm norm = {.unit = "source_final",
                                .stage = "source_norm",
                                .w = d->final_w,
                                .b = d->final_b,
                                .x = x,
                                .dropout = d->final_dropout,
                                .site = d->first_site + 1};
    if (!d->final_w)
        return x;
    norm.out = decoder_add_hidden(graph, d, "encoded");
    decoder_add_norm(graph, d, &norm);
    return norm.out;
}

struct pair_inputs {
    struct decoder_values source, target;
};

static struct pair_inputs add_inputs(struct zinf_graph *graph, const struct decoder *s,
                                     const struct decoder *t)
{
    struct pair_inputs v = {{0}, {0}};
    v.source.ids = decoder_add_input(graph, s, "source_ids", ZINF_INPUT_SOURCE_IDS, t->vocab);
    if (s->positions)
        v.source.positions = decoder_add_input(graph, s, "source_positions",
                                               ZINF_INPUT_SOURCE_POSITIONS, s->context);
    v.source.segments =
        decoder_add_input(graph, s, "source_segments", ZINF_INPUT_SOURCE_SEGMENTS, 0);
    v.target.ids = decoder_add_input(graph, t, "ids", ZINF_INPUT_IDS, t->vocab);
    if (t->positions)
        v.target.positions =
            decoder_add_input(graph, t, "positions", ZINF_INPUT_POSITIONS, t->context);
    v.target.segments = decoder_add_input(graph, t, "segments", ZINF_INPUT_SEGMENTS, 0);
    v.target.targets = decoder_add_input(graph, t, "targets", ZINF_INPUT_TARGETS, t->vocab);
    graph->targets = v.target.targets;
    graph->vocab = t->vocab;
    return v;
}

/* Whether rows of relative positions have products of their own. */
static bool has_relative_products(const struct stack *k)
{
    for (size_t i = 0; i < k->d.n_tensors; i++)
        if (k->d.tensors[i].place == DECODER_RELATIVE_W)
            return true;
    return false;
}

int stack_cut(struct zinf_graph *graph, const struct stack *k)
{
    const char *what = has_relative_products(k) ? "products of relative positions"
                       : k->convolution.width   ? "a convolution"
                       : k->projection          ? "a projection behind its table"
                                                : NULL;
    if (k->d.shards.in_turn)
        return zinf_fail(-ENOTSUP,
                         "zinf.parts_in_turn: the layers of %s are not visited part by part; "
                         "remove the key",
                         k->d.what);
    if (what && k->d.shards.of)
        return zinf_fail(-ENOTSUP,
                         "zinf.tensor_parts %u: %s has %s, which is not cut into parts; remove the "
                         "key",
                         k->d.shards.of, k->d.what, what);
    return decoder_cut(graph, &k->d);
}

int stack_build_pair(struct zinf_graph *graph, struct stack *source, struct stack *target)
{
    struct decoder *s = &source->d, *t = &target->d;
    int code;
    s->source = true;
    t->first_site = s->first_site + STACK_SITES + STACK_LAYER_SITES * (uint32_t)s->n_layers;
    if ((code = decoder_check_numbers(s)) || (code = decoder_check_numbers(t)) ||
        (code = stack_cut(graph, source)) || (code = stack_cut(graph, target)))
        return code;
    struct pair_inputs v = add_inputs(graph, s, t);
    uint32_t tiles = decoder_add_tiles(graph, t, "table", t->table);
    uint32_t n_tiles = graph->n_units - tiles;
    add_entry(graph, source, &v.source, tiles, n_tiles);
    struct stack_shared from = {.x = v.source.x, .segments = v.source.segments};
    for (int64_t layer = 0; layer < s->n_layers; layer++)
        add_layer(graph, source, &from, layer);
    struct stack_shared to = {.segments = v.target.segments,
                              .source = add_source_end(graph, s, from.x),
                              .source_segments = v.source.segments,
                              .crosses = true};
    add_entry(graph, target, &v.target, tiles, n_tiles);
    to.x = v.target.x;
    for (int64_t layer = 0; layer < t->n_layers; layer++)
        add_layer(graph, target, &to, layer);
    decoder_add_head(graph, t, &v.target, decoder_add_final_norm(graph, t, to.x), tiles);
    return 0;
}

/* ---- buckets ---- */

/* The published formula in fp32, as the models were trained with it. */
static int bucket_of(int n_buckets, int64_t max_distance, int64_t n)
{
    const int exact = n_buckets / 2;
    if (n < exact)
        return (int)n;
    const float share =
        logf((float)n / (float)exact) / (float)log((double)max_distance / (double)exact);
    const int bucket = exact + (int)(share * (float)(n_buckets - exact));
    return bucket < n_buckets ? bucket : n_buckets - 1;
}

const int32_t *stack_bucket_starts(struct zinf_graph *graph, int n_buckets, int64_t max_distance)
{
    int32_t *starts = zinf_graph_take(graph, (size_t)n_buckets * sizeof *starts);
    int next = 0;
    for (int64_t n = 0; starts && next < n_buckets && n <= max_distance; n++)
        while (next < n_buckets && bucket_of(n_buckets, max_distance, n) >= next)
            starts[next++] = (int32_t)n;
    return starts;
}
