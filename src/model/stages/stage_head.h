/*
 * stage_head: what the head's files share: a call's arrays, and the rows of the table as products
 * take them. Inside stage_head*.c only.
 */
#ifndef ZINF_STAGE_HEAD_H
#define ZINF_STAGE_HEAD_H

#include "model/shards.h"

/* What all tiles and chunks of a call share. */
struct head {
    int64_t chunk_rows, hidden;
    int64_t ld; /* of logits: columns of the largest tile, or of the largest shard of one */
    enum zinf_dtype
        d_dtype; /* gradients of logits, in their place; d_ld elements from row to row */
    int64_t d_ld;
    float scale;                     /* of the logits; 0: 1 */
    float *max, *sum, *target_logit; /* [rows] */
    float *logit_sum;                /* [rows], where labels are smoothed */
    int32_t *max_at;                 /* [rows], where the largest logit has a loss of its own */
    /* Of each of the graph's shards by itself: [shards][rows]; NULL while measuring, and where the
     * model is not cut. */
    struct {
        float *max, *sum, *target_logit, *logit_sum;
    } own;
    struct zinf_objective objective;
    float *logits; /* [tiles at hand][shards][chunk_rows][ld] */
    int64_t tile_rows;
    bool unit_rows;
    void *units; /* [tiles at hand][tile_rows][hidden]: the tables' rows, of norm 1 */
    float *rstd; /* [tiles at hand][tile_rows] */
};

/* One chunk of rows [first, first + count) against one tile, or a shard of it. */
struct chunk {
    int64_t first, count;
    uint32_t unit;
    float *logits;  /* [count][ld of the head] */
    uint32_t shard; /* the tile's tensor; 0 where it is not cut */
};

/* An offset into an array that is not there while measuring. */
static inline float *head_at(float *array, int64_t index)
{
    return array ? array + index : NULL;
}
static inline int32_t *head_id_at(int32_t *array, int64_t index)
{
    return array ? array + index : NULL;
}

/* ---- stage_head_chunks.c ---- */

/* Whether what it makes is the loss itself, and no value that a later stage makes a loss of. */
bool head_makes_loss(const struct zinf_frame *f);
const struct zinf_tensor *head_table_of(const struct zinf_frame *f, const struct chunk *k);
int head_logits(struct zinf_frame *f, const struct head *h, const struct chunk *k);
int head_table_gradient(struct zinf_frame *f, const struct head *h, const struct chunk *k);

struct zinf_cross_entropy head_loss_args(const struct zinf_frame *f, const struct head *h,
                                         const struct chunk *k);
/* out = beta out + the gradient at the head's input that the chunk's logits have, those of k's
 * columns. */
int head_input_product(struct zinf_frame *f, const struct head *h, const struct chunk *k,
                       float *out, float beta);

/* ---- stage_head_shards.c: a vocabulary that is cut ---- */

void head_take_shards(struct zinf_frame *f, struct head *h,
                      void *(*take)(struct zinf_frame *, uint64_t));
/* The part of a tile's chunk that is of a shard. */
struct chunk head_shard_chunk(const struct head *h, const struct chunk *k, uint32_t shard);
int head_start_shards(struct zinf_frame *f, const struct head *h);
/* The statistics of a shard in place of those of all. */
void head_use_own(const struct zinf_frame *f, const struct head *h, const struct chunk *k,
                  struct zinf_cross_entropy *args);
/* What all shards' statistics make together, for the rows of k. */
int head_join_shards(struct zinf_frame *f, const struct head *h, const struct chunk *k);
/* out = beta out + the sum over shards of head_input_product. */
int head_sum_input(struct zinf_frame *f, const struct head *h, const struct chunk *k, float *out,
                   float beta);

/* ---- stage_head_units.c: rows divided by their norm ---- */

void head_take_units(struct zinf_frame *f, struct head *h, uint64_t tiles);
/* The rows that a product with a shard of tile number `tile` of those at hand takes. */
const void *head_rows_of(const struct zinf_frame *f, const struct head *h, uint32_t tile,
                         uint32_t shard);
/* Nothing where rows are taken as they are. */
int head_make_units(struct zinf_frame *f, const struct head *h, uint32_t n_tiles);
/* The gradient of the tiles' unit rows becomes that of their rows. */
int head_units_backward(struct zinf_frame *f, const struct head *h, uint32_t n_tiles);

#endif
