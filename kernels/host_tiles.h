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
    int64_t window; /* as in zinf_attention */
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

/* The masked scores of a row become -infinity. */
static inline void mask_row(float *scores, struct visible visible)
{
    for (int64_t j = 0; j < visible.first; j++)
        scores[j] = -INFINITY;
    for (int64_t j = visible.end; j < HOST_TILE_KEYS; j++)
        scores[j] = -INFINITY;
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
        struct tile tile = {i,           n_rows, j, min_i64(HOST_TILE_KEYS, seq - j), args->causal,
                            args->window};
        struct product qk = {s->scores,      s->query,       s->keys + j * args->head_dim,
                             HOST_TILE_KEYS, width,          1,
                             HOST_TILE_KEYS, args->head_dim, false};
        multiply_tiles(&qk, n_rows, HOST_TILE_KEYS);
        for (int64_t r = 0; r < n_rows; r++) {
            float *row = s->scores + r * HOST_TILE_KEYS;
            softmax_row(row, visible_keys(&tile, r), &max[r], &sum[r], s->out + r * width, width);
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
        unpack_rows(&out, i + r, 1, s->out + r * width, 1.0f / sum[r]);
        args->lse[(b * args->n_heads + head) * seq + i + r] = max[r] + logf(sum[r]);
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

/* ---- backward ---- */

struct backward_scratch {
    float *query, *d_out, *d_query; /* [seq][width], one query head */
    float *d_key, *d_value;         /* [seq][width], summed over the query heads of a key head */
    float *lse, *delta;             /* [seq]; delta = rowsum(dO * O) */
    float *key, *key_t, *value_t;   /* one tile of keys, in both orders */
    float *p, *dp, *factors;        /* [HOST_TILE_ROWS][HOST_TILE_KEYS], factors one row */
    int64_t width;
};

/* Scores and dP of a tile become P (with dropout) and dS in place. */
static void gradient_row(float *p, float *dp, const float *factors, struct visible visible,
                         float lse, float delta)
{
    mask_row(p, visible);
    if (factors) {
#pragma omp simd
        for (int j = 0; j < HOST_TILE_KEYS; j++) {
            float probability = exp_f32(p[j] - lse);
            p[j] = probability * factors[j];
            dp[j] = probability * (dp[j] * factors[j] - delta);
        }
    } else {
#pragma omp simd
        for (int j = 0; j < HOST_TILE_KEYS; j++) {
            p[j] = exp_f32(p[j] - lse);
            dp[j] = p[j] * (dp[j] - delta);
        }
    }
}

static void backward_tile(const struct zinf_attention *args, int64_t b, int64_t head,
                          const struct tile *tile, const struct backward_scratch *s)
{
    const int64_t width = s->width, dim = args->head_dim;
    float *query = s->query + tile->i * width, *d_out = s->d_out + tile->i * width;
    struct product scores = {s->p, query,          s->key_t, HOST_TILE_KEYS, width,
                             1,    HOST_TILE_KEYS, dim,      false};
    struct product d_scores = {s->dp, d_out,          s->value_t, HOST_TILE_KEYS, width,
                               1,     HOST_TILE_KEYS, dim,        false};
    multiply_tiles(&scores, tile->n_rows, HOST_TILE_KEYS);
    multiply_tiles(&d_scores, tile->n_rows, HOST_TILE_KEYS);
    for (int64_t r = 0; r < tile->n_rows; r++) {
        if (args->dropout.p > 0.0f)
            tile_factors(s->factors, args, b, head, tile->i + r, tile->j);
        gradient_row(s->p + r * HOST_TILE_KEYS, s->dp + r * HOST_TILE_KEYS,
                     args->dropout.p > 0.0f ? s->factors : NULL, visible_keys(tile, r),
                     s->lse[tile->i + r], s->delta[tile->i + r]);
    }
    struct product d_value = {s->d_value + tile->j * width,
                              s->p,
                              d_out,
                              width,
                              1,
                              HOST_TILE_KEYS,
                              width,
                              tile->n_rows,
                              true};
    struct product d_key = {s->d_key + tile->j * width,
                            s->dp,
                            query,
                            width,
                            1,
                            HOST_TILE_KEYS,
                            width,
                            tile->n_rows,
                            true};
    struct product d_query = {s->d_query + tile->i * width,
                              s->dp,
                              s->key,
                              width,
                              HOST_TILE_KEYS,
                              1,
                              width,
                              tile->n_keys,
                              true};
    multiply_tiles(&d_value, HOST_TILE_KEYS, width);
    multiply_tiles(&d_key, HOST_TILE_KEYS, width);
    multiply_tiles(&d_query, tile->n_rows, width);
}

static void backward_head(const struct zinf_attention *args, int64_t b, int64_t head,
                          const struct head *key, const struct head *value,
                          const struct backward_scratch *s)
{
    const int64_t seq = args->seq, width = s->width;
    for (int64_t j = 0; j < seq; j += HOST_TILE_KEYS) {
        int64_t n_keys = min_i64(HOST_TILE_KEYS, seq - j);
        pack_rows(s->key, value, j, n_keys, HOST_TILE_KEYS, 1.0f);
        transpose_keys(s->value_t, s->key, args->head_dim, width);
        pack_rows(s->key, key, j, n_keys, HOST_TILE_KEYS, 1.0f);
        transpose_keys(s->key_t, s->key, args->head_dim, width);
        /* rows above the diagonal see none of these keys; HOST_TILE_KEYS is a multiple of ROWS;
         * nor do those that are a window behind the last one */
        const int64_t end = args->window && args->window < seq - j - n_keys + 1
                                ? j + n_keys - 1 + args->window
                                : seq;
        for (int64_t i = args->causal ? j : 0; i < end; i += HOST_TILE_ROWS) {
            struct tile tile = {
                i, min_i64(HOST_TILE_ROWS, seq - i), j, n_keys, args->causal, args->window};
            backward_tile(args, b, head, &tile, s);
        }
    }
}

/* Packs one query head: scaled Q, dO, delta, and zeroed dQ. */
static void backward_prepare(const struct zinf_attention *args, int64_t b, int64_t head,
                             const struct backward_scratch *s, int64_t padded_seq)
{
    const int64_t seq = args->seq, width = s->width;
    struct head query = head_at(args->qkv, args, b, args->n_heads + 2 * args->n_kv_heads, head);
    struct head d_out = head_at(args->d_out, args, b, args->n_heads, head);
    struct head out = head_at(args->out, args, b, args->n_heads, head);
    pack_rows(s->query, &query, 0, seq, padded_seq, args->scale);
    pack_rows(s->d_out, &d_out, 0, seq, padded_seq, 1.0f);
    pack_rows(s->d_query, &out, 0, seq, padded_seq, 1.0f);
    for (int64_t i = 0; i < seq; i++) {
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (int64_t c = 0; c < width; c++)
            sum += s->d_out[i * width + c] * s->d_query[i * width + c];
        s->delta[i] = sum;
        s->lse[i] = args->lse[(b * args->n_heads + head) * seq + i];
    }
    memset(s->d_query, 0, (size_t)(padded_seq * width) * sizeof *s->d_query);
}

static void tiles_attention_backward(const struct zinf_attention *args, int64_t b, int64_t kv_head,
                                     float *scratch)
{
    const int64_t seq = args->seq, row_heads = args->n_heads + 2 * args->n_kv_heads;
    const int64_t padded_seq = (int64_t)zinf_align_up((uint64_t)seq, HOST_TILE_KEYS);
    const int64_t group = args->n_heads / args->n_kv_heads;
    const int64_t key_at = args->n_heads + kv_head, value_at = key_at + args->n_kv_heads;
    struct head key = head_at(args->qkv, args, b, row_heads, key_at);
    struct head value = head_at(args->qkv, args, b, row_heads, value_at);
    struct head d_key = head_at(args->d_qkv, args, b, row_heads, key_at);
    struct head d_value = head_at(args->d_qkv, args, b, row_heads, value_at);
    const int64_t width = key.padded_dim, matrix = padded_seq * width;
    const int64_t panel = HOST_TILE_KEYS * width, tile = HOST_TILE_ROWS * HOST_TILE_KEYS;
    struct backward_scratch s = {.width = width};
    s.query = scratch;
    s.d_out = s.query + matrix;
    s.d_query = s.d_out + matrix;
    s.d_key = s.d_query + matrix;
    s.d_value = s.d_key + matrix;
    s.lse = s.d_value + matrix;
    s.delta = s.lse + padded_seq;
    s.key = s.delta + padded_seq;
    s.key_t = s.key + panel;
    s.value_t = s.key_t + panel;
    s.p = s.value_t + panel;
    s.dp = s.p + tile;
    s.factors = s.dp + tile;
    memset(s.d_key, 0, (size_t)(2 * matrix) * sizeof *s.d_key);
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++) {
        struct head d_query = head_at(args->d_qkv, args, b, row_heads, head);
        backward_prepare(args, b, head, &s, padded_seq);
        backward_head(args, b, head, &key, &value, &s);
        unpack_rows(&d_query, 0, seq, s.d_query, args->scale);
    }
    unpack_rows(&d_key, 0, seq, s.d_key, 1.0f);
    unpack_rows(&d_value, 0, seq, s.d_value, 1.0f);
}
