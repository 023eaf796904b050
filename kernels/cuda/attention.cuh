/*
 * attention: what the attention kernels share: where a head's rows lie, which keys a query sees,
 * what becomes of a score, and dropout of a probability. Formulas and names as in host_tiles.h.
 *
 * Kernels are compiled for three kinds of arguments, so that no score pays for what it has not:
 * attention_args, whose scores are scale q.k and whose samples are one document each, sloped_args
 * with a bias by distance, or several documents, and capped_args with a soft cap and perhaps those;
 * a fourth, relative_args, is of the plain kernels alone.
 */
#ifndef ZINF_CUDA_ATTENTION_CUH
#define ZINF_CUDA_ATTENTION_CUH

#include "kernels/cuda/philox.cuh"
#include "kernels/cuda/softcap.cuh"

struct attention_args {
    struct zinf_attention z; /* with a window of seq for none: every key is nearer than that */
    const float *delta;      /* backward: [batch][n_heads][seq] */
    dropout_rule rule;
    bool drops;
    static const int tiles_of_rows = 0; /* what the plain kernels need for them */
};

struct sloped_args : attention_args {
    float slopes[ZINF_ATTENTION_MAX_SLOPES];
};
struct capped_args : sloped_args {
    float inverse_cap;
};

/* With relative positions: at[n + seq - 1] is the row of a key that is n tokens before its query.
 */
struct relative_args : attention_args {
    struct zinf_relative r;
    const int32_t *at; /* [2 seq - 1] */
    static const int tiles_of_rows = 2;
};

static inline attention_args attention_args_of(const struct zinf_attention *z, const float *delta)
{
    attention_args args = {*z, delta, dropout_rule_of(z->dropout), z->dropout.p > 0.0f};
    if (!z->window || z->window > z->seq)
        args.z.window = z->seq;
    return args;
}

static inline sloped_args sloped_args_of(const struct zinf_attention *z, const float *delta)
{
    sloped_args args = {};
    static_cast<attention_args &>(args) = attention_args_of(z, delta);
    if (z->slopes)
        memcpy(args.slopes, z->slopes, (size_t)z->n_heads * sizeof *args.slopes);
    return args;
}

static inline capped_args capped_args_of(const struct zinf_attention *z, const float *delta)
{
    capped_args args = {};
    static_cast<sloped_args &>(args) = sloped_args_of(z, delta);
    args.inverse_cap = 1.0f / z->softcap;
    return args;
}

static inline relative_args relative_args_of(const struct zinf_attention *z, const float *delta,
                                             const int32_t *at)
{
    relative_args args = {};
    static_cast<attention_args &>(args) = attention_args_of(z, delta);
    args.r = *z->relative;
    args.at = at;
    return args;
}

/* Does something with args of the kind that a call needs. */
#define BY_SHAPE(z, delta, ...)                                                                    \
    do {                                                                                           \
        if ((z)->softcap != 0.0f) {                                                                \
            const capped_args args = capped_args_of(z, delta);                                     \
            __VA_ARGS__;                                                                           \
        } else if ((z)->slopes || (z)->segments) {                                                 \
            const sloped_args args = sloped_args_of(z, delta);                                     \
            __VA_ARGS__;                                                                           \
        } else {                                                                                   \
            const attention_args args = attention_args_of(z, delta);                               \
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
DEVICE tile_bias bias_of(const sloped_args &a, int64_t head, int64_t i, int64_t j)
{
    tile_bias bias = {a.slopes[head], (float)(int)(j - i)};
    return bias;
}

/* The score of x = scale q.k, at so many keys less rows in the tile, before any mask; slope: its
 * derivative by x. */
DEVICE float score_of(const attention_args &, tile_bias, int, float x, float &slope)
{
    slope = 1.0f;
    return x;
}
DEVICE float score_of(const sloped_args &, tile_bias bias, int key_less_row, float x, float &slope)
{
    slope = 1.0f;
    return fused(bias.slope, bias.distance + (float)key_less_row, x);
}
DEVICE float score_of(const capped_args &a, tile_bias bias, int key_less_row, float x, float &slope)
{
    x = softcap_of(x, a.z.softcap, a.inverse_cap, slope);
    return fused(bias.slope, bias.distance + (float)key_less_row, x);
}

/* Rows of one head: row t begins stride elements after row t - 1. */
template <class T> struct head_rows {
    T *base;
    int64_t stride;
};

/* Part number head of batch b, counted in heads along a row of qkv: queries, keys, values. */
template <class T>
DEVICE head_rows<T> qkv_rows(const struct zinf_attention &z, const void *qkv, int64_t b,
                             int64_t head)
{
    int64_t stride = (z.n_heads + 2 * z.n_kv_heads) * z.head_dim;
    head_rows<T> rows = {(T *)qkv + b * z.seq * stride + head * z.head_dim, stride};
    return rows;
}

template <class T>
DEVICE head_rows<T> out_rows(const struct zinf_attention &z, const void *out, int64_t b,
                             int64_t head)
{
    int64_t stride = z.n_heads * z.head_dim;
    head_rows<T> rows = {(T *)out + b * z.seq * stride + head * z.head_dim, stride};
    return rows;
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

DEVICE bool sees(const struct zinf_attention &z, int64_t b, int64_t query, int64_t key)
{
    return query < z.seq && key >= 0 && key < keys_of(z) && (!z.causal || key <= query) &&
           query - key < z.window && (!z.segments || same_document(z, b, query, key));
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

/* By a row's sum of probabilities; 0 where it saw no key: a sum is at least 1 else, or NaN. */
DEVICE float quotient_of(float x, float sum)
{
    return sum == 0.0f ? 0.0f : x / sum;
}
DEVICE float log_sum_of(const struct zinf_attention &z, float max, float sum)
{
    const float none = z.partial ? -INFINITY : 0.0f;
    return sum == 0.0f ? none : max + logf(sum);
}

/* The first key that row i sees, and one past the last row that sees key j. */
DEVICE int64_t first_key(const struct zinf_attention &z, int64_t i)
{
    return i < z.window ? 0 : i + 1 - z.window;
}
DEVICE int64_t end_of_rows(const struct zinf_attention &z, int64_t j)
{
    return z.seq - j < z.window ? z.seq : j + z.window;
}

/* The place of row i of head h in lse, delta and (times the keys) in the dropout stream. */
DEVICE int64_t row_index(const struct zinf_attention &z, int64_t b, int64_t head, int64_t i)
{
    return (b * z.n_heads + head) * z.seq + i;
}

/* Factors of keys j .. j + N - 1 of row i. */
template <int N>
DEVICE void probability_factors(const attention_args &a, int64_t b, int64_t head, int64_t i,
                                int64_t j, float (&factors)[N])
{
    uint64_t first = (uint64_t)row_index(a.z, b, head, i) * (uint64_t)keys_of(a.z) + (uint64_t)j;
    dropout_factors(factors, a.rule, first);
}

/* exp(x) by the GPU's base-2 exponential; log2(e) is folded in. */
DEVICE float exp_of(float x)
{
    return exp2f(x * 1.44269504f);
}

#endif
