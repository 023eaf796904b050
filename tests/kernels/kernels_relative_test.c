/*
 * kernels_relative: attention to relative positions against plain softmax in double and its
 * gradient, with one term and with both, documents, dropout and every way that rows are given, of
 * whole sequences and of parts of them; and rows beside their neighbours, of which backward is the
 * transpose.
 */
#include "kernels_testing.h"

struct shape {
    int64_t batch, seq, n_heads, head_dim, half;
    bool log, queries, keys, packed, shared; /* shared: the table's rows are rows of qkv */
    float dropout;
};

struct problem {
    struct zinf_attention args;
    struct zinf_relative table;
    struct tensor qkv, out, lse, d_out, d_qkv, rows, d_rows;
    int32_t *segments, *starts;
    double *x, *r, *dy, *want_out, *want_lse, *want_x, *want_r;
    int64_t queries_at, keys_at; /* elements to the terms in a row of the table */
};

/* ---- the reference ---- */

static int64_t row_of(const struct problem *p, int64_t distance)
{
    const int64_t n = distance < 0 ? -distance : distance, half = p->table.half;
    int64_t b = 0;
    for (int64_t k = 1; k <= half; k++)
        b = p->starts[k] <= n ? k : b;
    const int64_t row = distance < 0 ? half - b : half + b;
    return row > 2 * half - 1 ? 2 * half - 1 : row;
}

static int64_t at(const struct problem *p, int64_t b, int64_t t, int64_t h, int part)
{
    const struct zinf_attention *a = &p->args;
    return (((b * a->seq + t) * 3 + part) * a->n_heads + h) * a->head_dim;
}

static int64_t row_at(const struct problem *p, int64_t i, int64_t j, int64_t h, int64_t term)
{
    return row_of(p, i - j) * p->table.ld + term + h * p->args.head_dim;
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0.0;
    for (int64_t c = 0; c < n; c++)
        sum += a[c] * b[c];
    return sum;
}

static void add(double *to, const double *from, double factor, int64_t n)
{
    for (int64_t c = 0; c < n; c++)
        to[c] += factor * from[c];
}

static double score(const struct problem *p, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const int64_t d = p->args.head_dim;
    const double *q = p->x + at(p, b, i, h, 0), *k = p->x + at(p, b, j, h, 1);
    double sum = dot(q, k, d);
    if (p->table.keys)
        sum += dot(q, p->r + row_at(p, i, j, h, p->keys_at), d);
    if (p->table.queries)
        sum += dot(k, p->r + row_at(p, i, j, h, p->queries_at), d);
    return sum * (double)p->args.scale;
}

static void score_backward(struct problem *p, const int64_t place[4], double ds)
{
    const int64_t b = place[0], h = place[1], i = place[2], j = place[3], d = p->args.head_dim;
    const int64_t q = at(p, b, i, h, 0), k = at(p, b, j, h, 1);
    ds *= (double)p->args.scale;
    add(p->want_x + q, p->x + k, ds, d);
    add(p->want_x + k, p->x + q, ds, d);
    if (p->table.keys) {
        const int64_t r = row_at(p, i, j, h, p->keys_at);
        add(p->want_x + q, p->r + r, ds, d);
        add(p->want_r + r, p->x + q, ds, d);
    }
    if (p->table.queries) {
        const int64_t r = row_at(p, i, j, h, p->queries_at);
        add(p->want_x + k, p->r + r, ds, d);
        add(p->want_r + r, p->x + k, ds, d);
    }
}

static bool sees(const struct problem *p, int64_t b, int64_t i, int64_t j)
{
    const int32_t *s = p->args.segments ? p->segments + b * p->args.seq : NULL;
    return !s || (s[i] > 0 && s[i] == s[j]);
}

