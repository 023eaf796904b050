/*
 * net: bytes between the ranks of a training. A *net* is one rank's end of it. Collectives are made
 * here, once, of the one operation that an engine provides: an exchange of messages with the other
 * ranks, all at once. So their results do not depend on the engine, to the last bit: sums are made
 * by the receiver in a fixed tree over the ranks.
 *
 *   threads  ranks are threads of one process: its seats; also for tests, and the specification
 *   mpi      ranks are processes that mpirun or srun started; a module, loaded at run time
 *   tcp      ranks are processes that torchrun or deepspeed started, who bring no MPI
 *
 * GPUs with a fast way between them have a *link* beside the net: device memory, by NCCL.
 *
 * All ranks make the same calls with the same sizes in the same order. A call blocks until this
 * rank's part of it is done, or a rank has failed, or has given no sign of life for the time limit:
 * then it is -ECONNABORTED or -ETIMEDOUT, the sentence names the rank, and the net stays failed.
 * A sign of life is a byte, or a beat of the rank's pulse (base/pulse.h), which the net tells the
 * others of: so work may take as long as it likes if it beats. Where another rank fails meanwhile,
 * the pulse ends.
 *
 * A net is used by one thread at a time, not always the same. Memory is the caller's, borrowed for
 * the call. Errors: -errno and a sentence.
 */
#ifndef ZINF_NET_H
#define ZINF_NET_H

#include "base/pulse.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ZINF_NET_MOST_RANKS 1024
#define ZINF_NET_TIMEOUT_SECONDS 120

struct zinf_net;

/* ---- life ---- */

/* One end a rank, all in this process: out[world], each for a thread of its own. */
int zinf_net_threads_create(struct zinf_net **out, uint32_t world);
/* The same for seats: each of this process's is a rank. between is this process's end of a net of
 * processes with as many seats each, which it compares; NULL: there are no others. It is borrowed
 * until the last end, and of what is split of them, is closed, used by one thread at a time, and
 * must not be used beside the ends. Ranks are in the order of processes, then of seats. */
int zinf_net_seats_create(struct zinf_net **out, uint32_t n_seats, struct zinf_net *between);
/* What that compares first: for a process that is one rank by itself. */
int zinf_net_compare_seats(struct zinf_net *between, uint32_t n_seats);
/* How many ranks an MPI's launcher says there are; 1 where none started this process. */
uint32_t zinf_net_launched(void);
/* Which of the processes this is that an MPI's launcher, torchrun or deepspeed started, by what
 * they say, for what one process does alone; false: there are no others. Nothing is loaded. */
bool zinf_net_launched_as(uint32_t *rank, uint32_t *world);
/* The end of the rank that this process is; all must come within so many seconds. *out NULL: the
 * process is alone. -ENOTSUP where there are others of an MPI and no module, or where torchrun's
 * variables are not all there. */
int zinf_net_open(struct zinf_net **out, double seconds);
/* Why processes of one MPI cannot be ranks here, or NULL: what a report says. */
const char *zinf_net_mpi_why_not(void);
/* One that is only thought of, for plans: it has a place, and exchanges nothing (-ENOTSUP). Of
 * world ranks as many on each host, of these as many in each process. */
int zinf_net_describe(struct zinf_net **out, uint32_t world, uint32_t local_world, uint32_t seats);
bool zinf_net_is_described(const struct zinf_net *net);
/* *out: a net of those ranks of this one that say the same colour, in the order of their keys, then
 * of their ranks; NULL for those that say ZINF_NET_NO_COLOUR. All ranks of this net call together.
 * Nets of one split, or of two that have at most one rank in common with each other, may be used at
 * the same time, by a thread of this rank each; this one and those not. They are closed in any
 * order, which is the same on all ranks. What one of them fails of, all are told. */
#define ZINF_NET_NO_COLOUR UINT32_MAX
int zinf_net_split(struct zinf_net *net, uint32_t colour, uint32_t key, struct zinf_net **out);
/* Ends it in order where it has not failed: all ranks close. NULL is allowed. */
void zinf_net_close(struct zinf_net *net);

