/* cases_attention: attention over whole sequences and parts of them, over other keys, over a cache,
 * with biases by distance or relative positions, and what goes with it. */
#include "cli/doctor/cases.h"

#include <math.h>

static const float slopes[] = {0.70710678f, 0.25f, -0.2f, 0.0f};

/* ---- over sequences ---- */

struct attention_pairs {
    struct pair qkv, out, lse, d_out, d_qkv, segments, kv, d_kv, key_segments, bias, d_bias, sums;
    bool packed, crosses, biased, summed;
};

/* Documents of so many tokens, with one token of padding behind each second one and in the last
 * tenth of a sample. */
static struct pair make_segments(struct twin *t, int64_t batch, int64_t seq, int document)
{
    struct pair p = pair_new(t, ZINF_DTYPE_F32, (size_t)(batch * seq), 0); /* 4 bytes each */
    for (int32_t i = 0; document && i < batch * seq; i++) {
        const int32_t place = i % (int32_t)seq;
        const bool pads = place % (2 * document) == 0 || place > seq - seq / 10;
        ((int32_t *)p.host.data)[i] = pads ? 0 : 1 + place / document;
    }
    pair_upload(t, &p);
    return p;
}

static void attention_side(struct zinf_attention *a, const struct attention_pairs *p, int side)
{
    a->qkv = at(&p->qkv, side);
    a->out = at(&p->out, side);
    a->lse = at(&p->lse, side);
    a->d_out = at(&p->d_out, side);
    a->d_qkv = at(&p->d_qkv, side);
    a->segments = p->packed ? at(&p->segments, side) : NULL;
    a->kv = p->crosses ? at(&p->kv, side) : NULL;
    a->d_kv = p->crosses ? at(&p->d_kv, side) : NULL;
    a->key_segments = p->packed && p->crosses ? at(&p->key_segments, side) : NULL;
    a->bias = p->biased ? at(&p->bias, side) : NULL;
    a->d_bias = p->biased ? at(&p->d_bias, side) : NULL;
    a->d_kv_sums = p->summed ? at(&p->sums, side) : NULL;
}

/* Runs it again, and without a window with one that hides nothing: the same bits. */
static void check_repeats(struct twin *t, struct zinf_attention *a, struct attention_pairs *p)
{
    if (a->causal && !a->window)
        a->window = a->first_query + a->seq;
    struct tensor out = pair_download(t, &p->out), d_qkv = pair_download(t, &p->d_qkv);
    attention_side(a, p, SIDE_CUDA);
    TWIN_CHECK(t, !t->cuda->ops->attention_forward(t->q, a));
    TWIN_CHECK(t, !t->cuda->ops->attention_backward(t->q, a));
    struct tensor again = pair_download(t, &p->out), d_again = pair_download(t, &p->d_qkv);
    TWIN_CHECK(t, tensor_same_bits(&out, &again) && tensor_same_bits(&d_qkv, &d_again));
}

static struct zinf_attention attention_of(enum zinf_dtype dtype,
                                          const struct attention_special *special,
                                          const struct attention_part *part)
{
    const struct attention_shape *s = &special->shape;
    const float steep = special->steep > 0.0f ? special->steep : s->softcap > 0.0f ? 3.0f : 1.0f;
    return (struct zinf_attention){
        .dtype = dtype,
        .batch = s->batch,
        .seq = s->seq,
        .n_heads = s->n_heads,
        .n_kv_heads = s->n_kv_heads,
        .head_dim = s->head_dim,
        .key_seq = special->key_seq,
        .first_query = part->first_query,
        .first_key = part->first_key,
        .whole_seq = part->whole_seq,
        .causal = s->causal,
        .window = s->window,
        .scale = steep / sqrtf((float)s->head_dim),
        .softcap = s->softcap,
        .slopes = s->sloped ? slopes : NULL,
        .dropout = {.p = s->dropout, .seed = 99, .step = 3, .site = 7, .element_first = 4321}};
}

