/*
 * decoder_experts: a layer whose feed-forward part is a mixture of experts, as three or four
 * stages. Attention has a unit, the norm and the router have one together, and each expert has one,
 * so that an expert can be fetched, or left where it is, by itself. The expert that all tokens use
 * comes before the others: the device computes it while the host looks at what rows have chosen.
 * The usual feed-forward part, where a layer has it beside the experts, comes behind them, in the
 * stage that adds both.
 */
#include "model/decoder_parts.h"

#include <math.h>
#include <stdio.h>

#define MOST_TENSORS 24 /* tensors of a block, at most */

/* Values of one layer. */
struct layer {
    uint32_t x_mid, normed, weights;
    uint32_t x_shared; /* the value that the chosen experts add to */
};

/* Copies the wanted tensors of the block to list and returns how many there are. */
static size_t pick(const struct decoder *d, int64_t layer, bool (*wanted)(enum decoder_place place),
                   struct decoder_tensor list[MOST_TENSORS])
{
    const struct decoder_tensors all = decoder_list(d, layer, NULL);
    size_t n = 0;
    for (size_t i = 0; i < all.n && n < MOST_TENSORS; i++)
        if (wanted(all.list[i].place))
            list[n++] = all.list[i];
    return n;
}

static bool is_router(enum decoder_place place)
{
    return place == DECODER_NORM2_W || place == DECODER_NORM2_B;
}

/* Whether a tensor is of the feed-forward part or of the norm behind it. */
static bool is_mlp(enum decoder_place place)
{
    return place == DECODER_UP_W || place == DECODER_UP_B || place == DECODER_DOWN_W ||
           place == DECODER_DOWN_B || place == DECODER_AFTER2_W;
}

static bool is_attention(enum decoder_place place)
{
    return !is_mlp(place) && !is_router(place);
}

/* Whether a tensor is of the usual feed-forward part, which has the block's norms where it is
 * beside experts. */
static bool is_usual(enum decoder_place place)
{
    return !is_attention(place);
}

static uint32_t add_hidden(struct zinf_graph *graph, const struct decoder *d, const char *name,
                           int64_t layer)
{
    char numbered[32];
    snprintf(numbered, sizeof numbered, "%s.%lld", name, (long long)layer);
    return decoder_add_hidden(graph, d, numbered);
}

static uint32_t add_numbers(struct zinf_graph *graph, const char *name, int64_t layer,
                            enum zinf_rows_of rows_of, int64_t cols)
{
    struct zinf_value value = {
        .kind = ZINF_VALUE_ACTIVATION,
        .rows_of = rows_of,
        .cols = cols,
        .element = ZINF_ELEMENT_F32,
        .gradient = ZINF_ELEMENT_F32,
    };
    snprintf(value.name, sizeof value.name, "%s.%lld", name, (long long)layer);
    return zinf_graph_add_value(graph, &value);
}

static void add_attention(struct zinf_graph *graph, const struct decoder *d,
                          const struct decoder_values *v, int64_t layer, const struct layer *l)
{
    struct decoder_tensor list[MOST_TENSORS];
    char prefix[48];
    int at[DECODER_PLACES];
    snprintf(prefix, sizeof prefix, "%s.%lld.", d->blocks, (long long)layer);
    uint32_t unit = zinf_graph_add_unit(graph, true, "attention.%lld", (long long)layer);
    const struct decoder_tensors tensors = {
        .prefix = prefix, .list = list, .n = pick(d, layer, is_attention, list)};
    const struct decoder of = decoder_of_layer(d, layer);
    decoder_add_parts(graph, unit, &of, &tensors, at);
    struct attention_spec spec = decoder_make_block(d, layer, at).attention;
    uint32_t stage = zinf_graph_add_stage(graph, &zinf_stage_attention, &spec, sizeof spec,
                                          "attention.%lld", (long long)layer);
    decoder_append_inputs(graph, stage, &spec, v);
    zinf_stage_append(graph, stage, ZINF_STAGE_OUT, l->x_mid);
    decoder_append_keys(graph, stage, d, v, layer, &spec);
    zinf_stage_append(graph, stage, ZINF_STAGE_UNITS, unit);
}

