/*
 * host_tiles: attention over tiles of query rows and keys, to be included once by each per-ISA
 * file after it has defined HOST_LANES (floats per vector). Everything is a product of a small
 * matrix with a packed panel, done by one register tile in the compiler's vector types; scores are
 * made tile by tile and never stored. Backward makes the probabilities again from the saved
 * log-sum-exp (Dao et al., arXiv 2205.14135).
 */

typedef float vec __attribute__((vector_size(4 * HOST_LANES)));
typedef float vec_memory __attribute__((vector_size(4 * HOST_LANES), aligned(4), may_alias));

/* Register tile: rows of C times vectors of C; with 16 registers (no AVX-512) half as wide. */
enum { REGISTER_ROWS = 4, REGISTER_VECTORS = HOST_LANES == 16 ? 4 : 2 };

/* C[rows][lanes n_vectors] (+)= A B: A's element (i, k) at a[i row_stride + k depth_stride]. */
struct product {
    float *c;
    const float *a, *b;
    int64_t c_stride, row_stride, depth_stride, b_stride;
    int64_t depth;
    bool add;
};

static inline __attribute__((always_inline)) void
register_tile(const struct product *p, int64_t row, int64_t column, const int n_vectors)
{
    const float *a = p->a + row * p->row_stride, *b = p->b + column;
    float *c = p->c + row * p->c_stride + column;
    const int64_t row_stride = p->row_stride, depth_stride = p->depth_stride;
    vec sum[REGISTER_ROWS][REGISTER_VECTORS];
#pragma GCC unroll 8
    for (int i = 0; i < REGISTER_ROWS; i++)
#pragma GCC unroll 8
        for (int v = 0; v < n_vectors; v++)
            sum[i][v] = (vec){0};
    for (int64_t k = 0; k < p->depth; k++, a += depth_stride, b += p->b_stride) {
#pragma GCC unroll 8
        for (int i = 0; i < REGISTER_ROWS; i++)
#pragma GCC unroll 8
            for (int v = 0; v < n_vectors; v++)
                sum[i][v] += a[i * row_stride] * *(const vec_memory *)(b + v * HOST_LANES);
    }
#pragma GCC unroll 8
    for (int i = 0; i < REGISTER_ROWS; i++)
#pragma GCC unroll 8
        for (int v = 0; v < n_vectors; v++) {
            vec_memory *to = (vec_memory *)(c + i * p->c_stride + v * HOST_LANES);
            if (p->add)
                sum[i][v] += *to;
            *to = sum[i][v];
        }
}

/* One column of register tiles; the tile's width must be a constant to stay in registers. */
static void multiply_columns(const struct product *p, int64_t rows, int64_t column, int n_vectors)
{
    switch (n_vectors) {
    case 1:
        for (int64_t row = 0; row < rows; row += REGISTER_ROWS)
            register_tile(p, row, column, 1);
        break;
    case 2:
        for (int64_t row = 0; row < rows; row += REGISTER_ROWS)
            register_tile(p, row, column, 2);
        break;
    case 3:
        for (int64_t row = 0; row < rows; row += REGISTER_ROWS)
            register_tile(p, row, column, REGISTER_VECTORS > 2 ? 3 : 1);
        break;
    default:
        for (int64_t row = 0; row < rows; row += REGISTER_ROWS)
            register_tile(p, row, column, REGISTER_VECTORS);
    }
}

/* rows is rounded up to REGISTER_ROWS: every buffer has room for whole tiles. */
static void multiply_tiles(const struct product *p, int64_t rows, int64_t columns)
{
    for (int64_t column = 0; column < columns; column += REGISTER_VECTORS * HOST_LANES) {
        int64_t left = (columns - column) / HOST_LANES;
        multiply_columns(p, rows, column, left < REGISTER_VECTORS ? (int)left : REGISTER_VECTORS);
    }
}

/* ---- packing ---- */

/* The matrix of one head inside rows of qkv, out or their gradients. */
struct head {
    char *base;
    enum zinf_dtype dtype;
    int64_t stride; /* elements between rows */
    int64_t dim, padded_dim;
};

static struct head head_at(const void *base, const struct zinf_attention *args, int64_t b,
                           int64_t row_heads, int64_t head)
{
    int64_t stride = row_heads * args->head_dim;
    size_t offset = (size_t)(b * args->seq * stride + head * args->head_dim);
    return (struct head){(char *)(uintptr_t)base + offset * zinf_dtype_bytes(args->dtype),
                         args->dtype, stride, args->head_dim,
                         (int64_t)zinf_align_up((uint64_t)args->head_dim, HOST_TILE_ALIGN)};
}