static struct attention_pairs open_pairs(struct twin *t, enum zinf_dtype dtype,
                                         const struct attention_special *special, bool summed)
{
    const struct attention_shape *s = &special->shape;
    const int64_t keys = special->key_seq ? special->key_seq : s->seq;
    const size_t rows = (size_t)(s->batch * s->seq), key_rows = (size_t)(s->batch * keys);
    const size_t kv_row = (size_t)(2 * s->n_kv_heads * s->head_dim);
    const size_t out_row = (size_t)(s->n_heads * s->head_dim);
    const size_t row = out_row + (special->key_seq ? 0 : kv_row);
    const size_t kv = special->key_seq ? key_rows * kv_row : 1;
    const size_t distances = (size_t)(s->n_heads * (s->seq + keys - 1));
    return (struct attention_pairs){
        pair_random(t, dtype, rows * row, 1, 1.0f),
        pair_random(t, dtype, rows * out_row, 4, 1.0f),
        pair_random(t, ZINF_DTYPE_F32, rows * (size_t)s->n_heads, 5, 1.0f),
        pair_random(t, dtype, rows * out_row, 2, 1.0f),
        pair_random(t, dtype, rows * row, 3, 1.0f),
        make_segments(t, s->batch, s->seq, special->document),
        pair_random(t, dtype, kv, 6, 1.0f),
        pair_random(t, dtype, kv, 7, 1.0f),
        make_segments(t, s->batch, keys, special->document),
        pair_random(t, ZINF_DTYPE_F32, distances, 8, 1.0f),
        pair_random(t, ZINF_DTYPE_F32, (size_t)s->batch * distances, 9, 1.0f),
        pair_random(t, ZINF_DTYPE_F32, kv, 10, 0.1f),
        special->document > 0,
        special->key_seq > 0,
        special->biased,
        summed,
    };
}

/* The keys of the first tile, or those behind it; backward by a running without numbers. */
static int attend_call(const struct zinf_device_ops *ops, struct zinf_queue *q,
                       struct zinf_attention a, struct zinf_attention_running running)
{
    const int64_t tile = ZINF_ATTENTION_TILE, row = 2 * a.n_kv_heads * a.head_dim;
    const uint64_t bytes = (uint64_t)(tile * row) * zinf_dtype_bytes(a.dtype);
    a.running = &running;
    if (running.last) {
        a.kv = (const char *)a.kv + bytes;
        a.d_kv_sums += a.d_kv_sums ? tile * row : 0;
        a.key_segments += a.key_segments ? tile : 0;
        a.first_key += tile;
    }
    a.key_seq = running.last ? a.key_seq - tile : tile;
    return running.numbers ? ops->attention_forward(q, &a) : ops->attention_backward(q, &a);
}

/* Gradients of queries in two calls, of one sample: the bits that one gives, on either side. */
static void check_calls_backward(struct twin *t, struct zinf_attention *a,
                                 struct attention_pairs *p)
{
    struct pair sums = pair_new(t, ZINF_DTYPE_F32, p->out.host.n, 0);
    struct pair d_queries = pair_new(t, a->dtype, p->d_qkv.host.n, 0);
    struct tensor then = pair_download(t, &p->d_qkv);
    for (int last = 0; last < 2; last++)
        ON_BOTH(t, (attention_side(a, p, side), a->d_qkv = at(&d_queries, side),
                    attend_call(ops, q, *a,
                                (struct zinf_attention_running){
                                    .first = !last, .last = last, .sums = at(&sums, side)})));
    struct tensor now = pair_download(t, &d_queries);
    TWIN_CHECK(t, tensor_same_bits(&d_queries.host, &p->d_qkv.host));
    TWIN_CHECK(t, tensor_same_bits(&then, &now));
}

