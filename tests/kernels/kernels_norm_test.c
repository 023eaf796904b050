/* kernels_norm: LayerNorm and RMSNorm against references in double and finite differences of
 * those; heads inside wider rows against rows of their own. */
#include "kernels_testing.h"

struct norm_problem {
    struct zinf_norm args;
    struct tensor x, w, b, y, mean, rstd, dy, dx, dw, db;
};

static void norm_open(struct norm_problem *p, enum zinf_norm_kind kind, enum zinf_dtype dtype,
                      int64_t rows, int64_t cols, bool bias, float beta_dx)
{
    size_t n = (size_t)(rows * cols), c = (size_t)cols, r = (size_t)rows;
    p->x = tensor_random(dtype, n, 1, 1.0f);
    p->w = tensor_random(dtype, c, 2, 1.0f);
    p->b = tensor_random(dtype, c, 3, 1.0f);
    p->y = tensor_new(dtype, n);
    p->mean = tensor_new(ZINF_DTYPE_F32, r);
    p->rstd = tensor_new(ZINF_DTYPE_F32, r);
    p->dy = tensor_random(dtype, n, 4, 1.0f);
    p->dx = tensor_random(dtype, n, 5, 1.0f);
    p->dw = tensor_random(ZINF_DTYPE_F32, c, 6, 1.0f);
    p->db = tensor_random(ZINF_DTYPE_F32, c, 7, 1.0f);
    p->args = (struct zinf_norm){.kind = kind,
                                 .dtype = dtype,
                                 .rows = rows,
                                 .cols = cols,
                                 .eps = 1e-5f,
                                 .x = p->x.data,
                                 .w = p->w.data,
                                 .b = bias ? p->b.data : NULL,
                                 .y = p->y.data,
                                 .mean = p->mean.data,
                                 .rstd = p->rstd.data,
                                 .dy = p->dy.data,
                                 .dx = p->dx.data,
                                 .beta_dx = beta_dx,
                                 .dw = p->dw.data,
                                 .db = bias ? p->db.data : NULL};
}

static void norm_close(struct norm_problem *p)
{
    struct tensor *all[] = {&p->x,    &p->w,  &p->b,  &p->y,  &p->mean,
                            &p->rstd, &p->dy, &p->dx, &p->dw, &p->db};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        tensor_free(all[i]);
}

static void norm_row(const struct zinf_norm *a, const double *x, const double *w, const double *b,
                     double *y)
{
    double mean = 0.0, square = 0.0;
    if (a->kind == ZINF_NORM_LAYER)
        for (int64_t c = 0; c < a->cols; c++)
            mean += x[c] / (double)a->cols;
    for (int64_t c = 0; c < a->cols; c++)
        square += (x[c] - mean) * (x[c] - mean) / (double)a->cols;
    for (int64_t c = 0; c < a->cols; c++)
        y[c] =
            (x[c] - mean) / sqrt(square + (double)a->eps) * (a->w ? (double)a->w_add + w[c] : 1.0) +
            (a->b ? b[c] : 0.0);
}

/* sum(dy * y) of one row: its gradient is what backward gives. */
static double norm_loss(const struct zinf_norm *a, const double *x, const double *w,
                        const double *b, const double *dy)
{
    double loss = 0.0, *y = malloc((size_t)a->cols * sizeof *y);
    norm_row(a, x, w, b, y);
    for (int64_t c = 0; c < a->cols; c++)
        loss += y[c] * dy[c];
    free(y);
    return loss;
}

