/*
 * kernels_cross: attention to the keys of another sequence, and scores with a bias by distance,
 * against a plain softmax in double and its gradient; the table of buckets behind such a bias.
 */
#include "kernels_testing.h"

struct shape {
    int64_t batch, seq, key_seq, n_heads, n_kv_heads,
        head_dim; /* key_seq 0: of the same sequence */
    bool causal, biased, packed;
    float dropout;
};

/* One call's tensors, and what they must become. kv is qkv where the sequence is one. */
struct problem {
    struct zinf_attention args;
    struct tensor qkv, kv, out, lse, d_out, d_qkv, d_kv, bias, d_bias;
    int32_t *segments, *key_segments;
    double *q, *keys, *bias_value, *dy; /* as doubles: keys has qkv's or kv's rows */
    double *want_out, *want_lse, *want_q, *want_kv, *want_bias;
};

static bool crosses(const struct problem *p)
{
    return p->args.key_seq != 0;
}

/* Elements to head `part` of a row of keys and values: n_kv_heads keys, then values. */
static int64_t key_at(const struct problem *p, int64_t b, int64_t j, int64_t part)
{
    const struct zinf_attention *a = &p->args;
    const int64_t n = 2 * a->n_kv_heads, before = crosses(p) ? 0 : a->n_heads;
    return ((b * zinf_attention_keys(a) + j) * (n + before) + before + part) * a->head_dim;
}

static int64_t query_at(const struct problem *p, int64_t b, int64_t i, int64_t h)
{
    const struct zinf_attention *a = &p->args;
    const int64_t heads = a->n_heads + (crosses(p) ? 0 : 2 * a->n_kv_heads);
    return ((b * a->seq + i) * heads + h) * a->head_dim;
}

static bool sees(const struct problem *p, int64_t b, int64_t i, int64_t j)
{
    const struct zinf_attention *a = &p->args;
    if (a->causal && j > i)
        return false;
    if (!a->segments)
        return true;
    const int32_t own = p->segments[b * a->seq + i];
    const int32_t *others =
        crosses(p) ? p->key_segments + b * a->key_seq : p->segments + b * a->seq;
    return own > 0 && own == others[j];
}

/* ---- the reference ---- */

static double score(const struct problem *p, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const struct zinf_attention *a = &p->args;
    const double *q = p->q + query_at(p, b, i, h);
    const double *k = p->keys + key_at(p, b, j, h / (a->n_heads / a->n_kv_heads));
    double sum = 0.0;
    for (int64_t c = 0; c < a->head_dim; c++)
        sum += q[c] * k[c];
    sum *= (double)a->scale;
    return a->bias ? sum + p->bias_value[h * zinf_attention_distances(a) + j - i + a->seq - 1]
                   : sum;
}

/* Row i of head h: its result, log-sum-exp and every gradient. */
static void reference_row(struct problem *p, int64_t b, int64_t h, int64_t i, double *s)
{
    const struct zinf_attention *a = &p->args;
    const int64_t keys = zinf_attention_keys(a), d = a->head_dim,
                  row = (b * a->n_heads + h) * a->seq;
    const int64_t kv = h / (a->n_heads / a->n_kv_heads),
                  y = ((b * a->seq + i) * a->n_heads + h) * d;
    double max = -INFINITY, sum = 0.0, delta = 0.0;
    for (int64_t j = 0; j < keys; j++) {
        s[j] = sees(p, b, i, j) ? score(p, b, h, i, j) : -INFINITY;
        max = s[j] > max ? s[j] : max;
    }
    if (max == -INFINITY)
        return;
    for (int64_t j = 0; j < keys; j++)
        sum += s[j] = exp(s[j] - max);
    p->want_lse[row + i] = max + log(sum);
    for (int64_t j = 0; j < keys; j++) {
        const double *v = p->keys + key_at(p, b, j, a->n_kv_heads + kv);
        const uint64_t e = a->dropout.element_first + (uint64_t)((row + i) * keys + j);
        const double weight = s[j] / sum * dropout_factor(&a->dropout, e);
        for (int64_t c = 0; c < d; c++) {
            p->want_out[y + c] += weight * v[c];
            delta += weight * v[c] * p->dy[y + c];
            p->want_kv[key_at(p, b, j, a->n_kv_heads + kv) + c] += weight * p->dy[y + c];
        }
    }
    for (int64_t j = 0; j < keys; j++) {
        const double *v = p->keys + key_at(p, b, j, a->n_kv_heads + kv);
        const uint64_t e = a->dropout.element_first + (uint64_t)((row + i) * keys + j);
        double dp = 0.0;
        for (int64_t c = 0; c < d; c++)
            dp += p->dy[y + c] * v[c];
        const double ds = s[j] / sum * (dp * dropout_factor(&a->dropout, e) - delta);
        p->want_bias[(b * a->n_heads + h) * zinf_attention_distances(a) + j - i + a->seq - 1] += ds;
        for (int64_t c = 0; c < d; c++) {
            const int64_t q = query_at(p, b, i, h) + c, k = key_at(p, b, j, kv) + c;
            p->want_q[q] += (double)a->scale * ds * p->keys[k];
            p->want_kv[k] += (double)a->scale * ds * p->q[q];
        }
    }
}

