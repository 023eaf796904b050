/*
 * host_tiles: attention over tiles of query rows and keys. Included once by each per-ISA file that
 * has defined HOST_LANES (floats of a vector). Everything is a product of a small matrix with a
 * packed panel, computed by one register tile in the compiler's vector types. Scores are made tile
 * by tile and never stored. Backward computes probabilities again from the saved log-sum-exp (Dao
 * et al., arXiv 2205.14135).
 */

#include "kernels/host_tiles_product.h"

/* ---- packing ---- */

static inline int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The matrix of one head within rows of qkv, kv, out or their gradients. */
struct head {
    char *base;
    enum zinf_dtype dtype;
    int64_t stride; /* elements between rows */
    int64_t dim, padded_dim;
};

static struct head head_at(const void *base, const struct zinf_attention *args, int64_t first_row,
                           int64_t row_heads, int64_t head)
{
    int64_t stride = row_heads * args->head_dim;
    size_t offset = (size_t)(first_row * stride + head * args->head_dim);
    return (struct head){(char *)(uintptr_t)base + offset * zinf_dtype_bytes(args->dtype),
                         args->dtype, stride, args->head_dim,
                         (int64_t)zinf_align_up((uint64_t)args->head_dim, HOST_TILE_ALIGN)};
}

/* base: qkv or its gradient. */
static struct head query_at(const void *base, const struct zinf_attention *args, int64_t b,
                            int64_t head)
{
    int64_t row_heads = args->n_heads + (args->key_seq ? 0 : 2 * args->n_kv_heads);
    return head_at(base, args, b * args->seq, row_heads, head);
}

/* qkv and kv, or their gradients; keys and values are in one of them. */
struct sources {
    const void *qkv, *kv;
};
static struct head key_at(struct sources from, const struct zinf_attention *args, int64_t b,
                          int64_t kv_head)
{
    const int64_t pairs = 2 * args->n_kv_heads;
    if (args->key_seq)
        return head_at(from.kv, args, b * args->key_seq, pairs, kv_head);
    return head_at(from.qkv, args, b * args->seq, args->n_heads + pairs, args->n_heads + kv_head);
}
static struct head value_at(struct sources from, const struct zinf_attention *args, int64_t b,
                            int64_t kv_head)
{
    return key_at(from, args, b, args->n_kv_heads + kv_head);
}

static struct head out_at(const void *base, const struct zinf_attention *args, int64_t b,
                          int64_t head)
{
    return head_at(base, args, b * args->seq, args->n_heads, head);
}

static void *head_row(const struct head *head, int64_t row)
{
    return head->base + (size_t)(row * head->stride) * zinf_dtype_bytes(head->dtype);
}

/* Rows that are prefetched, since rows of one head are too far apart for the hardware to foresee
 * them. */
enum { PREFETCH_ROWS = 8 };

/* dst[n][padded_dim] = factor * rows; padding, and rows n to padded_n, are zero. */
static void pack_rows(float *dst, const struct head *head, int64_t first, int64_t n,
                      int64_t padded_n, float factor)
{
    const int64_t dim = head->dim, width = head->padded_dim;
    for (int64_t i = 0; i < n; i++, dst += width) {
        if (i + PREFETCH_ROWS < n) {
            const char *ahead = head_row(head, first + i + PREFETCH_ROWS);
            for (size_t byte = 0; byte < (size_t)dim * zinf_dtype_bytes(head->dtype); byte += 64)
                __builtin_prefetch(ahead + byte);
        }
        loop_to_f32(dst, head_row(head, first + i), head->dtype, (size_t)dim);
        if (factor != 1.0f)
            for (int64_t c = 0; c < dim; c++)
                dst[c] *= factor;
        for (int64_t c = dim; c < width; c++)
            dst[c] = 0.0f;
    }
    memset(dst, 0, (size_t)((padded_n - n) * width) * sizeof *dst);
}

/* dst[dim][HOST_TILE_KEYS] from packed rows [HOST_TILE_KEYS][width]. */
static void transpose_keys(float *dst, const float *rows, int64_t dim, int64_t width)
{
    for (int64_t c = 0; c < dim; c++)
        for (int64_t j = 0; j < HOST_TILE_KEYS; j++)
            dst[c * HOST_TILE_KEYS + j] = rows[j * width + c];
}

