/* cases_numbers: operations on numbers one by one, and their sums. */
#include "cli/doctor/cases.h"

void case_convert(struct twin *t, enum zinf_dtype to, enum zinf_dtype from, size_t n, size_t shift)
{
    twin_case(t, "convert", "%s to %s, %zu numbers", zinf_dtype_name(from), zinf_dtype_name(to), n);
    struct pair src = pair_shifted(t, shift, from, n, 1, 300.0f);
    struct pair dst = pair_new(t, to, n, shift);
    ON_BOTH(t, ops->convert(q, at(&dst, side), to, at(&src, side), from, n));
    PAIR_CHECK(t, &dst, 0.0, 0.0); /* one rounding, to nearest even: the same bits */
}

void case_add(struct twin *t, size_t n, size_t shift)
{
    twin_case(t, "add", "%zu numbers", n);
    struct pair src = pair_shifted(t, shift, ZINF_DTYPE_F32, n, 1, 1.0f);
    struct pair dst = pair_random(t, ZINF_DTYPE_F32, n, 2, 1.0f);
    ON_BOTH(t, ops->add(q, at(&dst, side), at(&src, side), n));
    PAIR_CHECK(t, &dst, 0.0, 0.0);
}

void case_residual(struct twin *t, enum zinf_dtype dtype, size_t n, float p, size_t shift)
{
    twin_case(t, "residual_add and dropout", "%s, %zu numbers", zinf_dtype_name(dtype), n);
    struct pair x = pair_shifted(t, shift, dtype, n, 1, 1.0f);
    struct pair r = pair_random(t, dtype, n, 2, 1.0f);
    struct pair y = pair_new(t, dtype, n, 0), masked = pair_new(t, dtype, n, 0);
    const double ulp = 2.0 * dtype_epsilon(dtype);
    for (int k = 0; k < 3; k++) {
        struct zinf_residual a = {.dtype = dtype,
                                  .n = (int64_t)n,
                                  .dropout = {.p = p,
                                              .seed = 0x123456789abcdef0u,
                                              .step = 17,
                                              .site = 5,
                                              .element_first = (uint64_t)k << 34 | (uint64_t)k},
                                  .scale = k == 2 ? 0.22f : 0};
        ON_BOTH(t, (a.x = at(&x, side), a.r = at(&r, side), a.y = at(&y, side),
                    ops->residual_add(q, &a)));
        ON_BOTH(t, (a.r = at(&r, side), a.y = at(&masked, side), ops->dropout(q, &a)));
        PAIR_CHECK(t, &y, 1e-6, ulp);
        PAIR_CHECK(t, &masked, 0.0, 0.0); /* the same masks, bit for bit */
    }
}

void case_activation(struct twin *t, enum zinf_activation kind, enum zinf_dtype dtype, size_t n,
                     size_t shift)
{
    twin_case(t, "activation", "kind %d, %s, %zu numbers", (int)kind, zinf_dtype_name(dtype), n);
    struct pair x = pair_shifted(t, shift, dtype, n, 1, 4.0f);
    struct pair dy = pair_random(t, dtype, n, 2, 1.0f);
    struct pair y = pair_new(t, dtype, n, 0), dx = pair_new(t, dtype, n, 0);
    struct pair again = pair_new(t, dtype, n, 0);
    const double ulp = 2.0 * dtype_epsilon(dtype) + 1e-6;
    ON_BOTH(t, ops->activation_forward(q, kind, dtype, at(&y, side), at(&x, side), n));
    ON_BOTH(t, ops->activation_backward(q, kind, dtype, at(&dx, side), at(&dy, side), at(&x, side),
                                        at(&again, side), n));
    PAIR_CHECK(t, &y, 1e-6, ulp);
    PAIR_CHECK(t, &dx, 2e-6, ulp);
    PAIR_CHECK(t, &again, 1e-6, ulp);
    struct tensor out_of_place = pair_download(t, &dx);
    TWIN_CHECK(t, !t->cuda->ops->activation_backward(t->q, kind, dtype, dy.device, dy.device,
                                                     x.device, NULL, n));
    struct tensor in_place = pair_download(t, &dy);
    TWIN_CHECK(t, tensor_same_bits(&out_of_place, &in_place));
}