static void *head_row(const struct head *head, int64_t row)
{
    return head->base + (size_t)(row * head->stride) * zinf_dtype_bytes(head->dtype);
}

/* Rows of one head are far apart: the hardware does not see them coming. */
enum { PREFETCH_ROWS = 8 };

/* dst[n][padded_dim] = factor * rows; padding is zero, and so are rows from n to padded_n. */
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

/* rows = factor * src[n][padded_dim], stored in the head's type. */
static void unpack_rows(const struct head *head, int64_t first, int64_t n, float *src, float factor)
{
    for (int64_t i = 0; i < n; i++, src += head->padded_dim) {
        if (factor != 1.0f)
            for (int64_t c = 0; c < head->dim; c++)
                src[c] *= factor;
        loop_from_f32(head_row(head, first + i), head->dtype, src, (size_t)head->dim);
    }
}

/* ---- forward ---- */

struct tile {
    int64_t i, n_rows; /* query rows */
    int64_t j, n_keys; /* keys; those at or after n_keys are padding */
    bool causal;
    int64_t window;          /* as in zinf_attention */
    const int32_t *segments; /* of the sample; NULL: one document */
};

static inline int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Keys of the tile that a row may see, [first, end); the rest of its scores is masked. */
struct visible {
    int64_t first, end;
};

static inline struct visible visible_keys(const struct tile *tile, int64_t row)
{
    const int64_t up_to = tile->i + row + 1 - tile->j;
    int64_t end = tile->causal ? min_i64(tile->n_keys, up_to) : tile->n_keys;
    int64_t first = tile->window && up_to > tile->window ? up_to - tile->window : 0;
    return first < end ? (struct visible){first, end} : (struct visible){0, 0};
}

/* Documents that some tokens are of, the least and the greatest; none where least is above it. */
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

/* False where no row of the tile can be of the document of one of its keys. */
static inline bool tile_matters(const struct tile *tile)
{
    if (!tile->segments)
        return true;
    struct documents rows = documents_of(tile->segments + tile->i, tile->n_rows);
    struct documents keys = documents_of(tile->segments + tile->j, tile->n_keys);
    return rows.least <= keys.greatest && keys.least <= rows.greatest;
}

/* Of the keys that a row may see, those of other documents are masked; what is left. */
static inline struct visible mask_documents(const struct tile *tile, int64_t row,
                                            struct visible visible, float *scores)
{
    if (!tile->segments)
        return visible;
    const int32_t *keys = tile->segments + tile->j, own = tile->segments[tile->i + row];
    int n_seen = 0;
    for (int64_t j = visible.first; j < visible.end; j++) {
        const bool seen = keys[j] == own;
        scores[j] = seen ? scores[j] : -INFINITY;
        n_seen += seen;
    }
    return n_seen && own > 0 ? visible : (struct visible){0, 0};
}

/* The masked scores of a row become -infinity. */
static inline void mask_row(float *scores, struct visible visible)
{
    for (int64_t j = 0; j < visible.first; j++)
        scores[j] = -INFINITY;
    for (int64_t j = visible.end; j < HOST_TILE_KEYS; j++)
        scores[j] = -INFINITY;
}

/* Scores of row i, against the keys from j on: capped, with slope receiving what that does to their
 * gradient unless it is NULL, then with the head's bias by distance. */
static inline void shape_scores(const struct zinf_attention *args, int64_t head, int64_t i,
                                int64_t j, float *scores, float *slope)
{
    if (args->softcap != 0.0f)
        loop_softcap(scores, slope, scores, args->softcap, HOST_TILE_KEYS);
    if (args->slopes) {
        const float by_key = args->slopes[head], distance = (float)(j - i);
#pragma omp simd
        for (int k = 0; k < HOST_TILE_KEYS; k++)
            scores[k] += by_key * (distance + (float)k);
    }
}

static inline const int32_t *segments_at(const struct zinf_attention *args, int64_t b)
{
    return args->segments ? args->segments + b * args->seq : NULL;
}

/* The tile of keys that holds the first one that row i sees. */
static inline int64_t first_tile(const struct zinf_attention *args, int64_t i)
{
    return args->window && i >= args->window
               ? (i + 1 - args->window) / HOST_TILE_KEYS * HOST_TILE_KEYS
               : 0;
}

