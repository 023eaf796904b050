/*
 * attention: what the attention kernels share: where a head's rows lie, which keys a query sees,
 * what becomes of a score, and dropout of a probability. Formulas and names as in host_tiles.h.
 *
 * Kernels are compiled for three kinds of arguments, so that no score pays for what it has not:
 * attention_args, whose scores are scale q.k and whose samples are one document each; shaped_args
 * with a bias by distance, several documents or keys that are not the queries' own; and capped_args
 * with a soft cap and perhaps those. Two more, with relative positions, are of the plain kernels
 * alone: relative_args, whose keys are the queries' own, and relative_part_args, whose keys are in
 * kv.
 */
#ifndef ZINF_CUDA_ATTENTION_CUH
#define ZINF_CUDA_ATTENTION_CUH

#include "kernels/cuda/philox.cuh"
#include "kernels/cuda/softcap.cuh"

struct attention_args {
    struct zinf_attention z; /* with a window for none, too: every key is nearer than that */
    const float *delta;      /* backward: [batch][n_heads][seq] */
    dropout_rule rule;
    bool drops;
    static const int tiles_of_rows = 0; /* what the plain kernels need for them */
};

/* Keys of several calls (zinf_attention_running). numbers: a row's base and its lanes' sums; the
 * rest of a row is not used, and no part of a tile, since sums go on wherever a call ends. */
struct running_rows {
    float *sums, *numbers;
    bool resumes, leaves; /* it has rows' sums of the calls before; they are for the next one */
};

/* Where queries and keys are that may lie apart. kv, d_kv and key_segments are set for keys that
 * are the queries' own, too. */
struct part_args : attention_args {
    int64_t keys;         /* of a sample */
    int64_t heads_before; /* the keys of a row: the queries' heads; 0: rows have no queries */
    int64_t ahead;        /* tokens that query 0 stands behind key 0 */
    /* Dropout counts rows and keys of a sequence as long as this, from these on. */
    int64_t drop_rows, drop_keys, drop_row, drop_key;
    running_rows running;
};
struct shaped_args : part_args {
    float slopes[ZINF_ATTENTION_MAX_SLOPES];
};
struct capped_args : shaped_args {
    float inverse_cap;
};

/* With relative positions: at[i - j + keys - 1] is the row of the table for query i and key j of a
 * call with so many keys. */
template <class BASE> struct relative_of : BASE {
    struct zinf_relative r;
    const int32_t *at; /* [seq + keys - 1] */
    static const int tiles_of_rows = 2;
};
typedef relative_of<attention_args> relative_args;
typedef relative_of<part_args> relative_part_args;

static inline attention_args attention_args_of(const struct zinf_attention *z, const float *delta)
{
    attention_args args = {*z, delta, dropout_rule_of(z->dropout), z->dropout.p > 0.0f};
    const int64_t ahead = zinf_attention_ahead(z), all = z->seq + (ahead > 0 ? ahead : 0);
    if (!z->window || z->window > all)
        args.z.window = all;
    return args;
}

static inline part_args part_args_of(const struct zinf_attention *z, const float *delta)
{
    part_args args = {};
    static_cast<attention_args &>(args) = attention_args_of(z, delta);
    args.keys = zinf_attention_keys(z);
    args.heads_before = z->key_seq ? 0 : z->n_heads;
    args.ahead = zinf_attention_ahead(z);
    args.drop_rows = z->whole_seq ? z->whole_seq : z->seq;
    args.drop_keys = z->whole_seq ? zinf_attention_whole_keys(z) : args.keys;
    args.drop_row = z->whole_seq ? z->first_query : 0;
    args.drop_key = z->whole_seq ? z->first_key : 0;
    if (z->running) {
        const running_rows running = {z->running->sums, z->running->numbers, !z->running->first,
                                      !z->running->last};
        args.running = running;
    }
    if (!z->key_seq) {
        args.z.kv = z->qkv;
        args.z.d_kv = z->d_qkv;
        args.z.key_segments = z->segments;
    }
    return args;
}

