/*
 * net: moves bytes between the ranks of a training. A *net* is one rank's end of it. An engine
 * provides one operation, an exchange of messages with all other ranks at once; the collectives
 * here are made of it. So results have the same bits over every engine. Sums are made by the
 * receiver, in a fixed tree over the ranks.
 *
 * Engine threads: ranks are threads of one process (its devices, or seats). It is also for tests,
 * and is the specification.
 *
 * Engine mpi: ranks are processes started by mpirun or srun. It is a module that is loaded at run
 * time.
 *
 * Engine tcp: ranks are processes started by torchrun or deepspeed, without an MPI.
 *
 * GPUs with a fast connection also have a *link*, which moves device memory by NCCL.
 *
 * All ranks make the same calls with the same sizes in the same order. A call blocks until this
 * rank's part of it is done. It fails with -ECONNABORTED if another rank has failed, and with
 * -ETIMEDOUT if one has given no sign of life for the time limit; the message names the rank, and
 * the net stays failed. Signs of life are bytes that arrive, and beats of the other rank's pulse
 * (base/pulse.h): a rank may work for any time if its pulse beats. If another rank fails while
 * this one works, this rank's pulse ends.
 *
 * One thread may use a net at a time, and different threads may take turns. Memory is the
 * caller's, borrowed for the call. Errors: -errno, with a sentence in zinf_error().
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

/* Creates the nets of world ranks of this process: out[world], each for a thread of its own. */
int zinf_net_threads_create(struct zinf_net **out, uint32_t world);
/* Creates the nets of n_seats ranks of this process. between: this process's net to other processes
 * with as many seats each, which is checked; NULL: there are none. It is borrowed until all nets
 * made here and split of them are closed, and must not be used by others meanwhile. Ranks are
 * numbered by process, then by seat. */
int zinf_net_seats_create(struct zinf_net **out, uint32_t n_seats, struct zinf_net *between);
/* Takes part in that check as a process that is one rank by itself. */
int zinf_net_compare_seats(struct zinf_net *between, uint32_t n_seats);
/* Number of ranks that a launcher of an MPI has started; 1: none has. */
uint32_t zinf_net_launched(void);
/* Which of the processes this is that a launcher of an MPI, torchrun or deepspeed started, by the
 * environment. Loads nothing. False: there are no others. */
bool zinf_net_launched_as(uint32_t *rank, uint32_t *world);
/* Opens the net of this process, which is one rank. All ranks must come within `seconds`. *out
 * NULL: the process is alone. -ENOTSUP: the ranks are of an MPI and there is no module for it, or
 * some of torchrun's variables are missing. */
int zinf_net_open(struct zinf_net **out, double seconds);
/* Why an MPI cannot be used here, as a sentence, or NULL. */
const char *zinf_net_mpi_why_not(void);
/* Creates a net that has a place but exchanges nothing (-ENOTSUP), for plans. Each host has
 * local_world of the ranks, and each process `seats`. */
int zinf_net_describe(struct zinf_net **out, uint32_t world, uint32_t local_world, uint32_t seats);
bool zinf_net_is_described(const struct zinf_net *net);
/* Makes a net of the ranks that give the same colour, ordered by key, then by their rank in this
 * net; *out is NULL for ZINF_NET_NO_COLOUR. All ranks of this net must call it. Two threads of a
 * rank may use two nets at the same time if they are of one split, or if their ranks have at most
 * one member in common; a net and its parent may not. Nets may be closed in any order that is the
 * same on all ranks. A failure of one of them fails all. */
#define ZINF_NET_NO_COLOUR UINT32_MAX
int zinf_net_split(struct zinf_net *net, uint32_t colour, uint32_t key, struct zinf_net **out);
/* Closes the net. All ranks must call it unless the net has failed. NULL is allowed. */
void zinf_net_close(struct zinf_net *net);

/* The number of this rank among all, among the ranks of this host (local), and in this process
 * (seat). */
