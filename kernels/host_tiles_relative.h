/*
 * host_tiles_relative: the terms of relative positions in the scores of a tile
 * (kernels/attention.h, zinf_relative) and their gradients. A query times all rows of the table
 * that its sequence uses is a small matrix, from which each score takes an element by distance; so
 * is a key times those rows. Queries and keys are counted from 0 in each call, also where they are
 * parts of a sequence: their distances alone go by their places in it. Part of host_tiles.h,
 * without an include guard.
 */

/* One of the two terms, for one head. rows NULL: the term is absent. */
struct relative_term {
    float *rows;   /* [ld][width] */
    float *panels; /* [ld / HOST_TILE_KEYS][dim][HOST_TILE_KEYS]: the same, transposed in panels */
    float *d_rows; /* [ld][width], summed over samples, and over calls where keys come by several */
};
struct relative {
    bool on;
    int64_t ld;            /* rows of the table that the call uses, rounded up to whole panels */
    int64_t first, n;      /* the first of them, and their number */
    int32_t *at;           /* at[i - j]: row for query i and key j */
    int64_t dim, width;    /* of a head, of packed rows */
    int64_t seq, keys_seq; /* numbers of queries and of keys */
    struct relative_term keys, queries;
    /* [..][ld]: queries times rows of `keys`, keys times rows of `queries`, and the gradients of
     * both. Forward has a block of the first, from first_query on, and all of the second; backward
     * has all of the first and a tile of the second, from first_key on. */
    float *by_query, *by_key, *d_by_query, *d_by_key;
    int64_t first_query, first_key;
};

/* ---- rows by distance ---- */

/* The least distance with the row or one behind it: how many tokens a key is before its query. */
static int64_t least_distance(const struct zinf_relative *table, int64_t row)
{
    const int64_t behind = table->half - row; /* the bucket of keys behind their queries */
    if (behind < 0)
        return table->starts[-behind];
    const int64_t least = behind < table->half ? 1 - (int64_t)table->starts[behind + 1] : INT64_MIN;
    return least < 0 ? least : 0;
}

/* ahead: by how many tokens query 0 is behind key 0. */
static void find_rows(struct relative *rel, const struct zinf_relative *table, int64_t ahead)
{
    int64_t row = 0;
    for (int64_t n = 1 - rel->keys_seq; n < rel->seq; n++) {
        while (row + 1 < 2 * table->half && least_distance(table, row + 1) <= n + ahead)
            row++;
        rel->at[n] = (int32_t)row;
    }
    rel->first = rel->at[1 - rel->keys_seq];
    rel->n = rel->at[rel->seq - 1] - rel->first + 1;
    for (int64_t n = 1 - rel->keys_seq; n < rel->seq; n++)
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
    return range_of(rel, i, i + n, 0, rel->keys_seq);
}