/* Of one sample, in two calls: the bits that one gives, on either side. */
static void check_calls(struct twin *t, struct zinf_attention *a, struct attention_pairs *p)
{
    const size_t rows = (size_t)(a->seq * a->n_heads);
    struct pair sums = pair_new(t, ZINF_DTYPE_F32, rows * (size_t)a->head_dim, 0);
    struct pair numbers = pair_new(t, ZINF_DTYPE_F32, rows * ZINF_ATTENTION_NUMBERS, 0);
    struct pair out = pair_new(t, a->dtype, p->out.host.n, 0);
    struct pair lse = pair_new(t, ZINF_DTYPE_F32, p->lse.host.n, 0);
    struct tensor out_then = pair_download(t, &p->out), lse_then = pair_download(t, &p->lse);
    memcpy(out.host.data, p->out.host.data, tensor_bytes(&out.host));
    memcpy(lse.host.data, p->lse.host.data, tensor_bytes(&lse.host));
    for (int last = 0; last < 2; last++)
        ON_BOTH(t, (attention_side(a, p, side),
                    attend_call(ops, q, *a,
                                (struct zinf_attention_running){.first = !last,
                                                                .last = last,
                                                                .sums = at(&sums, side),
                                                                .numbers = at(&numbers, side)})));
    struct tensor out_now = pair_download(t, &p->out), lse_now = pair_download(t, &p->lse);
    TWIN_CHECK(t, tensor_same_bits(&out.host, &p->out.host));
    TWIN_CHECK(t, tensor_same_bits(&lse.host, &p->lse.host));
    TWIN_CHECK(t, tensor_same_bits(&out_then, &out_now));
    TWIN_CHECK(t, tensor_same_bits(&lse_then, &lse_now));
}

/* How large differences may be. */
struct attention_bounds {
    double epsilon, few, steep, rare;
};

static struct attention_bounds attention_bounds(enum zinf_dtype dtype,
                                                const struct attention_special *s)
{
    const bool steep = s->steep > 0.0f;
    const double p = (double)s->shape.dropout;
    return (struct attention_bounds){
        /* The tensor cores take probabilities and their gradients rounded to the storage type. */
        .epsilon = dtype_epsilon(dtype),
        /* Slopes, documents and steep scores leave a row few keys, whose errors do not cancel. */
        .few = s->shape.sloped || s->document || steep ? 2.0 : 1.0,
        /* An error of a score, or of a row's delta, is so many times as large in what comes of it.
         */
        .steep = steep ? 2.0 * (double)s->steep : 1.0,
        /* Dropout keeps a share 1 - p of the probabilities and makes them 1 / (1 - p) times as
         * large. Each is rounded by itself, so that a sum's error has 1 / (1 - p) times the
         * variance, as has the sum itself: the bound stays the same part of what it bounds. Cases
         * up to 0.2 keep the plain bound. */
        .rare = s->shape.dropout > 0.2f ? 1.0 / sqrt(1.0 - p) : 1.0,
    };
}

