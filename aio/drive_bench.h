/*
 * drive_bench: how fast a drive is for what training does to it: large blocks, many in flight,
 * reads and writes at once. The engine under test is the one that training uses. `zinf bench nvme`
 * prints it, a store shares its stripes by it.
 *
 * Every call blocks for as long as the measurement takes and may be made from any thread; what it
 * measures is only true while nothing else uses the drive.
 */
#ifndef ZINF_DRIVE_BENCH_H
#define ZINF_DRIVE_BENCH_H

#include "aio/aio.h"

#ifdef __cplusplus
extern "C" {
#endif

enum zinf_aio_bench_mix {
    ZINF_AIO_BENCH_READ,
    ZINF_AIO_BENCH_WRITE, /* ends with a flush, which is part of the time */
    ZINF_AIO_BENCH_MIXED, /* reads the first half of the range and writes the second in turns */
};

struct zinf_aio_bench_options {
    /* Where: exactly one of file and store. Writing destroys what is there. Written before it is
     * read: many drives answer at once for blocks that never were. */
    struct zinf_aio_file *file;
    struct zinf_store *store;
    zinf_extent extent;
    uint64_t bytes; /* the range from offset 0 on; at least a block for each job and direction */

    enum zinf_aio_bench_mix mix;
    bool random;       /* blocks in a random order, each once in a pass; else ascending */
    bool unregistered; /* memory is not given to zinf_aio_queue_register */
    double seconds;    /* how long; 0: one pass over the range */
    int n_jobs;        /* threads with a queue and a part of the range each; 0: 1 */
    struct zinf_aio_queue_options queue; /* of each job; a request is one block */
};

struct zinf_aio_bench_result {
    enum zinf_aio_engine engine; /* in use */
    double seconds, cpu_seconds; /* cpu: of the whole process, kernel included */
    uint64_t bytes_read, bytes_written;
    uint64_t p50_ns, p99_ns, p999_ns, max_ns; /* of a block, from submission to return */
};

/* -EINVAL: the range is too small; else what the queue met, or the word of the thread's pulse. */
int zinf_aio_bench(const struct zinf_aio_bench_options *options,
                   struct zinf_aio_bench_result *result);
/* Bytes of both directions a second. */
double zinf_aio_bench_rate(const struct zinf_aio_bench_result *result);

/* CPU seconds of the calling thread for the checksums of bytes of memory, a multiple of
 * ZINF_AIO_ALIGN: what a store with checksums adds to their transfer. */
double zinf_aio_bench_sums(const void *memory, uint64_t bytes);

/* A short look at the drive behind a folder, with default settings, in a store of bytes that is
 * removed again. Bytes a second, in both directions together for mixed. */
struct zinf_aio_bench_rates {
    double read, write, mixed;
    uint64_t bytes_written; /* to the drive, to find this out */
};
int zinf_aio_bench_path(const char *path, uint64_t bytes, bool allow_memory_fs,
                        struct zinf_aio_bench_rates *rates);

#ifdef __cplusplus
}
#endif
#endif
