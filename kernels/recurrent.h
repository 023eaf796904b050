/*
 * recurrent: arguments of the two operations of a recurrent mixer, a part of kernels.h: a short
 * convolution along the sequence, and a scan that carries a state from token to token. The rules of
 * kernels.h for memory, threads and errors hold here, too.
 *
 * Both operations start without a past at the first token of each document, and so at the first
 * token of each sample, unless that goes on from rows of another call. Rows of padding have no
 * influence on other rows, and other rows have none on them.
 */
#ifndef ZINF_KERNELS_RECURRENT_H
#define ZINF_KERNELS_RECURRENT_H

#include "base/memory.h"

/* The states of sequences that are continued token by token, as in decoding: row r is the token at
 * positions[r] of the sequence number sequences[r]. It follows the sequence's tokens of earlier
 * rows and earlier calls. A token at position 0 starts its sequence without a past. */
struct zinf_remembered {
    const int32_t *sequences, *positions; /* [rows] on the device */
    void *state;                          /* the state of sequence 0 */
    uint64_t bytes;                       /* from one sequence's state to the next one's */
};

/* The ends of a sample (batch is 1) that is a piece of a longer sequence, whose pieces are computed
 * by calls of their own: what they hand over to each other. The segments of the row in front of the
 * piece, and in backward with d_behind of the row behind it, are in memory beside those of the
 * piece; they say whether its first and last document have rows there. */
struct zinf_ends {
    int64_t rows; /* of the sequence in front of the piece; 0: it is the first */
    /* The state in front of the piece, with rows > 0, and the one behind it, which forward
     * overwrites; NULL: not wanted. */
    const void *before;
    void *behind;
    /* backward: the gradient at the state behind, NULL: 0, and at the one in front, which is
     * overwritten with rows > 0. They must not overlap. */
    const float *d_behind;
    float *d_before;
    /* Only for a scan, which sums over chunks of its own: the chunk that the front of the piece
     * cuts, and the one that its end cuts (zinf_scan_open_place). Forward does the first one again
     * from its beginning, so that its results have the bits of the whole sequence's. NULL: the
     * first chunk begins with the piece. */
    const float *open_before;
    float *open_behind;
};

/* y[r][c] = f(b[c] + sum over t of w[c][t] x[r - width + 1 + t][c]), each column by itself, over
 * rows of the same document; f is SiLU or the identity. Backward computes f's argument again. */
struct zinf_convolution {
    enum zinf_dtype dtype;
    int64_t batch, seq, cols;
    int64_t width; /* at most ZINF_CONVOLUTION_MAX_WIDTH */
    bool silu;
    const int32_t *segments; /* as in zinf_attention: [batch][seq], or NULL */
    const void *x;           /* [batch seq][ld]; the first cols of a row are read */
    int64_t ld;
    const void *w, *b; /* [cols][width], [cols] or NULL */
    void *y;           /* [batch seq][cols], must not overlap x; backward ignores it */
    /* For forward with batch 1, or NULL. A sequence's state is [width - 1][cols] in dtype: the last
     * rows of x before its next token. */
    const struct zinf_remembered *remembered;
    const struct zinf_ends *ends; /* or NULL; the state is as remembered, its gradient is fp32 */
    /* backward only */
    const void *dy; /* as y */
    void *dx;       /* as x, the first cols overwritten; must not overlap dy */
    float *dw, *db; /* [cols][width], [cols] fp32, overwritten; NULL: not wanted */
};
#define ZINF_CONVOLUTION_MAX_WIDTH 8

/* The rule by which a row changes the state S [key_dim][value_dim] of a head. S is 0 at the start
 * of a document.
 *     S = exp(g) S;  S += k w^T;  y = S^T q
 * DELTA (gated delta rule; Yang et al., arXiv 2412.06464): keys and queries are scaled to length 1,
 * and queries are then divided by sqrt(key_dim); w = s (v - S^T k) with s = strength sigmoid(b),
 * and g = -exp(a_log) softplus(a + step_bias).
 *
 * DECAY (Mamba-2; Dao and Gu, arXiv 2405.21060): w = s v with s = softplus(a + step_bias) clamped
 * to [step_low, step_high], g = -exp(a_log) s, and y += skip v. */
enum zinf_recurrence {
    ZINF_RECURRENCE_DELTA,
    ZINF_RECURRENCE_DECAY,
};
/* The scan is computed in fp32, by matrix products over chunks of at most ZINF_SCAN_CHUNK rows. The
 * first chunk of a document begins at the document's first row, or at the first row of the call,
 * unless the ends have the chunk that is cut there. So the order of sums depends on the document
 * alone, and not on its place in the sample. Value heads h with the same h / (value_heads /
 * key_heads) have the same key head. */
