/* aio_queue: the queue's own state, for aio_queue.c and its test. */
#ifndef ZINF_AIO_QUEUE_H
#define ZINF_AIO_QUEUE_H

#include "aio/aio_engine.h"
#include "aio/aio_store.h"

#pragma GCC visibility push(hidden)

struct waiting {
    struct zinf_aio_request *request;
    uint64_t age;
};

/* Pages whose checksums are to be computed (a write has begun) or compared (a read has ended). */
struct summing {
    struct zinf_aio_request *request;
    uint64_t from, bytes; /* range of the request */
};

struct zinf_aio_queue {
    /* zeros replaced by defaults; engine is the one in use */
    struct zinf_aio_queue_options options;
    struct zinf_aio_backend *engine;
    struct zinf_aio_block *blocks; /* [queue_depth] */
    struct zinf_aio_block *free_blocks;
    uint32_t blocks_in_flight;
    /* [2 * queue_depth]: room for the reads that ended and the writes that began after them */
    struct summing *summing;
    uint32_t n_summing; /* 0 whenever a call returns to the caller */
    /* [max_requests] heap of requests of which blocks are still to be issued */
    struct waiting *waiting;
    uint32_t n_waiting;
    uint64_t next_age;
    /* list of requests that ended and were not reaped */
    struct zinf_aio_request *finished, *finished_last;
    uint32_t n_requests;  /* submitted and not reaped */
    uint64_t quiet_since; /* when a block last finished */
    bool broken;          /* the engine itself failed */
    int error;
    char message[1024];
};

#pragma GCC visibility pop
#endif
