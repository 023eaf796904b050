/*
 * attention: dropout, which attention shares with other operations, and the arguments of attention:
 * over whole sequences, over remembered ones, and of a bias by distance. A part of kernels.h, which
 * says what holds of memory, threads and errors.
 */
#ifndef ZINF_KERNELS_ATTENTION_H
#define ZINF_KERNELS_ATTENTION_H

#include "base/base.h"

/* Dropout by counter: element e of the tensor is kept iff uniform(philox(counter = {e/4 low, e/4
 * high, step, site}, key = seed)[e % 4]) >= p, and kept values are scaled by 1/(1-p). e counts
 * from the start of the whole step's batch: element_first is that of this call's first element,
 * so micro-batching, placement and rank never change the mask. p = 0: off. */
struct zinf_dropout {
    float p;
    uint64_t seed;
    uint32_t step;
    uint32_t site; /* which layer and which place in it; unique in the model */
    uint64_t element_first;
};

/* What disentangled attention adds to the score of query i and key j (He et al., arXiv 2006.03654):
 * how the query sees the key's place, and that place the key: scale (q_i . keys[t] + k_j .
 * queries[t]). Row t is half + b for a key n tokens before its query and half - b for one n behind
 * it, kept within 0 and 2 half - 1; b, at most half, is the last one with starts[b] <= n. */
struct zinf_relative {
    int64_t half;          /* half of the rows, at most ZINF_RELATIVE_MAX_HALF */
    const int32_t *starts; /* [half + 1] in the caller's memory on every device, from 0 and never
                            * falling, read before the call returns */
    int64_t ld;            /* elements from row to row of all of these */
    /* [2 half][n_heads head_dim] in the type of qkv; NULL: no such term */
    const void *queries, *keys;
    void *d_queries, *d_keys; /* backward: summed over samples, overwritten; NULL as the others */
};
#define ZINF_RELATIVE_MAX_HALF 512 /* what a GPU takes as a kernel's argument */

/* Softmax attention that never stores T x T (Dao et al., arXiv 2205.14135). A row of qkv holds
 * [n_heads][head_dim] queries, then [n_kv_heads][head_dim] keys, then values. Row b*seq + t. The
 * score s of query i and key j of head h is scale q.k; with a softcap, softcap tanh(s / softcap) of
 * that; with slopes, s + slopes[h] (j - i) of that; and then masked. A row that sees no key has an
 * out and an lse of 0, and no gradient comes from it. */
struct zinf_attention {
    enum zinf_dtype dtype;
    int64_t batch, seq, n_heads, n_kv_heads, head_dim;
    /* Keys and values that are not in rows of qkv: so many a sample, in kv, and qkv has the queries
     * alone. 0: the queries' own. They are of another sequence (cross-attention), or of the same
     * one, which comes in parts: then query 0 is its token first_query and key 0 its token
     * first_key, and causal, window and slopes go by these places. */
    int64_t key_seq;
    int64_t first_query, first_key;
    /* Tokens of the sequence that comes in parts: dropout counts as if it came whole. 0: it does.
     * Rows and keys beyond are nobody's. whole_keys: of another sequence, whose keys come in parts,
     * too; 0: they are of the same one. */
    int64_t whole_seq, whole_keys;
    bool partial; /* keys of other calls join these (zinf_attention_merge): a row that sees none has
                   * an lse of -infinity */
    bool causal;
    int64_t window; /* a query sees itself and the window - 1 keys before it (Jiang et al., arXiv
                     * 2310.06825); 0: all; causal only */
    float scale;
    float softcap;       /* bound of the scores (Gemma Team, arXiv 2408.00118); 0: none */
    const float *slopes; /* ALiBi (Press et al., arXiv 2108.12409): [n_heads], at most
                          * ZINF_ATTENTION_MAX_SLOPES, in the caller's memory on every device, read
                          * before the call returns; NULL: none */
    /* A bias of scores by distance (Raffel et al., arXiv 1910.10683): head h gets
     * bias[h][j - i + seq - 1]. [n_heads][zinf_attention_distances] on the device; NULL: none. */
    const float *bias;
    /* Not causal, as many key heads as heads, and no window, softcap, slopes, bias or keys of
     * another sequence beside it. In the caller's memory; NULL: none. */
    const struct zinf_relative *relative;
    /* The document of each token, from 1: it sees the keys of its own alone, and with 0, padding,
     * none. [batch][seq] on the device; NULL: every sample is one document. key_segments, beside
     * it where keys are of another sequence: theirs, [batch][key_seq]. */
    const int32_t *segments, *key_segments;
    struct zinf_dropout
        dropout;     /* on the probabilities; element ((b*n_heads + h)*seq + i)*keys + j, or
                      * ((b*n_heads + h)*whole_seq + first_query + i)*whole_keys + first_key + j */
    const void *qkv; /* [batch*seq][(n_heads + 2 n_kv_heads) head_dim] */
    const void *kv;  /* [batch*key_seq][2 n_kv_heads head_dim] */
    void *out;       /* [batch*seq][n_heads head_dim]; read by backward */
    float *lse;      /* [batch][n_heads][seq]: log-sum-exp of the scores */
    /* backward only */
    const void *d_out;  /* as out */
    void *d_qkv, *d_kv; /* as qkv and kv, overwritten */
    /* As kv, but fp32, and added to, in place of d_kv: the gradients at keys and values that
     * queries of several calls see, in the order of the calls. NULL: d_kv. */
    float *d_kv_sums;
    float *d_bias; /* [batch][n_heads][distances], overwritten: of each sample by itself; or NULL */
};
static inline int64_t zinf_attention_keys(const struct zinf_attention *args)
{
    return args->key_seq ? args->key_seq : args->seq;
}
/* Tokens of the sequence that keys are of, where queries are of a part of one. */
static inline int64_t zinf_attention_whole_keys(const struct zinf_attention *args)
{
    return args->whole_keys ? args->whole_keys : args->whole_seq;
}
/* How many tokens query 0 stands behind key 0. */
static inline int64_t zinf_attention_ahead(const struct zinf_attention *args)
{
    return args->first_query - args->first_key;
}
static inline int64_t zinf_attention_distances(const struct zinf_attention *args)
{
    return args->seq + zinf_attention_keys(args) - 1;
}
#define ZINF_ATTENTION_MAX_SLOPES 256 /* heads whose slopes a GPU takes as a kernel's argument */

