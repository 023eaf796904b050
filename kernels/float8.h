/*
 * float8: floats of 8 bits as operands of a product, a part of kernels.h. A matrix is rounded to
 * them as a whole: its numbers are scaled by the largest power of two with which none leaves the
 * type's range, rounded to the nearest (ties to even), and after the product scaled back. A power
 * of two changes no bits of a number and the largest of many does not depend on their order, so
 * every device makes the same codes; a product of two codes is exact in fp32. What is no finite
 * number is none as a code, and then the scale is 1.
 *
 * The types are those of Micikevicius et al., "FP8 Formats for Deep Learning" (arXiv 2209.05433),
 * whose training has weights and activations in E4M3 and gradients, which vary more, in E5M2.
 */
#ifndef ZINF_KERNELS_FLOAT8_H
#define ZINF_KERNELS_FLOAT8_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum zinf_float8 {
    ZINF_FLOAT8_NONE,
    ZINF_FLOAT8_E4M3, /* 4 bits of exponent, 3 of fraction; up to 448; one NaN, no infinity */
    ZINF_FLOAT8_E5M2, /* up to 57344: the upper half of an fp16 */
};

/* The numbers that make a type. */
struct zinf_float8_type {
    int fraction; /* bits */
    int least;    /* exponent of the least number that is not denormal */
    int top;      /* exponent of the greatest number, which is 1.75 times that power of two */
};
static inline struct zinf_float8_type zinf_float8_type(enum zinf_float8 type)
{
    const struct zinf_float8_type e4m3 = {3, -6, 8}, e5m2 = {2, -14, 15};
    return type == ZINF_FLOAT8_E5M2 ? e5m2 : e4m3;
}

/* Extents of a product that are k or n are multiples of this: cuBLASLt takes no others. */
#define ZINF_FLOAT8_EXTENT 16
/* Scales are from 2^-62 to 2^62, so that the product of two is a number of fp32. */
#define ZINF_FLOAT8_MOST_SHIFT 62

#ifdef __cplusplus
}
#endif
#endif