/* Of world ranks this is number rank; local: among those on this host; seat: in this process. */
struct zinf_net_place {
    uint32_t rank, world, local_rank, local_world, seat, seats;
};
struct zinf_net_place zinf_net_place(const struct zinf_net *net);
/* "threads", or the library's name and version. */
const char *zinf_net_name(const struct zinf_net *net);
/* The pulse of this rank: that which the thread has that opens the net; each seat's its own. */
struct zinf_pulse *zinf_net_pulse(const struct zinf_net *net);
/* From here on, of it and all that was split with it; > 0. */
void zinf_net_set_timeout(struct zinf_net *net, double seconds);
double zinf_net_timeout(const struct zinf_net *net);
/* Memory that a net of so many ranks takes, and what this one has sent so far. */
uint64_t zinf_net_memory_bytes(uint32_t world);
uint64_t zinf_net_sent_bytes(const struct zinf_net *net);
/* Of those, what others have used where this rank has it. */
uint64_t zinf_net_lent_bytes(const struct zinf_net *net);

/* ---- collectives ---- */

/* All-gather: whole [world][slice_bytes] of every rank's slice. slice may be its place in whole. */
int zinf_net_gather(struct zinf_net *net, const void *slice, void *whole, uint64_t slice_bytes);
/* The same without copies, where all ranks are in one memory: slices [world] is where each has its
 * own, until zinf_net_return, which comes before any other call and returns when all ranks are done
 * with this one's. After a failure nothing is lent. */
bool zinf_net_lends(const struct zinf_net *net);
int zinf_net_lend(struct zinf_net *net, const void *slice, uint64_t slice_bytes,
                  const void **slices);
int zinf_net_return(struct zinf_net *net);
/* Reduce-scatter: slice [slice_elems], the sum over all ranks of that part of whole
 * [world][slice_elems] which has this rank's number. Each element is a sum by the tree of
 * zinf_tree_sum, in fp32. whole is overwritten; slice may be this rank's part of it. */
int zinf_net_scatter_sum(struct zinf_net *net, float *whole, float *slice, uint64_t slice_elems);
/* Whether seats of a process add up what they have before it crosses to other processes. */
bool zinf_net_adds_first(const struct zinf_net *net);
/* Of n numbers, in place, the same for all ranks: their sums, which must not overflow, or the
 * largest. n at most ZINF_NET_MOST_NUMBERS. */
#define ZINF_NET_MOST_NUMBERS 256
int zinf_net_add(struct zinf_net *net, int64_t *numbers, uint32_t n);
int zinf_net_max(struct zinf_net *net, int64_t *numbers, uint32_t n);
/* All-to-all: out[r] of out_bytes[r] goes to rank r, in[r] of in_bytes[r] comes from it, as that
 * rank says too; 0 bytes: nothing. What is this rank's own stays where it is. [world] each. */
struct zinf_net_trade {
    void *const *out, *const *in;
    const uint64_t *out_bytes, *in_bytes;
};
int zinf_net_trade(struct zinf_net *net, const struct zinf_net_trade *trade);
int zinf_net_broadcast(struct zinf_net *net, uint32_t root, void *data, uint64_t bytes);
int zinf_net_barrier(struct zinf_net *net);

/* What must be the same on all ranks: "model" and a number that stands for it. */
struct zinf_net_fact {
    const char *what;
    uint64_t sum;
};
/* -EINVAL on every rank where one differs from rank 0: the message names it and what differs. */
int zinf_net_compare(struct zinf_net *net, const struct zinf_net_fact *facts, uint32_t n);

/* ---- device memory ----
 *
 * A *link* is what the GPUs of a net's ranks send to each other by, without their hosts: NCCL,
 * which is loaded at run time (libnccl.so.2; ZINF_NCCL_LIBRARY names another). Its memory is the
 * GPU's. All ranks make the same calls in the same order, each with its GPU's own thread. Before a
 * call they meet over the net, and so hear who is late, has failed or is at another step; while it
 * runs they go on listening to the net. What goes wrong on the GPUs alone ends within the net's
 * time limit too, and a rank that is gone is named. A call blocks until this rank's part of it has
 * run. A link that has failed stays so, and its net with it.
 *
 * NCCL only moves bytes: it adds in an order of its own, which hangs on the number of ranks, on
 * sizes and on its version. So sums are made by who receives, in the tree of zinf_tree_sum. */

