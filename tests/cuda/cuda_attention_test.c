/* cuda_attention: attention of the CUDA device against the host's: head sizes, grouped heads,
 * causal and not, windows, documents, keys of another sequence, biases by distance, dropout, soft
 * caps and slopes, lengths around the tiles; and of new rows over a cache: several sequences, rows
 * in any order, windows in a ring of slots. */
#include "cuda_twin.h"

struct shape {
    int64_t batch, seq, n_heads, n_kv_heads, head_dim;
    bool causal;
    float dropout;
    int64_t window;
    float softcap; /* scores are then 3 times as large, so that it bends them */
    bool sloped;
};
/* And what few cases have. */
struct special {
    struct shape shape;
    int document;    /* tokens of most documents; 0: samples are not packed */
    int64_t key_seq; /* as in zinf_attention */
    bool biased;
    float steep; /* scores are so many times as large; 0: they are not */
};
/* Where queries and keys are in a sequence that comes in parts; summed: gradients of keys go into
 * d_kv_sums. */
struct part {
    int64_t first_query, first_key, whole_seq;
    bool summed;
};

static const float slopes[] = {0.70710678f, 0.25f, -0.2f, 0.0f};

struct attention_pairs {
    struct pair qkv, out, lse, d_out, d_qkv, segments, kv, d_kv, key_segments, bias, d_bias, sums;
    bool packed, crosses, biased, summed;
};

/* Documents of so many tokens, with one token of padding behind each second one and in the last
 * tenth of a sample. */
static struct tensor make_segments(int64_t batch, int64_t seq, int document)
{
    struct tensor t = tensor_new(ZINF_DTYPE_F32, (size_t)(batch * seq)); /* 4 bytes each */
    for (int32_t i = 0; document && i < batch * seq; i++) {
        const int32_t at = i % (int32_t)seq;
        const bool pads = at % (2 * document) == 0 || at > seq - seq / 10;
        ((int32_t *)t.data)[i] = pads ? 0 : 1 + at / document;
    }
    return t;
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
    CHECK(!t->cuda->ops->attention_forward(t->q, a));
    CHECK(!t->cuda->ops->attention_backward(t->q, a));
    struct tensor again = pair_download(t, &p->out), d_again = pair_download(t, &p->d_qkv);
    CHECK(tensor_same_bits(&out, &again) && tensor_same_bits(&d_qkv, &d_again));
    tensor_free(&out);
    tensor_free(&d_qkv);
    tensor_free(&again);
    tensor_free(&d_again);
}

static struct zinf_attention attention_of(enum zinf_dtype dtype, const struct special *special,
                                          const struct part *part)
{
    const struct shape *s = &special->shape;
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
        .scale = (special->steep > 0.0f ? special->steep
                  : s->softcap > 0.0f   ? 3.0f
                                        : 1.0f) /
                 sqrtf((float)s->head_dim),
        .softcap = s->softcap,
        .slopes = s->sloped ? slopes : NULL,
        .dropout = {.p = s->dropout, .seed = 99, .step = 3, .site = 7, .element_first = 4321}};
}

static struct attention_pairs open_pairs(struct twin *t, enum zinf_dtype dtype,
                                         const struct special *special, bool summed)
{
    const struct shape *s = &special->shape;
    const int64_t keys = special->key_seq ? special->key_seq : s->seq;
    const size_t rows = (size_t)(s->batch * s->seq), key_rows = (size_t)(s->batch * keys);
    const size_t kv_row = (size_t)(2 * s->n_kv_heads * s->head_dim);
    const size_t out_row = (size_t)(s->n_heads * s->head_dim);
    const size_t row = out_row + (special->key_seq ? 0 : kv_row);
    const size_t kv = special->key_seq ? key_rows * kv_row : 1;
    const size_t distances = (size_t)(s->n_heads * (s->seq + keys - 1));
    return (struct attention_pairs){
        pair_of(t, tensor_random(dtype, rows * row, 1, 1.0f)),
        pair_of(t, tensor_random(dtype, rows * out_row, 4, 1.0f)),
        pair_of(t, tensor_random(ZINF_DTYPE_F32, rows * (size_t)s->n_heads, 5, 1.0f)),
        pair_of(t, tensor_random(dtype, rows * out_row, 2, 1.0f)),
        pair_of(t, tensor_random(dtype, rows * row, 3, 1.0f)),
        pair_of(t, make_segments(s->batch, s->seq, special->document)),
        pair_of(t, tensor_random(dtype, kv, 6, 1.0f)),
        pair_of(t, tensor_random(dtype, kv, 7, 1.0f)),
        pair_of(t, make_segments(s->batch, keys, special->document)),
        pair_of(t, tensor_random(ZINF_DTYPE_F32, distances, 8, 1.0f)),
        pair_of(t, tensor_random(ZINF_DTYPE_F32, (size_t)s->batch * distances, 9, 1.0f)),
        pair_of(t, tensor_random(ZINF_DTYPE_F32, kv, 10, 0.1f)),
        special->document > 0,
        special->key_seq > 0,
        special->biased,
        summed,
    };
}

