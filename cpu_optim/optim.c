/*
 * optim: the door. Checks the arguments, computes the scalars of a step, cuts the array into one
 * slice a thread and hands the slices to the instruction set at hand. No arithmetic on elements
 * here: it is in optim_kernels.h.
 */
#include "build-config.h"
#include "cpu_optim/optim_internal.h"

#include <math.h>

static const struct {
    const char *name;
    int n_moments;
} kinds[ZINF_OPTIM_KINDS] = {
    [ZINF_OPTIM_ADAMW] = {"AdamW", 2}, [ZINF_OPTIM_ADAM] = {"Adam", 2},
    [ZINF_OPTIM_LION] = {"Lion", 1},   [ZINF_OPTIM_ADAGRAD] = {"Adagrad", 1},
    [ZINF_OPTIM_SGD] = {"SGD", 1},
};

const char *zinf_optim_name(enum zinf_optim_kind kind)
{
    return (unsigned)kind < ZINF_OPTIM_KINDS ? kinds[kind].name : "unknown";
}

int zinf_optim_n_moments(enum zinf_optim_kind kind)
{
    return (unsigned)kind < ZINF_OPTIM_KINDS ? kinds[kind].n_moments : 0;
}

const struct optim_ops *optim_ops_of(enum zinf_isa isa)
{
#ifdef ZINF_HAVE_AVX512
    if (isa == ZINF_ISA_AVX512)
        return &optim_ops_avx512;
#endif
#ifdef ZINF_HAVE_AVX2
    if (isa == ZINF_ISA_AVX2)
        return &optim_ops_avx2;
#endif
    return isa == ZINF_ISA_SCALAR ? &optim_ops_scalar : NULL;
}

/* ---- checks ---- */

static int check_number(const char *name, float value, float below)
{
    if (value >= 0 && value < below)
        return 0;
    if (below < INFINITY)
        return zinf_fail(-EINVAL, "optimizer: %s is %g: give a value in [0, %g)", name,
                         (double)value, (double)below);
    return zinf_fail(-EINVAL, "optimizer: %s is %g: give a finite value of 0 or more", name,
                     (double)value);
}

static int check_hyper(const struct zinf_optim_hyper *h)
{
    if ((unsigned)h->kind >= ZINF_OPTIM_KINDS)
        return zinf_fail(-EINVAL, "optimizer: kind %d is unknown", (int)h->kind);
    if (!h->step)
        return zinf_fail(-EINVAL, "optimizer: step is 0: the first update is step 1");
    bool has_beta1 = h->kind != ZINF_OPTIM_ADAGRAD;
    bool has_beta2 = has_beta1 && h->kind != ZINF_OPTIM_SGD;
    int rc = check_number("lr", h->lr, INFINITY);
    if (!rc)
        rc = check_number("weight_decay", h->weight_decay, INFINITY);
    if (!rc && h->kind != ZINF_OPTIM_LION && h->kind != ZINF_OPTIM_SGD)
        rc = check_number("eps", h->eps, INFINITY);
    if (!rc && has_beta1)
        rc = check_number(has_beta2 ? "beta1" : "momentum", h->beta1, 1);
    if (!rc && has_beta2)
        rc = check_number("beta2", h->beta2, 1);
    return rc;
}

/* Every pair of the array's ranges must be apart: the loops read and write them vector by vector.
 */
static int check_overlap(const struct zinf_optim_array *a, int n_moments)
{
    const struct {
        const char *name;
        const void *start;
        uint64_t element_bytes;
    } ranges[] = {
        {"master", a->master, 4},
        {"moment1", a->moment1, 4},
        {"moment2", n_moments > 1 ? a->moment2 : NULL, 4},
        {"grad", a->grad, zinf_dtype_bytes(a->grad_dtype)},
        {"param", a->param, zinf_dtype_bytes(a->param_dtype)},
        {"remainder", a->remainder, 2},
        {"half_moment1", a->half_moment1, 2},
        {"half_moment2", n_moments > 1 ? a->half_moment2 : NULL, 2},
    };
    const size_t count = sizeof ranges / sizeof *ranges;
    for (size_t i = 0; i < count; i++)
        for (size_t j = i + 1; j < count; j++) {
            uintptr_t left = (uintptr_t)ranges[i].start, right = (uintptr_t)ranges[j].start;
            if (left && right && left < right + a->n * ranges[j].element_bytes &&
                right < left + a->n * ranges[i].element_bytes)
                return zinf_fail(-EINVAL, "optimizer: %s and %s overlap: give each its own memory",
                                 ranges[i].name, ranges[j].name);
        }
    return 0;
}