void case_attention(struct twin *t, enum zinf_dtype dtype, const struct attention_special *s,
                    const struct attention_part *part)
{
    static const struct attention_part whole = {0, 0, 0, false};
    const struct attention_shape *shape = &s->shape;
    part = part ? part : &whole;
    twin_case(t, "attention",
              "%s, %lld x %lld tokens, %lld of %lld heads of %lld, dropout %g, window %lld, cap %g",
              zinf_dtype_name(dtype), (long long)shape->batch, (long long)shape->seq,
              (long long)shape->n_kv_heads, (long long)shape->n_heads, (long long)shape->head_dim,
              (double)shape->dropout, (long long)shape->window, (double)shape->softcap);
    struct zinf_attention a = attention_of(dtype, s, part);
    struct attention_pairs p = open_pairs(t, dtype, s, part->summed);
    const struct attention_bounds b = attention_bounds(dtype, s);
    const double absolute = 3e-5 + 8.0 * b.epsilon, relative = 3e-5 + 2.0 * b.epsilon;
    ON_BOTH(t, (attention_side(&a, &p, side), ops->attention_forward(q, &a)));
    PAIR_CHECK(t, &p.out, 4e-6 + b.few * b.rare * b.epsilon, 2.0 * b.epsilon + 4e-6);
    PAIR_CHECK(t, &p.lse, 4e-6 * b.steep, 2e-6);
    if (part->whole_seq && a.batch == 1)
        check_calls(t, &a, &p);
    ON_BOTH(t, (attention_side(&a, &p, side), ops->attention_backward(q, &a)));
    PAIR_CHECK(t, &p.d_qkv, absolute * b.steep * b.rare, relative);
    if (p.summed)
        PAIR_CHECK(t, &p.sums, absolute, relative);
    else if (p.crosses)
        PAIR_CHECK(t, &p.d_kv, absolute, relative);
    if (p.biased)
        PAIR_CHECK(t, &p.d_bias, 1e-4 + 8.0 * b.epsilon, relative);
    if (p.summed && a.batch == 1)
        check_calls_backward(t, &a, &p);
    check_repeats(t, &a, &p);
}

void case_distance_bias(struct twin *t, enum zinf_dtype dtype, bool both_ways)
{
    static const int32_t starts[] = {0, 1, 2, 4};
    enum { HEADS = 3, QUERIES = 50, KEYS = 70, DISTANCES = QUERIES + KEYS - 1, ROWS = 8 };
    struct zinf_distance_bias a = {.dtype = dtype,
                                   .n_heads = HEADS,
                                   .n_queries = QUERIES,
                                   .n_keys = KEYS,
                                   .both_ways = both_ways,
                                   .n_buckets = 4,
                                   .starts = starts,
                                   .batch = 2};
    twin_case(t, "distance_bias", "%s, %d queries, %d keys", zinf_dtype_name(dtype), QUERIES, KEYS);
    struct pair table = pair_random(t, dtype, ROWS * HEADS, 1, 1.0f);
    struct pair bias = pair_new(t, ZINF_DTYPE_F32, HEADS * DISTANCES, 0);
    struct pair d_bias = pair_random(t, ZINF_DTYPE_F32, 2 * HEADS * DISTANCES, 2, 1.0f);
    struct pair d_table = pair_new(t, ZINF_DTYPE_F32, ROWS * HEADS, 0);
    ON_BOTH(t, (a.table = at(&table, side), a.bias = at(&bias, side), a.d_bias = at(&d_bias, side),
                a.d_table = at(&d_table, side),
                ops->distance_bias(q, &a) || ops->distance_bias_backward(q, &a)));
    PAIR_CHECK(t, &bias, 0.0, 0.0);
    PAIR_CHECK(t, &d_table, 0.0, 0.0);
}

/* ---- over a cache ---- */

enum { CACHED_ROWS = 12, CACHED_SEQUENCES = 3, BROUGHT_ROWS = 17 };