static void close_pairs(struct twin *t, struct attention_pairs *p)
{
    struct pair *all[] = {&p->qkv, &p->out,  &p->lse,          &p->d_out, &p->d_qkv,  &p->segments,
                          &p->kv,  &p->d_kv, &p->key_segments, &p->bias,  &p->d_bias, &p->sums};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        pair_free(all[i]);
    twin_reset(t);
}

/* The keys of the first tile, or those behind it. */
static int attend_call(const struct zinf_device_ops *ops, struct zinf_queue *q,
                       struct zinf_attention a, struct zinf_attention_running running)
{
    const int64_t tile = ZINF_ATTENTION_TILE, row = 2 * a.n_kv_heads * a.head_dim;
    const uint64_t bytes = (uint64_t)(tile * row) * zinf_dtype_bytes(a.dtype);
    a.running = &running;
    if (running.last) {
        a.kv = (const char *)a.kv + bytes;
        a.key_segments += a.key_segments ? tile : 0;
        a.first_key += tile;
    }
    a.key_seq = running.last ? a.key_seq - tile : tile;
    return ops->attention_forward(q, &a);
}

/* Of one sample, in two calls: the bits that one gives. */
static void check_calls(struct twin *t, struct zinf_attention *a, struct attention_pairs *p)
{
    const size_t rows = (size_t)(a->seq * a->n_heads);
    struct pair sums = pair_of(t, tensor_new(ZINF_DTYPE_F32, rows * (size_t)a->head_dim));
    struct pair numbers = pair_of(t, tensor_new(ZINF_DTYPE_F32, rows * ZINF_ATTENTION_NUMBERS));
    struct tensor out[2] = {tensor_copy(&p->out.host), pair_download(t, &p->out)};
    struct tensor lse[2] = {tensor_copy(&p->lse.host), pair_download(t, &p->lse)};
    for (int last = 0; last < 2; last++)
        ON_BOTH(t, (attention_side(a, p, side),
                    attend_call(ops, q, *a,
                                (struct zinf_attention_running){.first = !last,
                                                                .last = last,
                                                                .sums = at(&sums, side),
                                                                .numbers = at(&numbers, side)})));
    struct tensor out_again = pair_download(t, &p->out), lse_again = pair_download(t, &p->lse);
    CHECK(tensor_same_bits(&out[0], &p->out.host) && tensor_same_bits(&lse[0], &p->lse.host));
    CHECK(tensor_same_bits(&out[1], &out_again) && tensor_same_bits(&lse[1], &lse_again));
    for (int i = 0; i < 2; i++) {
        tensor_free(&out[i]);
        tensor_free(&lse[i]);
    }
    tensor_free(&out_again);
    tensor_free(&lse_again);
    pair_free(&sums);
    pair_free(&numbers);
}

static void part_case(struct twin *t, enum zinf_dtype dtype, const struct special *s,
                      const struct part *part)
{
    struct zinf_attention a = attention_of(dtype, s, part);
    struct attention_pairs p = open_pairs(t, dtype, s, part->summed);
    /* The tensor cores take probabilities and their gradients rounded to the storage type. */
    double epsilon = dtype_epsilon(dtype);
    /* Slopes, documents and steep scores leave a row few keys, whose errors do not cancel. */
    double few = s->shape.sloped || s->document || s->steep > 0.0f ? 2.0 : 1.0;
    /* An error of a score, or of a row's delta, is so many times as large in what comes of it. */
    double steep = s->steep > 0.0f ? 2.0 * s->steep : 1.0;
    /* Dropout keeps a share 1 - p of the probabilities and makes them 1 / (1 - p) times as large.
     * Each is rounded by itself, so that a sum's error has 1 / (1 - p) times the variance, as has
     * the sum itself: the bound stays the same part of what it bounds. Cases up to 0.2 keep the
     * plain bound. */
    double rare = s->shape.dropout > 0.2f ? 1.0 / sqrt(1.0 - (double)s->shape.dropout) : 1.0;
    ON_BOTH(t, (attention_side(&a, &p, side), ops->attention_forward(q, &a)));
    PAIR_CHECK(t, &p.out, 4e-6 + few * rare * epsilon, 2.0 * epsilon + 4e-6);
    PAIR_CHECK(t, &p.lse, 4e-6 * steep, 2e-6);
    if (part->whole_seq && a.batch == 1)
        check_calls(t, &a, &p);
    ON_BOTH(t, (attention_side(&a, &p, side), ops->attention_backward(q, &a)));
    PAIR_CHECK(t, &p.d_qkv, (3e-5 + 8.0 * epsilon) * steep * rare, 3e-5 + 2.0 * epsilon);
    if (p.summed)
        PAIR_CHECK(t, &p.sums, 3e-5 + 8.0 * epsilon, 3e-5 + 2.0 * epsilon);
    else if (p.crosses)
        PAIR_CHECK(t, &p.d_kv, 3e-5 + 8.0 * epsilon, 3e-5 + 2.0 * epsilon);
    if (p.biased)
        PAIR_CHECK(t, &p.d_bias, 1e-4 + 8.0 * epsilon, 3e-5 + 2.0 * epsilon);
    check_repeats(t, &a, &p);
    close_pairs(t, &p);
}

