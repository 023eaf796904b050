/* cuda_elementwise: flat operations of the CUDA device against the host's, at sizes around the
 * vector width and the block, aligned and not. */
#include "cuda_twin.h"

static const size_t sizes[] = {1, 7, 8, 9, 2047, 2048, 2049, 10007};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

static void conversions(struct twin *t)
{
    for (int i = 0; i < N_SIZES * 9; i++) {
        enum zinf_dtype from = all_dtypes[i % 3], to = all_dtypes[i / 3 % 3];
        size_t n = sizes[i / 9], shift = i % 4 == 3;
        struct pair src = pair_shifted(t, tensor_random(from, n, 1, 300.0f), shift);
        struct pair dst = pair_shifted(t, tensor_new(to, n), shift);
        ON_BOTH(t, ops->convert(q, at(&dst, side), to, at(&src, side), from, n));
        PAIR_CHECK(t, &dst, 0.0, 0.0); /* one rounding, to nearest even: the same bits */
        pair_free(&src);
        pair_free(&dst);
        twin_reset(t);
    }
}

static void special_values(struct twin *t)
{
    static const float values[] = {0.0f,  -0.0f,     INFINITY, -INFINITY, NAN,         65504.0f,
                                   1e6f,  -1e6f,     6e-8f,    1e-10f,    1.00390625f, 1.01171875f,
                                   3e38f, 65519.99f, 65520.0f, 5.9e-8f};
    const size_t n = sizeof values / sizeof *values;
    for (int d = 0; d < 3; d++) {
        struct pair src = pair_of(t, tensor_new(ZINF_DTYPE_F32, n));
        memcpy(src.host.data, values, sizeof values);
        twin_transfer(t, src.device, src.host.data, sizeof values, true);
        struct pair dst = pair_of(t, tensor_new(all_dtypes[d], n));
        struct pair back = pair_of(t, tensor_new(ZINF_DTYPE_F32, n));
        ON_BOTH(
            t,
            ops->convert(q, at(&dst, side), all_dtypes[d], at(&src, side), ZINF_DTYPE_F32, n) ||
                ops->convert(q, at(&back, side), ZINF_DTYPE_F32, at(&dst, side), all_dtypes[d], n));
        struct tensor got = pair_download(t, &back);
        for (size_t i = 0; i < n; i++) {
            double want = get(&back.host, i), is = get(&got, i);
            CHECKF(is == want || (isnan(is) && isnan(want)), "%s of %g is %g, not %g",
                   zinf_dtype_name(all_dtypes[d]), (double)values[i], is, want);
        }
        tensor_free(&got);
        pair_free(&src);
        pair_free(&dst);
        pair_free(&back);
    }
}

static void additions(struct twin *t)
{
    for (int i = 0; i < N_SIZES; i++) {
        struct pair src = pair_shifted(t, tensor_random(ZINF_DTYPE_F32, sizes[i], 1, 1.0f), i % 2);
        struct pair dst = pair_of(t, tensor_random(ZINF_DTYPE_F32, sizes[i], 2, 1.0f));
        ON_BOTH(t, ops->add(q, at(&dst, side), at(&src, side), sizes[i]));
        PAIR_CHECK(t, &dst, 0.0, 0.0);
        pair_free(&src);
        pair_free(&dst);
        twin_reset(t);
    }
}

