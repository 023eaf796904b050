/*
 * emulate: programs on the lanes that a training has, on hardware of set rates. The executor, its
 * threads, queues, waits and slots are those of a training; but an operation takes op->seconds by
 * the clock and touches no memory, and the drive is one of set rates with nothing behind it. What a
 * step then takes over the work of its busiest lane is what its schedule is worth, on whatever
 * machine: drive, CPUs and memory of this one do not come into it, but for threads that it wakes
 * late. Where it does, a longer stretch makes that small.
 *
 * Lanes share what they share in a prediction (zinf_program_predict): CPUs by op->cpu, what the
 * drive lanes take coming first, and the drive.
 *
 * An emulator is used by one thread. Programs are scheduled, and their operands may be addresses of
 * nothing.
 */
#ifndef ZINF_BENCH_EMULATE_H
#define ZINF_BENCH_EMULATE_H

#include "bench/paced_drive.h"
#include "offload/offload.h"

struct zinf_emulator_options {
    struct zinf_store *store;      /* of READ and WRITE; may be a plan's; NULL: there are none */
    struct zinf_drive_rates drive; /* by the seconds of programs */
    bool queues;                   /* H2D, D2H and DEVICE only enqueue, as on a GPU */
    bool net;                      /* there is a lane of collectives */
    double stretch;                /* seconds by the clock for one of a program; 0: 1 */
    const char *(*op_name)(void *context, const struct zinf_op *op, char buffer[64]);
    uint64_t (*moved)(void *context, const struct zinf_op *op); /* as the executor's; or NULL */
    /* Before an operation of the lane of collectives takes its time: returns when the others that
     * it meets have come to it. NULL: nobody waits. */
    void (*meet)(void *context, const struct zinf_op *op);
    void *context;
    const char *trace_path; /* NULL: no trace; by the clock */
};
struct zinf_emulator;
int zinf_emulator_create(struct zinf_emulator **out, const struct zinf_emulator_options *options);
void zinf_emulator_destroy(struct zinf_emulator *emulator); /* NULL is allowed */
/* Runs a program to its end; blocks. *times is by the seconds of the program, as *seconds is, what
 * it took in all. */
int zinf_emulator_run(struct zinf_emulator *emulator, const struct zinf_program *program,
                      double *seconds, struct zinf_lane_times *times);

#endif
