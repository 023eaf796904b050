/*
 * aio: asynchronous transfers between memory and drives. It knows nothing of models.
 *
 * A *store* is space on one or more drives: files of fixed size in a locked run folder. They are
 * written once when created and removed when the store is destroyed. If their process died first,
 * the next run removes them. An *extent* is a range of a store. A *queue* moves bytes between
 * memory and extents or plain files. The caller submits requests to it and gets them back when they
 * are finished, in any order.
 *
 * Threads: a queue may be used by one thread only. Stores and open files may be shared by any
 * number of queues and threads. Submitting takes no lock and allocates nothing.
 *
 * Errors: request->result is the number of bytes moved or -errno. It is the whole number of bytes
 * unless a read meets the end of a plain file. Short transfers are continued, EINTR and EAGAIN are
 * retried. After an I/O error the queue keeps failing: later submits return the same error.
 * zinf_aio_queue_error() gives the sentence: path, offset, bytes, errno, free space.
 */
#ifndef ZINF_AIO_H
#define ZINF_AIO_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ZINF_AIO_ALIGN 4096 /* alignment of memory, offset and length of direct transfers */

/* ---- files ---- */

struct zinf_aio_file;
enum zinf_aio_open_flags {
    ZINF_AIO_READ = 1,
    ZINF_AIO_WRITE = 2,
    ZINF_AIO_CREATE = 4,   /* with O_EXCL: fails if the file exists */
    ZINF_AIO_BUFFERED = 8, /* do not try O_DIRECT */
};
/* Opens for direct I/O (O_DIRECT). If the file system has none, opens buffered and warns once. */
int zinf_aio_open(struct zinf_aio_file **out, const char *path, unsigned flags);
void zinf_aio_close(struct zinf_aio_file *file);
uint64_t zinf_aio_file_bytes(const struct zinf_aio_file *file);
bool zinf_aio_file_direct(const struct zinf_aio_file *file);
/* Makes the transfers that completed before the call durable (fdatasync); blocks. After a failure
 * the written data may be lost, even if a second call succeeds. */
int zinf_aio_file_flush(struct zinf_aio_file *file);

/* ---- store ---- */

struct zinf_store;
struct zinf_aio_bench_rates;
struct zinf_store_options {
    const char *const *paths; /* folders, one per drive; must exist */
    int n_paths;              /* >= 1 */
    const char *label;        /* short word in the run folder's name, e.g. "state" */
    uint64_t stripe_bytes;    /* 0: 2 MiB; a multiple of ZINF_AIO_ALIGN */
    /* [n_paths], in any unit: stripes are distributed over the paths in proportion to these
     * bandwidths. NULL: equally, or by measure_path. */
    const double *path_rates;
    /* Used if path_rates is NULL, there are several paths, and the store has at least 1 GiB:
     * zinf_store_allocate measures each path with it for about a second. NULL, or
     * zinf_aio_bench_path of drive_bench.h. */
    int (*measure_path)(const char *path, uint64_t bytes, bool allow_memory_fs,
                        struct zinf_aio_bench_rates *rates);
    bool checksums;       /* keep checksums in RAM (4 bytes per 4096) and verify reads; wrong
                           * twice: -EBADMSG */
    bool allow_memory_fs; /* allow tmpfs as a path, which is an error otherwise; for tests */
    bool plan_only;       /* only count extents: paths are not used and may be missing, and
                           * zinf_store_allocate fails; only queues of the null engine take
                           * requests of such a store */
    const uint8_t *run;   /* 16 bytes that identify a training: the store is kept when its
                           * process ends, see aio/steps.h; NULL: it is removed */
    bool as_found;        /* only read what an earlier process of run left: extents keep the
                           * generations (one or two) found there, no folder is created or
                           * removed; -ENOENT: nothing is there */
};
/* Creates and locks a run folder PATH/zinf-<label>-<pid>-<n>/ under every path, and removes run
 * folders whose process is dead. -ENOENT, -EACCES, -EROFS, -EINVAL (tmpfs): the message names the
 * remedy. */
int zinf_store_create(struct zinf_store **out, const struct zinf_store_options *options);
/* Removes the files and the run folders. NULL is allowed. No request may be in flight. */
void zinf_store_destroy(struct zinf_store *store);

