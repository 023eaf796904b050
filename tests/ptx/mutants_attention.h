/* mutants_attention: attention's operations for mutations_test.c. */
#ifndef PTX_MUTANTS_ATTENTION_H
#define PTX_MUTANTS_ATTENTION_H

#include "mutants.h"

/* One head over a sequence that ends within a tile; fp32 takes the kernels without mma. */
static int attention_sized(struct setup *s, int64_t seq, int64_t size, float p, float softcap,
                           const float *slopes)
{
    const int64_t heads = 1;
    struct zinf_attention a = {.dtype = s->dtype,
                               .batch = 1,
                               .seq = seq,
                               .n_heads = heads,
                               .n_kv_heads = heads,
                               .head_dim = size,
                               .causal = true,
                               .scale = 0.125f,
                               .softcap = softcap,
                               .slopes = slopes,
                               .dropout = {.p = p, .seed = 5}};
    size_t n = (size_t)(seq * heads * size);
    a.qkv = s->in[0], a.d_out = s->in[1];
    a.out = take(s, n, s->dtype), a.d_qkv = take(s, 3 * n, s->dtype);
    a.lse = take(s, (size_t)(seq * heads), ZINF_DTYPE_F32);
    int code = s->ops->attention_forward(s->q, &a);
    return code ? code : s->ops->attention_backward(s->q, &a);
}

static int attention_of(struct setup *s, float p, float softcap, const float *slopes)
{
    return attention_sized(s, s->dtype == ZINF_DTYPE_F32 ? 40 : 150, 64, p, softcap, slopes);
}

/* Of which a tile is 32 rows, and 16 keys. */
static int wide_attention(struct setup *s)
{
    return attention_sized(s, 20, 512, 0.2f, 0.0f, NULL);
}

static int attention(struct setup *s)
{
    return attention_of(s, 0.0f, 0.0f, NULL);
}

static int attention_with_dropout(struct setup *s)
{
    return attention_of(s, 0.2f, 0.0f, NULL);
}

static const float slope[1] = {0.1f};

static int sloped_attention(struct setup *s)
{
    return attention_of(s, 0.0f, 0.0f, slope);
}

static int capped_attention_with_dropout(struct setup *s)
{
    return attention_of(s, 0.2f, 1.5f, slope);
}

/* Over keys of two calls: a whole tile, and as many as there are queries. */
static int call_by_call(struct setup *s, struct zinf_attention a,
                        struct zinf_attention_running running, bool backward)
{
    int code = 0;
    a.running = &running;
    for (int last = 0; !code && last < 2; last++) {
        running.first = !last;
        running.last = last;
        a.kv = s->in[1 + last];
        a.first_key = last ? ZINF_ATTENTION_TILE : 0;
        a.key_seq = last ? a.seq : ZINF_ATTENTION_TILE;
        code = (backward ? s->ops->attention_backward : s->ops->attention_forward)(s->q, &a);
    }
    return code;
}

static int attention_by_calls(struct setup *s)
{
    enum { SEQ = 20, SIZE = 64, HEADS = 2 };
    struct zinf_attention_running running = {0}, backward = {0};
    struct zinf_attention a = {.dtype = s->dtype,
                               .batch = 1,
                               .seq = SEQ,
                               .n_heads = HEADS,
                               .n_kv_heads = 1,
                               .head_dim = SIZE,
                               .first_query = ZINF_ATTENTION_TILE,
                               .causal = true,
                               .scale = 0.125f};
    running.sums = take(s, SEQ * HEADS * SIZE, ZINF_DTYPE_F32);
    running.numbers = take(s, SEQ * HEADS * ZINF_ATTENTION_NUMBERS, ZINF_DTYPE_F32);
    a.qkv = s->in[0], a.d_out = s->in[3];
    a.out = take(s, SEQ * HEADS * SIZE, s->dtype);
    a.lse = take(s, SEQ * HEADS, ZINF_DTYPE_F32);
    backward.sums = take(s, SEQ * HEADS * SIZE, ZINF_DTYPE_F32);
    a.d_qkv = take(s, SEQ * HEADS * SIZE, s->dtype);
    a.d_kv_sums = take(s, ZINF_ATTENTION_TILE * 2 * SIZE, ZINF_DTYPE_F32);
    const int code = call_by_call(s, a, running, false);
    return code ? code : call_by_call(s, a, backward, true);
}

