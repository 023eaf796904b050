/*
 * stage_head: what the head's files share: a call's arrays, and the rows of the table as products
 * take them. Inside stage_head*.c only.
 */
#ifndef ZINF_STAGE_HEAD_H
#define ZINF_STAGE_HEAD_H

#include "model/stages/stages.h"

/* What all tiles and chunks of a call share. */
struct head {
    int64_t chunk_rows, hidden, tile_rows;
    enum zinf_dtype
        d_dtype; /* gradients of logits, in their place; d_ld elements from row to row */
    int64_t d_ld;
    float scale;                     /* of the logits; 0: 1 */
    float *max, *sum, *target_logit; /* [rows] */
    float *logit_sum;                /* [rows], where labels are smoothed */
    struct zinf_objective objective;
    float *logits; /* [tiles at hand][chunk_rows][tile_rows] */
    bool unit_rows;
    void *units; /* [tiles at hand][tile_rows][hidden]: the tables' rows, of norm 1 */
    float *rstd; /* [tiles at hand][tile_rows] */
};

/* An offset into an array that is not there while measuring. */
static inline float *head_at(float *array, int64_t index)
{
    return array ? array + index : NULL;
}

/* ---- stage_head_units.c: rows divided by their norm ---- */

void head_take_units(struct zinf_frame *f, struct head *h, uint64_t tiles);
/* The rows that a product with tile number `tile` of those at hand takes. */
const void *head_rows_of(const struct zinf_frame *f, const struct head *h, uint32_t tile);
/* Nothing where rows are taken as they are. */
int head_make_units(struct zinf_frame *f, const struct head *h, uint32_t n_tiles);
/* The gradient of the tiles' unit rows becomes that of their rows. */
int head_units_backward(struct zinf_frame *f, const struct head *h, uint32_t n_tiles);

#endif