static int check_array(const struct zinf_optim_array *a, int n_moments)
{
    if ((unsigned)a->grad_dtype >= ZINF_DTYPE_COUNT ||
        (a->param && (unsigned)a->param_dtype >= ZINF_DTYPE_COUNT))
        return zinf_fail(-EINVAL, "optimizer: grad_dtype or param_dtype is unknown");
    if (a->remainder && (a->master || !a->param || a->param_dtype != ZINF_DTYPE_BF16))
        return zinf_fail(-EINVAL, "optimizer: a split master is a remainder and a bf16 param: set "
                                  "master to NULL, param_dtype to bf16");
    if (!isfinite(a->grad_scale))
        return zinf_fail(-EINVAL, "optimizer: grad_scale is %g: give a finite value",
                         (double)a->grad_scale);
    if (!a->n)
        return 0;
    if (a->n > (uint64_t)1 << 60)
        return zinf_fail(-EINVAL, "optimizer: %llu elements are more than memory can hold",
                         (unsigned long long)a->n);
    bool half = a->half_moment1;
    if (half && (a->moment1 || a->moment2))
        return zinf_fail(-EINVAL, "optimizer: moments are given in fp32 and in bf16: set one form");
    const char *missing = NULL;
    if (!a->master && !a->remainder)
        missing = "master";
    else if (!a->moment1 && !half)
        missing = "moment1";
    else if (n_moments > 1 && !(half ? (void *)a->half_moment2 : (void *)a->moment2))
        missing = half ? "half_moment2" : "moment2";
    else if (!a->grad)
        missing = "grad";
    if (missing)
        return zinf_fail(-EINVAL, "optimizer: %s is NULL", missing);
    return check_overlap(a, n_moments);
}

int optim_check(const struct zinf_optim_hyper *hyper, const struct zinf_optim_array *array)
{
    int rc = check_hyper(hyper);
    return rc ? rc : check_array(array, kinds[hyper->kind].n_moments);
}

/* ---- one step ---- */

/* base^exponent by squaring: the C library's pow may differ in the last bit between CPUs. */
static double power(double base, uint64_t exponent)
{
    double result = 1;
    for (; exponent; exponent >>= 1) {
        if (exponent & 1)
            result *= base;
        base *= base;
    }
    return result;
}

void optim_scalars_init(struct optim_scalars *s, const struct zinf_optim_hyper *h, float grad_scale)
{
    double lr = h->lr, beta1 = h->beta1, beta2 = h->beta2;
    double correction1 = h->bias_correction ? 1 - power(beta1, h->step) : 1;
    double correction2 = h->bias_correction ? 1 - power(beta2, h->step) : 1;
    *s = (struct optim_scalars){
        .kind = h->kind,
        .step = h->step,
        .decay = h->weight_decay > 0,
        .grad_scale = grad_scale,
        .beta1 = h->beta1,
        .one_minus_beta1 = (float)(1 - beta1),
        .beta2 = h->beta2,
        .one_minus_beta2 = (float)(1 - beta2),
        .root_correction = (float)sqrt(correction2),
        .eps = h->eps,
        .weight_decay = h->weight_decay,
        .lr = h->lr,
        .lr_decay = (float)(lr * (double)h->weight_decay),
        .step_size = (float)(lr / correction1),
    };
}

struct step_job {
    const struct optim_ops *ops;
    const struct optim_scalars *scalars;
    const struct zinf_optim_array *array;
};

static void step_slice(void *arg, uint64_t begin, uint64_t end)
{
    const struct step_job *job = arg;
    job->ops->step(job->scalars, job->array, begin, end);
}

void optim_step_with(const struct optim_ops *ops, const struct optim_scalars *scalars,
                     const struct zinf_optim_array *array, int n_threads)
{
    struct step_job job = {ops, scalars, array};
    optim_parallel(array->n, n_threads, step_slice, &job);
}

int zinf_optim_step(const struct zinf_optim_hyper *hyper, const struct zinf_optim_array *array,
                    int n_threads)
{
    struct optim_scalars scalars;
    int rc = optim_check(hyper, array);
    if (rc || !array->n)
        return rc;
    struct zinf_optim_array given = *array;
    if (kinds[hyper->kind].n_moments < 2) {
        given.moment2 = NULL;
        given.half_moment2 = NULL;
    }
    optim_scalars_init(&scalars, hyper, array->grad_scale);
    optim_step_with(optim_ops_of(zinf_isa()), &scalars, &given, n_threads);
    return 0;
}
