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
 * them. */
static inline struct range team_range(const struct host_team *team, int64_t rows)
{
    const int64_t tiles = (rows + HOST_TILE_KEYS - 1) / HOST_TILE_KEYS, n = team->n_threads;
    return (struct range){tiles * team->thread / n * HOST_TILE_KEYS,
                          tiles * (team->thread + 1) / n * HOST_TILE_KEYS};
}

/* Packs a share of so many rows. */
static void pack_range(float *dst, const struct head *head, struct range range, int64_t rows,
                       float factor)
{
    const int64_t n = min_i64(range.end, rows) - range.first;
    pack_rows(dst + range.first * head->padded_dim, head, range.first, n, range.end - range.first,
              factor);
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
    int64_t j, n_keys; /* keys; those from n_keys on are padding */
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
    struct documents keys = documents_of(tile->key_segments + tile->j, tile->n_keys);
    return rows.least <= keys.greatest && keys.least <= rows.greatest;
}

/* Masks the keys of other documents among those that a row may see; returns what is left. */
static inline struct visible mask_documents(const struct tile *tile, int64_t row,
                                            struct visible visible, float *scores)
{
    if (!tile->row_segments)
        return visible;
    const int32_t *keys = tile->key_segments + tile->j, own = tile->row_segments[tile->i + row];
    int n_seen = 0;
    for (int64_t j = visible.first; j < visible.end; j++) {
        const bool seen = keys[j] == own;
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
        const float *bias =
            args->bias + head * zinf_attention_distances(args) + args->seq - 1 + j - i;
#pragma omp simd
        for (int64_t k = 0; k < n_keys; k++)
            scores[k] += bias[k];
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

/* The first key of the tile with the first key that row i sees. */
static inline int64_t first_tile(const struct zinf_attention *args, int64_t i)
{
    const int64_t place = i + zinf_attention_ahead(args);
    return args->window && place >= args->window
               ? (place + 1 - args->window) / HOST_TILE_KEYS * HOST_TILE_KEYS
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

/* Replaces a row of scores by exp(score - max), and scales out's row to the new maximum. */
static void softmax_row(float *scores, struct visible visible, float *max, float *sum, float *out,
                        int64_t width)
{
    float top = *max, total = 0.0f;
    if (visible.first == visible.end) {
        memset(scores, 0, HOST_TILE_KEYS * sizeof *scores);
        return;
    }
    mask_row(scores, visible);
#pragma omp simd reduction(max : top)
    for (int j = 0; j < HOST_TILE_KEYS; j++)
        top = scores[j] > top ? scores[j] : top;
#pragma omp simd reduction(+ : total)
    for (int j = 0; j < HOST_TILE_KEYS; j++) {
        scores[j] = exp_f32(scores[j] - top);
        total += scores[j];
    }
    if (top != *max) {
        float shrink = exp_f32(*max - top);
        *sum *= shrink;
#pragma omp simd
        for (int64_t c = 0; c < width; c++)
            out[c] *= shrink;
    }
    *max = top;
    *sum += total;
}

struct forward_scratch {
    float *keys;   /* [keys / tile][dim][HOST_TILE_KEYS] */
    float *values; /* [keys][width] */
    float *query, *out;
    float *scores, *factors;
    struct relative *relative;
};

static void forward_rows(const struct zinf_attention *args, int64_t b, int64_t head, int64_t i,
                         const struct forward_scratch *s, int64_t width)
{
    const int64_t seq = args->seq, n_rows = min_i64(HOST_TILE_ROWS, seq - i);
    const int64_t keys = zinf_attention_keys(args);
    const int64_t end =
        args->causal ? min_i64(keys, i + zinf_attention_ahead(args) + n_rows) : keys;
    float max[HOST_TILE_ROWS], sum[HOST_TILE_ROWS];
    for (int r = 0; r < HOST_TILE_ROWS; r++) {
        max[r] = -INFINITY;
        sum[r] = 0.0f;
    }
    memset(s->out, 0, (size_t)(HOST_TILE_ROWS * width) * sizeof *s->out);
    s->relative->first_query = i;
    relative_see_keys(s->relative, s->query, i, n_rows);
    for (int64_t j = first_tile(args, i); j < end; j += HOST_TILE_KEYS) {
        struct tile tile = tile_at(args, b, i, j);
        if (!tile_matters(&tile))
            continue;
        struct product qk = {s->scores,      s->query,       s->keys + j * args->head_dim,
                             HOST_TILE_KEYS, width,          1,
                             HOST_TILE_KEYS, args->head_dim, false};
        multiply_tiles(&qk, n_rows, HOST_TILE_KEYS);
        for (int64_t r = 0; r < n_rows; r++) {
            float *row = s->scores + r * HOST_TILE_KEYS;
            shape_scores(args, head, i + r, j, row, NULL);
            relative_add(s->relative, &tile, r, row);
            softmax_row(row, mask_documents(&tile, r, visible_keys(&tile, r), row), &max[r],
                        &sum[r], s->out + r * width, width);
            if (args->dropout.p > 0.0f) {
                tile_factors(s->factors, args, b, head, i + r, j);
                loop_multiply(row, row, s->factors, HOST_TILE_KEYS);
            }
        }
        struct product pv = {s->out,
                             s->scores,
                             s->values + j * width,
                             width,
                             HOST_TILE_KEYS,
                             1,
                             width,
                             min_i64(HOST_TILE_KEYS, end - j),
                             true};
        multiply_tiles(&pv, n_rows, width);
    }
    struct head out = out_at(args->out, args, b, head);
    for (int64_t r = 0; r < n_rows; r++) {
        const bool blind = sum[r] == 0.0f; /* a row that has seen a key has at least 1 */
        unpack_rows(&out, i + r, 1, s->out + r * width, blind ? 0.0f : 1.0f / sum[r]);
        const float none = args->partial ? -INFINITY : 0.0f;
        args->lse[(b * args->n_heads + head) * seq + i + r] = blind ? none : max[r] + logf(sum[r]);
    }
}

/* The packed keys and values are one for all threads of a team. */
static void forward_scratch_init(struct forward_scratch *s, const struct host_team *team,
                                 int64_t padded_keys, int64_t width)
{
    s->keys = team->scratch;
    s->values = s->keys + padded_keys * width;
    s->query = team_scratch(team, team->thread) + 2 * padded_keys * width;
    s->out = s->query + HOST_TILE_KEYS * width;
    s->scores = s->out + HOST_TILE_KEYS * width;
    s->factors = s->scores + HOST_TILE_ROWS * HOST_TILE_KEYS;
}

static void tiles_attention_forward(const struct zinf_attention *args, int64_t b, int64_t head,
                                    const struct host_team *team)
{
    const int64_t seq = args->seq, keys = zinf_attention_keys(args);
    const int64_t padded_keys = (int64_t)zinf_align_up((uint64_t)keys, HOST_TILE_KEYS);
    const int64_t kv_head = head / (args->n_heads / args->n_kv_heads);
    const struct sources from = {args->qkv, args->kv};
    struct head query = query_at(args->qkv, args, b, head);
    struct head key = key_at(from, args, b, kv_head), value = value_at(from, args, b, kv_head);
    const int64_t width = query.padded_dim, rows = (int64_t)team->n_threads * HOST_TILE_ROWS;
    const struct range own = team_range(team, keys);
    struct relative relative = relative_open(args, head, false, team_scratch(team, team->thread));
    struct forward_scratch s = {.relative = &relative};
    forward_scratch_init(&s, team, padded_keys, width);
    for (int64_t j = own.first; j < own.end; j += HOST_TILE_KEYS) {
        /* query has room for a tile of keys and is not used yet */
        pack_rows(s.query, &key, j, min_i64(HOST_TILE_KEYS, keys - j), HOST_TILE_KEYS, 1.0f);
        transpose_keys(s.keys + j * args->head_dim, s.query, args->head_dim, width);
        relative_see_queries(&relative, s.query, j, min_i64(HOST_TILE_KEYS, keys - j));
    }
    pack_range(s.values, &value, own, keys, 1.0f);
    team_wait(team);
    /* in turn, since the last rows of a causal head see the most keys */
    for (int64_t i = team->thread * HOST_TILE_ROWS; i < seq; i += rows) {
        pack_rows(s.query, &query, i, min_i64(HOST_TILE_ROWS, seq - i), HOST_TILE_ROWS,
                  args->scale);
        forward_rows(args, b, head, i, &s, width);
    }
    team_wait(team); /* the next head's keys take the place of these */
}
