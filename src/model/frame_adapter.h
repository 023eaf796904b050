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
/* Its rows of the weight w, as a product takes them. */
const void *frame_adapter_weight(const struct zinf_frame *f, const struct low_rank *r,
                                 const void *w);
/* In front of it; *masked: x behind that, in scratch where it is not x itself. */
struct zinf_dropout frame_adapter_dropout(const struct zinf_frame *f, const struct low_rank *r);
int frame_adapter_mask(struct zinf_frame *f, const struct low_rank *r, const void *x,
                       const void **masked);
/* To y, to dx, of dA and dB: all adapters' of the weight. */
int frame_adapt(struct zinf_frame *f, const struct frame_linear *l, const void *x, void *y);
int frame_adapt_backward_input(struct zinf_frame *f, const struct frame_linear *l, const void *dy,
                               void *dx);
int frame_adapt_backward_weight(struct zinf_frame *f, const struct frame_linear *l, const void *dy,
                                const void *x);

/* ---- frame_magnitude.c ---- */

/* Whether an adapter of the weight has magnitudes. */
bool frame_has_magnitude(const struct zinf_frame *f, const struct frame_linear *l);
/* Of a weight's rows, fp32, in scratch; rows that no adapter scales have 1. */
struct frame_gains {
    float *norm, *gain; /* [rows of the weight] */
};
int frame_make_gains(struct zinf_frame *f, const struct frame_linear *l, struct frame_gains *out);
/* y = gain x + bias: of as many rows as the layer has. */
int frame_scale(struct zinf_frame *f, const struct frame_linear *l, const float *gain,
                const void *x, const void *bias, void *y);
/* y = gain y + bias, in place. */
int frame_magnitude(struct zinf_frame *f, const struct frame_linear *l, void *y);
/* *scaled: gain dy, in scratch. */
int frame_magnitude_backward(struct zinf_frame *f, const struct frame_linear *l, const void *dy,
                             const void **scaled);
/* Gradients of magnitudes, from what the layer makes without gain and bias. */
int frame_magnitude_gradient(struct zinf_frame *f, const struct frame_linear *l, const void *dy,
                             const void *unscaled);

/* ---- frame_dropped.c: magnitudes behind dropout ---- */

/* Whether a dropout in front of an adapter with magnitudes is on. */
bool frame_drops_magnitude(const struct zinf_frame *f, const struct frame_linear *l);
/* To y = W x + bias and to dx = W^T dy: the adapters' corrections. */
int frame_dropped(struct zinf_frame *f, const struct frame_linear *l, const void *x, void *y);
int frame_dropped_backward_input(struct zinf_frame *f, const struct frame_linear *l, const void *dy,
                                 void *dx);
/* unscaled = x~ V^T, by adapter: what frame_magnitude_gradient wants. */
int frame_dropped_unscaled(struct zinf_frame *f, const struct frame_linear *l, const void *x,
                           void *unscaled);

#endif