struct zinf_link;
struct zinf_queue;
struct zinf_event;

/* One rank's GPU: the queue that a link enqueues on, and what it asks of that. */
struct zinf_link_device {
    struct zinf_queue *queue;
    /* The CUDA stream; its GPU becomes the calling thread's. */
    void *(*stream)(struct zinf_queue *queue);
    /* 1: all that was enqueued has run; 0: not yet. */
    int (*poll)(struct zinf_queue *queue);
    /* Waits until the queue's GPU does nothing, NCCL's own streams too. */
    int (*finish)(struct zinf_queue *queue);
    int (*add)(struct zinf_queue *queue, float *sum, const float *part, uint64_t n);
    int (*copy)(struct zinf_queue *queue, void *to, const void *from, uint64_t bytes);
    /* Another queue of the GPU, for sums that are made while the next parts come; NULL: they are
     * made in the first one. With it events, of which each half of the scratch has two: its parts
     * have come, they are added; and what they are recorded and awaited by. */
    struct zinf_queue *sums;
    struct zinf_event *came[2], *added[2];
    int (*record)(struct zinf_queue *queue, struct zinf_event *event);
    int (*wait)(struct zinf_queue *queue, struct zinf_event *event);
    double seconds; /* for NCCL to begin, once all have come to it; 0: the net's limit */
};
/* Why there is no NCCL here that can be used, or NULL. */
const char *zinf_link_why_not(void);
/* The one that is used, and its file: "NCCL 2.28.3 (/usr/lib/libnccl.so.2)"; NULL: there is none.
 */
const char *zinf_link_found(void);
/* Of all ranks of a net, which it uses until it is closed, in the thread that calls. -ENOTSUP where
 * a rank has no NCCL. */
int zinf_link_create(struct zinf_link **out, struct zinf_net *net,
                     const struct zinf_link_device *device);
/* All ranks close; one that has failed leaves the others' alone. NULL is allowed. */
void zinf_link_close(struct zinf_link *link);
/* To other GPUs, so far. */
uint64_t zinf_link_sent_bytes(const struct zinf_link *link);

/* All-gather: whole is all ranks' slices, of slice_bytes [world] each, in their order; slice may be
 * its place there. */
int zinf_link_gather(struct zinf_link *link, const void *slice, void *whole,
                     const uint64_t *slice_bytes);
/* Reduce-scatter, as zinf_net_scatter_sum. In scratch come the others' parts, a piece of each at a
 * time: at least zinf_link_scratch_bytes(world, 1). */
struct zinf_link_scratch {
    void *memory;
    uint64_t bytes;
};
int zinf_link_scatter_sum(struct zinf_link *link, float *whole, float *slice, uint64_t slice_elems,
                          const struct zinf_link_scratch *scratch);
/* So much as is of use. */
uint64_t zinf_link_scratch_bytes(uint32_t world, uint64_t slice_elems);

/* ---- failure ---- */

/* This rank cannot go on: the others' calls fail with its number and this sentence, or with those
 * of a rank that has failed before it; of all nets that were split of this one, or with it. Once.
 * Calls of this rank's other threads on those nets fail too. */
void zinf_net_tell(struct zinf_net *net, const char *sentence);

/* ---- the order of sums ---- */

/* parts[0] += all others of n arrays of elems numbers, pairs of neighbours first, then pairs of
 * those; what has no neighbour waits. A part of 2^k neighbours, cut at a multiple of 2^k, is a
 * subtree: its sum does not depend on who makes it. All parts are overwritten. */
void zinf_tree_sum(float *const *parts, uint32_t n, uint64_t elems);

#ifdef __cplusplus
}
#endif
#endif
