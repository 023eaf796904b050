/* kernels_route: which experts rows choose, against values worked out by hand and finite
 * differences, and the rows that chose one: gathered, weighed, scattered. */
#include "kernels_testing.h"

/* ---- choosing ---- */

/* Of arXiv 2401.04088's gate: four experts, two of them chosen, weights that sum to 1. */
static void known_rows(struct fixture *f)
{
    const float logits[3][4] = {{2, 1, 0, -1}, {0, 3, 0, 1}, {1, 1.5f, 2, -2}};
    float weights[3][4], again[3][4];
    struct zinf_route a = {.rows = 3,
                           .cols = 4,
                           .n_chosen = 2,
                           .normalised = true,
                           .logits = &logits[0][0],
                           .weights = &weights[0][0]};
    CHECK(!f->ops->route_forward(f->q, &a));
    CHECK(fabsf(weights[0][0] - 0.73105858f) < 1e-6f && fabsf(weights[0][1] - 0.26894142f) < 1e-6f);
    CHECK(weights[0][2] < 0 && weights[0][3] < 0 && weights[1][0] < 0 && weights[1][2] < 0);
    CHECK(weights[1][1] > weights[1][3] && weights[1][3] >= 0 && weights[2][2] > weights[2][1]);
    a.normalised = false;
    a.weights = &again[0][0];
    CHECK(!f->ops->route_forward(f->q, &a));
    CHECKF(fabsf(again[0][0] - 0.6439142f) < 1e-6f && again[0][2] < 0, "%g", (double)again[0][0]);
}

static void test_known_rows(void)
{
    for_each_device(known_rows);
}

/* Of equal logits the first are taken; of what is no number, as many as ever. */
static void ties(struct fixture *f)
{
    const float logits[2][5] = {{1, 2, 2, 2, 0}, {NAN, NAN, NAN, NAN, NAN}};
    float weights[2][5];
    struct zinf_route a = {.rows = 2,
                           .cols = 5,
                           .n_chosen = 2,
                           .normalised = true,
                           .logits = &logits[0][0],
                           .weights = &weights[0][0]};
    CHECK(!f->ops->route_forward(f->q, &a));
    CHECK(weights[0][1] == 0.5f && weights[0][2] == 0.5f && weights[0][3] < 0);
    int chosen = 0;
    for (int e = 0; e < 5; e++)
        chosen += !(weights[1][e] < 0);
    CHECKF(chosen == 2, "%d", chosen);
}

static void test_ties(void)
{
    for_each_device(ties);
}

static void test_shapes_are_checked(void)
{
    struct fixture f;
    fixture_open(&f, ZINF_ISA_SCALAR, 1);
    struct zinf_route none = {.rows = 1, .cols = 4}, many = none;
    many.n_chosen = 5;
    CHECK(f.ops->route_forward(f.q, &none) == -EINVAL);
    CHECK(f.ops->route_backward(f.q, &many) == -EINVAL);
    struct zinf_rows rows = {.n = -1, .cols = 3};
    CHECK(f.ops->gather_rows(f.q, &rows) == -EINVAL && f.ops->scatter_rows(f.q, &rows) == -EINVAL);
    struct zinf_weigh weigh = {.n = 1, .cols = 0, .ld = 1};
    CHECK(f.ops->weigh_rows(f.q, &weigh) == -EINVAL);
    fixture_close(&f);
}

/* Sigmoids: the bias decides who is chosen and has no part in the weights; of two groups of two the
 * one with the larger sum of both, or with the largest alone. */