/* Central differences of norm_loss by x of every row, and by w and b over all rows. */
static void norm_gradients(const struct norm_problem *p, double *dx, double *dw, double *db)
{
    const struct zinf_norm *a = &p->args;
    const double step = 1e-5;
    double *x = tensor_doubles(&p->x), *w = tensor_doubles(&p->w), *b = tensor_doubles(&p->b);
    double *dy = tensor_doubles(&p->dy);
    for (int64_t i = 0; i < a->rows * a->cols; i++) {
        int64_t row = i / a->cols * a->cols, c = i % a->cols;
        double *moved[] = {&x[i], &w[c], &b[c]}, slope[3];
        for (int k = 0; k < 3; k++) {
            double at = *moved[k];
            *moved[k] = at + step;
            slope[k] = norm_loss(a, x + row, w, b, dy + row);
            *moved[k] = at - step;
            slope[k] = (slope[k] - norm_loss(a, x + row, w, b, dy + row)) / (2.0 * step);
            *moved[k] = at;
        }
        dx[i] = slope[0] + (a->beta_dx != 0.0f ? get(&p->dx, (size_t)i) : 0.0);
        dw[c] += slope[1];
        db[c] += slope[2];
    }
    free(x);
    free(w);
    free(b);
    free(dy);
}

static void norm_case(struct fixture *f, struct norm_problem *p, bool gradients)
{
    const struct zinf_norm *a = &p->args;
    const double epsilon = dtype_epsilon(a->dtype);
    double *x = tensor_doubles(&p->x), *w = tensor_doubles(&p->w), *b = tensor_doubles(&p->b);
    double *y = malloc(p->y.n * sizeof *y);
    for (int64_t i = 0; i < a->rows; i++)
        norm_row(a, x + i * a->cols, w, b, y + i * a->cols);
    CHECK(!f->ops->norm_forward(f->q, a));
    CHECK_NEAR(f, &p->y, y, 3e-6, 1.01 * epsilon + 1e-6);
    if (gradients) {
        double *dx = calloc(p->x.n, sizeof *dx), *dw = calloc(p->w.n, sizeof *dw);
        double *db = calloc(p->b.n, sizeof *db);
        norm_gradients(p, dx, dw, db);
        CHECK(!f->ops->norm_backward(f->q, a));
        CHECK_NEAR(f, &p->dx, dx, 2e-5, 1.01 * epsilon + 1e-5);
        if (a->w)
            CHECK_NEAR(f, &p->dw, dw, 2e-5, 1e-5);
        if (a->b)
            CHECK_NEAR(f, &p->db, db, 2e-5, 1e-5);
        free(dx);
        free(dw);
        free(db);
    }
    free(x);
    free(w);
    free(b);
    free(y);
}

/* Weights that are stored around 0, and none. */
static void norm_without(struct norm_problem *p, int variant)
{
    p->args.w_add = variant & 1 ? 1.0f : 0.0f;
    if (variant & 2) {
        p->args.w = p->args.b = NULL;
        p->args.dw = p->args.db = NULL;
    }
}

static void norms(struct fixture *f)
{
    for (int d = 0; d < 3; d++)
        for (int variant = 0; variant < 8; variant++) {
            enum zinf_norm_kind kind = variant & 1 ? ZINF_NORM_RMS : ZINF_NORM_LAYER;
            struct norm_problem p;
            norm_open(&p, kind, all_dtypes[d], 5, 37, variant & 2, variant & 4 ? 1.0f : 0.0f);
            norm_case(f, &p, true);
            norm_close(&p);
        }
    for (int d = 0; d < 3; d++)
        for (int variant = 1; variant < 4; variant++) {
            struct norm_problem p;
            norm_open(&p, d == 1 ? ZINF_NORM_LAYER : ZINF_NORM_RMS, all_dtypes[d], 5, 37, d == 1,
                      0.0f);
            norm_without(&p, variant);
            norm_case(f, &p, true);
            norm_close(&p);
        }
    for (int d = 0; d < 3; d++) { /* several chunks and slices, forward */
        struct norm_problem p;
        norm_open(&p, d ? ZINF_NORM_RMS : ZINF_NORM_LAYER, all_dtypes[d], 21, 2100, true, 0.0f);
        p.args.w_add = d == 1 ? 1.0f : 0.0f;
        norm_case(f, &p, false);
        norm_close(&p);
    }
}

static void test_norms_and_their_gradients(void)
{
    for_each_device(norms);
}

