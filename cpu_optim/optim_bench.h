/*
 * optim_bench: how fast a step runs here, against the roof: a streaming loop over the same arrays
 * that loads and stores the same bytes in the same mix with next to no arithmetic, the best of all
 * instruction sets here, alternating with the step in the same run. (Adafactor goes over its
 * gradient three times; its roof is the speed of that loop with one moment.) Allocates its arrays
 * itself; one caller at a time, as it is a timing.
 */
#ifndef ZINF_OPTIM_BENCH_H
#define ZINF_OPTIM_BENCH_H

#include "cpu_optim/optim.h"

struct zinf_optim_bench {
    /* in */
    enum zinf_optim_kind kind;
    enum zinf_isa isa; /* at most zinf_isa() */
    uint64_t n;        /* elements; much more than the caches hold */
    enum zinf_dtype grad_dtype, param_dtype;
    bool adafactor;    /* instead of kind: one matrix of rows of 4096 elements */
    bool split_master; /* param_dtype is bf16 */
    enum zinf_optim_moments moments;
    bool stochastic_rounding;
    int n_threads;
    int repeats; /* rounds of one step and one streaming loop each; the medians count */
    /* out */
    double seconds, roof_seconds;
    uint64_t bytes;      /* read and written by one step */
    uint64_t data_bytes; /* of the arrays that it goes over */
    double roof_gb_per_s;
    double ratio; /* roof to step, median of the rounds: 1 is the speed of memory */
};
/* -EINVAL for a bad n, n_threads, repeats, kind or isa; -ENOMEM. */
int zinf_optim_bench(struct zinf_optim_bench *bench);

#endif
