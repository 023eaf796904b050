/*
 * kernels_parts: attention of a sequence that comes in parts, over the keys of the parts before,
 * against the same sequence in one call: forward the same bits, the gradients of keys and values
 * added up over the parts in fp32.
 */
#include "kernels_testing.h"

struct shape {
    int64_t seq, part, n_heads, n_kv_heads, head_dim, window;
    bool packed, slopes;
    float softcap, dropout;
};

/* Of one sample. */
struct problem {
    struct zinf_attention whole;
    struct tensor qkv, out, lse, d_out, d_qkv;             /* of the whole */
    struct tensor part_out, part_lse, d_queries, kv, sums; /* rows of all parts */
    struct tensor queries;
    int32_t *segments;
    float slopes[8];
};

static int64_t row_elems(const struct zinf_attention *a, bool queries)
{
    return (queries ? a->n_heads : 2 * a->n_kv_heads) * a->head_dim;
}

/* Queries and keys with values, apart from each other. */
static void split(struct problem *p, const struct tensor *qkv, struct tensor *q, struct tensor *kv)
{
    const struct zinf_attention *a = &p->whole;
    const size_t width = zinf_dtype_bytes(a->dtype);
    const size_t n_q = (size_t)row_elems(a, true) * width,
                 n_kv = (size_t)row_elems(a, false) * width;
    for (size_t r = 0; r < (size_t)a->seq; r++) {
        const char *row = (const char *)qkv->data + r * (n_q + n_kv);
        memcpy((char *)q->data + r * n_q, row, n_q);
        memcpy((char *)kv->data + r * n_kv, row + n_q, n_kv);
    }
}

static void problem_open(struct problem *p, enum zinf_dtype dtype, const struct shape *s)
{
    const size_t rows = (size_t)s->seq, q = (size_t)(s->n_heads * s->head_dim);
    const size_t kv = (size_t)(2 * s->n_kv_heads * s->head_dim);
    *p = (struct problem){
        .qkv = tensor_random(dtype, rows * (q + kv), 1, 1.0f),
        .out = tensor_new(dtype, rows * q),
        .lse = tensor_new(ZINF_DTYPE_F32, rows * (size_t)s->n_heads),
        .d_out = tensor_random(dtype, rows * q, 3, 1.0f),
        .d_qkv = tensor_new(dtype, rows * (q + kv)),
        .part_out = tensor_new(dtype, rows * q),
        .part_lse = tensor_new(ZINF_DTYPE_F32, rows * (size_t)s->n_heads),
        .d_queries = tensor_new(dtype, rows * q),
        .kv = tensor_new(dtype, rows * kv),
        .sums = tensor_new(ZINF_DTYPE_F32, rows * kv),
        .queries = tensor_new(dtype, rows * q),
        .segments = calloc(rows, sizeof(int32_t)),
    };
    for (size_t t = 0; t < rows; t++)
        p->segments[t] = t + rows / 9 < rows ? 1 + (int32_t)(t * 3 / rows) : 0;
    for (int h = 0; h < 8; h++)
        p->slopes[h] = 0.25f / (float)(h + 1);
    p->whole = (struct zinf_attention){
        .dtype = dtype,
        .batch = 1,
        .seq = s->seq,
        .n_heads = s->n_heads,
        .n_kv_heads = s->n_kv_heads,
        .head_dim = s->head_dim,
        .causal = true,
        .window = s->window,
        .scale = 1.0f / sqrtf((float)s->head_dim),
        .softcap = s->softcap,
        .slopes = s->slopes ? p->slopes : NULL,
        .segments = s->packed ? p->segments : NULL,
        .dropout = {.p = s->dropout, .seed = 99, .step = 3, .site = 7, .element_first = 4321},
        .qkv = p->qkv.data,
        .out = p->out.data,
        .lse = p->lse.data,
        .d_out = p->d_out.data,
        .d_qkv = p->d_qkv.data,
    };
    split(p, &p->qkv, &p->queries, &p->kv);
}