/* Many rows over threads: dw and db against sums in double, dx in place of dy. */
static void norm_slices(struct fixture *f)
{
    const int64_t rows = 333, cols = 120;
    struct norm_problem p;
    norm_open(&p, ZINF_NORM_LAYER, ZINF_DTYPE_F32, rows, cols, true, 0.0f);
    double *dw = calloc((size_t)cols, sizeof *dw), *db = calloc((size_t)cols, sizeof *db);
    CHECK(!f->ops->norm_forward(f->q, &p.args));
    for (int64_t i = 0; i < rows * cols; i++) {
        size_t row = (size_t)(i / cols), c = (size_t)(i % cols);
        double normal = (get(&p.x, (size_t)i) - get(&p.mean, row)) * get(&p.rstd, row);
        dw[c] += normal * get(&p.dy, (size_t)i);
        db[c] += get(&p.dy, (size_t)i);
    }
    CHECK(!f->ops->norm_backward(f->q, &p.args));
    CHECK_NEAR(f, &p.dw, dw, 3e-5, 3e-6);
    CHECK_NEAR(f, &p.db, db, 3e-5, 3e-6);
    struct tensor first = tensor_copy(&p.dx), first_dw = tensor_copy(&p.dw);
    p.args.dx = p.dy.data;
    CHECK(!f->ops->norm_backward(f->q, &p.args));
    CHECK(tensor_same_bits(&p.dy, &first) && tensor_same_bits(&p.dw, &first_dw));
    tensor_free(&first);
    tensor_free(&first_dw);
    free(dw);
    free(db);
    norm_close(&p);
}

static void test_norm_backward_over_slices_and_in_place(void)
{
    for_each_device(norm_slices);
}

/* The bits of dw and db, and of all else, are those of one thread. */
static void test_threads_change_no_bit(void)
{
    struct tensor dw = {0}, db = {0};
    for (int n_threads = 1; n_threads <= 7; n_threads++) {
        struct fixture f;
        struct norm_problem p;
        fixture_open(&f, zinf_isa(), n_threads);
        norm_open(&p, ZINF_NORM_LAYER, ZINF_DTYPE_F32, 333, 120, true, 0.0f);
        CHECK(!f.ops->norm_forward(f.q, &p.args) && !f.ops->norm_backward(f.q, &p.args));
        if (n_threads == 1) {
            dw = tensor_copy(&p.dw);
            db = tensor_copy(&p.db);
        }
        CHECKF(tensor_same_bits(&p.dw, &dw) && tensor_same_bits(&p.db, &db), "%d threads",
               n_threads);
        norm_close(&p);
        fixture_close(&f);
    }
    tensor_free(&dw);
    tensor_free(&db);
}

static void test_large_mean_keeps_the_variance(void)
{
    struct fixture f;
    struct norm_problem p;
    fixture_open(&f, zinf_isa(), 1);
    norm_open(&p, ZINF_NORM_LAYER, ZINF_DTYPE_F32, 1, 64, true, 0.0f);
    for (int c = 0; c < 64; c++)
        ((float *)p.x.data)[c] = 10000.0f + (float)(c % 2);
    CHECK(!f.ops->norm_forward(f.q, &p.args));
    CHECK(near(get(&p.rstd, 0), 2.0, 1e-4, 0.0));
    norm_close(&p);
    fixture_close(&f);
}

/* ---- heads inside wider rows ---- */

enum { OUTER_ROWS = 131, HEADS = 3, HEAD_COLS = 96, ROW = 500, FIRST = 70 };

/* plain's rows are the heads of a row, FIRST elements into it; to or from the wide tensor. */
static void move_heads(struct tensor *wide, const struct tensor *plain, bool to_wide)
{
    size_t width = zinf_dtype_bytes(wide->dtype), bytes = HEADS * HEAD_COLS * width;
    for (size_t row = 0; row < OUTER_ROWS; row++) {
        char *in_wide = (char *)wide->data + (row * ROW + FIRST) * width;
        char *in_plain = (char *)plain->data + row * bytes;
        memcpy(to_wide ? in_wide : in_plain, to_wide ? in_plain : in_wide, bytes);
    }
}

/* Whether wide holds plain's bits in its heads and what it held before elsewhere. */
static bool heads_are(const struct tensor *wide, const struct tensor *plain,
                      const struct tensor *before)
{
    struct tensor want = tensor_copy(before);
    move_heads(&want, plain, true);
    bool same = tensor_same_bits(&want, wide);
    tensor_free(&want);
    return same;
}