struct zinf_scan {
    enum zinf_recurrence rule;
    enum zinf_dtype dtype; /* of all arrays of type void */
    int64_t batch, seq;
    int64_t key_heads, value_heads; /* value_heads is a multiple of key_heads */
    int64_t key_dim, value_dim;     /* each at most ZINF_SCAN_MAX_DIM */
    bool backward;
    float step_low, step_high; /* only DECAY */
    float strength;            /* only DELTA, at most 2; 0: 1 */
    const int32_t *segments;   /* as in zinf_attention: [batch][seq], or NULL */
    /* Columns in rows of ld elements: q and k are [key_heads][key_dim] in a row, v is
     * [value_heads][value_dim]. */
    const void *q, *k, *v;
    int64_t ld;
    const void *a, *b; /* [value_heads] in rows of gate_ld elements; b: only DELTA */
    int64_t gate_ld;
    const void *a_log, *step_bias, *skip; /* [value_heads]; skip: only DECAY */
    /* [batch seq][value_heads value_dim]; backward ignores it. NULL: only the state behind. */
    void *y;
    /* For forward with batch 1, or NULL. A sequence's state is fp32
     * [value_heads][key_dim][value_dim]. The scan then goes row by row, without chunks. */
    const struct zinf_remembered *remembered;
    const struct zinf_ends *ends; /* or NULL; states and gradients are such arrays */
    /* backward only */
    const void *dy;                        /* as y */
    void *dq, *dk, *dv;                    /* as q, k, v; overwritten */
    void *da, *db;                         /* as a, b; overwritten */
    float *d_a_log, *d_step_bias, *d_skip; /* [value_heads] fp32, overwritten; NULL: not wanted */
};
static inline float zinf_scan_strength(const struct zinf_scan *args)
{
    return args->strength != 0.0f ? args->strength : 1.0f;
}
#define ZINF_SCAN_CHUNK 64
#define ZINF_SCAN_MAX_DIM 256
#define ZINF_SCAN_KEY_EPS 1e-6f /* added to the sum of squares of a key or query of DELTA */

/* Number of rows of a sample that can have a state before them which is kept: those that a chunk
 * begins with whose document has an earlier chunk. Such a chunk begins at least ZINF_SCAN_CHUNK
 * rows after the beginning of its document, so no two of them begin within the same ZINF_SCAN_CHUNK
 * rows. With ends these are also the first row of the sample and the one behind its last. */
static inline int64_t zinf_scan_slots(const struct zinf_scan *args)
{
    return (args->seq - 1) / ZINF_SCAN_CHUNK + (args->ends ? 2 : 0);
}

/* A chunk that the border of two pieces cuts: what is needed to do it again. */
struct zinf_scan_open {
    float *count;   /* [2]: of its rows in front of the border, less than ZINF_SCAN_CHUNK; and 1 if
                     * there is a state in front of them, else 0 */
    float *state;   /* that state: [value_heads][key_dim][value_dim] */
    float *numbers; /* [rows][2][value_heads]: g and s */
    float *k, *v;   /* [rows][key_heads key_dim], [rows][value_heads value_dim] */
};
/* Places the arrays at base; with base NULL it only counts. Returns their number of floats. */
static inline uint64_t zinf_scan_open_place(const struct zinf_scan *args,
                                            struct zinf_scan_open *out, const float *base)
{
    const uint64_t rows = ZINF_SCAN_CHUNK - 1, values = (uint64_t)args->value_dim;
    const uint64_t heads = (uint64_t)args->value_heads, key = (uint64_t)args->key_dim;
    float **const arrays[] = {&out->count, &out->state, &out->numbers, &out->k, &out->v};
    const uint64_t floats[] = {2, heads * key * values, rows * 2 * heads,
                               rows * (uint64_t)args->key_heads * key, rows * heads * values};
    uint64_t at = 0;
    for (int i = 0; i < 5; i++) {
        *arrays[i] = base ? (float *)(uintptr_t)base + at : NULL;
        at += zinf_align_up(floats[i], 16);
    }
    return at;
}

/* Scratch of a scan, which one of its passes writes and the next one reads. Forward uses only the
 * first two arrays. */
struct zinf_scan_arrays {
    float *decay, *strength;              /* [rows][value_heads]: g and s */
    float *d_decay, *d_strength, *d_skip; /* gradients, of the same shape */
    float *written, *d_written; /* [rows][value_heads value_dim]: w, and its gradient; with DELTA
                                 * that of what the triangular system is solved for */
    float *states, *d_states;   /* [batch][value_heads][slots]: the state before a chunk and its
                                 * gradient, each [value_dim][key_dim] with both dimensions
                                 * padded by zinf_scan_cols */
    uint8_t *places;            /* [rows]: a row's number in its chunk */
};
static inline int64_t zinf_scan_cols(int64_t dim)
{
    return (dim + 15) / 16 * 16;
}
static inline uint64_t zinf_scan_state_floats(const struct zinf_scan *args)
{
    return (uint64_t)(zinf_scan_cols(args->key_dim) * zinf_scan_cols(args->value_dim));
}
/* Places the arrays at base; with base NULL it only counts. Returns the number of floats of all
 * arrays. */
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
    out->places = base ? (uint8_t *)(base + at) : NULL;
    return at + zinf_align_up(rows, 256) / sizeof(float);
}

#endif
