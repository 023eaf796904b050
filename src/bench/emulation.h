/*
 * emulation: the step of a training on hardware of set rates: planned and scheduled as for an
 * estimate, then run by the lanes of a training, where operations take their time and do nothing
 * (bench/emulate.h). Says what a schedule is worth: how far a step is from the work of its
 * busiest lane, and from what was predicted; of ranks in a pipeline, how long the busiest works.
 * Takes no memory, no drive and hardly any CPU.
 *
 * Any thread; what a call returns is the caller's. Errors: -errno and a sentence.
 */
#ifndef ZINF_BENCH_EMULATION_H
#define ZINF_BENCH_EMULATION_H

#include "train/estimate.h"

struct zinf_emulation_options {
    const struct zinf_estimate_options *estimate; /* the training and the hardware's speeds */
    int steps;                                    /* at least 1, after one that is not counted */
    double clock_seconds; /* that a step takes by the clock, about; 0: as long as it takes */
    const char *trace;    /* of all steps, by the clock; NULL: none */
};
struct zinf_emulation {
    char schedule[32];
    uint64_t tokens; /* a step */
    /* Of the busiest lane, of drive lanes or of CPUs, in the training's program that has least: no
     * order of a step's operations takes less. */
    double floor_seconds;
    double predicted_seconds;
    double step_seconds; /* median of the steps */
    double fastest_seconds, slowest_seconds;
    /* by lane, as in an estimate: alone on the machine; as measured, a step; and how long the lane
     * stood still for the others, or itself: at a step's ends */
    double work_seconds[8], busy_seconds[8], stall_seconds[8][8];
    uint32_t n_ops;
    /* Of ranks in a pipeline, which run at the same time and wait for each other: how many; all
     * else is of the first; how long the device of the busiest works in a step; and the most of a
     * rank's work with that of one micro-batch in a range of each rank before it: no order takes
     * less. */
    uint32_t pipe_ranks;
    double pipe_busy_seconds, pipe_floor_seconds;
};
int zinf_emulate(struct zinf_emulation *out, const struct zinf_emulation_options *options);

#endif
