/*
 * paced_drive: a drive of set rates, whatever drive the machine has. A queue whose engine is
 * wrapped by it (PACED_BY) returns transfers no sooner than that drive would have ended them. Any
 * engine may move the bytes; with the null engine none are moved, so schedules can be measured
 * without a drive.
 *
 * The drive reads one transfer after another at its rate, and writes likewise. While both go on
 * each has a share of its rate. A transfer is queued when it is given to the engine. The drive
 * works on by the clock: a thread that reaps late loses nothing as long as more transfers are
 * queued, as with a real drive.
 *
 * Threads: any; queues of several threads share one drive, which must outlive them.
 */
#ifndef ZINF_BENCH_PACED_DRIVE_H
#define ZINF_BENCH_PACED_DRIVE_H

#include "aio/aio.h"

struct zinf_drive_rates {
    double read_bytes, write_bytes; /* bytes a second, alone */
    /* The parts of these rates that are left while the other direction is busy; 0 means 1. */
    double read_beside_write, write_beside_read;
    double latency_seconds; /* from a transfer's end on the drive until it is returned */
};
struct zinf_paced_drive;
int zinf_paced_drive_wrap(struct zinf_aio_backend **engine,
                          const struct zinf_aio_queue_options *options, const void *drive);
#define PACED_BY(drive)                                                                            \
    (struct zinf_aio_around)                                                                       \
    {                                                                                              \
        zinf_paced_drive_wrap, drive                                                               \
    }
/* -EINVAL: a rate is not above 0, or a part is above 1. */
int zinf_paced_drive_create(struct zinf_paced_drive **out, const struct zinf_drive_rates *rates);
/* Only after the queues are destroyed. NULL is allowed. */
void zinf_paced_drive_destroy(struct zinf_paced_drive *drive);
/* The seconds that the reads [0] and writes [1] so far would have taken alone. */
void zinf_paced_drive_work(struct zinf_paced_drive *drive, double seconds[2]);

#endif
