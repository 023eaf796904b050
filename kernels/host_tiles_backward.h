/*
 * host_tiles_backward: the gradients of attention, tile by tile, with the products and packing of
 * host_tiles.h, which is included before. Without an include guard, since it is compiled once for
 * each instruction set.
 */
struct backward_scratch {
    /* one for all threads of a team */
    float *query, *d_out, *d_query; /* [seq][width] of one query head */
    float *d_key, *d_value;         /* [keys][width], summed over the query heads of a key head */
    float *lse, *delta;             /* [seq]; delta = rowsum(dO * O) */
    /* each thread's own */
    float *key, *key_t, *value_t; /* one tile of keys, and transposed ones of keys and values */
    float *p, *dp, *factors;      /* [HOST_TILE_ROWS][HOST_TILE_KEYS], factors one row */
    float
        *kept; /* dS [seq][HOST_TILE_KEYS] of its tile of keys; NULL: thread 0 adds to dQ itself */
    int64_t width;
    struct relative *relative;
};

/* Replaces scores and dP of a tile by P (with dropout) and dS. */
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

/* Adds the gradient of the bias by distance, from that of a row's scores. */
static void add_distances(const struct zinf_attention *args, int64_t b, int64_t head,
                          const struct tile *tile, int64_t r, const float *d_scores)
{
    const int64_t unit = b * args->n_heads + head;
    float *d_bias = args->d_bias + unit * zinf_attention_distances(args) + args->seq - 1 + tile->j -
                    tile->i - r;
#pragma omp simd
    for (int64_t k = 0; k < tile->n_keys; k++)
        d_bias[k] += d_scores[k];
}

/* Of a thread of the team. */
static struct backward_scratch backward_scratch_of(const struct zinf_attention *args,
                                                   const struct host_team *team, int thread)
{
    const int64_t padded_seq = (int64_t)zinf_align_up((uint64_t)args->seq, HOST_TILE_KEYS);
    const int64_t padded_keys =
        (int64_t)zinf_align_up((uint64_t)zinf_attention_keys(args), HOST_TILE_KEYS);
    const int64_t width = (int64_t)zinf_align_up((uint64_t)args->head_dim, HOST_TILE_ALIGN);
    const int64_t matrix = padded_seq * width, key_matrix = padded_keys * width;
    const int64_t panel = HOST_TILE_KEYS * width, tile = HOST_TILE_ROWS * HOST_TILE_KEYS;
    float *own = team_scratch(team, thread);
    struct backward_scratch s = {.width = width, .kept = thread ? own : NULL};
    s.query = team->scratch;
    s.d_out = s.query + matrix;
    s.d_query = s.d_out + matrix;
    s.d_key = s.d_query + matrix;
    s.d_value = s.d_key + key_matrix;
    s.lse = s.d_value + key_matrix;
    s.delta = s.lse + padded_seq;
    s.key = own + 3 * matrix + 2 * key_matrix + 2 * padded_seq;
    s.key_t = s.key + panel;
    s.value_t = s.key_t + panel;
    s.p = s.value_t + panel;
    s.dp = s.p + tile;
    s.factors = s.dp + tile;
    return s;
}

/* dQ += dS K. */
static void add_d_query(const struct tile *tile, const float *d_scores, const float *key,
                        const struct backward_scratch *s)
{
    struct product d_query = {s->d_query + tile->i * s->width,
                              d_scores,
                              key,
                              s->width,
                              HOST_TILE_KEYS,
                              1,
                              s->width,
                              tile->n_keys,
                              true,
                              false};
    multiply_tiles(&d_query, tile->n_rows, s->width);
}

static void backward_tile(const struct zinf_attention *args, int64_t b, int64_t head,
                          const struct tile *tile, const struct backward_scratch *s)
{
    const int64_t width = s->width, dim = args->head_dim;
    float *query = s->query + tile->i * width, *d_out = s->d_out + tile->i * width;
    float *d_scores = s->kept ? s->kept + tile->i * HOST_TILE_KEYS : s->dp;
    struct product scores = {s->p, query,          s->key_t, HOST_TILE_KEYS, width,
                             1,    HOST_TILE_KEYS, dim,      false,          false};
    struct product d_p = {d_scores, d_out,          s->value_t, HOST_TILE_KEYS, width,
                          1,        HOST_TILE_KEYS, dim,        false,          false};
    multiply_tiles(&scores, tile->n_rows, HOST_TILE_KEYS);
    multiply_tiles(&d_p, tile->n_rows, HOST_TILE_KEYS);
    for (int64_t r = 0; r < tile->n_rows; r++) {
        float *p = s->p + r * HOST_TILE_KEYS, *dp = d_scores + r * HOST_TILE_KEYS;
        float slope[HOST_TILE_KEYS];
        shape_scores(args, head, tile->i + r, tile->j, p, slope);
        relative_add(s->relative, tile, r, p);
        if (args->dropout.p > 0.0f)
            tile_factors(s->factors, args, b, head, tile->i + r, tile->j);
        gradient_row(p, dp, args->dropout.p > 0.0f ? s->factors : NULL,
                     mask_documents(tile, r, visible_keys(tile, r), p), s->lse[tile->i + r],
                     s->delta[tile->i + r]);
        if (args->d_bias)
            add_distances(args, b, head, tile, r, dp);
        relative_add_gradient(s->relative, tile, r, dp);
        if (args->softcap != 0.0f)
            loop_multiply(dp, dp, slope, HOST_TILE_KEYS);
    }
    struct product d_value = {s->d_value + tile->j * width,
                              s->p,
                              d_out,
                              width,
                              1,
                              HOST_TILE_KEYS,
                              width,
                              tile->n_rows,
                              true,
                              false};
    struct product d_key = {s->d_key + tile->j * width,
                            d_scores,
                            query,
                            width,
                            1,
                            HOST_TILE_KEYS,
                            width,
                            tile->n_rows,
                            true,
                            false};
    multiply_tiles(&d_value, HOST_TILE_KEYS, width);
    multiply_tiles(&d_key, HOST_TILE_KEYS, width);
    if (!s->kept)
        add_d_query(tile, d_scores, s->key, s);
}