/* Of those keys that are there: j may be before key 0. */
static struct relative_range range_of_keys(const struct relative *rel, int64_t j, int64_t n)
{
    return range_of(rel, 0, rel->seq, j < 0 ? 0 : j, j + n);
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
    struct relative rel = {.on = table != NULL};
    if (!table)
        return rel;
    const struct host_relative_size size = host_relative_size(args);
    const struct head keys = table_at(table->keys, args, head);
    const struct head queries = table_at(table->queries, args, head);
    rel.ld = (int64_t)size.rows;
    rel.seq = args->seq;
    rel.keys_seq = zinf_attention_keys(args);
    rel.dim = args->head_dim;
    rel.width = keys.padded_dim;
    scratch += host_attention_plain_floats(args);
    rel.at = (int32_t *)(void *)scratch + rel.keys_seq - 1;
    find_rows(&rel, table, zinf_attention_ahead(args));
    scratch = open_term(&rel.keys, &rel, table->keys, &keys, 1.0f, scratch + size.distances);
    scratch = open_term(&rel.queries, &rel, table->queries, &queries, args->scale, scratch);
    float *all = scratch, *other = all + size.all * size.rows, *tile = other + size.seq * size.rows;
    rel.by_query = backward ? all : other;
    rel.by_key = backward ? tile : all;
    rel.d_by_query = other;
    rel.d_by_key = tile + HOST_TILE_KEYS * rel.ld;
    rel.first_key = -host_attention_front(args);
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

/* Multiplies HOST_TILE_KEYS packed keys from row j on into by_key: n of them with those before key
 * 0, then padding. */
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
    const int64_t first = tile->j < 0 ? -tile->j : 0;
    if (rel->keys.rows) {
#pragma omp simd
        for (int64_t k = first; k < tile->n_keys; k++)
            scores[k] += by_query[at[-k]];
    }
    if (rel->queries.rows) {
#pragma omp simd
        for (int64_t k = first; k < tile->n_keys; k++)
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

/* Where a head's gradients of the rows of `keys` are between calls; queries: of `queries`. */
static struct head row_sums_at(const struct zinf_attention *args, int64_t head, bool queries)
{
    const int64_t dim = args->head_dim, cols = args->n_heads * dim;
    const int64_t term = queries ? 2 * args->relative->half * cols : 0;
    return (struct head){.base = (char *)(args->running->rows + term + head * dim),
                         .dtype = ZINF_DTYPE_F32,
                         .stride = cols,
                         .dim = dim,
                         .padded_dim = (int64_t)zinf_align_up((uint64_t)dim, HOST_TILE_ALIGN)};
}

/* The gradient of the term's rows begins with 0, or with the sums of earlier calls. */
static void begin_term(const struct relative *rel, const struct relative_term *term,
                       const struct zinf_attention *args, int64_t head)
{
    if (!term->rows)
        return;
    clear(term->d_rows, rel->ld * rel->width);
    if (!args->running || args->running->first)
        return;
    const struct head sums = row_sums_at(args, head, term == &rel->queries);
    pack_rows(term->d_rows, &sums, rel->first, rel->n, rel->n, 1.0f);
}

/* Begins backward of a sample of the head with its packed queries. */
static void relative_begin(const struct relative *rel, const struct zinf_attention *args,
                           int64_t sample, int64_t head, const float *queries)
{
    const int64_t seq = rel->seq;
    if (rel->on && !sample) {
        begin_term(rel, &rel->keys, args, head);
        begin_term(rel, &rel->queries, args, head);
    }
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
    const int64_t seq = rel->seq;
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

/* The rows that the call does not use have no gradient. */
static void clear_others(const struct relative *rel, const struct head *rows, int64_t n_rows)
{
    const size_t bytes = (size_t)rel->dim * zinf_dtype_bytes(rows->dtype);
    for (int64_t row = 0; row < n_rows; row++)
        if (row < rel->first || row >= rel->first + rel->n)
            memset(head_row(rows, row), 0, bytes);
}

/* Stores the gradient of all rows from the sums over calls. */
static void store_sums(const struct relative *rel, const struct relative_term *term,
                       const struct head *sums, const struct head *to, int64_t n_rows, float factor)
{
    for (int64_t row = 0; row < n_rows; row += rel->ld) {
        const int64_t n = min_i64(rel->ld, n_rows - row);
        pack_rows(term->d_rows, sums, row, n, n, 1.0f);
        unpack_rows(to, row, n, term->d_rows, factor);
    }
}

/* Stores the gradient of a term's rows where it is wanted, or leaves it to the next call. */
static void close_term(const struct relative *rel, const struct relative_term *term,
                       const struct zinf_attention *args, int64_t head)
{
    const bool of_queries = term == &rel->queries;
    const struct zinf_attention_running *running = args->running;
    const int64_t n_rows = 2 * args->relative->half;
    const float factor = of_queries ? args->scale : 1.0f;
    if (!term->rows)
        return;
    const struct head to =
        table_at(of_queries ? args->relative->d_queries : args->relative->d_keys, args, head);
    const struct head sums = running ? row_sums_at(args, head, of_queries) : to;
    if (!running || running->first)
        clear_others(rel, &sums, n_rows);
    unpack_rows(&sums, rel->first, rel->n, term->d_rows, running ? 1.0f : factor);
    if (running && running->last)
        store_sums(rel, term, &sums, &to, n_rows, factor);
}

/* Call it when all samples have ended. */
static void relative_close(const struct relative *rel, const struct zinf_attention *args,
                           int64_t head)
{
    if (!rel->on)
        return;
    close_term(rel, &rel->keys, args, head);
    close_term(rel, &rel->queries, args, head);
}