/* In one pass or in two: the bits of both operations after each other, and in place of dy. */
void case_activation_sums(struct twin *t, enum zinf_activation kind, enum zinf_dtype dtype,
                          int64_t rows, int64_t cols)
{
    twin_case(t, "activation_sums", "kind %d, %s, %lld x %lld", (int)kind, zinf_dtype_name(dtype),
              (long long)rows, (long long)cols);
    const size_t n = (size_t)(rows * cols);
    struct pair x = pair_random(t, dtype, n, 1, 4.0f), dy = pair_random(t, dtype, n, 2, 1.0f);
    struct pair dx = pair_new(t, dtype, n, 0), y = pair_new(t, dtype, n, 0);
    struct pair sums = pair_random(t, ZINF_DTYPE_F32, (size_t)cols, 3, 1.0f);
    struct zinf_activation_sums a = {.kind = kind, .dtype = dtype, .rows = rows, .cols = cols};
    ON_BOTH(t, (a.x = at(&x, side), a.dy = at(&dy, side), a.dx = at(&dx, side),
                a.y_out = at(&y, side), a.sums = at(&sums, side), ops->activation_sums(q, &a)));
    PAIR_CHECK(t, &dx, 2e-6, 2.0 * dtype_epsilon(dtype) + 1e-6);
    PAIR_CHECK(t, &sums, 1e-5 + dtype_epsilon(dtype) * (double)rows, 1e-5);
    struct tensor made = pair_download(t, &sums), gradient = pair_download(t, &dx);
    TWIN_CHECK(t, !t->cuda->ops->activation_backward(t->q, kind, dtype, dx.device, dy.device,
                                                     x.device, y.device, n));
    TWIN_CHECK(t, !t->cuda->ops->column_sum(t->q, sums.device, dx.device, dtype, rows, cols));
    struct tensor apart = pair_download(t, &sums), alone = pair_download(t, &dx);
    TWIN_CHECK(t, tensor_same_bits(&made, &apart) && tensor_same_bits(&gradient, &alone));
    a.dx = dy.device, a.dy = dy.device, a.x = x.device, a.y_out = NULL, a.sums = sums.device;
    TWIN_CHECK(t, !t->cuda->ops->activation_sums(t->q, &a));
    struct tensor again = pair_download(t, &sums), in_place = pair_download(t, &dy);
    TWIN_CHECK(t, tensor_same_bits(&made, &again) && tensor_same_bits(&gradient, &in_place));
}

/* Beside x, then with dx in x and y again in dy; shift elements off alignment. */
void case_gated(struct twin *t, struct zinf_gated a, size_t shift)
{
    const size_t n = (size_t)(a.rows * a.cols);
    const float wide = a.kind == ZINF_ACTIVATION_CLAMPED_SWISH ? 9.0f : 3.0f;
    twin_case(t, "gated", "kind %d, %s, %lld x %lld", (int)a.kind, zinf_dtype_name(a.dtype),
              (long long)a.rows, (long long)a.cols);
    struct pair x = pair_shifted(t, shift, a.dtype, 2 * n, 1, wide);
    struct pair dy = pair_random(t, a.dtype, n, 2, 1.0f);
    struct pair y = pair_new(t, a.dtype, n, 0), dx = pair_new(t, a.dtype, 2 * n, shift);
    const double ulp = 2.0 * dtype_epsilon(a.dtype) + 2e-6;
    ON_BOTH(t, (a.x = at(&x, side), a.y = at(&y, side), ops->gated_forward(q, &a)));
    ON_BOTH(t, (a.x = at(&x, side), a.dy = at(&dy, side), a.dx = at(&dx, side),
                ops->gated_backward(q, &a)));
    PAIR_CHECK(t, &y, 5e-6, ulp);
    PAIR_CHECK(t, &dx, 1e-5, ulp);
    struct tensor y_apart = pair_download(t, &y), dx_apart = pair_download(t, &dx);
    a.dx = x.device;
    a.y_out = dy.device;
    TWIN_CHECK(t, !t->cuda->ops->gated_backward(t->q, &a));
    struct tensor y_again = pair_download(t, &dy), dx_again = pair_download(t, &x);
    TWIN_CHECK(t, tensor_same_bits(&y_apart, &y_again) && tensor_same_bits(&dx_apart, &dx_again));
}