void case_cached(struct twin *t, enum zinf_dtype dtype, const struct cached_shape *s)
{
    /* One row of sequence 2, nine of sequence 1 of which the last comes first, two of sequence 0.
     */
    static const int32_t numbers[CACHED_ROWS] = {2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0};
    const size_t dim = (size_t)s->head_dim, kv = (size_t)s->n_kv_heads, heads = (size_t)s->n_heads;
    const size_t row = (heads + 2 * kv) * dim, slots = (size_t)s->capacity;
    int32_t places[CACHED_ROWS];
    struct zinf_attention_cached a = {
        .dtype = dtype,
        .rows = CACHED_ROWS,
        .n_heads = s->n_heads,
        .n_kv_heads = s->n_kv_heads,
        .head_dim = s->head_dim,
        .n_sequences = CACHED_SEQUENCES,
        .capacity = s->capacity,
        .window = s->window,
        .piece = s->piece,
        .scale = (s->softcap > 0.0f ? 3.0f : 1.0f) / sqrtf((float)s->head_dim),
        .softcap = s->softcap,
        .slopes = s->sloped ? slopes : NULL,
    };
    for (int32_t i = 0; i < CACHED_ROWS; i++)
        places[i] = i == 0 ? 3 : i == 1 ? s->first + 8 : i < 10 ? s->first + i - 2 : i - 10;
    twin_case(t, "attention_cached", "%s, %lld of %lld heads of %lld, %lld slots",
              zinf_dtype_name(dtype), (long long)s->n_kv_heads, (long long)s->n_heads,
              (long long)s->head_dim, (long long)s->capacity);
    struct pair sequences = pair_numbers(t, numbers, CACHED_ROWS);
    struct pair positions = pair_numbers(t, places, CACHED_ROWS);
    struct pair qkv = pair_random(t, dtype, CACHED_ROWS * row, 1, 1.0f);
    struct pair cache = pair_random(t, dtype, CACHED_SEQUENCES * 2 * kv * slots * dim, 2, 1.0f);
    struct pair out = pair_random(t, dtype, CACHED_ROWS * heads * dim, 3, 1.0f);
    struct pair bias = pair_random(t, ZINF_DTYPE_F32, heads * slots, 4, 1.0f);
    struct pair lse = pair_new(t, ZINF_DTYPE_F32, CACHED_ROWS * heads, 0);
    ON_BOTH(t, (a.sequences = at(&sequences, side), a.positions = at(&positions, side),
                a.lse = s->biased || s->window ? at(&lse, side) : NULL,
                a.bias = s->biased ? at(&bias, side) : NULL, a.qkv = at(&qkv, side),
                a.cache = at(&cache, side), a.out = at(&out, side), ops->attention_cached(q, &a)));
    PAIR_CHECK(t, &cache, 0.0, 0.0);
    PAIR_CHECK(t, &out, 4e-6, 4e-6 + 2.0 * dtype_epsilon(dtype));
    PAIR_CHECK(t, &lse, 1e-5, 1e-5);
}

void case_source(struct twin *t, enum zinf_dtype dtype, int64_t n_heads, int64_t n_kv_heads,
                 int64_t head_dim)
{
    enum { ROWS = 7, SLOTS = 90 };
    static const int32_t lengths[] = {1, BROUGHT_ROWS, SLOTS}, rows[ROWS] = {2, 1, 1, 0, 2, 2, 1};
    const size_t dim = (size_t)head_dim, kv = (size_t)n_kv_heads, n = (size_t)n_heads;
    int32_t numbers[BROUGHT_ROWS], slots[BROUGHT_ROWS];
    for (int32_t i = 0; i < BROUGHT_ROWS; i++) {
        numbers[i] = 1;
        slots[i] = BROUGHT_ROWS - 1 - i;
    }
    twin_case(t, "attention_cached", "%s, other keys, %lld of %lld heads of %lld",
              zinf_dtype_name(dtype), (long long)n_kv_heads, (long long)n_heads,
              (long long)head_dim);
    struct pair length = pair_numbers(t, lengths, 3), sequence = pair_numbers(t, rows, ROWS);
    struct pair number = pair_numbers(t, numbers, BROUGHT_ROWS);
    struct pair slot = pair_numbers(t, slots, BROUGHT_ROWS);
    struct pair qkv = pair_random(t, dtype, ROWS * n * dim, 1, 1.0f);
    struct pair fresh = pair_random(t, dtype, BROUGHT_ROWS * 2 * kv * dim, 2, 1.0f);
    struct pair cache = pair_random(t, dtype, 3 * 2 * kv * SLOTS * dim, 3, 1.0f);
    struct pair out = pair_random(t, dtype, ROWS * n * dim, 4, 1.0f);
    struct zinf_cached_source source = {.rows = BROUGHT_ROWS};
    struct zinf_attention_cached a = {.dtype = dtype,
                                      .rows = ROWS,
                                      .n_heads = n_heads,
                                      .n_kv_heads = n_kv_heads,
                                      .head_dim = head_dim,
                                      .n_sequences = 3,
                                      .capacity = SLOTS,
                                      .scale = 1.0f / sqrtf((float)dim),
                                      .source = &source};
    ON_BOTH(t, (source.lengths = at(&length, side), a.sequences = at(&sequence, side),
                source.sequences = at(&number, side), source.slots = at(&slot, side),
                a.qkv = at(&qkv, side), source.kv = at(&fresh, side), a.cache = at(&cache, side),
                a.out = at(&out, side), ops->attention_cached(q, &a)));
    PAIR_CHECK(t, &cache, 0.0, 0.0);
    PAIR_CHECK(t, &out, 4e-6, 4e-6 + 2.0 * dtype_epsilon(dtype));
}

