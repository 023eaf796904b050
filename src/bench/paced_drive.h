/*
 * paced_drive: a drive that keeps set rates, whatever drive the machine has. A queue that has one
 * around its engine (PACED_BY) hands transfers back no sooner than that drive would have ended
 * them, on top of whatever engine moves the bytes. On top of the null engine nothing moves them:
 * then schedules can be measured without a drive, memory or the noise of either.
 *
 * The drive reads one transfer after another at its rate, and writes so too; while both go on each
 * has a share of its rate. A transfer takes its place when it is given to the engine, and the
 * drive's time goes on by the clock: a thread that comes late for what has ended loses none of it
 * as long as more is waiting, as with a real drive.
 *
 * Threads: any; the queues of several threads share one drive. It outlives them.
 */
#ifndef ZINF_BENCH_PACED_DRIVE_H
#define ZINF_BENCH_PACED_DRIVE_H

#include "aio/aio.h"

struct zinf_drive_rates {
    double read_bytes, write_bytes; /* a second, alone */
    /* What is left of these while the other goes on too, as a share; 0: all. */
    double read_beside_write, write_beside_read;
    double latency_seconds; /* from a transfer's end on the drive until it is handed back */
};
struct zinf_paced_drive;
int zinf_paced_drive_wrap(struct zinf_aio_backend **engine,
                          const struct zinf_aio_queue_options *options, const void *drive);
#define PACED_BY(drive)                                                                            \
    (struct zinf_aio_around)                                                                       \
    {                                                                                              \
        zinf_paced_drive_wrap, drive                                                               \
    }
/* -EINVAL: a rate is not above 0, or a share above 1. */
int zinf_paced_drive_create(struct zinf_paced_drive **out, const struct zinf_drive_rates *rates);
/* After the queues. NULL is allowed. */
void zinf_paced_drive_destroy(struct zinf_paced_drive *drive);
/* Seconds that what was read [0] and written [1] until now would have taken alone. */
void zinf_paced_drive_work(struct zinf_paced_drive *drive, double seconds[2]);

#endif
