/* kernels_elementwise: copies, conversion, dropout, column sums, activations, gated units, and the
 * life of a device with its queues and events. */
#include "kernels_testing.h"

enum { LONG = 70001 }; /* odd, and enough for several slices */

/* ---- copies and sums ---- */

static void copies(struct fixture *f)
{
    struct tensor from = tensor_random(ZINF_DTYPE_F32, LONG, 1, 1.0f);
    struct tensor to = tensor_new(ZINF_DTYPE_F32, LONG);
    CHECK(!f->ops->copy(f->q, to.data, from.data, LONG * 4));
    CHECK(tensor_same_bits(&from, &to));
    CHECK(!f->ops->add(f->q, to.data, from.data, LONG));
    for (size_t i = 0; i < LONG; i++)
        CHECKF(get(&to, i) == 2.0 * get(&from, i), "%s add [%zu]", f->name, i);
    CHECK(!f->ops->fill_zero(f->q, to.data, LONG * 4 - 2)); /* any number of bytes */
    CHECK(get(&to, 0) == 0.0 && get(&to, LONG - 2) == 0.0 && get(&to, LONG - 1) != 0.0);
    CHECK(!f->ops->copy_to_device(f->q, to.data, from.data, LONG * 4));
    CHECK(tensor_same_bits(&from, &to));
    tensor_free(&from);
    tensor_free(&to);
}

static void test_copies_and_add(void)
{
    for_each_device(copies);
}

static void conversions(struct fixture *f)
{
    for (int s = 0; s < 3; s++)
        for (int d = 0; d < 3; d++)
            for (size_t n = LONG; n; n = n > 40 ? 37 : 0) {
                struct tensor from = tensor_random(all_dtypes[s], n, 2, 1000.0f);
                struct tensor to = tensor_new(all_dtypes[d], n), want = tensor_new(to.dtype, n);
                if (from.dtype == ZINF_DTYPE_F32) { /* ties, overflow, subnormals, NaN */
                    static const float special[] = {1.00390625f, 65520.0f, 1e38f, 3e-8f,  6e-5f,
                                                    -0.0f,       INFINITY, NAN,   1e-40f, 3.4e38f};
                    memcpy(from.data, special, sizeof special);
                }
                CHECK(!f->ops->convert(f->q, to.data, to.dtype, from.data, from.dtype, n));
                zinf_convert(want.data, want.dtype, from.data, from.dtype, n);
                CHECKF(tensor_same_bits(&to, &want), "%s %s to %s", f->name,
                       zinf_dtype_name(from.dtype), zinf_dtype_name(to.dtype));
                tensor_free(&from);
                tensor_free(&to);
                tensor_free(&want);
            }
}

static void test_conversion_has_the_bits_of_base(void)
{
    for_each_device(conversions);
}

static void column_sums(struct fixture *f)
{
    static const int64_t shapes[][2] = {{1, 1}, {3, 1000}, {200, 333}, {0, 5}, {1000, 7}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int d = 0; d < 3; d++) {
            int64_t rows = shapes[s][0], cols = shapes[s][1];
            struct tensor x = tensor_random(all_dtypes[d], (size_t)(rows * cols), 3, 1.0f);
            struct tensor sum = tensor_random(ZINF_DTYPE_F32, (size_t)cols, 4, 1.0f);
            double *want = calloc((size_t)cols, sizeof *want);
            for (int64_t i = 0; i < rows * cols; i++)
                want[i % cols] += get(&x, (size_t)i);
            CHECK(!f->ops->column_sum(f->q, sum.data, x.data, x.dtype, rows, cols));
            CHECK_NEAR(f, &sum, want, 1e-5, 1e-6);
            free(want);
            tensor_free(&x);
            tensor_free(&sum);
        }
    CHECK(f->ops->column_sum(f->q, NULL, NULL, ZINF_DTYPE_F32, -1, 4) == -EINVAL);
}

static void test_column_sum(void)
{
    for_each_device(column_sums);
}

/* ---- dropout ---- */