/* Adds the bias of the choice. It is not trained and so is a unit of its own. Its numbers stay in
 * fp32, since scores may differ by less than a 16-bit number can express. */
static uint32_t add_choice_bias(struct zinf_graph *graph, const struct decoder *d, int64_t layer,
                                const char *prefix)
{
    const struct decoder_tensor bias = {
        DECODER_UP_B, d->experts.choice_bias, (uint64_t)d->experts.n, 0, 0, ZINF_INIT_ZERO, 0};
    const struct decoder_tensors tensors = {.prefix = prefix, .list = &bias, .n = 1};
    int at[DECODER_PLACES];
    uint32_t unit = zinf_graph_add_unit(graph, false, "choice.%lld", (long long)layer);
    decoder_add_tensors(graph, unit, d, &tensors, at);
    zinf_unit_keep_exact(graph, unit, (uint32_t)at[DECODER_UP_B]);
    return unit;
}

/* The router's matrix and bias have the places of "up". */
static size_t list_router(const struct decoder *d, int64_t layer,
                          struct decoder_tensor list[MOST_TENSORS])
{
    const struct decoder_experts *e = &d->experts;
    const uint64_t n_experts = (uint64_t)e->n, hidden = (uint64_t)d->hidden;
    size_t n = 0;
    list[n++] = (struct decoder_tensor){DECODER_UP_W,     e->gate,    n_experts, hidden, 0,
                                        ZINF_INIT_NORMAL, d->init_std};
    if (e->gate_b)
        list[n++] =
            (struct decoder_tensor){DECODER_UP_B, e->gate_b, n_experts, 0, 0, ZINF_INIT_ZERO, 0};
    if (e->gate_norm)
        list[n++] = (struct decoder_tensor){
            DECODER_GATE_NORM, e->gate_norm, hidden, 0, 0, ZINF_INIT_ONE, 0};
    if (!e->beside_before)
        return n + pick(d, layer, is_router, list + n);
    list[n++] =
        (struct decoder_tensor){DECODER_NORM2_W, e->beside_before, hidden, 0, 0, ZINF_INIT_ONE, 0};
    return n;
}

static void add_router(struct zinf_graph *graph, const struct decoder *d, struct decoder_values *v,
                       int64_t layer, const struct layer *l)
{
    struct decoder_tensor list[2 * MOST_TENSORS];
    char prefix[48];
    int at[DECODER_PLACES];
    snprintf(prefix, sizeof prefix, "%s.%lld.", d->blocks, (long long)layer);
    uint32_t unit = zinf_graph_add_unit(graph, true, "router.%lld", (long long)layer);
    const struct decoder_tensors tensors = {
        .prefix = prefix, .list = list, .n = list_router(d, layer, list)};
    decoder_add_tensors(graph, unit, d, &tensors, at);
    struct mlp_spec mlp = decoder_make_block(d, layer, at).mlp;
    const uint32_t bias = d->experts.choice_bias ? add_choice_bias(graph, d, layer, prefix) : 0;
    struct router_spec spec = {
        .hidden = d->hidden,
        .n_experts = d->experts.n,
        .n_chosen = d->experts.n_chosen,
        .normalised = d->experts.normalised,
        .balanced = d->experts.balance != 0,
        .sigmoid = d->experts.sigmoid,
        .scale = d->experts.scale,
        .n_groups = d->experts.n_groups,
        .n_groups_chosen = d->experts.n_groups_chosen,
        .group_top = d->experts.group_top,
        .biased = d->experts.choice_bias != NULL,
        .norm = mlp.norm,
        .gate_norm = mlp.norm,
        .gate_scale = d->experts.gate_norm ? 1 / sqrtf((float)d->hidden) : 1,
        .gate_w = mlp.up_w,
        .gate_b = mlp.up_b,
    };
    spec.gate_norm.w = at[DECODER_GATE_NORM];
    spec.gate_norm.b = -1;
    uint32_t stage = zinf_graph_add_stage(graph, &zinf_stage_router, &spec, sizeof spec,
                                          "router.%lld", (long long)layer);
    zinf_stage_append(graph, stage, ZINF_STAGE_IN, l->x_mid);
    zinf_stage_append(graph, stage, ZINF_STAGE_OUT, l->normed);
    zinf_stage_append(graph, stage, ZINF_STAGE_OUT, l->weights);
    zinf_stage_append(graph, stage, ZINF_STAGE_UNITS, unit);
    if (spec.biased)
        zinf_stage_append(graph, stage, ZINF_STAGE_UNITS, bias);
    if (!spec.balanced)
        return;
    if (v->n_shares++)
        zinf_stage_append(graph, stage, ZINF_STAGE_IN, v->shares);
    v->shares = add_numbers(graph, "shares", layer, ZINF_ROWS_OF_SAMPLE, 2 * d->experts.n);
    zinf_stage_append(graph, stage, ZINF_STAGE_OUT, v->shares);
}

