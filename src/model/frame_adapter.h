/*
 * frame_adapter: what adapters do to one linear layer, for frame_linear alone. A *low rank* is one
 * adapter in one call.
 */
#ifndef ZINF_FRAME_ADAPTER_H
#define ZINF_FRAME_ADAPTER_H

#include "model/frame.h"

struct low_rank {
    const struct zinf_adapted *spec;
    uint32_t unit;              /* the adapter's place at hand */
    int64_t rows, rank, in, ld; /* of x; ...; elements from row to row of y */
    uint64_t first_bytes;       /* of its columns in a row of y */
};

/* ---- frame_adapter.c ---- */

/* Rows of x; operands and result in the parameters' number type; the weight's tensor. */
int64_t frame_linear_rows(const struct zinf_frame *f, const struct frame_linear *l);
struct zinf_matmul frame_product(const struct zinf_frame *f);
const struct zinf_tensor *frame_linear_weight(const struct zinf_frame *f,
                                              const struct frame_linear *l);
/* Does it for every adapter of the weight; scratch is given back after each. */
int frame_each_adapter(struct zinf_frame *f, const struct frame_linear *l,
                       int (*act)(struct zinf_frame *f, const struct low_rank *r, void *argument),
                       void *argument);
/* Its columns of y or dy. */
void *frame_adapter_columns(const struct zinf_frame *f, const struct low_rank *r, const void *y);
/* To y, to dx, of dA and dB: all adapters' of the weight. */
int frame_adapt(struct zinf_frame *f, const struct frame_linear *l, const void *x, void *y);
int frame_adapt_backward_input(struct zinf_frame *f, const struct frame_linear *l, const void *dy,
                               void *dx);
int frame_adapt_backward_weight(struct zinf_frame *f, const struct frame_linear *l, const void *dy,
                                const void *x);

/* ---- frame_magnitude.c ---- */

/* Whether an adapter of the weight has magnitudes. */
bool frame_has_magnitude(const struct zinf_frame *f, const struct frame_linear *l);
/* y = gain y + bias, in place. */
int frame_magnitude(struct zinf_frame *f, const struct frame_linear *l, void *y);
/* *scaled: gain dy, in scratch. */
int frame_magnitude_backward(struct zinf_frame *f, const struct frame_linear *l, const void *dy,
                             const void **scaled);
/* Gradients of magnitudes, from what the layer makes without gain and bias. */
int frame_magnitude_gradient(struct zinf_frame *f, const struct frame_linear *l, const void *dy,
                             const void *unscaled);

#endif
