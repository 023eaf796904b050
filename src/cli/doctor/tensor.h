/*
 * tensor: an array in a storage type whose values a reference reads back in double, so that
 * rounding of inputs never counts. For cases of kernels, here and in tests.
 */
#ifndef ZINF_CLI_TENSOR_H
#define ZINF_CLI_TENSOR_H

#include "base/base.h"

struct tensor {
    enum zinf_dtype dtype;
    size_t n;
    void *data;
};

static const enum zinf_dtype all_dtypes[] = {ZINF_DTYPE_F32, ZINF_DTYPE_BF16, ZINF_DTYPE_F16};

/* Relative rounding error of one stored value. */
static inline double dtype_epsilon(enum zinf_dtype dtype)
{
    return dtype == ZINF_DTYPE_F32 ? 0x1p-24 : dtype == ZINF_DTYPE_BF16 ? 0x1p-8 : 0x1p-11;
}

static inline uint64_t tensor_bytes(const struct tensor *t)
{
    return t->n * zinf_dtype_bytes(t->dtype);
}

static inline double get(const struct tensor *t, size_t i)
{
    if (t->dtype == ZINF_DTYPE_F32)
        return (double)((const float *)t->data)[i];
    uint16_t half = ((const uint16_t *)t->data)[i];
    return (double)(t->dtype == ZINF_DTYPE_BF16 ? zinf_bf16_to_f32(half) : zinf_f16_to_f32(half));
}

static inline bool tensor_same_bits(const struct tensor *a, const struct tensor *b)
{
    return !memcmp(a->data, b->data, tensor_bytes(a));
}

#endif
