/*
 * host_simd: the inner loops of the host device. They are written once in C (host_loops.h,
 * host_tiles.h) and compiled once for each instruction set. They run in one thread on fp32;
 * callers deal with threads, storage types and checks. Arrays may be the same where a loop reads
 * and writes the same element.
 */
#ifndef ZINF_HOST_SIMD_H
#define ZINF_HOST_SIMD_H

#include "kernels/host_scan.h"

struct host_range {
    uint64_t first, count;
};

/* Slice `slice` of n items, divided at multiples of align; may be empty. It stands here, in front
 * of the loops, because the files of one instruction set do not see host.h. */
static inline struct host_range host_slice(uint64_t n, uint64_t align, int slice, int n_slices)
{
    uint64_t blocks = (n + align - 1) / align, count = (uint64_t)n_slices;
    uint64_t each = blocks / count, more = blocks % count, k = (uint64_t)slice;
    uint64_t first = (k * each + (k < more ? k : more)) * align;
    uint64_t end = first + (each + (k < more)) * align;
    first = first < n ? first : n;
    end = end < n ? end : n;
    return (struct host_range){first, end - first};
}

/* A row of a norm and its gradient; b and db may be NULL. */
struct host_norm_row {
    const float *x, *w, *b, *dy;
    float *y, *dx, *dw, *db;
    float mean, rstd;
    float mean_g, mean_gx; /* row means of g = dy w and of g times the normalised x */
    bool add_dx;
};

/* Gated units and their gradients; y may be dy, d_gate may be gate, d_up may be up. */
struct host_gated {
    const float *gate, *up, *dy;
    float *d_gate, *d_up, *y;
};

/* Threads of an OpenMP team that share the work on one head, or one thread that has it alone. */
struct host_team {
    float *scratch;          /* of thread 0; the others' follow, scratch_floats apart */
    uint64_t scratch_floats; /* host_attention_scratch_floats() */
    int thread, n_threads;
};

struct host_simd {
    void (*to_f32)(float *dst, const void *src, enum zinf_dtype dtype, size_t n);
    void (*from_f32)(void *dst, enum zinf_dtype dtype, const float *src, size_t n);
    void (*add)(float *dst, const float *src, size_t n);
    void (*add_scaled)(float *dst, const float *src, float scale, size_t n);
    void (*multiply)(float *y, const float *a, const float *b, size_t n);
    void (*multiply_add)(float *y, const float *x, const float *a, const float *b, size_t n);
    void (*dropout_factors)(float *factors, const struct zinf_dropout *dropout, uint64_t element,
                            size_t n);
    void (*activation)(enum zinf_activation kind, float *y, const float *x, size_t n);
    /* y may be NULL */
    void (*activation_gradient)(enum zinf_activation kind, float *dx, float *y, const float *dy,
                                const float *x, size_t n);
    void (*gated)(enum zinf_activation kind, float *y, const float *gate, const float *up,
                  size_t n);
    void (*gated_gradient)(enum zinf_activation kind, const struct host_gated *units, size_t n);
    /* host_quantized.h: n values with one scale */
    void (*dequantize_nf4)(float *y, const uint8_t *codes, const float *map, float scale, size_t n);
    void (*dequantize_int8)(float *y, const int8_t *codes, float scale, size_t n);
    void (*dequantize_fp8)(float *y, const uint8_t *codes, float scale, size_t n);
    uint32_t (*float8_most)(const uint16_t *x, size_t n);
    void (*float8_codes)(uint8_t *codes, const uint16_t *x, float up, size_t n);
    void (*rope_row)(const struct zinf_rope *args, int64_t row);
    float (*sum)(const float *x, size_t n);
    float (*sum_squares)(const float *x, float mean, size_t n); /* of x - mean */
    void (*norm)(const struct host_norm_row *row, size_t n);
    void (*norm_sums)(const struct host_norm_row *row, size_t n, float *sum_g, float *sum_gx);
    void (*norm_gradient)(const struct host_norm_row *row, size_t n);
    /* y = cap tanh(x / cap); slope, unless NULL, receives the derivative */
    void (*softcap)(float *y, float *slope, const float *x, float cap, size_t n);
    float (*max)(const float *x, size_t n);
    float (*sum_exp)(const float *x, float max, size_t n);          /* of exp(x - max) */
    void (*scale_exp)(float *x, float max, float factor, size_t n); /* factor exp(x - max) */
    /* Attention of one head of sample b, which all threads of a team call. Backward takes all query
     * heads of a key head, so that dK and dV are summed in order. The number of threads does not
     * change a bit. */
    void (*attention_forward)(const struct zinf_attention *args, int64_t b, int64_t head,
                              const struct host_team *team);
    void (*attention_backward)(const struct zinf_attention *args, int64_t b, int64_t kv_head,
                               const struct host_team *team);
    /* Cached attention of n_rows consecutive positions of a sequence and the query heads of one key
     * head: at most HOST_CACHED_QUERIES queries, or one row. Their keys and values are in the cache
     * already. */
    void (*attention_cached)(const struct zinf_attention_cached *args, int64_t row, int64_t n_rows,
                             int64_t kv_head, float *scratch);
    /* Columns [first, first + count) of a product with at most HOST_FEW_ROWS rows; a: A in fp32,
     * [m][k]. */
    void (*few_rows)(const struct zinf_matmul *args, const float *a, int64_t first, int64_t count);
    /* Passes of a scan (host_scan.h): over a head of a sample, with chunks in order or in reverse;
     * over a key head of the chunks that begin within rows [first, end) of a sample; over a head of
     * all rows, without chunks. scratch has host_scan_scratch_floats(). */
    void (*scan_forward)(const struct host_scan *s, int64_t sample, int64_t head, float *scratch);
    void (*scan_backward)(const struct host_scan *s, int64_t sample, int64_t head, float *scratch);
    void (*scan_gradients)(const struct host_scan *s, int64_t first, int64_t end, int64_t key_head,
                           float *scratch);
    void (*scan_continue)(const struct host_scan *s, int64_t head, float *scratch);
};

