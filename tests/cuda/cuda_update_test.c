/* cuda_update: the optimizer on the GPU against the CPU's, bit for bit: every form of state, both
 * ways of decay, odd sizes and addresses; and the squares of a gradient's norm. */
#include "cuda_twin.h"

static const size_t sizes[] = {1, 9, 2048, 4097, 10007};

static enum zinf_dtype dtype_of(enum update_form form)
{
    return form == UPDATE_SPLIT  ? ZINF_DTYPE_BF16
           : form == UPDATE_BARE ? ZINF_DTYPE_F32
                                 : ZINF_DTYPE_F16;
}

static void updates(struct twin *t)
{
    for (int form = 0; form < UPDATE_FORMS; form++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            case_adam(t, (enum update_form)form, i % 2 == 0, dtype_of((enum update_form)form),
                      sizes[i], i == 4);
}

static void not_finite(struct twin *t)
{
    case_adam_not_finite(t, ZINF_DTYPE_BF16);
    case_adam_not_finite(t, ZINF_DTYPE_F16);
}

static void squares(struct twin *t)
{
    static const size_t lengths[] = {1, 15, 4095, 4096, 4097, 4096 * 17 + 33};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        case_sum_squares(t, lengths[i], i % 2);
}

static void test_updates(void)
{
    for_each_cuda(updates);
}

static void test_not_finite(void)
{
    for_each_cuda(not_finite);
}

static void test_squares(void)
{
    for_each_cuda(squares);
}

int main(void)
{
    TAP_RUN(test_updates);
    TAP_RUN(test_not_finite);
    TAP_RUN(test_squares);
    return tap_done();
}