static void problem_close(struct problem *p)
{
    struct tensor *tensors[] = {&p->qkv,   &p->out,      &p->lse,      &p->d_out,
                                &p->d_qkv, &p->part_out, &p->part_lse, &p->kv,
                                &p->sums,  &p->queries,  &p->d_queries};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        tensor_free(tensors[i]);
    free(p->segments);
}

static void *elem(const struct tensor *t, int64_t i)
{
    return (char *)t->data + (size_t)i * zinf_dtype_bytes(t->dtype);
}

/* Queries [first, first + n) over the keys up to the last of them. lse is a part's own. */
static struct zinf_attention part_of(struct problem *p, int64_t first, int64_t n, float *lse)
{
    struct zinf_attention a = p->whole;
    const int64_t q = first * row_elems(&a, true);
    a.seq = n;
    a.key_seq = first + n;
    a.first_query = first;
    a.whole_seq = p->whole.seq;
    a.segments = p->whole.segments ? p->whole.segments + first : NULL;
    a.key_segments = p->whole.segments;
    a.qkv = elem(&p->queries, q);
    a.kv = p->kv.data;
    a.out = elem(&p->part_out, q);
    a.lse = lse;
    a.d_out = elem(&p->d_out, q);
    a.d_qkv = elem(&p->d_queries, q);
    a.d_kv_sums = p->sums.data;
    return a;
}

/* The numbers of a part's rows, to or from where those of the whole are. */
static void move_lse(struct problem *p, int64_t first, int64_t n, float *lse, bool back)
{
    for (int64_t h = 0; h < p->whole.n_heads; h++) {
        float *whole = elem(&p->part_lse, h * p->whole.seq + first);
        memcpy(back ? lse + h * n : whole, back ? whole : lse + h * n, (size_t)n * sizeof *lse);
    }
}

/* All parts: forward in order, backward from the last one. */
static void run_parts(struct fixture *f, struct problem *p, int64_t part, bool backward)
{
    const int64_t seq = p->whole.seq, n_parts = (seq + part - 1) / part;
    float *lse = malloc((size_t)(p->whole.n_heads * part) * sizeof *lse);
    for (int64_t k = 0; k < n_parts; k++) {
        const int64_t first = (backward ? n_parts - 1 - k : k) * part;
        const int64_t n = seq - first < part ? seq - first : part;
        struct zinf_attention a = part_of(p, first, n, lse);
        if (backward)
            move_lse(p, first, n, lse, true);
        CHECKF(!(backward ? f->ops->attention_backward : f->ops->attention_forward)(f->q, &a), "%s",
               zinf_error());
        if (!backward)
            move_lse(p, first, n, lse, false);
    }
    free(lse);
}

/* ---- cases ---- */