enum { EXPERT_TENSORS = 4 };

static size_t list_expert(const struct decoder *d, int64_t ffn, struct decoder_tensor *list)
{
    const struct decoder_experts *e = &d->experts;
    const uint64_t wide = (uint64_t)ffn, hidden = (uint64_t)d->hidden;
    const float std = d->init_std;
    size_t n = 0;
    if (e->w_gate)
        list[n++] = (struct decoder_tensor){DECODER_UP_W, e->w_gate, wide, hidden, 0, 0, std};
    list[n++] = (struct decoder_tensor){DECODER_UP_W, e->w_up, wide, hidden, 0, 0, std};
    list[n++] = (struct decoder_tensor){DECODER_DOWN_W, e->w_down, hidden, wide, 0, 0, std};
    return n;
}

/* The tensors of the expert that all tokens use. Its gate and up may be one tensor. */
static size_t list_shared(const struct decoder *d, struct decoder_tensor *list)
{
    const struct decoder_experts *e = &d->experts;
    const uint64_t wide = (uint64_t)e->shared_ffn, hidden = (uint64_t)d->hidden;
    const float std = d->init_std;
    if (!e->shared_up)
        return list_expert(d, e->shared_ffn, list);
    list[0] = (struct decoder_tensor){DECODER_UP_W, e->shared_up, 2 * wide, hidden, 0, 0, std};
    list[1] = (struct decoder_tensor){DECODER_DOWN_W, e->shared_down, hidden, wide, 0, 0, std};
    return 2;
}

/* Whether experts have no gate. */
static bool is_plain(const struct decoder *d)
{
    return !d->experts.fused_up && !d->experts.w_gate;
}

/* The tensors of an expert where each tensor of the file has those of all experts of the layer. */
static size_t list_slabs(const struct decoder *d, struct decoder_tensor *list)
{
    const struct decoder_experts *e = &d->experts;
    const uint64_t wide = (uint64_t)e->ffn, hidden = (uint64_t)d->hidden;
    const float std = d->init_std;
    const enum decoder_order up = e->fused_order;
    const bool by_turns = up == DECODER_ROWS_BY_TURNS || up == DECODER_COLUMNS_BY_TURNS;
    const bool by_column = up == DECODER_COLUMNS || up == DECODER_COLUMNS_BY_TURNS;
    const enum decoder_order down = by_column ? DECODER_COLUMNS : DECODER_ROWS;
    const enum decoder_order bias = by_turns ? DECODER_ROWS_BY_TURNS : DECODER_ROWS;
    list[0] = (struct decoder_tensor){DECODER_UP_W, e->fused_up, 2 * wide, hidden, up, 0, std};
    list[1] = (struct decoder_tensor){DECODER_DOWN_W, e->fused_down, hidden, wide, down, 0, std};
    list[2] =
        (struct decoder_tensor){DECODER_UP_B, e->fused_up_b, 2 * wide, 0, bias, ZINF_INIT_ZERO, 0};
    list[3] =
        (struct decoder_tensor){DECODER_DOWN_B, e->fused_down_b, hidden, 0, 0, ZINF_INIT_ZERO, 0};
    return e->fused_up_b ? 4 : 2;
}

/* Adds the stage of the expert that all tokens use. The row of its sigmoid has the place of
 * "proj". */
