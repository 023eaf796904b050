/*
 * bench_device: what the benches of the device share: the device with its memory full of random
 * numbers, page-locked host memory, and the time of an operation. In src/cli only.
 */
#ifndef ZINF_CLI_BENCH_DEVICE_H
#define ZINF_CLI_BENCH_DEVICE_H

#include "base/memory.h"
#include "cli/bench/bench.h"
#include "kernels/kernels.h"

struct bench_device {
    struct zinf_device *device;
    const struct zinf_device_ops *ops;
    struct zinf_queue *queues[3]; /* by enum zinf_queue_kind */
    struct zinf_arena host;       /* page-locked where the device wants it */
    double least_seconds;         /* a round of repetitions takes at least this long */
    int rounds;                   /* whose median counts */
    struct bench_device *next;    /* is waited for together with this one; NULL: none is */
};
/* Options that benches share, and what they fill. */
struct bench_on {
    enum zinf_device_kind device;
    const char *type;
    int64_t threads; /* 0: all */
};
extern const struct option bench_device_rows[], bench_type_rows[], bench_threads_rows[];

struct bench_device_options {
    enum zinf_device_kind device;
    int64_t threads; /* 0: all */
    uint64_t device_bytes, host_bytes;
    int gpu; /* its number */
};
/* -ENODEV where cuda is asked for and is not there. Device memory holds random numbers in dtype,
 * of deviation 1, so that no value is special. */
int bench_device_open(struct bench_device *b, const struct bench_device_options *options);
int bench_device_fill(struct bench_device *b, enum zinf_dtype dtype, uint64_t bytes);
void bench_device_close(struct bench_device *b);
/* Seconds of one call: enqueued again and again, waited for at the end; the median of rounds. */
typedef int bench_call(struct bench_device *b, void *context);
int bench_device_time(struct bench_device *b, bench_call *call, void *context, double *seconds);

#endif
