/*
 * cases: each operation of a device's table in a shape of the caller's, on both devices of a twin,
 * with the bounds that differences have. Where an operation may work in place, or does what two
 * others do after each other, a case also sees that the GPU's bits are the same. `zinf doctor` and
 * the tests of the CUDA device choose the shapes.
 */
#ifndef ZINF_CLI_CASES_H
#define ZINF_CLI_CASES_H

#include "cli/doctor/twin.h"

/* ---- cases_numbers.c ---- */

void case_convert(struct twin *t, enum zinf_dtype to, enum zinf_dtype from, size_t n, size_t shift);
void case_add(struct twin *t, size_t n, size_t shift);
/* And dropout; with counters that begin anywhere in a block of four, and far on. */
void case_residual(struct twin *t, enum zinf_dtype dtype, size_t n, float p, size_t shift);
void case_activation(struct twin *t, enum zinf_activation kind, enum zinf_dtype dtype, size_t n,
                     size_t shift);
void case_activation_sums(struct twin *t, enum zinf_activation kind, enum zinf_dtype dtype,
                          int64_t rows, int64_t cols);
/* a: kind, dtype, rows, cols. */
void case_gated(struct twin *t, struct zinf_gated a, size_t shift);
void case_xielu(struct twin *t, enum zinf_dtype dtype, int64_t rows, int64_t cols, size_t shift);
void case_column_sum(struct twin *t, enum zinf_dtype dtype, int64_t rows, int64_t cols,
                     size_t shift);
void case_noise(struct twin *t, enum zinf_dtype dtype, size_t n, size_t shift);
void case_softcap(struct twin *t, size_t n, size_t shift);

/* ---- cases_rows.c ---- */

struct norm_shape {
    int64_t rows, cols, heads, ld; /* heads, ld 0: plain */
    float w_add;
    bool without_w;
};
void case_norm(struct twin *t, enum zinf_norm_kind kind, enum zinf_dtype dtype,
               struct norm_shape shape, float beta_dx);
void case_residual_norm(struct twin *t, enum zinf_norm_kind kind, enum zinf_dtype dtype,
                        int64_t rows, int64_t cols, float drop);
/* ids_apart: the ids are not at a multiple of 16 bytes. */
void case_embedding(struct twin *t, enum zinf_dtype dtype, int64_t rows, int64_t cols, float scale,
                    bool ids_apart);
struct rope_shape {
    int64_t rows, n_heads, head_dim, rotary_dims, gap;
};
/* variant: bits for interleaved pairs, backward, not aligned. */
void case_rope(struct twin *t, struct rope_shape shape, int variant, enum zinf_dtype dtype);
void case_unfold(struct twin *t, enum zinf_dtype dtype, bool add);
/* a: all but arrays. */
void case_heads(struct twin *t, struct zinf_heads a, bool zeros);

/* ---- cases_loss.c ---- */

struct loss_shape {
    int64_t rows, vocabulary, tile;
    float offset; /* how far apart logits are */
    float softcap;
    enum zinf_dtype d_dtype;
    bool more;            /* labels are smoothed, there is a z-loss, and rows are weighed */
    bool largest;         /* with more: and a loss of the largest logit */
    int64_t masked_first; /* not 0: every third logit is -infinity, and so many of row 1 */
    bool one_by_one;      /* the host's compiler was kept from adding in several lanes at once */
};
void case_loss(struct twin *t, const struct loss_shape *shape);
void case_squared_error(struct twin *t, size_t n);
void case_preference(struct twin *t, enum zinf_preference_kind kind, size_t pairs, size_t seq);

/* ---- cases_attention.c ---- */

struct attention_shape {
    int64_t batch, seq, n_heads, n_kv_heads, head_dim;
    bool causal;
    float dropout;
    int64_t window;
    float softcap; /* scores are then 3 times as large, so that it bends them */
    bool sloped;
};
/* And what few cases have. */
struct attention_special {
    struct attention_shape shape;
    int document;    /* tokens of most documents; 0: samples are not packed */
    int64_t key_seq; /* as in zinf_attention */
    bool biased;
    float steep; /* scores are so many times as large; 0: they are not */
};
/* Where queries and keys are in a sequence that comes in parts; summed: gradients of keys go into
 * d_kv_sums. */
struct attention_part {
    int64_t first_query, first_key, whole_seq;
    bool summed;
};
void case_attention(struct twin *t, enum zinf_dtype dtype, const struct attention_special *special,
                    const struct attention_part *part);
void case_distance_bias(struct twin *t, enum zinf_dtype dtype, bool both_ways);

struct cached_shape {
    int64_t n_heads, n_kv_heads, head_dim, capacity, window;
    float softcap;
    bool sloped;
    int32_t first; /* position of the first row of sequence 1 */
    bool biased;
    int64_t piece;
};
void case_cached(struct twin *t, enum zinf_dtype dtype, const struct cached_shape *shape);
/* Rows of three sources; the second brings its keys in this call. */
void case_source(struct twin *t, enum zinf_dtype dtype, int64_t n_heads, int64_t n_kv_heads,
                 int64_t head_dim);