static void add_shared(struct zinf_graph *graph, const struct decoder *d, int64_t layer,
                       const struct layer *l)
{
    const struct decoder_experts *e = &d->experts;
    struct decoder_tensor list[EXPERT_TENSORS];
    const struct decoder_tensor gate = {DECODER_PROJ_W,   e->shared_gate, 1, (uint64_t)d->hidden, 0,
                                        ZINF_INIT_NORMAL, d->init_std};
    int at[DECODER_PLACES], gate_at[DECODER_PLACES];
    char prefix[64], before[48];
    const size_t n = list_shared(d, list);
    snprintf(before, sizeof before, "%s.%lld.", d->blocks, (long long)layer);
    snprintf(prefix, sizeof prefix, "%s%s", before, e->shared);
    uint32_t unit = zinf_graph_add_unit(graph, true, "shared.%lld", (long long)layer);
    const struct decoder_tensors tensors = {.prefix = prefix, .list = list, .n = n},
                                 row = {.prefix = before, .list = &gate, .n = 1};
    decoder_add_tensors(graph, unit, d, &tensors, at);
    if (e->shared_gate)
        decoder_add_tensors(graph, unit, d, &row, gate_at);
    struct shared_spec spec = {
        .hidden = d->hidden,
        .ffn = e->shared_ffn,
        .activation = d->mlp.activation,
        .plain = is_plain(d),
        .scale = d->mlp.branch_scale,
        .gate_w = e->shared_gate ? gate_at[DECODER_PROJ_W] : -1,
        .up_w = at[DECODER_UP_W],
        .down_w = at[DECODER_DOWN_W],
    };
    uint32_t stage = zinf_graph_add_stage(graph, &zinf_stage_shared, &spec, sizeof spec,
                                          "shared.%lld", (long long)layer);
    zinf_stage_append(graph, stage, ZINF_STAGE_IN, l->x_mid);
    zinf_stage_append(graph, stage, ZINF_STAGE_IN, l->normed);
    zinf_stage_append(graph, stage, ZINF_STAGE_OUT, l->x_shared);
    zinf_stage_append(graph, stage, ZINF_STAGE_UNITS, unit);
}

/* Returns the expert's unit. at: the numbers of its tensors. */
static uint32_t add_expert(struct zinf_graph *graph, const struct decoder *d, int64_t layer,
                           int64_t expert, int at[DECODER_PLACES])
{
    const struct decoder_experts *e = &d->experts;
    struct decoder_tensor list[EXPERT_TENSORS];
    char prefix[64];
    int at_prefix = snprintf(prefix, sizeof prefix, "%s.%lld.", d->blocks, (long long)layer);
    if (!e->fused_up)
        snprintf(prefix + at_prefix, sizeof prefix - (size_t)at_prefix, "%s%lld.", e->list,
                 (long long)expert);
    const size_t n = e->fused_up ? list_slabs(d, list) : list_expert(d, e->ffn, list);
    uint32_t unit =
        zinf_graph_add_unit(graph, true, "expert.%lld.%lld", (long long)layer, (long long)expert);
    const struct decoder_tensors tensors = {prefix, list, n, e->fused_up ? (uint64_t)e->n : 0,
                                            e->fused_up ? (uint64_t)expert : 0};
    decoder_add_parts(graph, unit, d, &tensors, at);
    return unit;
}

/* Adds the expert's own number from the file's list of factors to its unit, since the expert's call
 * needs it. Returns the tensor's number. */
static int add_factor(struct zinf_graph *graph, const struct decoder *d, int64_t layer,
                      int64_t expert, uint32_t unit)
{
    const struct zinf_tensor tensor = {
        .rank = 1, .rows = 1, .cols = 1, .decay = true, .init = ZINF_INIT_ONE};
    struct zinf_piece piece = {
        .rank = 1,
        .shape = {(uint64_t)d->experts.n, 1},
        .rows = {.file_first = (uint64_t)expert, .rows = 1, .count = 1},
    };
    if (!d->experts.factor)
        return -1;
    snprintf(piece.name, sizeof piece.name, "%s.%lld.%s", d->blocks, (long long)layer,
             d->experts.factor);
    const int at = (int)zinf_graph_add_tensor(graph, unit, &tensor);
    zinf_graph_add_piece(graph, unit, &piece);
    return at;
}

