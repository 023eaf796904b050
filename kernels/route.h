/*
 * route: arguments of the operations of a mixture of experts, a part of kernels.h: rows choose
 * experts, are gathered for each of them, and what it makes of them is added up by weight. Memory,
 * threads and errors as kernels.h has them.
 */
#ifndef ZINF_KERNELS_ROUTE_H
#define ZINF_KERNELS_ROUTE_H

#include "base/base.h"

/* A mixture of experts (Shazeer et al., arXiv 1701.06538; Jiang et al., arXiv 2401.04088): every
 * row chooses the n_chosen of cols experts that softmax(logits) gives most, of equal ones the
 * first. weights has their probabilities, divided by their sum if normalised, times scale, and -1
 * for the others. Backward reads d_weights where a row has chosen.
 *
 * With sigmoids (DeepSeek-AI, arXiv 2412.19437) a probability is that of its logit alone, and
 * d_probs is not read. A bias is added to what is compared, and to nothing else. With groups, of
 * neighbouring experts, a row chooses some groups first, by the sum of the group_top best in each,
 * and then experts of these alone. */
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
    float scale; /* 0: 1 */
    bool sigmoid;
    const float *bias;                 /* [ZINF_ROUTE_BIAS_PARTS][cols]: their sum; NULL: none */
    int64_t n_groups, n_groups_chosen; /* of as many experts each; 0: no groups */
    int group_top;                     /* 1 or 2 */
};
#define ZINF_ROUTE_MAX_GROUPS 64
#define ZINF_ROUTE_BIAS_PARTS 3 /* 16-bit numbers that an fp32 one is the sum of */
/* What column e is biased by. */
#define ZINF_ROUTE_BIAS(bias, cols, e) ((bias)[e] + (bias)[(cols) + (e)] + (bias)[2 * (cols) + (e)])
#define ZINF_ROUTE_MAX_COLS 1024
/* What each expert has of every sample, [samples][2 cols] fp32: how many of its seq rows chose it,
 * then the sum of its probabilities; with those of `before`, if any, added. Of all that the loss
 * that balances experts is (Fedus et al., arXiv 2101.03961; a term for every sample):
 * factor * sum over experts of (all samples' first) * (the sample's second). */
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

/* n rows among others, named by number, no two alike; without numbers the first n. gather: y[i] =
 * x[rows[i]], of one type. scatter: y[rows[i]] += scale[rows[i] * scale_ld] * x[i] in fp32, rounded
 * once to x's type or not at all. */
struct zinf_rows {
    int64_t n, cols;
    const int32_t *rows; /* [n] on the device; or NULL */
    enum zinf_dtype x_dtype, y_dtype;
    const void *x;
    void *y;
    const float *scale; /* scatter; NULL: 1 */
    int64_t scale_ld;
};
/* What a weight w = weights[rows[i] * ld] of the product of row i of b with a matrix does in
 * backward, a being the gradient of b without the weight: d_weights[rows[i] * ld] is the sum of
 * a[i] b[i], then both rows are multiplied by w. */
struct zinf_weigh {
    int64_t n, cols, ld;
    const int32_t *rows; /* [n] on the device, no two alike; NULL: i is the i-th */
    enum zinf_dtype dtype;
    void *a, *b; /* [n][cols] */
    const float *weights;
    float *d_weights; /* NULL: not wanted */
};

#endif