static void reference_row(struct problem *p, int64_t b, int64_t h, int64_t i, double *s)
{
    const struct zinf_attention *a = &p->args;
    const int64_t d = a->head_dim, row = (b * a->n_heads + h) * a->seq + i;
    const int64_t y = ((b * a->seq + i) * a->n_heads + h) * d;
    double max = -INFINITY, sum = 0.0;
    for (int64_t j = 0; j < a->seq; j++) {
        s[j] = sees(p, b, i, j) ? score(p, b, h, i, j) : -INFINITY;
        max = s[j] > max ? s[j] : max;
    }
    if (max == -INFINITY)
        return;
    for (int64_t j = 0; j < a->seq; j++)
        sum += s[j] = exp(s[j] - max);
    p->want_lse[row] = max + log(sum);
    for (int64_t j = 0; j < a->seq; j++) {
        const uint64_t e = a->dropout.element_first + (uint64_t)(row * a->seq + j);
        const double weight = s[j] / sum * dropout_factor(&a->dropout, e);
        add(p->want_out + y, p->x + at(p, b, j, h, 2), weight, d);
        add(p->want_x + at(p, b, j, h, 2), p->dy + y, weight, d);
    }
    const double delta = dot(p->want_out + y, p->dy + y, d);
    for (int64_t j = 0; j < a->seq; j++) {
        const uint64_t e = a->dropout.element_first + (uint64_t)(row * a->seq + j);
        const double dp = dot(p->dy + y, p->x + at(p, b, j, h, 2), d);
        score_backward(p, (const int64_t[]){b, h, i, j},
                       s[j] / sum * (dp * dropout_factor(&a->dropout, e) - delta));
    }
}

static void reference(struct problem *p)
{
    const struct zinf_attention *a = &p->args;
    double *scores = malloc((size_t)a->seq * sizeof *scores);
    for (int64_t b = 0; b < a->batch; b++)
        for (int64_t h = 0; h < a->n_heads; h++)
            for (int64_t i = 0; i < a->seq; i++)
                reference_row(p, b, h, i, scores);
    free(scores);
}

/* ---- problems ---- */

/* Documents of a sample, and padding behind them. */
static int32_t *make_segments(int64_t batch, int64_t n)
{
    int32_t *s = calloc((size_t)(batch * n), sizeof *s);
    for (int64_t t = 0; t < batch * n; t++)
        s[t] = t % n >= n - n / 5 - t / n ? 0 : 1 + (int32_t)(t % n * 2 / n);
    return s;
}

/* One row each up to the middle, then rows that begin further and further apart, or none do. */
static int32_t *make_starts(int64_t half, bool log)
{
    int32_t *s = calloc((size_t)half + 1, sizeof *s);
    for (int64_t b = 0; b <= half; b++) {
        const int64_t over = b - half / 2;
        s[b] = (int32_t)(log && over > 0 ? half / 2 + over * over : b);
    }
    if (log)
        s[half] = INT32_MAX;
    return s;
}

static void make_doubles(struct problem *p)
{
    p->x = tensor_doubles(&p->qkv);
    p->r = tensor_doubles(&p->rows);
    p->dy = tensor_doubles(&p->d_out);
    p->want_out = calloc(p->out.n, sizeof(double));
    p->want_lse = calloc(p->lse.n, sizeof(double));
    p->want_x = calloc(p->qkv.n, sizeof(double));
    p->want_r = calloc(p->rows.n, sizeof(double));
}