/* The query rows that see keys of the tile from key j on: rows above the diagonal see none of them,
 * nor do rows a window behind the last key. first is that of a tile of rows. */
static struct range rows_that_see(const struct zinf_attention *args, int64_t j)
{
    const int64_t n_keys = min_i64(HOST_TILE_KEYS, zinf_attention_keys(args) - j);
    const int64_t ahead = zinf_attention_ahead(args);
    const int64_t first = args->causal && j > ahead ? j - ahead : 0;
    const bool ends = args->window && args->window < args->seq + ahead - j - n_keys + 1;
    return (struct range){first / HOST_TILE_ROWS * HOST_TILE_ROWS,
                          ends ? j + n_keys - 1 + args->window - ahead : args->seq};
}

/* All rows, for the tile from key j on. */
static void backward_keys(const struct zinf_attention *args, int64_t b, int64_t head, int64_t j,
                          const struct head *key, const struct head *value,
                          const struct backward_scratch *s)
{
    const int64_t n_keys = min_i64(HOST_TILE_KEYS, zinf_attention_keys(args) - j);
    const struct range rows = rows_that_see(args, j);
    pack_rows(s->key, value, j, n_keys, HOST_TILE_KEYS, 1.0f);
    transpose_keys(s->value_t, s->key, args->head_dim, s->width);
    pack_rows(s->key, key, j, n_keys, HOST_TILE_KEYS, 1.0f);
    transpose_keys(s->key_t, s->key, args->head_dim, s->width);
    relative_begin_keys(s->relative, s->key, j, n_keys);
    for (int64_t i = rows.first; i < rows.end; i += HOST_TILE_ROWS) {
        struct tile tile = tile_at(args, b, i, j);
        if (tile_matters(&tile))
            backward_tile(args, b, head, &tile, s);
    }
    relative_end_keys(s->relative, s->key, n_keys, s->d_key + j * s->width);
}

/* threads [n_threads]: adds to dQ of this thread's rows what the threads behind the first have kept
 * of their tiles of keys, in the order of keys. */
static void add_kept(const struct zinf_attention *args, int64_t b, int64_t block,
                     const struct host_team *team)
{
    const int64_t keys = zinf_attention_keys(args), step = team->n_threads * HOST_TILE_ROWS;
    for (int t = 1; t < team->n_threads; t++) {
        const int64_t j = block + t * HOST_TILE_KEYS;
        const struct range rows = j < keys ? rows_that_see(args, j) : (struct range){0, 0};
        const struct backward_scratch of = backward_scratch_of(args, team, t);
        for (int64_t i = team->thread * HOST_TILE_ROWS; i < rows.end; i += step) {
            struct tile tile = tile_at(args, b, i, j);
            if (i >= rows.first && tile_matters(&tile))
                add_d_query(&tile, of.kept + i * HOST_TILE_KEYS, of.key, &of);
        }
    }
}

/* Tiles of keys are dealt out one to a thread. dK and dV of a tile are one thread's; dQ is a sum
 * over all of them. */
static void backward_head(const struct zinf_attention *args, int64_t b, int64_t head,
                          const struct head *key, const struct head *value,
                          const struct backward_scratch *s, const struct host_team *team)
{
    const int64_t keys = zinf_attention_keys(args), step = team->n_threads * HOST_TILE_KEYS;
    for (int64_t block = 0; block < keys; block += step) {
        const int64_t j = block + team->thread * HOST_TILE_KEYS;
        if (j < keys)
            backward_keys(args, b, head, j, key, value, s);
        team_wait(team);
        add_kept(args, b, block, team);
        team_wait(team);
    }
}

/* The matrix of a head in fp32 sums over calls, with the layout of kv. */
static struct head sums_at(const struct zinf_attention *args, int64_t b, int64_t kv_head)
{
    struct zinf_attention sums = *args;
    sums.dtype = ZINF_DTYPE_F32;
    return key_at((struct sources){NULL, args->d_kv_sums}, &sums, b, kv_head);
}