/* Five rows of one sequence, or that read one source, over a cache of numbers. */
static int cached_of(struct setup *s, bool biased, bool sourced)
{
    const int64_t heads = 2, size = 64, rows = 5, slots = 50;
    int32_t numbers[2][5] = {{0, 0, 0, 0, 0}, {40, 41, 42, 43, 44}};
    struct zinf_cached_source source = {.rows = rows, .kv = s->in[2]};
    struct zinf_attention_cached a = {.dtype = s->dtype,
                                      .rows = rows,
                                      .n_heads = heads,
                                      .n_kv_heads = heads,
                                      .head_dim = size,
                                      .n_sequences = 1,
                                      .capacity = slots,
                                      .scale = 0.125f};
    const size_t n = (size_t)(2 * heads * slots * size);
    char *at = take(s, 10, ZINF_DTYPE_F32);
    int code = s->ops->copy_to_device(s->q, at, numbers, sizeof numbers);
    a.sequences = (const int32_t *)(void *)at, a.positions = a.sequences + rows;
    source.sequences = a.sequences, source.slots = a.positions;
    source.lengths = a.positions + 4; /* 44: the last new key is beyond it */
    a.source = sourced ? &source : NULL;
    a.bias = biased ? (const float *)(void *)s->in[2] : NULL;
    a.qkv = s->in[0], a.cache = take(s, n, s->dtype);
    a.out = take(s, (size_t)(rows * heads * size), s->dtype);
    code = code ? code : s->ops->copy(s->q, a.cache, s->in[1], n * zinf_dtype_bytes(s->dtype));
    return code ? code : s->ops->attention_cached(s->q, &a);
}

static int cached_attention(struct setup *s)
{
    return cached_of(s, false, false);
}

static int biased_cached_attention(struct setup *s)
{
    return cached_of(s, true, false);
}

static int source_attention(struct setup *s)
{
    return cached_of(s, false, true);
}

/* Documents of 20 tokens, some of padding between them. */
static int packed_attention(struct setup *s)
{
    enum { SEQ = 90 };
    int32_t documents[SEQ];
    const int64_t size = 64;
    struct zinf_attention a = {.dtype = s->dtype,
                               .batch = 1,
                               .seq = SEQ,
                               .n_heads = 2,
                               .n_kv_heads = 1,
                               .head_dim = size,
                               .causal = true,
                               .window = 40,
                               .scale = 0.125f};
    for (int i = 0; i < SEQ; i++)
        documents[i] = i % 40 == 7 ? 0 : 1 + i / 20;
    a.segments = take_numbers(s, documents, SEQ);
    a.qkv = s->in[0], a.d_out = s->in[1];
    a.out = take(s, SEQ * 2 * (size_t)size, s->dtype);
    a.d_qkv = take(s, SEQ * 4 * (size_t)size, s->dtype);
    a.lse = take(s, (size_t)SEQ * 2, ZINF_DTYPE_F32);
    int code = s->ops->attention_forward(s->q, &a);
    return code ? code : s->ops->attention_backward(s->q, &a);
}

/* Over the keys of another sequence, with a bias of a table by distance and its gradient. */
static int crossing_of(struct setup *s, int64_t seq, int64_t keys, int64_t size,
                       struct zinf_attention a)
{
    static const int32_t starts[] = {0, 1, 2, 4};
    const int64_t heads = 2, distances = seq + keys - 1;
    struct zinf_distance_bias d = {.dtype = s->dtype,
                                   .n_heads = heads,
                                   .n_queries = seq,
                                   .n_keys = keys,
                                   .both_ways = true,
                                   .n_buckets = 4,
                                   .starts = starts,
                                   .batch = 1};
    const size_t n = (size_t)(heads * distances), rows = (size_t)(seq * heads * size);
    a.dtype = s->dtype, a.batch = 1, a.n_heads = a.n_kv_heads = heads, a.scale = 0.2f;
    a.seq = seq, a.key_seq = keys, a.head_dim = size;
    d.table = s->in[2];
    d.bias = take(s, n, ZINF_DTYPE_F32);
    d.d_bias = a.d_bias = take(s, n, ZINF_DTYPE_F32);
    d.d_table = take(s, 8 * (size_t)heads, ZINF_DTYPE_F32);
    a.bias = d.bias, a.qkv = s->in[0], a.kv = s->in[1], a.d_out = s->in[3];
    a.out = take(s, rows, s->dtype);
    a.d_qkv = take(s, rows, s->dtype);
    a.d_kv = take(s, (size_t)(keys * 2 * heads * size), s->dtype);
    a.lse = take(s, (size_t)(seq * heads), ZINF_DTYPE_F32);
    int code = s->ops->distance_bias(s->q, &d);
    code = code ? code : s->ops->attention_forward(s->q, &a);
    code = code ? code : s->ops->attention_backward(s->q, &a);
    return code ? code : s->ops->distance_bias_backward(s->q, &d);
}