static void residual_case(struct twin *t, enum zinf_dtype dtype, size_t n, float p, size_t shift)
{
    struct pair x = pair_shifted(t, tensor_random(dtype, n, 1, 1.0f), shift);
    struct pair r = pair_of(t, tensor_random(dtype, n, 2, 1.0f));
    struct pair y = pair_of(t, tensor_new(dtype, n)), masked = pair_of(t, tensor_new(dtype, n));
    double ulp = 2.0 * dtype_epsilon(dtype);
    for (int k = 0; k < 3; k++) { /* counters that begin anywhere in a block of four, and far on */
        struct zinf_residual a = {.dtype = dtype,
                                  .n = (int64_t)n,
                                  .dropout = {.p = p,
                                              .seed = 0x123456789abcdef0u,
                                              .step = 17,
                                              .site = 5,
                                              .element_first = (uint64_t)k << 34 | k},
                                  .scale = k == 2 ? 0.22f : 0};
        ON_BOTH(t, (a.x = at(&x, side), a.r = at(&r, side), a.y = at(&y, side),
                    ops->residual_add(q, &a)));
        ON_BOTH(t, (a.r = at(&r, side), a.y = at(&masked, side), ops->dropout(q, &a)));
        PAIR_CHECK(t, &y, 1e-6, ulp);
        PAIR_CHECK(t, &masked, 0.0, 0.0); /* the same masks, bit for bit */
    }
    pair_free(&x);
    pair_free(&r);
    pair_free(&y);
    pair_free(&masked);
    twin_reset(t);
}

static void residuals(struct twin *t)
{
    for (int i = 0; i < N_SIZES; i++)
        for (int d = 0; d < 3; d++)
            residual_case(t, all_dtypes[d], sizes[i], i % 3 ? 0.3f : 0.0f, i % 2);
}

static void activation_case(struct twin *t, enum zinf_activation kind, enum zinf_dtype dtype,
                            size_t n, size_t shift)
{
    struct pair x = pair_shifted(t, tensor_random(dtype, n, 1, 4.0f), shift);
    struct pair dy = pair_of(t, tensor_random(dtype, n, 2, 1.0f));
    struct pair y = pair_of(t, tensor_new(dtype, n)), dx = pair_of(t, tensor_new(dtype, n));
    struct pair again = pair_of(t, tensor_new(dtype, n));
    double ulp = 2.0 * dtype_epsilon(dtype) + 1e-6;
    ON_BOTH(t, ops->activation_forward(q, kind, dtype, at(&y, side), at(&x, side), n));
    ON_BOTH(t, ops->activation_backward(q, kind, dtype, at(&dx, side), at(&dy, side), at(&x, side),
                                        at(&again, side), n));
    PAIR_CHECK(t, &y, 1e-6, ulp);
    PAIR_CHECK(t, &dx, 2e-6, ulp);
    PAIR_CHECK(t, &again, 1e-6, ulp);
    struct tensor out_of_place = pair_download(t, &dx), in_place;
    CHECK(!t->cuda->ops->activation_backward(t->q, kind, dtype, dy.device, dy.device, x.device,
                                             NULL, n));
    in_place = pair_download(t, &dy);
    CHECK(tensor_same_bits(&out_of_place, &in_place));
    tensor_free(&out_of_place);
    tensor_free(&in_place);
    pair_free(&x);
    pair_free(&dy);
    pair_free(&y);
    pair_free(&dx);
    pair_free(&again);
    twin_reset(t);
}