extern const struct host_simd host_simd_scalar, host_simd_avx2, host_simd_avx512;

/* Random blocks of four words that are made at once. */
enum { PHILOX_BLOCKS = 16 };

/* Most rows of a product that does not pack B; most queries that go through a cache together. */
enum { HOST_FEW_ROWS = 16, HOST_CACHED_QUERIES = 4 };

/* Tiles of the attention loops: query rows and keys per tile, padding of the head dimension. */
enum { HOST_TILE_ROWS = 32, HOST_TILE_KEYS = 64, HOST_TILE_ALIGN = 16 };

/* Sums of a row of a tile that are added up in the end. */
enum { HOST_SUM_LANES = 16 };
_Static_assert(HOST_TILE_KEYS == ZINF_ATTENTION_TILE, "tiles between which a GPU may cut keys");

/* Keys of several calls: how many of the first tile's are of the calls before. */
static inline int64_t host_attention_front(const struct zinf_attention *args)
{
    return args->running ? args->first_key % HOST_TILE_KEYS : 0;
}

/* Floats of working memory per thread for attention_forward or attention_backward, whichever needs
 * more, without relative positions. */
static inline uint64_t host_attention_plain_floats(const struct zinf_attention *args)
{
    uint64_t seq = zinf_align_up((uint64_t)args->seq, HOST_TILE_KEYS);
    uint64_t keys = zinf_align_up((uint64_t)zinf_attention_keys(args), HOST_TILE_KEYS);
    uint64_t dim = zinf_align_up((uint64_t)args->head_dim, HOST_TILE_ALIGN);
    /* Q, dO, dQ and two numbers a row; dK, dV; K, V in both orders; tiles P, dP, factors */
    return seq * (3 * dim + 2) + keys * 2 * dim + 4 * HOST_TILE_KEYS * dim +
           3 * HOST_TILE_ROWS * HOST_TILE_KEYS;
}

/* Whether several threads can share a head: not where they would add to the same gradients of a
 * bias or a table. The others keep the gradients of scores where thread 0 has its matrices. */
static inline bool host_attention_shares(const struct zinf_attention *args)
{
    const uint64_t seq = zinf_align_up((uint64_t)args->seq, HOST_TILE_KEYS);
    const uint64_t keys = zinf_align_up((uint64_t)zinf_attention_keys(args), HOST_TILE_KEYS);
    const uint64_t dim = zinf_align_up((uint64_t)args->head_dim, HOST_TILE_ALIGN);
    return !args->relative && !args->d_bias &&
           seq * HOST_TILE_KEYS <= seq * (3 * dim + 2) + keys * 2 * dim;
}

/* What relative positions take beside that. */
struct host_relative_size {
    uint64_t rows;      /* of the table that a call uses, at most, in whole panels */
    uint64_t distances; /* room for one number each */
    uint64_t seq, all;  /* queries; queries or keys, with places before key 0: in whole tiles */
};

static inline struct host_relative_size host_relative_size(const struct zinf_attention *args)
{
    const int64_t reach = zinf_attention_distances(args), half = args->relative->half;
    const uint64_t seq = zinf_align_up((uint64_t)args->seq, HOST_TILE_KEYS);
    const uint64_t keys = zinf_align_up((uint64_t)zinf_attention_keys(args), HOST_TILE_KEYS);
    const uint64_t places = keys + (args->running ? HOST_TILE_KEYS : 0);
    return (struct host_relative_size){
        .rows = zinf_align_up((uint64_t)(reach < 2 * half ? reach : 2 * half), HOST_TILE_KEYS),
        .distances = seq + keys,
        .seq = seq,
        .all = seq > places ? seq : places};
}

/* The same with relative positions. */
static inline uint64_t host_attention_scratch_floats(const struct zinf_attention *args)
{
    const uint64_t plain = host_attention_plain_floats(args);
    if (!args->relative)
        return plain;
    const struct host_relative_size size = host_relative_size(args);
    const uint64_t dim = zinf_align_up((uint64_t)args->head_dim, HOST_TILE_ALIGN);
    /* rows by distance; each term's rows, in both orders, and gradients; scores of all tokens and
     * of a tile, and gradients of both */
    return plain + size.distances +
           size.rows * (6 * dim + size.all + size.seq + 2 * HOST_TILE_KEYS);
}

#endif
