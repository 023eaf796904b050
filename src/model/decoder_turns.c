/*
 * decoder_turns: a layer of a decoder that is cut, with one shard at a time on the device
 * (zinf_shards.in_turn). Attention and the feed-forward part each become several stages with units
 * of their own (stage_turns.c): a norm, a turn for each shard, or for the shards that share a key
 * and value head, and the addition to the residual stream. Sums over shards are made in a tree.
 * Turn i of n, a power of two, completes as many subtrees as the binary number i has ones at its
 * end. Gradients of the rows come from the last turn to the first and are added in the same tree.
 */
#include "model/decoder_parts.h"
#include "model/shards.h"

#include <stdio.h>

#define MOST_TENSORS 16 /* of attention or of a feed-forward part */

/* ---- what is not ---- */

static bool is_taken(enum decoder_place place)
{
    return place <= DECODER_DOWN_B; /* up to here are products and the norms in front of them */
}

static bool has_more_tensors(const struct decoder *d)
{
    bool more = d->n_tensors > MOST_TENSORS;
    for (size_t i = 0; i < d->n_tensors; i++)
        more |= !is_taken(d->tensors[i].place);
    return more;
}

static bool lacks_norms(const struct decoder *d)
{
    bool has[2] = {false, false};
    for (size_t i = 0; i < d->n_tensors; i++) {
        has[0] |= d->tensors[i].place == DECODER_NORM1_W;
        has[1] |= d->tensors[i].place == DECODER_NORM2_W;
    }
    return !has[0] || !has[1];
}

int decoder_check_turns(const struct decoder *d)
{
    const struct {
        bool is_there;
        const char *what;
    } list[] = {
        {d->parallel, "parallel blocks"},
        {d->mixed || d->mixer_beside, "recurrent mixers"},
        {d->parts || d->kinds, "layers of several kinds"},
        {d->attention.gated || d->attention.latent.kv_rank, "gated or latent attention"},
        {d->mlp.xielu, "an activation with trained numbers"},
        {d->side.cols || d->block_scale, "blocks with a table or a scale of their own"},
        {d->experts.n, "experts"},
        {d->source, "an encoder"},
        {d->keys_of, "keys and values that layers share"},
        {d->attention.whole_norms || d->plain_head_norms || has_more_tensors(d),
         "norms behind products, or sinks"},
        {lacks_norms(d), "a part without a norm in front of it"},
    };
    for (size_t i = 0; d->shards.in_turn && i < sizeof list / sizeof *list; i++)
        if (list[i].is_there)
            return zinf_fail(-ENOTSUP,
                             "zinf.parts_in_turn: %s has %s, whose parts are not visited one after "
                             "the other; remove the key",
                             d->what, list[i].what);
    return 0;
}

/* ---- values ---- */

static uint32_t add_value(struct zinf_graph *graph, const struct decoder *d, const char *name,
                          struct zinf_value value)
{
    value.kind = ZINF_VALUE_ACTIVATION;
    value.rows_of = ZINF_ROWS_OF_TARGET;
    value.cols = d->hidden;
    snprintf(value.name, sizeof value.name, "%s", name);
    return zinf_graph_add_value(graph, &value);
}

/* Adds a value of which only the gradient exists. */
static uint32_t add_gradient(struct zinf_graph *graph, const struct decoder *d, const char *name,
                             enum zinf_element gradient)
{
    return add_value(graph, d, name, (struct zinf_value){.gradient = gradient});
}

/* ---- units ---- */

/* Attention or the feed-forward part of a layer. */
struct half {
    const struct decoder *d;
    int64_t layer;
    const char *prefix; /* of the names of its tensors in the file */
    const char *name;
    bool is_mlp;
    enum decoder_place norm_w, norm_b, bias; /* bias: of the sum, in the first turn's unit */
};

static bool is_norm(const struct half *h, enum decoder_place place)
{
    return place == h->norm_w || place == h->norm_b;
}

static bool is_product(const struct half *h, enum decoder_place place)
{
    const bool attends = place == DECODER_QKV_W || place == DECODER_QKV_B ||
                         place == DECODER_PROJ_W || place == DECODER_PROJ_B;
    const bool feeds = place == DECODER_UP_W || place == DECODER_UP_B || place == DECODER_DOWN_W ||
                       place == DECODER_DOWN_B;
    return h->is_mlp ? feeds : attends;
}

