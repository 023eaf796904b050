/* kernels_magnitude: norms of rows, scaled columns and their gradients against plain loops in
 * double, which make the sums of weights that the operations never make. */
#include "kernels_testing.h"

enum { ROWS = 37, COLS = 1100, RANK = 5, BATCH = 131 };

/* |W + scale B A| of row i. */
static double norm_of(const double *w, const double *b, const double *a, double scale, int row)
{
    double sum = 0;
    for (int c = 0; c < COLS; c++) {
        double v = w[row * COLS + c];
        for (int k = 0; k < RANK; k++)
            v += scale * b[row * RANK + k] * a[k * COLS + c];
        sum += v * v;
    }
    return sqrt(sum);
}

/* x [n][COLS] times A^T, in fp32. */
static void times_a(float *out, const double *x, const double *a, int n)
{
    for (int i = 0; i < n; i++)
        for (int k = 0; k < RANK; k++) {
            double sum = 0;
            for (int c = 0; c < COLS; c++)
                sum += x[i * COLS + c] * a[k * COLS + c];
            out[i * RANK + k] = (float)sum;
        }
}

static void norms(struct fixture *f)
{
    for (size_t d = 0; d < sizeof all_dtypes / sizeof *all_dtypes; d++) {
        enum zinf_dtype dtype = all_dtypes[d];
        struct tensor w = tensor_random(dtype, ROWS * COLS, 1, 0.1f),
                      a = tensor_random(dtype, RANK * COLS, 2, 0.05f),
                      b = tensor_random(dtype, ROWS * RANK, 3, 0.5f),
                      m = tensor_random(dtype, ROWS, 4, 1.0f);
        double *dw = tensor_doubles(&w), *da = tensor_doubles(&a), *db = tensor_doubles(&b);
        static float w_a[ROWS * RANK], a_a[RANK * RANK], norm[ROWS], gain[ROWS];
        times_a(w_a, dw, da, ROWS);
        times_a(a_a, da, da, RANK);
        struct zinf_magnitude args = {.dtype = dtype,
                                      .rows = ROWS,
                                      .cols = COLS,
                                      .rank = RANK,
                                      .scale = 1.5f,
                                      .w = w.data,
                                      .b = b.data,
                                      .magnitude = m.data,
                                      .w_a = w_a,
                                      .a_a = a_a,
                                      .norm = norm,
                                      .gain = gain};
        CHECK(!f->ops->magnitude(f->q, &args));
        for (int i = 0; i < ROWS; i++) {
            double want = norm_of(dw, db, da, 1.5, i);
            CHECKF(fabs((double)norm[i] - want) < 3e-6 * want, "%s: |row %d| is %.9g, not %.9g",
                   f->name, i, (double)norm[i], want);
            want = get(&m, (size_t)i) / want;
            CHECKF(fabs((double)gain[i] - want) < 4e-6 * fabs(want), "%s: gain %d", f->name, i);
        }
        args.w = NULL;
        CHECK(!f->ops->magnitude(f->q, &args));
        CHECK(norm[0] == 1 && gain[0] == 1 && norm[ROWS - 1] == 1 && gain[ROWS - 1] == 1);
        free(dw);
        free(da);
        free(db);
        tensor_free(&w);
        tensor_free(&a);
        tensor_free(&b);
        tensor_free(&m);
    }
}

static void test_norms(void)
{
    for_each_device(norms);
}

static void columns(struct fixture *f)
{
    for (size_t d = 0; d < sizeof all_dtypes / sizeof *all_dtypes; d++) {
        enum zinf_dtype dtype = all_dtypes[d];
        struct tensor x = tensor_random(dtype, BATCH * COLS, 5, 1), y = tensor_copy(&x),
                      bias = tensor_random(dtype, COLS, 6, 1),
                      gain = tensor_random(ZINF_DTYPE_F32, COLS, 7, 1);
        struct zinf_column_scale args = {.dtype = dtype,
                                         .rows = BATCH,
                                         .cols = COLS,
                                         .x = y.data,
                                         .gain = gain.data,
                                         .bias = bias.data,
                                         .y = y.data};
        double *want = tensor_doubles(&x);
        CHECK(!f->ops->scale_columns(f->q, &args));
        for (int i = 0; i < BATCH * COLS; i++)
            want[i] = want[i] * get(&gain, (size_t)i % COLS) + get(&bias, (size_t)i % COLS);
        CHECK_NEAR(f, &y, want, 1e-6, 1.01 * dtype_epsilon(dtype));
        args.x = x.data;
        args.bias = NULL;
        CHECK(!f->ops->scale_columns(f->q, &args));
        for (int i = 0; i < BATCH * COLS; i++)
            want[i] = get(&x, (size_t)i) * get(&gain, (size_t)i % COLS);
        CHECK_NEAR(f, &y, want, 1e-6, 1.01 * dtype_epsilon(dtype));
        free(want);
        tensor_free(&x);
        tensor_free(&y);
        tensor_free(&bias);
        tensor_free(&gain);
    }
}

static void test_columns(void)
{
    for_each_device(columns);
}

/* Of columns in the middle of longer rows. */
static void dots(struct fixture *f)
{
    enum { FIRST = 3, PART = 700 };
    struct tensor x = tensor_random(ZINF_DTYPE_BF16, BATCH * COLS, 8, 1),
                  y = tensor_random(ZINF_DTYPE_BF16, BATCH * COLS, 9, 1);
    static float norm[PART], sum[PART];
    for (int j = 0; j < PART; j++)
        norm[j] = j == 5 ? 0 : 0.5f + (float)j;
    struct zinf_column_dot args = {.dtype = ZINF_DTYPE_BF16,
                                   .rows = BATCH,
                                   .cols = PART,
                                   .ld = COLS,
                                   .x = (char *)x.data + FIRST * 2,
                                   .y = (char *)y.data + FIRST * 2,
                                   .norm = norm,
                                   .sum = sum};
    CHECK(!f->ops->dot_columns(f->q, &args));
    for (int j = 0; j < PART; j++) {
        double want = 0;
        for (int i = 0; i < BATCH; i++)
            want +=
                get(&x, (size_t)(i * COLS + FIRST + j)) * get(&y, (size_t)(i * COLS + FIRST + j));
        want = norm[j] > 0 ? want / (double)norm[j] : 0;
        CHECKF(fabs((double)sum[j] - want) < 2e-5, "%s: column %d: %g, not %g", f->name, j,
               (double)sum[j], want);
    }
    tensor_free(&x);
    tensor_free(&y);
}

static void test_dots(void)
{
    for_each_device(dots);
}

static void test_shapes_are_checked(void)
{
    struct fixture f;
    float w = 1;
    fixture_open(&f, ZINF_ISA_SCALAR, 1);
    struct zinf_magnitude none = {.rows = 1, .cols = 1, .rank = 0, .w = &w};
    struct zinf_column_scale scale = {.rows = 1, .cols = 0};
    struct zinf_column_dot dot = {.rows = 1, .cols = 3, .ld = 2};
    CHECK(f.ops->magnitude(f.q, &none) == -EINVAL);
    CHECK(f.ops->scale_columns(f.q, &scale) == -EINVAL);
    CHECK(f.ops->dot_columns(f.q, &dot) == -EINVAL);
    fixture_close(&f);
}

int main(void)
{
    TAP_RUN(test_norms);
    TAP_RUN(test_columns);
    TAP_RUN(test_dots);
    TAP_RUN(test_shapes_are_checked);
    return tap_done();
}