static int crossing_attention(struct setup *s)
{
    return crossing_of(s, 41, 37, 20, (struct zinf_attention){0});
}

/* The same of heads that tensor cores take: dropped, or of documents. */
static int crossing_tiles(struct setup *s)
{
    const struct zinf_attention dropped = {.dropout = {.p = 0.2f, .seed = 5}};
    return crossing_of(s, 70, 90, 32, dropped);
}

static int crossing_documents(struct setup *s)
{
    enum { SEQ = 70, KEYS = 90 };
    int32_t documents[KEYS];
    struct zinf_attention a = {0};
    for (int i = 0; i < KEYS; i++)
        documents[i] = i % 40 == 7 ? 0 : 1 + i / 20;
    a.key_segments = take_numbers(s, documents, KEYS);
    a.segments = take_numbers(s, documents + 5, SEQ);
    return crossing_of(s, SEQ, KEYS, 32, a);
}

static const int32_t relative_starts[] = {0, 1, 2, 4, 9};

/* To relative positions, one row of the table for each distance nearby; both terms. */
static int relative_attention(struct setup *s)
{
    enum { SEQ = 41, HEADS = 2, SIZE = 20, HALF = 4, COLS = HEADS * SIZE };
    struct zinf_relative r = {.half = HALF, .starts = relative_starts, .ld = COLS};
    struct zinf_attention a = {.dtype = s->dtype,
                               .batch = 2,
                               .seq = SEQ,
                               .n_heads = HEADS,
                               .n_kv_heads = HEADS,
                               .head_dim = SIZE,
                               .scale = 0.2f,
                               .relative = &r};
    r.keys = s->in[1], r.queries = s->in[2], a.qkv = s->in[0], a.d_out = s->in[3];
    r.d_keys = take(s, 2 * HALF * COLS, s->dtype);
    r.d_queries = take(s, 2 * HALF * COLS, s->dtype);
    a.out = take(s, 2 * SEQ * COLS, s->dtype);
    a.d_qkv = take(s, 2 * SEQ * 3 * COLS, s->dtype);
    a.lse = take(s, 2 * SEQ * HEADS, ZINF_DTYPE_F32);
    int code = s->ops->attention_forward(s->q, &a);
    return code ? code : s->ops->attention_backward(s->q, &a);
}

/* And of keys that come in two calls, the second of them around the queries. */
static int relative_by_calls(struct setup *s)
{
    enum { SEQ = 41, HEADS = 2, SIZE = 20, HALF = 4, COLS = HEADS * SIZE };
    struct zinf_attention_running running = {0}, backward = {0};
    struct zinf_relative r = {.half = HALF, .starts = relative_starts, .ld = COLS};
    struct zinf_attention a = {.dtype = s->dtype,
                               .batch = 1,
                               .seq = SEQ,
                               .n_heads = HEADS,
                               .n_kv_heads = HEADS,
                               .head_dim = SIZE,
                               .first_query = ZINF_ATTENTION_TILE,
                               .whole_seq = 2 * ZINF_ATTENTION_TILE,
                               .scale = 0.2f,
                               .relative = &r};
    running.sums = take(s, SEQ * COLS, ZINF_DTYPE_F32);
    running.numbers = take(s, SEQ * HEADS * ZINF_ATTENTION_NUMBERS, ZINF_DTYPE_F32);
    backward.sums = take(s, SEQ * COLS, ZINF_DTYPE_F32);
    backward.rows = take(s, 4 * HALF * COLS, ZINF_DTYPE_F32);
    r.keys = s->in[5], r.queries = s->in[6], a.qkv = s->in[0], a.d_out = s->in[3];
    r.d_keys = take(s, 2 * HALF * COLS, s->dtype);
    r.d_queries = take(s, 2 * HALF * COLS, s->dtype);
    a.out = take(s, SEQ * COLS, s->dtype);
    a.d_qkv = take(s, SEQ * COLS, s->dtype);
    a.lse = take(s, SEQ * HEADS, ZINF_DTYPE_F32);
    a.d_kv_sums = take(s, ZINF_ATTENTION_TILE * 2 * COLS, ZINF_DTYPE_F32);
    const int code = call_by_call(s, a, running, false);
    return code ? code : call_by_call(s, a, backward, true);
}

#endif
