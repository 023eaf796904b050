/*
 * attention: arguments of attention (over whole sequences, over cached ones, with a bias by
 * distance) and of dropout, which other operations share. A part of kernels.h, whose rules for
 * memory, threads and errors hold.
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
    uint32_t site; /* the layer and the place in it; unique in the model */
    uint64_t element_first;
};

/* The terms that disentangled attention adds to the score of query i and key j (He et al., arXiv
 * 2006.03654): scale (q_i . keys[t] + k_j . queries[t]), where row t stands for their distance. For
 * a key n tokens before its query t = half + b, for one n tokens behind it t = half - b, limited to
 * [0, 2 half - 1]; b, at most half, is the last one with starts[b] <= n. Where queries and keys are
 * parts of one sequence n goes by their places in it: n = (first_query + i) - (first_key + j).
 * Every call has the whole table. */
struct zinf_relative {
    int64_t half; /* half of the rows, at most ZINF_RELATIVE_MAX_HALF */
    /* [half + 1] in the caller's memory on every device, from 0, not decreasing; read before the
     * call returns */
    const int32_t *starts;
    int64_t ld; /* elements from row to row of all these arrays */
    /* [2 half][n_heads head_dim] in the type of qkv; NULL: the term is left out */
    const void *queries, *keys;
    /* backward: sums over samples, overwritten, also the rows that no distance has, with 0; NULL
     * where queries or keys is. With keys of several calls the last call alone writes them, and
     * rounds them once: sums over all calls, which are in zinf_attention_running until then. */
    void *d_queries, *d_keys;
};
#define ZINF_RELATIVE_MAX_HALF 512 /* as many as fit into a GPU kernel's arguments */

/* What attention over keys of several calls (which follow each other) has found so far. A row's
 * sums go from tile to tile of ZINF_ATTENTION_TILE keys of the whole sequence, and go on within a
 * tile that a call has cut. So out and lse have the bits that one call gives: of the host, wherever
 * keys are cut; of a GPU, where that is between tiles. Backward, with sums of its own and neither
 * part nor numbers: the gradients of queries, which are rounded once; they have the bits of one
 * call where keys are cut between tiles, but not with relative positions, whose terms each call
 * adds behind those of its keys. What a call adds to sums depends on its arguments alone, so that
 * the same calls in the same order leave the same bits. */
struct zinf_attention_running {
    /* first: nothing is there yet; last: out and lse, or d_qkv, are written, by no other */
    bool first, last;
    /* [batch*seq][n_heads head_dim]: of values, not yet divided; backward: of keys, not yet scaled
     */
    float *sums;
    float *part;    /* the same within a tile; NULL: calls are cut between tiles alone */
    float *numbers; /* [batch][n_heads][seq][ZINF_ATTENTION_NUMBERS] of the device's own */
    /* Backward with relative positions: [zinf_relative_sums] floats of the device's own, from which
     * the last call makes d_queries and d_keys. The first call overwrites all that later ones read.
     */
    float *rows;
};
#define ZINF_ATTENTION_TILE 64
#define ZINF_ATTENTION_NUMBERS 18

/* Softmax attention that never stores T x T numbers (Dao et al., arXiv 2205.14135). A row of qkv
 * has [n_heads][head_dim] queries, then [n_kv_heads][head_dim] keys, then values. Rows are b * seq
 * + t. The score of query i and key j of head h is scale q . k; with a softcap, softcap tanh(that /
 * softcap); with slopes, slopes[h] (j - i) is added; then it is masked. A row that sees no key has
 * an out and an lse of 0 and no gradient. */