/* ---- to relative positions ---- */

/* One row each up to the middle, then rows that begin further and further apart, or none do. */
static void make_starts(int32_t *starts, int64_t half, bool log)
{
    for (int64_t b = 0; b <= half; b++) {
        const int64_t over = b - half / 2;
        starts[b] = (int32_t)(log && over > 0 ? half / 2 + over * over : b);
    }
}

struct relative_pairs {
    struct pair qkv, out, lse, d_out, d_qkv, r, d_r, segments;
    struct pair kv, key_segments, kv_sums; /* of keys apart */
    struct pair sums, numbers, rows;       /* between calls: what a first one must not read */
};

/* Two documents, and padding at the end of each sample. */
static struct pair relative_segments(struct twin *t, int64_t batch, int64_t seq)
{
    struct pair p = pair_new(t, ZINF_DTYPE_F32, (size_t)(batch * seq), 0); /* 4 bytes each */
    for (int64_t i = 0; i < batch * seq; i++)
        ((int32_t *)p.host.data)[i] =
            i % seq >= seq - seq / 5 - i / seq ? 0 : 1 + (int32_t)(i % seq * 2 / seq);
    pair_upload(t, &p);
    return p;
}

static struct relative_pairs relative_pairs_of(struct twin *t, const struct relative_shape *s,
                                               int64_t key_seq, enum zinf_dtype dtype)
{
    const enum zinf_dtype f32 = ZINF_DTYPE_F32;
    const size_t rows = (size_t)(s->batch * s->seq), cols = (size_t)(s->n_heads * s->head_dim);
    const size_t table = 4 * (size_t)s->half * cols; /* both terms side by side */
    const size_t qkv = rows * cols * (key_seq ? 1 : 3), numbers = rows * (size_t)s->n_heads;
    const size_t kv = key_seq ? 2 * cols * (size_t)(s->batch * key_seq) : 1;
    return (struct relative_pairs){
        .qkv = pair_random(t, dtype, qkv, 1, 1.0f),
        .out = pair_random(t, dtype, rows * cols, 2, 1.0f),
        .lse = pair_new(t, f32, numbers, 0),
        .d_out = pair_random(t, dtype, rows * cols, 3, 1.0f),
        .d_qkv = pair_random(t, dtype, qkv, 4, 1.0f),
        .r = pair_random(t, dtype, table, 5, 1.0f),
        .d_r = pair_random(t, dtype, table, 6, 1.0f),
        .segments = relative_segments(t, s->batch, s->seq),
        .kv = pair_random(t, dtype, kv, 7, 1.0f),
        .key_segments = relative_segments(t, s->batch, key_seq ? key_seq : 1),
        .kv_sums = pair_random(t, f32, kv, 8, 0.1f),
        .sums = pair_random(t, f32, rows * cols, 9, 1.0f),
        .numbers = pair_random(t, f32, numbers * ZINF_ATTENTION_NUMBERS, 10, 1.0f),
        .rows = pair_random(t, f32, table, 11, 1.0f),
    };
}

