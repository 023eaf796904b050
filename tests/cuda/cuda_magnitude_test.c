/* cuda_magnitude: norms of rows with an adapter, scaled columns and their gradients of the CUDA
 * device against the host's. */
#include "cuda_twin.h"

struct shape {
    int64_t rows, cols, rank;
    size_t shift; /* of weights, in elements */
};

static void norms_of(struct twin *t, const struct shape *s, enum zinf_dtype dtype)
{
    const size_t rows = (size_t)s->rows, rank = (size_t)s->rank;
    struct pair w =
        pair_shifted(t, tensor_random(dtype, rows * (size_t)s->cols, 1, 0.1f), s->shift);
    struct pair b = pair_of(t, tensor_random(dtype, rows * rank, 2, 0.5f));
    struct pair m = pair_of(t, tensor_random(dtype, rows, 3, 1.0f));
    struct pair w_a = pair_of(t, tensor_random(ZINF_DTYPE_F32, rows * rank, 4, 0.2f));
    struct pair a_a = pair_of(t, tensor_random(ZINF_DTYPE_F32, rank * rank, 5, 0.2f));
    struct pair norm = pair_of(t, tensor_random(ZINF_DTYPE_F32, rows, 6, 1.0f));
    struct pair gain = pair_of(t, tensor_random(ZINF_DTYPE_F32, rows, 7, 1.0f));
    struct pair *const all[] = {&w, &b, &m, &w_a, &a_a, &norm, &gain};
    for (int scaled = 1; scaled >= 0; scaled--) {
        ON_BOTH(t, ops->magnitude(q, &(struct zinf_magnitude){.dtype = dtype,
                                                              .rows = s->rows,
                                                              .cols = s->cols,
                                                              .rank = s->rank,
                                                              .scale = 0.5f,
                                                              .w = scaled ? at(&w, side) : NULL,
                                                              .b = at(&b, side),
                                                              .magnitude = at(&m, side),
                                                              .w_a = at(&w_a, side),
                                                              .a_a = at(&a_a, side),
                                                              .norm = at(&norm, side),
                                                              .gain = at(&gain, side)}));
        PAIR_CHECK(t, &norm, 0.0, scaled ? 4e-6 : 0.0);
        PAIR_CHECK(t, &gain, 0.0, scaled ? 4e-6 : 0.0);
    }
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        pair_free(all[i]);
    twin_reset(t);
}

/* A row of zeros has no direction: its gain is 0, and so is its magnitude's gradient. */
static void row_of_zeros(struct twin *t)
{
    enum { COLS = 40, RANK = 3 };
    struct pair zeros = pair_of(t, tensor_new(ZINF_DTYPE_F32, COLS));
    struct pair norm = pair_of(t, tensor_random(ZINF_DTYPE_F32, 1, 6, 1.0f));
    struct pair gain = pair_of(t, tensor_random(ZINF_DTYPE_F32, 1, 7, 1.0f));
    struct pair x = pair_of(t, tensor_random(ZINF_DTYPE_F32, 1, 8, 1.0f));
    struct zinf_magnitude a = {.rows = 1, .cols = COLS, .rank = RANK, .scale = 1.0f};
    struct zinf_column_dot d = {.rows = 1, .cols = 1, .ld = 1};
    ON_BOTH(t, (a.w = a.b = at(&zeros, side), a.magnitude = at(&x, side),
                a.w_a = a.a_a = at(&zeros, side), a.norm = at(&norm, side),
                a.gain = at(&gain, side), ops->magnitude(q, &a)));
    ON_BOTH(t, (d.x = d.y = at(&x, side), d.norm = at(&norm, side), d.sum = at(&x, side),
                ops->dot_columns(q, &d)));
    CHECK(get(&norm.host, 0) == 0 && get(&gain.host, 0) == 0 && get(&x.host, 0) == 0);
    PAIR_CHECK(t, &norm, 0.0, 0.0);
    PAIR_CHECK(t, &gain, 0.0, 0.0);
    PAIR_CHECK(t, &x, 0.0, 0.0);
    struct pair *const all[] = {&zeros, &norm, &gain, &x};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        pair_free(all[i]);
    twin_reset(t);
}