static void dropout(struct fixture *f)
{
    for (int d = 0; d < 3; d++) {
        const int64_t n = 40003;
        struct tensor x = tensor_random(all_dtypes[d], (size_t)n, 5, 1.0f);
        struct tensor r = tensor_random(all_dtypes[d], (size_t)n, 6, 1.0f);
        struct tensor y = tensor_new(all_dtypes[d], (size_t)n);
        const float scale = d ? 0.4f : 1;
        struct zinf_residual a = {
            x.dtype,      n,      x.data,
            r.data,       y.data, {0.25f, 0x123456789abcdefu, 11, 5, (1ull << 34) - 7},
            d ? scale : 0};
        double epsilon = dtype_epsilon(x.dtype);
        double *sum = tensor_doubles(&x), *masked = tensor_doubles(&r);
        size_t kept = 0;
        for (int64_t i = 0; i < n; i++) {
            double factor = dropout_factor(&a.dropout, a.dropout.element_first + (uint64_t)i);
            kept += factor != 0.0;
            sum[i] += masked[i] *= factor * (double)scale;
        }
        CHECKF(kept > 29600 && kept < 30400, "%zu of 40003 kept at p = 0.25", kept);
        CHECK(!f->ops->residual_add(f->q, &a));
        CHECK_NEAR(f, &y, sum, 1e-6, 1.01 * epsilon);
        a.x = NULL;
        CHECK(!f->ops->dropout(f->q, &a)); /* the backward of the branch: the same mask */
        CHECK_NEAR(f, &y, masked, 3e-8, 1.01 * epsilon); /* fp16 below its normal range */
        /* two calls of a cut batch, in place: the same bits */
        struct zinf_residual head = a, tail = a;
        int64_t cut = 12345;
        head.y = r.data;
        head.n = cut;
        tail.n = n - cut;
        tail.r = tail.y = (char *)r.data + (size_t)cut * zinf_dtype_bytes(r.dtype);
        tail.dropout.element_first += (uint64_t)cut;
        CHECK(!f->ops->dropout(f->q, &head));
        CHECK(!f->ops->dropout(f->q, &tail));
        CHECK(tensor_same_bits(&r, &y));
        free(sum);
        free(masked);
        tensor_free(&x);
        tensor_free(&r);
        tensor_free(&y);
    }
}

static void test_dropout_follows_the_counter(void)
{
    for_each_device(dropout);
}

static void no_dropout(struct fixture *f)
{
    struct tensor x = tensor_random(ZINF_DTYPE_F32, 999, 5, 1.0f);
    struct tensor r = tensor_random(ZINF_DTYPE_F32, 999, 6, 1.0f);
    struct tensor y = tensor_new(ZINF_DTYPE_F32, 999);
    struct zinf_residual a = {.dtype = x.dtype, .n = 999, .x = x.data, .r = r.data, .y = y.data};
    CHECK(!f->ops->dropout(f->q, &a));
    CHECK(tensor_same_bits(&y, &r));
    CHECK(!f->ops->residual_add(f->q, &a));
    for (size_t i = 0; i < y.n; i++)
        CHECK(((float *)y.data)[i] == ((float *)x.data)[i] + ((float *)r.data)[i]);
    a.scale = -2;
    CHECK(!f->ops->dropout(f->q, &a));
    for (size_t i = 0; i < y.n; i++)
        CHECK(((float *)y.data)[i] == -2 * ((float *)r.data)[i]);
    a.dropout.p = 1.0f;
    CHECK(f->ops->dropout(f->q, &a) == -EINVAL && f->ops->residual_add(f->q, &a) == -EINVAL);
    a.dropout.p = 0.0f;
    a.n = -1;
    CHECK(f->ops->dropout(f->q, &a) == -EINVAL && f->ops->residual_add(f->q, &a) == -EINVAL);
    tensor_free(&x);
    tensor_free(&r);
    tensor_free(&y);
}

static void test_dropout_off_is_exact_and_bad_rates_are_refused(void)
{
    for_each_device(no_dropout);
}