static void biased_groups(struct fixture *f)
{
    const float logits[4] = {0, 0, 2, -2},
                bias[12] = {0.2f, 0.2f, 0, 0, 0.07f, 0.07f, 0, 0, 0.03f, 0.03f};
    float weights[4];
    struct zinf_route a = {.rows = 1,
                           .cols = 4,
                           .n_chosen = 2,
                           .normalised = true,
                           .logits = logits,
                           .weights = weights,
                           .scale = 2.5f,
                           .sigmoid = true,
                           .bias = bias,
                           .n_groups = 2,
                           .n_groups_chosen = 1,
                           .group_top = 2};
    CHECK(!f->ops->route_forward(f->q, &a));
    CHECK(weights[0] == 1.25f && weights[1] == 1.25f && weights[2] < 0 && weights[3] < 0);
    a.group_top = 1;
    CHECK(!f->ops->route_forward(f->q, &a));
    CHECKF(fabsf(weights[2] - 2.5f * 0.8807971f) < 1e-6f && weights[0] < 0, "%g",
           (double)weights[2]);
    a.n_groups = 0;
    a.normalised = false;
    a.bias = NULL;
    CHECK(!f->ops->route_forward(f->q, &a));
    CHECK(weights[0] == 1.25f && fabsf(weights[2] - 2.5f * 0.8807971f) < 1e-6f && weights[1] < 0);
    a.n_groups = 3;
    CHECK(f->ops->route_forward(f->q, &a) == -EINVAL && strstr(zinf_error(), "groups"));
}

static void test_groups_and_a_bias(void)
{
    for_each_device(biased_groups);
}

enum { ROWS = 37, EXPERTS = 19, CHOSEN = 5 };

/* Sum of d_weights times the weights and of d_probs times the softmax, in double; what a row has
 * chosen is given. */
static double objective(const double *logits, const float *weights, const float *d_weights,
                        const float *d_probs, const struct zinf_route *a)
{
    double total = 0, chosen = 0, p[EXPERTS], sum = 0;
    for (int e = 0; e < EXPERTS; e++)
        total += p[e] = exp(logits[e]);
    for (int e = 0; e < EXPERTS; e++) {
        p[e] /= a->sigmoid ? 1 + p[e] : total;
        sum += a->sigmoid ? 0 : p[e] * (double)d_probs[e];
        chosen += weights[e] < 0 ? 0 : p[e];
    }
    for (int e = 0; e < EXPERTS; e++)
        if (!(weights[e] < 0))
            sum += (double)a->scale * (double)d_weights[e] * p[e] / (a->normalised ? chosen : 1);
    return sum;
}

static void gradients(struct fixture *f)
{
    struct tensor x = tensor_random(ZINF_DTYPE_F32, ROWS * EXPERTS, 1, 1.5f);
    struct tensor dw = tensor_random(ZINF_DTYPE_F32, ROWS * EXPERTS, 2, 1.0f);
    struct tensor dp = tensor_random(ZINF_DTYPE_F32, EXPERTS, 3, 1.0f);
    static float weights[ROWS][EXPERTS], d_logits[ROWS][EXPERTS];
    for (int variant = 0; variant < 4; variant++) {
        struct zinf_route a = {.rows = ROWS,
                               .cols = EXPERTS,
                               .n_chosen = CHOSEN,
                               .normalised = variant & 1,
                               .scale = variant & 2 ? 2.5f : 1.0f,
                               .sigmoid = variant & 2,
                               .logits = x.data,
                               .weights = &weights[0][0],
                               .d_weights = dw.data,
                               .d_probs = variant & 2 ? NULL : dp.data,
                               .d_logits = &d_logits[0][0]};
        CHECK(!f->ops->route_forward(f->q, &a) && !f->ops->route_backward(f->q, &a));
        for (int i = 0; i < ROWS * EXPERTS; i++) {
            int row = i / EXPERTS, e = i % EXPERTS;
            double logits[EXPERTS], up, down;
            for (int k = 0; k < EXPERTS; k++)
                logits[k] = get(&x, (size_t)(row * EXPERTS + k));
            const float *d = (const float *)dw.data + row * EXPERTS;
            logits[e] += 1e-5;
            up = objective(logits, weights[row], d, dp.data, &a);
            logits[e] -= 2e-5;
            down = objective(logits, weights[row], d, dp.data, &a);
            CHECKF(fabs((up - down) / 2e-5 - (double)d_logits[row][e]) < 2e-6,
                   "%s: row %d expert %d: %g, not %g", f->name, row, e, (double)d_logits[row][e],
                   (up - down) / 2e-5);
        }
    }
    tensor_free(&x);
    tensor_free(&dw);
    tensor_free(&dp);
}

static void test_gradients(void)
{
    for_each_device(gradients);
}

/* ---- chosen rows ---- */

enum { ALL = 90, PICKED = 40, COLS = 1100, LD = 3 };

static void pick(int32_t rows[PICKED])
{
    for (int i = 0; i < PICKED; i++)
        rows[i] = 2 * i + (i > 20);
}

