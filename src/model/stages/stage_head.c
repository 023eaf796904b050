/*
 * stage_head: logits and their loss over chunks of rows and tiles of the vocabulary. Per row an
 * online maximum and sum are kept, so full logits never exist. Tile by tile they are computed twice
 * (statistics, then gradient); with all tiles at hand one chunk's logits are kept and computed
 * once. Both make the same products in the same order per result: the same bits.
 *
 * Gradients of logits are made in the number type that the device multiplies them in, where they
 * are.
 *
 * Where what is made is not the loss itself but each token's, of which a later stage makes one,
 * that stage's gradient weighs the rows.
 */
#include "model/stages/stage_head.h"

#define LOGITS_ALIGN 64 /* of a shard's row, in elements */

static bool is_cut(const struct zinf_frame *f)
{
    return f->graph->shards.of;
}

/* Of a row of logits against a tile, or a shard of one. */
static int64_t head_ld(const struct zinf_frame *f)
{
    const struct head_spec *s = f->stage->spec;
    const int64_t of = is_cut(f) ? f->graph->shards.of : 1;
    const uint64_t most = (uint64_t)((s->tile_rows + of - 1) / of);
    return is_cut(f) ? (int64_t)zinf_align_up(most, LOGITS_ALIGN) : s->tile_rows;
}

/* A chunk's logits against a tile. */
static uint64_t tile_elems(const struct zinf_frame *f, const struct head *h)
{
    return (uint64_t)(h->chunk_rows * h->ld) * (is_cut(f) ? f->graph->shards.n : 1);
}

static struct head make_head(struct zinf_frame *f)
{
    const struct head_spec *s = f->stage->spec;
    bool whole = f->pass == ZINF_PASS_WHOLE;
    void *(*take)(struct zinf_frame *, uint64_t) = whole ? frame_scratch : frame_keep;
    uint64_t bytes = (uint64_t)frame_rows(f) * sizeof(float);
    uint64_t tiles = whole ? f->stage->sweep.n : 1;
    const struct zinf_device *device = f->compute->device;
    struct head h = {
        .chunk_rows = frame_rows(f) < device->logit_rows ? frame_rows(f) : device->logit_rows,
        .hidden = f->graph->values[f->stage->in.at[0]].cols,
        .tile_rows = s->tile_rows,
        .d_dtype = device->rounds_operands ? f->compute->dtype : ZINF_DTYPE_F32,
        .scale = s->scale,
    };
    h.ld = head_ld(f);
    h.d_ld = h.ld * (int64_t)(sizeof(float) / zinf_dtype_bytes(h.d_dtype));
    h.max = take(f, bytes);
    h.sum = take(f, bytes);
    h.target_logit = take(f, bytes);
    if (head_makes_loss(f))
        h.objective = f->compute->objective;
    if (h.objective.smoothing > 0)
        h.logit_sum = take(f, bytes);
    if (h.objective.max_z_loss > 0)
        h.max_at = take(f, bytes);
    if (is_cut(f))
        head_take_shards(f, &h, take);
    h.logits = frame_scratch(f, tiles * tile_elems(f, &h) * sizeof(float));
    head_take_units(f, &h, tiles);
    return h;
}

/* Sums over rows of logits go over what lies between the rows, too. */
static int clear_gaps(struct zinf_frame *f, const struct head *h)
{
    const struct head_spec *s = f->stage->spec;
    const uint64_t tiles = f->pass == ZINF_PASS_WHOLE ? f->stage->sweep.n : 1;
    return s->tile_bias ? frame_zero(f, h->logits, tiles * tile_elems(f, h) * sizeof(float)) : 0;
}

static int chunk_statistics(struct zinf_frame *f, const struct head *h, const struct chunk *k)
{
    struct zinf_cross_entropy args = head_loss_args(f, h, k);
    int code = head_logits(f, h, k);
    if (is_cut(f))
        head_use_own(f, h, k, &args);
    return code ? code : frame_loss(f, FRAME_LOSS_UPDATE, &args);
}

/* The share of the gradient at the head's input that this tile's logits have. */
static int chunk_input_gradient(struct zinf_frame *f, const struct head *h, const struct chunk *k,
                                bool first_tile)
{
    const float beta = first_tile && !f->d_in_adds[0] ? 0 : 1;
    if (!f->d_in[0])
        return 0;
    float *out = (float *)f->d_in[0] + (f->queue ? k->first * h->hidden : 0);
    return (is_cut(f) ? head_sum_input : head_input_product)(f, h, k, out, beta);
}

/* Does it for the chunk, or for the part of it that each shard has. */
static int each_part(struct zinf_frame *f, const struct head *h, const struct chunk *k,
                     int (*act)(struct zinf_frame *, const struct head *, const struct chunk *))
{
    int code = is_cut(f) ? 0 : act(f, h, k);
    for (uint32_t i = 0; !code && i < f->graph->shards.n; i++) {
        const struct chunk part = head_shard_chunk(h, k, i);
        code = act(f, h, &part);
    }
    return code;
}

/* Logits to gradients in place. */
static int chunk_slopes(struct zinf_frame *f, const struct head *h, const struct chunk *k)
{
    struct zinf_cross_entropy loss = head_loss_args(f, h, k);
    return frame_loss(f, FRAME_LOSS_BACKWARD, &loss);
}