static const char *name_stack(struct zinf_graph *graph, const struct decoder *d, int64_t layer,
                              const char *stacked)
{
    char name[96], *copy;
    snprintf(name, sizeof name, "%s.%lld.%s", d->blocks, (long long)layer, stacked);
    copy = zinf_graph_take(graph, strlen(name) + 1);
    return copy ? strcpy(copy, name) : NULL;
}

static void name_stacks(struct zinf_graph *graph, const struct decoder *d, int64_t layer,
                        uint32_t first, const int at[DECODER_PLACES])
{
    const struct decoder_experts *e = &d->experts;
    const char *up = name_stack(graph, d, layer, e->stacked_up ? e->stacked_up : e->fused_up);
    const char *down =
        name_stack(graph, d, layer, e->stacked_down ? e->stacked_down : e->fused_down);
    for (uint32_t u = first; u < graph->n_units; u++)
        for (uint32_t i = 0; i < graph->units[u].n_tensors; i++) {
            struct zinf_tensor *t = &graph->units[u].tensors[i];
            if (t->rank == 2)
                t->stack = i == (uint32_t)at[DECODER_UP_W] ? up : down;
        }
}

static void add_sweep(struct zinf_graph *graph, const struct decoder *d, int64_t layer,
                      const struct layer *l, uint32_t out)
{
    const uint32_t in[] = {l->x_shared, l->normed, l->weights};
    struct experts_spec spec = {
        .hidden = d->hidden,
        .ffn = d->experts.ffn,
        .activation = d->mlp.activation,
        .plain = is_plain(d),
        .alone = d->experts.beside_before != NULL,
    };
    const uint32_t left = spec.alone ? 1 : 0; /* of the inputs above, from the first on */
    int at[DECODER_PLACES];
    uint32_t first = graph->n_units;
    for (int64_t e = 0; e < d->experts.n; e++) {
        const uint32_t unit = add_expert(graph, d, layer, e, at);
        spec.factor = add_factor(graph, d, layer, e, unit);
    }
    if (!d->shards.of) /* parts of a matrix are not stacked in files */
        name_stacks(graph, d, layer, first, at);
    spec.up_w = at[DECODER_UP_W];
    spec.down_w = at[DECODER_DOWN_W];
    spec.up_b = at[DECODER_UP_B];
    spec.down_b = at[DECODER_DOWN_B];
    spec.weighs_rows = d->experts.weighs_rows;
    static const struct zinf_stage_ops *const ops[2][2] = {
        {&zinf_stage_experts, &zinf_stage_experts_alone},
        {&zinf_stage_expert_shards, &zinf_stage_expert_shards_alone}};
    uint32_t stage = zinf_graph_add_stage(graph, ops[d->shards.of > 0][spec.alone], &spec,
                                          sizeof spec, "experts.%lld", (long long)layer);
    for (uint32_t i = left; i < 3; i++)
        zinf_stage_append(graph, stage, ZINF_STAGE_IN, in[i]);
    zinf_stage_append(graph, stage, ZINF_STAGE_OUT, out);
    for (uint32_t unit = first; unit < graph->n_units; unit++)
        zinf_stage_append(graph, stage, ZINF_STAGE_SWEEP, unit);
    zinf_stage_choose(graph, stage, (struct zinf_choice){2 - left, (uint32_t)d->experts.n_chosen});
}

/* Adds the stage that adds the usual part and the sum of the experts. The norms behind each of the
 * two have places that the usual part does not use. */
