/*
 * recurrent: arguments of what a recurrent mixer is made of, a part of kernels.h: a short
 * convolution along the sequence, and a scan that carries a state from token to token. Memory,
 * threads and errors as kernels.h has them.
 *
 * Both begin anew where a document begins, in front of the first token of a sample too, and rows
 * of padding neither give anything to others nor get anything.
 */
#ifndef ZINF_KERNELS_RECURRENT_H
#define ZINF_KERNELS_RECURRENT_H

#include "base/memory.h"

/* What is remembered of sequences that are continued: row r is the token at positions[r] of
 * sequence sequences[r], behind the tokens of that which came before, in this call or in others. At
 * position 0 a sequence begins anew. */
struct zinf_remembered {
    const int32_t *sequences, *positions; /* [rows] on the device */
    void *state;                          /* of sequence 0 */
    uint64_t bytes;                       /* from one sequence to the next */
};

/* y[r][c] = f(b[c] + sum over t of w[c][t] x[r - width + 1 + t][c]), each column by itself, with
 * rows of the same document alone; f is SiLU or nothing. Backward makes f's argument again. */
struct zinf_convolution {
    enum zinf_dtype dtype;
    int64_t batch, seq, cols;
    int64_t width; /* at most ZINF_CONVOLUTION_MAX_WIDTH */
    bool silu;
    const int32_t *segments; /* as in zinf_attention: [batch][seq], or NULL */
    const void *x;           /* [batch seq][ld], of which the first cols */
    int64_t ld;
    const void *w, *b; /* [cols][width], [cols] or NULL */
    void *y;           /* [batch seq][cols], none of x's memory; backward ignores it */
    /* Forward, batch 1: a sequence's state is [width - 1][cols] in dtype, the rows of x before its
     * next one; or NULL */
    const struct zinf_remembered *remembered;
    /* backward only */
    const void *dy; /* as y */
    void *dx;       /* as x, its cols overwritten; none of dy's memory */
    float *dw, *db; /* [cols][width], [cols] fp32, overwritten; NULL: not wanted */
};
#define ZINF_CONVOLUTION_MAX_WIDTH 8

/* By what rule a row changes the state S [key_dim][value_dim] of a head, which is 0 at first:
 *     S = exp(g) S;  S += k w^T;  y = S^T q
 * DELTA (gated delta rule; Yang et al., arXiv 2412.06464): keys and queries have length 1, queries
 * divided by sqrt(key_dim) then; w = s (v - S^T k) with s = sigmoid(b), and g = -exp(a_log)
 * softplus(a + step_bias).
 * DECAY (Mamba-2; Dao and Gu, arXiv 2405.21060): w = s v with s = softplus(a + step_bias) kept
 * within [step_low, step_high], g = -exp(a_log) s, and y += skip v. */
enum zinf_recurrence {
    ZINF_RECURRENCE_DELTA,
    ZINF_RECURRENCE_DECAY,
};
/* Computed in fp32 by products over chunks of at most ZINF_SCAN_CHUNK rows of one document, the
 * first of which begins with it: the order of sums is that of the document alone, wherever it
 * stands. Value heads h with the same h / (value_heads / key_heads) have the same key head. */
struct zinf_scan {
    enum zinf_recurrence rule;
    enum zinf_dtype dtype; /* of all that is void */
    int64_t batch, seq;
    int64_t key_heads, value_heads; /* value_heads is a multiple of key_heads */
    int64_t key_dim, value_dim;     /* each at most ZINF_SCAN_MAX_DIM */
    bool backward;
    float step_low, step_high; /* DECAY */
    const int32_t *segments;   /* as in zinf_attention: [batch][seq], or NULL */
    /* In a row of ld elements: [key_heads][key_dim] twice, [value_heads][value_dim]. */
    const void *q, *k, *v;
    int64_t ld;
    const void *a, *b; /* [value_heads] in a row of gate_ld elements; b: DELTA */
    int64_t gate_ld;
    const void *a_log, *step_bias, *skip; /* [value_heads]; skip: DECAY */
    void *y; /* [batch seq][value_heads value_dim]; backward ignores it */
    /* Forward, batch 1: a sequence's state is fp32 [value_heads][key_dim][value_dim]; or NULL. Row
     * by row then, without chunks. */
    const struct zinf_remembered *remembered;
    /* backward only */
    const void *dy;                        /* as y */
    void *dq, *dk, *dv;                    /* as q, k, v; overwritten */
    void *da, *db;                         /* as a, b; overwritten */
    float *d_a_log, *d_step_bias, *d_skip; /* [value_heads] fp32, overwritten; NULL: not wanted */
};
#define ZINF_SCAN_CHUNK 64
#define ZINF_SCAN_MAX_DIM 256
#define ZINF_SCAN_KEY_EPS 1e-6f /* added to the sum of squares of a key or query of DELTA */

/* Chunks of a sample that can have a state in front of them: each is further behind its document's
 * beginning than a chunk, and so no two begin in the same ZINF_SCAN_CHUNK rows. */
static inline int64_t zinf_scan_slots(const struct zinf_scan *args)
{
    return (args->seq - 1) / ZINF_SCAN_CHUNK;
}

/* What one pass of a scan leaves for the next; all but the first two are backward's. */
struct zinf_scan_arrays {
    float *decay, *strength;              /* [rows][value_heads]: g and s */
    float *d_decay, *d_strength, *d_skip; /* as those */
    float *written, *d_written; /* [rows][value_heads value_dim]: w, and its gradient; with DELTA
                                 * that of what the triangular system is solved for */
    float *states, *d_states;   /* [batch][value_heads][slots]: in front of a chunk, and each
                                 * [value_dim][key_dim], both padded: zinf_scan_cols */
};
static inline int64_t zinf_scan_cols(int64_t dim)
{
    return (dim + 15) / 16 * 16;
}
static inline uint64_t zinf_scan_state_floats(const struct zinf_scan *args)
{
    return (uint64_t)(zinf_scan_cols(args->key_dim) * zinf_scan_cols(args->value_dim));
}
/* Places them at base, or with base NULL counts their floats, which it returns. */
static inline uint64_t zinf_scan_place(const struct zinf_scan *args, struct zinf_scan_arrays *out,
                                       float *base)
{
    const uint64_t rows = (uint64_t)(args->batch * args->seq), heads = (uint64_t)args->value_heads;
    const uint64_t numbers = rows * heads, values = numbers * (uint64_t)args->value_dim;
    const uint64_t slots = (uint64_t)(args->batch * zinf_scan_slots(args)) * heads;
    const uint64_t states = slots * zinf_scan_state_floats(args);
    float **const arrays[] = {&out->decay,      &out->strength, &out->d_decay,
                              &out->d_strength, &out->d_skip,   &out->written,
                              &out->d_written,  &out->states,   &out->d_states};
    const uint64_t floats[] = {numbers, numbers, numbers, numbers, numbers,
                               values,  values,  states,  states};
    uint64_t at = 0;
    for (int i = 0; i < (args->backward ? 9 : 2); i++) {
        *arrays[i] = base ? base + at : NULL;
        at += zinf_align_up(floats[i], 64);
    }
    return at;
}

#endif
