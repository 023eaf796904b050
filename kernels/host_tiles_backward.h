/*
 * host_tiles_backward: the gradients of attention, tile by tile, with the products and packing of
 * host_tiles.h, which is included before. Without an include guard, since it is compiled once for
 * each instruction set.
 */
struct backward_scratch {
    float *query, *d_out, *d_query; /* [seq][width] of one query head */
    float *d_key, *d_value;         /* [keys][width], summed over the query heads of a key head */
    float *lse, *delta;             /* [seq]; delta = rowsum(dO * O) */
    float *key, *key_t, *value_t;   /* one tile of keys, and transposed ones of keys and values */
    float *p, *dp, *factors;        /* [HOST_TILE_ROWS][HOST_TILE_KEYS], factors one row */
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
        float *p = s->p + r * HOST_TILE_KEYS, *dp = s->dp + r * HOST_TILE_KEYS;
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
    const int64_t seq = args->seq, keys = zinf_attention_keys(args), width = s->width;
    for (int64_t j = 0; j < keys; j += HOST_TILE_KEYS) {
        int64_t n_keys = min_i64(HOST_TILE_KEYS, keys - j);
        pack_rows(s->key, value, j, n_keys, HOST_TILE_KEYS, 1.0f);
        transpose_keys(s->value_t, s->key, args->head_dim, width);
        pack_rows(s->key, key, j, n_keys, HOST_TILE_KEYS, 1.0f);
        transpose_keys(s->key_t, s->key, args->head_dim, width);
        relative_begin_keys(s->relative, s->key, j, n_keys);
        /* rows above the diagonal see none of these keys, nor do rows a window behind the last key
         */
        const int64_t ahead = zinf_attention_ahead(args);
        const int64_t end = args->window && args->window < seq + ahead - j - n_keys + 1
                                ? j + n_keys - 1 + args->window - ahead
                                : seq;
        const int64_t first = args->causal && j > ahead ? j - ahead : 0;
        for (int64_t i = first / HOST_TILE_ROWS * HOST_TILE_ROWS; i < end; i += HOST_TILE_ROWS) {
            struct tile tile = tile_at(args, b, i, j);
            if (tile_matters(&tile))
                backward_tile(args, b, head, &tile, s);
        }
        relative_end_keys(s->relative, s->key, n_keys, s->d_key + j * width);
    }
}

/* The matrix of a head in fp32 sums over calls, with the layout of kv. */
static struct head sums_at(const struct zinf_attention *args, int64_t b, int64_t kv_head)
{
    struct zinf_attention sums = *args;
    sums.dtype = ZINF_DTYPE_F32;
    return key_at((struct sources){NULL, args->d_kv_sums}, &sums, b, kv_head);
}

/* Packs one query head: scaled Q, dO and delta; sets dQ and the bias's gradient to 0. */
static void backward_prepare(const struct zinf_attention *args, int64_t b, int64_t head,
                             const struct backward_scratch *s, int64_t padded_seq)
{
    const int64_t seq = args->seq, width = s->width;
    const int64_t unit = b * args->n_heads + head, distances = zinf_attention_distances(args);
    struct head query = query_at(args->qkv, args, b, head);
    struct head d_out = out_at(args->d_out, args, b, head);
    struct head out = out_at(args->out, args, b, head);
    pack_rows(s->query, &query, 0, seq, padded_seq, args->scale);
    pack_rows(s->d_out, &d_out, 0, seq, padded_seq, 1.0f);
    pack_rows(s->d_query, &out, 0, seq, padded_seq, 1.0f);
    for (int64_t i = 0; i < seq; i++) {
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (int64_t c = 0; c < width; c++)
            sum += s->d_out[i * width + c] * s->d_query[i * width + c];
        s->delta[i] = sum;
        s->lse[i] = args->lse[unit * seq + i];
    }
    if (args->d_bias)
        memset(args->d_bias + unit * distances, 0, (size_t)distances * sizeof *args->d_bias);
    memset(s->d_query, 0, (size_t)(padded_seq * width) * sizeof *s->d_query);
    relative_begin(s->relative, b, s->query);
}

static void tiles_attention_backward(const struct zinf_attention *args, int64_t b, int64_t kv_head,
                                     float *scratch)
{
    const int64_t seq = args->seq, keys = zinf_attention_keys(args);
    const int64_t padded_seq = (int64_t)zinf_align_up((uint64_t)seq, HOST_TILE_KEYS);
    const int64_t padded_keys = (int64_t)zinf_align_up((uint64_t)keys, HOST_TILE_KEYS);
    const int64_t group = args->n_heads / args->n_kv_heads;
    const struct sources from = {args->qkv, args->kv}, to = {args->d_qkv, args->d_kv};
    struct head key = key_at(from, args, b, kv_head), value = value_at(from, args, b, kv_head);
    struct head d_key = key_at(to, args, b, kv_head), d_value = value_at(to, args, b, kv_head);
    if (args->d_kv_sums) {
        d_key = sums_at(args, b, kv_head);
        d_value = sums_at(args, b, args->n_kv_heads + kv_head);
    }
    const int64_t width = key.padded_dim, matrix = padded_seq * width;
    const int64_t key_matrix = padded_keys * width;
    const int64_t panel = HOST_TILE_KEYS * width, tile = HOST_TILE_ROWS * HOST_TILE_KEYS;
    struct relative relative = relative_open(args, kv_head, true, scratch);
    struct backward_scratch s = {.width = width, .relative = &relative};
    s.query = scratch;
    s.d_out = s.query + matrix;
    s.d_query = s.d_out + matrix;
    s.d_key = s.d_query + matrix;
    s.d_value = s.d_key + key_matrix;
    s.lse = s.d_value + key_matrix;
    s.delta = s.lse + padded_seq;
    s.key = s.delta + padded_seq;
    s.key_t = s.key + panel;
    s.value_t = s.key_t + panel;
    s.p = s.value_t + panel;
    s.dp = s.p + tile;
    s.factors = s.dp + tile;
    memset(s.d_key, 0, (size_t)(2 * key_matrix) * sizeof *s.d_key);
    if (args->d_kv_sums) {
        pack_rows(s.d_key, &d_key, 0, keys, padded_keys, 1.0f);
        pack_rows(s.d_value, &d_value, 0, keys, padded_keys, 1.0f);
    }
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++) {
        struct head d_query = query_at(args->d_qkv, args, b, head);
        backward_prepare(args, b, head, &s, padded_seq);
        backward_head(args, b, head, &key, &value, &s);
        relative_end(&relative, s.query, s.d_query);
        unpack_rows(&d_query, 0, seq, s.d_query, args->scale);
    }
    unpack_rows(&d_key, 0, keys, s.d_key, 1.0f);
    unpack_rows(&d_value, 0, keys, s.d_value, 1.0f);
    if (b + 1 == args->batch)
        relative_close(&relative, args, kv_head);
}
