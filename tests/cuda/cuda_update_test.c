/* cuda_update: the optimizer on the GPU against the CPU's, bit for bit: every form of state, both
 * ways of decay, odd sizes and addresses; and the squares of a gradient's norm. */
#include "cuda_twin.h"

#include "cpu_optim/optim.h"

enum { N_STEPS = 3 };
static const size_t sizes[] = {1, 9, 2048, 4097, 10007};

enum form { FORM_BARE, FORM_SPLIT, FORM_WHOLE, FORMS };

struct arrays {
    struct pair master, remainder, param, moment1, moment2, grad;
};

static struct zinf_optim_hyper hyper_of(enum zinf_optim_kind kind, uint64_t step, float decay)
{
    return (struct zinf_optim_hyper){.kind = kind,
                                     .lr = 1e-2f,
                                     .beta1 = 0.9f,
                                     .beta2 = 0.999f,
                                     .eps = 1e-8f,
                                     .weight_decay = decay,
                                     .bias_correction = true,
                                     .step = step};
}

/* Masters, and where they are split both halves of them, on both sides. */
static void open_arrays(struct twin *t, struct arrays *a, enum form form, enum zinf_dtype dtype,
                        size_t n, size_t shift)
{
    struct tensor master = tensor_random(ZINF_DTYPE_F32, n, 1, 1.0f);
    struct tensor param = tensor_new(dtype, n), remainder = tensor_new(ZINF_DTYPE_BF16, n);
    if (form == FORM_SPLIT)
        zinf_optim_split(param.data, remainder.data, master.data, n, 1);
    else
        zinf_convert(param.data, dtype, master.data, ZINF_DTYPE_F32, n);
    a->master = pair_shifted(t, master, shift);
    a->param = pair_shifted(t, param, shift);
    a->remainder = pair_shifted(t, remainder, shift);
    a->grad = pair_shifted(t, tensor_random(ZINF_DTYPE_F32, n, 2, 1.0f), shift);
    a->moment1 = pair_shifted(t, tensor_random(ZINF_DTYPE_F32, n, 3, 0.1f), shift);
    struct tensor squares = tensor_random(ZINF_DTYPE_F32, n, 4, 0.1f);
    for (size_t i = 0; i < n; i++)
        ((float *)squares.data)[i] *= ((float *)squares.data)[i];
    a->moment2 = pair_shifted(t, squares, shift);
}

static void step_on_host(const struct arrays *a, enum form form,
                         const struct zinf_optim_hyper *hyper, float scale)
{
    struct zinf_optim_array array = {.n = a->grad.host.n,
                                     .moment1 = a->moment1.host.data,
                                     .moment2 = a->moment2.host.data,
                                     .grad = a->grad.host.data,
                                     .grad_dtype = ZINF_DTYPE_F32,
                                     .grad_scale = scale,
                                     .param_dtype = a->param.host.dtype};
    array.master = form == FORM_SPLIT ? NULL : a->master.host.data;
    array.remainder = form == FORM_SPLIT ? a->remainder.host.data : NULL;
    array.param = form == FORM_BARE ? NULL : a->param.host.data;
    CHECKF(!zinf_optim_step(hyper, &array, 1), "%s", zinf_error());
}

static void step_on_gpu(struct twin *t, const struct arrays *a, enum form form,
                        const struct zinf_optim_hyper *hyper, float scale)
{
    struct zinf_optim_factors f;
    zinf_optim_factors(&f, hyper);
    struct zinf_adam adam = {.n = a->grad.host.n,
                             .master = form == FORM_SPLIT ? NULL : a->master.device,
                             .remainder = form == FORM_SPLIT ? a->remainder.device : NULL,
                             .param = form == FORM_BARE ? NULL : a->param.device,
                             .dtype = a->param.host.dtype,
                             .moment1 = a->moment1.device,
                             .moment2 = a->moment2.device,
                             .grad = a->grad.device,
                             .grad_scale = scale,
                             .beta1 = f.beta1,
                             .one_minus_beta1 = f.one_minus_beta1,
                             .beta2 = f.beta2,
                             .one_minus_beta2 = f.one_minus_beta2,
                             .root_correction = f.root_correction,
                             .eps = f.eps,
                             .decay = f.decay,
                             .decoupled = hyper->kind == ZINF_OPTIM_ADAMW,
                             .weight_decay = f.weight_decay,
                             .lr_decay = f.lr_decay,
                             .step_size = f.step_size};
    CHECKF(!t->cuda->ops->adam(t->q, &adam), "%s", zinf_error());
}