typedef uint32_t zinf_extent; /* number of an extent in its store, from 0 */
/* Plans an extent of bytes (rounded up to ZINF_AIO_ALIGN). Allowed only before
 * zinf_store_allocate. */
int zinf_store_add_extent(struct zinf_store *store, uint64_t bytes, zinf_extent *out);
/* As above, with two generations, 0 and 1. Each has its own space and checksums. The caller decides
 * what a generation means; a request names the generation that it reads or writes. */
int zinf_store_add_extent_pair(struct zinf_store *store, uint64_t bytes, zinf_extent *out);
/* A range of a file that does not belong to the store, in whole pages of ZINF_AIO_ALIGN. It may end
 * behind the end of the file. */
struct zinf_store_span {
    uint32_t file;
    uint64_t offset, bytes;
};
/* Opens such a file until the store is destroyed; *out is its number. */
int zinf_store_open_file(struct zinf_store *store, const char *path, uint32_t *out);
/* Plans an extent made of n spans in order; the array is copied. The extent is read-only, takes no
 * space and has one generation. With checksums, a page whose content has changed since it was first
 * read fails with -ESTALE; the message names the file. A plan_only store opens no files. */
int zinf_store_add_files_extent(struct zinf_store *store, const struct zinf_store_span *spans,
                                uint32_t n, zinf_extent *out);
/* Bytes that the planned extents need on all paths together; and the RAM that the checksums of so
 * many bytes take at most. */
uint64_t zinf_store_planned_bytes(const struct zinf_store *store);
uint64_t zinf_store_sums_bytes(uint64_t bytes);
/* Creates the files at full length and writes zeros to all of them once, so that later writes only
 * overwrite. First checks the free space of every path: -ENOSPC names path, needed and free bytes,
 * and nothing is written. Takes as long as writing all planned bytes. */
int zinf_store_allocate(struct zinf_store *store);
uint64_t zinf_store_extent_bytes(const struct zinf_store *store, zinf_extent extent);
/* Number of generations, 1 or 2; 0: there is no such extent. */
uint8_t zinf_store_generations(const struct zinf_store *store, zinf_extent extent);
/* Makes the transfers that completed before the call durable on all paths (fdatasync); blocks.
 * After a failure the content of the drive is unknown: this call and every submit to the store then
 * return the same error. */
int zinf_store_flush(struct zinf_store *store);

/* ---- queue ---- */

enum zinf_aio_engine {
    ZINF_AIO_ENGINE_AUTO,    /* io_uring if possible, else threads; the reason is logged once */
    ZINF_AIO_ENGINE_URING,   /* an error if the kernel or the container refuses io_uring */
    ZINF_AIO_ENGINE_THREADS, /* pread/pwrite on worker threads */
    ZINF_AIO_ENGINE_NULL,    /* moves nothing, completes at once: to measure the rest of the
                              * program */
};
const char *zinf_aio_engine_name(enum zinf_aio_engine engine);

/* Wraps another engine around the queue's engine, for zinf's own tests and benchmarks: wrap
 * replaces *engine by a new engine that owns the old one (aio/aio_engine.h). Zeros in options have
 * already been replaced by their defaults. */
struct zinf_aio_backend;
struct zinf_aio_queue_options;
struct zinf_aio_around {
    int (*wrap)(struct zinf_aio_backend **engine, const struct zinf_aio_queue_options *options,
                const void *context);
    const void *context; /* borrowed */
};

struct zinf_aio_queue_options {
    enum zinf_aio_engine engine;
    uint32_t block_bytes;             /* largest single transfer; 0: 1 MiB */
    uint32_t queue_depth;             /* blocks in flight; 0: 32 */
    uint32_t n_threads;               /* worker threads of the THREADS engine; 0:
                                       * min(queue_depth, 8) */
    bool single_submit;               /* one system call per block (DeepSpeed's key) */
    bool sqpoll;                      /* io_uring: a kernel thread submits */
    uint32_t max_requests;            /* requests that may be in flight at once; 0: 256 */
    struct zinf_aio_around around[2]; /* applied in this order; wrap NULL: none */
};
struct zinf_aio_queue;
int zinf_aio_queue_create(struct zinf_aio_queue **out,
                          const struct zinf_aio_queue_options *options);
