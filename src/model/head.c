/*
 * head: final norm, logits and loss over chunks of rows and tiles of the vocabulary. Per row an
 * online maximum and sum are kept, so full logits never exist. The tile-by-tile form computes
 * logits twice (statistics, then gradient); the all-at-once form keeps one chunk's logits and
 * computes them once. Both make the same products in the same order per result: the same bits.
 */
#include "model/compute.h"

/* Rows of a chunk: large enough for the products, small enough for the logits of a tile. */
#define HEAD_ROWS 256

int64_t zinf_head_rows(const struct zinf_model_spec *spec, int64_t rows)
{
    (void)spec;
    return rows < HEAD_ROWS ? rows : HEAD_ROWS;
}

uint64_t zinf_head_layout(const struct zinf_gpt2_compute *c, void *base, struct zinf_head *head,
                          int64_t logits_tiles, bool backward)
{
    uint64_t size = 0, n = rows_of(c), h = (uint64_t)c->spec->hidden;
    char *b = base;
    head->head_rows = zinf_head_rows(c->spec, (int64_t)n);
    uint64_t offset = take(&size, n * h * zinf_dtype_bytes(c->dtype));
    head->norm = b ? b + offset : NULL;
    float **rows[] = {&head->mean, &head->rstd,         &head->max,
                      &head->sum,  &head->target_logit, &head->loss};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        offset = take(&size, n * sizeof(float));
        *rows[i] = b ? (float *)(b + offset) : NULL;
    }
    offset = take(&size,
                  (uint64_t)(logits_tiles * head->head_rows * c->spec->tile_rows) * sizeof(float));
    head->logits = b ? (float *)(b + offset) : NULL;
    if (backward) {
        offset = take(&size, n * h * sizeof(float));
        head->d_norm = b ? (float *)(b + offset) : NULL;
    }
    return size;
}

static struct zinf_norm norm_args(const struct zinf_gpt2_compute *c,
                                  const struct zinf_unit_spec *final, const void *weights,
                                  const void *x, const struct zinf_head *head)
{
    return (struct zinf_norm){
        .kind = c->spec->norm,
        .dtype = c->dtype,
        .rows = (int64_t)rows_of(c),
        .cols = c->spec->hidden,
        .eps = c->spec->norm_eps,
        .x = x,
        .w = weight(c, final, weights, ZINF_ROLE_FINAL_W),
        .b = weight(c, final, weights, ZINF_ROLE_FINAL_B),
        .y = head->norm,
        .mean = head->mean,
        .rstd = head->rstd,
    };
}

int zinf_head_norm(const struct zinf_gpt2_compute *c, const struct zinf_unit_spec *final,
                   const void *weights, const void *x, const struct zinf_head *head)
{
    struct zinf_norm args = norm_args(c, final, weights, x, head);
    return c->device->ops->norm_forward(c->queue, &args);
}

int zinf_head_norm_backward(const struct zinf_gpt2_compute *c, const struct zinf_unit_spec *final,
                            const void *weights, float *grads, const void *x, void *d_x,
                            const struct zinf_head *head)
{
    const struct zinf_device_ops *ops = c->device->ops;
    struct zinf_norm args = norm_args(c, final, weights, x, head);
    args.y = NULL;
    args.dy = head->norm; /* the norm's output is no longer needed: its place takes the gradient */
    args.dx = d_x;
    args.dw = grad(final, grads, ZINF_ROLE_FINAL_W);
    args.db = grad(final, grads, ZINF_ROLE_FINAL_B);
    int code = zero_gaps(c, final, grads);
    if (!code)
        code = ops->convert(c->queue, head->norm, c->dtype, head->d_norm, ZINF_DTYPE_F32,
                            rows_of(c) * (uint64_t)c->spec->hidden);
    return code ? code : ops->norm_backward(c->queue, &args);
}

/* One chunk of rows [first, first + count) against one tile. */
struct chunk {
    int64_t first, count;
    const struct zinf_unit_spec *tile;
    const void *table;
    float *logits; /* [count][tile_rows] */
};

