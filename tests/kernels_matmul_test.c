/* kernels_matmul: products against a plain triple loop in double, for every combination of types
 * and transposes, shapes that cross slices and panels, and bits that repeat. */
#include "kernels_testing.h"

struct shape {
    int64_t m, n, k, gap; /* gap: columns between rows beyond what is needed */
};

struct problem {
    struct zinf_matmul args;
    struct tensor a, b, c, bias;
};

static void problem_open(struct problem *p, const struct shape *s, bool trans_a, bool trans_b,
                         const enum zinf_dtype dtypes[3], bool bias, float beta)
{
    struct zinf_matmul m = {.m = s->m,
                            .n = s->n,
                            .k = s->k,
                            .trans_a = trans_a,
                            .trans_b = trans_b,
                            .a_dtype = dtypes[0],
                            .b_dtype = dtypes[1],
                            .c_dtype = dtypes[2],
                            .alpha = s->n % 2 ? 0.0f : -1.5f, /* 0: 1 */
                            .beta = beta};
    m.lda = (trans_a ? s->m : s->k) + s->gap;
    m.ldb = (trans_b ? s->k : s->n) + s->gap;
    m.ldc = s->n + s->gap;
    p->a = tensor_random(m.a_dtype, (size_t)((trans_a ? s->k : s->m) * m.lda), 1, 1.0f);
    p->b = tensor_random(m.b_dtype, (size_t)((trans_b ? s->n : s->k) * m.ldb), 2, 1.0f);
    p->c = tensor_random(m.c_dtype, (size_t)(s->m * m.ldc), 3, 1.0f);
    p->bias = tensor_random(m.b_dtype, (size_t)s->n, 4, 1.0f);
    m.a = p->a.data;
    m.b = p->b.data;
    m.c = p->c.data;
    m.bias = bias ? p->bias.data : NULL;
    p->args = m;
}

static void problem_close(struct problem *p)
{
    tensor_free(&p->a);
    tensor_free(&p->b);
    tensor_free(&p->c);
    tensor_free(&p->bias);
}

static double *reference(const struct problem *p)
{
    const struct zinf_matmul *m = &p->args;
    double *a = tensor_doubles(&p->a), *b = tensor_doubles(&p->b), *c = tensor_doubles(&p->c);
    for (int64_t i = 0; i < m->m; i++)
        for (int64_t j = 0; j < m->n; j++) {
            double sum = m->beta != 0.0f ? c[i * m->ldc + j] : 0.0;
            double alpha = m->alpha != 0.0f ? (double)m->alpha : 1.0;
            if (m->bias)
                sum += get(&p->bias, (size_t)j);
            for (int64_t k = 0; k < m->k; k++)
                sum += alpha * a[m->trans_a ? k * m->lda + i : i * m->lda + k] *
                       b[m->trans_b ? j * m->ldb + k : k * m->ldb + j];
            c[i * m->ldc + j] = sum;
        }
    free(a);
    free(b);
    return c; /* what lies between rows stays as it was */
}

static void check_problem(struct fixture *f, struct problem *p)
{
    double *want = reference(p);
    double epsilon = dtype_epsilon(p->args.c_dtype);
    CHECK(!f->ops->matmul(f->q, &p->args));
    CHECK_NEAR(f, &p->c, want, 1e-6 * (double)p->args.k + 2e-6, 1.01 * epsilon + 1e-6);
    free(want);
}

static void all_types(struct fixture *f)
{
    static const struct shape shapes[] = {{1, 1, 1, 0}, {5, 37, 19, 3}, {50, 18, 33, 0}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int combination = 0; combination < 27 * 4 * 3; combination++) {
            enum zinf_dtype dtypes[] = {all_dtypes[combination % 3],
                                        all_dtypes[combination / 3 % 3],
                                        all_dtypes[combination / 9 % 3]};
            int trans = combination / 27 % 4, end = combination / 108;
            struct problem p;
            problem_open(&p, &shapes[s], trans & 1, trans & 2, dtypes, end == 1,
                         end == 2 ? 1.0f : 0.0f);
            check_problem(f, &p);
            problem_close(&p);
        }
}