/* In one pass or in two: the bits of both operations after each other, and in place of dy. */
static void sums_case(struct twin *t, enum zinf_activation kind, enum zinf_dtype dtype,
                      int64_t rows, int64_t cols)
{
    const size_t n = (size_t)(rows * cols);
    struct pair x = pair_of(t, tensor_random(dtype, n, 1, 4.0f));
    struct pair dy = pair_of(t, tensor_random(dtype, n, 2, 1.0f));
    struct pair dx = pair_of(t, tensor_new(dtype, n)), y = pair_of(t, tensor_new(dtype, n));
    struct pair sums = pair_of(t, tensor_random(ZINF_DTYPE_F32, (size_t)cols, 3, 1.0f));
    struct zinf_activation_sums a = {.kind = kind, .dtype = dtype, .rows = rows, .cols = cols};
    struct pair *all[] = {&x, &dy, &dx, &y, &sums};
    ON_BOTH(t, (a.x = at(&x, side), a.dy = at(&dy, side), a.dx = at(&dx, side),
                a.y_out = at(&y, side), a.sums = at(&sums, side), ops->activation_sums(q, &a)));
    PAIR_CHECK(t, &dx, 2e-6, 2.0 * dtype_epsilon(dtype) + 1e-6);
    PAIR_CHECK(t, &sums, 1e-5 + dtype_epsilon(dtype) * (double)rows, 1e-5);
    struct tensor made = pair_download(t, &sums), gradient = pair_download(t, &dx);
    CHECK(!t->cuda->ops->activation_backward(t->q, kind, dtype, dx.device, dy.device, x.device,
                                             y.device, n));
    CHECK(!t->cuda->ops->column_sum(t->q, sums.device, dx.device, dtype, rows, cols));
    struct tensor apart = pair_download(t, &sums), alone = pair_download(t, &dx);
    CHECK(tensor_same_bits(&made, &apart) && tensor_same_bits(&gradient, &alone));
    a.dx = dy.device, a.dy = dy.device, a.x = x.device, a.y_out = NULL, a.sums = sums.device;
    CHECK(!t->cuda->ops->activation_sums(t->q, &a));
    struct tensor again = pair_download(t, &sums), in_place = pair_download(t, &dy);
    CHECK(tensor_same_bits(&made, &again) && tensor_same_bits(&gradient, &in_place));
    struct tensor *copies[] = {&made, &gradient, &apart, &alone, &again, &in_place};
    for (int i = 0; i < 6; i++)
        tensor_free(copies[i]);
    for (int i = 0; i < 5; i++)
        pair_free(all[i]);
    twin_reset(t);
}

static void sums(struct twin *t)
{
    static const enum zinf_activation kinds[] = {ZINF_ACTIVATION_GELU_TANH,
                                                 ZINF_ACTIVATION_GELU_ERF, ZINF_ACTIVATION_RELU,
                                                 ZINF_ACTIVATION_SILU};
    for (int i = 0; i < 4; i++)
        for (int d = 0; d < 3; d++) {
            sums_case(t, kinds[i], all_dtypes[d], 70, 264);
            sums_case(t, kinds[i], all_dtypes[d], i + 3, 37);
        }
}

static void activations(struct twin *t)
{
    for (int kind = ZINF_ACTIVATION_GELU_TANH; kind < ZINF_ACTIVATIONS; kind++)
        for (int d = 0; d < 3; d++)
            for (int i = 2; i < N_SIZES; i += 2)
                activation_case(t, (enum zinf_activation)kind, all_dtypes[d], sizes[i], i % 4 == 2);
}

/* Beside x, then with dx in x and y again in dy; shift elements off alignment. */
static void gated_case(struct twin *t, struct zinf_gated a, size_t shift)
{
    const size_t n = (size_t)(a.rows * a.cols);
    const float wide = a.kind == ZINF_ACTIVATION_CLAMPED_SWISH ? 9.0f : 3.0f;
    struct pair x = pair_shifted(t, tensor_random(a.dtype, 2 * n, 1, wide), shift);
    struct pair dy = pair_of(t, tensor_random(a.dtype, n, 2, 1.0f));
    struct pair y = pair_of(t, tensor_new(a.dtype, n));
    struct pair dx = pair_shifted(t, tensor_new(a.dtype, 2 * n), shift);
    const double ulp = 2.0 * dtype_epsilon(a.dtype) + 2e-6;
    ON_BOTH(t, (a.x = at(&x, side), a.y = at(&y, side), ops->gated_forward(q, &a)));
    ON_BOTH(t, (a.x = at(&x, side), a.dy = at(&dy, side), a.dx = at(&dx, side),
                ops->gated_backward(q, &a)));
    PAIR_CHECK(t, &y, 5e-6, ulp);
    PAIR_CHECK(t, &dx, 1e-5, ulp);
    struct tensor y_apart = pair_download(t, &y), dx_apart = pair_download(t, &dx);
    a.dx = x.device;
    a.y_out = dy.device;
    CHECK(!t->cuda->ops->gated_backward(t->q, &a));
    struct tensor y_again = pair_download(t, &dy), dx_again = pair_download(t, &x);
    CHECK(tensor_same_bits(&y_apart, &y_again) && tensor_same_bits(&dx_apart, &dx_again));
    struct tensor *copies_of[] = {&y_apart, &dx_apart, &y_again, &dx_again};
    struct pair *all[] = {&x, &dy, &y, &dx};
    for (size_t i = 0; i < 4; i++) {
        tensor_free(copies_of[i]);
        pair_free(all[i]);
    }
    twin_reset(t);
}

