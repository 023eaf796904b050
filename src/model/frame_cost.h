/* frame_cost: what frame_ops.c and frame_choice.c add to a frame that measures. Inside this folder
 * only. */
#ifndef ZINF_FRAME_COST_H
#define ZINF_FRAME_COST_H

#include "model/frame.h"

/* One kernel: flops at the rate of products, bytes of the device's memory. */
void frame_cost(struct zinf_frame *f, double flops, double bytes);
void frame_cost_product(struct zinf_frame *f, const struct zinf_matmul *args);
/* Attention: rows that see so many keys each, in the mean, with so many edges of what they see. */
struct attention_extent {
    double flops; /* of one key of all rows, forward */
    double keys;
    double edges; /* of a tile: causal 1, windows 2, all keys 0 */
};
void frame_cost_attention(struct zinf_frame *f, const struct attention_extent *extent, double bytes,
                          bool backward);
/* Weights in 4 or 8 bits become numbers: what is read and written. */
void frame_cost_unpacked(struct zinf_frame *f, double bytes);

/* True where the frame only measures: traffic is then counted. Calls that move the rows of a visit
 * move its share of them. */
static inline bool frame_counts(struct zinf_frame *f, double bytes)
{
    if (f->queue)
        return false;
    f->bytes += bytes;
    frame_cost(f, 0, bytes * (f->rows_share > 0 ? f->rows_share : 1));
    return true;
}

#endif