static const struct shape shapes[] = {
    {.seq = 40, .part = 16, .n_heads = 2, .n_kv_heads = 2, .head_dim = 8},
    {.seq = 200, .part = 64, .n_heads = 4, .n_kv_heads = 2, .head_dim = 20, .packed = true},
    {.seq = 190, .part = 50, .n_heads = 2, .n_kv_heads = 1, .head_dim = 16, .dropout = 0.2f},
    {.seq = 230, .part = 70, .n_heads = 2, .n_kv_heads = 2, .head_dim = 16, .window = 33},
    {.seq = 230, .part = 30, .n_heads = 2, .n_kv_heads = 1, .head_dim = 16, .window = 100},
    {.seq = 130,
     .part = 37,
     .n_heads = 2,
     .n_kv_heads = 2,
     .head_dim = 24,
     .softcap = 3.0f,
     .slopes = true},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static void cases(struct fixture *f)
{
    for (int i = 0; i < N_SHAPES; i++)
        for (int d = 0; d < 3; d++) {
            struct problem p;
            const double epsilon = dtype_epsilon(all_dtypes[d]);
            problem_open(&p, all_dtypes[d], &shapes[i]);
            CHECKF(!f->ops->attention_forward(f->q, &p.whole), "%s", zinf_error());
            CHECKF(!f->ops->attention_backward(f->q, &p.whole), "%s", zinf_error());
            run_parts(f, &p, shapes[i].part, false);
            CHECKF(tensor_same_bits(&p.out, &p.part_out), "shape %d, %s", i, f->name);
            CHECKF(tensor_same_bits(&p.lse, &p.part_lse), "shape %d, %s", i, f->name);
            run_parts(f, &p, shapes[i].part, true);
            struct tensor q = tensor_copy(&p.queries), kv = tensor_copy(&p.kv);
            split(&p, &p.d_qkv, &q, &kv);
            CHECKF(tensor_same_bits(&q, &p.d_queries), "shape %d, %s", i, f->name);
            double *want = tensor_doubles(&kv);
            CHECK_NEAR(f, &p.sums, want, 1e-5 + epsilon, 1e-5 + epsilon);
            free(want);
            tensor_free(&q);
            tensor_free(&kv);
            problem_close(&p);
        }
}

/* A part's queries over the keys of one part after the other. */
static void over_keys(struct fixture *f, struct problem *p, struct zinf_attention a,
                      struct zinf_attention_running running, int64_t part, bool backward)
{
    const struct zinf_attention *whole = &p->whole;
    const int64_t first = a.first_query, end = first + a.seq;
    const int64_t reach = whole->window ? whole->window : first + 1;
    const int64_t begin = first < reach ? 0 : (first + 1 - reach) / part * part;
    a.running = &running;
    for (int64_t key = begin; key < end; key += part) {
        a.first_key = key;
        a.key_seq = key + part < end ? part : end - key;
        a.key_segments = whole->segments ? whole->segments + key : NULL;
        a.kv = elem(&p->kv, key * row_elems(whole, false));
        a.d_kv_sums = elem(&p->sums, key * row_elems(whole, false));
        running.first = key == begin;
        running.last = key + part >= end;
        CHECKF(!(backward ? f->ops->attention_backward : f->ops->attention_forward)(f->q, &a), "%s",
               zinf_error());
    }
}

/* Keys come in parts, too, and sums go on from one to the next: the same bits wherever they are
 * cut, within tiles and between them. */
static void check_running(struct fixture *f, struct problem *p, int64_t part, bool between)
{
    const struct zinf_attention *whole = &p->whole;
    const size_t rows = (size_t)(part * whole->n_heads), q = rows * (size_t)whole->head_dim;
    struct tensor sums = tensor_random(ZINF_DTYPE_F32, q, 1, 1.0f);
    struct tensor in_tile = tensor_random(ZINF_DTYPE_F32, q, 2, 1.0f);
    struct tensor numbers = tensor_random(ZINF_DTYPE_F32, rows * ZINF_ATTENTION_NUMBERS, 3, 1.0f);
    float *lse = malloc(rows * sizeof *lse);
    for (int64_t first = 0; first < whole->seq; first += part) {
        const int64_t n = whole->seq - first < part ? whole->seq - first : part;
        const struct zinf_attention_running running = {
            .sums = sums.data, .part = between ? NULL : in_tile.data, .numbers = numbers.data};
        over_keys(f, p, part_of(p, first, n, lse), running, part, false);
        move_lse(p, first, n, lse, false);
    }
    free(lse);
    tensor_free(&sums);
    tensor_free(&in_tile);
    tensor_free(&numbers);
}

/* Gradients of queries are sums over all keys, too, and rounded once. */
static void check_running_backward(struct fixture *f, struct problem *p, int64_t part)
{
    const struct zinf_attention *whole = &p->whole;
    const size_t rows = (size_t)(part * whole->n_heads), q = rows * (size_t)whole->head_dim;
    struct tensor sums = tensor_random(ZINF_DTYPE_F32, q, 1, 1.0f);
    float *lse = malloc(rows * sizeof *lse);
    for (int64_t first = 0; first < whole->seq; first += part) {
        const int64_t n = whole->seq - first < part ? whole->seq - first : part;
        const struct zinf_attention_running running = {.sums = sums.data};
        move_lse(p, first, n, lse, true);
        over_keys(f, p, part_of(p, first, n, lse), running, part, true);
    }
    free(lse);
    tensor_free(&sums);
}

/* Against those of one call: the same bits where keys are cut between tiles, and otherwise the same
 * number or, near the middle between two, the one beside it. */
static void compare_backward(struct fixture *f, struct problem *p, bool same)
{
    const double bound = 1e-5 + dtype_epsilon(p->whole.dtype);
    struct tensor q = tensor_copy(&p->queries), kv = tensor_copy(&p->kv);
    split(p, &p->d_qkv, &q, &kv);
    double *want = tensor_doubles(&q), *want_kv = tensor_doubles(&kv);
    CHECKF(!same || tensor_same_bits(&q, &p->d_queries), "%s", f->name);
    CHECK_NEAR(f, &p->d_queries, want, 1e-5, 1e-5 + 2.0 * dtype_epsilon(p->whole.dtype));
    CHECK_NEAR(f, &p->sums, want_kv, bound, bound);
    free(want);
    free(want_kv);
    tensor_free(&q);
    tensor_free(&kv);
}

static void running_cases(struct fixture *f)
{
    static const int64_t parts[] = {0, 5, 64, 128};
    for (int i = 0; i < N_SHAPES; i++)
        for (int k = 0; k < 4 * 3; k++) {
            const int64_t part = parts[k / 3] ? parts[k / 3] : shapes[i].part;
            const enum zinf_dtype dtype = all_dtypes[k % 3];
            struct problem p;
            problem_open(&p, dtype, &shapes[i]);
            CHECKF(!f->ops->attention_forward(f->q, &p.whole), "%s", zinf_error());
            check_running(f, &p, part, part % ZINF_ATTENTION_TILE == 0);
            CHECKF(tensor_same_bits(&p.out, &p.part_out), "shape %d by %d, %s", i, (int)part,
                   f->name);
            CHECKF(tensor_same_bits(&p.lse, &p.part_lse), "shape %d by %d, %s", i, (int)part,
                   f->name);
            CHECKF(!f->ops->attention_backward(f->q, &p.whole), "%s", zinf_error());
            check_running_backward(f, &p, part);
            compare_backward(f, &p, part % ZINF_ATTENTION_TILE == 0);
            problem_close(&p);
        }
}

static void test_keys_of_several_calls(void)
{
    for_each_device(running_cases);
}

static void test_refusals(void)
{
    float numbers[1];
    struct zinf_attention_running running = {.first = true, .numbers = numbers};
    struct fixture f;
    struct problem p;
    fixture_open(&f, ZINF_ISA_SCALAR, 1);
    problem_open(&p, ZINF_DTYPE_F32, &shapes[0]);
    p.whole.running = &running;
    CHECK(f.ops->attention_forward(f.q, &p.whole) == -EINVAL);
    CHECKF(strstr(zinf_error(), "need key_seq") != NULL, "%s", zinf_error());
    struct zinf_attention a = part_of(&p, 0, 16, p.lse.data);
    a.running = &running;
    CHECK(f.ops->attention_forward(f.q, &a) == -EINVAL);
    CHECKF(strstr(zinf_error(), "between tiles") != NULL, "%s", zinf_error());
    problem_close(&p);
    fixture_close(&f);
}

static void test_parts_are_the_whole(void)
{
    for_each_device(cases);
}

int main(void)
{
    TAP_RUN(test_parts_are_the_whole);
    TAP_RUN(test_keys_of_several_calls);
    TAP_RUN(test_refusals);
    return tap_done();
}