static void check_form(struct twin *t, enum form form, enum zinf_optim_kind kind, size_t n,
                       size_t shift)
{
    enum zinf_dtype dtype = form == FORM_SPLIT  ? ZINF_DTYPE_BF16
                            : form == FORM_BARE ? ZINF_DTYPE_F32
                                                : ZINF_DTYPE_F16;
    struct arrays a;
    open_arrays(t, &a, form, dtype, n, shift);
    for (uint64_t step = 1; step <= N_STEPS; step++) {
        struct zinf_optim_hyper hyper = hyper_of(kind, step, step == 2 ? 0.0f : 0.1f);
        step_on_host(&a, form, &hyper, 0.3f);
        step_on_gpu(t, &a, form, &hyper, 0.3f);
    }
    PAIR_CHECK(t, &a.moment1, 0.0, 0.0);
    PAIR_CHECK(t, &a.moment2, 0.0, 0.0);
    PAIR_CHECK(t, &a.master, 0.0, 0.0);
    PAIR_CHECK(t, &a.param, 0.0, 0.0);
    PAIR_CHECK(t, &a.remainder, 0.0, 0.0);
    struct pair *all[] = {&a.master, &a.remainder, &a.param, &a.moment1, &a.moment2, &a.grad};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        pair_free(all[i]);
    twin_reset(t);
}

static void updates(struct twin *t)
{
    for (int form = 0; form < FORMS; form++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            check_form(t, (enum form)form, i % 2 ? ZINF_OPTIM_ADAM : ZINF_OPTIM_ADAMW, sizes[i],
                       i == 4);
}

/* A diverged gradient's NaN is the CPU's too, in the master and in the 16-bit parameter. */
static void not_finite_as(struct twin *t, enum zinf_dtype dtype)
{
    const size_t n = 20;
    struct arrays a;
    struct zinf_optim_hyper hyper = hyper_of(ZINF_OPTIM_ADAMW, 1, 0.1f);
    open_arrays(t, &a, FORM_WHOLE, dtype, n, 0);
    float *grad = a.grad.host.data;
    grad[3] = NAN;
    grad[11] = INFINITY;
    twin_transfer(t, a.grad.device, grad, n * sizeof *grad, true);
    step_on_host(&a, FORM_WHOLE, &hyper, 1.0f);
    step_on_gpu(t, &a, FORM_WHOLE, &hyper, 1.0f);
    struct tensor master = pair_download(t, &a.master), param = pair_download(t, &a.param);
    CHECK(!memcmp(master.data, a.master.host.data, n * sizeof(float)));
    CHECK(!memcmp(param.data, a.param.host.data, n * zinf_dtype_bytes(dtype)));
    tensor_free(&master);
    tensor_free(&param);
    struct pair *all[] = {&a.master, &a.remainder, &a.param, &a.moment1, &a.moment2, &a.grad};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        pair_free(all[i]);
    twin_reset(t);
}

static void not_finite(struct twin *t)
{
    not_finite_as(t, ZINF_DTYPE_BF16);
    not_finite_as(t, ZINF_DTYPE_F16);
}

static void squares(struct twin *t)
{
    static const size_t lengths[] = {1, 15, 4095, 4096, 4097, 4096 * 17 + 33};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        size_t n = lengths[i], parts = (n + ZINF_SUM_BLOCK - 1) / ZINF_SUM_BLOCK;
        struct pair x = pair_shifted(t, tensor_random(ZINF_DTYPE_F32, n, 5, 3.0f), i % 2);
        struct pair sums = pair_of(t, tensor_new(ZINF_DTYPE_F32, 2 * parts));
        double total = 0, want = zinf_optim_sum_squares(x.host.data, ZINF_DTYPE_F32, n, 1);
        CHECKF(!t->cuda->ops->sum_squares(t->q, sums.device, x.device, n), "%s", zinf_error());
        struct tensor got = pair_download(t, &sums);
        for (size_t b = 0; b < parts; b++)
            total += ((double *)got.data)[b];
        CHECKF(total == want, "%zu elements: %.17g, not %.17g", n, total, want);
        tensor_free(&got);
        pair_free(&x);
        pair_free(&sums);
        twin_reset(t);
    }
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