static void test_all_types_and_transposes(void)
{
    for_each_device(all_types);
}

/* Shapes at the edges of register tiles and of blocks of k, in one type of each kind. */
static void tile_edges(struct fixture *f)
{
    static const enum zinf_dtype dtypes[][3] = {
        {ZINF_DTYPE_F32, ZINF_DTYPE_F32, ZINF_DTYPE_F32},
        {ZINF_DTYPE_BF16, ZINF_DTYPE_F16, ZINF_DTYPE_BF16},
    };
    static const int64_t rows[] = {1, 6, 7, 13, 14, 15, 27, 28, 29};
    static const int64_t columns[] = {1, 15, 16, 17, 31, 32, 33, 63, 64, 65};
    const size_t n_columns = sizeof columns / sizeof *columns;
    for (size_t i = 0; i < sizeof rows / sizeof *rows * n_columns; i++) {
        struct shape shape = {rows[i / n_columns], columns[i % n_columns], 5 + (int64_t)i % 29, 1};
        struct problem p;
        problem_open(&p, &shape, i & 1, i & 2, dtypes[i % 2], i % 3 == 1, i % 3 == 2 ? 1.0f : 0.0f);
        check_problem(f, &p);
        problem_close(&p);
    }
}

static void depth_edges(struct fixture *f)
{
    static const enum zinf_dtype dtypes[][3] = {
        {ZINF_DTYPE_F32, ZINF_DTYPE_F32, ZINF_DTYPE_F32},
        {ZINF_DTYPE_BF16, ZINF_DTYPE_BF16, ZINF_DTYPE_BF16},
        {ZINF_DTYPE_F16, ZINF_DTYPE_F32, ZINF_DTYPE_F16},
    };
    static const int64_t depths[] = {15, 16, 17, 383, 384, 385, 767, 768, 769, 1537};
    for (size_t i = 0; i < sizeof depths / sizeof *depths * 3; i++) {
        struct shape shape = {29, 37, depths[i / 3], 2};
        for (int end = 0; end < 3; end++) {
            struct problem p;
            problem_open(&p, &shape, (i + end) & 1, (i + end) & 2, dtypes[i % 3], end == 1,
                         end == 2 ? 1.0f : 0.0f);
            check_problem(f, &p);
            problem_close(&p);
        }
    }
}

static void test_edges_of_tiles(void)
{
    for_each_device(tile_edges);
}

static void test_edges_of_blocks_of_k(void)
{
    for_each_device(depth_edges);
}

static void test_panels_of_large_shapes(void)
{
    static const enum zinf_dtype dtypes[][3] = {
        {ZINF_DTYPE_BF16, ZINF_DTYPE_BF16, ZINF_DTYPE_BF16},
        {ZINF_DTYPE_F16, ZINF_DTYPE_F32, ZINF_DTYPE_F16},
        {ZINF_DTYPE_BF16, ZINF_DTYPE_BF16, ZINF_DTYPE_F32},
        {ZINF_DTYPE_F32, ZINF_DTYPE_F32, ZINF_DTYPE_F32},
    };
    /* each one crosses the panel limit in another direction */
    static const struct shape shapes[] = {{2100, 40, 17, 0}, {24, 2100, 17, 1}, {24, 40, 2100, 0}};
    struct fixture f;
    fixture_open(&f, zinf_isa(), 2);
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
            for (int trans = 0; trans < 4; trans++) {
                struct problem p;
                problem_open(&p, &shapes[s], trans & 1, trans & 2, dtypes[d], trans == 1,
                             trans == 2 ? 1.0f : 0.0f);
                check_problem(&f, &p);
                problem_close(&p);
            }
    fixture_close(&f);
}