struct zinf_attention {
    enum zinf_dtype dtype;
    int64_t batch, seq, n_heads, n_kv_heads, head_dim;
    /* Number of keys of a sample if keys and values are in kv, and qkv has queries alone; 0: they
     * are in qkv. Keys are of another sequence (cross-attention), or of the same sequence in parts:
     * query 0 is then token first_query, key 0 is token first_key, and causal, window, slopes and
     * relative positions go by these positions. */
    int64_t key_seq;
    int64_t first_query, first_key;
    /* Length of a sequence that comes in parts, for dropout, which counts as for the whole
     * sequence; 0: it is not in parts. Rows and keys beyond it are ignored. whole_keys: the same
     * for keys of another sequence; 0: they are of the same sequence. */
    int64_t whole_seq, whole_keys;
    /* In the caller's memory; NULL: these are all keys. With keys in kv alone. */
    const struct zinf_attention_running *running;
    bool causal;
    /* a query sees itself and window - 1 keys before it (Jiang et al., arXiv 2310.06825); 0: all;
     * causal only */
    int64_t window;
    float scale;
    float softcap; /* bound of the scores (Gemma Team, arXiv 2408.00118); 0: none */
    /* ALiBi (Press et al., arXiv 2108.12409): [n_heads], at most ZINF_ATTENTION_MAX_SLOPES, in the
     * caller's memory on every device; read before the call returns; NULL: none */
    const float *slopes;
    /* A bias of scores by distance (Raffel et al., arXiv 1910.10683): bias[h][j - i + seq - 1].
     * [n_heads][zinf_attention_distances] on the device; NULL: none. */
    const float *bias;
    /* In the caller's memory; NULL: none. Only without causal, with n_kv_heads = n_heads, and
     * without window, softcap, slopes, bias and keys of another sequence: keys in kv are of the
     * same one, with whole_seq and without whole_keys. */
    const struct zinf_relative *relative;
    /* The document of each token, from 1. A token sees only keys of its own document, and none if
     * it is 0 (padding). [batch][seq] on the device; NULL: a sample is one document. key_segments
     * [batch][key_seq]: those of keys of another sequence. */
    const int32_t *segments, *key_segments;
    struct zinf_dropout
        dropout;     /* on the probabilities; element ((b*n_heads + h)*seq + i)*keys + j, or
                      * ((b*n_heads + h)*whole_seq + first_query + i)*whole_keys + first_key + j */
    const void *qkv; /* [batch*seq][(n_heads + 2 n_kv_heads) head_dim] */
    const void *kv;  /* [batch*key_seq][2 n_kv_heads head_dim] */
    void *out;       /* [batch*seq][n_heads head_dim]; backward reads it */
    float *lse;      /* [batch][n_heads][seq]: log-sum-exp of the scores */
    /* backward only */
    const void *d_out;  /* as out */
    void *d_qkv, *d_kv; /* as qkv and kv, overwritten */
    /* Like kv, but fp32 and added to, instead of d_kv: gradients of keys and values that queries of
     * several calls see, in the order of the calls. NULL: d_kv is used. */
    float *d_kv_sums;
    float *d_bias; /* [batch][n_heads][distances], of each sample, overwritten; or NULL */
};
static inline int64_t zinf_attention_keys(const struct zinf_attention *args)
{
    return args->key_seq ? args->key_seq : args->seq;
}
/* Length of the keys' sequence, where queries are a part of a sequence. */
static inline int64_t zinf_attention_whole_keys(const struct zinf_attention *args)
{
    return args->whole_keys ? args->whole_keys : args->whole_seq;
}
/* By how many tokens query 0 is behind key 0. */
static inline int64_t zinf_attention_ahead(const struct zinf_attention *args)
{
    return args->first_query - args->first_key;
}
static inline int64_t zinf_attention_distances(const struct zinf_attention *args)
{
    return args->seq + zinf_attention_keys(args) - 1;
}
/* Floats of zinf_attention_running.rows: [keys, queries][2 half][n_heads head_dim]. */
static inline uint64_t zinf_relative_sums(const struct zinf_attention *args)
{
    return 4 * (uint64_t)(args->relative->half * args->n_heads * args->head_dim);
}
#define ZINF_ATTENTION_MAX_SLOPES 256 /* as many as fit into a GPU kernel's arguments */

/* Each head's sink is a number that takes part in the softmax of every row and is then dropped
 * (Xiao et al., arXiv 2309.17453). Run behind attention without it: out *= exp(lse - l), and lse
 * becomes l = log(exp(lse) + exp(sink)), with which attention's backward is right. Backward:
 * d_sinks[h] = - sum over rows of exp(sink - lse) out . d_out. */
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

/* Copies columns of heads between two layouts of rows: y[r y_ld + h y_step + c] = x[r x_ld + h
 * x_step + c]. Without x, y becomes 0. With x_step 0 all heads get the same columns; with y_step 0
 * and several heads y gets their sum, added in order in fp32 and rounded once. Scaled columns
 * (never sums) are rounded once, and y may be x; otherwise y must not overlap x. */
