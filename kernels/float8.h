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

/* ---- parameters on their way, with matrices as codes ---- */

/* Parameters of bf16 of which some matrices are E4M3 codes with their scale are an *image*: a head
 * of n_runs runs, which say what is where, and then what they name. A product rounds a matrix that
 * was made of such codes to the same numbers again, whatever scale it finds, so whoever multiplies
 * with 8-bit floats alone sees no difference; the image has half the bytes. */
struct zinf_float8_run {
    uint64_t from;  /* bytes from the image's start on, a multiple of 16 */
    uint64_t to, n; /* elements of the parameters; multiples of 16 */
    float scale;    /* of a code; zinf_float8_encode fills it in */
    uint32_t coded; /* 0: bf16 as it is */
};
#define ZINF_FLOAT8_RUN_ELEMS 16
struct zinf_float8_image {
    struct zinf_float8_run *runs; /* [n_runs], without scales; every element is in one */
    uint32_t n_runs;
    uint64_t bytes; /* of the image */
    uint64_t most;  /* elements of the longest run */
};
/* What is behind the head begins here. */
static inline uint64_t zinf_float8_head(uint32_t n_runs)
{
    return ((uint64_t)n_runs * sizeof(struct zinf_float8_run) + 255) / 256 * 256;
}
/* The image of parameters, by the CPU with so many threads. Both are aligned to 16 bytes. */
void zinf_float8_encode(const struct zinf_float8_image *image, const void *params, void *to,
                        int n_threads);
/* The way back, by a device: params[i] = element i, every code the bf16 number that it is. */
struct zinf_widen {
    const void *image; /* as encode has made it; aligned to 16 bytes, as params are */
    uint32_t n_runs;
    uint64_t most; /* elements of the longest run */
    void *params;
};

#ifdef __cplusplus
}
#endif
#endif
