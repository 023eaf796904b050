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

/* Whether what it makes is the loss itself, and no value that a later stage makes a loss of. */
static bool makes_loss(const struct zinf_frame *f)
{
    return f->graph->values[f->stage->out.at[0]].kind == ZINF_VALUE_LOSS;
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
    h.d_ld = h.tile_rows * (int64_t)(sizeof(float) / zinf_dtype_bytes(h.d_dtype));
    h.max = take(f, bytes);
    h.sum = take(f, bytes);
    h.target_logit = take(f, bytes);
    if (makes_loss(f))
        h.objective = f->compute->objective;
    if (h.objective.smoothing > 0)
        h.logit_sum = take(f, bytes);
    h.logits = frame_scratch(f, tiles * (uint64_t)(h.chunk_rows * s->tile_rows) * sizeof(float));
    head_take_units(f, &h, tiles);
    return h;
}

/* One chunk of rows [first, first + count) against one tile, the frame's unit. */
struct chunk {
    int64_t first, count;
    uint32_t unit;
    float *logits; /* [count][tile_rows] */
};

static const struct zinf_tensor *table_of(const struct zinf_frame *f, const struct chunk *k)
{
    return &frame_unit(f, k->unit)->tensors[0];
}

/* ---- chunks ---- */

static struct zinf_cross_entropy loss_args(const struct zinf_frame *f, const struct head *h,
                                           const struct chunk *k)
{
    const struct head_spec *s = f->stage->spec;
    const struct zinf_tensor *table = table_of(f, k);
    const bool weighed = f->pass == ZINF_PASS_BACKWARD && !makes_loss(f);
    return (struct zinf_cross_entropy){
        .rows = k->count,
        .cols = (int64_t)table->rows,
        .ld = h->tile_rows,
        .softcap = s->softcap,
        .first = (int64_t)table->pieces[0].rows.file_first,
        .targets = (const int32_t *)f->in[1] + (f->queue ? k->first : 0),
        .logits = k->logits,
        .max = head_at(h->max, k->first),
        .sum = head_at(h->sum, k->first),
        .target_logit = head_at(h->target_logit, k->first),
        .loss = f->out && f->out[0] && f->queue ? (float *)f->out[0] + k->first : NULL,
        .scale = weighed ? 1 : f->loss_scale,
        .row_scales = weighed && f->queue ? (const float *)f->d_out[0] + k->first : NULL,
        .d_dtype = h->d_dtype,
        .smoothing = h->objective.smoothing,
        .vocab = f->graph->vocab,
        .logit_sum = head_at(h->logit_sum, k->first),
        .z_loss = h->objective.z_loss,
    };
}

static const void *norm_row(const struct zinf_frame *f, const struct head *h, int64_t row)
{
    uint64_t bytes = (uint64_t)(row * h->hidden) * frame_width(f);
    return f->queue ? (const char *)f->in[0] + bytes : f->in[0];
}

/* Of the tile's ids; NULL: none. */
static const void *bias_of(const struct zinf_frame *f, const struct chunk *k)
{
    const struct head_spec *s = f->stage->spec;
    const uint64_t first = f->queue ? table_of(f, k)->pieces[0].rows.file_first : 0;
    return s->biased ? (const char *)frame_weight(f, 0, 0) + first * frame_width(f) : NULL;
}

static int chunk_logits(struct zinf_frame *f, const struct head *h, const struct chunk *k)
{
    struct zinf_matmul args = {
        .m = k->count,
        .n = (int64_t)table_of(f, k)->rows,
        .k = h->hidden,
        .a = norm_row(f, h, k->first),
        .b = head_rows_of(f, h, k->unit - f->stage->units.n),
        .c = k->logits,
        .alpha = h->scale,
        .bias = bias_of(f, k),
        .a_dtype = f->compute->dtype,
        .b_dtype = f->compute->dtype,
        .c_dtype = ZINF_DTYPE_F32,
        .trans_b = true,
        .lda = h->hidden,
        .ldb = h->hidden,
        .ldc = h->tile_rows,
        .few_rows = f->compute->decoding != NULL,
    };
    return frame_matmul(f, &args);
}

static int chunk_statistics(struct zinf_frame *f, const struct head *h, const struct chunk *k)
{
    struct zinf_cross_entropy args = loss_args(f, h, k);
    int code = chunk_logits(f, h, k);
    return code ? code : frame_loss(f, FRAME_LOSS_UPDATE, &args);
}

/* The share of the gradient at the head's input that this tile's logits have. */
static int chunk_input_gradient(struct zinf_frame *f, const struct head *h, const struct chunk *k,
                                bool first_tile)
{
    struct zinf_matmul args = {
        .m = k->count,
        .n = h->hidden,
        .k = (int64_t)table_of(f, k)->rows,
        .a = k->logits,
        .b = head_rows_of(f, h, k->unit - f->stage->units.n),
        .a_dtype = h->d_dtype,
        .b_dtype = f->compute->dtype,
        .c_dtype = ZINF_DTYPE_F32,
        .lda = h->d_ld,
        .ldb = h->hidden,
        .ldc = h->hidden,
        .alpha = h->scale,
        .beta = first_tile && !f->d_in_adds[0] ? 0 : 1,
    };
    if (!f->d_in[0])
        return 0;
    args.c = (float *)f->d_in[0] + (f->queue ? k->first * h->hidden : 0);
    return frame_matmul(f, &args);
}

