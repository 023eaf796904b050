/* kernels_cached: what one token at a time is made of. Attention over a cache against a plain
 * softmax in double, for rows in any order, several sequences, windows in a ring of slots, caps,
 * slopes, biases by distance and keys of other sequences; products of few rows against plain sums;
 * the same bits whatever the threads. */
#include "kernels_testing.h"

/* ---- attention ---- */

struct problem {
    struct zinf_attention_cached args;
    struct tensor qkv, cache, out;
    int32_t sequences[64], positions[64];
};

static void problem_open(struct problem *p, enum zinf_dtype dtype, int64_t rows, int64_t n_heads,
                         int64_t n_kv_heads, int64_t head_dim)
{
    const size_t row = (size_t)((n_heads + 2 * n_kv_heads) * head_dim);
    memset(p, 0, sizeof *p);
    p->args = (struct zinf_attention_cached){
        .dtype = dtype,
        .rows = rows,
        .n_heads = n_heads,
        .n_kv_heads = n_kv_heads,
        .head_dim = head_dim,
        .n_sequences = 3,
        .capacity = 200,
        .scale = 1.0f / sqrtf((float)head_dim),
        .sequences = p->sequences,
        .positions = p->positions,
    };
    p->qkv = tensor_random(dtype, (size_t)rows * row, 1, 1.0f);
    p->cache = tensor_random(dtype, (size_t)(3 * 2 * n_kv_heads * 200 * head_dim), 2, 1.0f);
    p->out = tensor_random(dtype, (size_t)(rows * n_heads * head_dim), 3, 1.0f);
    p->args.qkv = p->qkv.data;
    p->args.cache = p->cache.data;
    p->args.out = p->out.data;
}

static void problem_close(struct problem *p)
{
    tensor_free(&p->qkv);
    tensor_free(&p->cache);
    tensor_free(&p->out);
}

/* Element c of a sequence's key (or value) at a position: a new row's, or the cache's. */
static double cached_at(const struct problem *p, const double *qkv, const double *cache, int s,
                        bool value, int64_t kv, int64_t position, int64_t c)
{
    const struct zinf_attention_cached *a = &p->args;
    const int64_t heads = a->n_heads + 2 * a->n_kv_heads;
    const int64_t head = a->n_heads + (value ? a->n_kv_heads : 0) + kv;
    for (int64_t r = 0; r < a->rows; r++)
        if (p->sequences[r] == s && p->positions[r] == position)
            return qkv[(r * heads + head) * a->head_dim + c];
    const int64_t plane = (s * 2 + value) * a->n_kv_heads + kv;
    return cache[(plane * a->capacity + position % a->capacity) * a->head_dim + c];
}

static double score_of(const struct problem *p, const double *qkv, const double *cache, int64_t row,
                       int64_t head, int64_t position)
{
    const struct zinf_attention_cached *a = &p->args;
    const int64_t heads = a->n_heads + 2 * a->n_kv_heads, kv = head * a->n_kv_heads / a->n_heads;
    double score = 0;
    for (int64_t c = 0; c < a->head_dim; c++)
        score += qkv[(row * heads + head) * a->head_dim + c] *
                 cached_at(p, qkv, cache, p->sequences[row], false, kv, position, c);
    score *= (double)a->scale;
    if (a->softcap > 0)
        score = (double)a->softcap * tanh(score / (double)a->softcap);
    if (a->slopes)
        score += (double)a->slopes[head] * (double)(position - p->positions[row]);
    if (a->bias)
        score += (double)a->bias[(head + 1) * a->capacity - 1 + position - p->positions[row]];
    return score;
}

static void reference_head(const struct problem *p, const double *qkv, const double *cache,
                           int64_t row, int64_t head, double *out)
{
    const struct zinf_attention_cached *a = &p->args;
    const int64_t last = p->positions[row], kv = head * a->n_kv_heads / a->n_heads;
    const int64_t first = a->piece                         ? last / a->piece * a->piece
                          : a->window && last >= a->window ? last + 1 - a->window
                                                           : 0;
    double scores[512], most = -INFINITY, sum = 0;
    for (int64_t j = first; j <= last; j++) {
        scores[j] = score_of(p, qkv, cache, row, head, j);
        most = fmax(most, scores[j]);
    }
    for (int64_t j = first; j <= last; j++)
        sum += scores[j] = exp(scores[j] - most);
    for (int64_t c = 0; c < a->head_dim; c++) {
        double value = 0;
        for (int64_t j = first; j <= last; j++)
            value += scores[j] * cached_at(p, qkv, cache, p->sequences[row], true, kv, j, c);
        out[(row * a->n_heads + head) * a->head_dim + c] = value / sum;
    }
}