/* Stores rows = factor * src[n][padded_dim] in the head's type. */
static void unpack_rows(const struct head *head, int64_t first, int64_t n, float *src, float factor)
{
    for (int64_t i = 0; i < n; i++, src += head->padded_dim) {
        if (factor != 1.0f)
            for (int64_t c = 0; c < head->dim; c++)
                src[c] *= factor;
        loop_from_f32(head_row(head, first + i), head->dtype, src, (size_t)head->dim);
    }
}

/* ---- teams ---- */

static inline float *team_scratch(const struct host_team *team, int thread)
{
    return team->scratch + (uint64_t)thread * team->scratch_floats;
}

static inline void team_wait(const struct host_team *team)
{
    if (team->n_threads > 1) {
#pragma omp barrier
    }
}

struct range {
    int64_t first, end;
};

/* This thread's share of rows in whole tiles of HOST_TILE_KEYS rows; the last one may end behind
 * them. An empty share begins with row 0. */
static inline struct range team_range(const struct host_team *team, int64_t rows)
{
    const uint64_t tiles = (uint64_t)(rows + HOST_TILE_KEYS - 1) / HOST_TILE_KEYS;
    const struct host_range own = host_slice(tiles, 1, team->thread, team->n_threads);
    const int64_t first = own.count ? (int64_t)own.first * HOST_TILE_KEYS : 0;
    return (struct range){first, first + (int64_t)own.count * HOST_TILE_KEYS};
}

/* Packs a share of so many rows. */
static void pack_range(float *dst, const struct head *head, struct range range, int64_t rows,
                       float factor)
{
    const int64_t n = min_i64(range.end, rows) - range.first;
    pack_rows(dst + range.first * head->padded_dim, head, range.first, n, range.end - range.first,
              factor);
}

/* The same of keys or values with so many zeros in front of them, which the range counts: fewer
 * than a tile has. */
static void pack_behind(float *dst, const struct head *head, struct range range, int64_t rows,
                        int64_t zeros)
{
    const int64_t width = head->padded_dim, front = range.first ? 0 : zeros;
    const int64_t first = range.first + front;
    if (range.end <= range.first)
        return;
    memset(dst, 0, (size_t)(front * width) * sizeof *dst);
    pack_rows(dst + front * width, head, first - zeros, min_i64(range.end, rows + zeros) - first,
              range.end - first, 1.0f);
}

static void unpack_range(const struct head *head, struct range range, int64_t rows, float *src,
                         float factor)
{
    const int64_t n = min_i64(range.end, rows) - range.first;
    unpack_rows(head, range.first, n, src + range.first * head->padded_dim, factor);
}

/* ---- forward ---- */

struct tile {
    int64_t i, n_rows; /* query rows */
    int64_t j, n_keys; /* keys; those from n_keys on are padding, and those before key 0 */
    int64_t ahead;     /* by how many tokens query 0 is behind key 0 */
    bool causal;
    int64_t window;                             /* as in zinf_attention */
    const int32_t *row_segments, *key_segments; /* of the sample; NULL: it is one document */
};

/* Keys of the tile that a row may see, [first, end); other scores are masked. */
struct visible {
    int64_t first, end;
};

static inline struct visible visible_keys(const struct tile *tile, int64_t row)
{
    const int64_t up_to = tile->ahead + tile->i + row + 1 - tile->j;
    int64_t end = tile->causal ? min_i64(tile->n_keys, up_to) : tile->n_keys;
    int64_t first = tile->window && up_to > tile->window ? up_to - tile->window : 0;
    first = first < -tile->j ? -tile->j : first;
    return first < end ? (struct visible){first, end} : (struct visible){0, 0};
}

/* The smallest and largest document of some tokens; none if least > greatest. */
struct documents {
    int32_t least, greatest;
};

static inline struct documents documents_of(const int32_t *segments, int64_t n)
{
    struct documents d = {INT32_MAX, 0};
    for (int64_t t = 0; t < n; t++) {
        const int32_t s = segments[t];
        d.least = s > 0 && s < d.least ? s : d.least;
        d.greatest = s > d.greatest ? s : d.greatest;
    }
    return d;
}