static int chunk_table_gradient(struct zinf_frame *f, const struct head *h, const struct chunk *k)
{
    struct zinf_matmul args = {
        .m = (int64_t)table_of(f, k)->rows,
        .n = h->hidden,
        .k = k->count,
        .a = k->logits,
        .b = norm_row(f, h, k->first),
        .c = frame_grad(f, k->unit, 0),
        .a_dtype = h->d_dtype,
        .b_dtype = f->compute->dtype,
        .c_dtype = ZINF_DTYPE_F32,
        .trans_a = true,
        .lda = h->d_ld,
        .ldb = h->hidden,
        .ldc = h->hidden,
        .alpha = h->scale,
        .beta = k->first ? 1 : 0,
    };
    return args.c ? frame_matmul(f, &args) : 0;
}

/* logits to gradients in place; the input's gradient and the tile's take their shares. */
static int chunk_backward(struct zinf_frame *f, const struct head *h, const struct chunk *k,
                          bool first_tile)
{
    struct zinf_cross_entropy loss = loss_args(f, h, k);
    int code = frame_loss(f, FRAME_LOSS_BACKWARD, &loss);
    if (!code)
        code = chunk_input_gradient(f, h, k, first_tile);
    return code ? code : chunk_table_gradient(f, h, k);
}

/* The chunk from row `first` on, against the tile'th of those at hand. */
static struct chunk chunk_at(const struct zinf_frame *f, const struct head *h, int64_t first,
                             uint32_t tile)
{
    int64_t left = frame_rows(f) - first;
    return (struct chunk){
        .first = first,
        .count = left < h->chunk_rows ? left : h->chunk_rows,
        .unit = f->stage->units.n + tile,
        .logits = head_at(h->logits, (int64_t)tile * h->chunk_rows * h->tile_rows),
    };
}

/* Start or finish, for all rows at once. */
static int all_rows(struct zinf_frame *f, const struct head *h, enum frame_loss call)
{
    struct chunk all = {.count = frame_rows(f), .unit = f->stage->units.n};
    struct zinf_cross_entropy args = loss_args(f, h, &all);
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
        code = chunk_statistics(f, &h, &k);
    }
    if (code || f->visit + 1 < f->n_visits)
        return code;
    return all_rows(f, &h, FRAME_LOSS_FINISH);
}

static int backward(struct zinf_frame *f)
{
    struct head h = make_head(f);
    int code = frame_zero_gaps(f, f->stage->units.n);
    if (!code)
        code = head_make_units(f, &h, 1);
    for (int64_t first = 0; !code && first < frame_rows(f); first += h.chunk_rows) {
        struct chunk k = chunk_at(f, &h, first, 0);
        code = chunk_logits(f, &h, &k);
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
    for (uint32_t t = 0; !code && t < n_tiles; t++)
        code = frame_zero_gaps(f, f->stage->units.n + t);
    if (!code)
        code = head_make_units(f, &h, n_tiles);
    for (int64_t first = 0; !code && first < frame_rows(f); first += h.chunk_rows) {
        for (uint32_t t = 0; !code && t < n_tiles; t++) {
            struct chunk k = chunk_at(f, &h, first, t);
            code = chunk_statistics(f, &h, &k);
        }
        for (uint32_t t = 0; !code && t < n_tiles; t++) {
            struct chunk k = chunk_at(f, &h, first, t);
            code = chunk_backward(f, &h, &k, t == 0);
        }
    }
    if (!code)
        code = head_units_backward(f, &h, n_tiles);
    return code ? code : all_rows(f, &h, FRAME_LOSS_FINISH);
}

/* Logits of rows for every id of a tile. */
static int row(struct zinf_frame *f)
{
    const struct head_spec *s = f->stage->spec;
    struct head h = {
        .hidden = f->graph->values[f->stage->in.at[0]].cols,
        .tile_rows = s->tile_rows,
        .scale = s->scale,
    };
    struct chunk k = {
        .first = f->row,
        .count = f->n_rows ? f->n_rows : 1,
        .unit = f->stage->units.n,
        .logits = f->out[0],
    };
    head_take_units(f, &h, 1);
    int code = head_make_units(f, &h, 1);
    if (!code)
        code = chunk_logits(f, &h, &k);
    if (code || s->softcap == 0)
        return code;
    uint64_t n = (uint64_t)((k.count - 1) * s->tile_rows) + table_of(f, &k)->rows;
    return frame_softcap(f, k.logits, s->softcap, n);
}

const struct zinf_stage_ops zinf_stage_head = {
    .name = "head",
    .forward = forward,
    .backward = backward,
    .whole = whole,
    .row = row,
};
