/*
 * optim_bench: times optimizer steps on this machine, against the *roof*: a loop over the same
 * arrays with the same loads and stores and next to no arithmetic. The roof is the best of all
 * instruction sets and alternates with the step in the same run. Adafactor reads its gradient
 * three times; its roof is the speed of the loop with one moment. Allocates its arrays. Only one
 * call at a time, since it is a timing.
 */
#ifndef ZINF_OPTIM_BENCH_H
#define ZINF_OPTIM_BENCH_H

#include "cpu_optim/optim.h"

struct zinf_optim_bench {
    /* set by the caller */
    enum zinf_optim_kind kind;
    enum zinf_isa isa; /* at most zinf_isa() */
    uint64_t n;        /* elements; their arrays should be much larger than the caches */
    enum zinf_dtype grad_dtype, param_dtype;
    bool adafactor; /* an Adafactor step of a matrix with rows of 4096 elements; kind is not used */
    bool split_master; /* param_dtype is bf16 */
    enum zinf_optim_moments moments;
    bool stochastic_rounding;
    int n_threads;
    int repeats; /* rounds of one step and one loop each, of which the medians are taken */
    /* set by the call */
    double seconds, roof_seconds;
    uint64_t bytes;      /* bytes that a step reads and writes */
    uint64_t data_bytes; /* bytes of its arrays */
    double roof_gb_per_s;
    /* speed of the step divided by the roof, median of the rounds; 1 is the speed of memory */
    double ratio;
};
/* Runs the benchmark. -EINVAL: n, n_threads, repeats, kind or isa is not possible; -ENOMEM. */
int zinf_optim_bench(struct zinf_optim_bench *bench);

struct zinf_pack_bench {
    /* set by the caller */
    uint64_t n; /* parameters; their state should be much larger than the caches */
    int n_threads;
    int repeats; /* rounds of each, of which the median is taken */
    /* set by the call: seconds of an AdamW update in split form with nothing packed, with packed
     * moments, and with bf16 parameters packed as well; and of unpacking these alone */
    double plain_seconds, state_seconds, all_seconds, unpack_seconds;
    uint64_t state_bytes, param_bytes; /* of the moments and of the parameters, not packed */
};
/* Times updates of packed state as trainings make them, a sub-group after the other. Allocates its
 * arrays. -EINVAL, -ENOMEM as above. */
int zinf_pack_bench(struct zinf_pack_bench *bench);

#endif