/* Runs it, compares, and wants the new keys and values in the cache and nothing else changed. */
static void check_problem(struct fixture *f, struct problem *p)
{
    const struct zinf_attention_cached *a = &p->args;
    double *qkv = tensor_doubles(&p->qkv), *cache = tensor_doubles(&p->cache);
    double *want = malloc(p->out.n * sizeof *want), *kept = malloc(p->cache.n * sizeof *kept);
    for (int64_t row = 0; row < a->rows; row++)
        for (int64_t head = 0; head < a->n_heads; head++)
            reference_head(p, qkv, cache, row, head, want);
    memcpy(kept, cache, p->cache.n * sizeof *kept);
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t plane = 0; plane < 2 * a->n_kv_heads; plane++)
            for (int64_t c = 0; c < a->head_dim; c++)
                kept[((p->sequences[r] * 2 * a->n_kv_heads + plane) * a->capacity +
                      p->positions[r] % a->capacity) *
                         a->head_dim +
                     c] = cached_at(p, qkv, cache, p->sequences[r], plane >= a->n_kv_heads,
                                    plane % a->n_kv_heads, p->positions[r], c);
    CHECKF(!f->ops->attention_cached(f->q, a), "%s", zinf_error());
    CHECK_NEAR(f, &p->out, want, 3e-6, 2 * dtype_epsilon(a->dtype) + 1e-5);
    CHECK_NEAR(f, &p->cache, kept, 0.0, 0.0);
    free(qkv);
    free(cache);
    free(want);
    free(kept);
}

/* Rows of three sequences: a chunk, a single row, and a chunk whose last row comes first. */
static void mix_rows(struct problem *p)
{
    static const int32_t starts[] = {3, 150, 70};
    int64_t at = 0;
    p->sequences[at] = 2;
    p->positions[at++] = starts[2] + 5;
    for (int32_t i = 0; i < 9; i++, at++) {
        p->sequences[at] = 0;
        p->positions[at] = starts[0] + i;
    }
    p->sequences[at] = 1;
    p->positions[at++] = starts[1];
    for (int32_t i = 0; i < 5; i++, at++) {
        p->sequences[at] = 2;
        p->positions[at] = starts[2] + i;
    }
    p->args.rows = at;
}
enum { MIXED_ROWS = 16 };

static void attend_mixed(struct fixture *f)
{
    static const int64_t heads[][3] = {{4, 4, 64}, {6, 2, 16}, {3, 1, 10}, {8, 1, 33}};
    static const float slopes[] = {0.5f, 0.25f, 0.1f, 0.05f, 1.0f, 0.7f, 0.3f, 0.2f};
    for (size_t h = 0; h < sizeof heads / sizeof *heads; h++)
        for (int kind = 0; kind < 6; kind++) {
            struct tensor bias = tensor_random(ZINF_DTYPE_F32, 8 * 200, 4, 1.0f);
            struct problem p;
            problem_open(&p, all_dtypes[h % 3], MIXED_ROWS, heads[h][0], heads[h][1], heads[h][2]);
            mix_rows(&p);
            CHECK(p.args.rows == MIXED_ROWS);
            p.args.window = kind == 1 ? 67 : 0;
            p.args.softcap = kind == 2 ? 1.5f : 0.0f;
            p.args.slopes = kind == 3 ? slopes : NULL;
            p.args.bias = kind == 4 ? bias.data : NULL;
            p.args.piece = kind == 5 ? 8 : 0; /* each run of rows crosses an end of one */
            check_problem(f, &p);
            problem_close(&p);
            tensor_free(&bias);
        }
}

/* Positions beyond the slots, which begin again: a window needs no more of them. */
static void attend_ring(struct fixture *f)
{
    for (int32_t start = 195; start < 460; start += 53) {
        struct problem p;
        problem_open(&p, ZINF_DTYPE_F32, 7, 4, 2, 24);
        p.args.window = 194; /* and 7 rows: 200 slots */
        for (int32_t i = 0; i < 7; i++) {
            p.sequences[i] = 1;
            p.positions[i] = start + i;
        }
        check_problem(f, &p);
        problem_close(&p);
    }
}

/* ---- keys of other sequences ---- */

enum { SOURCE_ROWS = 9, BROUGHT = 30 };

/* Rows that read three sources, of which the last brings its last 30 keys, backwards. */
struct source_problem {
    struct problem p;
    struct zinf_cached_source source;
    int32_t lengths[3], sequences[BROUGHT], slots[BROUGHT];
    struct tensor kv;
};

