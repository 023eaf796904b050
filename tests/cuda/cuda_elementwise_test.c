/* cuda_elementwise: flat operations of the CUDA device against the host's, at sizes around the
 * vector width and the block, aligned and not. */
#include "cuda_twin.h"

static const size_t sizes[] = {1, 7, 8, 9, 2047, 2048, 2049, 10007};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

static void conversions(struct twin *t)
{
    for (int i = 0; i < N_SIZES * 9; i++)
        case_convert(t, all_dtypes[i / 3 % 3], all_dtypes[i % 3], sizes[i / 9], i % 4 == 3);
}

static void special_values(struct twin *t)
{
    static const float values[] = {0.0f,  -0.0f,     INFINITY, -INFINITY, NAN,         65504.0f,
                                   1e6f,  -1e6f,     6e-8f,    1e-10f,    1.00390625f, 1.01171875f,
                                   3e38f, 65519.99f, 65520.0f, 5.9e-8f};
    const size_t n = sizeof values / sizeof *values;
    for (int d = 0; d < 3; d++) {
        twin_case(t, "convert", "special values to %s", zinf_dtype_name(all_dtypes[d]));
        struct pair src = pair_new(t, ZINF_DTYPE_F32, n, 0);
        memcpy(src.host.data, values, sizeof values);
        pair_upload(t, &src);
        struct pair dst = pair_new(t, all_dtypes[d], n, 0);
        struct pair back = pair_new(t, ZINF_DTYPE_F32, n, 0);
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
    }
}

static void additions(struct twin *t)
{
    for (size_t i = 0; i < N_SIZES; i++)
        case_add(t, sizes[i], i % 2);
}

static void residuals(struct twin *t)
{
    for (size_t i = 0; i < N_SIZES; i++)
        for (int d = 0; d < 3; d++)
            case_residual(t, all_dtypes[d], sizes[i], i % 3 ? 0.3f : 0.0f, i % 2);
}

static void sums(struct twin *t)
{
    static const enum zinf_activation kinds[] = {ZINF_ACTIVATION_GELU_TANH,
                                                 ZINF_ACTIVATION_GELU_ERF, ZINF_ACTIVATION_RELU,
                                                 ZINF_ACTIVATION_SILU};
    for (int i = 0; i < 4; i++)
        for (int d = 0; d < 3; d++) {
            case_activation_sums(t, kinds[i], all_dtypes[d], 70, 264);
            case_activation_sums(t, kinds[i], all_dtypes[d], i + 3, 37);
        }
}

static void activations(struct twin *t)
{
    for (int kind = ZINF_ACTIVATION_GELU_TANH; kind < ZINF_ACTIVATIONS; kind++)
        for (int d = 0; d < 3; d++)
            for (size_t i = 2; i < N_SIZES; i += 2)
                case_activation(t, (enum zinf_activation)kind, all_dtypes[d], sizes[i], i % 4 == 2);
}

static void gated(struct twin *t)
{
    static const int64_t shapes[][2] = {{1, 1}, {3, 8}, {5, 37}, {4, 2048}, {3, 2056}, {2, 4100}};
    for (int kind = ZINF_ACTIVATION_GELU_TANH; kind < ZINF_ACTIVATIONS; kind++)
        for (size_t i = 0; i < 3 * sizeof shapes / sizeof *shapes; i++)
            case_gated(t,
                       (struct zinf_gated){.kind = (enum zinf_activation)kind,
                                           .dtype = all_dtypes[i % 3],
                                           .rows = shapes[i / 3][0],
                                           .cols = shapes[i / 3][1]},
                       (size_t)kind % 2);
}

static void xielu(struct twin *t)
{
    static const int64_t shapes[][2] = {{1, 1}, {3, 8}, {5, 37}, {2, 2056}, {2, 4100}};
    for (size_t i = 0; i < 3 * sizeof shapes / sizeof *shapes; i++)
        case_xielu(t, all_dtypes[i % 3], shapes[i / 3][0], shapes[i / 3][1], i % 2);
}

static void column_sums(struct twin *t)
{
    static const int64_t shapes[][2] = {{1, 1}, {3, 8}, {64, 256}, {65, 257}, {700, 100}, {0, 16}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int d = 0; d < 3; d++)
            case_column_sum(t, all_dtypes[d], shapes[i][0], shapes[i][1], d == 1);
}

static void noises(struct twin *t)
{
    for (int d = 0; d < 3; d++)
        for (size_t n = 3; n < 5000; n = n * 9 + 4)
            for (size_t shift = 0; shift < 2; shift++)
                case_noise(t, all_dtypes[d], n, shift);
}

static void preferences(struct twin *t)
{
    case_preference(t, ZINF_PREFERENCE_REWARD, 1, 1);
    case_preference(t, ZINF_PREFERENCE_REWARD, 37, 1);
    case_preference(t, ZINF_PREFERENCE_KTO, 1, 3);
    case_preference(t, ZINF_PREFERENCE_KTO, 7, 300);
    for (int kind = 0; kind < ZINF_PREFERENCE_REWARD; kind++) {
        case_preference(t, (enum zinf_preference_kind)kind, 1, 3);
        case_preference(t, (enum zinf_preference_kind)kind, 5, 40);
        case_preference(t, (enum zinf_preference_kind)kind, 3, 700);
    }
    CHECK(t->cuda->ops->preference(t->q, &(struct zinf_preference){.pairs = 1}) == -EINVAL);
}

static void copies(struct twin *t)
{
    twin_case(t, "copy", "%d numbers", 1000);
    struct pair a = pair_of(t, tensor_random(ZINF_DTYPE_F32, 1000, 1, 1.0f));
    struct pair b = pair_of(t, tensor_random(ZINF_DTYPE_F32, 1000, 2, 1.0f));
    ON_BOTH(t, ops->copy(q, at(&b, side), at(&a, side), 3000) ||
                   ops->fill_zero(q, (char *)at(&b, side) + 1000, 500));
    PAIR_CHECK(t, &b, 0.0, 0.0);
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