static void problem_open(struct problem *p, enum zinf_dtype dtype, const struct shape *s)
{
    const int64_t cols = s->n_heads * s->head_dim, terms = s->shared ? 3 : s->queries + s->keys;
    const size_t rows = (size_t)(s->batch * s->seq), width = (size_t)cols;
    *p = (struct problem){
        .qkv = tensor_random(dtype, rows * 3 * width, 1, 1.0f),
        .out = tensor_new(dtype, rows * width),
        .lse = tensor_new(ZINF_DTYPE_F32, rows * (size_t)s->n_heads),
        .d_out = tensor_random(dtype, rows * width, 3, 1.0f),
        .d_qkv = tensor_random(dtype, rows * 3 * width, 4, 1.0f), /* to be overwritten */
        .rows = tensor_random(dtype, 2 * (size_t)(s->half * terms) * width, 5, 1.0f),
        .d_rows = tensor_new(dtype, 2 * (size_t)(s->half * terms) * width),
        .segments = make_segments(s->batch, s->seq),
        .starts = make_starts(s->half, s->log),
        .keys_at = s->shared || s->queries ? cols : 0,
    };
    const size_t bytes = zinf_dtype_bytes(dtype), keys = (size_t)p->keys_at * bytes;
    p->table = (struct zinf_relative){
        .half = s->half,
        .starts = p->starts,
        .ld = terms * cols,
        .queries = s->queries ? p->rows.data : NULL,
        .keys = s->keys ? (char *)p->rows.data + keys : NULL,
        .d_queries = s->queries ? p->d_rows.data : NULL,
        .d_keys = s->keys ? (char *)p->d_rows.data + keys : NULL,
    };
    p->args = (struct zinf_attention){
        .dtype = dtype,
        .batch = s->batch,
        .seq = s->seq,
        .n_heads = s->n_heads,
        .n_kv_heads = s->n_heads,
        .head_dim = s->head_dim,
        .scale = 1.0f / sqrtf(3.0f * (float)s->head_dim),
        .relative = &p->table,
        .segments = s->packed ? p->segments : NULL,
        .dropout = {.p = s->dropout, .seed = 99, .step = 3, .site = 7, .element_first = 4321},
        .qkv = p->qkv.data,
        .out = p->out.data,
        .lse = p->lse.data,
        .d_out = p->d_out.data,
        .d_qkv = p->d_qkv.data,
    };
    make_doubles(p);
}

static void problem_close(struct problem *p)
{
    struct tensor *tensors[] = {&p->qkv,   &p->out,  &p->lse,   &p->d_out,
                                &p->d_qkv, &p->rows, &p->d_rows};
    double *doubles[] = {p->x, p->r, p->dy, p->want_out, p->want_lse, p->want_x, p->want_r};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        tensor_free(tensors[i]);
    for (size_t i = 0; i < sizeof doubles / sizeof *doubles; i++)
        free(doubles[i]);
    free(p->segments);
    free(p->starts);
}

/* ---- attention ---- */

/* batch, seq, heads, size, half; then log, queries, keys, packed, shared and dropout. Sequences
 * shorter than a table and longer, of one tile and of several. */
