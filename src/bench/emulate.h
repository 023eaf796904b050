/*
 * emulate: runs programs on a training's lanes as if on hardware of set rates. The executor with
 * its threads, queues, waits and slots is that of a training, but an operation only takes
 * op->seconds by the clock and touches no memory, and the drive is a simulated one. The time of a
 * step compared with the work of its busiest lane shows how good the schedule is, on any machine.
 * Only threads that wake late disturb it; a larger stretch makes that small.
 *
 * Lanes share CPUs (by op->cpu, drive lanes first) and the drive as in zinf_program_predict.
 *
 * An emulator is used by one thread. Programs must be scheduled; their addresses are not used.
 */
#ifndef ZINF_BENCH_EMULATE_H
#define ZINF_BENCH_EMULATE_H

#include "bench/paced_drive.h"
#include "offload/offload.h"

struct zinf_emulator_options {
    /* for READ and WRITE; may be one that only plans; NULL: neither lane */
    struct zinf_store *store;
    struct zinf_drive_rates drive; /* in the programs' seconds */
    bool queues;                   /* H2D, D2H and DEVICE only enqueue, as on a GPU */
    bool net;                      /* there is a lane NET */
    double stretch;                /* seconds by the clock for a second of a program; 0 means 1 */
    const char *(*op_name)(void *context, const struct zinf_op *op, char buffer[64]);
    /* as in zinf_executor_options; NULL: op->bytes */
    uint64_t (*moved)(void *context, const struct zinf_op *op);
    /* Called before an operation of the lane NET takes its time; returns when the ranks that it
     * meets have come to it. NULL: no waiting. */
    void (*meet)(void *context, const struct zinf_op *op);
    void *context;
    const char *trace_path; /* NULL: no trace; its times are by the clock */
};
struct zinf_emulator;
int zinf_emulator_create(struct zinf_emulator **out, const struct zinf_emulator_options *options);
void zinf_emulator_destroy(struct zinf_emulator *emulator); /* NULL is allowed */
/* Runs a program and blocks until its end. *times and *seconds, its total, are in the program's
 * seconds. */
int zinf_emulator_run(struct zinf_emulator *emulator, const struct zinf_program *program,
                      double *seconds, struct zinf_lane_times *times);

#endif