static struct zinf_cross_entropy loss_args(const struct zinf_gpt2_compute *c,
                                           const struct zinf_head *head, const struct chunk *k)
{
    return (struct zinf_cross_entropy){
        .rows = k->count,
        .cols = k->tile ? (int64_t)k->tile->tensors[0].n_rows : 0,
        .ld = c->spec->tile_rows,
        .first = k->tile ? (int64_t)k->tile->tensors[0].first_row : 0,
        .targets = head->targets + k->first,
        .logits = k->logits,
        .max = head->max + k->first,
        .sum = head->sum + k->first,
        .target_logit = head->target_logit + k->first,
        .loss = head->loss + k->first,
        .scale = head->scale,
    };
}

static const void *norm_row(const struct zinf_gpt2_compute *c, const struct zinf_head *head,
                            int64_t row)
{
    uint64_t elems = (uint64_t)(row * c->spec->hidden);
    return (const char *)head->norm + elems * zinf_dtype_bytes(c->dtype);
}

static int chunk_logits(const struct zinf_gpt2_compute *c, const struct zinf_head *head,
                        const struct chunk *k)
{
    int64_t h = c->spec->hidden;
    struct zinf_matmul args = {
        .m = k->count,
        .n = (int64_t)k->tile->tensors[0].n_rows,
        .k = h,
        .a = norm_row(c, head, k->first),
        .b = k->table,
        .c = k->logits,
        .a_dtype = c->dtype,
        .b_dtype = c->dtype,
        .c_dtype = ZINF_DTYPE_F32,
        .trans_b = true,
        .lda = h,
        .ldb = h,
        .ldc = c->spec->tile_rows,
    };
    return c->device->ops->matmul(c->queue, &args);
}

static int chunk_statistics(const struct zinf_gpt2_compute *c, const struct zinf_head *head,
                            const struct chunk *k)
{
    struct zinf_cross_entropy args = loss_args(c, head, k);
    int code = chunk_logits(c, head, k);
    return code ? code : c->device->ops->cross_entropy_update(c->queue, &args);
}

/* logits to gradients in place; d_norm and the tile's gradient take their shares. */
static int chunk_backward(const struct zinf_gpt2_compute *c, const struct zinf_head *head,
                          const struct chunk *k, float *grads, bool first_tile, bool first_chunk)
{
    int64_t h = c->spec->hidden, cols = (int64_t)k->tile->tensors[0].n_rows;
    struct zinf_cross_entropy loss = loss_args(c, head, k);
    struct zinf_matmul d_norm = {
        .m = k->count,
        .n = h,
        .k = cols,
        .a = k->logits,
        .b = k->table,
        .c = head->d_norm + k->first * h,
        .a_dtype = ZINF_DTYPE_F32,
        .b_dtype = c->dtype,
        .c_dtype = ZINF_DTYPE_F32,
        .lda = c->spec->tile_rows,
        .ldb = h,
        .ldc = h,
        .beta = first_tile ? 0 : 1,
    };
    struct zinf_matmul d_table = {
        .m = cols,
        .n = h,
        .k = k->count,
        .a = k->logits,
        .b = norm_row(c, head, k->first),
        .c = grad(k->tile, grads, ZINF_ROLE_TABLE),
        .a_dtype = ZINF_DTYPE_F32,
        .b_dtype = c->dtype,
        .c_dtype = ZINF_DTYPE_F32,
        .trans_a = true,
        .lda = c->spec->tile_rows,
        .ldb = h,
        .ldc = h,
        .beta = first_chunk ? 0 : 1,
    };
    int code = c->device->ops->cross_entropy_backward(c->queue, &loss);
    if (!code)
        code = c->device->ops->matmul(c->queue, &d_norm);
    return code ? code : c->device->ops->matmul(c->queue, &d_table);
}

static struct chunk chunk_at(const struct zinf_gpt2_compute *c, const struct zinf_head *head,
                             int64_t first)
{
    int64_t left = (int64_t)rows_of(c) - first;
    return (struct chunk){
        .first = first,
        .count = left < head->head_rows ? left : head->head_rows,
        .logits = head->logits,
    };
}

