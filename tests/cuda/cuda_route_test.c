/* cuda_route: choices of experts and chosen rows on the CUDA device against the host's. */
#include "cuda_twin.h"

struct shape {
    int64_t rows, cols, n_chosen;
};

static void route_case(struct twin *t, struct shape s, bool normalised, bool shared)
{
    const size_t n = (size_t)(s.rows * s.cols);
    struct zinf_route a = {
        .rows = s.rows, .cols = s.cols, .n_chosen = s.n_chosen, .normalised = normalised};
    struct pair logits = pair_of(t, tensor_random(ZINF_DTYPE_F32, n, 1, 1.5f));
    struct pair weights = pair_of(t, tensor_new(ZINF_DTYPE_F32, n));
    struct pair d = pair_of(t, tensor_random(ZINF_DTYPE_F32, n, 2, 1.0f));
    struct pair probs = pair_of(t, tensor_random(ZINF_DTYPE_F32, (size_t)s.cols, 3, 1.0f));
    ON_BOTH(t, (a.logits = at(&logits, side), a.weights = at(&weights, side),
                ops->route_forward(q, &a)));
    PAIR_CHECK(t, &weights, 1e-6, 1e-6);
    ON_BOTH(t, (a.logits = at(&logits, side), a.weights = at(&weights, side),
                a.d_weights = at(&d, side), a.d_probs = shared ? at(&probs, side) : NULL,
                a.d_logits = at(&logits, side), ops->route_backward(q, &a)));
    PAIR_CHECK(t, &logits, 2e-5, 1e-5);
    struct pair *const all[] = {&logits, &weights, &d, &probs};
    for (int i = 0; i < 4; i++)
        pair_free(all[i]);
    twin_reset(t);
}

static void choices(struct twin *t)
{
    static const struct shape shapes[] = {
        {1, 1, 1}, {9, 8, 2}, {7, 60, 4}, {5, 128, 8}, {3, 33, 33}, {4, 1024, 5},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int variant = 0; variant < 4; variant++)
            route_case(t, shapes[i], variant & 1, variant & 2);
}

/* Sigmoids with a bias, and groups by one or two of each. */
static void grouped_case(struct twin *t, struct zinf_route a)
{
    const size_t n = (size_t)(a.rows * a.cols);
    struct pair logits = pair_of(t, tensor_random(ZINF_DTYPE_F32, n, 1, 1.5f));
    struct pair weights = pair_of(t, tensor_new(ZINF_DTYPE_F32, n));
    struct pair d = pair_of(t, tensor_random(ZINF_DTYPE_F32, n, 2, 1.0f));
    struct pair bias = pair_of(t, tensor_random(ZINF_DTYPE_F32, 3 * (size_t)a.cols, 3, 0.3f));
    ON_BOTH(t, (a.logits = at(&logits, side), a.weights = at(&weights, side),
                a.bias = at(&bias, side), ops->route_forward(q, &a)));
    PAIR_CHECK(t, &weights, 1e-6, 1e-6);
    ON_BOTH(t, (a.logits = at(&logits, side), a.weights = at(&weights, side),
                a.d_weights = at(&d, side), a.d_logits = at(&logits, side),
                ops->route_backward(q, &a)));
    PAIR_CHECK(t, &logits, 2e-5, 1e-5);
    struct pair *const all[] = {&logits, &weights, &d, &bias};
    for (int i = 0; i < 4; i++)
        pair_free(all[i]);
    twin_reset(t);
}

static void groups(struct twin *t)
{
    for (int variant = 0; variant < 8; variant++) {
        const bool sigmoid = variant & 1, normalised = variant & 2;
        const int top = variant & 4 ? 2 : 1;
        grouped_case(t,
                     (struct zinf_route){11, 256, 8, normalised, .scale = 2.5f, .sigmoid = sigmoid,
                                         .n_groups = 8, .n_groups_chosen = 4, .group_top = top});
        grouped_case(t, (struct zinf_route){7, 12, 3, normalised, .scale = 1.5f, .sigmoid = sigmoid,
                                            .n_groups = 3, .n_groups_chosen = 2, .group_top = top});
        grouped_case(t, (struct zinf_route){5, 45, 4, normalised, .sigmoid = sigmoid});
    }
}