struct zinf_net_place {
    uint32_t rank, world, local_rank, local_world, seat, seats;
};
struct zinf_net_place zinf_net_place(const struct zinf_net *net);
/* The engine's name: "threads", or a library's name and version. */
const char *zinf_net_name(const struct zinf_net *net);
/* The pulse of this rank: that of the thread that opened the net; each seat has its own. */
struct zinf_pulse *zinf_net_pulse(const struct zinf_net *net);
/* Sets the time limit, > 0, of all open nets that belong together by zinf_net_split. */
void zinf_net_set_timeout(struct zinf_net *net, double seconds);
double zinf_net_timeout(const struct zinf_net *net);
/* Memory that a rank's net takes for sums of slices of up to slice_elems elements, for pieces of
 * other ranks' parts: none where all ranks are in one memory, and read them where they are. */
uint64_t zinf_net_sum_bytes(const struct zinf_net *net, uint64_t slice_elems);
/* The bytes that this rank has sent so far. */
uint64_t zinf_net_sent_bytes(const struct zinf_net *net);
/* Of the sent bytes, those that were not copied: others read them in this rank's memory. */
uint64_t zinf_net_lent_bytes(const struct zinf_net *net);

/* ---- collectives ---- */

/* All-gather: fills whole [world][slice_bytes] with the slices of all ranks. slice may be its own
 * place in whole. */
int zinf_net_gather(struct zinf_net *net, const void *slice, void *whole, uint64_t slice_bytes);
/* All-gather without copies, for ranks in one memory (zinf_net_lends): sets slices [world] to the
 * ranks' own slices. They may be read until zinf_net_return, which must be the next call and
 * returns when no rank uses this one's slice any more. After a failed
 * zinf_net_lend there is nothing to return. */
bool zinf_net_lends(const struct zinf_net *net);
int zinf_net_lend(struct zinf_net *net, const void *slice, uint64_t slice_bytes,
                  const void **slices);
int zinf_net_return(struct zinf_net *net);
/* Reduce-scatter: sets slice [slice_elems] to the sum over all ranks of part `rank` of whole
 * [world][slice_elems], in fp32, in the order of zinf_tree_sum. whole is overwritten. slice may be
 * this rank's part of it. */
int zinf_net_scatter_sum(struct zinf_net *net, float *whole, float *slice, uint64_t slice_elems);
/* Whether the seats of a process add their parts before they send them to other processes. */
bool zinf_net_adds_first(const struct zinf_net *net);
/* Replaces n numbers by their sums over all ranks, which must not overflow, or by their maxima. n
 * is at most ZINF_NET_MOST_NUMBERS. */
#define ZINF_NET_MOST_NUMBERS 256
int zinf_net_add(struct zinf_net *net, int64_t *numbers, uint32_t n);
int zinf_net_max(struct zinf_net *net, int64_t *numbers, uint32_t n);
/* All-to-all: sends out[r] of out_bytes[r] to rank r, and receives in[r] of in_bytes[r] from it,
 * which that rank must state alike; 0: no message. The entries of this rank are not used. Arrays
 * have [world] entries. */
struct zinf_net_trade {
    void *const *out, *const *in;
    const uint64_t *out_bytes, *in_bytes;
};
int zinf_net_trade(struct zinf_net *net, const struct zinf_net_trade *trade);
int zinf_net_broadcast(struct zinf_net *net, uint32_t root, void *data, uint64_t bytes);
int zinf_net_barrier(struct zinf_net *net);

/* A number that must be the same on all ranks, and what it stands for, such as "model". */
struct zinf_net_fact {
    const char *what;
    uint64_t sum;
};
/* -EINVAL on every rank if a fact differs from rank 0's; the message names it. */
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
 * NCCL only moves bytes: it adds in an order of its own, which depends on the number of ranks, on
 * sizes and on its version. So sums are made by who receives, in the tree of zinf_tree_sum. */