/* Of attention over all keys, from that over some (partial) and over others: a sum of both by their
 * share in the softmax, in fp32, one call after the other. The last call leaves the result and its
 * lse as attention over all of them does. */
struct zinf_attention_merge {
    enum zinf_dtype dtype;
    int64_t batch, seq, n_heads, head_dim;
    bool first, last;      /* nothing is in sum and lse yet; out is wanted */
    const void *part;      /* [batch*seq][n_heads head_dim], and its lse */
    const float *part_lse; /* [batch][n_heads][seq] */
    float *sum, *lse;      /* as part and its lse */
    void *out;             /* as part */
};

/* A number of each head's own, its sink, joins the softmax of every row and is dropped from it
 * (Xiao et al., arXiv 2309.17453): behind attention without it, out *= exp(lse - l), and lse
 * becomes l = log(exp(lse) + exp(sink)), with which attention's backward is that of the whole.
 * Backward: d_sinks[h] = - sum over rows of exp(sink - lse) out . d_out. */
struct zinf_sinks {
    enum zinf_dtype dtype;
    int64_t batch, seq, n_heads, head_dim; /* head_dim at most ZINF_SINKS_MAX_HEAD_DIM */
    const void *sinks;                     /* [n_heads] */
    void *out;                             /* [batch*seq][n_heads head_dim]; backward reads it */
    float *lse;                            /* [batch][n_heads][seq]; backward reads it */
    /* backward only */
    const void *d_out; /* as out */
    float *d_sinks;    /* [n_heads], overwritten */
};
#define ZINF_SINKS_MAX_HEAD_DIM 256

/* Columns of heads, from one layout of rows to another: y[r y_ld + h y_step + c] =
 * x[r x_ld + h x_step + c]. Without x they become 0. With an x_step of 0 all heads get the same
 * columns; with a y_step of 0 and several heads, y gets the sum over them, added in their order in
 * fp32 and rounded once. Where columns are scaled, which those of a sum are not, they are rounded
 * once and y may be x; else y is none of x's memory. */
struct zinf_heads {
    enum zinf_dtype dtype;
    int64_t rows, n_heads, cols; /* cols of a sum: at most ZINF_HEADS_MAX_SUM */
    const void *x;               /* NULL: zeros */
    int64_t x_ld, x_step;
    void *y;
    int64_t y_ld, y_step;
    float scale; /* of what is copied; 0: 1 */
};
#define ZINF_HEADS_MAX_SUM 256
static inline bool zinf_heads_scaled(const struct zinf_heads *args)
{
    return args->scale != 0.0f && args->scale != 1.0f;
}
static inline bool zinf_heads_sum(const struct zinf_heads *args)
{
    return args->n_heads > 1 && !args->y_step;
}

