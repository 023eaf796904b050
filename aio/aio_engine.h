/*
 * aio_engine: the table behind which the engines stand, for files of aio/ only.
 *
 * The queue cuts requests into blocks and gives an engine at most queue_depth of them at a time.
 * An engine moves a block once and reports what the kernel said; it neither continues short
 * transfers nor repeats EAGAIN: that is the queue's business and so the same for every engine.
 * All calls come from the thread that owns the queue (create and register may come from another).
 * An engine around an engine (struct zinf_aio_around) owns the inner one and passes on what it does
 * not change; its table has no create.
 */
#ifndef ZINF_AIO_ENGINE_H
#define ZINF_AIO_ENGINE_H

#include "aio/aio.h"

#pragma GCC visibility push(hidden)

struct zinf_aio_file {
    char *path;
    int fd;
    bool direct;
    bool lasting; /* a store's: worth a slot in an engine's table of registered files */
    uint64_t id;  /* never used twice in a process, unlike fd */
};

/* One transfer: part of one request, in one file, contiguous in both memory and file. */
struct zinf_aio_block {
    struct zinf_aio_request *request;
    struct zinf_aio_file *file;
    char *memory;
    uint64_t offset;            /* in the file */
    uint32_t bytes;             /* still to move */
    uint64_t from, whole_bytes; /* what it was given to move, of the request's */
    enum zinf_aio_op op;
    int64_t result;         /* from the engine: bytes moved, or -errno */
    uint32_t repeats;       /* submissions that moved nothing since the last that did */
    uint64_t repeats_since; /* when the first of those came back, ns */
    int injected;           /* tests' fault engine: errno that stays with the block, or 0 */
    uint32_t cut_bytes;     /* the same: taken off bytes while the block is in the engine */
    bool read_again;        /* a failed read was repeated once */
    bool busy;              /* in the engine */
    struct zinf_aio_block *next;
};

struct zinf_aio_backend {
    const struct zinf_aio_engine_ops *ops;
};

struct zinf_aio_engine_ops {
    enum zinf_aio_engine engine;
    /* options have no zeros left in them. */
    int (*create)(struct zinf_aio_backend **out, const struct zinf_aio_queue_options *options);
    /* Nothing is in flight. */
    void (*destroy)(struct zinf_aio_backend *engine);
    int (*register_memory)(struct zinf_aio_backend *engine, void *base, uint64_t bytes);
    /* Takes a block into the batch. Cannot fail. */
    void (*stage)(struct zinf_aio_backend *engine, struct zinf_aio_block *block);
    /* Hands the batch over and never waits. A negative return means the engine is broken. */
    int (*flush)(struct zinf_aio_backend *engine);
    /* Flushes, waits up to timeout_ns for one block (0: only looks), and returns those that are
     * finished as a list in *done (NULL: none). A negative return means the engine is broken. */
    int (*collect)(struct zinf_aio_backend *engine, uint64_t timeout_ns,
                   struct zinf_aio_block **done);
};

extern const struct zinf_aio_engine_ops zinf_aio_uring_ops;
extern const struct zinf_aio_engine_ops zinf_aio_threads_ops;
extern const struct zinf_aio_engine_ops zinf_aio_null_ops;

/* "cannot write 4096 bytes at 8192 of PATH: No space left on device; 3 GiB free; remedy". */
void zinf_aio_describe_failure(char *buffer, size_t buffer_bytes,
                               const struct zinf_aio_block *block, int code);

/* Room in the file system behind path that this user may fill; UINT64_MAX when it cannot tell. */
uint64_t zinf_aio_free_bytes(const char *path);

#pragma GCC visibility pop
#endif
