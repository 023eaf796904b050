/*
 * host_tiles_relative: the terms of relative positions in the scores of a tile
 * (kernels/attention.h, zinf_relative) and their gradients. A query times all rows of the table
 * that its sequence uses is a small matrix, from which each score takes an element by distance; so
 * is a key times those rows. Part of host_tiles.h, without an include guard.
 */

/* One of the two terms, for one head. rows NULL: the term is absent. */
struct relative_term {
    float *rows;   /* [ld][width] */
    float *panels; /* [ld / HOST_TILE_KEYS][dim][HOST_TILE_KEYS]: the same, transposed in panels */
    float *d_rows; /* [ld][width], summed over samples */
};
struct relative {
    bool on;
    int64_t ld;       /* rows of the table that the sequence uses, rounded up to whole panels */
    int64_t first, n; /* the first of them, and their number */
    int32_t *at;      /* at[n]: row for a key n tokens before its query */
    int64_t dim, width, last; /* of a head, of packed rows; the last token */
    struct relative_term keys, queries;
    /* [..][ld]: queries times rows of `keys`, keys times rows of `queries`, and the gradients of
     * both. Forward has a block of the first, from first_query on, and all of the second; backward
     * has all of the first and a tile of the second, from first_key on. */
    float *by_query, *by_key, *d_by_query, *d_by_key;
    int64_t first_query, first_key;
};

/* ---- rows by distance ---- */

static void find_rows(struct relative *rel, const struct zinf_relative *table)
{
    const int64_t half = table->half;
    int64_t bucket = 0;
    for (int64_t n = 0; n <= rel->last; n++) {
        while (bucket < half && table->starts[bucket + 1] <= n)
            bucket++;
        rel->at[n] = (int32_t)min_i64(half + bucket, 2 * half - 1);
        rel->at[-n] = (int32_t)(half - bucket);
    }
    rel->first = rel->at[-rel->last];
    rel->n = rel->at[rel->last] - rel->first + 1;
    for (int64_t n = -rel->last; n <= rel->last; n++)
        rel->at[n] -= (int32_t)rel->first;
}

/* Rows that queries [i, i_end) and keys [j, j_end) need, from a multiple of REGISTER_ROWS on. */
struct relative_range {
    int64_t first, end;
};

static struct relative_range range_of(const struct relative *rel, int64_t i, int64_t i_end,
                                      int64_t j, int64_t j_end)
{
    const int64_t first = rel->at[i - j_end + 1], end = rel->at[i_end - 1 - j] + 1;
    return (struct relative_range){first / REGISTER_ROWS * REGISTER_ROWS, end};
}

static struct relative_range range_of_queries(const struct relative *rel, int64_t i, int64_t n)
{
    return range_of(rel, i, i + n, 0, rel->last + 1);
}

static struct relative_range range_of_keys(const struct relative *rel, int64_t j, int64_t n)
{
    return range_of(rel, 0, rel->last + 1, j, j + n);
}

/* ---- opening ---- */

/* The head's columns in rows of the table or of its gradient. */
static struct head table_at(const void *base, const struct zinf_attention *args, int64_t head)
{
    struct head h = head_at(base, args, 0, 0, head);
    h.stride = args->relative->ld;
    return h;
}

/* Takes working memory for a term, unless its rows are NULL; returns the rest. */
static float *open_term(struct relative_term *term, const struct relative *rel, const void *rows,
                        const struct head *table, float factor, float *scratch)
{
    const int64_t n = rel->ld * rel->width;
    *term = (struct relative_term){.rows = NULL};
    if (!rows)
        return scratch + 3 * n;
    *term = (struct relative_term){scratch, scratch + n, scratch + 2 * n};
    pack_rows(term->rows, table, rel->first, rel->n, rel->ld, factor);
    for (int64_t row = 0; row < rel->ld; row += HOST_TILE_KEYS)
        transpose_keys(term->panels + row * rel->dim, term->rows + row * rel->width, rel->dim,
                       rel->width);
    return scratch + 3 * n;
}

/* scratch: behind that of plain attention. Packed queries are scaled already; here rows for queries
 * are scaled and those for keys are not. */
