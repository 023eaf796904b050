/*
 * optim: the door. Computes the scalars of a step, cuts the array into one slice a thread and hands
 * the slices to the instruction set at hand. No arithmetic on elements here: it is in
 * optim_kernels.h.
 */
#include "build-config.h"
#include "cpu_optim/optim_internal.h"

#include <math.h>
#include <stdatomic.h>

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
        .root_correction = (float)(1 / sqrt(correction2)),
        .eps = h->eps,
        .weight_decay = h->weight_decay,
        .lr = h->lr,
        .lr_decay = (float)(lr * (double)h->weight_decay),
        .step_size = (float)(lr / correction1),
    };
}

void zinf_optim_factors(struct zinf_optim_factors *out, const struct zinf_optim_hyper *hyper)
{
    struct optim_scalars s;
    optim_scalars_init(&s, hyper, 1);
    *out = (struct zinf_optim_factors){
        .beta1 = s.beta1,
        .one_minus_beta1 = s.one_minus_beta1,
        .beta2 = s.beta2,
        .one_minus_beta2 = s.one_minus_beta2,
        .root_correction = s.root_correction,
        .eps = s.eps,
        .weight_decay = s.weight_decay,
        .lr_decay = s.lr_decay,
        .step_size = s.step_size,
        .decay = s.decay,
    };
}

struct step_job {
    const struct optim_ops *ops;
    const struct optim_scalars *scalars;
    const struct zinf_optim_array *array;
    uint64_t first;     /* element that the slices count from */
    double *block_sums; /* of the blocks from first on, or NULL */
};

static void step_slice(void *arg, uint64_t begin, uint64_t end)
{
    const struct step_job *job = arg;
    double *sums = job->block_sums ? job->block_sums + begin / OPTIM_BLOCK_ELEMS : NULL;
    job->ops->step(job->scalars, job->array, job->first + begin, job->first + end, sums);
}

void optim_step_with(const struct optim_ops *ops, const struct optim_scalars *scalars,
                     const struct zinf_optim_array *array, int n_threads)
{
    const uint64_t batch_elems = (uint64_t)OPTIM_SUM_BLOCKS * OPTIM_BLOCK_ELEMS;
    struct step_job job = {.ops = ops, .scalars = scalars, .array = array};
    if (!array->sum_squares) {
        optim_parallel(array->n, n_threads, step_slice, &job);
        return;
    }
    double sums[OPTIM_SUM_BLOCKS], total = 0;
    job.block_sums = sums;
    for (; job.first < array->n; job.first += batch_elems) {
        uint64_t n = array->n - job.first < batch_elems ? array->n - job.first : batch_elems;
        optim_parallel(n, n_threads, step_slice, &job);
        for (uint64_t block = 0; block * OPTIM_BLOCK_ELEMS < n; block++)
            total += sums[block];
    }
    *array->sum_squares = total;
}

/* The array without moments that its kind does not have. */
static struct zinf_optim_array moments_of(const struct zinf_optim_hyper *hyper,
                                          const struct zinf_optim_array *array)
{
    struct zinf_optim_array given = *array;
    if (zinf_optim_n_moments(hyper->kind) < 2) {
        given.moment2 = NULL;
        given.half_moment2 = NULL;
    }
    return given;
}

int zinf_optim_step(const struct zinf_optim_hyper *hyper, const struct zinf_optim_array *array,
                    int n_threads)
{
    const struct optim_ops *ops = optim_ops_of(zinf_isa());
    struct optim_scalars scalars;
    int rc = optim_check(hyper, array);
    if (!rc && array->nonfinite)
        rc = optim_check_finite(ops, array->grad, array->grad_dtype, array->n, array->nonfinite,
                                n_threads);
    if (rc)
        return rc;
    struct zinf_optim_array given = moments_of(hyper, array);
    optim_scalars_init(&scalars, hyper, array->grad_scale);
    optim_step_with(ops, &scalars, &given, n_threads);
    return 0;
}

/* ---- steps of several arrays ---- */

/* Elements of a piece: large enough to be worth its counting, small enough that threads end
 * together. A multiple of the blocks of 8-bit moments. */
#define PIECE_ELEMS ((uint64_t)1 << 16)

struct arrays_job {
    const struct optim_ops *ops;
    const struct zinf_optim_hyper *hypers;
    const struct zinf_optim_array *arrays;
    uint32_t n_arrays;
    _Atomic uint64_t next; /* number of the next piece, counted over all arrays */
};

/* Takes pieces until there are none. Their numbers only rise, so the array of each is found by
 * going on from that of the last. */
static void step_pieces(void *arg)
{
    struct arrays_job *job = arg;
    uint64_t before = 0; /* pieces of the arrays before this one */
    uint32_t at = 0, known = UINT32_MAX;
    struct optim_scalars scalars;
    struct zinf_optim_array array;
    for (;;) {
        /* Nothing else is told by the number: relaxed. */
        uint64_t piece = atomic_fetch_add_explicit(&job->next, 1, memory_order_relaxed);
        for (; at < job->n_arrays; at++) {
            uint64_t pieces = (job->arrays[at].n + PIECE_ELEMS - 1) / PIECE_ELEMS;
            if (piece < before + pieces)
                break;
            before += pieces;
        }
        if (at == job->n_arrays)
            return;
        if (known != at) {
            array = moments_of(&job->hypers[at], &job->arrays[at]);
            optim_scalars_init(&scalars, &job->hypers[at], array.grad_scale);
            known = at;
        }
        uint64_t begin = (piece - before) * PIECE_ELEMS, end = begin + PIECE_ELEMS;
        job->ops->step(&scalars, &array, begin, end < array.n ? end : array.n, NULL);
    }
}

int zinf_optim_step_arrays(const struct zinf_optim_hyper *hypers,
                           const struct zinf_optim_array *arrays, uint32_t n_arrays, int n_threads)
{
    uint64_t elems = 0;
    for (uint32_t i = 0; i < n_arrays; i++) {
        if (arrays[i].nonfinite || arrays[i].sum_squares)
            return zinf_fail(-EINVAL, "optimizer: a step of several arrays has no nonfinite and no "
                                      "sum_squares: set both to NULL");
        int rc = optim_check(&hypers[i], &arrays[i]);
        if (rc)
            return rc;
        elems += arrays[i].n;
    }
    struct arrays_job job = {
        .ops = optim_ops_of(zinf_isa()), .hypers = hypers, .arrays = arrays, .n_arrays = n_arrays};
    optim_team(optim_useful_threads(elems, n_threads), step_pieces, &job);
    return 0;
}
