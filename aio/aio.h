/*
 * aio: bytes between memory and drives. Knows nothing of models.
 *
 * A *store* is space on one or more drives: files of fixed size in a locked run folder, written
 * once at creation, removed when the store is destroyed, and reclaimed by the next run if their
 * owner died. An *extent* is a range of a store. A *queue* moves bytes between memory and
 * extents (or plain files); requests are given to it, and come back from it, in any order.
 *
 * Threads: a queue belongs to the thread that uses it; use one queue per thread. A store and an
 * open file may be shared by any number of queues and threads. The submit path takes no lock and
 * allocates nothing.
 *
 * Errors: every completion is checked. request->result is the bytes moved (all of them, unless a
 * read of a plain file meets its end) or -errno; a short transfer is continued, EINTR and EAGAIN
 * are repeated. A queue that saw an I/O error is sticky-failed: later submits return the same
 * error. zinf_aio_queue_error() has the sentence: path, offset, bytes, errno, free space.
 */
#ifndef ZINF_AIO_H
#define ZINF_AIO_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ZINF_AIO_ALIGN 4096 /* memory, offset and length of every direct transfer */

/* ---- files ---- */

struct zinf_aio_file;
enum zinf_aio_open_flags {
    ZINF_AIO_READ = 1,
    ZINF_AIO_WRITE = 2,
    ZINF_AIO_CREATE = 4,   /* with O_EXCL: never an existing file */
    ZINF_AIO_BUFFERED = 8, /* do not try O_DIRECT */
};
/* Opens for direct I/O where the file system can; else buffered, with one warning. */
int zinf_aio_open(struct zinf_aio_file **out, const char *path, unsigned flags);
void zinf_aio_close(struct zinf_aio_file *file);
uint64_t zinf_aio_file_bytes(const struct zinf_aio_file *file);
bool zinf_aio_file_direct(const struct zinf_aio_file *file);
/* Makes durable what completed before the call (fdatasync); blocks. After a failure what was
 * written may be lost, also if a second call succeeds. */
int zinf_aio_file_flush(struct zinf_aio_file *file);

/* ---- store ---- */

struct zinf_store;
struct zinf_aio_bench_rates;
struct zinf_store_options {
    const char *const *paths; /* folders, one per drive; must exist */
    int n_paths;              /* >= 1 */
    const char *label;        /* short word in the run folder's name, e.g. "state" */
    uint64_t stripe_bytes;    /* 0: 2 MiB; a multiple of ZINF_AIO_ALIGN */
    /* Stripes are shared out in proportion to the paths' bandwidth: [n_paths], in any unit; NULL:
     * equally, or as zinf_store_allocate measures by measure_path, which is done only where there
     * are several paths and at least a GiB. */
    const double *path_rates;
    /* zinf_aio_bench_path of drive_bench.h, which takes about a second a path; NULL: none is
     * measured. */
    int (*measure_path)(const char *path, uint64_t bytes, bool allow_memory_fs,
                        struct zinf_aio_bench_rates *rates);
    bool checksums;       /* keep a checksum of every 4096 bytes in RAM, a thousandth of the
                           * store, and compare it at every read; wrong twice: -EBADMSG */
    bool allow_memory_fs; /* tmpfs as a path is an error unless this is set (tests) */
    bool plan_only;       /* extents are counted; no path is touched, none need be given, and
                           * zinf_store_allocate refuses; queues of the null engine alone may
                           * be given requests of it */
    const uint8_t *run;   /* 16 bytes that name a training: the store outlives its process, see
                           * aio/steps.h; NULL: it does not */
    bool as_found;        /* only to look into what run left: its extents are taken from there, as
                           * one with two generations and one with one; -ENOENT: there is nothing;
                           * no folder is made or removed */
};
/* Takes and locks a run folder PATH/zinf-<label>-<pid>-<n>/ under every path, and reclaims run
 * folders whose owner is dead. -ENOENT, -EACCES, -EROFS, -EINVAL (tmpfs): message with remedy. */
int zinf_store_create(struct zinf_store **out, const struct zinf_store_options *options);
/* Removes the files and the run folders. NULL is allowed. No request may be in flight. */
void zinf_store_destroy(struct zinf_store *store);

typedef uint32_t zinf_extent; /* number of an extent in its store, from 0 */
/* Plans an extent of bytes (rounded up to ZINF_AIO_ALIGN). Before zinf_store_allocate only. */
int zinf_store_add_extent(struct zinf_store *store, uint64_t bytes, zinf_extent *out);
/* The same with two generations, 0 and 1: each has bytes of its own, in space and in checksums.
 * What a generation means is the caller's; a request names the one it moves. */
int zinf_store_add_extent_pair(struct zinf_store *store, uint64_t bytes, zinf_extent *out);
/* A stretch of a file that others own, in whole pages of ZINF_AIO_ALIGN; it may end behind the
 * file's end. */
struct zinf_store_span {
    uint32_t file;
    uint64_t offset, bytes;
};
/* Opens such a file, for as long as the store is there; *out is its number. */
int zinf_store_open_file(struct zinf_store *store, const char *path, uint32_t *out);
/* Plans an extent that is these stretches, one behind the other; copied. It is only read, takes no
 * space, and has one generation. With checksums a page that reads otherwise than at its first
 * reading fails: -ESTALE names the file. A store that is a plan only opens no files. */
int zinf_store_add_files_extent(struct zinf_store *store, const struct zinf_store_span *spans,
                                uint32_t n, zinf_extent *out);