static void gated(struct twin *t)
{
    static const int64_t shapes[][2] = {{1, 1}, {3, 8}, {5, 37}, {4, 2048}, {3, 2056}, {2, 4100}};
    for (int kind = ZINF_ACTIVATION_GELU_TANH; kind < ZINF_ACTIVATIONS; kind++)
        for (size_t i = 0; i < 3 * sizeof shapes / sizeof *shapes; i++)
            gated_case(t,
                       (struct zinf_gated){.kind = (enum zinf_activation)kind,
                                           .dtype = all_dtypes[i % 3],
                                           .rows = shapes[i / 3][0],
                                           .cols = shapes[i / 3][1]},
                       (size_t)kind % 2);
}

static void xielu_case(struct twin *t, enum zinf_dtype dtype, const int64_t shape[2], size_t shift)
{
    const size_t rows = (size_t)shape[0], n = rows * (size_t)shape[1];
    const double ulp = 2.0 * dtype_epsilon(dtype) + 4e-6;
    struct zinf_xielu a = {.dtype = dtype, .rows = shape[0], .cols = shape[1]};
    struct pair x = pair_shifted(t, tensor_random(dtype, n, 1, 3.0f), shift);
    struct pair dy = pair_of(t, tensor_random(dtype, n, 2, 1.0f));
    struct pair y = pair_of(t, tensor_new(dtype, n)), dx = pair_of(t, tensor_new(dtype, n));
    struct pair alphas = pair_of(t, tensor_random(dtype, 2, 3, 1.0f));
    struct pair constants = pair_of(t, tensor_random(dtype, 2, 4, 0.6f));
    struct pair sums = pair_of(t, tensor_new(ZINF_DTYPE_F32, 2 * rows));
    struct pair *const all[] = {&x, &dy, &y, &dx, &alphas, &constants, &sums};
    ON_BOTH(t, (a.x = at(&x, side), a.y = at(&y, side), a.alphas = at(&alphas, side),
                a.constants = at(&constants, side), ops->xielu_forward(q, &a)));
    PAIR_CHECK(t, &y, 5e-6, ulp);
    ON_BOTH(t, (a.x = at(&x, side), a.y = at(&y, side), a.alphas = at(&alphas, side),
                a.constants = at(&constants, side), a.dy = at(&dy, side), a.dx = at(&dx, side),
                a.sums = at(&sums, side), ops->xielu_backward(q, &a)));
    PAIR_CHECK(t, &y, 5e-6, ulp);
    PAIR_CHECK(t, &dx, 1e-5, ulp);
    PAIR_CHECK(t, &sums, 2e-6 * (double)(shape[1] + 10), 1e-5);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        pair_free(all[i]);
    twin_reset(t);
}

static void xielu(struct twin *t)
{
    static const int64_t shapes[][2] = {{1, 1}, {3, 8}, {5, 37}, {2, 2056}, {2, 4100}};
    for (size_t i = 0; i < 3 * sizeof shapes / sizeof *shapes; i++)
        xielu_case(t, all_dtypes[i % 3], shapes[i / 3], i % 2);
}

static void column_sums(struct twin *t)
{
    static const int64_t shapes[][2] = {{1, 1}, {3, 8}, {64, 256}, {65, 257}, {700, 100}, {0, 16}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int d = 0; d < 3; d++) {
            int64_t rows = shapes[i][0], cols = shapes[i][1];
            struct pair x = pair_shifted(
                t, tensor_random(all_dtypes[d], (size_t)(rows * cols), 1, 1.0f), d == 1);
            struct pair sum = pair_of(t, tensor_random(ZINF_DTYPE_F32, (size_t)cols, 2, 1.0f));
            ON_BOTH(t, ops->column_sum(q, at(&sum, side), at(&x, side), all_dtypes[d], rows, cols));
            PAIR_CHECK(t, &sum, 1e-6 * (double)(rows + 10), 1e-6);
            pair_free(&x);
            pair_free(&sum);
            twin_reset(t);
        }
}

