/*
 * stage_head_units: heads whose rows of the table are divided by their norm. A copy of each tile at
 * hand is in scratch for the products; the gradient of that copy becomes the tile's, in place, once
 * it is complete.
 */
#include "model/stages/stage_head.h"

#include <math.h>

/* Rows of a tile that are fp32 at a time while their gradient is made. */
#define SLAB_ROWS 1024

void head_take_units(struct zinf_frame *f, struct head *h, uint64_t tiles)
{
    const struct head_spec *s = f->stage->spec;
    const uint64_t rows = tiles * (uint64_t)s->tile_rows;
    h->unit_rows = s->unit_rows;
    if (!h->unit_rows)
        return;
    h->units = frame_scratch(f, rows * (uint64_t)h->hidden * frame_width(f));
    h->rstd = frame_scratch(f, rows * sizeof(float));
}

/* Bytes from an array's start to a row of hidden elements; 0 while measuring. */
static uint64_t row_bytes(const struct zinf_frame *f, const struct head *h, uint64_t row)
{
    return f->queue ? row * (uint64_t)h->hidden * frame_width(f) : 0;
}

/* The row of the call's arrays with which a shard of a tile at hand begins. */
static uint64_t first_row(const struct zinf_frame *f, const struct head *h, uint32_t tile,
                          uint32_t shard)
{
    const struct zinf_tensor *shards = frame_unit(f, f->stage->units.n + tile)->tensors;
    uint64_t row = (uint64_t)tile * (uint64_t)h->tile_rows;
    for (uint32_t i = 0; i < shard; i++)
        row += shards[i].rows;
    return row;
}

const void *head_rows_of(const struct zinf_frame *f, const struct head *h, uint32_t tile,
                         uint32_t shard)
{
    if (!h->unit_rows)
        return frame_weight(f, f->stage->units.n + tile, (int)shard);
    return shard_at(f, h->units, row_bytes(f, h, first_row(f, h, tile, shard)));
}

/* W / max(|W|, 1e-12) of the shard's rows: RMSNorm but for a factor, with an eps that at a norm of
 * 0 is that bound. */
static struct zinf_norm row_norm(const struct zinf_frame *f, const struct head *h, uint32_t tile,
                                 uint32_t shard)
{
    const uint32_t unit = f->stage->units.n + tile;
    return (struct zinf_norm){
        .kind = ZINF_NORM_RMS,
        .dtype = f->compute->dtype,
        .rows = (int64_t)frame_unit(f, unit)->tensors[shard].rows,
        .cols = h->hidden,
        .eps = 1e-24f / (float)h->hidden,
        .w_add = 1.0f / sqrtf((float)h->hidden),
        .x = frame_weight(f, unit, (int)shard),
        .rstd = head_at(h->rstd, (int64_t)first_row(f, h, tile, shard)),
    };
}

/* Shards of a tile; 1 where it is not cut. */
static uint32_t parts_of(const struct zinf_frame *f)
{
    return f->graph->shards.of ? f->graph->shards.n : 1;
}

int head_make_units(struct zinf_frame *f, const struct head *h, uint32_t n_tiles)
{
    const uint32_t n = parts_of(f);
    int code = 0;
    for (uint32_t i = 0; !code && h->unit_rows && i < n_tiles * n; i++) {
        struct zinf_norm args = row_norm(f, h, i / n, i % n);
        args.y = (void *)(uintptr_t)head_rows_of(f, h, i / n, i % n);
        code = frame_norm(f, &args);
    }
    return code;
}

/* The gradient of a shard's unit rows becomes that of its rows. */
static int rows_backward(struct zinf_frame *f, const struct head *h, uint32_t tile, uint32_t shard)
{
    const uint64_t mark = frame_mark(f);
    struct zinf_norm args = row_norm(f, h, tile, shard);
    const char *table = args.x;
    const int64_t rows = args.rows;
    float *grad = frame_grad(f, f->stage->units.n + tile, (int)shard), *rstd = args.rstd;
    float *slab = frame_scratch(f, SLAB_ROWS * (uint64_t)h->hidden * sizeof *slab);
    int code = 0;
    args.dtype = ZINF_DTYPE_F32;
    args.x = slab;
    for (int64_t first = 0; !code && first < rows; first += args.rows) {
        args.rows = rows - first < SLAB_ROWS ? rows - first : SLAB_ROWS;
        args.rstd = head_at(rstd, first);
        args.dy = args.dx = f->queue ? grad + first * h->hidden : grad;
        code = frame_convert(f, slab, ZINF_DTYPE_F32, table + row_bytes(f, h, (uint64_t)first),
                             f->compute->dtype, (uint64_t)(args.rows * h->hidden));
        if (!code)
            code = frame_norm_backward(f, &args);
    }
    frame_release(f, mark);
    return code;
}

int head_units_backward(struct zinf_frame *f, const struct head *h, uint32_t n_tiles)
{
    const uint32_t n = parts_of(f);
    int code = 0;
    for (uint32_t i = 0; !code && h->unit_rows && i < n_tiles * n; i++)
        if (frame_grad(f, f->stage->units.n + i / n, 0))
            code = rows_backward(f, h, i / n, i % n);
    return code;
}
