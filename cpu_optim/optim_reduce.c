/*
 * optim_reduce: the reductions whose result must not depend on threads. A sum
 * is made of the sums of fixed blocks, added in order by one thread.
 */
#include "cpu_optim/optim_internal.h"

#include <stdatomic.h>

/* Elements between two looks at whether another thread has found one in front of us. */
#define SEARCH_ELEMS 65536u

/* ---- sum of squares ---- */

struct sum_job {
    const struct optim_ops *ops;
    const void *x;
    const uint16_t *remainder; /* of a split master, whose parameter is x; else NULL */
    enum zinf_dtype dtype;
    uint64_t first, n; /* this batch: elements first .. first + n */
    double sums[OPTIM_SUM_BLOCKS];
};

static void sum_slice(void *arg, uint64_t begin, uint64_t end)
{
    struct sum_job *job = arg;
    for (uint64_t i = begin; i < end; i += OPTIM_BLOCK_ELEMS) {
        uint64_t from = job->first + i, to = job->first + end;
        if (to - from > OPTIM_BLOCK_ELEMS)
            to = from + OPTIM_BLOCK_ELEMS;
        job->sums[i / OPTIM_BLOCK_ELEMS] =
            job->remainder ? job->ops->sum_block_split(job->x, job->remainder, from, to)
                           : job->ops->sum_block(job->x, job->dtype, from, to);
    }
}

static double sum_batches(struct sum_job *job, uint64_t n, int n_threads)
{
    const uint64_t batch_elems = (uint64_t)OPTIM_SUM_BLOCKS * OPTIM_BLOCK_ELEMS;
    double total = 0;
    for (; job->first < n; job->first += batch_elems) {
        job->n = n - job->first < batch_elems ? n - job->first : batch_elems;
        optim_parallel(job->n, n_threads, sum_slice, job);
        for (uint64_t block = 0; block * OPTIM_BLOCK_ELEMS < job->n; block++)
            total += job->sums[block];
    }
    return total;
}

double optim_sum_with(const struct optim_ops *ops, const void *x, enum zinf_dtype dtype, uint64_t n,
                      int n_threads)
{
    struct sum_job job = {.ops = ops, .x = x, .dtype = dtype};
    return sum_batches(&job, n, n_threads);
}

double optim_sum_split_with(const struct optim_ops *ops, const uint16_t *param,
                            const uint16_t *remainder, uint64_t n, int n_threads)
{
    struct sum_job job = {.ops = ops, .x = param, .remainder = remainder};
    return sum_batches(&job, n, n_threads);
}

double zinf_optim_sum_squares(const void *x, enum zinf_dtype dtype, uint64_t n, int n_threads)
{
    return optim_sum_with(optim_ops_of(zinf_isa()), x, dtype, n, n_threads);
}

double zinf_optim_sum_squares_split(const uint16_t *param, const uint16_t *remainder, uint64_t n,
                                    int n_threads)
{
    return optim_sum_split_with(optim_ops_of(zinf_isa()), param, remainder, n, n_threads);
}

/* ---- first non-finite element ---- */

struct search_job {
    const struct optim_ops *ops;
    const void *x;
    enum zinf_dtype dtype;
    _Atomic uint64_t first; /* lowest index found; relaxed: it is read after the threads joined */
};

static void search_slice(void *arg, uint64_t begin, uint64_t end)
{
    struct search_job *job = arg;
    for (uint64_t i = begin; i < end; i += SEARCH_ELEMS) {
        uint64_t lowest = atomic_load_explicit(&job->first, memory_order_relaxed);
        if (lowest < i)
            return;
        uint64_t stop = end - i < SEARCH_ELEMS ? end : i + SEARCH_ELEMS;
        uint64_t found = job->ops->find_nonfinite(job->x, job->dtype, i, stop);
        if (found == UINT64_MAX)
            continue;
        while (found < lowest &&
               !atomic_compare_exchange_weak_explicit(&job->first, &lowest, found,
                                                      memory_order_relaxed, memory_order_relaxed))
            ;
        return;
    }
}

uint64_t optim_find_with(const struct optim_ops *ops, const void *x, enum zinf_dtype dtype,
                         uint64_t n, int n_threads)
{
    struct search_job job = {.ops = ops, .x = x, .dtype = dtype, .first = UINT64_MAX};
    optim_parallel(n, n_threads, search_slice, &job);
    return atomic_load_explicit(&job.first, memory_order_relaxed);
}

uint64_t zinf_optim_find_nonfinite(const void *x, enum zinf_dtype dtype, uint64_t n, int n_threads)
{
    return optim_find_with(optim_ops_of(zinf_isa()), x, dtype, n, n_threads);
}

/* ---- accumulation ---- */

struct accumulate_job {
    const struct optim_ops *ops;
    float *dst;
    const void *src;
    enum zinf_dtype src_dtype;
};

static void accumulate_slice(void *arg, uint64_t begin, uint64_t end)
{
    const struct accumulate_job *job = arg;
    job->ops->accumulate(job->dst, job->src, job->src_dtype, begin, end);
}

void optim_accumulate_with(const struct optim_ops *ops, float *dst, const void *src,
                           enum zinf_dtype src_dtype, uint64_t n, int n_threads)
{
    struct accumulate_job job = {ops, dst, src, src_dtype};
    optim_parallel(n, n_threads, accumulate_slice, &job);
}

void zinf_optim_accumulate(float *dst, const void *src, enum zinf_dtype src_dtype, uint64_t n,
                           int n_threads)
{
    optim_accumulate_with(optim_ops_of(zinf_isa()), dst, src, src_dtype, n, n_threads);
}
