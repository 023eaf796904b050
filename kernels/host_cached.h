/*
 * host_cached: attention of a few new rows over the cached keys and values of their sequence.
 * Included once by each per-ISA file, behind host_rows.h. All query heads that share a key head go
 * through the cache together, tile by tile with a running maximum and sum (Milakov and Gimelshein,
 * arXiv 1805.02867), so every key and value is read once.
 */

/* The queries of n_rows consecutive rows of a sequence, and of the heads that share a key head.
 * Query q is head q % group of row q / group. */
struct cached_queries {
    const struct zinf_attention_cached *args;
    /* first row, number of rows, and last position that the first row sees */
    int64_t row, n_rows, position;
    int64_t step; /* how many more positions each next row sees: 1, or 0 for a source */
    int64_t kv_head, group, n;
    float *query, *out, *scores; /* [n][head_dim], [n][head_dim], [n][HOST_TILE_KEYS] */
    float *max, *sum;            /* [n] */
    float *keys, *values;        /* a tile, if it must be converted to fp32 */
};

/* Offset in elements of a query's head in rows of `heads` heads. */
static size_t cached_offset(const struct cached_queries *w, int64_t q, int64_t heads)
{
    const int64_t head = w->kv_head * w->group + q % w->group;
    return (size_t)(((w->row + q / w->group) * heads + head) * w->args->head_dim);
}

static void cached_begin(struct cached_queries *w)
{
    const struct zinf_attention_cached *a = w->args;
    const int64_t dim = a->head_dim, heads = a->n_heads + (a->source ? 0 : 2 * a->n_kv_heads);
    for (int64_t q = 0; q < w->n; q++) {
        float *query = w->query + q * dim;
        loop_to_f32(query,
                    (const char *)a->qkv + cached_offset(w, q, heads) * zinf_dtype_bytes(a->dtype),
                    a->dtype, (size_t)dim);
        for (int64_t c = 0; c < dim; c++)
            query[c] *= a->scale;
        w->max[q] = -INFINITY;
        w->sum[q] = 0.0f;
    }
    memset(w->out, 0, (size_t)(w->n * dim) * sizeof *w->out);
}

/* Keys, or values, from a slot on, in fp32. */
static const float *cached_tile(const struct cached_queries *w, bool values, int64_t slot,
                                int64_t n)
{
    const struct zinf_attention_cached *a = w->args;
    const int64_t plane = (a->sequences[w->row] * 2 + values) * a->n_kv_heads + w->kv_head;
    const size_t first = (size_t)((plane * a->capacity + slot) * a->head_dim);
    const char *at = (const char *)a->cache + first * zinf_dtype_bytes(a->dtype);
    float *wide = values ? w->values : w->keys;
    if (a->dtype == ZINF_DTYPE_F32)
        return (const float *)(const void *)at;
    loop_to_f32(wide, at, a->dtype, (size_t)(n * a->head_dim));
    return wide;
}

/* Adds the bias of keys at positions [first, first + n) that the query sees. */
static void cached_bias(const struct cached_queries *w, int64_t q, int64_t first, int64_t n)
{
    const struct zinf_attention_cached *a = w->args;
    const int64_t position = w->position + q / w->group, seen = min_i64(n, position + 1 - first);
    const int64_t head = w->kv_head * w->group + q % w->group;
    const float *bias = a->bias + (head + 1) * a->capacity - 1 + first - position;
    float *scores = w->scores + q * HOST_TILE_KEYS;
    for (int64_t j = 0; j < seen; j++)
        scores[j] += bias[j];
}

/* Applies softcap, slopes, bias and mask to the scores of a query with the keys at positions
 * [first, first + n). */
static void cached_mask(const struct cached_queries *w, int64_t q, int64_t first, int64_t n)
{
    const struct zinf_attention_cached *a = w->args;
    const int64_t position = w->position + w->step * (q / w->group);
    const int64_t oldest = zinf_cached_first(a->piece, a->window, position);
    float *scores = w->scores + q * HOST_TILE_KEYS;
    if (a->softcap > 0.0f)
        for (int64_t j = 0; j < n; j++)
            scores[j] = a->softcap * tanhf(scores[j] / a->softcap);
    if (a->slopes) {
        const float slope = a->slopes[w->kv_head * w->group + q % w->group];
        for (int64_t j = 0; j < n; j++)
            scores[j] += slope * (float)(first + j - position);
    }
    if (a->bias)
        cached_bias(w, q, first, n);
    for (int64_t j = 0; j < n; j++)
        if (first + j > position || first + j < oldest)
            scores[j] = -INFINITY;
}