static struct zinf_relative relative_table(const struct relative_shape *s,
                                           const struct relative_pairs *p, int side)
{
    const size_t cols = (size_t)(s->n_heads * s->head_dim);
    const size_t keys = cols * zinf_dtype_bytes(p->r.host.dtype);
    return (struct zinf_relative){
        .half = s->half,
        .ld = 2 * (int64_t)cols,
        .queries = s->queries ? at(&p->r, side) : NULL,
        .keys = s->keys ? (char *)at(&p->r, side) + keys : NULL,
        .d_queries = s->queries ? at(&p->d_r, side) : NULL,
        .d_keys = s->keys ? (char *)at(&p->d_r, side) + keys : NULL,
    };
}

static struct zinf_attention relative_attention(const struct relative_shape *s,
                                                const struct relative_pairs *p, int side)
{
    return (struct zinf_attention){
        .dtype = p->qkv.host.dtype,
        .batch = s->batch,
        .seq = s->seq,
        .n_heads = s->n_heads,
        .n_kv_heads = s->n_heads,
        .head_dim = s->head_dim,
        .scale = 1.0f / sqrtf(3.0f * (float)s->head_dim),
        .segments = s->packed ? at(&p->segments, side) : NULL,
        .dropout = {.p = s->dropout, .seed = 9, .step = 3, .site = 7, .element_first = 4321},
        .qkv = at(&p->qkv, side),
        .out = at(&p->out, side),
        .lse = at(&p->lse, side),
        .d_out = at(&p->d_out, side),
        .d_qkv = at(&p->d_qkv, side),
    };
}

/* Queries and keys are places of one longer sequence. */
static void relative_apart(struct zinf_attention *a, const struct relative_part *part,
                           const struct relative_pairs *p, int side)
{
    a->key_seq = part->key_seq;
    a->first_query = part->first_query;
    a->first_key = part->first_key;
    a->whole_seq = part->whole_seq;
    a->kv = at(&p->kv, side);
    a->d_kv_sums = at(&p->kv_sums, side);
    a->key_segments = a->segments ? at(&p->key_segments, side) : NULL;
}

/* The keys of the first tile, then the others: forward, then backward. */
static int relative_calls(const struct zinf_device_ops *ops, struct zinf_queue *q,
                          const struct zinf_attention *a, const struct relative_pairs *p, int side)
{
    int code = 0;
    for (int call = 0; !code && call < 4; call++) {
        const bool last = call % 2, back = call / 2;
        code = attend_call(
            ops, q, *a,
            (struct zinf_attention_running){.first = !last,
                                            .last = last,
                                            .sums = at(&p->sums, side),
                                            .numbers = back ? NULL : at(&p->numbers, side),
                                            .rows = back ? at(&p->rows, side) : NULL});
    }
    return code;
}

static int relative_run(const struct relative_shape *s, const struct relative_part *part,
                        bool by_calls, const struct relative_pairs *p, int side,
                        const struct zinf_device_ops *ops, struct zinf_queue *q)
{
    int32_t starts[ZINF_RELATIVE_MAX_HALF + 1];
    struct zinf_relative relative = relative_table(s, p, side);
    struct zinf_attention a = relative_attention(s, p, side);
    make_starts(starts, s->half, s->log);
    relative.starts = starts;
    a.relative = &relative;
    if (part)
        relative_apart(&a, part, p, side);
    if (by_calls)
        return relative_calls(ops, q, &a, p, side);
    int code = ops->attention_forward(q, &a);
    return code ? code : ops->attention_backward(q, &a);
}