static void source_open(struct source_problem *s, enum zinf_dtype dtype, const int64_t heads[3])
{
    static const int32_t lengths[] = {1, 200, 67};
    struct zinf_attention_cached *a = &s->p.args;
    problem_open(&s->p, dtype, SOURCE_ROWS, heads[0], heads[1], heads[2]);
    s->kv = tensor_random(dtype, (size_t)(BROUGHT * 2 * heads[1] * heads[2]), 6, 1.0f);
    memcpy(s->lengths, lengths, sizeof lengths);
    for (int32_t i = 0; i < BROUGHT; i++) {
        s->sequences[i] = 2;
        s->slots[i] = lengths[2] - 1 - i;
    }
    for (int32_t r = 0; r < SOURCE_ROWS; r++) {
        s->p.sequences[r] = r < 5 ? 2 : r % 3;
        s->p.positions[r] = -7; /* read by nobody */
    }
    s->source =
        (struct zinf_cached_source){s->lengths, BROUGHT, s->sequences, s->slots, s->kv.data};
    a->source = &s->source;
}

static void source_head(const struct source_problem *s, const double *queries, const double *cache,
                        int64_t row, int64_t head, double *out)
{
    const struct zinf_attention_cached *a = &s->p.args;
    const int64_t dim = a->head_dim, kv = head * a->n_kv_heads / a->n_heads;
    const int64_t number = s->p.sequences[row], length = s->lengths[number];
    const double *keys = cache + (number * 2 * a->n_kv_heads + kv) * a->capacity * dim;
    const double *values = keys + a->n_kv_heads * a->capacity * dim;
    const double *query = queries + (row * a->n_heads + head) * dim;
    double scores[200], most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < length; j++) {
        scores[j] = 0;
        for (int64_t c = 0; c < dim; c++)
            scores[j] += (double)a->scale * query[c] * keys[j * dim + c];
        most = fmax(most, scores[j]);
    }
    for (int64_t j = 0; j < length; j++)
        sum += scores[j] = exp(scores[j] - most);
    for (int64_t c = 0; c < dim; c++) {
        double value = 0;
        for (int64_t j = 0; j < length; j++)
            value += scores[j] * values[j * dim + c];
        out[(row * a->n_heads + head) * dim + c] = value / sum;
    }
}

static void check_source(struct fixture *f, const struct source_problem *s)
{
    const struct zinf_attention_cached *a = &s->p.args;
    const int64_t dim = a->head_dim, planes = 2 * a->n_kv_heads;
    double *queries = tensor_doubles(&s->p.qkv), *cache = tensor_doubles(&s->p.cache);
    double *kv = tensor_doubles(&s->kv), *want = malloc(s->p.out.n * sizeof *want);
    for (int64_t r = 0; r < a->source->rows; r++)
        for (int64_t plane = 0; plane < planes; plane++)
            memcpy(cache + ((s->sequences[r] * planes + plane) * a->capacity + s->slots[r]) * dim,
                   kv + (r * planes + plane) * dim, (size_t)dim * sizeof *kv);
    for (int64_t row = 0; row < a->rows; row++)
        for (int64_t head = 0; head < a->n_heads; head++)
            source_head(s, queries, cache, row, head, want);
    CHECKF(!f->ops->attention_cached(f->q, a), "%s", zinf_error());
    CHECK_NEAR(f, &s->p.out, want, 3e-6, 2 * dtype_epsilon(a->dtype) + 1e-5);
    CHECK_NEAR(f, &s->p.cache, cache, 0.0, 0.0);
    free(queries);
    free(cache);
    free(kv);
    free(want);
}

static void attend_source(struct fixture *f)
{
    static const int64_t heads[][3] = {{4, 4, 64}, {6, 2, 16}, {3, 1, 10}, {8, 1, 33}};
    for (size_t h = 0; h < sizeof heads / sizeof *heads; h++)
        for (int brings = 1; brings >= 0; brings--) {
            struct source_problem s;
            source_open(&s, all_dtypes[h % 3], heads[h]);
            s.source.rows = brings ? BROUGHT : 0;
            check_source(f, &s);
            problem_close(&s.p);
            tensor_free(&s.kv);
        }
}

static void test_source(void)
{
    for_each_device(attend_source);
}

static void test_attention(void)
{
    for_each_device(attend_mixed);
}

static void test_ring(void)
{
    for_each_device(attend_ring);
}

static void refuse(struct fixture *f, struct zinf_attention_cached args, const char *word)
{
    CHECK(f->ops->attention_cached(f->q, &args) == -EINVAL);
    CHECKF(strstr(zinf_error(), word) != NULL, "%s", zinf_error());
}

static void refuse_source(struct fixture *f, struct zinf_attention_cached a)
{
    int32_t lengths[] = {1, 0, 201}, brought = 3, slot = 200, *sequences = (int32_t *)a.sequences;
    struct zinf_cached_source source = {.lengths = lengths};
    a.source = &source;
    CHECKF(!f->ops->attention_cached(f->q, &a), "%s", zinf_error());
    sequences[0] = 1;
    refuse(f, a, "position -1 of sequence 1");
    sequences[0] = 2;
    refuse(f, a, "position 200 of sequence 2");
    sequences[0] = 0;
    source.rows = 1;
    source.sequences = &brought;
    source.slots = &slot;
    refuse(f, a, "sequence 3");
    brought = 0;
    refuse(f, a, "position 200 of sequence 0");
    source.rows = 0;
    a.window = 5;
    refuse(f, a, "beside a window");
}

