/* kernels_matmul: products against a plain triple loop in double, for every combination of types
 * and transposes, shapes that cross slices and panels, and bits that repeat. */
#include "kernels_matmul.h"

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
            p.args.alpha = s == 1 ? -1.5f : 0.0f; /* 0: 1 */
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
    static const int64_t rows[] = {1, 2, 3, 4, 5, 6, 7, 8, 13, 14, 15, 27, 28, 29};
    static const int64_t columns[] = {1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65};
    const size_t n_columns = sizeof columns / sizeof *columns;
    for (size_t i = 0; i < sizeof rows / sizeof *rows * n_columns; i++) {
        struct shape shape = {rows[i / n_columns], columns[i % n_columns], 5 + (int64_t)i % 29, 1};
        struct problem p;
        problem_open(&p, &shape, i & 1, i & 2, dtypes[i % 2], i % 3 == 1, i % 3 == 2 ? 1.0f : 0.0f);
        p.args.alpha = i % 5 ? 0.0f : 0.7f;
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

/* Rows may be cut into any micro-batches and chunks: where our own loops multiply, k alone decides
 * how an element is summed. first_rows: of the first part; others have 23. */
static void check_cut(struct fixture *f, const struct shape *shape, int variant, int64_t first_rows)
{
    const enum zinf_dtype dtype = variant & 1 ? ZINF_DTYPE_BF16 : ZINF_DTYPE_F32;
    struct problem p;
    problem_open(&p, shape, false, variant & 2, (enum zinf_dtype[]){dtype, dtype, dtype},
                 variant & 2, 0.0f);
    CHECK(!f->ops->matmul(f->q, &p.args));
    struct tensor whole = tensor_copy(&p.c);
    for (int64_t first = 0, rows = first_rows; first < shape->m; first += rows, rows = 23) {
        struct zinf_matmul part = p.args;
        part.m = shape->m - first < rows ? shape->m - first : rows;
        part.a = host_at(p.args.a, dtype, (uint64_t)(first * p.args.lda));
        part.c = (char *)p.c.data + (uint64_t)(first * p.args.ldc) * zinf_dtype_bytes(dtype);
        CHECK(!f->ops->matmul(f->q, &part));
    }
    CHECKF(tensor_same_bits(&p.c, &whole), "%s, %s, k %d: %d rows first", f->name,
           zinf_dtype_name(dtype), (int)shape->k, (int)first_rows);
    tensor_free(&whole);
    problem_close(&p);
}

/* Without AVX-512 large products are left to OpenBLAS. */
static void cut_rows(struct fixture *f)
{
    static const struct shape large = {61, 70, 1700, 2}, small = {61, 70, 300, 2};
    const bool own = ((struct host_device *)f->device)->isa >= ZINF_ISA_AVX512;
    for (int variant = 0; variant < 4; variant++)
        for (int64_t first_rows = 1; first_rows <= 23; first_rows++) {
            check_cut(f, &small, variant, first_rows);
            if (own && first_rows > 20)
                check_cut(f, &large, variant, first_rows);
        }
}

static void test_rows_do_not_depend_on_each_other(void)
{
    for_each_device(cut_rows);
}

/* A caller plans for the most rows that it may have: as rows of C, and as the depth of a gradient
 * of weights. */
static void grow(struct fixture *f)
{
    uint64_t rows = 0, depth = 0;
    for (int64_t n = 1; n <= 4100; n += n < 2040 ? 67 : 1) {
        struct zinf_matmul a = {.m = n, .n = 1100, .k = 1100, .trans_b = true};
        a.a_dtype = a.b_dtype = a.c_dtype = ZINF_DTYPE_F16;
        struct zinf_matmul b = {.m = 1100, .n = 1100, .k = n, .trans_a = true};
        b.a_dtype = b.b_dtype = ZINF_DTYPE_BF16;
        b.c_dtype = ZINF_DTYPE_F32;
        uint64_t of_rows = f->ops->matmul_workspace(f->device, &a);
        uint64_t of_depth = f->ops->matmul_workspace(f->device, &b);
        CHECKF(of_rows >= rows && of_depth >= depth, "%s: less for %lld rows", f->name,
               (long long)n);
        rows = of_rows;
        depth = of_depth;
    }
}

static void test_smaller_products_need_no_more_workspace(void)
{
    for_each_device(grow);
}

/* X X^T, X^T X, and the square of the first: near their sums, and their own transposes to the bit.
 */
static void symmetric(struct fixture *f)
{
    static const enum zinf_dtype f32[3] = {ZINF_DTYPE_F32, ZINF_DTYPE_F32, ZINF_DTYPE_F32};
    static const int64_t sides[] = {1, 31, 130, 257, 601}, depths[] = {40, 7, 430, 19, 33};
    for (int i = 0; i < 3 * 5 - 1; i++) {
        const int64_t side = sides[i / 3], depth = i % 3 == 2 ? side : depths[i / 3];
        struct problem p;
        problem_open(&p, &(struct shape){side, side, depth, 1}, i % 3 == 1, i % 3 == 0, f32, false,
                     0.0f);
        for (int64_t r = 0; r < side && i % 3 == 2; r++)
            for (int64_t c = 0; c < r; c++)
                ((float *)p.a.data)[r * p.args.lda + c] =
                    (float)get(&p.a, (size_t)(c * p.args.lda + r));
        p.args.b = p.args.a;
        p.args.ldb = p.args.lda;
        p.args.alpha = i % 3 == 2 ? 2.0315f : 0.0f;
        struct tensor b = p.b;
        p.b = p.a;
        p.args.symmetric = true;
        check_problem(f, &p);
        p.b = b;
        const float *c = p.c.data;
        int n_other = 0;
        for (int64_t r = 0; r < side; r++)
            for (int64_t k = 0; k < r; k++)
                n_other += c[r * p.args.ldc + k] != c[k * p.args.ldc + r];
        CHECKF(!n_other, "%s: side %lld: %d differ", f->name, (long long)side, n_other);
        problem_close(&p);
    }
}

static void test_symmetric_products(void)
{
    for_each_device(symmetric);
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
    bad = p.args;
    bad.symmetric = true;
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
    TAP_RUN(test_rows_do_not_depend_on_each_other);
    TAP_RUN(test_smaller_products_need_no_more_workspace);
    TAP_RUN(test_symmetric_products);
    TAP_RUN(test_bad_arguments_are_refused);
    return tap_done();
}
