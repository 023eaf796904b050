/* cases_experts: choices of experts, and rows that are picked for them. */
#include "cli/doctor/cases.h"

enum { ALL = 30, PICKED = 11, LD = 5 };

static void route_check(struct twin *t, struct zinf_route *a, bool shared)
{
    const size_t n = (size_t)(a->rows * a->cols), cols = (size_t)a->cols;
    const bool biased = a->sigmoid || a->n_groups;
    struct pair logits = pair_random(t, ZINF_DTYPE_F32, n, 1, 1.5f);
    struct pair weights = pair_new(t, ZINF_DTYPE_F32, n, 0);
    struct pair d = pair_random(t, ZINF_DTYPE_F32, n, 2, 1.0f);
    struct pair probs = pair_random(t, ZINF_DTYPE_F32, cols, 3, 1.0f);
    struct pair bias = pair_random(t, ZINF_DTYPE_F32, ZINF_ROUTE_BIAS_PARTS * cols, 3, 0.3f);
    ON_BOTH(t, (a->logits = at(&logits, side), a->weights = at(&weights, side),
                a->bias = biased ? at(&bias, side) : NULL, ops->route_forward(q, a)));
    PAIR_CHECK(t, &weights, 1e-6, 1e-6);
    ON_BOTH(t, (a->logits = at(&logits, side), a->weights = at(&weights, side),
                a->d_weights = at(&d, side), a->d_probs = shared ? at(&probs, side) : NULL,
                a->d_logits = at(&logits, side), ops->route_backward(q, a)));
    PAIR_CHECK(t, &logits, 2e-5, 1e-5);
}

void case_route(struct twin *t, struct route_shape s, bool normalised, bool shared)
{
    struct zinf_route a = {
        .rows = s.rows, .cols = s.cols, .n_chosen = s.n_chosen, .normalised = normalised};
    twin_case(t, "route", "%lld rows, %lld of %lld experts", (long long)s.rows,
              (long long)s.n_chosen, (long long)s.cols);
    route_check(t, &a, shared);
}

void case_grouped_route(struct twin *t, struct zinf_route a)
{
    twin_case(t, "route", "%lld rows, %lld of %lld experts, %lld groups, %s", (long long)a.rows,
              (long long)a.n_chosen, (long long)a.cols, (long long)a.n_groups,
              a.sigmoid ? "sigmoids" : "softmax");
    route_check(t, &a, false);
}

void case_balance(struct twin *t, struct route_shape s, bool before)
{
    const int64_t samples = 3;
    const size_t n = (size_t)(samples * s.rows * s.cols), n_shares = (size_t)(samples * 2 * s.cols);
    struct zinf_route r = {
        .rows = samples * s.rows, .cols = s.cols, .n_chosen = s.n_chosen, .normalised = true};
    struct zinf_shares a = {.samples = samples, .seq = s.rows, .cols = s.cols};
    struct zinf_balance b = {.samples = samples, .cols = s.cols, .factor = 0.01f};
    twin_case(t, "route_shares and route_balance", "3 x %lld rows, %lld experts", (long long)s.rows,
              (long long)s.cols);
    struct pair logits = pair_random(t, ZINF_DTYPE_F32, n, 1, 1.5f);
    struct pair weights = pair_new(t, ZINF_DTYPE_F32, n, 0);
    struct pair old = pair_random(t, ZINF_DTYPE_F32, n_shares, 2, 1.0f);
    struct pair shares = pair_new(t, ZINF_DTYPE_F32, n_shares, 0);
    struct pair d = pair_new(t, ZINF_DTYPE_F32, n_shares, 0);
    struct pair loss = pair_new(t, ZINF_DTYPE_F32, (size_t)samples, 0);
    ON_BOTH(t,
            (r.logits = a.logits = at(&logits, side), r.weights = at(&weights, side),
             a.weights = at(&weights, side), a.before = before ? at(&old, side) : NULL,
             a.shares = at(&shares, side), ops->route_forward(q, &r) || ops->route_shares(q, &a)));
    PAIR_CHECK(t, &shares, 1e-5, 1e-5);
    ON_BOTH(t, (b.shares = at(&shares, side), b.loss = at(&loss, side), b.d_shares = at(&d, side),
                ops->route_balance(q, &b)));
    PAIR_CHECK(t, &loss, 1e-4, 1e-4);
    PAIR_CHECK(t, &d, 1e-5, 1e-5);
}

static struct pair picked_rows(struct twin *t)
{
    int32_t rows[PICKED];
    for (int32_t i = 0; i < PICKED; i++)
        rows[i] = 2 * i + i % 2;
    return pair_numbers(t, rows, PICKED);
}

void case_chosen_rows(struct twin *t, size_t cols, size_t shift, enum zinf_dtype dtype,
                      enum zinf_dtype sum)
{
    struct zinf_rows a = {.n = PICKED, .cols = (int64_t)cols, .x_dtype = dtype, .y_dtype = dtype};
    twin_case(t, "gather_rows and scatter_rows", "%s, sums in %s, %d rows of %zu",
              zinf_dtype_name(dtype), zinf_dtype_name(sum), PICKED, cols);
    struct pair rows = picked_rows(t);
    struct pair x = pair_shifted(t, shift, dtype, ALL * cols, 1, 1.0f);
    struct pair y = pair_new(t, dtype, PICKED * cols, shift);
    struct pair sums = pair_shifted(t, shift, sum, ALL * cols, 2, 1.0f);
    struct pair scale = pair_random(t, ZINF_DTYPE_F32, ALL * LD, 3, 1.0f);
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
}

void case_weigh(struct twin *t, size_t cols, size_t shift, enum zinf_dtype dtype)
{
    struct zinf_weigh z = {.n = PICKED, .cols = (int64_t)cols, .ld = LD, .dtype = dtype};
    twin_case(t, "weigh_rows", "%s, %d rows of %zu", zinf_dtype_name(dtype), PICKED, cols);
    struct pair rows = picked_rows(t);
    struct pair a = pair_shifted(t, shift, dtype, PICKED * cols, 4, 1.0f);
    struct pair b = pair_shifted(t, shift, dtype, PICKED * cols, 5, 1.0f);
    struct pair w = pair_random(t, ZINF_DTYPE_F32, ALL * LD, 6, 1.0f);
    struct pair dw = pair_random(t, ZINF_DTYPE_F32, ALL * LD, 7, 1.0f);
    ON_BOTH(t, (z.rows = at(&rows, side), z.a = at(&a, side), z.b = at(&b, side),
                z.weights = at(&w, side), z.d_weights = at(&dw, side), ops->weigh_rows(q, &z)));
    z.rows = NULL;
    ON_BOTH(t, (z.a = at(&a, side), z.b = at(&b, side), z.weights = at(&w, side),
                z.d_weights = at(&dw, side), ops->weigh_rows(q, &z)));
    PAIR_CHECK(t, &a, 1e-7, 2.0 * dtype_epsilon(dtype));
    PAIR_CHECK(t, &b, 1e-7, 2.0 * dtype_epsilon(dtype));
    PAIR_CHECK(t, &dw, 1e-4, 1e-5);
}
