/* cuda_quantized: quantised weights on the CUDA device against the host's, bit for bit: every form
 * and number type, whole words and odd ends, aligned and not, rows in runs. */
#include "cuda_twin.h"

struct shape {
    uint64_t rows, cols;
};

static void numbers(struct twin *t)
{
    static const struct shape shapes[] = {{1, 1}, {3, 64}, {5, 200}, {7, 67}, {64, 40}, {33, 1024}};
    static const enum zinf_form forms[] = {ZINF_FORM_NF4, ZINF_FORM_NF4_DOUBLE, ZINF_FORM_INT8};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int f = 0; f < 3; f++)
            for (int d = 0; d < 3; d++)
                for (int variant = 0; variant < 4; variant++)
                    case_dequantize(t, shapes[i].rows, shapes[i].cols, forms[f], all_dtypes[d],
                                    variant & 1, variant & 2 ? 1 : 0);
    for (int d = 0; d < 3; d++)
        for (int variant = 0; variant < 4; variant++) {
            case_dequantize(t, 37, 96, ZINF_FORM_MXFP4, all_dtypes[d], variant & 1,
                            variant & 2 ? 1 : 0);
            case_dequantize(t, 133, 264, ZINF_FORM_FP8, all_dtypes[d], variant & 1,
                            variant & 2 ? 1 : 0);
            case_dequantize(t, 131, 133, ZINF_FORM_FP8, all_dtypes[d], variant & 1,
                            variant & 2 ? 1 : 0);
        }
}

static void refusals(struct twin *t)
{
    struct zinf_dequantize a = {
        .quantized = zinf_quantized_of(ZINF_FORM_NF4, 4, 64), .rows = 5, .count = 1};
    CHECK(t->cuda->ops->dequantize(t->q, &a) == -EINVAL && strstr(zinf_error(), "dequantize"));
    a.rows = 0;
    CHECK(!t->cuda->ops->dequantize(t->q, &a));
}

#define CASE(name)                                                                                 \
    static void test_##name(void)                                                                  \
    {                                                                                              \
        for_each_cuda(name);                                                                       \
    }
CASE(numbers)
CASE(refusals)

int main(void)
{
    TAP_RUN(test_numbers);
    TAP_RUN(test_refusals);
    return tap_done();
}
