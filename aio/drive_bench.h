/*
 * drive_bench: measures a drive with the transfers of a training: large blocks, many in flight,
 * reads and writes at once, by the engine that the training uses. `zinf bench nvme` prints the
 * results, and a store distributes its stripes by them.
 *
 * Every call blocks until the measurement ends and may be made from any thread. Results are only
 * valid if nothing else uses the drive.
 */
#ifndef ZINF_DRIVE_BENCH_H
#define ZINF_DRIVE_BENCH_H

#include "aio/aio.h"

#ifdef __cplusplus
extern "C" {
#endif

enum zinf_aio_bench_mix {
    ZINF_AIO_BENCH_READ,
    ZINF_AIO_BENCH_WRITE, /* ends with a flush, which is counted in the time */
    ZINF_AIO_BENCH_MIXED, /* alternately reads from the first half of the range and writes to the
                           * second */
};

struct zinf_aio_bench_options {
    /* Exactly one of file and store. Writing destroys the content. Write a range before reading it:
     * many drives answer reads of blocks that were never written without work. */
    struct zinf_aio_file *file;
    struct zinf_store *store;
    zinf_extent extent;
    uint64_t bytes; /* length of the range, from offset 0; at least one block per job and
                     * direction */

    enum zinf_aio_bench_mix mix;
    bool random;       /* blocks in a random order, each once in a pass; else ascending */
    bool unregistered; /* memory is not given to zinf_aio_queue_register */
    double seconds;    /* duration; 0: one pass over the range */
    int n_jobs;        /* threads, each with its own queue and part of the range; 0: 1 */
    struct zinf_aio_queue_options queue; /* of each job; a request is one block */
};

struct zinf_aio_bench_result {
    enum zinf_aio_engine engine; /* in use */
    double seconds, cpu_seconds; /* cpu: of the whole process, kernel included */
    uint64_t bytes_read, bytes_written;
    uint64_t p50_ns, p99_ns, p999_ns, max_ns; /* latencies of a block, from submission to return */
};

/* -EINVAL: the range is too small. Otherwise the queue's error, or the code with which
 * zinf_pulse_end ended this thread's work. */
int zinf_aio_bench(const struct zinf_aio_bench_options *options,
                   struct zinf_aio_bench_result *result);
/* Bytes per second, reads and writes together. */
double zinf_aio_bench_rate(const struct zinf_aio_bench_result *result);

/* CPU seconds of the calling thread to compute the checksums of bytes of memory, a multiple of
 * ZINF_AIO_ALIGN. A store with checksums needs this in addition to the transfer. */
double zinf_aio_bench_sums(const void *memory, uint64_t bytes);

/* Measures the drive of a folder briefly, with default settings, in a temporary store of the given
 * bytes. Rates in bytes per second; mixed counts both directions. */
struct zinf_aio_bench_rates {
    double read, write, mixed;
    uint64_t bytes_written; /* written to the drive by the measurement */
};
int zinf_aio_bench_path(const char *path, uint64_t bytes, bool allow_memory_fs,
                        struct zinf_aio_bench_rates *rates);

#ifdef __cplusplus
}
#endif
#endif
