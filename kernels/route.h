/*
 * route: arguments of the operations of a mixture of experts: rows choose experts, are gathered
 * for each expert, and the results are added by weight. A part of kernels.h, whose rules for
 * memory, threads and errors hold.
 */
#ifndef ZINF_KERNELS_ROUTE_H
#define ZINF_KERNELS_ROUTE_H

#include "base/base.h"

/*
 * A mixture of experts (Shazeer et al., arXiv 1701.06538; Jiang et al., arXiv 2401.04088). Every
 * row chooses the n_chosen of cols experts with the largest softmax(logits), of equal ones the
 * first. weights receives their probabilities (divided by their sum if normalised) times scale,
 * and -1 for the other experts. Backward reads d_weights for chosen experts only.
 *
 * With sigmoids (DeepSeek-AI, arXiv 2412.19437) a probability is the sigmoid of its logit, and
 * d_probs is not used. bias is added only for the comparison. With groups of neighbouring experts,
 * a row first chooses groups, by the sum of the group_top largest in each, and then experts of
 * these groups.
 */
struct zinf_route {
    int64_t rows, cols, n_chosen; /* n_chosen <= cols <= ZINF_ROUTE_MAX_COLS */
    bool normalised;
    const float *logits; /* [rows][cols] */
    float *weights;      /* [rows][cols]; written forward, read backward */
    /* backward only */
    const float *d_weights; /* [rows][cols] */
    const float *d_probs;   /* [cols], added to the gradient of every row's softmax; or NULL */
    float *d_logits;        /* [rows][cols], overwritten; may be logits */
    /* both */
    float scale; /* 0 means 1 */
    bool sigmoid;
    const float *bias; /* [ZINF_ROUTE_BIAS_PARTS][cols]: their sum; NULL: none */
    /* number of groups, of equal size, and of those that are chosen; 0: no groups */
    int64_t n_groups, n_groups_chosen;
    int group_top; /* 1 or 2 */
};
#define ZINF_ROUTE_MAX_GROUPS 64
#define ZINF_ROUTE_BIAS_PARTS 3 /* 16-bit numbers whose sum is an fp32 number */
/* The bias of column e. */
#define ZINF_ROUTE_BIAS(bias, cols, e) ((bias)[e] + (bias)[(cols) + (e)] + (bias)[2 * (cols) + (e)])
#define ZINF_ROUTE_MAX_COLS 1024
/* The share of each expert in every sample, [samples][2 cols] fp32: the number of the sample's rows
 * that chose it, then the sum of its probabilities; those of `before`, unless NULL, are added. The
 * loss that balances experts (Fedus et al., arXiv 2101.03961) has a term for every sample: factor *
 * sum over experts of (first number, summed over samples) * (the sample's second number). */
struct zinf_shares {
    int64_t samples, seq, cols;
    const float *logits, *weights; /* [samples * seq][cols], as in struct zinf_route */
    const float *before;
    float *shares;
};
struct zinf_balance {
    int64_t samples, cols;
    float factor;
    const float *shares;
    float *loss;     /* [samples]; NULL: not wanted */
    float *d_shares; /* backward: factor times the derivative, overwritten; NULL: not wanted */
};

/* n rows of an array by number, no two alike; without numbers the first n. gather: y[i] =
 * x[rows[i]], of one type. scatter: y[rows[i]] += scale[rows[i] * scale_ld] * x[i], in fp32,
 * rounded once to the type of y. */
struct zinf_rows {
    int64_t n, cols;
    const int32_t *rows; /* [n] on the device; NULL: row i is number i */
    enum zinf_dtype x_dtype, y_dtype;
    const void *x;
    void *y;
    const float *scale; /* scatter; NULL: 1 */
    int64_t scale_ld;
};
/* Backward of weights: row i of b was multiplied by w = weights[rows[i] * ld] behind a product; a
 * is the gradient of that row without the weight. d_weights[rows[i] * ld] becomes the sum of a[i]
 * b[i], then both rows are multiplied by w. */
struct zinf_weigh {
    int64_t n, cols, ld;
    const int32_t *rows; /* [n] on the device, no two alike; NULL: row i is number i */
    enum zinf_dtype dtype;
    void *a, *b; /* [n][cols] */
    const float *weights;
    float *d_weights; /* NULL: not wanted */
};

#endif