/* These; the input's gradient and the tile's take their shares. */
static int chunk_backward(struct zinf_frame *f, const struct head *h, const struct chunk *k,
                          bool first_tile)
{
    int code = each_part(f, h, k, chunk_slopes);
    if (!code)
        code = chunk_input_gradient(f, h, k, first_tile);
    return code ? code : each_part(f, h, k, head_table_gradient);
}

/* The chunk from row `first` on, against the tile'th of those at hand. */
static struct chunk chunk_at(const struct zinf_frame *f, const struct head *h, int64_t first,
                             uint32_t tile)
{
    const uint32_t unit = f->stage->units.n + tile;
    int64_t left = frame_rows(f) - first;
    return (struct chunk){
        .first = first,
        .count = left < h->chunk_rows ? left : h->chunk_rows,
        .unit = unit,
        .logits = head_at(h->logits, (int64_t)(tile * tile_elems(f, h))),
    };
}

/* Start or finish, for all rows at once. */
static int all_rows(struct zinf_frame *f, const struct head *h, enum frame_loss call)
{
    struct chunk all = {.count = frame_rows(f), .unit = f->stage->units.n};
    struct zinf_cross_entropy args = head_loss_args(f, h, &all);
    if (is_cut(f) && call == FRAME_LOSS_START)
        return head_start_shards(f, h);
    return frame_loss(f, call, &args);
}

static int forward(struct zinf_frame *f)
{
    struct head h = make_head(f);
    int code = f->visit ? 0 : all_rows(f, &h, FRAME_LOSS_START);
    if (!code)
        code = head_make_units(f, &h, 1);
    for (int64_t first = 0; !code && first < frame_rows(f); first += h.chunk_rows) {
        struct chunk k = chunk_at(f, &h, first, 0);
        code = each_part(f, &h, &k, chunk_statistics);
    }
    if (code || f->visit + 1 < f->n_visits)
        return code;
    const struct chunk all = {.count = frame_rows(f)};
    if (is_cut(f))
        code = head_join_shards(f, &h, &all);
    return code ? code : all_rows(f, &h, FRAME_LOSS_FINISH);
}

static int backward(struct zinf_frame *f)
{
    struct head h = make_head(f);
    int code = frame_zero_gaps(f, f->stage->units.n);
    if (!code)
        code = clear_gaps(f, &h);
    if (!code)
        code = head_make_units(f, &h, 1);
    for (int64_t first = 0; !code && first < frame_rows(f); first += h.chunk_rows) {
        struct chunk k = chunk_at(f, &h, first, 0);
        code = each_part(f, &h, &k, head_logits);
        if (!code)
            code = chunk_backward(f, &h, &k, f->visit == 0);
    }
    return code ? code : head_units_backward(f, &h, 1);
}

static int whole(struct zinf_frame *f)
{
    struct head h = make_head(f);
    uint32_t n_tiles = f->stage->sweep.n;
    int code = all_rows(f, &h, FRAME_LOSS_START);
    if (!code)
        code = clear_gaps(f, &h);
    for (uint32_t t = 0; !code && t < n_tiles; t++)
        code = frame_zero_gaps(f, f->stage->units.n + t);
    if (!code)
        code = head_make_units(f, &h, n_tiles);
    for (int64_t first = 0; !code && first < frame_rows(f); first += h.chunk_rows) {
        for (uint32_t t = 0; !code && t < n_tiles; t++) {
            struct chunk k = chunk_at(f, &h, first, t);
            code = each_part(f, &h, &k, chunk_statistics);
        }
        const struct chunk rows = chunk_at(f, &h, first, 0);
        if (!code && is_cut(f))
            code = head_join_shards(f, &h, &rows);
        for (uint32_t t = 0; !code && t < n_tiles; t++) {
            struct chunk k = chunk_at(f, &h, first, t);
            code = chunk_backward(f, &h, &k, t == 0);
        }
    }
    if (!code)
        code = head_units_backward(f, &h, n_tiles);
    return code ? code : all_rows(f, &h, FRAME_LOSS_FINISH);
}

/* Logits of rows for every id of a tile, those of a shard behind those of the ones before. */
static int row(struct zinf_frame *f)
{
    const struct head_spec *s = f->stage->spec;
    const uint32_t n = is_cut(f) ? f->graph->shards.n : 1;
    struct head h = {
        .hidden = f->graph->values[f->stage->in.at[0]].cols,
        .tile_rows = s->tile_rows,
        .ld = s->tile_rows,
        .scale = s->scale,
    };
    struct chunk k = {
        .first = f->row,
        .count = f->n_rows ? f->n_rows : 1,
        .unit = f->stage->units.n,
        .logits = f->out[0],
    };
    int64_t cols = 0;
    head_take_units(f, &h, 1);
    int code = head_make_units(f, &h, 1);
    for (; !code && k.shard < n; k.shard++) {
        k.logits = shard_at(f, f->out[0], (uint64_t)cols * sizeof(float));
        cols += (int64_t)head_table_of(f, &k)->rows;
        code = head_logits(f, &h, &k);
    }
    if (code || s->softcap == 0)
        return code;
    return frame_softcap(f, f->out[0], s->softcap, (uint64_t)((k.count - 1) * s->tile_rows + cols));
}

const struct zinf_stage_ops zinf_stage_head = {
    .name = "head",
    .forward = forward,
    .backward = backward,
    .whole = whole,
    .row = row,
};
