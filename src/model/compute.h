/*
 * compute: what block, embedding and head share: where a weight and its gradient lie in the unit's
 * flat buffers, a linear layer's three products, and the place of a sample in the dropout streams.
 */
#ifndef ZINF_MODEL_COMPUTE_H
#define ZINF_MODEL_COMPUTE_H

#include "model/model.h"

static inline uint64_t rows_of(const struct zinf_gpt2_compute *c)
{
    return (uint64_t)(c->batch * c->seq);
}

/* The next buffer of a layout that is *at bytes long so far; returns its offset. */
static inline uint64_t take(uint64_t *at, uint64_t bytes)
{
    uint64_t here = *at;
    *at = zinf_align_up(*at + bytes, 256);
    return here;
}

/* NULL where the unit has no such tensor. */
static inline const void *weight(const struct zinf_gpt2_compute *c,
                                 const struct zinf_unit_spec *unit, const void *weights,
                                 enum zinf_role role)
{
    int64_t offset = unit->offset_of[role];
    if (offset < 0)
        return NULL;
    return (const char *)weights + (uint64_t)offset * zinf_dtype_bytes(c->dtype);
}

static inline float *grad(const struct zinf_unit_spec *unit, float *grads, enum zinf_role role)
{
    int64_t offset = unit->offset_of[role];
    return offset < 0 ? NULL : grads + offset;
}

/* y[N][out] = x[N][in] w[out][in]^T + b[out] */
struct linear {
    const void *w, *b;
    int64_t out, in;
};
int linear_forward(const struct zinf_gpt2_compute *c, const struct linear *l, const void *x,
                   void *y);
int linear_backward_input(const struct zinf_gpt2_compute *c, const struct linear *l, const void *dy,
                          void *dx);
/* dw [out][in] and db [out] (NULL: no bias), fp32, overwritten */
int linear_backward_weight(const struct zinf_gpt2_compute *c, const struct linear *l,
                           const void *dy, const void *x, float *dw, float *db);
/* The three products as arguments, so that workspaces can be asked for. */
struct zinf_matmul linear_forward_args(const struct zinf_gpt2_compute *c, const struct linear *l);
struct zinf_matmul linear_input_args(const struct zinf_gpt2_compute *c, const struct linear *l);
struct zinf_matmul linear_weight_args(const struct zinf_gpt2_compute *c, const struct linear *l);

struct zinf_dropout dropout_at(const struct zinf_gpt2_compute *c, float p, uint32_t site,
                               uint64_t elements_per_sample);
/* Zeroes the gaps between tensors, so that norms and updates over the flat buffer are clean. */
int zero_gaps(const struct zinf_gpt2_compute *c, const struct zinf_unit_spec *unit, float *grads);

#endif