struct zinf_link;
struct zinf_queue;
struct zinf_event;

/* A rank's GPU: the queue on which the link enqueues, and what it calls of the device. */
struct zinf_link_device {
    struct zinf_queue *queue;
    /* The CUDA stream of a queue. The call makes the queue's GPU the calling thread's. */
    void *(*stream)(struct zinf_queue *queue);
    /* 1: everything that was enqueued has ended; 0: not yet. */
    int (*poll)(struct zinf_queue *queue);
    /* Waits until the queue's GPU is idle, including NCCL's own streams. */
    int (*finish)(struct zinf_queue *queue);
    int (*add)(struct zinf_queue *queue, float *sum, const float *part, uint64_t n);
    int (*copy)(struct zinf_queue *queue, void *to, const void *from, uint64_t bytes);
    /* A second queue of the GPU, on which parts are added while the next parts arrive; NULL: both
     * on one queue. Each half of the scratch then has two events: its parts have arrived, and its
     * parts are added. record and wait use them. */
    struct zinf_queue *sums;
    struct zinf_event *came[2], *added[2];
    int (*record)(struct zinf_queue *queue, struct zinf_event *event);
    int (*wait)(struct zinf_queue *queue, struct zinf_event *event);
    double seconds; /* time limit for NCCL's start once all ranks have come to it; 0: the net's */
};
/* Why NCCL cannot be used here, as a sentence, or NULL. */
const char *zinf_link_why_not(void);
/* Version and file of the NCCL in use, such as "NCCL 2.28.3 (/usr/lib/libnccl.so.2)"; NULL: none.
 */
const char *zinf_link_found(void);
/* Creates the link of a net, which it uses until it is closed. All ranks must call it, each in its
 * GPU's thread. -ENOTSUP: a rank has no NCCL. */
int zinf_link_create(struct zinf_link **out, struct zinf_net *net,
                     const struct zinf_link_device *device);
/* All ranks must call it, unless the link has failed. NULL is allowed. */
void zinf_link_close(struct zinf_link *link);
/* Bytes that were sent to other GPUs so far. */
uint64_t zinf_link_sent_bytes(const struct zinf_link *link);

/* All-gather of device memory: fills whole with the slices of all ranks in order, of slice_bytes
 * [world]. slice may be its own place in whole. */
int zinf_link_gather(struct zinf_link *link, const void *slice, void *whole,
                     const uint64_t *slice_bytes);
/* Reduce-scatter of device memory with the bits of zinf_net_scatter_sum. scratch receives pieces of
 * the other ranks' parts and has at least zinf_link_scratch_bytes(world, 1) bytes. */
struct zinf_link_scratch {
    void *memory;
    uint64_t bytes;
};
int zinf_link_scatter_sum(struct zinf_link *link, float *whole, float *slice, uint64_t slice_elems,
                          const struct zinf_link_scratch *scratch);
/* Bytes of scratch above which more is of no use. */
uint64_t zinf_link_scratch_bytes(uint32_t world, uint64_t slice_elems);

/* ---- failure ---- */

/* Says that this rank cannot go on. The other ranks' calls then fail with its number and this
 * sentence, or with those of a rank that failed earlier, on all nets that belong together by
 * zinf_net_split. So do calls of this rank's other threads. Only the first call has an effect. */
void zinf_net_tell(struct zinf_net *net, const char *sentence);

/* ---- the order of sums ---- */

/* Adds n arrays of elems numbers into parts[0], as a binary tree: first pairs of neighbours, then
 * pairs of their sums; an array without a neighbour waits for the next level. 2^k arrays from a
 * multiple of 2^k on are a subtree, so their sum may be made elsewhere with the same bits. All
 * arrays are overwritten. */
void zinf_tree_sum(float *const *parts, uint32_t n, uint64_t elems);

#ifdef __cplusplus
}
#endif
#endif