/* What the planned extents need on all paths; and in RAM the checksums of so many bytes, at most.
 */
uint64_t zinf_store_planned_bytes(const struct zinf_store *store);
uint64_t zinf_store_sums_bytes(uint64_t bytes);
/* Checks free space on every path (-ENOSPC with needed, free and path before a byte is written),
 * creates the files at full length and writes them once, so that every later write is a pure
 * overwrite. Large: takes planned bytes / drive speed. The content is zeros. */
int zinf_store_allocate(struct zinf_store *store);
uint64_t zinf_store_extent_bytes(const struct zinf_store *store, zinf_extent extent);
/* 1 or 2; 0: there is no such extent. */
uint8_t zinf_store_generations(const struct zinf_store *store, zinf_extent extent);
/* Makes durable what completed before the call, on all paths at once (fdatasync); blocks. After a
 * failure the drive's content is not known: from then on this and every submit to the store
 * return the same error. */
int zinf_store_flush(struct zinf_store *store);

/* ---- queue ---- */

enum zinf_aio_engine {
    ZINF_AIO_ENGINE_AUTO,    /* io_uring, else threads; says once why */
    ZINF_AIO_ENGINE_URING,   /* error where the kernel or the container refuses it */
    ZINF_AIO_ENGINE_THREADS, /* pread/pwrite on worker threads */
    ZINF_AIO_ENGINE_NULL,    /* moves nothing, completes at once: for measuring the runtime */
};
const char *zinf_aio_engine_name(enum zinf_aio_engine engine);

/* An engine around the engine, for tests and benches of zinf itself: wrap replaces *engine by one
 * that owns it (aio/aio_engine.h). Options have no zeros left in them. */
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
    uint32_t n_threads;               /* THREADS engine: workers; 0: min(queue_depth, 8) */
    bool single_submit;               /* one system call per block (DeepSpeed's key) */
    bool sqpoll;                      /* io_uring: a kernel thread submits */
    uint32_t max_requests;            /* requests that may be in flight at once; 0: 256 */
    struct zinf_aio_around around[2]; /* the inner one first; wrap NULL: none */
};
struct zinf_aio_queue;
int zinf_aio_queue_create(struct zinf_aio_queue **out,
                          const struct zinf_aio_queue_options *options);
/* Waits for what is in flight, then frees. NULL is allowed. */
void zinf_aio_queue_destroy(struct zinf_aio_queue *queue);
/* Pins memory for io_uring (fixed buffers); a refusal (memlock limit) is said once and is no
 * error. base and bytes aligned; call before the first submit. */
int zinf_aio_queue_register(struct zinf_aio_queue *queue, void *base, uint64_t bytes);

enum zinf_aio_op {
    ZINF_AIO_OP_READ,
    ZINF_AIO_OP_WRITE,
};
/* The caller owns a request and the memory it names until it comes back from the queue. Set the
 * first group; the rest belongs to the queue. Exactly one of file and store is set. */
struct zinf_aio_request {
    enum zinf_aio_op op;
    struct zinf_aio_file *file;
    struct zinf_store *store;
    zinf_extent extent;
    uint8_t generation; /* of the extent: 0, or 1 in one that has two */
    uint64_t offset;    /* in the file, or in the extent; aligned */
    uint64_t bytes;     /* > 0; aligned */
    void *memory;       /* aligned */
    int priority;       /* higher goes first; a demand read overtakes queued prefetch */
    void *user;         /* the caller's */

    int64_t result; /* bytes, or -errno */
    uint64_t begin_ns, end_ns;
    struct zinf_aio_request *next; /* the queue's */
    uint64_t issued_bytes, done_bytes;
    uint32_t blocks_in_flight;
    uint32_t attempts;   /* whole reads repeated after a wrong checksum */
    uint64_t bad_offset; /* of the first page with one, in the extent; UINT64_MAX: none */
};
/* Never blocks. -EAGAIN: max_requests are in flight, reap first. -EINVAL: not aligned, out of
 * the extent, a generation that it does not have. Else the sticky error, the queue's or that of
 * the store's flush. On a negative return the request did not enter the queue. */
int zinf_aio_submit(struct zinf_aio_queue *queue, struct zinf_aio_request *request);
/* Makes progress and returns one finished request, or NULL. timeout_ns 0: only looks;
 * UINT64_MAX: waits until one finishes (NULL at once if none is in flight). A finished request
 * may carry an error in result. */
struct zinf_aio_request *zinf_aio_reap(struct zinf_aio_queue *queue, uint64_t timeout_ns);
uint32_t zinf_aio_in_flight(const struct zinf_aio_queue *queue);
/* 0, or the sticky error; *message (may be NULL) is valid until the queue is destroyed. */
int zinf_aio_queue_error(const struct zinf_aio_queue *queue, const char **message);
/* The engine in use, after AUTO was resolved. */
enum zinf_aio_engine zinf_aio_queue_engine(const struct zinf_aio_queue *queue);

/* ---- one call: submits and waits. Own queue per call; for set-up code, not for loops.
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

/* Probes with one real ring: 0, or -errno and *why says who refuses (sysctl, seccomp, kernel). */
int zinf_aio_uring_probe(const char **why);
/* One paragraph on a folder's drive and file system (type, free bytes, O_DIRECT, rotational,
 * block device, request limits), written into buffer. */
int zinf_aio_describe_path(const char *path, char *buffer, size_t buffer_bytes);

#ifdef __cplusplus
}
#endif
#endif