/* Every head of every row as a row of its own, then in place: the same bits. */
static void norm_heads_case(struct fixture *f, enum zinf_norm_kind kind, enum zinf_dtype dtype,
                            float beta_dx)
{
    struct norm_problem p;
    norm_open(&p, kind, dtype, OUTER_ROWS * HEADS, HEAD_COLS, kind == ZINF_NORM_LAYER, beta_dx);
    struct tensor x = tensor_random(dtype, OUTER_ROWS * ROW, 11, 1.0f), y = tensor_copy(&x);
    struct tensor before = tensor_copy(&x), dy = tensor_copy(&x), dx = tensor_copy(&x);
    struct tensor rstd = tensor_new(ZINF_DTYPE_F32, OUTER_ROWS * HEADS), mean = tensor_copy(&rstd);
    struct tensor dw = tensor_new(ZINF_DTYPE_F32, HEAD_COLS), db = tensor_copy(&dw);
    const size_t shift = FIRST * zinf_dtype_bytes(dtype);
    struct zinf_norm a = p.args;
    a.rows = OUTER_ROWS;
    a.heads = HEADS;
    a.ld = ROW;
    a.x = (char *)x.data + shift;
    a.y = (char *)y.data + shift;
    a.dy = (char *)dy.data + shift;
    a.dx = (char *)dx.data + shift;
    a.rstd = rstd.data;
    a.mean = mean.data;
    a.dw = dw.data;
    a.db = a.b ? db.data : NULL;
    move_heads(&x, &p.x, true);
    move_heads(&dy, &p.dy, true);
    move_heads(&dx, &p.dx, true);
    CHECK(f->ops->norm_workspace(f->device, &a) == f->ops->norm_workspace(f->device, &p.args));
    CHECK(!f->ops->norm_forward(f->q, &p.args) && !f->ops->norm_forward(f->q, &a));
    CHECK(tensor_same_bits(&rstd, &p.rstd) && tensor_same_bits(&mean, &p.mean));
    CHECKF(heads_are(&y, &p.y, &before), "%s y", f->name);
    CHECK(!f->ops->norm_backward(f->q, &p.args) && !f->ops->norm_backward(f->q, &a));
    CHECKF(heads_are(&dx, &p.dx, &before), "%s dx", f->name);
    CHECK(tensor_same_bits(&dw, &p.dw) && (!a.b || tensor_same_bits(&db, &p.db)));
    if (beta_dx == 0.0f) {
        a.dx = (void *)(uintptr_t)a.dy;
        CHECK(!f->ops->norm_backward(f->q, &a));
        CHECKF(heads_are(&dy, &p.dx, &before), "%s dx in dy", f->name);
    }
    a.y = (void *)(uintptr_t)a.x;
    CHECK(!f->ops->norm_forward(f->q, &a));
    CHECKF(heads_are(&x, &p.y, &before), "%s y in x", f->name);
    struct tensor *all[] = {&x, &y, &before, &dy, &dx, &rstd, &mean, &dw, &db};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        tensor_free(all[i]);
    norm_close(&p);
}

static void norm_heads_cases(struct fixture *f)
{
    for (int variant = 0; variant < 12; variant++)
        norm_heads_case(f, variant & 1 ? ZINF_NORM_RMS : ZINF_NORM_LAYER, all_dtypes[variant / 4],
                        variant & 2 ? 1.0f : 0.0f);
}

static void test_heads_of_a_row_have_the_bits_of_rows(void)
{
    for_each_device(norm_heads_cases);
}