/* Adds the unit of the norm, or of some shards. at: as of decoder_add_parts. */
static uint32_t add_unit(struct zinf_graph *graph, const struct half *h, bool norm,
                         const struct zinf_shards *shards, int at[DECODER_PLACES])
{
    struct decoder own = *h->d;
    struct decoder_tensor list[MOST_TENSORS];
    struct decoder_tensors tensors = decoder_list(h->d, h->layer, h->prefix);
    const struct decoder_tensor *all = tensors.list;
    const size_t n = tensors.n;
    tensors.list = list;
    tensors.n = 0;
    for (size_t i = 0; i < n; i++) {
        const bool here = norm ? is_norm(h, all[i].place) : is_product(h, all[i].place);
        if (here && (all[i].place != h->bias || !shards->first))
            list[tensors.n++] = all[i];
    }
    own.shards = *shards;
    const uint32_t unit =
        norm ? zinf_graph_add_unit(graph, true, "%s_norm.%lld", h->name, (long long)h->layer)
             : zinf_graph_add_unit(graph, true, "%s_%u.%lld", h->name, shards->first,
                                   (long long)h->layer);
    decoder_add_parts(graph, unit, &own, &tensors, at);
    return unit;
}

/* ---- stages ---- */

/* The values that turns pass to each other. */
struct turns {
    uint32_t n; /* a power of two */
    /* rows: what all turns read. gradient: of the sum, as the turn before has left it. */
    uint32_t rows, gradient;
    /* Of each turn: its sum, and its gradient of the rows. */
    uint32_t sums[ZINF_MOST_SHARDS], at_rows[ZINF_MOST_SHARDS];
};

/* How many subtrees end with the turn of that number. It adds the sums of the turns that are 1, 2,
 * 4, ... before it. */
static uint32_t subtrees(uint32_t number)
{
    return (uint32_t)__builtin_ctz(~number);
}

static void add_enter(struct zinf_graph *graph, const struct half *h, uint32_t x, struct turns *t)
{
    int at[DECODER_PLACES];
    const uint32_t unit = add_unit(graph, h, true, &h->d->shards, at);
    const struct block_spec block = decoder_make_block(h->d, h->layer, at);
    const struct enter_spec spec = {.norm = h->is_mlp ? block.mlp.norm : block.attention.norm,
                                    .hidden = h->d->hidden};
    const uint32_t stage = zinf_graph_add_stage(graph, &zinf_stage_enter, &spec, sizeof spec,
                                                "%s_enter.%lld", h->name, (long long)h->layer);
    t->rows = add_value(graph, h->d, "rows",
                        (struct zinf_value){.element = ZINF_ELEMENT_PARAM, .leaves = true});
    for (uint32_t i = 0; i < t->n; i++)
        t->at_rows[i] = add_gradient(graph, h->d, "at_rows", ZINF_ELEMENT_F32);
    zinf_stage_append(graph, stage, ZINF_STAGE_IN, x);
    zinf_stage_append(graph, stage, ZINF_STAGE_OUT, t->rows);
    zinf_stage_append(graph, stage, ZINF_STAGE_OUT, t->at_rows[0]);
    zinf_stage_append(graph, stage, ZINF_STAGE_UNITS, unit);
}

/* Removes the norms in front of the products and what follows the sum: other stages have them. */
static void strip(struct block_spec *block)
{
    struct attention_spec *a = &block->attention;
    struct mlp_spec *m = &block->mlp;
    a->norm.w = a->norm.b = m->norm.w = m->norm.b = -1;
    a->branch_scale = m->branch_scale = 0;
    a->residual_dropout = m->residual_dropout = 0;
}

/* Adds the stage of a turn. */
static uint32_t add_part(struct zinf_graph *graph, const struct half *h,
                         const struct decoder_values *v, uint32_t number, const struct turns *t)
{
    int at[DECODER_PLACES];
    struct turn_spec turn = {.shards = h->d->shards,
                             .is_passed = number > 0,
                             .n_sums = subtrees(number),
                             .n_gradients = subtrees(t->n - 1 - number)};
    turn.shards.n = h->d->shards.of / t->n;
    turn.shards.first = number * turn.shards.n;
    turn.shards.groups = turn.shards.n;
    const uint32_t unit = add_unit(graph, h, false, &turn.shards, at);
    struct block_spec block = decoder_make_block(h->d, h->layer, at);
    const struct attention_spec *a = &block.attention;
    strip(&block);
    turn.rows_gradient = h->is_mlp ? 1 : 1u + (a->rope.rotary_dims > 0) + (a->segments > 0);
    const struct attention_turn attends = {turn, block.attention};
    const struct mlp_turn feeds = {turn, block.mlp};
    const struct zinf_stage_ops *ops =
        h->is_mlp ? &zinf_stage_mlp_turn : &zinf_stage_attention_turn;
    const void *spec = h->is_mlp ? (const void *)&feeds : &attends;
    const uint32_t stage =
        zinf_graph_add_stage(graph, ops, spec, h->is_mlp ? sizeof feeds : sizeof attends,
                             "%s_%u.%lld", h->name, turn.shards.first, (long long)h->layer);
    struct decoder_values rows = *v;
    rows.x = t->rows;
    if (h->is_mlp)
        zinf_stage_append(graph, stage, ZINF_STAGE_IN, rows.x);
    else
        decoder_append_inputs(graph, stage, a, &rows);
    zinf_stage_append(graph, stage, ZINF_STAGE_UNITS, unit);
    return stage;
}

