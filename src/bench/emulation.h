/*
 * emulation: a training step on hardware of set rates. It is planned and scheduled as for an
 * estimate, then run by a training's lanes, where operations take their time and do nothing
 * (bench/emulate.h). It shows how far a step is from the work of its busiest lane and from the
 * prediction; for ranks of a pipeline, how long the busiest rank works. It needs no memory, no
 * drive and hardly any CPU.
 *
 * Any thread; results belong to the caller. Errors: -errno and a sentence.
 */
#ifndef ZINF_BENCH_EMULATION_H
#define ZINF_BENCH_EMULATION_H

#include "train/estimate.h"

struct zinf_emulation_options {
    const struct zinf_estimate_options *estimate; /* the training and the hardware's speeds */
    int steps; /* at least 1; a further step before them is not counted */
    /* about how long a step takes by the clock; 0: as long as on the hardware */
    double clock_seconds;
    const char *trace; /* trace of all steps, by the clock; NULL: none */
};
struct zinf_emulation {
    char schedule[32];
    uint64_t tokens; /* of a step */
    /* The work of the busiest lane, of the drive lanes together, or of the CPUs, in the program of
     * the training that has least: no order of a step's operations takes less time. */
    double floor_seconds;
    double predicted_seconds;
    double step_seconds; /* median of the steps */
    double fastest_seconds, slowest_seconds;
    /* For each lane: seconds if it were alone; measured seconds of a step; and how long it stood
     * still for each lane, or for itself, that is, at a step's ends. */
    double work_seconds[8], busy_seconds[8], stall_seconds[8][8];
    uint32_t n_ops;
    /* Of ranks of a pipeline, which run at the same time: their number (all other figures are the
     * first rank's); the seconds that the busiest device works in a step; and a lower bound of the
     * step: the most work of a rank, with one micro-batch's work of each rank before it. */
    uint32_t pipe_ranks;
    double pipe_busy_seconds, pipe_floor_seconds;
};
int zinf_emulate(struct zinf_emulation *out, const struct zinf_emulation_options *options);

#endif
