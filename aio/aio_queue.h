/* aio_queue: the queue's own state, shared by aio_queue.c (flow) and aio_block.c (outcomes). */
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

/* aio_heap.c; pop takes the first, waiting[0]. */
void aio_heap_push(struct zinf_aio_queue *queue, struct zinf_aio_request *request);
void aio_heap_pop(struct zinf_aio_queue *queue);
/* Judges what the engine says of a block: ends it, submits the rest, or fails its request. */
void zinf_aio_block_done(struct zinf_aio_queue *queue, struct zinf_aio_block *block);
/* Gives the block back; finishes its request if that was the last. */
void zinf_aio_block_end(struct zinf_aio_queue *queue, struct zinf_aio_block *block);
/* Fails the block's request and, for good, the queue. */
void zinf_aio_block_fail(struct zinf_aio_queue *queue, const struct zinf_aio_block *block,
                         int code);
/* A part of the request is with the engine, or waits for its sums, no longer. */
void zinf_aio_part_end(struct zinf_aio_queue *queue, struct zinf_aio_request *request);

/* aio_sums.c: the block's pages are to be summed, of a write that begins or a read that ended well;
 * false: they are not. A read's part ends when they were compared. */
bool zinf_aio_sum_later(struct zinf_aio_queue *queue, const struct zinf_aio_block *block);
/* Sums and compares what has been put off; whatever waits to be moved was handed over before. */
void zinf_aio_sum_due(struct zinf_aio_queue *queue);
/* Judges a finished request by what the comparing found. False: it was made ready to be read once
 * more. A second mismatch fails it. */
bool zinf_aio_request_judge(struct zinf_aio_queue *queue, struct zinf_aio_request *request);

#pragma GCC visibility pop
#endif