/* The host's numbers, bit for bit. */
static void noises(struct twin *t)
{
    for (int d = 0; d < 3; d++)
        for (size_t n = 3; n < 5000; n = n * 9 + 4)
            for (size_t shift = 0; shift < 2; shift++) {
                struct pair x = pair_shifted(t, tensor_random(all_dtypes[d], n, 1, 1.0f), shift);
                struct zinf_noise a = {.dtype = all_dtypes[d],
                                       .n = (int64_t)n,
                                       .magnitude = 0.3f,
                                       .random = {.seed = 0x123456789abcdef0u,
                                                  .step = 17,
                                                  .site = 5,
                                                  .element_first = (uint64_t)1 << 34 | n % 4}};
                ON_BOTH(t, (a.x = at(&x, side), ops->noise(q, &a)));
                PAIR_CHECK(t, &x, 0.0, 0.0);
                pair_free(&x);
                twin_reset(t);
            }
}

/* ---- pairs ---- */

static void preference_case(struct twin *t, enum zinf_preference_kind kind, size_t pairs,
                            size_t seq)
{
    const size_t n = 2 * pairs * seq;
    struct pair losses = pair_of(t, tensor_random(ZINF_DTYPE_F32, n, 1, 1.0f));
    struct pair reference = pair_of(t, tensor_random(ZINF_DTYPE_F32, n, 2, 1.0f));
    struct pair targets = pair_of(t, tensor_new(ZINF_DTYPE_F32, n));
    struct pair labels = pair_of(t, tensor_new(ZINF_DTYPE_F32, 2 * pairs));
    struct pair loss = pair_of(t, tensor_new(ZINF_DTYPE_F32, 2 * pairs));
    struct pair rewards = pair_of(t, tensor_new(ZINF_DTYPE_F32, 2 * pairs));
    struct pair d_losses = pair_of(t, tensor_new(ZINF_DTYPE_F32, n));
    struct pair *all[] = {&losses, &reference, &targets, &labels, &loss, &rewards, &d_losses};
    struct zinf_preference a = {.kind = kind, .beta = 0.3f, .margin = 0.5f, .smoothing = 0.1f};
    const bool referenced = zinf_preference_has_reference(kind);
    const bool scores = kind == ZINF_PREFERENCE_REWARD; /* by the reference's numbers, as margins */
    a.beta = scores ? 1.0f : a.beta;
    a.center = scores ? 0.2f : 0.0f;
    a.desirable = 1.5f;
    a.undesirable = 0.7f;
    for (size_t i = 0; i < n; i++) {
        ((int32_t *)targets.host.data)[i] = i / seq % 7 == 5 || i % 3 == 1 ? -1 : (int32_t)i;
        ((float *)losses.host.data)[i] = fabsf(((float *)losses.host.data)[i]) + 0.01f;
    }
    for (size_t i = 0; i < 2 * pairs; i++)
        ((int32_t *)labels.host.data)[i] =
            i % 2 || i % 6 == 4 ? -1 : kind == ZINF_PREFERENCE_KTO && i % 4 == 0;
    twin_transfer(t, targets.device, targets.host.data, n * 4, true);
    twin_transfer(t, losses.device, losses.host.data, n * 4, true);
    twin_transfer(t, labels.device, labels.host.data, 2 * pairs * 4, true);
    a.pairs = (int64_t)pairs, a.seq = (int64_t)seq, a.scale = 0.5f;
    for (int back = 0; back < 2; back++)
        ON_BOTH(t, (a.losses = at(&losses, side), a.targets = at(&targets, side),
                    a.labels = at(&labels, side),
                    a.reference = referenced ? at(&reference, side) : NULL,
                    a.margins = scores ? at(&reference, side) : NULL,
                    a.loss = back ? NULL : at(&loss, side),
                    a.rewards = back ? NULL : at(&rewards, side),
                    a.d_losses = back ? at(&d_losses, side) : NULL, ops->preference(q, &a)));
    PAIR_CHECK(t, &loss, 1e-5, 1e-5);
    PAIR_CHECK(t, &rewards, 1e-5, 1e-5);
    PAIR_CHECK(t, &d_losses, 1e-6, 2e-5);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        pair_free(all[i]);
    twin_reset(t);
}

