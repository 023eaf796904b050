/* cuda_attention: attention of the CUDA device against the host's: head sizes, grouped heads,
 * causal and not, windows, documents, keys of another sequence, biases by distance, dropout, soft
 * caps and slopes, lengths around the tiles; and of new rows over a cache: several sequences, rows
 * in any order, windows in a ring of slots. */
#include "cuda_twin.h"

#include <sys/mman.h>

static void attention_case(struct twin *t, enum zinf_dtype dtype, struct attention_shape s)
{
    const struct attention_special special = {.shape = s};
    case_attention(t, dtype, &special, NULL);
}

static void fp32(struct twin *t)
{
    static const struct attention_shape shapes[] = {
        {1, 1, 1, 1, 1, true, 0.0f, 0, 0, 0},    {2, 5, 2, 1, 3, true, 0.0f, 0, 0, 0},
        {1, 33, 2, 2, 37, false, 0.2f, 0, 0, 0}, {2, 40, 4, 2, 64, true, 0.1f, 0, 0, 0},
        {1, 35, 3, 1, 100, true, 0.0f, 0, 0, 0}, {1, 19, 1, 1, 256, false, 0.0f, 0, 0, 0},
        {1, 79, 2, 1, 64, true, 0.1f, 20, 0, 0}, {1, 50, 2, 1, 96, true, 0.0f, 33, 0, 0},
        {1, 12, 1, 1, 8, true, 0.0f, 1, 0, 0},   {1, 9, 2, 1, 512, true, 0.1f, 5, 0, 0},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        attention_case(t, ZINF_DTYPE_F32, shapes[i]);
}

static void sixteen_bit_cases(struct twin *t, const struct attention_shape *shapes, size_t n)
{
    for (int d = 1; d < 3; d++)
        for (size_t i = 0; i < n; i++)
            attention_case(t, all_dtypes[d], shapes[i]);
}

static void sixteen_bit(struct twin *t)
{
    static const struct attention_shape shapes[] = {
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
    static const struct attention_shape shapes[] = {
        {1, 130, 1, 1, 64, true, 0.75f, 0, 0, 0}, {1, 97, 1, 1, 128, false, 0.75f, 0, 0, 0},
        {1, 97, 2, 1, 64, true, 0.9f, 0, 0, 0},   {1, 35, 1, 1, 256, true, 0.9f, 0, 0, 0},
        {1, 70, 2, 2, 64, true, 0.98f, 0, 0, 0},
    };
    sixteen_bit_cases(t, shapes, sizeof shapes / sizeof *shapes);
}

/* Scores that are more than scaled: caps, slopes, both; every tile and kernel. */
static void shaped_scores(struct twin *t)
{
    static const struct attention_shape shapes[] = {
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
    attention_case(t, ZINF_DTYPE_F32,
                   (struct attention_shape){1, 20, 1, 1, 100, true, 0.1f, 0, 1.5f, true});
    attention_case(t, ZINF_DTYPE_F32,
                   (struct attention_shape){1, 9, 1, 1, 264, true, 0.0f, 0, 1.5f, true});
}

/* What else the kernels are compiled for: kind of scores by size of heads, for either type. */
static void every_instance(struct twin *t)
{
    static const struct attention_shape shapes[] = {
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
    static const struct attention_special shapes[] = {
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
        case_attention(t, all_dtypes[i < 4 ? 0 : 1 + i % 2], &shapes[i], NULL);
}

/* Scores with documents, other keys, a bias or a cap, of more heads than can have slopes. */
static void heads_without_slopes(struct twin *t)
{
    const int64_t heads = ZINF_ATTENTION_MAX_SLOPES + 4;
    const struct attention_special shapes[] = {
        {.shape = {1, 7, heads, heads / 4, 8, true, 0.0f, 0, 0, 0}, .document = 3},
        {.shape = {1, 5, heads, heads / 4, 8, false, 0.0f, 0, 2.0f, 0}, .key_seq = 9},
        {.shape = {1, 6, heads, heads / 4, 8, false, 0.0f, 0, 0, 0}, .biased = true},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int d = 0; d < 2; d++) /* plain kernels, and those of tensor cores */
            case_attention(t, all_dtypes[d ? 1 + i % 2 : 0], &shapes[i], NULL);
}

/* Scores so far apart that a row's later keys hide its first ones, by ever more: what is taken off
 * scores moves along with them, in tiles with and without unseen keys, and for some rows of a warp
 * only. */
static void steep_scores(struct twin *t)
{
    static const struct attention_special shapes[] = {
        {.shape = {1, 150, 1, 1, 64, true, 0.0f, 0, 0, 0}, .steep = 12.0f},
        {.shape = {1, 80, 1, 1, 128, false, 0.1f, 0, 0, 0}, .steep = 12.0f},
        {.shape = {1, 90, 1, 1, 32, true, 0.1f, 40, 0, 0}, .steep = 15.0f},
        {.shape = {1, 40, 1, 1, 256, true, 0.0f, 0, 0, 0}, .steep = 10.0f},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        case_attention(t, all_dtypes[1 + i % 2], &shapes[i], NULL);
}

/* Keys of another sequence, biases by distance, both. */
static void other_keys(struct twin *t)
{
    static const struct attention_special shapes[] = {
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
        case_attention(t, all_dtypes[i < 6 ? i % 3 : 1 + i % 2], &shapes[i], NULL);
    case_attention(t, ZINF_DTYPE_F32, &shapes[5], NULL);   /* not on tensor cores, by small tiles */
    case_attention(t, ZINF_DTYPE_BF16, &shapes[11], NULL); /* by the smallest */
}

/* A part's queries over the keys of parts before, which may be ahead of all queries. */
static void parts(struct twin *t)
{
    static const struct {
        struct attention_special special;
        struct attention_part part;
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
        case_attention(t, all_dtypes[!i ? 0 : 1 + i % 2], &shapes[i].special, &shapes[i].part);
}

/* Biases by distance and their gradients, on tensor cores: each size of heads in both types. */
static void biased_tiles(struct twin *t)
{
    for (int64_t size = 32; size <= 256; size *= 2)
        for (int d = 1; d < 3; d++) {
            const struct attention_special s = {.shape = {1, 70, 2, d, size - (d == 1 ? 0 : 8),
                                                          size == 64, d == 1 ? 0.1f : 0.0f, 0, 0,
                                                          0},
                                                .document = size == 128 ? 30 : 0,
                                                .key_seq = size == 32    ? 140
                                                           : size == 256 ? 33
                                                                         : 0,
                                                .biased = true};
            case_attention(t, all_dtypes[d], &s, NULL);
        }
}

static void tables_of_buckets(struct twin *t)
{
    for (int both_ways = 0; both_ways < 2; both_ways++)
        case_distance_bias(t, all_dtypes[1 + both_ways], both_ways);
}

/* ---- over a cache ---- */

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
        {4, 2, 32, 200, 0, 0.0f, false, 154, false, ((int64_t)1 << 32) + 8}, /* as if of one */
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int d = 0; d < 3; d++)
            case_cached(t, all_dtypes[d], &shapes[i]);
}

/* ---- over keys of other sequences ---- */

static void cached_source(struct twin *t)
{
    static const int64_t heads[][3] = {{4, 4, 64}, {4, 2, 20}, {3, 1, 130}};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        for (int d = 0; d < 3; d++)
            case_source(t, all_dtypes[d], heads[i][0], heads[i][1], heads[i][2]);
}

/* A sequence's row has the same bits in a longer cache and without the rows beside it. */
static void cached_alone(struct twin *t)
{
    enum { CACHED_ROWS = 12, CACHED_SEQUENCES = 3 };
    static const int32_t numbers[CACHED_ROWS] = {2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0};
    static const int32_t places[CACHED_ROWS] = {3, 8, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1};
    const size_t dim = 48, heads = 3, row = 3 * heads * dim;
    twin_case(t, "attention_cached", "%s", "alone");
    struct pair sequences = pair_numbers(t, numbers, CACHED_ROWS);
    struct pair positions = pair_numbers(t, places, CACHED_ROWS);
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
}

/* The caller's slopes are read before the call returns. */
static void slopes_are_read_at_once(struct twin *t)
{
    const size_t rows = 33, head = 64;
    twin_case(t, "attention", "%s", "slopes that change after the call");
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
    a.batch = 65536;
    CHECK(t->cuda->ops->attention_forward(t->q, &a) == -EINVAL && strstr(zinf_error(), "micro"));
    a.batch = 1;
    t->cuda->ops->queue_set_workspace(t->q, t->cuda->memory, 47);
    CHECK(t->cuda->ops->attention_backward(t->q, &a) == -EINVAL);
    struct zinf_attention_cached c = {
        .rows = 1, .n_heads = 3, .n_kv_heads = 1, .head_dim = 513, .n_sequences = 1, .capacity = 4};
    CHECK(t->cuda->ops->attention_cached(t->q, &c) == -EINVAL && strstr(zinf_error(), "512"));
    c.head_dim = 8;
    c.n_heads = 257;
    c.slopes = (const float[]){0.5f};
    CHECK(t->cuda->ops->attention_cached(t->q, &c) == -EINVAL && strstr(zinf_error(), "slopes"));
}

/* More than an int counts, with no memory behind it: refused before anything is launched. */
static void counts_beyond_an_int(struct twin *t)
{
    static const struct counts {
        int64_t queries, keys, first, heads;
    } counts[] = {{((int64_t)1 << 30) + 1, 1, 0, 1},
                  {1, ((int64_t)1 << 30) + 1, 0, 1},
                  {1, 1, ((int64_t)1 << 30) + 1, 1},
                  {1 << 30, 1, 0, 17}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const struct counts *c = &counts[i];
        struct zinf_attention a = {.batch = 1,
                                   .seq = c->queries,
                                   .n_heads = c->heads,
                                   .n_kv_heads = 1,
                                   .head_dim = 8,
                                   .key_seq = c->keys,
                                   .first_query = c->first};
        CHECKF(t->cuda->ops->attention_forward(t->q, &a) == -EINVAL &&
                   strstr(zinf_error(), "--seq-len"),
               "%zu: %s", i, zinf_error());
    }
}

#ifdef CUDA_STANDIN
/* Places of rows in what is [heads][seq] are beyond 2^31: of 65 heads of 2^25 rows, of which those
 * that see the keys count, it is the bits of 65 heads of as many rows as there are memory for. lse
 * and the row sums (which a kernel that is left out would have made) are mappings of which the rows
 * that are read have pages; behind 2^31 numbers that a place below 0 would find. */
enum { FAR_HEADS = 65, FAR_DIM = 8, FAR_KEYS = 64, FAR_WINDOW = 32, FAR_ROWS = 128 };
static const uint64_t far_before = (uint64_t)1 << 31;
static uint64_t far_bytes(int64_t seq)
{
    return (far_before + (uint64_t)(FAR_HEADS * seq)) * sizeof(float);
}

static float *far_rows(int64_t seq, float scale)
{
    float *rows = mmap(NULL, far_bytes(seq), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(rows != MAP_FAILED);
    for (int64_t head = 0; head < FAR_HEADS; head++)
        for (int64_t i = 0; i < FAR_ROWS; i++)
            rows[far_before + (uint64_t)(head * seq + i)] =
                scale * (float)((head * 7 + i * 3) % 11);
    return rows;
}

static struct tensor far_gradients(struct twin *t, struct zinf_attention a, int64_t seq,
                                   const struct pair *d_kv)
{
    float *lse = far_rows(seq, 0.25f), *delta = far_rows(seq, 0.125f);
    a.seq = seq;
    a.lse = lse + far_before;
    t->cuda->ops->queue_set_workspace(t->q, delta + far_before,
                                      far_bytes(seq) - far_before * sizeof(float));
    CHECKF(!t->cuda->ops->attention_backward(t->q, &a), "%s", zinf_error());
    struct tensor got = pair_download(t, d_kv);
    munmap(lse, far_bytes(seq));
    munmap(delta, far_bytes(seq));
    return got;
}

static void test_rows_beyond_an_int(void)
{
    static const struct standin_options machine = {.skips = "attention_delta,attention_mma_dq"};
    const size_t row = FAR_HEADS * FAR_DIM;
    struct twin t;
    twin_machine = &machine;
    CHECK(twin_open_for(&t, 80, 1));
    twin_machine = NULL;
    struct pair q = pair_of(&t, tensor_random(ZINF_DTYPE_BF16, FAR_ROWS * row, 1, 1.0f));
    struct pair d_out = pair_of(&t, tensor_random(ZINF_DTYPE_BF16, FAR_ROWS * row, 2, 1.0f));
    struct pair kv = pair_of(&t, tensor_random(ZINF_DTYPE_BF16, FAR_KEYS * 2 * FAR_DIM, 3, 1.0f));
    struct pair d_kv = pair_of(&t, tensor_new(ZINF_DTYPE_BF16, FAR_KEYS * 2 * FAR_DIM));
    const struct zinf_attention a = {.dtype = ZINF_DTYPE_BF16,
                                     .batch = 1,
                                     .n_heads = FAR_HEADS,
                                     .n_kv_heads = 1,
                                     .head_dim = FAR_DIM,
                                     .key_seq = FAR_KEYS,
                                     .causal = true,
                                     .window = FAR_WINDOW,
                                     .scale = 0.5f,
                                     .qkv = q.device,
                                     .kv = kv.device,
                                     .d_out = d_out.device,
                                     .out = d_out.device,
                                     .d_qkv = q.device,
                                     .d_kv = d_kv.device};
    struct tensor near = far_gradients(&t, a, FAR_ROWS, &d_kv);
    struct tensor far = far_gradients(&t, a, 1 << 25, &d_kv);
    CHECK(tensor_same_bits(&near, &far));
    float largest = 0.0f;
    for (size_t i = 0; i < near.n; i++)
        largest = fmaxf(largest, fabsf((float)get(&near, i)));
    CHECKF(largest > 0.1f && isfinite(largest), "the largest gradient is %g", (double)largest);
    twin_end(&t);
}

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
CASE(heads_without_slopes)
CASE(cached)
CASE(cached_source)
CASE(cached_alone)
CASE(other_keys)
CASE(parts)
CASE(biased_tiles)
CASE(tables_of_buckets)
CASE(slopes_are_read_at_once)
CASE(refusals)
CASE(counts_beyond_an_int)

int main(void)
{
    TAP_RUN(test_fp32);
    TAP_RUN(test_sixteen_bit);
    TAP_RUN(test_shaped_scores);
    TAP_RUN(test_steep_scores);
    TAP_RUN(test_much_dropout);
    TAP_RUN(test_every_instance);
    TAP_RUN(test_packed_samples);
    TAP_RUN(test_heads_without_slopes);
    TAP_RUN(test_cached);
    TAP_RUN(test_cached_source);
    TAP_RUN(test_cached_alone);
    TAP_RUN(test_other_keys);
    TAP_RUN(test_parts);
    TAP_RUN(test_biased_tiles);
    TAP_RUN(test_tables_of_buckets);
    TAP_RUN(test_slopes_are_read_at_once);
    TAP_RUN(test_refusals);
    TAP_RUN(test_counts_beyond_an_int);
#ifdef CUDA_STANDIN
    TAP_RUN(test_rows_beyond_an_int);
    TAP_RUN(test_tensor_cores_serve);
#endif
    return tap_done();
}