/* False if no row of the tile can belong to the document of one of its keys. */
static inline bool tile_matters(const struct tile *tile)
{
    if (!tile->row_segments)
        return true;
    struct documents rows = documents_of(tile->row_segments + tile->i, tile->n_rows);
    const int64_t front = tile->j < 0 ? -tile->j : 0;
    struct documents keys =
        documents_of(tile->key_segments + tile->j + front, tile->n_keys - front);
    return rows.least <= keys.greatest && keys.least <= rows.greatest;
}

/* Masks the keys of other documents among those that a row may see; returns what is left. */
static inline struct visible mask_documents(const struct tile *tile, int64_t row,
                                            struct visible visible, float *scores)
{
    if (!tile->row_segments)
        return visible;
    const int32_t *keys = tile->key_segments, own = tile->row_segments[tile->i + row];
    int n_seen = 0;
    for (int64_t j = visible.first; j < visible.end; j++) {
        const bool seen = keys[tile->j + j] == own;
        scores[j] = seen ? scores[j] : -INFINITY;
        n_seen += seen;
    }
    return n_seen && own > 0 ? visible : (struct visible){0, 0};
}

/* Sets the masked scores of a row to -infinity. */
static inline void mask_row(float *scores, struct visible visible)
{
    for (int64_t j = 0; j < visible.first; j++)
        scores[j] = -INFINITY;
    for (int64_t j = visible.end; j < HOST_TILE_KEYS; j++)
        scores[j] = -INFINITY;
}

/* Applies softcap and the head's bias by distance to the scores of row i with keys from j on.
 * slope, unless NULL, receives the factor of their gradient. */
static inline void shape_scores(const struct zinf_attention *args, int64_t head, int64_t i,
                                int64_t j, float *scores, float *slope)
{
    if (args->softcap != 0.0f)
        loop_softcap(scores, slope, scores, args->softcap, HOST_TILE_KEYS);
    if (args->slopes) {
        const float by_key = args->slopes[head];
        const float distance = (float)(j - i - zinf_attention_ahead(args));
#pragma omp simd
        for (int k = 0; k < HOST_TILE_KEYS; k++)
            scores[k] += by_key * (distance + (float)k);
    }
    if (args->bias) {
        const int64_t n_keys = min_i64(HOST_TILE_KEYS, zinf_attention_keys(args) - j);
        const float *bias = args->bias + head * zinf_attention_distances(args) + args->seq - 1 - i;
#pragma omp simd
        for (int64_t k = j < 0 ? -j : 0; k < n_keys; k++)
            scores[k] += bias[j + k];
    }
}

/* Rows from i on with keys from j on, of sample b. */
static inline struct tile tile_at(const struct zinf_attention *args, int64_t b, int64_t i,
                                  int64_t j)
{
    struct tile tile = {.i = i,
                        .n_rows = min_i64(HOST_TILE_ROWS, args->seq - i),
                        .j = j,
                        .n_keys = min_i64(HOST_TILE_KEYS, zinf_attention_keys(args) - j),
                        .ahead = zinf_attention_ahead(args),
                        .causal = args->causal,
                        .window = args->window};
    if (args->segments) {
        tile.row_segments = tile.key_segments = args->segments + b * args->seq;
        if (args->key_seq)
            tile.key_segments = args->key_segments + b * args->key_seq;
    }
    return tile;
}

/* The first key of the tile with the first key that row i sees; `front` places are before key 0. */
static inline int64_t first_tile(const struct zinf_attention *args, int64_t i, int64_t front)
{
    const int64_t place = i + zinf_attention_ahead(args);
    return args->window && place >= args->window
               ? (place + 1 - args->window + front) / HOST_TILE_KEYS * HOST_TILE_KEYS
               : 0;
}

#include "kernels/host_tiles_relative.h"

/* Dropout factors of one row of a tile, numbered as in zinf_attention. */
static void tile_factors(float *factors, const struct zinf_attention *args, int64_t b, int64_t head,
                         int64_t i, int64_t j)
{
    const int64_t whole = args->whole_seq, seq = whole ? whole : args->seq;
    const int64_t keys = whole ? zinf_attention_whole_keys(args) : zinf_attention_keys(args);
    const int64_t row = (b * args->n_heads + head) * seq + i + (whole ? args->first_query : 0);
    const int64_t key = j + (whole ? args->first_key : 0);
    loop_dropout_factors(factors, &args->dropout,
                         args->dropout.element_first + (uint64_t)(row * keys + key),
                         HOST_TILE_KEYS);
}