static void reference(struct problem *p)
{
    const struct zinf_attention *a = &p->args;
    double *scores = malloc((size_t)zinf_attention_keys(a) * sizeof *scores);
    for (int64_t b = 0; b < a->batch; b++)
        for (int64_t h = 0; h < a->n_heads; h++)
            for (int64_t i = 0; i < a->seq; i++)
                reference_row(p, b, h, i, scores);
    free(scores);
}

/* ---- problems ---- */

/* Documents one after the other, up to number `most`, and padding behind them. */
static int32_t *make_segments(int64_t batch, int64_t n, int32_t most)
{
    int32_t *s = calloc((size_t)(batch * n), sizeof *s);
    for (int64_t t = 0; t < batch * n; t++) {
        const int32_t document = 1 + (int32_t)(t % n * 4 / n);
        s[t] = document > most || t % n >= n - n / 7 ? 0 : document;
    }
    return s;
}

static void problem_open(struct problem *p, enum zinf_dtype dtype, const struct shape *s)
{
    const int64_t keys = s->key_seq ? s->key_seq : s->seq, heads = s->n_heads;
    const size_t rows = (size_t)(s->batch * s->seq), d = (size_t)s->head_dim;
    const size_t row = ((size_t)heads + (s->key_seq ? 0 : 2 * (size_t)s->n_kv_heads)) * d;
    const size_t kv = s->key_seq ? (size_t)(s->batch * keys * 2 * s->n_kv_heads) * d : 0;
    const size_t distances = (size_t)(heads * (s->seq + keys - 1));
    *p = (struct problem){
        .qkv = tensor_random(dtype, rows * row, 1, 1.0f),
        .kv = tensor_random(dtype, kv, 2, 1.0f),
        .out = tensor_new(dtype, rows * (size_t)heads * d),
        .lse = tensor_new(ZINF_DTYPE_F32, rows * (size_t)heads),
        .d_out = tensor_random(dtype, rows * (size_t)heads * d, 3, 1.0f),
        .d_qkv = tensor_random(dtype, rows * row, 4, 1.0f), /* to be overwritten */
        .d_kv = tensor_random(dtype, kv, 5, 1.0f),
        .bias = tensor_random(ZINF_DTYPE_F32, distances, 6, 1.0f),
        .d_bias = tensor_random(ZINF_DTYPE_F32, (size_t)s->batch * distances, 7, 1.0f),
        .segments = make_segments(s->batch, s->seq, 3),
        .key_segments = make_segments(s->batch, keys, 4),
    };
    p->args = (struct zinf_attention){
        .dtype = dtype,
        .batch = s->batch,
        .seq = s->seq,
        .n_heads = heads,
        .n_kv_heads = s->n_kv_heads,
        .head_dim = s->head_dim,
        .key_seq = s->key_seq,
        .causal = s->causal,
        .scale = 1.0f / sqrtf((float)s->head_dim),
        .bias = s->biased ? p->bias.data : NULL,
        .segments = s->packed ? p->segments : NULL,
        .key_segments = s->packed && s->key_seq ? p->key_segments : NULL,
        .dropout = {.p = s->dropout, .seed = 99, .step = 3, .site = 7, .element_first = 4321},
        .qkv = p->qkv.data,
        .kv = s->key_seq ? p->kv.data : NULL,
        .out = p->out.data,
        .lse = p->lse.data,
        .d_out = p->d_out.data,
        .d_qkv = p->d_qkv.data,
        .d_kv = s->key_seq ? p->d_kv.data : NULL,
        .d_bias = s->biased ? p->d_bias.data : NULL,
    };
    p->q = tensor_doubles(&p->qkv);
    p->keys = s->key_seq ? tensor_doubles(&p->kv) : p->q;
    p->bias_value = tensor_doubles(&p->bias);
    p->dy = tensor_doubles(&p->d_out);
    p->want_out = calloc(p->out.n, sizeof(double));
    p->want_lse = calloc(p->lse.n, sizeof(double));
    p->want_q = calloc(p->qkv.n, sizeof(double));
    p->want_kv = s->key_seq ? calloc(p->kv.n, sizeof(double)) : p->want_q;
    p->want_bias = calloc(p->d_bias.n + 1, sizeof(double));
}