struct relative_shape {
    int64_t batch, seq, n_heads, head_dim, half;
    bool log, queries, keys, packed;
    float dropout;
};
/* Keys that are not the queries' own, as in zinf_attention. One sample's are also taken in two
 * calls, so that there are more than ZINF_ATTENTION_TILE of them. */
struct relative_part {
    int64_t key_seq, first_query, first_key, whole_seq;
};
void case_relative(struct twin *t, const struct relative_shape *shape,
                   const struct relative_part *part, enum zinf_dtype dtype); /* or part NULL */
/* a: dtype and shape. */
void case_sinks(struct twin *t, struct zinf_sinks a, size_t shift);

/* ---- cases_recurrent.c ---- */

void case_convolution(struct twin *t, enum zinf_dtype dtype, bool packed, int64_t width);
void case_convolution_continued(struct twin *t, enum zinf_dtype dtype);
struct scan_shape {
    enum zinf_recurrence rule;
    enum zinf_dtype dtype;
    int64_t batch, seq, key_heads, value_heads, key_dim, value_dim;
    bool packed;
};
void case_scan(struct twin *t, const struct scan_shape *shape);
/* For further cases: documents of one row, of more than a chunk, and padding in between and behind,
 * [batch][seq]; the arrays of a scan, and its arguments on a side. */
struct pair make_documents(struct twin *t, int64_t batch, int64_t seq);
struct scan_pairs {
    struct pair x, gates, a_log, step_bias, skip, y, dy, dx, d_gates, d_a_log, d_step_bias, d_skip;
    struct pair segments, sequences, positions, state;
};
void scan_pairs_of(struct twin *t, const struct scan_shape *shape, struct scan_pairs *p);
struct zinf_scan scan_side(const struct scan_shape *shape, const struct scan_pairs *p, int side);
void *scan_shift(const struct scan_shape *shape, void *from, int64_t elements);
static inline int64_t scan_row(const struct scan_shape *s) /* elements of a row of x */
{
    return 2 * s->key_heads * s->key_dim + s->value_heads * s->value_dim;
}
/* Two sequences whose rows come in turns, over two calls: their states are carried. */
void case_scan_continued(struct twin *t, enum zinf_recurrence rule, enum zinf_dtype dtype);

/* ---- cases_experts.c ---- */

struct route_shape {
    int64_t rows, cols, n_chosen;
};
void case_route(struct twin *t, struct route_shape shape, bool normalised, bool shared);
/* Sigmoids with a bias, and groups. a: all but arrays. */
void case_grouped_route(struct twin *t, struct zinf_route a);
void case_balance(struct twin *t, struct route_shape shape, bool before);
void case_chosen_rows(struct twin *t, size_t cols, size_t shift, enum zinf_dtype dtype,
                      enum zinf_dtype sum);
void case_weigh(struct twin *t, size_t cols, size_t shift, enum zinf_dtype dtype);

/* ---- cases_weights.c ---- */

struct matmul_shape {
    int64_t m, n, k, gap; /* gap: elements between rows */
    size_t shift;         /* elements off alignment */
};
/* types: of A, B and C. Where the device cannot multiply them, it says so. */
void case_matmul(struct twin *t, struct matmul_shape shape, const enum zinf_dtype types[3],
                 bool trans_a, bool trans_b, float beta, bool bias);
/* Of 8-bit floats; only on a device that has them. variant: bits for B transposed, C in fp32, E5M2;
 * ones: B is a diagonal, and so codes are compared bit by bit. */
void case_float8(struct twin *t, struct matmul_shape shape, int variant, bool ones);
void case_widen(struct twin *t, int variant);
void case_dequantize(struct twin *t, uint64_t rows, uint64_t cols, enum zinf_form form,
                     enum zinf_dtype dtype, bool by_runs, size_t shift);
void case_magnitude(struct twin *t, int64_t rows, int64_t cols, int64_t rank, size_t shift,
                    enum zinf_dtype dtype);
void case_columns(struct twin *t, int64_t rows, int64_t cols, size_t shift, enum zinf_dtype dtype);

/* ---- cases_update.c ---- */

/* What is stored of a parameter: the master alone, the split master of optim.h, or both. */
enum update_form { UPDATE_BARE, UPDATE_SPLIT, UPDATE_WHOLE, UPDATE_FORMS };
void case_adam(struct twin *t, enum update_form form, bool decoupled, enum zinf_dtype dtype,
               size_t n, size_t shift);
void case_adam_not_finite(struct twin *t, enum zinf_dtype dtype);
void case_sum_squares(struct twin *t, size_t n, size_t shift);

/* Kinds of numbers as bits, which make every width and every field of a packed block. */
enum packed_kind {
    PACKED_NORMAL,
    PACKED_ZEROS,
    PACKED_SPARSE,
    PACKED_POSITIVE,
    PACKED_EVEN,
    PACKED_WIDE,
    PACKED_NOISE,
    PACKED_OUTLIERS,
    PACKED_NARROW,
    PACKED_KINDS,
};
/* low: the lower halves of fp32 numbers are not zero. */
void packed_fill(struct tensor *x, enum packed_kind kind, bool low);
void case_unpack(struct twin *t, enum packed_kind kind, enum zinf_dtype dtype, uint64_t n, bool low,
                 size_t shift);

#endif