static void preferences(struct twin *t)
{
    preference_case(t, ZINF_PREFERENCE_REWARD, 1, 1);
    preference_case(t, ZINF_PREFERENCE_REWARD, 37, 1);
    preference_case(t, ZINF_PREFERENCE_KTO, 1, 3);
    preference_case(t, ZINF_PREFERENCE_KTO, 7, 300);
    for (int kind = 0; kind < ZINF_PREFERENCE_REWARD; kind++) {
        preference_case(t, (enum zinf_preference_kind)kind, 1, 3);
        preference_case(t, (enum zinf_preference_kind)kind, 5, 40);
        preference_case(t, (enum zinf_preference_kind)kind, 3, 700);
    }
    CHECK(t->cuda->ops->preference(t->q, &(struct zinf_preference){.pairs = 1}) == -EINVAL);
}

static void copies(struct twin *t)
{
    struct pair a = pair_of(t, tensor_random(ZINF_DTYPE_F32, 1000, 1, 1.0f));
    struct pair b = pair_of(t, tensor_random(ZINF_DTYPE_F32, 1000, 2, 1.0f));
    ON_BOTH(t, ops->copy(q, at(&b, side), at(&a, side), 3000) ||
                   ops->fill_zero(q, (char *)at(&b, side) + 1000, 500));
    PAIR_CHECK(t, &b, 0.0, 0.0);
    pair_free(&a);
    pair_free(&b);
}

static void empty_work(struct twin *t)
{
    struct zinf_residual residual = {.n = 0};
    struct zinf_gated no_rows = {.cols = 5};
    ON_BOTH(t, ops->gated_forward(q, &no_rows) || ops->gated_backward(q, &no_rows));
    ON_BOTH(t,
            ops->convert(q, NULL, ZINF_DTYPE_F32, NULL, ZINF_DTYPE_BF16, 0) ||
                ops->add(q, NULL, NULL, 0) || ops->fill_zero(q, NULL, 0) ||
                ops->copy(q, NULL, NULL, 0) || ops->residual_add(q, &residual) ||
                ops->dropout(q, &residual) ||
                ops->activation_forward(q, ZINF_ACTIVATION_SILU, ZINF_DTYPE_F32, NULL, NULL, 0) ||
                ops->column_sum(q, NULL, NULL, ZINF_DTYPE_F32, 5, 0));
}

#define CASE(name)                                                                                 \
    static void test_##name(void)                                                                  \
    {                                                                                              \
        for_each_cuda(name);                                                                       \
    }
CASE(conversions)
CASE(special_values)
CASE(additions)
CASE(residuals)
CASE(activations)
CASE(sums)
CASE(gated)
CASE(xielu)
CASE(column_sums)
CASE(noises)
CASE(preferences)
CASE(copies)
CASE(empty_work)

int main(void)
{
    TAP_RUN(test_conversions);
    TAP_RUN(test_special_values);
    TAP_RUN(test_additions);
    TAP_RUN(test_residuals);
    TAP_RUN(test_activations);
    TAP_RUN(test_sums);
    TAP_RUN(test_gated);
    TAP_RUN(test_xielu);
    TAP_RUN(test_column_sums);
    TAP_RUN(test_noises);
    TAP_RUN(test_preferences);
    TAP_RUN(test_copies);
    TAP_RUN(test_empty_work);
    return tap_done();
}
