/* cuda_quantized: quantised weights on the CUDA device against the host's, bit for bit: every form
 * and number type, whole words and odd ends, aligned and not, rows in runs. */
#include "cuda_twin.h"

struct shape {
    uint64_t rows, cols;
};

static void dequantize_case(struct twin *t, struct shape s, enum zinf_form form,
                            enum zinf_dtype dtype, bool by_runs, size_t shift)
{
    struct zinf_quantized p = zinf_quantized_of(form, s.rows, s.cols);
    struct tensor values = tensor_random(ZINF_DTYPE_F32, p.n_elems, 3, 0.7f);
    struct tensor bytes = tensor_new(ZINF_DTYPE_F32, p.bytes / sizeof(float));
    float *scales = malloc(p.n_blocks * sizeof *scales);
    if (form == ZINF_FORM_MXFP4 ||
        form == ZINF_FORM_FP8) { /* bytes of fp32 numbers, which are of all kinds */
        zinf_quantize_take(&p, values.data, values.data, bytes.data);
    } else {
        zinf_quantize(&p, values.data, 0, p.n_elems, bytes.data, scales);
        zinf_quantize_finish(&p, bytes.data, scales);
    }
    struct pair image = pair_of(t, bytes);
    struct pair w = pair_shifted(t, tensor_new(dtype, p.n_elems), shift);
    struct zinf_dequantize a = {
        .quantized = p, .rows = (int64_t)s.rows, .count = 1, .dtype = dtype};
    if (by_runs) {
        a.rows = 1;
        a.count = (int64_t)(s.rows + 1) / 2;
        a.from_stride = 2;
        a.to_first = (int64_t)s.rows - a.count;
        a.to_stride = 1;
    }
    ON_BOTH(t, (a.image = at(&image, side), a.w = at(&w, side), ops->dequantize(q, &a)));
    PAIR_CHECK(t, &w, 0, 0);
    tensor_free(&values);
    free(scales);
    pair_free(&image);
    pair_free(&w);
    twin_reset(t);
}

static void numbers(struct twin *t)
{
    static const struct shape shapes[] = {{1, 1}, {3, 64}, {5, 200}, {7, 67}, {64, 40}, {33, 1024}};
    static const enum zinf_form forms[] = {ZINF_FORM_NF4, ZINF_FORM_NF4_DOUBLE, ZINF_FORM_INT8};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int f = 0; f < 3; f++)
            for (int d = 0; d < 3; d++)
                for (int variant = 0; variant < 4; variant++)
                    dequantize_case(t, shapes[i], forms[f], all_dtypes[d], variant & 1,
                                    variant & 2 ? 1 : 0);
    for (int d = 0; d < 3; d++)
        for (int variant = 0; variant < 4; variant++) {
            dequantize_case(t, (struct shape){37, 96}, ZINF_FORM_MXFP4, all_dtypes[d], variant & 1,
                            variant & 2 ? 1 : 0);
            dequantize_case(t, (struct shape){133, 264}, ZINF_FORM_FP8, all_dtypes[d], variant & 1,
                            variant & 2 ? 1 : 0);
            dequantize_case(t, (struct shape){131, 133}, ZINF_FORM_FP8, all_dtypes[d], variant & 1,
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