static void gather_and_scatter(struct fixture *f, enum zinf_dtype dtype, enum zinf_dtype sum_dtype)
{
    int32_t rows[PICKED];
    struct tensor x = tensor_random(dtype, ALL * COLS, 4, 1.0f);
    struct tensor y = tensor_new(dtype, PICKED * COLS);
    struct tensor sum = tensor_random(sum_dtype, ALL * COLS, 5, 1.0f);
    struct tensor scale = tensor_random(ZINF_DTYPE_F32, ALL * LD, 6, 1.0f);
    double *want = tensor_doubles(&sum);
    struct zinf_rows a = {PICKED, COLS, rows, dtype, dtype, x.data, y.data, NULL, 0};
    pick(rows);
    CHECK(!f->ops->gather_rows(f->q, &a));
    for (size_t i = 0; i < PICKED * COLS; i++)
        CHECK(get(&y, i) == get(&x, (size_t)rows[i / COLS] * COLS + i % COLS));
    a = (struct zinf_rows){PICKED, COLS, rows, dtype, sum_dtype, y.data, sum.data, scale.data, LD};
    for (size_t i = 0; i < PICKED * COLS; i++) {
        size_t row = (size_t)rows[i / COLS];
        want[row * COLS + i % COLS] += get(&scale, row * LD) * get(&y, i);
    }
    CHECK(!f->ops->scatter_rows(f->q, &a));
    CHECK_NEAR(f, &sum, want, 1e-6, 1.01 * dtype_epsilon(sum_dtype));
    free(want);
    tensor_free(&x);
    tensor_free(&y);
    tensor_free(&sum);
    tensor_free(&scale);
}

static void weigh(struct fixture *f, enum zinf_dtype dtype)
{
    int32_t rows[PICKED];
    struct tensor a = tensor_random(dtype, PICKED * COLS, 7, 1.0f);
    struct tensor b = tensor_random(dtype, PICKED * COLS, 8, 1.0f);
    struct tensor w = tensor_random(ZINF_DTYPE_F32, ALL * LD, 9, 1.0f);
    struct tensor dw = tensor_random(ZINF_DTYPE_F32, ALL * LD, 10, 1.0f);
    double *want_a = tensor_doubles(&a), *want_b = tensor_doubles(&b), *want = tensor_doubles(&dw);
    struct zinf_weigh args = {PICKED, COLS, LD, rows, dtype, a.data, b.data, w.data, dw.data};
    pick(rows);
    for (size_t i = 0; i < PICKED; i++) {
        size_t at = (size_t)rows[i] * LD;
        want[at] = 0;
        for (size_t c = i * COLS; c < (i + 1) * COLS; c++) {
            want[at] += want_a[c] * want_b[c];
            want_a[c] *= get(&w, at);
            want_b[c] *= get(&w, at);
        }
    }
    CHECK(!f->ops->weigh_rows(f->q, &args));
    CHECK_NEAR(f, &dw, want, 1e-3, 1e-5);
    CHECK_NEAR(f, &a, want_a, 1e-7, 1.01 * dtype_epsilon(dtype));
    CHECK_NEAR(f, &b, want_b, 1e-7, 1.01 * dtype_epsilon(dtype));
    free(want);
    free(want_a);
    free(want_b);
    tensor_free(&a);
    tensor_free(&b);
    tensor_free(&w);
    tensor_free(&dw);
}