static inline shaped_args shaped_args_of(const struct zinf_attention *z, const float *delta)
{
    shaped_args args = {};
    static_cast<part_args &>(args) = part_args_of(z, delta);
    if (z->slopes)
        memcpy(args.slopes, z->slopes, (size_t)z->n_heads * sizeof *args.slopes);
    return args;
}

static inline capped_args capped_args_of(const struct zinf_attention *z, const float *delta)
{
    capped_args args = {};
    static_cast<shaped_args &>(args) = shaped_args_of(z, delta);
    args.inverse_cap = 1.0f / z->softcap;
    return args;
}

template <class BASE>
static inline relative_of<BASE> relative_args_of(const BASE &base, const int32_t *at)
{
    relative_of<BASE> args = {};
    static_cast<BASE &>(args) = base;
    args.r = *base.z.relative;
    args.at = at;
    return args;
}

/* Does something with args of the kind that a call needs. */
#define BY_SHAPE(z, delta, ...)                                                                    \
    do {                                                                                           \
        if ((z)->softcap != 0.0f) {                                                                \
            const capped_args args = capped_args_of(z, delta);                                     \
            __VA_ARGS__;                                                                           \
        } else if ((z)->slopes || (z)->segments || (z)->bias || (z)->key_seq) {                    \
            const shaped_args args = shaped_args_of(z, delta);                                     \
            __VA_ARGS__;                                                                           \
        } else {                                                                                   \
            const attention_args args = attention_args_of(z, delta);                               \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    } while (0)

/* The same for calls with relative positions. */
#define BY_PLACE(z, delta, at, ...)                                                                \
    do {                                                                                           \
        if ((z)->key_seq) {                                                                        \
            const relative_part_args args = relative_args_of(part_args_of(z, delta), at);          \
            __VA_ARGS__;                                                                           \
        } else {                                                                                   \
            const relative_args args = relative_args_of(attention_args_of(z, delta), at);          \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    } while (0)

/* A tile's bias by distance: slope times (distance + key - row), both counted in the tile. */
struct tile_bias {
    float slope, distance;
};
DEVICE tile_bias bias_of(const attention_args &, int64_t, int64_t, int64_t)
{
    tile_bias none = {0.0f, 0.0f};
    return none;
}
/* 0 without slopes, where heads may be more than there is room for: then all places are 0. */
DEVICE float slope_of(const shaped_args &a, int64_t head)
{
    return a.slopes[(uint32_t)head % ZINF_ATTENTION_MAX_SLOPES];
}
DEVICE tile_bias bias_of(const shaped_args &a, int64_t head, int64_t i, int64_t j)
{
    tile_bias bias = {slope_of(a, head), (float)(int)(j - i - a.ahead)};
    return bias;
}

/* The score of x = scale q.k, at so many keys less rows in the tile, before any mask; slope: its
 * derivative by x. */
DEVICE float score_of(const attention_args &, tile_bias, int, float x, float &slope)
{
    slope = 1.0f;
    return x;
}
DEVICE float score_of(const shaped_args &, tile_bias bias, int key_less_row, float x, float &slope)
{
    slope = 1.0f;
    return fused(bias.slope, bias.distance + (float)key_less_row, x);
}
DEVICE float score_of(const capped_args &a, tile_bias bias, int key_less_row, float x, float &slope)
{
    x = softcap_of(x, a.z.softcap, a.inverse_cap, slope);
    return fused(bias.slope, bias.distance + (float)key_less_row, x);
}

/* Keys of a sample, by the kind of arguments: fewer registers where they are known to be the
 * queries' own. */
DEVICE int64_t n_keys(const attention_args &a)
{
    return a.z.seq;
}
DEVICE int64_t n_keys(const part_args &a)
{
    return a.keys;
}
/* So are the places of both: query i is where key i + ahead is. */
DEVICE int64_t ahead_of(const attention_args &)
{
    return 0;
}
DEVICE int64_t ahead_of(const part_args &a)
{
    return a.ahead;
}

/* Rows of one head: row t begins stride elements after row t - 1. */
template <class T> struct head_rows {
    T *base;
    int64_t stride, rows;
};

/* Part number `part` of `parts` along a row, counted in heads, of sample b. */
template <class T>
DEVICE head_rows<T> part_rows(const struct zinf_attention &z, const void *base, int64_t b,
                              int64_t rows, int64_t parts, int64_t part)
{
    const int64_t stride = parts * z.head_dim;
    head_rows<T> head = {(T *)base + b * rows * stride + part * z.head_dim, stride, rows};
    return head;
}

/* A head's queries in qkv or d_qkv. */
template <class T>
DEVICE head_rows<T> query_rows(const attention_args &a, const void *qkv, int64_t b, int64_t head)
{
    return part_rows<T>(a.z, qkv, b, a.z.seq, a.z.n_heads + 2 * a.z.n_kv_heads, head);
}
template <class T>
DEVICE head_rows<T> query_rows(const part_args &a, const void *qkv, int64_t b, int64_t head)
{
    const int64_t others = a.heads_before ? 2 * a.z.n_kv_heads : 0;
    return part_rows<T>(a.z, qkv, b, a.z.seq, a.z.n_heads + others, head);
}

/* Its keys in what keys_in or d_keys_in gives, and as number n_kv_heads + kv its values. */
template <class T>
DEVICE head_rows<T> key_rows(const attention_args &a, const void *keys, int64_t b, int64_t kv)
{
    return query_rows<T>(a, keys, b, a.z.n_heads + kv);
}
template <class T>
DEVICE head_rows<T> key_rows(const part_args &a, const void *keys, int64_t b, int64_t kv)
{
    const int64_t parts = a.heads_before + 2 * a.z.n_kv_heads;
    return part_rows<T>(a.z, keys, b, a.keys, parts, a.heads_before + kv);
}
DEVICE const void *keys_in(const attention_args &a)
{
    return a.z.qkv;
}
DEVICE const void *keys_in(const part_args &a)
{
    return a.z.kv;
}
DEVICE void *d_keys_in(const attention_args &a)
{
    return a.z.d_qkv;
}
DEVICE void *d_keys_in(const part_args &a)
{
    return a.z.d_kv;
}

template <class T>
DEVICE head_rows<T> out_rows(const struct zinf_attention &z, const void *out, int64_t b,
                             int64_t head)
{
    return part_rows<T>(z, out, b, z.seq, z.n_heads, head);
}

DEVICE int64_t kv_head_of(const struct zinf_attention &z, int64_t head)
{
    return head / (z.n_heads / z.n_kv_heads);
}

/* As zinf_attention_keys. */
DEVICE int64_t keys_of(const struct zinf_attention &z)
{
    return z.key_seq ? z.key_seq : z.seq;
}

/* Whether a query and a key of sample b are of one document, which is no padding. */
DEVICE bool same_document(const struct zinf_attention &z, int64_t b, int64_t query, int64_t key)
{
    const int32_t own = z.segments[b * z.seq + query];
    const int32_t *others = z.key_seq ? z.key_segments + b * z.key_seq : z.segments + b * z.seq;
    return own > 0 && own == others[key];
}

template <class ARGS> DEVICE bool sees(const ARGS &a, int64_t b, int64_t query, int64_t key)
{
    const struct zinf_attention &z = a.z;
    const int64_t up_to = query + ahead_of(a);
    return query < z.seq && key >= 0 && key < keys_of(z) && (!z.causal || key <= up_to) &&
           up_to - key < z.window && (!z.segments || same_document(z, b, query, key));
}

/* What a table adds to a score by distance. */
DEVICE float distance_bias_of(const struct zinf_attention &z, int64_t head, int64_t query,
                              int64_t key)
{
    const int64_t keys = keys_of(z);
    if (!z.bias || query >= z.seq || key < 0 || key >= keys)
        return 0.0f;
    return z.bias[head * (z.seq + keys - 1) + key - query + z.seq - 1];
}

/* By the kind of arguments: what is not there costs nothing. */
DEVICE running_rows running_of(const attention_args &)
{
    const running_rows none = {NULL, NULL, false, false};
    return none;
}
DEVICE running_rows running_of(const part_args &a)
{
    return a.running;
}

/* By a row's sum of probabilities; 0 where it saw no key: a sum is at least 1 else, or NaN. */
DEVICE float quotient_of(float x, float sum)
{
    return sum == 0.0f ? 0.0f : x / sum;
}
DEVICE float log_sum_of(float max, float sum)
{
    return sum == 0.0f ? 0.0f : max + logf(sum);
}

/* The first key that row i sees, and one past the last that rows before `end` see. */
template <class ARGS> DEVICE int64_t first_key(const ARGS &a, int64_t i)
{
    const int64_t up_to = i + ahead_of(a);
    return up_to < a.z.window ? 0 : up_to + 1 - a.z.window;
}
template <class ARGS> DEVICE int64_t end_of_keys(const ARGS &a, int64_t end)
{
    const int64_t all = n_keys(a), up_to = end + ahead_of(a);
    return a.z.causal && up_to < all ? up_to : all;
}

/* The first row that sees key j, and one past the last. */
template <class ARGS> DEVICE int64_t first_row(const ARGS &a, int64_t j)
{
    const int64_t row = j - ahead_of(a);
    return a.z.causal && row > 0 ? row : 0;
}
template <class ARGS> DEVICE int64_t end_of_rows(const ARGS &a, int64_t j)
{
    const int64_t row = j - ahead_of(a);
    return a.z.seq - row < a.z.window ? a.z.seq : row + a.z.window;
}

/* The place of row i of head h in lse and delta. */
DEVICE int64_t row_index(const struct zinf_attention &z, int64_t b, int64_t head, int64_t i)
{
    return (b * z.n_heads + head) * z.seq + i;
}

/* Where the running numbers of a row are, and its sums of values. */
DEVICE float *numbers_of(const running_rows &running, const struct zinf_attention &z, int64_t b,
                         int64_t head, int64_t i)
{
    return running.numbers + row_index(z, b, head, i) * ZINF_ATTENTION_NUMBERS;
}
DEVICE float *sums_of(const running_rows &running, const struct zinf_attention &z, int64_t b,
                      int64_t head, int64_t i)
{
    return running.sums + ((b * z.seq + i) * z.n_heads + head) * z.head_dim;
}

/* That of a probability in the dropout stream. */
DEVICE uint64_t dropout_place(const attention_args &a, int64_t b, int64_t head, int64_t i,
                              int64_t j)
{
    return (uint64_t)(row_index(a.z, b, head, i) * a.z.seq + j);
}
DEVICE uint64_t dropout_place(const part_args &a, int64_t b, int64_t head, int64_t i, int64_t j)
{
    const int64_t row = (b * a.z.n_heads + head) * a.drop_rows + a.drop_row + i;
    return (uint64_t)(row * a.drop_keys + a.drop_key + j);
}

/* Factors of keys j .. j + N - 1 of row i. */
template <int N, class ARGS>
DEVICE void probability_factors(const ARGS &a, int64_t b, int64_t head, int64_t i, int64_t j,
                                float (&factors)[N])
{
    dropout_factors(factors, a.rule, dropout_place(a, b, head, i, j));
}

/* exp(x) by the GPU's base-2 exponential; log2(e) is folded in. */
DEVICE float exp_of(float x)
{
    return exp2f(x * 1.44269504f);
}

#endif
