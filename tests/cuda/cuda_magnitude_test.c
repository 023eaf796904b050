/* cuda_magnitude: norms of rows with an adapter, scaled columns and their gradients of the CUDA
 * device against the host's. */
#include "cuda_twin.h"

struct shape {
    int64_t rows, cols, rank;
    size_t shift; /* of weights, in elements */
};

/* A row of zeros has no direction: its gain is 0, and so is its magnitude's gradient. */
static void row_of_zeros(struct twin *t)
{
    enum { COLS = 40, RANK = 3 };
    twin_case(t, "magnitude", "a row of %d zeros", COLS);
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
}

static void norms(struct twin *t)
{
    static const struct shape shapes[] = {
        {5, 40, 3, 0}, {9, 321, 8, 0}, {1, 7, 40, 0}, {6, 64, 1, 3}, {3, 1032, 16, 0}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int d = 0; d < 3; d++)
            case_magnitude(t, shapes[i].rows, shapes[i].cols, shapes[i].rank, shapes[i].shift,
                           all_dtypes[d]);
    row_of_zeros(t);
}

static void test_norms(void)
{
    for_each_cuda(norms);
}

static void columns(struct twin *t)
{
    static const struct shape shapes[] = {
        {5, 40, 1, 0}, {33, 70, 1, 0}, {3, 264, 1, 1}, {150, 8, 1, 0}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int d = 0; d < 3; d++)
            case_columns(t, shapes[i].rows, shapes[i].cols, shapes[i].shift, all_dtypes[d]);
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