static struct relative relative_open(const struct zinf_attention *args, int64_t head, bool backward,
                                     float *scratch)
{
    const struct zinf_relative *table = args->relative;
    const int64_t padded = (int64_t)zinf_align_up((uint64_t)args->seq, HOST_TILE_KEYS);
    struct relative rel = {.on = table != NULL};
    if (!table)
        return rel;
    const struct head keys = table_at(table->keys, args, head);
    const struct head queries = table_at(table->queries, args, head);
    rel.ld = (int64_t)host_relative_rows(args);
    rel.last = args->seq - 1;
    rel.dim = args->head_dim;
    rel.width = keys.padded_dim;
    scratch += host_attention_plain_floats(args);
    rel.at = (int32_t *)(void *)scratch + rel.last;
    find_rows(&rel, table);
    scratch = open_term(&rel.keys, &rel, table->keys, &keys, 1.0f, scratch + 2 * padded);
    scratch = open_term(&rel.queries, &rel, table->queries, &queries, args->scale, scratch);
    float *all = scratch, *other = all + padded * rel.ld, *tile = other + padded * rel.ld;
    rel.by_query = backward ? all : other;
    rel.by_key = backward ? tile : all;
    rel.d_by_query = other;
    rel.d_by_key = tile + HOST_TILE_KEYS * rel.ld;
    return rel;
}

/* ---- scores ---- */

/* y [n][ld] = x [n][width] times the term's rows within the range. */
static void multiply_term(const struct relative *rel, const struct relative_term *term,
                          struct relative_range range, const float *x, int64_t n, float *y)
{
    int64_t row = range.first / HOST_TILE_KEYS * HOST_TILE_KEYS;
    for (; row < range.end; row += HOST_TILE_KEYS) {
        const struct product p = {
            .c = y + row,
            .a = x,
            .b = term->panels + row * rel->dim,
            .c_stride = rel->ld,
            .row_stride = rel->width,
            .depth_stride = 1,
            .b_stride = HOST_TILE_KEYS,
            .depth = rel->dim,
        };
        multiply_tiles(&p, n, HOST_TILE_KEYS);
    }
}

/* Multiplies packed, scaled queries from row i on into by_query. */
static void relative_see_keys(const struct relative *rel, const float *queries, int64_t i,
                              int64_t n)
{
    if (rel->keys.rows)
        multiply_term(rel, &rel->keys, range_of_queries(rel, i, n), queries, n,
                      rel->by_query + (i - rel->first_query) * rel->ld);
}

/* Multiplies HOST_TILE_KEYS packed keys from row j on, with padding, into by_key. */
static void relative_see_queries(const struct relative *rel, const float *keys, int64_t j,
                                 int64_t n)
{
    if (rel->queries.rows)
        multiply_term(rel, &rel->queries, range_of_keys(rel, j, n), keys, HOST_TILE_KEYS,
                      rel->by_key + (j - rel->first_key) * rel->ld);
}

/* Adds the terms to the scores of row r of the tile. */
static inline void relative_add(const struct relative *rel, const struct tile *tile, int64_t r,
                                float *scores)
{
    if (!rel->on)
        return;
    const int64_t i = tile->i + r, ld = rel->ld;
    const int32_t *at = rel->at + (i - tile->j);
    const float *by_query = rel->by_query + (i - rel->first_query) * ld;
    const float *by_key = rel->by_key + (tile->j - rel->first_key) * ld;
    if (rel->keys.rows) {
#pragma omp simd
        for (int64_t k = 0; k < tile->n_keys; k++)
            scores[k] += by_query[at[-k]];
    }
    if (rel->queries.rows) {
#pragma omp simd
        for (int64_t k = 0; k < tile->n_keys; k++)
            scores[k] += by_key[k * ld + at[-k]];
    }
}

/* ---- gradients ---- */

/* Adds the gradient of row r's scores. Distant keys share a row of the table, so this goes one by
 * one. */
static void relative_add_gradient(const struct relative *rel, const struct tile *tile, int64_t r,
                                  const float *d_scores)
{
    if (!rel->on)
        return;
    const int64_t i = tile->i + r, ld = rel->ld;
    const int32_t *at = rel->at + (i - tile->j);
    float *d_by_query = rel->d_by_query + i * ld, *d_by_key = rel->d_by_key;
    if (rel->keys.rows)
        for (int64_t k = 0; k < tile->n_keys; k++)
            d_by_query[at[-k]] += d_scores[k];
    if (rel->queries.rows)
        for (int64_t k = 0; k < tile->n_keys; k++)
            d_by_key[k * ld + at[-k]] += d_scores[k];
}

/* y = x rows, with the gradient d_y of y. */
struct relative_product {
    const struct relative_term *term;
    struct relative_range range;
    const float *x, *d_y; /* [n][width], [n][ld] */
    float *d_x;           /* [n][width] */
    int64_t n;
};