/* Replaces a row of scores by exp(score - max) and scales earlier results to the new maximum. */
static void cached_softmax(const struct cached_queries *w, int64_t q, int64_t n)
{
    const int64_t dim = w->args->head_dim;
    float *scores = w->scores + q * HOST_TILE_KEYS, *out = w->out + q * dim;
    float top = w->max[q], total = 0.0f;
#pragma omp simd reduction(max : top)
    for (int64_t j = 0; j < n; j++)
        top = scores[j] > top ? scores[j] : top;
    if (top == -INFINITY) { /* it sees nothing of this tile and of earlier ones */
        memset(scores, 0, (size_t)n * sizeof *scores);
        return;
    }
#pragma omp simd reduction(+ : total)
    for (int64_t j = 0; j < n; j++) {
        scores[j] = exp_f32(scores[j] - top);
        total += scores[j];
    }
    if (top != w->max[q]) {
        const float shrink = exp_f32(w->max[q] - top);
        w->sum[q] *= shrink;
#pragma omp simd
        for (int64_t c = 0; c < dim; c++)
            out[c] *= shrink;
    }
    w->max[q] = top;
    w->sum[q] += total;
}

/* Adds each row of values times its probability to out. */
static void cached_add(const struct cached_queries *w, int64_t q, const float *values, int64_t n)
{
    const int64_t dim = w->args->head_dim;
    const float *p = w->scores + q * HOST_TILE_KEYS;
    float *out = w->out + q * dim;
    int64_t j = 0;
    for (; j + 4 <= n; j += 4) {
        const float *v = values + j * dim;
#pragma omp simd
        for (int64_t c = 0; c < dim; c++)
            out[c] += p[j] * v[c] + p[j + 1] * v[dim + c] + p[j + 2] * v[2 * dim + c] +
                      p[j + 3] * v[3 * dim + c];
    }
    for (; j < n; j++) {
#pragma omp simd
        for (int64_t c = 0; c < dim; c++)
            out[c] += p[j] * values[j * dim + c];
    }
}

static void cached_end(const struct cached_queries *w)
{
    const struct zinf_attention_cached *a = w->args;
    for (int64_t q = 0; q < w->n; q++) {
        float *out = w->out + q * a->head_dim;
        const float factor = 1.0f / w->sum[q];
        if (a->lse)
            a->lse[cached_offset(w, q, a->n_heads) / (size_t)a->head_dim] =
                w->max[q] + logf(w->sum[q]);
        for (int64_t c = 0; c < a->head_dim; c++)
            out[c] *= factor;
        loop_from_f32((char *)a->out + cached_offset(w, q, a->n_heads) * zinf_dtype_bytes(a->dtype),
                      a->dtype, out, (size_t)a->head_dim);
    }
}

static void cached_attention(const struct zinf_attention_cached *a, int64_t row, int64_t n_rows,
                             int64_t kv_head, float *scratch)
{
    const int64_t group = a->n_heads / a->n_kv_heads, n = n_rows * group, dim = a->head_dim;
    struct cached_queries w = {
        .args = a,
        .row = row,
        .n_rows = n_rows,
        .position = a->source ? a->source->lengths[a->sequences[row]] - 1 : a->positions[row],
        .step = !a->source,
        .kv_head = kv_head,
        .group = group,
        .n = n,
        .query = scratch,
    };
    const int64_t last = w.position + w.step * (n_rows - 1);
    int64_t first = zinf_cached_first(a->piece, a->window, w.position);
    w.out = w.query + n * dim;
    w.scores = w.out + n * dim;
    w.max = w.scores + n * HOST_TILE_KEYS;
    w.sum = w.max + n;
    w.keys = w.sum + n;
    w.values = w.keys + HOST_TILE_KEYS * dim;
    cached_begin(&w);
    for (int64_t count; first <= last; first += count) {
        const int64_t slot = first % a->capacity; /* a tile ends at the end of the ring buffer */
        count = min_i64(min_i64(HOST_TILE_KEYS, last + 1 - first), a->capacity - slot);
        struct dots qk = {
            w.query, cached_tile(&w, false, slot, count), w.scores, dim, dim, HOST_TILE_KEYS, dim,
            false};
        multiply_dots(&qk, n, count);
        const float *values = cached_tile(&w, true, slot, count);
        for (int64_t q = 0; q < n; q++) {
            cached_mask(&w, q, first, count);
            cached_softmax(&w, q, count);
            cached_add(&w, q, values, count);
        }
    }
    cached_end(&w);
}