static int whole(const struct zinf_gpt2_compute *c, const struct zinf_head *head,
                 int (*op)(struct zinf_queue *, const struct zinf_cross_entropy *))
{
    struct chunk all = {.first = 0, .count = (int64_t)rows_of(c)};
    struct zinf_cross_entropy args = loss_args(c, head, &all);
    return op(c->queue, &args);
}

int zinf_head_start(const struct zinf_gpt2_compute *c, const struct zinf_head *head)
{
    return whole(c, head, c->device->ops->cross_entropy_start);
}

int zinf_head_finish(const struct zinf_gpt2_compute *c, const struct zinf_head *head)
{
    return whole(c, head, c->device->ops->cross_entropy_finish);
}

int zinf_head_tile(const struct zinf_gpt2_compute *c, const struct zinf_unit_spec *tile,
                   const void *weights, const struct zinf_head *head)
{
    int code = 0;
    for (int64_t first = 0; !code && first < (int64_t)rows_of(c); first += head->head_rows) {
        struct chunk k = chunk_at(c, head, first);
        k.tile = tile;
        k.table = weight(c, tile, weights, ZINF_ROLE_TABLE);
        code = chunk_statistics(c, head, &k);
    }
    return code;
}

int zinf_head_tile_backward(const struct zinf_gpt2_compute *c, const struct zinf_unit_spec *tile,
                            const void *weights, float *grads, const struct zinf_head *head,
                            bool first_tile)
{
    int code = zero_gaps(c, tile, grads);
    for (int64_t first = 0; !code && first < (int64_t)rows_of(c); first += head->head_rows) {
        struct chunk k = chunk_at(c, head, first);
        k.tile = tile;
        k.table = weight(c, tile, weights, ZINF_ROLE_TABLE);
        code = chunk_logits(c, head, &k);
        if (!code)
            code = chunk_backward(c, head, &k, grads, first_tile, first == 0);
    }
    return code;
}

/* Tile t of a chunk has its own logits buffer. */
static struct chunk resident_chunk(const struct zinf_gpt2_compute *c,
                                   const struct zinf_model *model, const void *const *weights,
                                   const struct zinf_head *head, int64_t first, int t)
{
    struct chunk k = chunk_at(c, head, first);
    k.tile = zinf_model_unit(model, t);
    k.table = weight(c, k.tile, weights[t], ZINF_ROLE_TABLE);
    k.logits = head->logits + (int64_t)t * head->head_rows * c->spec->tile_rows;
    return k;
}

int zinf_head_all(const struct zinf_gpt2_compute *c, const struct zinf_model *model,
                  const void *const *weights, float *const *grads, const struct zinf_head *head)
{
    int n_tiles = zinf_model_n_tiles(model);
    int code = zinf_head_start(c, head);
    for (int t = 0; !code && grads && t < n_tiles; t++)
        code = zero_gaps(c, zinf_model_unit(model, t), grads[t]);
    for (int64_t first = 0; !code && first < (int64_t)rows_of(c); first += head->head_rows) {
        for (int t = 0; !code && t < n_tiles; t++) {
            struct chunk k = resident_chunk(c, model, weights, head, first, t);
            code = chunk_statistics(c, head, &k);
        }
        for (int t = 0; !code && grads && t < n_tiles; t++) {
            struct chunk k = resident_chunk(c, model, weights, head, first, t);
            code = chunk_backward(c, head, &k, grads[t], t == 0, first == 0);
        }
    }
    return code ? code : zinf_head_finish(c, head);
}

int zinf_head_row_logits(const struct zinf_gpt2_compute *c, const struct zinf_unit_spec *tile,
                         const void *weights, int64_t row, const struct zinf_head *head)
{
    struct chunk k = {
        .first = row,
        .count = 1,
        .tile = tile,
        .table = weight(c, tile, weights, ZINF_ROLE_TABLE),
        .logits = head->logits,
    };
    return chunk_logits(c, head, &k);
}