static void dx_alone(struct fixture *f)
{
    for (int variant = 0; variant < 12; variant++) {
        struct norm_problem p;
        norm_open(&p, variant & 1 ? ZINF_NORM_RMS : ZINF_NORM_LAYER, all_dtypes[variant / 4], 9, 70,
                  !(variant & 1), variant & 2 ? 1.0f : 0.0f);
        struct tensor dx = tensor_random(p.dx.dtype, p.dx.n, 5, 1.0f); /* as p.dx is now */
        struct zinf_norm alone = p.args;
        alone.dx = dx.data;
        alone.dw = alone.db = NULL;
        CHECK(!f->ops->norm_forward(f->q, &p.args) && !f->ops->norm_backward(f->q, &p.args) &&
              !f->ops->norm_backward(f->q, &alone));
        CHECKF(tensor_same_bits(&dx, &p.dx), "%s dx", f->name);
        alone.db = p.args.db;
        CHECK(!alone.db || f->ops->norm_backward(f->q, &alone) == -EINVAL);
        tensor_free(&dx);
        norm_close(&p);
    }
}

static void test_dx_alone_has_its_bits(void)
{
    for_each_device(dx_alone);
}

static void sum_and_norm(struct fixture *f)
{
    for (int variant = 0; variant < 6; variant++) {
        struct norm_problem p;
        norm_open(&p, variant & 1 ? ZINF_NORM_RMS : ZINF_NORM_LAYER, all_dtypes[variant / 2], 9, 70,
                  !(variant & 1), 0.0f);
        struct tensor sum = tensor_new(p.x.dtype, p.x.n), y = tensor_new(p.x.dtype, p.x.n);
        struct tensor apart = tensor_new(p.x.dtype, p.x.n);
        struct zinf_residual s = {.dtype = p.x.dtype, .n = (int64_t)p.x.n, .y = sum.data};
        s.x = p.x.data, s.r = p.dy.data;
        s.dropout = (struct zinf_dropout){.p = 0.25f, .seed = 5, .step = 1, .site = 3};
        p.args.x = sum.data;
        CHECKF(!f->ops->residual_norm(f->q, &s, &p.args), "%s", zinf_error());
        s.y = apart.data;
        p.args.x = apart.data;
        p.args.y = y.data;
        CHECK(!f->ops->residual_add(f->q, &s) && !f->ops->norm_forward(f->q, &p.args));
        CHECK(tensor_same_bits(&sum, &apart) && tensor_same_bits(&y, &p.y));
        tensor_free(&sum);
        tensor_free(&apart);
        tensor_free(&y);
        norm_close(&p);
    }
}

static void test_sum_and_norm_are_both(void)
{
    for_each_device(sum_and_norm);
}

static void test_norm_refuses_bad_arguments(void)
{
    struct fixture f;
    struct norm_problem p;
    fixture_open(&f, zinf_isa(), 2);
    norm_open(&p, ZINF_NORM_LAYER, ZINF_DTYPE_F32, 3, 8, true, 0.0f);
    struct zinf_norm bad = p.args;
    bad.cols = 0;
    CHECK(f.ops->norm_forward(f.q, &bad) == -EINVAL);
    bad = p.args;
    bad.beta_dx = 0.5f;
    CHECK(f.ops->norm_backward(f.q, &bad) == -EINVAL);
    bad = p.args;
    bad.w = NULL;
    CHECK(f.ops->norm_forward(f.q, &bad) == -EINVAL && strstr(zinf_error(), "bias"));
    bad = p.args;
    bad.heads = 2;
    bad.ld = 15;
    CHECK(f.ops->norm_forward(f.q, &bad) == -EINVAL);
    CHECK(strstr(zinf_error(), "heads") != NULL);
    f.ops->queue_set_workspace(f.q, f.workspace, f.ops->norm_workspace(f.device, &p.args) - 1);
    CHECK(f.ops->norm_backward(f.q, &p.args) == -EINVAL);
    CHECK(strstr(zinf_error(), "workspace") != NULL);
    norm_close(&p);
    fixture_close(&f);
}

int main(void)
{
    TAP_RUN(test_norms_and_their_gradients);
    TAP_RUN(test_norm_backward_over_slices_and_in_place);
    TAP_RUN(test_threads_change_no_bit);
    TAP_RUN(test_large_mean_keeps_the_variance);
    TAP_RUN(test_heads_of_a_row_have_the_bits_of_rows);
    TAP_RUN(test_dx_alone_has_its_bits);
    TAP_RUN(test_sum_and_norm_are_both);
    TAP_RUN(test_norm_refuses_bad_arguments);
    return tap_done();
}