static void balance_case(struct twin *t, struct shape s, bool before)
{
    const int64_t samples = 3;
    const size_t n = (size_t)(samples * s.rows * s.cols), n_shares = (size_t)(samples * 2 * s.cols);
    struct zinf_route r = {
        .rows = samples * s.rows, .cols = s.cols, .n_chosen = s.n_chosen, .normalised = true};
    struct zinf_shares a = {.samples = samples, .seq = s.rows, .cols = s.cols};
    struct zinf_balance b = {.samples = samples, .cols = s.cols, .factor = 0.01f};
    struct pair logits = pair_of(t, tensor_random(ZINF_DTYPE_F32, n, 1, 1.5f));
    struct pair weights = pair_of(t, tensor_new(ZINF_DTYPE_F32, n));
    struct pair old = pair_of(t, tensor_random(ZINF_DTYPE_F32, n_shares, 2, 1.0f));
    struct pair shares = pair_of(t, tensor_new(ZINF_DTYPE_F32, n_shares));
    struct pair d = pair_of(t, tensor_new(ZINF_DTYPE_F32, n_shares));
    struct pair loss = pair_of(t, tensor_new(ZINF_DTYPE_F32, (size_t)samples));
    ON_BOTH(t,
            (r.logits = a.logits = at(&logits, side), r.weights = at(&weights, side),
             a.weights = at(&weights, side), a.before = before ? at(&old, side) : NULL,
             a.shares = at(&shares, side), ops->route_forward(q, &r) || ops->route_shares(q, &a)));
    PAIR_CHECK(t, &shares, 1e-5, 1e-5);
    ON_BOTH(t, (b.shares = at(&shares, side), b.loss = at(&loss, side), b.d_shares = at(&d, side),
                ops->route_balance(q, &b)));
    PAIR_CHECK(t, &loss, 1e-4, 1e-4);
    PAIR_CHECK(t, &d, 1e-5, 1e-5);
    struct pair *const all[] = {&logits, &weights, &old, &shares, &d, &loss};
    for (int i = 0; i < 6; i++)
        pair_free(all[i]);
    twin_reset(t);
}

static void balances(struct twin *t)
{
    static const struct shape shapes[] = {{1, 1, 1}, {9, 8, 2}, {7, 60, 4}, {5, 128, 8}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int before = 0; before < 2; before++)
            balance_case(t, shapes[i], before);
}

/* Equal logits, and none that is a number: the host's choice. */
static void ties(struct twin *t)
{
    struct zinf_route a = {.rows = 2, .cols = 40, .n_chosen = 3};
    struct tensor values = tensor_new(ZINF_DTYPE_F32, 80);
    for (int i = 0; i < 80; i++)
        ((float *)values.data)[i] = i < 40 ? (float)(i % 7) : NAN;
    struct pair logits = pair_of(t, values), weights = pair_of(t, tensor_new(ZINF_DTYPE_F32, 80));
    ON_BOTH(t, (a.logits = at(&logits, side), a.weights = at(&weights, side),
                ops->route_forward(q, &a)));
    struct tensor got = pair_download(t, &weights);
    for (int i = 0; i < 80; i++) {
        float here = ((float *)weights.host.data)[i], there = ((float *)got.data)[i];
        CHECKF((here < 0) == (there < 0), "column %d: %g, %g", i, (double)here, (double)there);
    }
    tensor_free(&got);
    pair_free(&logits);
    pair_free(&weights);
    twin_reset(t);
}

enum { ALL = 30, PICKED = 11, LD = 5 };

static struct pair picked_rows(struct twin *t)
{
    struct tensor rows = tensor_new(ZINF_DTYPE_F32, PICKED); /* 4 bytes each */
    for (int32_t i = 0; i < PICKED; i++)
        ((int32_t *)rows.data)[i] = 2 * i + i % 2;
    return pair_of(t, rows);
}

static void rows_case(struct twin *t, size_t cols, size_t shift, enum zinf_dtype dtype,
                      enum zinf_dtype sum)
{
    struct zinf_rows a = {.n = PICKED, .cols = (int64_t)cols, .x_dtype = dtype, .y_dtype = dtype};
    struct pair rows = picked_rows(t);
    struct pair x = pair_shifted(t, tensor_random(dtype, ALL * cols, 1, 1.0f), shift);
    struct pair y = pair_shifted(t, tensor_new(dtype, PICKED * cols), shift);
    struct pair sums = pair_shifted(t, tensor_random(sum, ALL * cols, 2, 1.0f), shift);
    struct pair scale = pair_of(t, tensor_random(ZINF_DTYPE_F32, ALL * LD, 3, 1.0f));
    ON_BOTH(t, (a.rows = at(&rows, side), a.x = at(&x, side), a.y = at(&y, side),
                ops->gather_rows(q, &a)));
    PAIR_CHECK(t, &y, 0.0, 0.0);
    a.y_dtype = sum;
    a.scale_ld = LD;
    ON_BOTH(t, (a.rows = at(&rows, side), a.x = at(&y, side), a.y = at(&sums, side),
                a.scale = at(&scale, side), ops->scatter_rows(q, &a)));
    a.rows = NULL; /* the first rows, in order */
    ON_BOTH(t, (a.x = at(&y, side), a.y = at(&sums, side), a.scale = at(&scale, side),
                ops->scatter_rows(q, &a)));
    PAIR_CHECK(t, &sums, 1e-6, 2.0 * dtype_epsilon(sum));
    struct pair *const all[] = {&rows, &x, &y, &sums, &scale};
    for (int i = 0; i < 5; i++)
        pair_free(all[i]);
    twin_reset(t);
}