/* Waits for the requests in flight, then frees the queue. NULL is allowed. */
void zinf_aio_queue_destroy(struct zinf_aio_queue *queue);
/* Registers memory with io_uring (fixed buffers), which pins it. A refusal (memlock limit) is
 * logged once and is no error. base and bytes must be aligned. Call before the first submit. */
int zinf_aio_queue_register(struct zinf_aio_queue *queue, void *base, uint64_t bytes);

enum zinf_aio_op {
    ZINF_AIO_OP_READ,
    ZINF_AIO_OP_WRITE,
};
/* From submission until the request is returned, the caller must not change the request or its
 * memory. The caller sets the fields of the first group, with exactly one of file and store; the
 * queue uses the others. */
struct zinf_aio_request {
    enum zinf_aio_op op;
    struct zinf_aio_file *file;
    struct zinf_store *store;
    zinf_extent extent;
    uint8_t generation; /* of the extent: 0, or 1 if it has two */
    uint64_t offset;    /* in the file, or in the extent; aligned */
    uint64_t bytes;     /* > 0; aligned */
    void *memory;       /* aligned */
    int priority;       /* higher goes first, so that an urgent read overtakes prefetches */
    void *user;         /* for the caller */

    int64_t result; /* bytes, or -errno */
    uint64_t begin_ns, end_ns;
    struct zinf_aio_request *next; /* the queue's */
    uint64_t issued_bytes, done_bytes;
    uint32_t blocks_in_flight;
    uint32_t attempts;   /* repetitions of the read after a wrong checksum */
    uint64_t bad_offset; /* offset in the extent of the first wrong page; UINT64_MAX: none */
};
/* Never blocks. -EAGAIN: max_requests are in flight, reap first. -EINVAL: not aligned, outside the
 * extent, or no such generation. Otherwise the earlier error of the queue or of the store's flush.
 * After a negative return the request is not in the queue. */
int zinf_aio_submit(struct zinf_aio_queue *queue, struct zinf_aio_request *request);
/* Continues the transfers in flight and returns one finished request, or NULL. timeout_ns 0: does
 * not wait; UINT64_MAX: waits until one is finished (returns NULL at once if none is in flight).
 * result of the request may be an error. */
struct zinf_aio_request *zinf_aio_reap(struct zinf_aio_queue *queue, uint64_t timeout_ns);
uint32_t zinf_aio_in_flight(const struct zinf_aio_queue *queue);
/* Returns 0 or the queue's first error. message may be NULL; *message is valid until the queue is
 * destroyed. */
int zinf_aio_queue_error(const struct zinf_aio_queue *queue, const char **message);
/* The engine in use; never AUTO. */
enum zinf_aio_engine zinf_aio_queue_engine(const struct zinf_aio_queue *queue);

/* ---- blocking transfers: each call creates a queue, submits and waits; for setup, not for loops.
 * Without a generation: generation 0 ---- */
int zinf_store_read(struct zinf_store *store, zinf_extent extent, uint64_t offset, void *memory,
                    uint64_t bytes);
int zinf_store_write(struct zinf_store *store, zinf_extent extent, uint64_t offset,
                     const void *memory, uint64_t bytes);
int zinf_store_read_generation(struct zinf_store *store, zinf_extent extent, uint8_t generation,
                               uint64_t offset, void *memory, uint64_t bytes);
int zinf_store_write_generation(struct zinf_store *store, zinf_extent extent, uint8_t generation,
                                uint64_t offset, const void *memory, uint64_t bytes);

/* ---- what this machine has, for `zinf report` ---- */

/* Tries to create an io_uring: returns 0, or -errno, and *why says what refuses it (sysctl,
 * seccomp, kernel). */
int zinf_aio_uring_probe(const char **why);
/* Writes one paragraph about a folder's drive and file system into buffer: type, free bytes,
 * O_DIRECT, rotational, block device, request limits. */
int zinf_aio_describe_path(const char *path, char *buffer, size_t buffer_bytes);

#ifdef __cplusplus
}
#endif
#endif
