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

/* Pages that have just begun to be written, to be summed, or have just been read, to be compared.
 */
struct summing {
    struct zinf_aio_request *request;
    uint64_t from, bytes; /* of the request's */
};

struct zinf_aio_queue {
    struct zinf_aio_queue_options options; /* without zeros; engine is the one in use */
    struct zinf_aio_backend *engine;
    struct zinf_aio_block *blocks; /* [queue_depth] */
    struct zinf_aio_block *free_blocks;
    uint32_t blocks_in_flight;
    struct summing *summing; /* [2 * queue_depth]: all that were read, and those that follow them */
    uint32_t n_summing;      /* 0 whenever the caller has control */
    struct waiting *waiting; /* [max_requests] heap of requests not wholly issued */
    uint32_t n_waiting;
    uint64_t next_age;
    struct zinf_aio_request *finished, *finished_last; /* not yet reaped */
    uint32_t n_requests;                               /* submitted and not yet reaped */
    uint64_t quiet_since;                              /* when a block last finished */
    bool broken;                                       /* the engine itself failed */
    int error;
    char message[1024];
};

#pragma GCC visibility pop
#endif