static void special_case(struct twin *t, enum zinf_dtype dtype, const struct special *s)
{
    const struct part whole = {0, 0, 0, false};
    part_case(t, dtype, s, &whole);
}

static void attention_case(struct twin *t, enum zinf_dtype dtype, struct shape s)
{
    const struct special special = {.shape = s};
    special_case(t, dtype, &special);
}

static void fp32(struct twin *t)
{
    static const struct shape shapes[] = {
        {1, 1, 1, 1, 1, true, 0.0f, 0, 0, 0},    {2, 5, 2, 1, 3, true, 0.0f, 0, 0, 0},
        {1, 33, 2, 2, 37, false, 0.2f, 0, 0, 0}, {2, 40, 4, 2, 64, true, 0.1f, 0, 0, 0},
        {1, 35, 3, 1, 100, true, 0.0f, 0, 0, 0}, {1, 19, 1, 1, 256, false, 0.0f, 0, 0, 0},
        {1, 79, 2, 1, 64, true, 0.1f, 20, 0, 0}, {1, 50, 2, 1, 96, true, 0.0f, 33, 0, 0},
        {1, 12, 1, 1, 8, true, 0.0f, 1, 0, 0},   {1, 9, 2, 1, 512, true, 0.1f, 5, 0, 0},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        attention_case(t, ZINF_DTYPE_F32, shapes[i]);
}

static void sixteen_bit_cases(struct twin *t, const struct shape *shapes, size_t n)
{
    for (int d = 1; d < 3; d++)
        for (size_t i = 0; i < n; i++)
            attention_case(t, all_dtypes[d], shapes[i]);
}

static void sixteen_bit(struct twin *t)
{
    static const struct shape shapes[] = {
        {1, 1, 1, 1, 8, true, 0.0f, 0, 0, 0},     {2, 70, 2, 2, 64, true, 0.0f, 0, 0, 0},
        {1, 130, 1, 1, 64, false, 0.1f, 0, 0, 0}, {1, 67, 4, 2, 32, true, 0.2f, 0, 0, 0},
        {1, 97, 2, 1, 128, true, 0.0f, 0, 0, 0},  {1, 65, 1, 1, 80, true, 0.1f, 0, 0, 0},
        {1, 81, 2, 1, 256, true, 0.0f, 0, 0, 0},  {1, 20, 2, 2, 7, true, 0.0f, 0, 0, 0},
        {1, 150, 2, 1, 64, true, 0.1f, 30, 0, 0}, {1, 140, 2, 1, 128, true, 0.0f, 64, 0, 0},
        {1, 70, 2, 2, 80, true, 0.0f, 1, 0, 0},   {1, 75, 2, 2, 96, true, 0.1f, 66, 0, 0},
        {1, 70, 1, 1, 256, true, 0.0f, 20, 0, 0}, {1, 50, 2, 1, 7, true, 0.0f, 9, 0, 0},
    };
    sixteen_bit_cases(t, shapes, sizeof shapes / sizeof *shapes);
}

/* Factors of 4, 10 and 50: what is left of a row in fp16 must not be more than that type holds. */
static void much_dropout(struct twin *t)
{
    static const struct shape shapes[] = {
        {1, 130, 1, 1, 64, true, 0.75f, 0, 0, 0}, {1, 97, 1, 1, 128, false, 0.75f, 0, 0, 0},
        {1, 97, 2, 1, 64, true, 0.9f, 0, 0, 0},   {1, 35, 1, 1, 256, true, 0.9f, 0, 0, 0},
        {1, 70, 2, 2, 64, true, 0.98f, 0, 0, 0},
    };
    sixteen_bit_cases(t, shapes, sizeof shapes / sizeof *shapes);
}

/* Scores that are more than scaled: caps, slopes, both; every tile and kernel. */
static void shaped_scores(struct twin *t)
{
    static const struct shape shapes[] = {
        {1, 35, 4, 2, 37, false, 0.2f, 0, 1.5f, true},
        {2, 40, 2, 1, 64, true, 0.0f, 20, 2.0f, false},
        {1, 35, 3, 3, 100, true, 0.1f, 0, 0.0f, true},
        {1, 19, 2, 1, 256, true, 0.0f, 0, 1.0f, true},
        {2, 70, 4, 2, 64, true, 0.0f, 0, 0.0f, true},
        {1, 130, 2, 1, 64, false, 0.1f, 0, 1.5f, false},
        {1, 67, 3, 1, 32, true, 0.2f, 30, 0.0f, true},
        {1, 97, 2, 1, 128, true, 0.0f, 40, 2.0f, true},
        {1, 81, 2, 1, 256, true, 0.0f, 20, 2.0f, false},
        {1, 70, 2, 2, 256, true, 0.1f, 0, 0.0f, true},
        {1, 75, 2, 2, 96, true, 0.0f, 0, 50.0f, false},
        {1, 45, 2, 2, 7, true, 0.0f, 0, 1.5f, true},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        attention_case(t, all_dtypes[i < 4 ? 0 : 1 + i % 2], shapes[i]);
    attention_case(t, ZINF_DTYPE_F32, (struct shape){1, 20, 1, 1, 100, true, 0.1f, 0, 1.5f, true});
    attention_case(t, ZINF_DTYPE_F32, (struct shape){1, 9, 1, 1, 264, true, 0.0f, 0, 1.5f, true});
}

/* What else the kernels are compiled for: kind of scores by size of heads, for either type. */
static void every_instance(struct twin *t)
{
    static const struct shape shapes[] = {
        {1, 33, 2, 2, 32, true, 0.1f, 0, 0.0f, true},
        {1, 33, 2, 1, 32, true, 0.0f, 0, 2.0f, true},
        {1, 33, 1, 1, 64, true, 0.0f, 0, 0.0f, true},
        {1, 33, 1, 1, 64, true, 0.1f, 0, 2.0f, false},
        {1, 33, 1, 1, 128, true, 0.1f, 0, 0.0f, true},
        {1, 17, 1, 1, 128, true, 0.1f, 0, 2.0f, true},
        {1, 33, 1, 1, 256, true, 0.1f, 0, 0.0f, false},
        {1, 17, 1, 1, 256, true, 0.0f, 0, 2.0f, true},
        {1, 19, 2, 1, 512, true, 0.0f, 9, 0.0f, false},
        {1, 35, 1, 1, 264, false, 0.1f, 0, 0.0f, false},
        {1, 35, 1, 1, 320, true, 0.1f, 0, 0.0f, true},
        {1, 18, 1, 1, 512, true, 0.0f, 0, 2.0f, true},
    };
    for (int d = 1; d < 3; d++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            attention_case(t, all_dtypes[d], shapes[i]);
}

/* Samples of several documents; every tile and kernel. */
static void packed_samples(struct twin *t)
{
    static const struct special shapes[] = {
        {{2, 5, 2, 1, 3, true, 0.0f, 0, 0, 0}, 2, 0, false, 0},
        {{1, 79, 2, 2, 64, false, 0.1f, 0, 0, 0}, 20, 0, false, 0},
        {{1, 35, 3, 1, 100, true, 0.0f, 0, 0, 0}, 9, 0, false, 0},
        {{1, 19, 1, 1, 256, false, 0.0f, 0, 0, 0}, 7, 0, false, 0},
        {{2, 70, 4, 2, 64, true, 0.1f, 0, 0, 0}, 17, 0, false, 0},
        {{1, 130, 2, 1, 64, false, 0.0f, 0, 0, 0}, 70, 0, false, 0},
        {{1, 97, 2, 1, 128, true, 0.0f, 40, 0, 0}, 50, 0, false, 0},
        {{1, 67, 2, 2, 32, true, 0.0f, 0, 2.0f, true}, 30, 0, false, 0},
        {{1, 81, 2, 1, 256, true, 0.0f, 0, 0, 0}, 40, 0, false, 0},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        special_case(t, all_dtypes[i < 4 ? 0 : 1 + i % 2], &shapes[i]);
}

/* Scores so far apart that a row's later keys hide its first ones, by ever more: what is taken off
 * scores moves along with them, in tiles with and without unseen keys, and for some rows of a warp
 * only. */
static void steep_scores(struct twin *t)
{
    static const struct special shapes[] = {
        {.shape = {1, 150, 1, 1, 64, true, 0.0f, 0, 0, 0}, .steep = 12.0f},
        {.shape = {1, 80, 1, 1, 128, false, 0.1f, 0, 0, 0}, .steep = 12.0f},
        {.shape = {1, 90, 1, 1, 32, true, 0.1f, 40, 0, 0}, .steep = 15.0f},
        {.shape = {1, 40, 1, 1, 256, true, 0.0f, 0, 0, 0}, .steep = 10.0f},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        special_case(t, all_dtypes[1 + i % 2], &shapes[i]);
}

/* Keys of another sequence, biases by distance, both. */
static void other_keys(struct twin *t)
{
    static const struct special shapes[] = {
        {{2, 7, 4, 2, 5, false, 0.0f, 0, 0, 0}, 0, 11, false, 0},
        {{1, 40, 2, 2, 64, false, 0.1f, 0, 0, 0}, 0, 9, false, 0},
        {{2, 19, 2, 1, 100, false, 0.0f, 0, 0, 0}, 4, 40, true, 0},
        {{2, 20, 4, 4, 6, false, 0.0f, 0, 0, 0}, 0, 0, true, 0},
        {{1, 50, 2, 1, 64, true, 0.1f, 0, 0, 0}, 0, 0, true, 0},
        {{1, 37, 2, 2, 200, false, 0.0f, 0, 0, 0}, 13, 0, true, 0},
        {{2, 70, 4, 2, 64, false, 0.1f, 0, 0, 0}, 0, 130, false, 0},
        {{1, 67, 3, 1, 40, false, 0.2f, 0, 2.0f, 0}, 20, 90, false, 0},
        {{1, 90, 2, 1, 64, true, 0.0f, 0, 2.0f, true}, 25, 0, false, 0},
        {{1, 50, 2, 1, 256, true, 0.0f, 0, 2.0f, 0}, 20, 0, false, 0},
        {{1, 130, 1, 1, 128, false, 0.0f, 0, 0, true}, 0, 9, false, 0},
        {{1, 9, 2, 2, 440, true, 0.0f, 0, 0, 0}, 4, 0, true, 0},
    };
    for (size_t i = 0; i + 1 < sizeof shapes / sizeof *shapes; i++)
        special_case(t, all_dtypes[i < 6 ? i % 3 : 1 + i % 2], &shapes[i]);
    special_case(t, ZINF_DTYPE_F32, &shapes[5]);   /* not on tensor cores, by small tiles */
    special_case(t, ZINF_DTYPE_BF16, &shapes[11]); /* by the smallest */
}

/* A part's queries over the keys of parts before, which may be ahead of all queries. */
static void parts(struct twin *t)
{
    static const struct {
        struct special special;
        struct part part;
    } shapes[] = {
        {{{1, 40, 2, 1, 20, true, 0.1f, 0, 0, 0}, 0, 90, false, 0}, {50, 0, 200, true}},
        {{{2, 70, 2, 2, 64, true, 0.1f, 0, 0, 0}, 0, 150, false, 0}, {80, 0, 150, true}},
        {{{1, 70, 4, 2, 128, true, 0.0f, 90, 0, 0}, 30, 134, false, 0}, {64, 0, 134, true}},
        {{{1, 65, 2, 1, 64, true, 0.0f, 0, 1.5f, true}, 20, 70, false, 0}, {130, 60, 0, false}},
        {{{1, 70, 2, 1, 256, true, 0.0f, 20, 0, 0}, 0, 80, false, 0}, {100, 0, 0, true}},
        {{{1, 64, 2, 1, 32, true, 0.0f, 0, 0, 0}, 0, 70, false, 0}, {0, 64, 0, false}},
        {{{1, 70, 2, 1, 64, false, 0.2f, 0, 0, 0}, 0, 70, false, 0}, {70, 0, 140, true}},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        part_case(t, all_dtypes[!i ? 0 : 1 + i % 2], &shapes[i].special, &shapes[i].part);
}

/* Biases by distance and their gradients, on tensor cores: each size of heads in both types. */
static void biased_tiles(struct twin *t)
{
    for (int64_t size = 32; size <= 256; size *= 2)
        for (int d = 1; d < 3; d++) {
            const struct special s = {.shape = {1, 70, 2, d, size - (d == 1 ? 0 : 8), size == 64,
                                                d == 1 ? 0.1f : 0.0f, 0, 0, 0},
                                      .document = size == 128 ? 30 : 0,
                                      .key_seq = size == 32    ? 140
                                                 : size == 256 ? 33
                                                               : 0,
                                      .biased = true};
            special_case(t, all_dtypes[d], &s);
        }
}

static void tables_of_buckets(struct twin *t)
{
    static const int32_t starts[] = {0, 1, 2, 4};
    enum { HEADS = 3, QUERIES = 50, KEYS = 70, DISTANCES = QUERIES + KEYS - 1, ROWS = 8 };
    for (int both_ways = 0; both_ways < 2; both_ways++) {
        struct zinf_distance_bias a = {.dtype = all_dtypes[1 + both_ways],
                                       .n_heads = HEADS,
                                       .n_queries = QUERIES,
                                       .n_keys = KEYS,
                                       .both_ways = both_ways,
                                       .n_buckets = 4,
                                       .starts = starts,
                                       .batch = 2};
        struct pair table = pair_of(t, tensor_random(a.dtype, ROWS * HEADS, 1, 1.0f));
        struct pair bias = pair_of(t, tensor_new(ZINF_DTYPE_F32, HEADS * DISTANCES));
        struct pair d_bias =
            pair_of(t, tensor_random(ZINF_DTYPE_F32, 2 * HEADS * DISTANCES, 2, 1.0f));
        struct pair d_table = pair_of(t, tensor_new(ZINF_DTYPE_F32, ROWS * HEADS));
        ON_BOTH(t, (a.table = at(&table, side), a.bias = at(&bias, side),
                    a.d_bias = at(&d_bias, side), a.d_table = at(&d_table, side),
                    ops->distance_bias(q, &a) || ops->distance_bias_backward(q, &a)));
        PAIR_CHECK(t, &bias, 0.0, 0.0);
        PAIR_CHECK(t, &d_table, 0.0, 0.0);
        pair_free(&table);
        pair_free(&bias);
        pair_free(&d_bias);
        pair_free(&d_table);
        twin_reset(t);
    }
}

/* ---- over a cache ---- */

struct cached_shape {
    int64_t n_heads, n_kv_heads, head_dim, capacity, window;
    float softcap;
    bool sloped;
    int32_t first; /* position of the first row of sequence 1 */
    bool biased;
    int64_t piece;
};
enum { CACHED_ROWS = 12, CACHED_SEQUENCES = 3, BROUGHT_ROWS = 17 };

/* Rows: one of sequence 2, nine of sequence 1 of which the last comes first, two of sequence 0. */
static struct pair cached_rows(struct twin *t, bool positions, int32_t first)
{
    struct tensor rows = tensor_new(ZINF_DTYPE_F32, CACHED_ROWS); /* 4 bytes each */
    int32_t *to = rows.data;
    for (int32_t i = 0; i < CACHED_ROWS; i++)
        to[i] = positions ? (i == 0   ? 3
                             : i == 1 ? first + 8
                             : i < 10 ? first + i - 2
                                      : i - 10)
                          : (i == 0   ? 2
                             : i < 10 ? 1
                                      : 0);
    return pair_of(t, rows);
}

static void cached_case(struct twin *t, enum zinf_dtype dtype, const struct cached_shape *s)
{
    const size_t dim = (size_t)s->head_dim, kv = (size_t)s->n_kv_heads;
    const size_t row = ((size_t)s->n_heads + 2 * kv) * dim, slots = (size_t)s->capacity;
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
    struct pair sequences = cached_rows(t, false, 0), positions = cached_rows(t, true, s->first);
    struct pair qkv = pair_of(t, tensor_random(dtype, CACHED_ROWS * row, 1, 1.0f));
    struct pair cache =
        pair_of(t, tensor_random(dtype, CACHED_SEQUENCES * 2 * kv * slots * dim, 2, 1.0f));
    struct pair out =
        pair_of(t, tensor_random(dtype, CACHED_ROWS * (size_t)s->n_heads * dim, 3, 1.0f));
    struct pair bias =
        pair_of(t, tensor_random(ZINF_DTYPE_F32, (size_t)s->n_heads * slots, 4, 1.0f));
    struct pair lse = pair_of(t, tensor_new(ZINF_DTYPE_F32, CACHED_ROWS * (size_t)s->n_heads));
    ON_BOTH(t, (a.sequences = at(&sequences, side), a.positions = at(&positions, side),
                a.lse = s->biased || s->window ? at(&lse, side) : NULL,
                a.bias = s->biased ? at(&bias, side) : NULL, a.qkv = at(&qkv, side),
                a.cache = at(&cache, side), a.out = at(&out, side), ops->attention_cached(q, &a)));
    PAIR_CHECK(t, &cache, 0.0, 0.0);
    PAIR_CHECK(t, &out, 4e-6, 4e-6 + 2.0 * dtype_epsilon(dtype));
    PAIR_CHECK(t, &lse, 1e-5, 1e-5);
    struct pair *const all[] = {&sequences, &positions, &qkv, &cache, &out, &bias, &lse};
    for (int i = 0; i < 7; i++)
        pair_free(all[i]);
    twin_reset(t);
}

static void cached(struct twin *t)
{
    static const struct cached_shape shapes[] = {
        {4, 4, 64, 200, 0, 0.0f, false, 150, false, 0},
        {4, 2, 16, 100, 0, 0.0f, true, 31, false, 0},
        {4, 1, 100, 90, 0, 1.5f, false, 70, false, 0},
        {3, 3, 7, 64, 20, 0.0f, false, 40, false, 0},
        {2, 1, 256, 80, 33, 2.0f, true, 60, false, 0},
        {4, 2, 128, 41, 32, 0.0f, false, 350, false, 0},
        {2, 2, 33, 75, 66, 0.0f, true, 74000, false, 0},
        {1, 1, 1, 20, 0, 0.0f, false, 0, false, 0},
        {4, 4, 64, 200, 0, 0.0f, false, 150, true, 0},
        {4, 2, 20, 70, 0, 0.0f, false, 59, true, 0},
        {4, 2, 32, 200, 0, 0.0f, false, 154, false, 8},
        {2, 1, 512, 80, 0, 0.0f, false, 60, false, 0},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int d = 0; d < 3; d++)
            cached_case(t, all_dtypes[d], &shapes[i]);
}

/* ---- over keys of other sequences ---- */

static struct pair numbers_of(struct twin *t, const int32_t *numbers, size_t n)
{
    struct tensor list = tensor_new(ZINF_DTYPE_F32, n); /* 4 bytes each */
    memcpy(list.data, numbers, n * sizeof *numbers);
    return pair_of(t, list);
}

/* Rows of three sources; the second brings its keys in this call. */
static void source_case(struct twin *t, enum zinf_dtype dtype, const int64_t heads[3])
{
    static const int32_t lengths[] = {1, BROUGHT_ROWS, 90}, rows[] = {2, 1, 1, 0, 2, 2, 1};
    enum { ROWS = 7, SLOTS = 90 };
    const size_t dim = (size_t)heads[2], kv = (size_t)heads[1], n = (size_t)heads[0];
    int32_t numbers[BROUGHT_ROWS], slots[BROUGHT_ROWS];
    for (int32_t i = 0; i < BROUGHT_ROWS; i++) {
        numbers[i] = 1;
        slots[i] = BROUGHT_ROWS - 1 - i;
    }
    struct pair all[] = {
        numbers_of(t, lengths, 3),
        numbers_of(t, rows, ROWS),
        numbers_of(t, numbers, BROUGHT_ROWS),
        numbers_of(t, slots, BROUGHT_ROWS),
        pair_of(t, tensor_random(dtype, ROWS * n * dim, 1, 1.0f)),
        pair_of(t, tensor_random(dtype, BROUGHT_ROWS * 2 * kv * dim, 2, 1.0f)),
        pair_of(t, tensor_random(dtype, 3 * 2 * kv * SLOTS * dim, 3, 1.0f)),
        pair_of(t, tensor_random(dtype, ROWS * n * dim, 4, 1.0f)),
    };
    struct zinf_cached_source source = {.rows = BROUGHT_ROWS};
    struct zinf_attention_cached a = {.dtype = dtype,
                                      .rows = ROWS,
                                      .n_heads = heads[0],
                                      .n_kv_heads = heads[1],
                                      .head_dim = heads[2],
                                      .n_sequences = 3,
                                      .capacity = SLOTS,
                                      .scale = 1.0f / sqrtf((float)dim),
                                      .source = &source};
    ON_BOTH(t,
            (source.lengths = at(&all[0], side), a.sequences = at(&all[1], side),
             source.sequences = at(&all[2], side), source.slots = at(&all[3], side),
             a.qkv = at(&all[4], side), source.kv = at(&all[5], side), a.cache = at(&all[6], side),
             a.out = at(&all[7], side), ops->attention_cached(q, &a)));
    PAIR_CHECK(t, &all[6], 0.0, 0.0);
    PAIR_CHECK(t, &all[7], 4e-6, 4e-6 + 2.0 * dtype_epsilon(dtype));
    for (int i = 0; i < 8; i++)
        pair_free(&all[i]);
    twin_reset(t);
}

static void cached_source(struct twin *t)
{
    static const int64_t heads[][3] = {{4, 4, 64}, {4, 2, 20}, {3, 1, 130}};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        for (int d = 0; d < 3; d++)
            source_case(t, all_dtypes[d], heads[i]);
}

/* A sequence's row has the same bits in a longer cache and without the rows beside it. */
static void cached_alone(struct twin *t)
{
    const size_t dim = 48, heads = 3, row = 3 * heads * dim;
    struct pair sequences = cached_rows(t, false, 0), positions = cached_rows(t, true, 0);
    struct pair qkv = pair_of(t, tensor_random(ZINF_DTYPE_F32, CACHED_ROWS * row, 1, 1.0f));
    struct pair cache =
        pair_of(t, tensor_new(ZINF_DTYPE_F32, CACHED_SEQUENCES * 2 * 90 * heads * dim));
    struct pair out = pair_of(t, tensor_new(ZINF_DTYPE_F32, CACHED_ROWS * heads * dim));
    struct zinf_attention_cached a = {.rows = CACHED_ROWS,
                                      .n_heads = (int64_t)heads,
                                      .n_kv_heads = (int64_t)heads,
                                      .head_dim = (int64_t)dim,
                                      .n_sequences = CACHED_SEQUENCES,
                                      .capacity = 10,
                                      .scale = 0.1f,
                                      .sequences = sequences.device,
                                      .positions = positions.device,
                                      .qkv = qkv.device,
                                      .cache = cache.device,
                                      .out = out.device};
    struct tensor all, alone;
    CHECKF(!t->cuda->ops->attention_cached(t->q, &a), "%s", zinf_error());
    all = pair_download(t, &out);
    a.capacity = 90;
    CHECK(!t->cuda->ops->attention_cached(t->q, &a));
    for (int32_t i = 0; i < 2; i++) { /* the last two rows, one at a time */
        a.rows = 1;
        a.sequences = (int32_t *)sequences.device + 10 + i;
        a.positions = (int32_t *)positions.device + 10 + i;
        a.qkv = (float *)qkv.device + (size_t)(10 + i) * row;
        a.out = (float *)out.device + (size_t)(10 + i) * heads * dim;
        CHECK(!t->cuda->ops->attention_cached(t->q, &a));
    }
    alone = pair_download(t, &out);
    CHECK(tensor_same_bits(&all, &alone));
    tensor_free(&all);
    tensor_free(&alone);
    struct pair *const pairs[] = {&sequences, &positions, &qkv, &cache, &out};
    for (int i = 0; i < 5; i++)
        pair_free(pairs[i]);
    twin_reset(t);
}

/* The caller's slopes are read before the call returns. */
static void slopes_are_read_at_once(struct twin *t)
{
    const size_t rows = 33, head = 64;
    struct pair qkv = pair_of(t, tensor_random(ZINF_DTYPE_F16, rows * 3 * head, 1, 1.0f));
    struct pair out = pair_of(t, tensor_new(ZINF_DTYPE_F16, rows * head));
    struct pair lse = pair_of(t, tensor_new(ZINF_DTYPE_F32, rows));
    struct zinf_attention a = {.dtype = ZINF_DTYPE_F16,
                               .batch = 1,
                               .seq = (int64_t)rows,
                               .n_heads = 1,
                               .n_kv_heads = 1,
                               .head_dim = (int64_t)head,
                               .causal = true,
                               .scale = 0.125f};
    float steep[1];
    ON_BOTH(t, (steep[0] = 0.5f, a.slopes = steep, a.qkv = at(&qkv, side), a.out = at(&out, side),
                a.lse = at(&lse, side), ops->attention_forward(q, &a)) ||
                   (steep[0] = 1e9f, 0));
    PAIR_CHECK(t, &lse, 4e-6, 2e-6);
    pair_free(&qkv);
    pair_free(&out);
    pair_free(&lse);
    twin_reset(t);
}

static void refusals(struct twin *t)
{
    struct zinf_attention a = {.batch = 1, .seq = 4, .n_heads = 3, .n_kv_heads = 2, .head_dim = 8};
    CHECK(t->cuda->ops->attention_forward(t->q, &a) == -EINVAL);
    a.n_kv_heads = 3;
    a.head_dim = 513;
    CHECK(t->cuda->ops->attention_forward(t->q, &a) == -EINVAL && strstr(zinf_error(), "512"));
    a.head_dim = 8;
    a.softcap = -1.0f;
    CHECK(t->cuda->ops->attention_forward(t->q, &a) == -EINVAL && strstr(zinf_error(), "softcap"));
    a.softcap = 0.0f;
    t->cuda->ops->queue_set_workspace(t->q, t->cuda->memory, 47);
    CHECK(t->cuda->ops->attention_backward(t->q, &a) == -EINVAL);
    struct zinf_attention_cached c = {
        .rows = 1, .n_heads = 3, .n_kv_heads = 1, .head_dim = 513, .n_sequences = 1, .capacity = 4};
    CHECK(t->cuda->ops->attention_cached(t->q, &c) == -EINVAL && strstr(zinf_error(), "512"));
    c.head_dim = 8;
    c.n_heads = 257;
    c.slopes = slopes;
    CHECK(t->cuda->ops->attention_cached(t->q, &c) == -EINVAL && strstr(zinf_error(), "slopes"));
}

#ifdef CUDA_STANDIN
bool attention_mma_serves(const struct zinf_attention *args, int capability); /* of launch.h */

/* Whatever is added to scores or cuts them, and whosever keys they are of, tensor cores make them;
 * the plain kernels, which take ten times as long, are for what those have no room or type for. */
static void test_tensor_cores_serve(void)
{
    static _Alignas(16) char memory[16];
    static const int32_t segments[4] = {0};
    for (int kind = 0; kind < 16; kind++) {
        struct zinf_attention a = {.dtype = kind & 8 ? ZINF_DTYPE_F16 : ZINF_DTYPE_BF16,
                                   .batch = 1,
                                   .seq = 64,
                                   .n_heads = 2,
                                   .n_kv_heads = 1,
                                   .head_dim = 128,
                                   .scale = 0.1f,
                                   .qkv = memory,
                                   .out = memory};
        if (kind & 1) {
            a.kv = memory;
            a.key_seq = 32;
        }
        if (kind & 2)
            a.bias = (const float *)(const void *)memory;
        if (kind & 4) {
            a.segments = segments;
            a.softcap = 30.0f;
        }
        for (int capability = 80; capability <= 120; capability += 10)
            CHECKF(attention_mma_serves(&a, capability), "kind %d on sm_%d", kind, capability);
        a.dtype = ZINF_DTYPE_F32;
        CHECK(!attention_mma_serves(&a, 90));
    }
}
#endif

#define CASE(name)                                                                                 \
    static void test_##name(void)                                                                  \
    {                                                                                              \
        for_each_cuda(name);                                                                       \
    }
CASE(fp32)
CASE(sixteen_bit)
CASE(shaped_scores)
CASE(steep_scores)
CASE(much_dropout)
CASE(every_instance)
CASE(packed_samples)
CASE(cached)
CASE(cached_source)
CASE(cached_alone)
CASE(other_keys)
CASE(parts)
CASE(biased_tiles)
CASE(tables_of_buckets)
CASE(slopes_are_read_at_once)
CASE(refusals)

int main(void)
{
    TAP_RUN(test_fp32);
    TAP_RUN(test_sixteen_bit);
    TAP_RUN(test_shaped_scores);
    TAP_RUN(test_steep_scores);
    TAP_RUN(test_much_dropout);
    TAP_RUN(test_every_instance);
    TAP_RUN(test_packed_samples);
    TAP_RUN(test_cached);
    TAP_RUN(test_cached_source);
    TAP_RUN(test_cached_alone);
    TAP_RUN(test_other_keys);
    TAP_RUN(test_parts);
    TAP_RUN(test_biased_tiles);
    TAP_RUN(test_tables_of_buckets);
    TAP_RUN(test_slopes_are_read_at_once);
    TAP_RUN(test_refusals);
#ifdef CUDA_STANDIN
    TAP_RUN(test_tensor_cores_serve);
#endif
    return tap_done();
}
