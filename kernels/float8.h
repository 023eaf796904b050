/*
 * float8: 8-bit floats as operands of a product, a part of kernels.h. A matrix is rounded as a
 * whole: its numbers are scaled by the largest power of two for which all stay in the type's
 * range, rounded to nearest even, and after the product scaled back. A power of two changes no
 * mantissa and a maximum does not depend on order, so every device makes the same codes. Products
 * of two codes are exact in fp32. Inf and NaN become NaN codes, and the scale is then 1.
 *
 * The types are those of Micikevicius et al., "FP8 Formats for Deep Learning" (arXiv 2209.05433),
 * who use E4M3 for weights and activations and E5M2 for gradients, whose range is wider.
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

/* The numbers that define a type. */
struct zinf_float8_type {
    int fraction; /* bits */
    int least;    /* exponent of the smallest normal number */
    int top;      /* exponent of the largest number, which is 1.75 times that power of two */
};
static inline struct zinf_float8_type zinf_float8_type(enum zinf_float8 type)
{
    const struct zinf_float8_type e4m3 = {3, -6, 8}, e5m2 = {2, -14, 15};
    return type == ZINF_FLOAT8_E5M2 ? e5m2 : e4m3;
}

/* k and n of a product are multiples of this, as cuBLASLt demands. */
#define ZINF_FLOAT8_EXTENT 16
/* Scales are from 2^-62 to 2^62, so that a product of two is an fp32 number. */
#define ZINF_FLOAT8_MOST_SHIFT 62

/* ---- parameters with matrices as codes ---- */

/* An *image* holds bf16 parameters, with some matrices as E4M3 codes and a scale. It is a head of
 * n_runs runs, which say what is where, and then the data. A product rounds a matrix that was made
 * of such codes to the same numbers again, so products of 8-bit floats do not change; the image has
 * half the bytes. */
struct zinf_float8_run {
    uint64_t from;  /* offset in the image, a multiple of 16 */
    uint64_t to, n; /* range of the parameters; multiples of 16 */
    float scale;    /* of the codes; set by zinf_float8_encode */
    uint32_t coded; /* 0: bf16, not codes */
};
#define ZINF_FLOAT8_RUN_ELEMS 16
struct zinf_float8_image {
    struct zinf_float8_run *runs; /* [n_runs], without scales; every element is in exactly one */
    uint32_t n_runs;
    uint64_t bytes; /* of the image */
    uint64_t most;  /* elements of the longest run */
};
/* Offset of the data behind the head. */
static inline uint64_t zinf_float8_head(uint32_t n_runs)
{
    return ((uint64_t)n_runs * sizeof(struct zinf_float8_run) + 255) / 256 * 256;
}
/* Makes the image on the CPU, with n_threads threads. Both arrays are aligned to 16 bytes. */
void zinf_float8_encode(const struct zinf_float8_image *image, const void *params, void *to,
                        int n_threads);
/* Makes bf16 parameters of an image on a device: every code becomes the number that it stands for.
 */
struct zinf_widen {
    const void *image; /* made by zinf_float8_encode; aligned to 16 bytes, as params */
    uint32_t n_runs;
    uint64_t most; /* elements of the longest run */
    void *params;
};

#ifdef __cplusplus
}
#endif
#endif