struct zinf_heads {
    enum zinf_dtype dtype;
    int64_t rows, n_heads, cols; /* cols of a sum: at most ZINF_HEADS_MAX_SUM */
    const void *x;               /* NULL: zeros */
    int64_t x_ld, x_step;
    void *y;
    int64_t y_ld, y_step;
    float scale; /* factor of copied columns; 0 means 1 */
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

/* Cached keys and values of other sequences (cross-attention). A row sees all of its source, whose
 * number is given instead of its sequence's. */
struct zinf_cached_source {
    /* [n_sequences] on the device: slots in use, at least 1 if a row sees the source */
    const int32_t *lengths;
    int64_t rows;                     /* new rows of sources; 0: none */
    const int32_t *sequences, *slots; /* [rows] on the device: the place of each */
    const void *kv;                   /* [rows][2 n_kv_heads head_dim]: keys, then values */
};

/* Attention of new rows over the earlier rows of their sequences: row r is the token at
 * positions[r] of sequence sequences[r]. First the keys and values of all rows are put into the
 * cache. Then each row sees its sequence up to itself, or its last `window` positions. Position p
 * is in slot p % capacity. With a window the cache may be shorter than a sequence, but a call with
 * n rows of one sequence needs window + n - 1 slots. Rows may be in any order. With a source, the
 * source's rows are put into the cache instead, qkv has queries alone, and positions are not read.
 * On a GPU, sequences and positions are not checked: they must fit the cache. */
struct zinf_attention_cached {
    enum zinf_dtype dtype; /* of qkv, cache and out */
    int64_t rows, n_heads, n_kv_heads, head_dim;
    int64_t n_sequences, capacity; /* slots of a sequence */
    int64_t window;                /* as in zinf_attention; 0: all */
    /* a row sees no key before the last multiple of this; not with a window; 0: sees all */
    int64_t piece;
    float scale;
    float softcap; /* 0: none; as in zinf_attention */
    /* [n_heads] in the caller's memory, read before the call returns; as in zinf_attention; NULL:
     * none */
    const float *slopes;
    /* As in zinf_attention, [n_heads][capacity] on the device: bias[h][key - query position +
     * capacity - 1]. Not with a window, softcap or slopes; NULL: none. */
    const float *bias;
    /* in the caller's memory; not with window, slopes or bias; NULL: none */
    const struct zinf_cached_source *source;
    const int32_t *sequences, *positions; /* [rows] on the device */
    const void *qkv;                      /* [rows][(n_heads + 2 n_kv_heads) head_dim] */
    void *cache; /* [n_sequences][keys, values][n_kv_heads][capacity][head_dim] */
    void *out;   /* [rows][n_heads head_dim] */
    float *lse;  /* [rows][n_heads]: log-sum-exp of the scores; or NULL */
};

/* The first position that the row at `position` sees. */
#define zinf_cached_first(piece, window, position)                                                 \
    ((piece)                              ? (position) - (position) % (piece)                      \
     : (window) && (position) >= (window) ? (position) + 1 - (window)                              \
                                          : 0)

/* A bias of scores by the distance of key and query, from a table of buckets (Raffel et al., arXiv
 * 1910.10683). Small distances have a bucket each, larger ones share them. */
#define ZINF_DISTANCE_MAX_BUCKETS 128 /* as many as fit into a GPU kernel's arguments */

/* bias[h][j - i + n_queries - 1] = table[bucket][h] for queries i and keys j. For a key n tokens
 * before its query, bucket b has starts[b] <= n < starts[b + 1]; the last bucket has no end. A key
 * behind its query is in bucket 0, or, with both_ways, in n_buckets + the bucket of the distance.
 * Backward sums over samples and over the distances of a bucket. */
struct zinf_distance_bias {
    enum zinf_dtype dtype; /* of the table */
    int64_t n_heads, n_queries, n_keys;
    bool both_ways;
    int n_buckets; /* for one direction */
    /* [n_buckets] in the caller's memory on every device, increasing from 0; read before the call
     * returns */
    const int32_t *starts;
    const void *table; /* [n_buckets, or 2 n_buckets][n_heads] */
    float *bias;       /* [n_heads][n_queries + n_keys - 1] */
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
