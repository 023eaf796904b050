/*
 * magnitude: arguments of the operations for weights whose direction and magnitude are trained
 * apart (DoRA; Liu et al., arXiv 2402.09353). With V = W + scale B A: y = x (diag(gain) V)^T +
 * bias, where gain[i] = magnitude[i] / |V[i]|, or 0 if V[i] is 0. A part of kernels.h, whose rules
 * for memory, threads and errors hold.
 */
#ifndef ZINF_KERNELS_MAGNITUDE_H
#define ZINF_KERNELS_MAGNITUDE_H

#include "base/base.h"

/* Norms of V's rows, and what they are scaled by. V is never made:
 *     |V[i]|^2 = |W[i]|^2 + scale B[i] . (2 (W A^T)[i] + scale (B A A^T)[i])
 * whose two products are given. Without a w, both are 1: of rows that nobody scales. */
struct zinf_magnitude {
    enum zinf_dtype dtype; /* of w, b, magnitude */
    int64_t rows, cols, rank;
    float scale;
    const void *w;          /* [rows][cols] or NULL; then b, magnitude, w_a and a_a are not used */
    const void *b;          /* [rows][rank] */
    const void *magnitude;  /* [rows] */
    const float *w_a, *a_a; /* W A^T [rows][rank], A A^T [rank][rank] */
    float *norm, *gain;     /* [rows], overwritten */
};

/* y[i][j] = gain[j] x[i][j] + bias[j], rounded once. */
struct zinf_column_scale {
    enum zinf_dtype dtype; /* of x, bias, y */
    int64_t rows, cols;
    const void *x;     /* [rows][cols] */
    const float *gain; /* [cols] */
    const void *bias;  /* [cols] or NULL */
    void *y;           /* [rows][cols], may be x */
};

/* sum[j] = sum over rows of x[i][j] y[i][j], divided by norm[j] (0 if that is 0), in fp32,
 * overwritten. It is the gradient of a magnitude if x is the gradient of the result and y is x V^T.
 */
struct zinf_column_dot {
    enum zinf_dtype dtype; /* of x, y */
    int64_t rows, cols;
    int64_t ld; /* elements from row to row of x and y */
    const void *x, *y;
    const float *norm; /* [cols] */
    float *sum;        /* [cols] */
};

#endif