/* Dropout factors of one tile row: element ((b n_heads + h) seq + i) seq + j. */
static void tile_factors(float *factors, const struct zinf_attention *args, int64_t b, int64_t head,
                         int64_t i, int64_t j)
{
    uint64_t row = ((uint64_t)b * (uint64_t)args->n_heads + (uint64_t)head) * (uint64_t)args->seq +
                   (uint64_t)i;
    loop_dropout_factors(factors, &args->dropout,
                         args->dropout.element_first + row * (uint64_t)args->seq + (uint64_t)j,
                         HOST_TILE_KEYS);
}

/* One row of scores becomes exp(score - max); out's row follows the running maximum. */
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
    float *keys;   /* [seq / tile][dim][HOST_TILE_KEYS] */
    float *values; /* [seq][width] */
    float *query, *out;
    float *scores, *factors;
};

static void forward_rows(const struct zinf_attention *args, int64_t b, int64_t head, int64_t i,
                         const struct forward_scratch *s, int64_t width)
{
    const int64_t seq = args->seq, n_rows = min_i64(HOST_TILE_ROWS, seq - i);
    const int64_t end = args->causal ? i + n_rows : seq;
    float max[HOST_TILE_ROWS], sum[HOST_TILE_ROWS];
    for (int r = 0; r < HOST_TILE_ROWS; r++) {
        max[r] = -INFINITY;
        sum[r] = 0.0f;
    }
    memset(s->out, 0, (size_t)(HOST_TILE_ROWS * width) * sizeof *s->out);
    for (int64_t j = first_tile(args, i); j < end; j += HOST_TILE_KEYS) {
        struct tile tile = {i,
                            n_rows,
                            j,
                            min_i64(HOST_TILE_KEYS, seq - j),
                            args->causal,
                            args->window,
                            segments_at(args, b)};
        if (!tile_matters(&tile))
            continue;
        struct product qk = {s->scores,      s->query,       s->keys + j * args->head_dim,
                             HOST_TILE_KEYS, width,          1,
                             HOST_TILE_KEYS, args->head_dim, false};
        multiply_tiles(&qk, n_rows, HOST_TILE_KEYS);
        for (int64_t r = 0; r < n_rows; r++) {
            float *row = s->scores + r * HOST_TILE_KEYS;
            shape_scores(args, head, i + r, j, row, NULL);
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
    struct head out = head_at(args->out, args, b, args->n_heads, head);
    for (int64_t r = 0; r < n_rows; r++) {
        const bool blind = sum[r] == 0.0f; /* a row that saw a key has at least 1 */
        unpack_rows(&out, i + r, 1, s->out + r * width, blind ? 0.0f : 1.0f / sum[r]);
        args->lse[(b * args->n_heads + head) * seq + i + r] = blind ? 0.0f : max[r] + logf(sum[r]);
    }
}

static void tiles_attention_forward(const struct zinf_attention *args, int64_t b, int64_t head,
                                    float *scratch)
{
    const int64_t seq = args->seq, row_heads = args->n_heads + 2 * args->n_kv_heads;
    const int64_t padded_seq = (int64_t)zinf_align_up((uint64_t)seq, HOST_TILE_KEYS);
    const int64_t kv_head = head / (args->n_heads / args->n_kv_heads);
    struct head query = head_at(args->qkv, args, b, row_heads, head);
    struct head key = head_at(args->qkv, args, b, row_heads, args->n_heads + kv_head);
    struct head value =
        head_at(args->qkv, args, b, row_heads, args->n_heads + args->n_kv_heads + kv_head);
    const int64_t width = query.padded_dim;
    struct forward_scratch s;
    s.keys = scratch;
    s.values = s.keys + padded_seq * width;
    s.query = s.values + padded_seq * width;
    s.out = s.query + HOST_TILE_KEYS * width;
    s.scores = s.out + HOST_TILE_KEYS * width;
    s.factors = s.scores + HOST_TILE_ROWS * HOST_TILE_KEYS;
    for (int64_t j = 0; j < seq; j += HOST_TILE_KEYS) {
        /* query has room for one tile of keys and is not in use yet */
        pack_rows(s.query, &key, j, min_i64(HOST_TILE_KEYS, seq - j), HOST_TILE_KEYS, 1.0f);
        transpose_keys(s.keys + j * args->head_dim, s.query, args->head_dim, width);
    }
    pack_rows(s.values, &value, 0, seq, padded_seq, 1.0f);
    for (int64_t i = 0; i < seq; i += HOST_TILE_ROWS) {
        pack_rows(s.query, &query, i, min_i64(HOST_TILE_ROWS, seq - i), HOST_TILE_ROWS,
                  args->scale);
        forward_rows(args, b, head, i, &s, width);
    }
}