static void norms(struct twin *t)
{
    static const struct shape shapes[] = {
        {5, 40, 3, 0}, {9, 321, 8, 0}, {1, 7, 40, 0}, {6, 64, 1, 3}, {3, 1032, 16, 0}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int d = 0; d < 3; d++)
            norms_of(t, &shapes[i], all_dtypes[d]);
    row_of_zeros(t);
}

static void test_norms(void)
{
    for_each_cuda(norms);
}

static void columns_of(struct twin *t, const struct shape *s, enum zinf_dtype dtype)
{
    const size_t n = (size_t)(s->rows * s->cols), cols = (size_t)s->cols;
    const double epsilon = 1.01 * dtype_epsilon(dtype);
    struct pair x = pair_shifted(t, tensor_random(dtype, n, 1, 1.0f), s->shift);
    struct pair y = pair_of(t, tensor_random(dtype, n, 2, 1.0f));
    struct pair bias = pair_of(t, tensor_random(dtype, cols, 3, 1.0f));
    struct pair gain = pair_of(t, tensor_random(ZINF_DTYPE_F32, cols, 4, 1.0f));
    struct pair *const all[] = {&x, &y, &bias, &gain};
    for (int biased = 0; biased < 2; biased++) {
        struct zinf_column_scale a = {.dtype = dtype, .rows = s->rows, .cols = s->cols};
        ON_BOTH(t, (a.x = at(&x, side), a.gain = at(&gain, side),
                    a.bias = biased ? at(&bias, side) : NULL, a.y = at(biased ? &x : &y, side),
                    ops->scale_columns(q, &a)));
        PAIR_CHECK(t, biased ? &x : &y, 1e-6, epsilon);
    }
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        pair_free(all[i]);
    twin_reset(t);
}

static void dots_of(struct twin *t, const struct shape *s, enum zinf_dtype dtype)
{
    const int64_t ld = s->cols + 5;
    const size_t n = (size_t)(s->rows * ld), cols = (size_t)s->cols;
    struct pair x = pair_shifted(t, tensor_random(dtype, n, 1, 1.0f), s->shift);
    struct pair y = pair_of(t, tensor_random(dtype, n, 2, 1.0f));
    struct tensor norms = tensor_new(ZINF_DTYPE_F32, cols);
    for (size_t j = 0; j < cols; j++)
        ((float *)norms.data)[j] = j % 7 == 3 ? 0.0f : 0.5f + (float)(j % 5);
    struct pair norm = pair_of(t, norms);
    struct pair sum = pair_of(t, tensor_random(ZINF_DTYPE_F32, cols, 4, 1.0f));
    struct pair *const all[] = {&x, &y, &norm, &sum};
    struct zinf_column_dot a = {.dtype = dtype, .cols = s->cols, .ld = ld};
    for (a.rows = s->rows;; a.rows = 0) {
        ON_BOTH(t, (a.x = at(&x, side), a.y = at(&y, side), a.norm = at(&norm, side),
                    a.sum = at(&sum, side), ops->dot_columns(q, &a)));
        PAIR_CHECK(t, &sum, 1e-5, 1e-6);
        if (!a.rows)
            break;
    }
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        pair_free(all[i]);
    twin_reset(t);
}

static void columns(struct twin *t)
{
    static const struct shape shapes[] = {
        {5, 40, 1, 0}, {33, 70, 1, 0}, {3, 264, 1, 1}, {150, 8, 1, 0}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int d = 0; d < 3; d++) {
            columns_of(t, &shapes[i], all_dtypes[d]);
            dots_of(t, &shapes[i], all_dtypes[d]);
        }
}

static void test_columns(void)
{
    for_each_cuda(columns);
}

int main(void)
{
    TAP_RUN(test_norms);
    TAP_RUN(test_columns);
    return tap_done();
}
