/*
 * optim_reduce: slices for threads, and the reductions whose result must not depend on them. A sum
 * is made of the sums of fixed blocks, added in order by one thread.
 */
#include "cpu_optim/optim_internal.h"

#include <fenv.h>
#include <omp.h>
#include <stdatomic.h>

/* Below this a thread costs more to wake than it saves: about 10 us of memory traffic. */
#define THREAD_ELEMS 16384u
/* Blocks whose sums are held at a time: 8 KiB of stack, 16 MiB of fp32. */
#define SUM_BLOCKS 1024u
/* Elements between two looks at whether another thread has found one in front of us. */
#define SEARCH_ELEMS 65536u

static void run_slice(void (*body)(void *arg, uint64_t begin, uint64_t end), void *arg,
                      uint64_t begin, uint64_t end)
{
    fenv_t saved;
    fegetenv(&saved);
    fesetenv(FE_DFL_ENV);
    body(arg, begin, end);
    fesetenv(&saved);
}

void optim_parallel(uint64_t n, int n_threads,
                    void (*body)(void *arg, uint64_t begin, uint64_t end), void *arg)
{
    if (n_threads > 1 && (uint64_t)n_threads > n / THREAD_ELEMS)
        n_threads = (int)(n / THREAD_ELEMS);
    if (n_threads <= 1) {
        if (n)
            run_slice(body, arg, 0, n);
        return;
    }
#pragma omp parallel num_threads(n_threads)
    {
        uint64_t units = (n + OPTIM_BLOCK_ELEMS - 1) / OPTIM_BLOCK_ELEMS;
        uint64_t index = (uint64_t)omp_get_thread_num(), team = (uint64_t)omp_get_num_threads();
        uint64_t begin = units * index / team * OPTIM_BLOCK_ELEMS;
        uint64_t end = units * (index + 1) / team * OPTIM_BLOCK_ELEMS;
        if (end > n)
            end = n;
        if (begin < end)
            run_slice(body, arg, begin, end);
    }
}

/* ---- sum of squares ---- */

struct sum_job {
    const struct optim_ops *ops;
    const void *x;
    enum zinf_dtype dtype;
    uint64_t first, n; /* this batch: elements first .. first + n */
    double sums[SUM_BLOCKS];
};

static void sum_slice(void *arg, uint64_t begin, uint64_t end)
{
    struct sum_job *job = arg;
    for (uint64_t i = begin; i < end; i += OPTIM_BLOCK_ELEMS) {
        uint64_t block_end = i + OPTIM_BLOCK_ELEMS < end ? i + OPTIM_BLOCK_ELEMS : end;
        job->sums[i / OPTIM_BLOCK_ELEMS] =
            job->ops->sum_block(job->x, job->dtype, job->first + i, job->first + block_end);
    }
}

double optim_sum_with(const struct optim_ops *ops, const void *x, enum zinf_dtype dtype, uint64_t n,
                      int n_threads)
{
    const uint64_t batch_elems = (uint64_t)SUM_BLOCKS * OPTIM_BLOCK_ELEMS;
    struct sum_job job = {.ops = ops, .x = x, .dtype = dtype};
    double total = 0;
    for (; job.first < n; job.first += batch_elems) {
        job.n = n - job.first < batch_elems ? n - job.first : batch_elems;
        optim_parallel(job.n, n_threads, sum_slice, &job);
        for (uint64_t block = 0; block * OPTIM_BLOCK_ELEMS < job.n; block++)
            total += job.sums[block];
    }
    return total;
}

double zinf_optim_sum_squares(const void *x, enum zinf_dtype dtype, uint64_t n, int n_threads)
{
    return optim_sum_with(optim_ops_of(zinf_isa()), x, dtype, n, n_threads);
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
