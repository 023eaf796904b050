/*
 * optim_check: what kinds there are, and what is refused before anything is changed:
 * hyperparameters out of range, pointers that are missing or overlap, gradients that are not
 * finite.
 */
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

uint64_t zinf_optim_state_bytes(enum zinf_optim_kind kind, enum zinf_optim_moments moments,
                                bool split_master, uint64_t n)
{
    static const uint64_t moment_bytes[] = {4, 2, 1};
    uint64_t scales = moments == ZINF_OPTIM_MOMENTS_8BIT
                          ? (n + ZINF_OPTIM_8BIT_BLOCK - 1) / ZINF_OPTIM_8BIT_BLOCK * sizeof(float)
                          : 0;
    uint64_t of_moment = (unsigned)moments < sizeof moment_bytes / sizeof *moment_bytes
                             ? n * moment_bytes[moments] + scales
                             : 0;
    return n * (split_master ? 2 : 4) + (uint64_t)zinf_optim_n_moments(kind) * of_moment;
}

/* ---- checks ---- */

int optim_check_number(const char *name, float value, float below)
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
    int rc = optim_check_number("lr", h->lr, INFINITY);
    if (!rc)
        rc = optim_check_number("weight_decay", h->weight_decay, INFINITY);
    if (!rc && h->kind != ZINF_OPTIM_LION && h->kind != ZINF_OPTIM_SGD)
        rc = optim_check_number("eps", h->eps, INFINITY);
    if (!rc && has_beta1)
        rc = optim_check_number(has_beta2 ? "beta1" : "momentum", h->beta1, 1);
    if (!rc && has_beta2)
        rc = optim_check_number("beta2", h->beta2, 1);
    return rc;
}

int optim_check_apart(const struct optim_range *ranges, size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (size_t j = i + 1; j < count; j++) {
            uintptr_t left = (uintptr_t)ranges[i].start, right = (uintptr_t)ranges[j].start;
            if (left && right && left < right + ranges[j].bytes && right < left + ranges[i].bytes)
                return zinf_fail(-EINVAL, "optimizer: %s and %s overlap: give each its own memory",
                                 ranges[i].name, ranges[j].name);
        }
    return 0;
}

static int check_apart(const struct zinf_optim_array *a, int n_moments)
{
    const uint64_t n = a->n, scales = 4 * ((n - 1) / ZINF_OPTIM_8BIT_BLOCK + 1);
    const struct optim_range ranges[] = {
        {"master", a->master, 4 * n},
        {"moment1", a->moment1, 4 * n},
        {"moment2", n_moments > 1 ? a->moment2 : NULL, 4 * n},
        {"grad", a->grad, n * zinf_dtype_bytes(a->grad_dtype)},
        {"param", a->param, n * zinf_dtype_bytes(a->param_dtype)},
        {"remainder", a->remainder, 2 * n},
        {"half_moment1", a->half_moment1, 2 * n},
        {"half_moment2", n_moments > 1 ? a->half_moment2 : NULL, 2 * n},
        {"byte_moment1", a->byte_moment1, n},
        {"byte_moment2", a->byte_moment2, n},
        {"scale1", a->scale1, scales},
        {"scale2", a->scale2, scales},
    };
    return optim_check_apart(ranges, sizeof ranges / sizeof *ranges);
}

/* The first pointer that the form of the moments needs and that is not there. */
static const char *missing_moment(const struct zinf_optim_array *a, int n_moments)
{
    if (a->byte_moment1)
        return !a->byte_moment2 ? "byte_moment2"
               : !a->scale1     ? "scale1"
               : !a->scale2     ? "scale2"
                                : NULL;
    if (a->half_moment1)
        return n_moments > 1 && !a->half_moment2 ? "half_moment2" : NULL;
    if (!a->moment1)
        return "moment1";
    return n_moments > 1 && !a->moment2 ? "moment2" : NULL;
}

static int check_moments(const struct zinf_optim_hyper *h, const struct zinf_optim_array *a)
{
    bool wide = a->moment1 || a->moment2, half = a->half_moment1, byte = a->byte_moment1;
    if (wide + half + byte > 1)
        return zinf_fail(-EINVAL, "optimizer: moments are given in several forms: set one of "
                                  "moment1, half_moment1 and byte_moment1");
    if (byte && h->kind != ZINF_OPTIM_ADAMW)
        return zinf_fail(-EINVAL, "optimizer: %s has no 8-bit moments: AdamW has",
                         zinf_optim_name(h->kind));
    const char *missing = missing_moment(a, zinf_optim_n_moments(h->kind));
    return missing ? zinf_fail(-EINVAL, "optimizer: %s is NULL", missing) : 0;
}

int optim_check_tensors(const struct optim_tensors *t)
{
    if ((unsigned)t->grad_dtype >= ZINF_DTYPE_COUNT ||
        (t->param && (unsigned)t->param_dtype >= ZINF_DTYPE_COUNT))
        return zinf_fail(-EINVAL, "optimizer: grad_dtype or param_dtype is unknown");
    if (t->remainder && (t->master || !t->param || t->param_dtype != ZINF_DTYPE_BF16))
        return zinf_fail(-EINVAL, "optimizer: a split master is a remainder and a bf16 param: set "
                                  "master to NULL, param_dtype to bf16");
    if (!isfinite(t->grad_scale))
        return zinf_fail(-EINVAL, "optimizer: grad_scale is %g: give a finite value",
                         (double)t->grad_scale);
    if (t->n > (uint64_t)1 << 60)
        return zinf_fail(-EINVAL, "optimizer: %llu elements are more than memory can hold",
                         (unsigned long long)t->n);
    if (t->n && !t->master && !t->remainder)
        return zinf_fail(-EINVAL, "optimizer: master is NULL");
    if (t->n && !t->grad)
        return zinf_fail(-EINVAL, "optimizer: grad is NULL");
    return 0;
}

int optim_check(const struct zinf_optim_hyper *hyper, const struct zinf_optim_array *a)
{
    const struct optim_tensors tensors = {a->n,     a->master,     a->remainder,   a->grad,
                                          a->param, a->grad_dtype, a->param_dtype, a->grad_scale};
    int rc = check_hyper(hyper);
    if (!rc)
        rc = optim_check_tensors(&tensors);
    if (!rc && a->n)
        rc = check_moments(hyper, a);
    if (!rc && a->n)
        rc = check_apart(a, zinf_optim_n_moments(hyper->kind));
    return rc;
}

int optim_check_finite(const struct optim_ops *ops, const void *grad, enum zinf_dtype dtype,
                       uint64_t n, uint64_t *nonfinite, int n_threads)
{
    *nonfinite = optim_find_with(ops, grad, dtype, n, n_threads);
    if (*nonfinite == UINT64_MAX)
        return 0;
    return zinf_fail(-ERANGE,
                     "optimizer: gradient %llu is not finite: nothing was changed; lower "
                     "the loss scale or leave out this step",
                     (unsigned long long)*nonfinite);
}