static void check_relative(struct twin *t, const struct relative_pairs *p, bool apart)
{
    const double epsilon = dtype_epsilon(p->qkv.host.dtype);
    PAIR_CHECK(t, &p->out, 4e-6, 2.0 * epsilon + 2e-6);
    PAIR_CHECK(t, &p->lse, 6e-6, 1e-6);
    PAIR_CHECK(t, &p->d_qkv, 6e-5 + 12.0 * epsilon, 2e-5 + 4.0 * epsilon);
    PAIR_CHECK(t, &p->d_r, 2e-4 + 24.0 * epsilon, 2e-5 + 4.0 * epsilon);
    if (apart)
        PAIR_CHECK(t, &p->kv_sums, 6e-5 + 12.0 * epsilon, 2e-5 + 4.0 * epsilon);
}

void case_relative(struct twin *t, const struct relative_shape *s, const struct relative_part *part,
                   enum zinf_dtype dtype)
{
    const int64_t key_seq = part ? part->key_seq : 0;
    twin_case(t, "attention to relative positions",
              "%s, %lld x %lld tokens, %lld heads of %lld, %lld keys apart", zinf_dtype_name(dtype),
              (long long)s->batch, (long long)s->seq, (long long)s->n_heads, (long long)s->head_dim,
              (long long)key_seq);
    struct relative_pairs p = relative_pairs_of(t, s, key_seq, dtype);
    ON_BOTH(t, relative_run(s, part, false, &p, side, ops, q));
    check_relative(t, &p, part);
    if (!part || s->batch > 1)
        return;
    /* in two calls: out and lse have the bits of one, on either side */
    struct relative_pairs two = relative_pairs_of(t, s, key_seq, dtype);
    ON_BOTH(t, relative_run(s, part, true, &two, side, ops, q));
    check_relative(t, &two, true);
    const struct tensor out = pair_download(t, &p.out), lse = pair_download(t, &p.lse);
    const struct tensor out_two = pair_download(t, &two.out), lse_two = pair_download(t, &two.lse);
    TWIN_CHECK(t, tensor_same_bits(&p.out.host, &two.out.host));
    TWIN_CHECK(t, tensor_same_bits(&p.lse.host, &two.lse.host));
    TWIN_CHECK(t, tensor_same_bits(&out, &out_two) && tensor_same_bits(&lse, &lse_two));
}

/* ---- what goes with it ---- */

void case_sinks(struct twin *t, struct zinf_sinks a, size_t shift)
{
    const size_t heads = (size_t)a.n_heads, rows = (size_t)(a.batch * a.seq);
    const size_t n = rows * heads * (size_t)a.head_dim;
    const double ulp = 2.0 * dtype_epsilon(a.dtype) + 2e-6;
    twin_case(t, "sinks", "%s, %lld x %lld tokens, %lld heads of %lld", zinf_dtype_name(a.dtype),
              (long long)a.batch, (long long)a.seq, (long long)a.n_heads, (long long)a.head_dim);
    struct pair sinks = pair_random(t, a.dtype, heads, 1, 2.0f);
    struct pair out = pair_shifted(t, shift, a.dtype, n, 2, 1.0f);
    struct pair d_out = pair_random(t, a.dtype, n, 3, 1.0f);
    struct pair lse = pair_random(t, ZINF_DTYPE_F32, rows * heads, 4, 3.0f);
    struct pair d_sinks = pair_new(t, ZINF_DTYPE_F32, heads, 0);
    ON_BOTH(t, (a.sinks = at(&sinks, side), a.out = at(&out, side), a.lse = at(&lse, side),
                ops->sinks_forward(q, &a)));
    PAIR_CHECK(t, &out, 1e-6, ulp);
    PAIR_CHECK(t, &lse, 1e-6, 1e-6);
    ON_BOTH(t, (a.sinks = at(&sinks, side), a.out = at(&out, side), a.lse = at(&lse, side),
                a.d_out = at(&d_out, side), a.d_sinks = at(&d_sinks, side),
                ops->sinks_backward(q, &a)));
    PAIR_CHECK(t, &d_sinks, a.dtype == ZINF_DTYPE_F32 ? 1e-4 : 1e-2, 1e-4);
}