/* ---- activations ---- */

static double activation(enum zinf_activation kind, double x)
{
    switch (kind) {
    case ZINF_ACTIVATION_GELU_TANH:
        return 0.5 * x * (1.0 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    case ZINF_ACTIVATION_GELU_ERF:
        return 0.5 * x * erfc(-x * 0.7071067811865476);
    case ZINF_ACTIVATION_SILU:
        return x / (1.0 + exp(-x));
    case ZINF_ACTIVATION_RELU:
        return x > 0.0 ? x : 0.0;
    case ZINF_ACTIVATION_TANH:
        return tanh(x);
    case ZINF_ACTIVATION_RELU_SQUARED:
        return x > 0.0 ? x * x : 0.0;
    case ZINF_ACTIVATION_CLAMPED_SWISH:
        x = fmin(x, 7.0);
        return x / (1.0 + exp(-1.702 * x));
    case ZINF_ACTIVATION_SIGMOID:
        return 1.0 / (1.0 + exp(-x));
    case ZINF_ACTIVATION_IDENTITY:
        return x;
    case ZINF_ACTIVATIONS:
        break;
    }
    return NAN;
}

/* At a bend as PyTorch has it: relu has none at 0, and at a bound what is kept passes. */
static double slope_of(enum zinf_activation kind, double x)
{
    const double step = 1e-5;
    if (kind == ZINF_ACTIVATION_RELU)
        return x > 0.0;
    if (kind == ZINF_ACTIVATION_CLAMPED_SWISH && x == 7.0)
        x -= step;
    return (activation(kind, x + step) - activation(kind, x - step)) / (2.0 * step);
}

static void golden(struct fixture *f)
{
    static const float x[] = {-3.0f, -1.0f, -0.5f, 0.5f, 1.0f, 3.0f};
    static const double want[][6] = {
        [ZINF_ACTIVATION_GELU_TANH] = {-0.0036374, -0.1588080, -0.1542860, 0.3457140, 0.8411920,
                                       2.9963626},
        [ZINF_ACTIVATION_GELU_ERF] = {-0.0040497, -0.1586553, -0.1542688, 0.3457312, 0.8413447,
                                      2.9959503},
    };
    for (int kind = ZINF_ACTIVATION_GELU_TANH; kind <= ZINF_ACTIVATION_GELU_ERF; kind++) {
        struct tensor y = tensor_new(ZINF_DTYPE_F32, 6);
        CHECK(!f->ops->activation_forward(f->q, (enum zinf_activation)kind, ZINF_DTYPE_F32, y.data,
                                          x, 6));
        CHECK_NEAR(f, &y, want[kind], 6e-8, 1e-7);
        tensor_free(&y);
    }
}

static void test_gelu_golden_values(void)
{
    for_each_device(golden);
}

/* Forward, both forms of backward, and backward in place of dy. */
static void activation_case(struct fixture *f, enum zinf_activation kind, enum zinf_dtype dtype)
{
    const size_t n = 40001;
    const float wide = kind == ZINF_ACTIVATION_CLAMPED_SWISH ? 9.0f : 3.0f;
    struct tensor x = tensor_random(dtype, n, 7, wide), dy = tensor_random(dtype, n, 8, 1.0f);
    struct tensor y = tensor_new(dtype, n), dx = tensor_new(dtype, n), again = tensor_new(dtype, n);
    double *value = tensor_doubles(&x), *slope = tensor_doubles(&dy);
    const double relative = 1.01 * dtype_epsilon(dtype);
    for (size_t i = 0; i < n; i++) {
        double at = value[i];
        value[i] = activation(kind, at);
        slope[i] *= slope_of(kind, at);
    }
    CHECK(!f->ops->activation_forward(f->q, kind, dtype, y.data, x.data, n));
    CHECK_NEAR(f, &y, value, 1e-7, relative + 2e-6);
    CHECK(!f->ops->activation_backward(f->q, kind, dtype, dx.data, dy.data, x.data, NULL, n));
    CHECK_NEAR(f, &dx, slope, 3e-7, relative + 3e-6);
    CHECK(!f->ops->activation_backward(f->q, kind, dtype, dy.data, dy.data, x.data, again.data, n));
    CHECK(tensor_same_bits(&dy, &dx));
    CHECK(tensor_same_bits(&again, &y));
    free(value);
    free(slope);
    tensor_free(&x);
    tensor_free(&dy);
    tensor_free(&y);
    tensor_free(&dx);
    tensor_free(&again);
}

/* The bits of both operations after each other. */
static void activation_sums(struct fixture *f)
{
    static const int64_t shapes[][2] = {{1, 1}, {3, 1000}, {200, 333}, {0, 5}};
    for (int i = 0; i < 12; i++) {
        const enum zinf_dtype dtype = all_dtypes[i % 3];
        struct zinf_activation_sums a = {.kind = (enum zinf_activation)(i % ZINF_ACTIVATIONS),
                                         .dtype = dtype,
                                         .rows = shapes[i / 3][0],
                                         .cols = shapes[i / 3][1]};
        const size_t n = (size_t)(a.rows * a.cols), cols = (size_t)a.cols;
        struct tensor x = tensor_random(dtype, n, 7, 3.0f), dy = tensor_random(dtype, n, 8, 1.0f);
        struct tensor dx = tensor_new(dtype, n), y = tensor_new(dtype, n);
        struct tensor sums = tensor_random(ZINF_DTYPE_F32, cols, 9, 1.0f);
        struct tensor want = tensor_new(ZINF_DTYPE_F32, cols), want_y = tensor_new(dtype, n);
        a.x = x.data, a.dy = dy.data, a.dx = dx.data, a.y_out = y.data, a.sums = sums.data;
        CHECK(!f->ops->activation_sums(f->q, &a));
        CHECK(!f->ops->activation_backward(f->q, a.kind, dtype, dy.data, dy.data, x.data,
                                           want_y.data, n));
        CHECK(!f->ops->column_sum(f->q, want.data, dy.data, dtype, a.rows, a.cols));
        CHECK(tensor_same_bits(&dx, &dy) && tensor_same_bits(&y, &want_y));
        CHECK(tensor_same_bits(&sums, &want));
        struct tensor *all[] = {&x, &dy, &dx, &y, &sums, &want, &want_y};
        for (int k = 0; k < 7; k++)
            tensor_free(all[k]);
    }
    CHECK(f->ops->activation_sums(f->q, &(struct zinf_activation_sums){.rows = -1}) == -EINVAL);
}

static void test_activations_with_sums(void)
{
    for_each_device(activation_sums);
}

static void activations(struct fixture *f)
{
    for (int kind = ZINF_ACTIVATION_GELU_TANH; kind < ZINF_ACTIVATIONS; kind++)
        for (int d = 0; d < 3; d++)
            activation_case(f, (enum zinf_activation)kind, all_dtypes[d]);
    CHECK(f->ops->activation_forward(f->q, (enum zinf_activation)9, ZINF_DTYPE_F32, NULL, NULL,
                                     0) == -EINVAL);
}

static void test_activations_and_their_gradients(void)
{
    for_each_device(activations);
}

static void extremes(struct fixture *f)
{
    static const float x[] = {-1e30f, -1e4f, -100.0f, -20.0f, 0.0f, 20.0f, 100.0f, 1e4f, NAN};
    for (int kind = ZINF_ACTIVATION_GELU_TANH; kind <= ZINF_ACTIVATION_SILU; kind++) {
        float y[9], dx[9], dy[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
        CHECK(!f->ops->activation_backward(f->q, (enum zinf_activation)kind, ZINF_DTYPE_F32, dx, dy,
                                           x, y, 9));
        for (int i = 1; i < 8; i++) {
            double want = activation((enum zinf_activation)kind, (double)x[i]);
            CHECKF(near((double)y[i], want, 1e-7, 3e-6), "%s kind %d f(%g) = %g", f->name, kind,
                   (double)x[i], (double)y[i]);
            CHECKF(isfinite(dx[i]), "%s kind %d slope at %g", f->name, kind, (double)x[i]);
        }
        CHECK(near((double)dx[7], 1.0, 1e-6, 0.0) && near((double)dx[1], 0.0, 1e-6, 0.0));
        CHECK(isnan(y[8]) && isnan(dx[8])); /* an overflow upstream must stay visible */
    }
}

static void test_activations_far_out_and_nan(void)
{
    for_each_device(extremes);
}

/* ---- gated units ---- */

static double factor_of(enum zinf_activation kind, double up, double *slope)
{
    *slope = 1;
    if (kind != ZINF_ACTIVATION_CLAMPED_SWISH)
        return up;
    *slope = fabs(up) <= 7.0;
    return 1.0 + fmin(fmax(up, -7.0), 7.0);
}

/* Forward; backward beside x; backward with dx in x and y again in dy. */
static void gated_case(struct fixture *f, enum zinf_activation kind, enum zinf_dtype dtype,
                       int64_t rows, int64_t cols)
{
    const size_t n = (size_t)(rows * cols);
    const float wide = kind == ZINF_ACTIVATION_CLAMPED_SWISH ? 9.0f : 2.0f;
    struct tensor x = tensor_random(dtype, 2 * n, 9, wide), dy = tensor_random(dtype, n, 10, 1.0f);
    struct tensor y = tensor_new(dtype, n), dx = tensor_new(dtype, 2 * n);
    double *want = malloc(n * sizeof *want), *d_want = malloc(2 * n * sizeof *d_want);
    const double relative = 1.01 * dtype_epsilon(dtype);
    for (size_t i = 0; i < n; i++) {
        size_t gate = i / (size_t)cols * 2 * (size_t)cols + i % (size_t)cols;
        size_t up = gate + (size_t)cols;
        double value = activation(kind, get(&x, gate)), up_slope;
        double factor = factor_of(kind, get(&x, up), &up_slope);
        want[i] = value * factor;
        d_want[gate] = get(&dy, i) * factor * slope_of(kind, get(&x, gate));
        d_want[up] = get(&dy, i) * value * up_slope;
    }
    struct zinf_gated a = {.kind = kind,
                           .dtype = dtype,
                           .rows = rows,
                           .cols = cols,
                           .x = x.data,
                           .y = y.data,
                           .dy = dy.data,
                           .dx = dx.data};
    CHECK(!f->ops->gated_forward(f->q, &a));
    CHECK_NEAR(f, &y, want, 1e-6, relative + 2e-6);
    CHECK(!f->ops->gated_backward(f->q, &a));
    CHECK_NEAR(f, &dx, d_want, 2e-6, relative + 3e-6);
    a.dx = x.data;
    a.y_out = dy.data;
    CHECK(!f->ops->gated_backward(f->q, &a));
    CHECK(tensor_same_bits(&x, &dx) && tensor_same_bits(&dy, &y));
    free(want);
    free(d_want);
    tensor_free(&x);
    tensor_free(&dy);
    tensor_free(&y);
    tensor_free(&dx);
}

static void gated(struct fixture *f)
{
    for (int kind = ZINF_ACTIVATION_GELU_TANH; kind < ZINF_ACTIVATIONS; kind++)
        for (int d = 0; d < 3; d++) {
            gated_case(f, (enum zinf_activation)kind, all_dtypes[d], 7, 37);
            gated_case(f, (enum zinf_activation)kind, all_dtypes[d], 33, 1100);
        }
    struct zinf_gated bad = {.kind = (enum zinf_activation)9, .rows = 1, .cols = 1};
    CHECK(f->ops->gated_forward(f->q, &bad) == -EINVAL);
    bad = (struct zinf_gated){.rows = 1};
    CHECK(f->ops->gated_backward(f->q, &bad) == -EINVAL);
    CHECK(strstr(zinf_error(), "gated_backward") != NULL);
}

static void test_gated_units_and_their_gradients(void)
{
    for_each_device(gated);
}

/* ---- an activation with trained numbers ---- */

static double xielu_value(double x, const double numbers[2])
{
    const double p = log1p(exp(numbers[0])), m = 0.5 + log1p(exp(numbers[1]));
    return x > 0 ? p * x * x + x / 2 : m * (expm1(fmin(x, -1e-3)) - x) + x / 2;
}

/* The slope at x, or, of a number k, the derivative by it. */
static double xielu_slope(double x, const double numbers[2], int k)
{
    const double step = 1e-5;
    double more[2] = {numbers[0], numbers[1]}, less[2] = {numbers[0], numbers[1]};
    if (k < 0)
        return (xielu_value(x + step, numbers) - xielu_value(x - step, numbers)) / (2 * step);
    more[k] += step;
    less[k] -= step;
    return (xielu_value(x, more) - xielu_value(x, less)) / (2 * step);
}

static void xielu_case(struct fixture *f, enum zinf_dtype dtype, int64_t rows, int64_t cols)
{
    const size_t n = (size_t)(rows * cols);
    struct tensor x = tensor_random(dtype, n, 9, 3.0f), dy = tensor_random(dtype, n, 10, 1.0f);
    struct tensor y = tensor_new(dtype, n), dx = tensor_new(dtype, n);
    struct tensor alphas = tensor_random(dtype, 2, 11, 1.0f), constants = tensor_new(dtype, 2);
    struct tensor sums = tensor_new(ZINF_DTYPE_F32, 2 * (size_t)rows);
    double *want = malloc(n * sizeof *want), *d_want = malloc(n * sizeof *d_want);
    double *d_sums = calloc(2 * (size_t)rows, sizeof *d_sums);
    const double numbers[2] = {get(&alphas, 0), get(&alphas, 1)};
    const float given[2] = {0.5f, -1e-3f};
    zinf_convert(constants.data, dtype, given, ZINF_DTYPE_F32, 2);
    for (size_t i = 0; i < n; i++) {
        want[i] = xielu_value(get(&x, i), numbers);
        d_want[i] = get(&dy, i) * xielu_slope(get(&x, i), numbers, -1);
        for (int k = 0; k < 2; k++)
            d_sums[i / (size_t)cols * 2 + (size_t)k] +=
                get(&dy, i) * xielu_slope(get(&x, i), numbers, k);
    }
    struct zinf_xielu a = {.dtype = dtype,
                           .rows = rows,
                           .cols = cols,
                           .alphas = alphas.data,
                           .constants = constants.data,
                           .x = x.data,
                           .y = y.data,
                           .dy = dy.data,
                           .dx = dx.data,
                           .sums = sums.data};
    CHECK(!f->ops->xielu_forward(f->q, &a));
    CHECK_NEAR(f, &y, want, 3e-6, 1.01 * dtype_epsilon(dtype) + 2e-6);
    a.y = NULL;
    CHECK(!f->ops->xielu_backward(f->q, &a));
    CHECK_NEAR(f, &dx, d_want, 1e-4, 1.01 * dtype_epsilon(dtype) + 3e-6);
    CHECK_NEAR(f, &sums, d_sums, 1e-5 * (double)cols, 1e-5);
    struct tensor again = tensor_new(dtype, n), before = tensor_copy(&dx);
    a.y = again.data;
    a.dx = dy.data;
    CHECK(!f->ops->xielu_backward(f->q, &a));
    CHECK(tensor_same_bits(&dy, &before) && tensor_same_bits(&again, &y));
    struct tensor *all[] = {&x, &dy, &y, &dx, &alphas, &constants, &sums, &again, &before};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        tensor_free(all[i]);
    free(want);
    free(d_want);
    free(d_sums);
}

static void xielu(struct fixture *f)
{
    for (int d = 0; d < 3; d++) {
        xielu_case(f, all_dtypes[d], 7, 37);
        xielu_case(f, all_dtypes[d], 33, 1100);
    }
    const struct zinf_xielu bad = {.rows = 1};
    CHECK(f->ops->xielu_forward(f->q, &bad) == -EINVAL);
    CHECK(f->ops->xielu_backward(f->q, &bad) == -EINVAL && strstr(zinf_error(), "backward"));
}

static void test_trained_activation_and_its_gradients(void)
{
    for_each_device(xielu);
}

/* ---- device ---- */

static void test_device_takes_memory_once(void)
{
    struct zinf_device_options options = {.kind = ZINF_DEVICE_HOST, .n_threads = 2};
    struct zinf_device *device;
    CHECK(!zinf_device_create(&device, &options));
    CHECK(device->kind == ZINF_DEVICE_HOST && device->n_threads == 2);
    CHECK(device->host_addressable && !device->needs_pinned && device->free_bytes > 0);
    CHECK(strstr(device->name, "2 threads") && strstr(device->name, zinf_isa_name(zinf_isa())));
    CHECK(!device->memory);
    CHECK(!zinf_device_take_memory(device, 3 << 20));
    CHECK(device->memory && device->memory_bytes == 3 << 20);
    CHECK((uintptr_t)device->memory % (2 << 20) == 0);
    CHECK(zinf_device_take_memory(device, 1 << 20) == -EBUSY);
    zinf_device_destroy(device);
    zinf_device_destroy(NULL);
    options.n_threads = -1;
    CHECK(zinf_device_create(&device, &options) == -EINVAL && !device);
    options = (struct zinf_device_options){.kind = (enum zinf_device_kind)7};
    CHECK(zinf_device_create(&device, &options) == -EINVAL);
}

static void test_queues_and_events_are_in_order_at_once(void)
{
    struct fixture f;
    struct zinf_event *event;
    struct zinf_queue *other;
    fixture_open(&f, zinf_isa(), 1);
    CHECK(!f.ops->queue_create(f.device, ZINF_QUEUE_TO_HOST, &other));
    CHECK(!f.ops->event_create(f.device, &event));
    CHECK(!f.ops->event_record(f.q, event) && !f.ops->queue_wait(other, event));
    CHECK(!f.ops->event_synchronize(event) && !f.ops->queue_synchronize(other));
    f.ops->event_destroy(event);
    f.ops->queue_destroy(other);
    fixture_close(&f);
}

static void test_cuda_without_a_module_says_what_was_looked_for(void)
{
    struct zinf_device_options options = {.kind = ZINF_DEVICE_CUDA};
    struct zinf_device *device;
    setenv("ZINF_CUDA_MODULE", "/nonexistent/zinf-cuda.so", 1);
    const char *why = zinf_device_cuda_why_not();
    CHECK(why && (strstr(why, "/nonexistent/zinf-cuda.so") || strstr(why, "libcuda") ||
                  strstr(why, "NVIDIA driver")));
    CHECK(zinf_device_create(&device, &options) == -ENODEV && !device);
    CHECK(why && strstr(zinf_error(), why));
    options.kind = ZINF_DEVICE_AUTO; /* goes on without */
    CHECK(!zinf_device_create(&device, &options) && device->kind == ZINF_DEVICE_HOST);
    CHECK(device->n_threads == zinf_cpu_count());
    zinf_device_destroy(device);
}

int main(void)
{
    TAP_RUN(test_copies_and_add);
    TAP_RUN(test_conversion_has_the_bits_of_base);
    TAP_RUN(test_column_sum);
    TAP_RUN(test_dropout_follows_the_counter);
    TAP_RUN(test_dropout_off_is_exact_and_bad_rates_are_refused);
    TAP_RUN(test_gelu_golden_values);
    TAP_RUN(test_activations_and_their_gradients);
    TAP_RUN(test_activations_with_sums);
    TAP_RUN(test_activations_far_out_and_nan);
    TAP_RUN(test_gated_units_and_their_gradients);
    TAP_RUN(test_trained_activation_and_its_gradients);
    TAP_RUN(test_device_takes_memory_once);
    TAP_RUN(test_queues_and_events_are_in_order_at_once);
    TAP_RUN(test_cuda_without_a_module_says_what_was_looked_for);
    return tap_done();
}