static void test_c_without_beta_need_not_be_initialised(void)
{
    static const enum zinf_dtype f32[3] = {ZINF_DTYPE_F32, ZINF_DTYPE_F32, ZINF_DTYPE_F32};
    struct fixture f;
    struct problem p;
    fixture_open(&f, zinf_isa(), 2);
    problem_open(&p, &(struct shape){70, 90, 30, 0}, false, true, f32, false, 0.0f);
    for (size_t i = 0; i < p.c.n; i++)
        ((float *)p.c.data)[i] = NAN;
    check_problem(&f, &p);
    problem_close(&p);
    fixture_close(&f);
}

/* ---- determinism ---- */

static void run_matmul(struct worker *w)
{
    struct problem *p = w->problem;
    for (int i = 0; i < 10; i++)
        w->f->ops->matmul(w->q, &p->args);
}

static void test_two_queues_at_once_give_the_same_bits(void)
{
    static const struct shape shape = {160, 200, 120, 0};
    static const enum zinf_dtype dtypes[3] = {ZINF_DTYPE_BF16, ZINF_DTYPE_BF16, ZINF_DTYPE_F32};
    struct fixture f;
    struct problem alone, beside[2];
    fixture_open(&f, zinf_isa(), 2);
    problem_open(&alone, &shape, false, true, dtypes, true, 0.0f);
    CHECK(!f.ops->matmul(f.q, &alone.args));
    for (int i = 0; i < 2; i++)
        problem_open(&beside[i], &shape, false, true, dtypes, true, 0.0f);
    run_on_two_queues(&f, f.ops->matmul_workspace(f.device, &alone.args), run_matmul,
                      (void *[]){&beside[0], &beside[1]});
    for (int i = 0; i < 2; i++) {
        CHECK(tensor_same_bits(&beside[i].c, &alone.c));
        problem_close(&beside[i]);
    }
    problem_close(&alone);
    fixture_close(&f);
}

static void test_bad_arguments_are_refused(void)
{
    static const enum zinf_dtype bf16[3] = {ZINF_DTYPE_BF16, ZINF_DTYPE_BF16, ZINF_DTYPE_BF16};
    struct fixture f;
    struct problem p;
    fixture_open(&f, zinf_isa(), 2);
    problem_open(&p, &(struct shape){8, 9, 10, 0}, false, false, bf16, false, 0.0f);
    struct zinf_matmul bad = p.args;
    bad.lda = 9;
    CHECK(f.ops->matmul(f.q, &bad) == -EINVAL);
    CHECK(strstr(zinf_error(), "matmul") != NULL);
    bad = p.args;
    bad.k = 0;
    CHECK(f.ops->matmul(f.q, &bad) == -EINVAL);
    bad = p.args;
    bad.beta = 0.5f;
    CHECK(f.ops->matmul(f.q, &bad) == -EINVAL);
    bad = p.args;
    bad.beta = 1.0f;
    bad.bias = p.bias.data;
    CHECK(f.ops->matmul(f.q, &bad) == -EINVAL);
    uint64_t bytes = f.ops->matmul_workspace(f.device, &p.args);
    CHECK(bytes > 0);
    f.ops->queue_set_workspace(f.q, f.workspace, bytes - 1);
    CHECK(f.ops->matmul(f.q, &p.args) == -EINVAL);
    CHECK(strstr(zinf_error(), "workspace") != NULL);
    f.ops->queue_set_workspace(f.q, f.workspace, bytes);
    CHECK(!f.ops->matmul(f.q, &p.args));
    bad = p.args;
    bad.m = 0;
    CHECK(!f.ops->matmul(f.q, &bad)); /* nothing to do is no error */
    problem_close(&p);
    fixture_close(&f);
}

int main(void)
{
    TAP_RUN(test_all_types_and_transposes);
    TAP_RUN(test_edges_of_tiles);
    TAP_RUN(test_edges_of_blocks_of_k);
    TAP_RUN(test_panels_of_large_shapes);
    TAP_RUN(test_c_without_beta_need_not_be_initialised);
    TAP_RUN(test_two_queues_at_once_give_the_same_bits);
    TAP_RUN(test_bad_arguments_are_refused);
    return tap_done();
}