static void weigh_case(struct twin *t, size_t cols, size_t shift, enum zinf_dtype dtype)
{
    struct zinf_weigh z = {.n = PICKED, .cols = (int64_t)cols, .ld = LD, .dtype = dtype};
    struct pair rows = picked_rows(t);
    struct pair a = pair_shifted(t, tensor_random(dtype, PICKED * cols, 4, 1.0f), shift);
    struct pair b = pair_shifted(t, tensor_random(dtype, PICKED * cols, 5, 1.0f), shift);
    struct pair w = pair_of(t, tensor_random(ZINF_DTYPE_F32, ALL * LD, 6, 1.0f));
    struct pair dw = pair_of(t, tensor_random(ZINF_DTYPE_F32, ALL * LD, 7, 1.0f));
    ON_BOTH(t, (z.rows = at(&rows, side), z.a = at(&a, side), z.b = at(&b, side),
                z.weights = at(&w, side), z.d_weights = at(&dw, side), ops->weigh_rows(q, &z)));
    z.rows = NULL;
    ON_BOTH(t, (z.a = at(&a, side), z.b = at(&b, side), z.weights = at(&w, side),
                z.d_weights = at(&dw, side), ops->weigh_rows(q, &z)));
    PAIR_CHECK(t, &a, 1e-7, 2.0 * dtype_epsilon(dtype));
    PAIR_CHECK(t, &b, 1e-7, 2.0 * dtype_epsilon(dtype));
    PAIR_CHECK(t, &dw, 1e-4, 1e-5);
    struct pair *const all[] = {&rows, &a, &b, &w, &dw};
    for (int i = 0; i < 5; i++)
        pair_free(all[i]);
    twin_reset(t);
}

static void chosen_rows(struct twin *t)
{
    static const size_t cols[] = {1, 13, 64, 2056};
    for (size_t i = 0; i < sizeof cols / sizeof *cols; i++)
        for (int d = 0; d < 3; d++)
            for (size_t shift = 0; shift < 2; shift++) {
                rows_case(t, cols[i], shift, all_dtypes[d], all_dtypes[d]);
                rows_case(t, cols[i], shift, all_dtypes[d], ZINF_DTYPE_F32);
                weigh_case(t, cols[i], shift, all_dtypes[d]);
            }
}

static void refusals(struct twin *t)
{
    const struct zinf_device_ops *ops = t->cuda->ops;
    struct zinf_route a = {.rows = 1, .cols = 2000, .n_chosen = 2},
                      none = {.cols = 4, .n_chosen = 1};
    struct zinf_rows rows = {.cols = 4}, mixed = {.cols = 4, .y_dtype = ZINF_DTYPE_BF16};
    struct zinf_weigh weigh = {.cols = 4, .ld = 1};
    CHECK(ops->route_forward(t->q, &a) == -EINVAL && ops->route_backward(t->q, &a) == -EINVAL);
    CHECK(!ops->route_forward(t->q, &none) && !ops->route_backward(t->q, &none));
    CHECK(!ops->gather_rows(t->q, &rows) && !ops->scatter_rows(t->q, &rows));
    CHECK(!ops->weigh_rows(t->q, &weigh) && ops->scatter_rows(t->q, &mixed) == -EINVAL);
}

#define CASE(name)                                                                                 \
    static void test_##name(void)                                                                  \
    {                                                                                              \
        for_each_cuda(name);                                                                       \
    }
CASE(choices)
CASE(groups)
CASE(balances)
CASE(ties)
CASE(chosen_rows)
CASE(refusals)

int main(void)
{
    TAP_RUN(test_choices);
    TAP_RUN(test_groups);
    TAP_RUN(test_balances);
    TAP_RUN(test_ties);
    TAP_RUN(test_chosen_rows);
    TAP_RUN(test_refusals);
    return tap_done();
}