static void add_turn(struct zinf_graph *graph, const struct half *h, const struct decoder_values *v,
                     uint32_t number, struct turns *t)
{
    const uint32_t stage = add_part(graph, h, v, number, t);
    const uint32_t before = t->gradient;
    zinf_stage_append(graph, stage, ZINF_STAGE_IN, t->at_rows[number]);
    if (number)
        zinf_stage_pass(graph, stage, before);
    for (uint32_t k = 0; k < subtrees(number); k++)
        zinf_stage_append(graph, stage, ZINF_STAGE_IN, t->sums[number - (1u << k)]);
    t->gradient = add_gradient(graph, h->d, "behind_sum", ZINF_ELEMENT_PARAM);
    t->sums[number] = add_value(
        graph, h->d, "sum",
        (struct zinf_value){.element = ZINF_ELEMENT_F32, .leaves = true, .passing = true});
    zinf_stage_append(graph, stage, ZINF_STAGE_OUT, t->gradient);
    zinf_stage_append(graph, stage, ZINF_STAGE_OUT, t->sums[number]);
    for (uint32_t k = 0; k < subtrees(t->n - 1 - number); k++)
        zinf_stage_append(graph, stage, ZINF_STAGE_OUT, t->at_rows[number + (1u << k)]);
}

/* Returns the number of the stage's output. */
static uint32_t add_leave(struct zinf_graph *graph, const struct half *h, uint32_t x,
                          const struct turns *t)
{
    int at[DECODER_PLACES];
    char name[24];
    for (int i = 0; i < DECODER_PLACES; i++)
        at[i] = -1;
    const struct block_spec block = decoder_make_block(h->d, h->layer, at);
    const struct leave_spec spec = {
        .hidden = h->d->hidden,
        .scale = h->is_mlp ? block.mlp.branch_scale : block.attention.branch_scale,
        .dropout = h->is_mlp ? block.mlp.residual_dropout : block.attention.residual_dropout,
        .site = h->is_mlp ? block.mlp.site : block.attention.site + 1};
    const uint32_t stage = zinf_graph_add_stage(graph, &zinf_stage_leave, &spec, sizeof spec,
                                                "%s_leave.%lld", h->name, (long long)h->layer);
    snprintf(name, sizeof name, h->is_mlp ? "x.%lld" : "x_mid.%lld",
             (long long)h->layer + h->is_mlp);
    const uint32_t out = decoder_add_hidden(graph, h->d, name);
    zinf_stage_append(graph, stage, ZINF_STAGE_IN, x);
    zinf_stage_append(graph, stage, ZINF_STAGE_IN, t->sums[t->n - 1]);
    zinf_stage_append(graph, stage, ZINF_STAGE_IN, t->gradient);
    zinf_stage_append(graph, stage, ZINF_STAGE_OUT, out);
    return out;
}

/* Adds the stages that make x the output, whose number is returned, in n turns. */
static uint32_t add_half(struct zinf_graph *graph, const struct half *h,
                         const struct decoder_values *v, uint32_t x, uint32_t n)
{
    struct turns t = {.n = n};
    add_enter(graph, h, x, &t);
    for (uint32_t i = 0; i < n; i++)
        add_turn(graph, h, v, i, &t);
    return add_leave(graph, h, x, &t);
}

uint32_t decoder_add_turns(struct zinf_graph *graph, const struct decoder *d,
                           const struct decoder_values *v, int64_t layer)
{
    char prefix[48];
    snprintf(prefix, sizeof prefix, "%s.%lld.", d->blocks, (long long)layer);
    const struct half attends = {.d = d,
                                 .layer = layer,
                                 .prefix = prefix,
                                 .name = "attention",
                                 .norm_w = DECODER_NORM1_W,
                                 .norm_b = DECODER_NORM1_B,
                                 .bias = DECODER_PROJ_B};
    const struct half feeds = {.d = d,
                               .layer = layer,
                               .prefix = prefix,
                               .name = "mlp",
                               .is_mlp = true,
                               .norm_w = DECODER_NORM2_W,
                               .norm_b = DECODER_NORM2_B,
                               .bias = DECODER_DOWN_B};
    const uint32_t groups = shard_groups_of(&d->shards, d->attention.n_kv_heads).n;
    const uint32_t mid = add_half(graph, &attends, v, v->x, groups);
    return add_half(graph, &feeds, v, mid, d->shards.of);
}