static void test_refusals(void)
{
    struct fixture f;
    struct problem p;
    fixture_open(&f, ZINF_ISA_SCALAR, 1);
    problem_open(&p, ZINF_DTYPE_F32, 1, 4, 2, 8);
    struct zinf_attention_cached a = p.args;
    p.positions[0] = 200;
    refuse(&f, a, "position 200");
    p.positions[0] = 0;
    p.sequences[0] = 3;
    refuse(&f, a, "sequence 3");
    p.sequences[0] = 0;
    a.n_heads = 3;
    refuse(&f, a, "3 heads");
    a.n_heads = 4;
    a.piece = -1;
    refuse(&f, a, "pieces of -1");
    a.piece = 0;
    a.window = 201;
    refuse(&f, a, "window of 201");
    a.window = 0;
    a.bias = p.out.data;
    a.softcap = 1.0f;
    refuse(&f, a, "a bias by distance beside");
    a.bias = NULL;
    a.softcap = 0.0f;
    refuse_source(&f, a);
    f.ops->queue_set_workspace(f.q, f.workspace, 64);
    refuse(&f, a, "workspace");
    problem_close(&p);
    fixture_close(&f);
}

/* ---- products of few rows ---- */

static void check_product(struct fixture *f, enum zinf_dtype dtype, int64_t m, int64_t n, int64_t k,
                          bool bias)
{
    struct tensor a = tensor_random(dtype, (size_t)(m * k), 4, 1.0f);
    struct tensor b = tensor_random(dtype, (size_t)(n * (k + 3)), 5, 1.0f);
    struct tensor d = tensor_random(dtype, (size_t)n, 6, 1.0f);
    struct tensor c = tensor_random(dtype, (size_t)(m * n), 7, 1.0f);
    double *want = calloc(c.n, sizeof *want), most = 0;
    struct zinf_matmul args = {.m = m,
                               .n = n,
                               .k = k,
                               .a = a.data,
                               .b = b.data,
                               .c = c.data,
                               .a_dtype = dtype,
                               .b_dtype = dtype,
                               .c_dtype = dtype,
                               .trans_b = true,
                               .lda = k,
                               .ldb = k + 3,
                               .ldc = n,
                               .bias = bias ? d.data : NULL,
                               .few_rows = true};
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            for (int64_t l = 0; l < k; l++)
                want[i * n + j] +=
                    get(&a, (size_t)(i * k + l)) * get(&b, (size_t)(j * (k + 3) + l));
            want[i * n + j] += bias ? get(&d, (size_t)j) : 0;
            most = fmax(most, fabs(want[i * n + j]));
        }
    CHECKF(!f->ops->matmul(f->q, &args), "%s", zinf_error());
    CHECK_NEAR(f, &c, want, 1e-6 * most, 2 * dtype_epsilon(dtype));
    tensor_free(&a);
    tensor_free(&b);
    tensor_free(&c);
    tensor_free(&d);
    free(want);
}

static void multiply_few(struct fixture *f)
{
    static const int64_t shapes[][3] = {{1, 300, 129}, {3, 67, 1100}, {16, 130, 64},
                                        {17, 40, 20},  {5, 1, 7},     {2, 257, 2050}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (size_t t = 0; t < 3; t++)
            check_product(f, all_dtypes[t], shapes[i][0], shapes[i][1], shapes[i][2], i % 2 == 0);
}

static void test_few_rows(void)
{
    for_each_device(multiply_few);
}

/* ---- threads ---- */

static void test_threads_change_no_bit(void)
{
    struct tensor outs[2];
    for (int i = 0; i < 2; i++) {
        struct fixture f;
        struct problem p;
        fixture_open(&f, zinf_isa(), 1 + 2 * i);
        problem_open(&p, ZINF_DTYPE_F32, MIXED_ROWS, 8, 2, 64);
        mix_rows(&p);
        CHECK(!f.ops->attention_cached(f.q, &p.args));
        outs[i] = tensor_copy(&p.out);
        problem_close(&p);
        fixture_close(&f);
    }
    CHECK(tensor_same_bits(&outs[0], &outs[1]));
    tensor_free(&outs[0]);
    tensor_free(&outs[1]);
}

int main(void)
{
    TAP_RUN(test_attention);
    TAP_RUN(test_ring);
    TAP_RUN(test_source);
    TAP_RUN(test_refusals);
    TAP_RUN(test_few_rows);
    TAP_RUN(test_threads_change_no_bit);
    return tap_done();
}