static void add_joined(struct zinf_graph *graph, const struct decoder *d, int64_t layer,
                       const struct layer *l, uint32_t sum, uint32_t out)
{
    const uint64_t hidden = (uint64_t)d->hidden;
    struct decoder_tensor list[MOST_TENSORS + 2];
    char prefix[48];
    int at[DECODER_PLACES];
    size_t n = pick(d, layer, is_usual, list);
    list[n++] = (struct decoder_tensor){
        DECODER_AFTER1_W, d->experts.beside_usual, hidden, 0, 0, ZINF_INIT_ONE, 0};
    list[n++] = (struct decoder_tensor){
        DECODER_NORM1_W, d->experts.beside_after, hidden, 0, 0, ZINF_INIT_ONE, 0};
    snprintf(prefix, sizeof prefix, "%s.%lld.", d->blocks, (long long)layer);
    uint32_t unit = zinf_graph_add_unit(graph, true, "joined.%lld", (long long)layer);
    const struct decoder_tensors tensors = {.prefix = prefix, .list = list, .n = n};
    const struct decoder of = decoder_of_layer(d, layer);
    decoder_add_parts(graph, unit, &of, &tensors, at);
    struct joined_spec spec = {.mlp = decoder_make_block(d, layer, at).mlp,
                               .scaled = d->block_scale && !d->side.cols};
    spec.experts = spec.sum = spec.mlp.after;
    spec.mlp.after.w = at[DECODER_AFTER1_W];
    spec.experts.w = at[DECODER_NORM1_W];
    uint32_t scale = spec.scaled ? decoder_add_scale(graph, d, layer, prefix) : 0;
    uint32_t stage = zinf_graph_add_stage(graph, &zinf_stage_joined, &spec, sizeof spec,
                                          "joined.%lld", (long long)layer);
    zinf_stage_append(graph, stage, ZINF_STAGE_IN, l->x_mid);
    zinf_stage_append(graph, stage, ZINF_STAGE_IN, sum);
    zinf_stage_append(graph, stage, ZINF_STAGE_OUT, out);
    zinf_stage_append(graph, stage, ZINF_STAGE_UNITS, unit);
    if (spec.scaled)
        zinf_stage_append(graph, stage, ZINF_STAGE_UNITS, scale);
}

uint32_t decoder_add_experts(struct zinf_graph *graph, const struct decoder *d,
                             struct decoder_values *v, int64_t layer)
{
    const bool alone = decoder_parts_of(d, layer) == DECODER_MLP_ALONE;
    struct layer l = {.x_mid = alone ? v->x : add_hidden(graph, d, "x_mid", layer),
                      .normed = add_hidden(graph, d, "normed", layer)};
    if (l.normed < graph->n_values)
        graph->values[l.normed].gradient = ZINF_ELEMENT_F32;
    l.weights = add_numbers(graph, "weights", layer, ZINF_ROWS_OF_TARGET, d->experts.n);
    l.x_shared = d->experts.shared ? add_hidden(graph, d, "x_shared", layer) : l.x_mid;
    const bool joined = d->experts.beside_before != NULL;
    const uint32_t sum = joined ? add_hidden(graph, d, "sum", layer) : 0;
    uint32_t out = add_hidden(graph, d, d->side.cols ? "x_end" : "x", layer + 1);
    if (!alone)
        add_attention(graph, d, v, layer, &l);
    add_router(graph, d, v, layer, &l);
    if (d->experts.shared)
        add_shared(graph, d, layer, &l);
    add_sweep(graph, d, layer, &l, joined ? sum : out);
    if (joined)
        add_joined(graph, d, layer, &l, sum, out);
    return d->side.cols ? decoder_add_side(graph, d, v, layer, out) : out;
}

void decoder_add_balance(struct zinf_graph *graph, const struct decoder *d,
                         const struct decoder_values *v)
{
    struct balance_spec spec = {d->experts.n, v->n_shares, d->experts.balance};
    struct zinf_value loss = {
        .name = "balance",
        .kind = ZINF_VALUE_LOSS,
        .rows_of = ZINF_ROWS_OF_SAMPLE,
        .cols = 1,
        .element = ZINF_ELEMENT_F32,
    };
    uint32_t out = zinf_graph_add_value(graph, &loss);
    uint32_t stage =
        zinf_graph_add_stage(graph, &zinf_stage_balance, &spec, sizeof spec, "balance");
    zinf_stage_append(graph, stage, ZINF_STAGE_IN, v->shares);
    zinf_stage_append(graph, stage, ZINF_STAGE_OUT, out);
}