static const struct shape shapes[] = {
    {2, 7, 3, 5, 4, true, true, true, false, true, 0.0f},
    {3, 70, 2, 16, 8, true, true, true, true, false, 0.1f},
    {1, 150, 2, 24, 130, false, true, true, false, true, 0.0f},
    {2, 40, 2, 8, 300, false, false, true, true, true, 0.2f},
    {2, 33, 1, 40, 16, true, true, false, false, false, 0.0f},
    {2, 1, 2, 8, 6, false, true, true, false, false, 0.0f},
    {1, 130, 1, 33, 1, false, true, true, true, true, 0.0f},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static void check_shape(struct fixture *f, const struct shape *shape, enum zinf_dtype dtype)
{
    struct problem p;
    const double epsilon = dtype_epsilon(dtype);
    problem_open(&p, dtype, shape);
    reference(&p);
    CHECKF(!f->ops->attention_forward(f->q, &p.args), "%s", zinf_error());
    CHECK_NEAR(f, &p.out, p.want_out, 4e-6, 1.01 * epsilon + 2e-6);
    CHECK_NEAR(f, &p.lse, p.want_lse, 6e-6, 1e-6);
    for (int again = 0; again < 2; again++) { /* nothing is left of what was there */
        CHECKF(!f->ops->attention_backward(f->q, &p.args), "%s", zinf_error());
        CHECK_NEAR(f, &p.d_qkv, p.want_x, 6e-5 + 12.0 * epsilon, 2e-5 + 2.0 * epsilon);
        CHECK_NEAR(f, &p.d_rows, p.want_r, 2e-4 + 24.0 * epsilon, 2e-5 + 2.0 * epsilon);
    }
    problem_close(&p);
}

static void cases(struct fixture *f)
{
    for (int i = 0; i < N_SHAPES; i++)
        for (int d = 0; d < 3; d++)
            check_shape(f, &shapes[i], all_dtypes[d]);
}

static void test_relative_positions_match_the_reference(void)
{
    for_each_device(cases);
}

static void test_bad_arguments_are_refused(void)
{
    struct fixture f;
    struct problem p;
    fixture_open(&f, zinf_isa(), 1);
    problem_open(&p, ZINF_DTYPE_F32, &shapes[0]);
    p.args.causal = true;
    CHECK(f.ops->attention_forward(f.q, &p.args) == -EINVAL && strstr(zinf_error(), "causal"));
    p.args.causal = false;
    p.table.half = ZINF_RELATIVE_MAX_HALF + 1;
    CHECK(f.ops->attention_forward(f.q, &p.args) == -EINVAL && strstr(zinf_error(), "positions"));
    p.table.half = shapes[0].half;
    p.starts[2] = 0;
    CHECK(f.ops->attention_forward(f.q, &p.args) == -EINVAL && strstr(zinf_error(), "positions"));
    problem_close(&p);
    fixture_close(&f);
}

/* ---- parts of a sequence ---- */

/* Rows of all samples, part after part; rows of a part are sample after sample. */
struct parts {
    int64_t length; /* of each part but the last */
    struct tensor queries, kv, out, lse, d_out, d_queries;
    struct tensor d_kv;    /* fp32 sums */
    struct tensor d_table; /* the sum of what all parts' queries leave, fp32 */
    /* from call to call; they begin with anything */
    struct tensor sums, in_tile, numbers, rows;
    int32_t *segments;
};

static int64_t length_of(const struct problem *p, const struct parts *s, int64_t first)
{
    const int64_t left = p->args.seq - first;
    return left < s->length ? left : s->length;
}

/* Copies columns of each row to rows of their own in parts. cols: columns of a row, the first one,
 * how many. */
static void deal(const struct problem *p, const struct parts *s, const void *whole, size_t width,
                 const size_t cols[3], void *to)
{
    const size_t bytes = cols[2] * width;
    for (int64_t b = 0; b < p->args.batch; b++)
        for (int64_t t = 0; t < p->args.seq; t++) {
            const int64_t first = t / s->length * s->length, n = length_of(p, s, first);
            const int64_t row = p->args.batch * first + b * n + t - first;
            memcpy((char *)to + (size_t)row * bytes,
                   (const char *)whole +
                       ((size_t)(b * p->args.seq + t) * cols[0] + cols[1]) * width,
                   bytes);
        }
}

static void parts_open(struct parts *s, const struct problem *p, int64_t length)
{
    const struct zinf_attention *a = &p->args;
    const size_t width = zinf_dtype_bytes(a->dtype), c = (size_t)(a->n_heads * a->head_dim);
    const size_t rows = (size_t)(a->batch * a->seq), one = (size_t)(a->batch * length);
    const size_t numbers = one * (size_t)a->n_heads * ZINF_ATTENTION_NUMBERS;
    *s = (struct parts){
        .length = length,
        .queries = tensor_new(a->dtype, rows * c),
        .kv = tensor_new(a->dtype, rows * 2 * c),
        .out = tensor_new(a->dtype, rows * c),
        .lse = tensor_new(ZINF_DTYPE_F32, rows * (size_t)a->n_heads),
        .d_out = tensor_new(a->dtype, rows * c),
        .d_queries = tensor_new(a->dtype, rows * c),
        .d_kv = tensor_new(ZINF_DTYPE_F32, rows * 2 * c),
        .d_table = tensor_new(ZINF_DTYPE_F32, p->d_rows.n),
        .sums = tensor_random(ZINF_DTYPE_F32, one * c, 6, 1.0f),
        .in_tile = tensor_random(ZINF_DTYPE_F32, one * c, 7, 1.0f),
        .numbers = tensor_random(ZINF_DTYPE_F32, numbers, 8, 1.0f),
        .rows = tensor_random(ZINF_DTYPE_F32, zinf_relative_sums(a), 9, 1.0f),
        .segments = calloc(rows, sizeof(int32_t)),
    };
    deal(p, s, p->qkv.data, width, (const size_t[]){3 * c, 0, c}, s->queries.data);
    deal(p, s, p->qkv.data, width, (const size_t[]){3 * c, c, 2 * c}, s->kv.data);
    deal(p, s, p->d_out.data, width, (const size_t[]){c, 0, c}, s->d_out.data);
    deal(p, s, p->segments, sizeof(int32_t), (const size_t[]){1, 0, 1}, s->segments);
}

static void parts_close(struct parts *s)
{
    struct tensor *tensors[] = {&s->queries,   &s->kv,   &s->out,     &s->lse,
                                &s->d_out,     &s->d_kv, &s->d_table, &s->sums,
                                &s->d_queries, &s->rows, &s->in_tile, &s->numbers};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        tensor_free(tensors[i]);
    free(s->segments);
}

static void *elem(const struct tensor *t, int64_t i)
{
    return (char *)t->data + (size_t)i * zinf_dtype_bytes(t->dtype);
}

/* The part of queries from token `first` on with the part of keys from `key` on. */
static struct zinf_attention pair_of(const struct problem *p, const struct parts *s, int64_t first,
                                     int64_t key)
{
    const int64_t row = p->args.batch * first, key_row = p->args.batch * key;
    const int64_t c = p->args.n_heads * p->args.head_dim;
    struct zinf_attention a = p->args;
    a.seq = length_of(p, s, first);
    a.key_seq = length_of(p, s, key);
    a.first_query = first;
    a.first_key = key;
    a.whole_seq = p->args.seq;
    a.segments = p->args.segments ? s->segments + row : NULL;
    a.key_segments = p->args.segments ? s->segments + key_row : NULL;
    a.qkv = elem(&s->queries, row * c);
    a.kv = elem(&s->kv, key_row * 2 * c);
    a.out = elem(&s->out, row * c);
    a.lse = elem(&s->lse, row * p->args.n_heads);
    a.d_out = elem(&s->d_out, row * c);
    a.d_qkv = elem(&s->d_queries, row * c);
    a.d_kv_sums = elem(&s->d_kv, key_row * 2 * c);
    return a;
}

/* Each part's queries over the keys of one part after the other. */
static void run_parts(struct fixture *f, struct problem *p, struct parts *s, bool backward)
{
    struct zinf_attention_running running = {.sums = s->sums.data};
    if (backward)
        running.rows = s->rows.data;
    else
        running.numbers = s->numbers.data;
    running.part = backward ? NULL : s->in_tile.data;
    for (int64_t first = 0; first < p->args.seq; first += s->length) {
        for (int64_t key = 0; key < p->args.seq; key += s->length) {
            struct zinf_attention a = pair_of(p, s, first, key);
            running.first = key == 0;
            running.last = key + s->length >= p->args.seq;
            a.running = &running;
            CHECKF(!(backward ? f->ops->attention_backward : f->ops->attention_forward)(f->q, &a),
                   "%s", zinf_error());
        }
        for (size_t e = 0; backward && e < p->d_rows.n; e++)
            ((float *)s->d_table.data)[e] += (float)get(&p->d_rows, e);
    }
}

/* The bits of one call, wherever keys are cut. */
static void compare_forward(struct fixture *f, const struct problem *p, const struct parts *s)
{
    const struct zinf_attention *a = &p->args;
    const size_t c = (size_t)(a->n_heads * a->head_dim);
    struct tensor out = tensor_copy(&s->out), lse = tensor_copy(&s->lse);
    deal(p, s, p->out.data, zinf_dtype_bytes(a->dtype), (const size_t[]){c, 0, c}, out.data);
    for (int64_t unit = 0; unit < a->batch * a->n_heads; unit++)
        for (int64_t t = 0; t < a->seq; t++) {
            const int64_t first = t / s->length * s->length, n = length_of(p, s, first);
            const int64_t to = a->batch * a->n_heads * first + unit * n + t - first;
            memcpy(elem(&lse, to), elem(&p->lse, unit * a->seq + t), sizeof(float));
        }
    CHECKF(tensor_same_bits(&out, &s->out), "by %d, %s", (int)s->length, f->name);
    CHECKF(tensor_same_bits(&lse, &s->lse), "by %d, %s", (int)s->length, f->name);
    tensor_free(&out);
    tensor_free(&lse);
}

/* The gradients of the reference. Each part's queries round what they give the table. */
static void compare_backward(struct fixture *f, const struct problem *p, const struct parts *s)
{
    const double epsilon = dtype_epsilon(p->args.dtype);
    const size_t c = (size_t)(p->args.n_heads * p->args.head_dim);
    double *queries = calloc(s->d_queries.n, sizeof *queries);
    double *kv = calloc(s->d_kv.n, sizeof *kv);
    deal(p, s, p->want_x, sizeof(double), (const size_t[]){3 * c, 0, c}, queries);
    deal(p, s, p->want_x, sizeof(double), (const size_t[]){3 * c, c, 2 * c}, kv);
    CHECK_NEAR(f, &s->d_queries, queries, 6e-5 + 12.0 * epsilon, 2e-5 + 2.0 * epsilon);
    CHECK_NEAR(f, &s->d_kv, kv, 6e-5 + 12.0 * epsilon, 2e-5 + 2.0 * epsilon);
    CHECK_NEAR(f, &s->d_table, p->want_r, 2e-4 + 48.0 * epsilon, 2e-5 + 2.0 * epsilon);
    free(queries);
    free(kv);
}

/* 5: cut within tiles; 64: between them; 0: into one part and a single token. */
static void check_parts(struct fixture *f, const struct shape *shape, enum zinf_dtype dtype,
                        int64_t length)
{
    struct problem p;
    struct parts s, again;
    const int64_t most = shape->seq > 1 ? shape->seq - 1 : 1;
    length = length && length < most ? length : most;
    problem_open(&p, dtype, shape);
    reference(&p);
    CHECKF(!f->ops->attention_forward(f->q, &p.args), "%s", zinf_error());
    parts_open(&s, &p, length);
    run_parts(f, &p, &s, false);
    compare_forward(f, &p, &s);
    run_parts(f, &p, &s, true);
    compare_backward(f, &p, &s);
    parts_open(&again, &p, length);
    run_parts(f, &p, &again, false);
    memset(again.rows.data, 0xff, again.rows.n * sizeof(float)); /* NaN */
    run_parts(f, &p, &again, true);
    CHECK(tensor_same_bits(&s.d_queries, &again.d_queries) &&
          tensor_same_bits(&s.d_kv, &again.d_kv) && tensor_same_bits(&s.d_table, &again.d_table));
    parts_close(&s);
    parts_close(&again);
    problem_close(&p);
}

static void part_cases(struct fixture *f)
{
    static const int64_t lengths[] = {5, 64, 0};
    for (int i = 0; i < N_SHAPES; i++)
        for (int k = 0; k < 3 * 3; k++)
            check_parts(f, &shapes[i], all_dtypes[k % 3], lengths[k / 3]);
}

static void test_parts_of_a_sequence(void)
{
    for_each_device(part_cases);
}

static void test_bad_parts_are_refused(void)
{
    struct zinf_attention_running running = {.first = true, .last = true};
    struct fixture f;
    struct problem p;
    struct parts s;
    fixture_open(&f, ZINF_ISA_SCALAR, 1);
    problem_open(&p, ZINF_DTYPE_F32, &shapes[0]);
    parts_open(&s, &p, 4);
    struct zinf_attention a = pair_of(&p, &s, 0, 0);
    a.running = &running;
    running.sums = s.sums.data;
    CHECK(f.ops->attention_backward(f.q, &a) == -EINVAL);
    CHECKF(strstr(zinf_error(), "gradients of rows") != NULL, "%s", zinf_error());
    a.whole_keys = a.whole_seq;
    CHECK(f.ops->attention_forward(f.q, &a) == -EINVAL);
    CHECKF(strstr(zinf_error(), "another sequence") != NULL, "%s", zinf_error());
    parts_close(&s);
    problem_close(&p);
    fixture_close(&f);
}

/* ---- neighbours ---- */

static double shown(const struct zinf_unfold *a, const double *x, int64_t i, int64_t place)
{
    const int64_t c = place / a->width, other = i % a->seq + place % a->width - a->width / 2;
    if (other < 0 || other >= a->seq)
        return 0.0;
    const int64_t row = i - i % a->seq + other;
    if (a->segments && (a->segments[i] < 1 || a->segments[i] != a->segments[row]))
        return 0.0;
    return x[row * a->cols + c];
}

static void unfold(struct fixture *f, enum zinf_dtype dtype, int64_t width, bool packed)
{
    enum { BATCH = 3, SEQ = 11, COLS = 700 };
    const size_t n = (size_t)BATCH * SEQ * COLS, wide = n * (size_t)width;
    int32_t *segments = make_segments(BATCH, SEQ);
    struct tensor x = tensor_random(dtype, n, 1, 1.0f), y = tensor_random(dtype, wide, 2, 1.0f);
    struct tensor dy = tensor_random(dtype, wide, 3, 1.0f), dx = tensor_random(dtype, n, 4, 1.0f);
    struct zinf_unfold a = {dtype,  BATCH,  SEQ,     COLS,    width, packed ? segments : NULL,
                            x.data, y.data, dy.data, dx.data, 1.0f};
    double *before = tensor_doubles(&x), *want = calloc(wide, sizeof *want);
    double *d_wide = tensor_doubles(&dy), *d_want = tensor_doubles(&dx);
    for (size_t e = 0; e < wide; e++)
        want[e] = shown(&a, before, (int64_t)(e / (COLS * (size_t)width)),
                        (int64_t)(e % (COLS * (size_t)width)));
    /* the sum over y of dy y, as a function of x, is the sum over x of dx x */
    double by_y = 0.0, by_x = 0.0;
    CHECKF(!f->ops->unfold(f->q, &a), "%s", zinf_error());
    CHECK_NEAR(f, &y, want, 0.0, 0.0);
    CHECKF(!f->ops->unfold_backward(f->q, &a), "%s", zinf_error());
    for (size_t e = 0; e < wide; e++)
        by_y += want[e] * d_wide[e];
    for (size_t e = 0; e < n; e++)
        by_x += before[e] * (get(&dx, e) - d_want[e]);
    CHECKF(near(by_x, by_y, 3.0 * sqrt((double)n) * dtype_epsilon(dtype) * 4.0, 1e-5), "%g, %g",
           by_x, by_y);
    struct tensor *tensors[] = {&x, &y, &dy, &dx};
    double *doubles[] = {before, want, d_wide, d_want};
    for (int i = 0; i < 4; i++) {
        tensor_free(tensors[i]);
        free(doubles[i]);
    }
    free(segments);
}

static void neighbours(struct fixture *f)
{
    for (int d = 0; d < 3; d++)
        for (int64_t width = 1; width <= 5; width += 2)
            for (int packed = 0; packed < 2; packed++)
                unfold(f, all_dtypes[d], width, packed);
    CHECK(f->ops->unfold(f->q, &(struct zinf_unfold){.seq = 4, .cols = 2, .width = 2}) == -EINVAL);
    CHECKF(strstr(zinf_error(), "odd") != NULL, "%s", zinf_error());
}

static void test_rows_beside_their_neighbours(void)
{
    for_each_device(neighbours);
}

int main(void)
{
    TAP_RUN(test_relative_positions_match_the_reference);
    TAP_RUN(test_bad_arguments_are_refused);
    TAP_RUN(test_parts_of_a_sequence);
    TAP_RUN(test_bad_parts_are_refused);
    TAP_RUN(test_rows_beside_their_neighbours);
    return tap_done();
}