void case_xielu(struct twin *t, enum zinf_dtype dtype, int64_t rows, int64_t cols, size_t shift)
{
    const size_t n = (size_t)(rows * cols);
    const double ulp = 2.0 * dtype_epsilon(dtype) + 4e-6;
    struct zinf_xielu a = {.dtype = dtype, .rows = rows, .cols = cols};
    twin_case(t, "xielu", "%s, %lld x %lld", zinf_dtype_name(dtype), (long long)rows,
              (long long)cols);
    struct pair x = pair_shifted(t, shift, dtype, n, 1, 3.0f);
    struct pair dy = pair_random(t, dtype, n, 2, 1.0f);
    struct pair y = pair_new(t, dtype, n, 0), dx = pair_new(t, dtype, n, 0);
    struct pair alphas = pair_random(t, dtype, 2, 3, 1.0f);
    struct pair constants = pair_random(t, dtype, 2, 4, 0.6f);
    struct pair sums = pair_new(t, ZINF_DTYPE_F32, 2 * (size_t)rows, 0);
    ON_BOTH(t, (a.x = at(&x, side), a.y = at(&y, side), a.alphas = at(&alphas, side),
                a.constants = at(&constants, side), ops->xielu_forward(q, &a)));
    PAIR_CHECK(t, &y, 5e-6, ulp);
    ON_BOTH(t, (a.x = at(&x, side), a.y = at(&y, side), a.alphas = at(&alphas, side),
                a.constants = at(&constants, side), a.dy = at(&dy, side), a.dx = at(&dx, side),
                a.sums = at(&sums, side), ops->xielu_backward(q, &a)));
    PAIR_CHECK(t, &y, 5e-6, ulp);
    PAIR_CHECK(t, &dx, 1e-5, ulp);
    PAIR_CHECK(t, &sums, 2e-6 * (double)(cols + 10), 1e-5);
}

void case_column_sum(struct twin *t, enum zinf_dtype dtype, int64_t rows, int64_t cols,
                     size_t shift)
{
    twin_case(t, "column_sum", "%s, %lld x %lld", zinf_dtype_name(dtype), (long long)rows,
              (long long)cols);
    struct pair x = pair_shifted(t, shift, dtype, (size_t)(rows * cols), 1, 1.0f);
    struct pair sum = pair_random(t, ZINF_DTYPE_F32, (size_t)cols, 2, 1.0f);
    ON_BOTH(t, ops->column_sum(q, at(&sum, side), at(&x, side), dtype, rows, cols));
    PAIR_CHECK(t, &sum, 1e-6 * (double)(rows + 10), 1e-6);
}

/* The host's numbers, bit for bit. */
void case_noise(struct twin *t, enum zinf_dtype dtype, size_t n, size_t shift)
{
    twin_case(t, "noise", "%s, %zu numbers", zinf_dtype_name(dtype), n);
    struct pair x = pair_shifted(t, shift, dtype, n, 1, 1.0f);
    struct zinf_noise a = {.dtype = dtype,
                           .n = (int64_t)n,
                           .magnitude = 0.3f,
                           .random = {.seed = 0x123456789abcdef0u,
                                      .step = 17,
                                      .site = 5,
                                      .element_first = (uint64_t)1 << 34 | n % 4}};
    ON_BOTH(t, (a.x = at(&x, side), ops->noise(q, &a)));
    PAIR_CHECK(t, &x, 0.0, 0.0);
}

void case_softcap(struct twin *t, size_t n, size_t shift)
{
    twin_case(t, "softcap", "%zu numbers", n);
    struct pair x = pair_shifted(t, shift, ZINF_DTYPE_F32, n, n, 20.0f);
    ON_BOTH(t, ops->softcap(q, at(&x, side), 30.0f, n));
    PAIR_CHECK(t, &x, 0.0, 6e-7);
}