/* Without a list it is the first rows, in order: what a list of these gives. */
static void all_rows(struct fixture *f, enum zinf_dtype dtype)
{
    int32_t rows[PICKED];
    struct tensor x = tensor_random(dtype, PICKED * COLS, 4, 1.0f);
    struct tensor scale = tensor_random(ZINF_DTYPE_F32, PICKED * LD, 6, 1.0f);
    struct tensor sums[2], a[2], d[2];
    for (int32_t i = 0; i < PICKED; i++)
        rows[i] = i;
    for (int k = 0; k < 2; k++) {
        const int32_t *list = k ? NULL : rows;
        sums[k] = tensor_random(dtype, PICKED * COLS, 5, 1.0f);
        a[k] = tensor_copy(&x);
        d[k] = tensor_random(ZINF_DTYPE_F32, PICKED * LD, 7, 1.0f);
        struct zinf_rows add = {PICKED, COLS,         list,       dtype, dtype,
                                x.data, sums[k].data, scale.data, LD};
        struct zinf_weigh weigh = {PICKED,    COLS,         LD,         list,     dtype,
                                   a[k].data, sums[k].data, scale.data, d[k].data};
        CHECK(!f->ops->scatter_rows(f->q, &add) && !f->ops->weigh_rows(f->q, &weigh));
    }
    CHECK(tensor_same_bits(&sums[0], &sums[1]) && tensor_same_bits(&a[0], &a[1]) &&
          tensor_same_bits(&d[0], &d[1]));
    for (int k = 0; k < 2; k++) {
        tensor_free(&sums[k]);
        tensor_free(&a[k]);
        tensor_free(&d[k]);
    }
    tensor_free(&x);
    tensor_free(&scale);
}

static void chosen_rows(struct fixture *f)
{
    for (int d = 0; d < 3; d++) {
        gather_and_scatter(f, all_dtypes[d], all_dtypes[d]);
        gather_and_scatter(f, all_dtypes[d], ZINF_DTYPE_F32);
        weigh(f, all_dtypes[d]);
        all_rows(f, all_dtypes[d]);
    }
}

static void test_chosen_rows(void)
{
    for_each_device(chosen_rows);
}

/* ---- balance ---- */

/* Two layers of two samples of a row and a half: the sum over both is the loss of known rows. */
static void balance(struct fixture *f)
{
    const float logits[4][4] = {{2, 1, 0, -1}, {0, 3, 0, 1}, {1, 1.5f, 2, -2}, {2, 1, 0, -1}};
    float weights[4][4], first[2][8], both[2][8], loss[2], d[2][8];
    struct zinf_route r = {.rows = 4,
                           .cols = 4,
                           .n_chosen = 2,
                           .normalised = true,
                           .logits = &logits[0][0],
                           .weights = &weights[0][0]};
    struct zinf_shares s = {2, 2, 4, &logits[0][0], &weights[0][0], NULL, &first[0][0]};
    struct zinf_balance b = {2, 4, 4.0f / 64, &both[0][0], loss, &d[0][0]};
    CHECK(!f->ops->route_forward(f->q, &r) && !f->ops->route_shares(f->q, &s));
    CHECK(first[0][0] == 1 && first[0][1] == 2 && first[0][3] == 1 && first[1][1] == 2);
    CHECKF(fabsf(first[1][4] - 0.8285254f) < 1e-5f, "%.7g", (double)first[1][4]);
    s.before = &first[0][0];
    s.shares = &both[0][0];
    CHECK(!f->ops->route_shares(f->q, &s) && !f->ops->route_balance(f->q, &b));
    double wanted = 0;
    for (int e = 0; e < 4; e++) {
        double count = 2 * (double)(first[0][e] + first[1][e]);
        wanted += count * 2 * (double)(first[0][4 + e] + first[1][4 + e]) * 4 / 64;
        CHECK(d[1][e] == 0 && fabs((double)d[1][4 + e] - count * 4 / 64) < 1e-6);
    }
    CHECKF(fabs((double)(loss[0] + loss[1]) - wanted) < 1e-5, "%g, not %g",
           (double)(loss[0] + loss[1]), wanted);
    /* The three rows of a layer for which the loss was worked out by hand. */
    s = (struct zinf_shares){1, 3, 4, &logits[0][0], &weights[0][0], NULL, &both[0][0]};
    b = (struct zinf_balance){1, 4, 4.0f / 9, &both[0][0], loss, NULL};
    CHECK(!f->ops->route_shares(f->q, &s) && !f->ops->route_balance(f->q, &b));
    CHECKF(fabsf(loss[0] - 2.53424994f) < 1e-5f, "%.8g", (double)loss[0]);
}

static void test_balance(void)
{
    for_each_device(balance);
}

int main(void)
{
    TAP_RUN(test_known_rows);
    TAP_RUN(test_ties);
    TAP_RUN(test_groups_and_a_bias);
    TAP_RUN(test_shapes_are_checked);
    TAP_RUN(test_gradients);
    TAP_RUN(test_balance);
    TAP_RUN(test_chosen_rows);
    return tap_done();
}