/* The rows of a query head whose gradients are sums over keys of several calls. */
static struct head query_sums_at(const struct zinf_attention *args, int64_t b, int64_t head)
{
    struct zinf_attention sums = *args;
    sums.dtype = ZINF_DTYPE_F32;
    return out_at(args->running->sums, &sums, b, head);
}

/* dQ begins with 0, or with the sums of earlier calls. */
static void begin_query(const struct zinf_attention *args, int64_t b, int64_t head,
                        const struct backward_scratch *s, struct range own)
{
    const size_t bytes = (size_t)((own.end - own.first) * s->width) * sizeof *s->d_query;
    if (args->running && !args->running->first) {
        const struct head sums = query_sums_at(args, b, head);
        pack_range(s->d_query, &sums, own, args->seq, 1.0f);
    } else {
        memset(s->d_query + own.first * s->width, 0, bytes);
    }
}

/* dQ goes where it is wanted, or is left to the next call. */
static void finish_query(const struct zinf_attention *args, int64_t b, int64_t head,
                         const struct backward_scratch *s, struct range own)
{
    const bool leaves = args->running && !args->running->last;
    const struct head to =
        leaves ? query_sums_at(args, b, head) : query_at(args->d_qkv, args, b, head);
    unpack_range(&to, own, args->seq, s->d_query, leaves ? 1.0f : args->scale);
}

/* Packs a share of one query head's rows: scaled Q, dO and delta; begins dQ; sets the bias's
 * gradient to 0. */
static void backward_prepare(const struct zinf_attention *args, int64_t b, int64_t head,
                             const struct backward_scratch *s, struct range own)
{
    const int64_t seq = args->seq, width = s->width;
    const int64_t unit = b * args->n_heads + head, distances = zinf_attention_distances(args);
    struct head query = query_at(args->qkv, args, b, head);
    struct head d_out = out_at(args->d_out, args, b, head);
    struct head out = out_at(args->out, args, b, head);
    pack_range(s->query, &query, own, seq, args->scale);
    pack_range(s->d_out, &d_out, own, seq, 1.0f);
    pack_range(s->d_query, &out, own, seq, 1.0f);
    for (int64_t i = own.first; i < min_i64(own.end, seq); i++) {
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (int64_t c = 0; c < width; c++)
            sum += s->d_out[i * width + c] * s->d_query[i * width + c];
        s->delta[i] = sum;
        s->lse[i] = args->lse[unit * seq + i];
    }
    if (args->d_bias)
        memset(args->d_bias + unit * distances, 0, (size_t)distances * sizeof *args->d_bias);
    begin_query(args, b, head, s, own);
    relative_begin(s->relative, args, b, head, s->query);
}

/* dK and dV begin with 0, or with the sums of earlier calls. */
static void begin_sums(const struct zinf_attention *args, const struct head *d_key,
                       const struct head *d_value, const struct backward_scratch *s,
                       struct range own)
{
    const int64_t keys = zinf_attention_keys(args), at = own.first * s->width;
    const size_t bytes = (size_t)((own.end - own.first) * s->width) * sizeof *s->d_key;
    if (args->d_kv_sums) {
        pack_range(s->d_key, d_key, own, keys, 1.0f);
        pack_range(s->d_value, d_value, own, keys, 1.0f);
    } else {
        memset(s->d_key + at, 0, bytes);
        memset(s->d_value + at, 0, bytes);
    }
}

static void tiles_attention_backward(const struct zinf_attention *args, int64_t b, int64_t kv_head,
                                     const struct host_team *team)
{
    const int64_t seq = args->seq, keys = zinf_attention_keys(args);
    const int64_t group = args->n_heads / args->n_kv_heads;
    const struct range rows = team_range(team, seq), own = team_range(team, keys);
    const struct sources from = {args->qkv, args->kv}, to = {args->d_qkv, args->d_kv};
    struct head key = key_at(from, args, b, kv_head), value = value_at(from, args, b, kv_head);
    struct head d_key = key_at(to, args, b, kv_head), d_value = value_at(to, args, b, kv_head);
    if (args->d_kv_sums) {
        d_key = sums_at(args, b, kv_head);
        d_value = sums_at(args, b, args->n_kv_heads + kv_head);
    }
    struct relative relative = relative_open(args, kv_head, true, team_scratch(team, team->thread));
    struct backward_scratch s = backward_scratch_of(args, team, team->thread);
    s.relative = &relative;
    begin_sums(args, &d_key, &d_value, &s, own);
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++) {
        backward_prepare(args, b, head, &s, rows);
        team_wait(team);
        backward_head(args, b, head, &key, &value, &s, team);
        relative_end(&relative, s.query, s.d_query);
        finish_query(args, b, head, &s, rows);
    }
    unpack_range(&d_key, own, keys, s.d_key, 1.0f);
    unpack_range(&d_value, own, keys, s.d_value, 1.0f);
    if (b + 1 == args->batch)
        relative_close(&relative, args, kv_head);
}