static void problem_close(struct problem *p)
{
    struct tensor *tensors[] = {&p->qkv,   &p->kv,   &p->out,  &p->lse,   &p->d_out,
                                &p->d_qkv, &p->d_kv, &p->bias, &p->d_bias};
    double *doubles[] = {p->q,        p->bias_value, p->dy,       p->want_out,
                         p->want_lse, p->want_q,     p->want_bias};
    if (crosses(p)) {
        free(p->keys);
        free(p->want_kv);
    }
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        tensor_free(tensors[i]);
    for (size_t i = 0; i < sizeof doubles / sizeof *doubles; i++)
        free(doubles[i]);
    free(p->segments);
    free(p->key_segments);
}

/* ---- cases ---- */

static const struct shape shapes[] = {
    {2, 7, 11, 4, 2, 5, false, false, false, 0.0f},
    {2, 1, 9, 2, 2, 8, false, false, true, 0.0f},
    {1, 70, 5, 2, 1, 24, false, false, false, 0.2f},
    {2, 33, 150, 2, 2, 16, false, false, true, 0.1f},
    {1, 150, 70, 3, 3, 40, false, true, true, 0.0f},
    {2, 20, 0, 4, 4, 6, false, true, false, 0.0f},
    {1, 100, 0, 2, 1, 16, true, true, false, 0.1f},
    {2, 67, 0, 2, 2, 33, false, true, true, 0.0f},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static void cases(struct fixture *f)
{
    for (int i = 0; i < N_SHAPES; i++)
        for (int d = 0; d < 3; d++) {
            struct problem p;
            const double epsilon = dtype_epsilon(all_dtypes[d]);
            problem_open(&p, all_dtypes[d], &shapes[i]);
            reference(&p);
            CHECKF(!f->ops->attention_forward(f->q, &p.args), "%s", zinf_error());
            CHECK_NEAR(f, &p.out, p.want_out, 4e-6, 1.01 * epsilon + 2e-6);
            CHECK_NEAR(f, &p.lse, p.want_lse, 6e-6, 1e-6);
            CHECKF(!f->ops->attention_backward(f->q, &p.args), "%s", zinf_error());
            CHECK_NEAR(f, &p.d_qkv, p.want_q, 4e-5 + 8.0 * epsilon, 2e-5 + 2.0 * epsilon);
            if (crosses(&p))
                CHECK_NEAR(f, &p.d_kv, p.want_kv, 4e-5 + 8.0 * epsilon, 2e-5 + 2.0 * epsilon);
            if (p.args.d_bias)
                CHECK_NEAR(f, &p.d_bias, p.want_bias, 1e-4 + 8.0 * epsilon, 2e-5 + 2.0 * epsilon);
            problem_close(&p);
        }
}

static void test_other_keys_and_biases_match_the_reference(void)
{
    for_each_device(cases);
}

static void test_bad_arguments_are_refused(void)
{
    struct fixture f;
    struct problem p;
    fixture_open(&f, zinf_isa(), 1);
    problem_open(&p, ZINF_DTYPE_F32, &shapes[1]);
    struct zinf_attention bad = p.args;
    bad.first_query = 5;
    bad.whole_seq = 9;
    CHECK(!f.ops->attention_forward(f.q, &bad));
    bad.first_query = -5;
    CHECK(f.ops->attention_forward(f.q, &bad) == -EINVAL && strstr(zinf_error(), "from token -5"));
    bad.first_query = 5;
    bad.key_seq = bad.whole_seq = 0;
    CHECK(f.ops->attention_forward(f.q, &bad) == -EINVAL && strstr(zinf_error(), "need key_seq"));
    bad = p.args;
    bad.bias = p.bias.data;
    bad.softcap = 1.0f;
    CHECK(f.ops->attention_forward(f.q, &bad) == -EINVAL && strstr(zinf_error(), "soft cap"));
    bad = p.args;
    bad.key_segments = NULL;
    CHECK(f.ops->attention_forward(f.q, &bad) == -EINVAL && strstr(zinf_error(), "documents"));
    problem_close(&p);
    fixture_close(&f);
}

/* ---- the table ---- */

/* Of 4 buckets: distances 0, 1, 2 and 3, then 4 and on. */
static const int32_t starts[] = {0, 1, 2, 4};
static const int buckets[] = {0, 1, 2, 2, 3, 3, 3}; /* of distances 0 to 6 */
enum { N_BUCKETS = 4, HEADS = 3, QUERIES = 5, KEYS = 7, DISTANCES = QUERIES + KEYS - 1 };

static int bucket_of(int distance, bool both_ways)
{
    if (distance > 0)
        return both_ways ? N_BUCKETS + buckets[distance] : 0;
    return buckets[-distance];
}

static void tables(struct fixture *f)
{
    for (int both_ways = 0; both_ways < 2; both_ways++) {
        struct tensor table = tensor_random(ZINF_DTYPE_BF16, 2 * N_BUCKETS * HEADS, 1, 1.0f);
        struct tensor d_bias = tensor_random(ZINF_DTYPE_F32, 2 * HEADS * DISTANCES, 2, 1.0f);
        struct tensor d_table = tensor_random(ZINF_DTYPE_F32, 2 * N_BUCKETS * HEADS, 3, 1.0f);
        float bias[HEADS][DISTANCES];
        double want[2 * N_BUCKETS * HEADS] = {0};
        struct zinf_distance_bias a = {.dtype = ZINF_DTYPE_BF16,
                                       .n_heads = HEADS,
                                       .n_queries = QUERIES,
                                       .n_keys = KEYS,
                                       .both_ways = both_ways,
                                       .n_buckets = N_BUCKETS,
                                       .starts = starts,
                                       .table = table.data,
                                       .bias = bias[0],
                                       .batch = 2,
                                       .d_bias = d_bias.data,
                                       .d_table = d_table.data};
        CHECKF(!f->ops->distance_bias(f->q, &a), "%s", zinf_error());
        CHECKF(!f->ops->distance_bias_backward(f->q, &a), "%s", zinf_error());
        for (int d = 0; d < DISTANCES; d++)
            for (int h = 0; h < HEADS; h++) {
                const int at = bucket_of(d - QUERIES + 1, both_ways) * HEADS + h;
                CHECK((double)bias[h][d] == get(&table, (size_t)at));
                for (int b = 0; b < 2; b++)
                    want[at] += get(&d_bias, (size_t)((b * HEADS + h) * DISTANCES + d));
            }
        d_table.n = (size_t)((both_ways ? 2 : 1) * N_BUCKETS * HEADS);
        CHECK_NEAR(f, &d_table, want, 1e-6, 1e-6);
        a.n_buckets = ZINF_DISTANCE_MAX_BUCKETS + 1;
        CHECK(f->ops->distance_bias(f->q, &a) == -EINVAL && strstr(zinf_error(), "buckets"));
        tensor_free(&table);
        tensor_free(&d_bias);
        tensor_free(&d_table);
    }
}

static void test_tables_of_buckets(void)
{
    for_each_device(tables);
}

int main(void)
{
    TAP_RUN(test_other_keys_and_biases_match_the_reference);
    TAP_RUN(test_bad_arguments_are_refused);
    TAP_RUN(test_tables_of_buckets);
    return tap_done();
}