/* Adds the gradients of x and of the rows. d_y is zero outside the range. */
static void product_backward(const struct relative *rel, const struct relative_product *y)
{
    const int64_t first = y->range.first, n_rows = y->range.end - first;
    const struct product d_x = {
        .c = y->d_x,
        .a = y->d_y + first,
        .b = y->term->rows + first * rel->width,
        .c_stride = rel->width,
        .row_stride = rel->ld,
        .depth_stride = 1,
        .b_stride = rel->width,
        .depth = n_rows,
        .add = true,
    };
    const struct product d_rows = {
        .c = y->term->d_rows + first * rel->width,
        .a = y->d_y + first,
        .b = y->x,
        .c_stride = rel->width,
        .row_stride = 1,
        .depth_stride = rel->ld,
        .b_stride = rel->width,
        .depth = y->n,
        .add = true,
    };
    multiply_tiles(&d_x, y->n, rel->width);
    multiply_tiles(&d_rows, n_rows, rel->width);
}

static void clear(float *values, int64_t n)
{
    memset(values, 0, (size_t)n * sizeof *values);
}

/* Begins backward of a sample with its packed queries. */
static void relative_begin(const struct relative *rel, int64_t sample, const float *queries)
{
    const int64_t n = rel->ld * rel->width, seq = rel->last + 1;
    if (rel->keys.rows && !sample)
        clear(rel->keys.d_rows, n);
    if (rel->queries.rows && !sample)
        clear(rel->queries.d_rows, n);
    if (!rel->keys.rows)
        return;
    for (int64_t i = 0; i < seq; i += HOST_TILE_ROWS)
        relative_see_keys(rel, queries + i * rel->width, i, min_i64(HOST_TILE_ROWS, seq - i));
    clear(rel->d_by_query, (int64_t)zinf_align_up((uint64_t)seq, HOST_TILE_KEYS) * rel->ld);
}

/* Begins a tile of n keys from j on, packed in rows; and ends it, adding to d_keys. */
static void relative_begin_keys(struct relative *rel, const float *keys, int64_t j, int64_t n)
{
    if (!rel->queries.rows)
        return;
    rel->first_key = j;
    relative_see_queries(rel, keys, j, n);
    clear(rel->d_by_key, HOST_TILE_KEYS * rel->ld);
}

static void relative_end_keys(const struct relative *rel, const float *keys, int64_t n,
                              float *d_keys)
{
    if (!rel->queries.rows)
        return;
    const struct relative_product y = {
        .term = &rel->queries,
        .range = range_of_keys(rel, rel->first_key, n),
        .x = keys,
        .d_y = rel->d_by_key,
        .d_x = d_keys,
        .n = n,
    };
    product_backward(rel, &y);
}

/* Ends the sample: adds to d_queries. */
static void relative_end(const struct relative *rel, const float *queries, float *d_queries)
{
    const int64_t seq = rel->last + 1;
    for (int64_t i = 0; rel->keys.rows && i < seq; i += HOST_TILE_ROWS) {
        const int64_t n = min_i64(HOST_TILE_ROWS, seq - i);
        const struct relative_product y = {
            .term = &rel->keys,
            .range = range_of_queries(rel, i, n),
            .x = queries + i * rel->width,
            .d_y = rel->d_by_query + i * rel->ld,
            .d_x = d_queries + i * rel->width,
            .n = n,
        };
        product_backward(rel, &y);
    }
}

/* Stores the gradient of a term's rows, zero for rows that the sequence does not use. */
static void close_term(const struct relative *rel, const struct relative_term *term,
                       const struct head *table, int64_t n_rows, float factor)
{
    const size_t bytes = (size_t)rel->dim * zinf_dtype_bytes(table->dtype);
    if (!term->rows)
        return;
    for (int64_t row = 0; row < n_rows; row++)
        if (row < rel->first || row >= rel->first + rel->n)
            memset(head_row(table, row), 0, bytes);
    unpack_rows(table, rel->first, rel->n, term->d_rows, factor);
}

/* Call it when all samples have ended. */
static void relative_close(const struct relative *rel, const struct zinf_attention *args,
                           int64_t head)
{
    if (!rel->on)
        return;
    const struct head keys = table_at(args->relative->d_keys, args, head);
    const struct head queries = table_at(args->relative->d_queries, args, head);
    close_term(rel, &rel->keys, &keys, 2 * args->relative->half, 1.0f);
    close_term(rel, &rel->queries, &queries, 2 * args->relative->half, args->scale);
}