/* Keys and values of other sequences than the rows' own (cross-attention), each of which stays as
 * it was brought: a row sees all of its source, whose number stands in the place of its sequence's.
 */
struct zinf_cached_source {
    const int32_t *lengths; /* [n_sequences] on the device: slots in use, at least 1 where a row
                             * sees the source */
    int64_t rows;           /* that are brought now; 0: none */
    const int32_t *sequences, *slots; /* [rows] on the device: where each goes */
    const void *kv;                   /* [rows][2 n_kv_heads head_dim]: keys, then values */
};

/* Attention of new rows over what came before them in their sequences: row r is the token at
 * positions[r] of sequence sequences[r]. First the keys and values of all rows go into the cache,
 * then each row sees its sequence up to itself, or the last `window` positions of that. Position p
 * is in slot p % capacity: with a window the cache may be shorter than a sequence, but a call that
 * has n rows of one sequence needs window + n - 1 slots. Rows may come in any order. With a source
 * those of its rows go into the cache instead, qkv has the queries alone, and positions are not
 * read. What lies on a GPU is not looked at: sequences and positions must be what there are slots
 * for. */
struct zinf_attention_cached {
    enum zinf_dtype dtype; /* of qkv, cache and out */
    int64_t rows, n_heads, n_kv_heads, head_dim;
    int64_t n_sequences, capacity; /* slots of one sequence */
    int64_t window;                /* as in zinf_attention; 0: all */
    int64_t piece; /* a row sees no key in front of the last multiple of this; without a window; 0:
                    * all */
    float scale;
    float softcap;       /* scores become softcap tanh(score / softcap); 0: none */
    const float *slopes; /* [n_heads] in the caller's memory, read before the call
                          * returns: a score gets slopes[h] (key - query position)
                          * (Press et al., arXiv 2108.12409); NULL: none */
    /* As in zinf_attention: bias[h][key - query position + capacity - 1]. [n_heads][capacity] on
     * the device, without a window, a soft cap or slopes; NULL: none. */
    const float *bias;
    const struct zinf_cached_source *source; /* without a window, slopes or a bias; in the caller's
                                              * memory; NULL: none */
    const int32_t *sequences, *positions;    /* [rows] on the device */
    const void *qkv;                         /* [rows][(n_heads + 2 n_kv_heads) head_dim] */
    void *cache; /* [n_sequences][keys, values][n_kv_heads][capacity][head_dim] */
    void *out;   /* [rows][n_heads head_dim] */
    float *lse;  /* [rows][n_heads]: log-sum-exp of the scores; NULL: not wanted */
};

/* The first position that the row at `position` sees. */
#define zinf_cached_first(piece, window, position)                                                 \
    ((piece)                              ? (position) - (position) % (piece)                      \
     : (window) && (position) >= (window) ? (position) + 1 - (window)                              \
                                          : 0)

/* A bias of scores by how far a key is from its query, from a table of buckets (Raffel et al.,
 * arXiv 1910.10683): distances near 0 have a bucket each, those further away share one with their
 * neighbours. */
#define ZINF_DISTANCE_MAX_BUCKETS 128 /* what a GPU takes as a kernel's argument */

/* bias[h][j - i + n_queries - 1] = table[bucket][h] for queries i and keys j. A key n tokens before
 * its query is in the bucket b with starts[b] <= n < starts[b + 1], the last one without an end;
 * one behind it in bucket 0, or with both_ways in n_buckets + the bucket of that distance.
 * Backward sums over samples and over the distances of a bucket. */
struct zinf_distance_bias {
    enum zinf_dtype dtype; /* of the table */
    int64_t n_heads, n_queries, n_keys;
    bool both_ways;
    int n_buckets;         /* of one direction */
    const int32_t *starts; /* [n_buckets] in the caller's memory on every device, rising from 0,
                            * read before the call returns */
    const void *table;     /* [n_buckets, or twice as many][n_heads] */
    float *bias;           /* [n_heads][n_queries + n_keys - 1] */
    /* backward only */
    int64_t batch;
    const float *d_bias; /* [batch][n_heads][n_queries + n_keys - 1] */
    float *d_table;      /* as the table, overwritten */
};

static inline int64_t zinf_distances(const struct zinf_distance_bias *args)
{
    return args->n_queries + args->n_keys - 1;
}

#endif
