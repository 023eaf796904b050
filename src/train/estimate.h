/*
 * estimate: what a training will take, without taking it: the plan that the training would make,
 * and its step simulated by rates that are measured, stated or guessed. Any thread; what a call
 * returns is the caller's. Errors: -errno and a sentence.
 */
#ifndef ZINF_ESTIMATE_H
#define ZINF_ESTIMATE_H

#include "train/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a machine does in a second; 0: not known, and a stated default is taken. */
struct zinf_speeds {
    double device_flops;                        /* of matrix products */
    double device_bytes;                        /* of the device's memory, read and written */
    double link_bytes;                          /* between host and device, each way */
    double drive_read_bytes, drive_write_bytes; /* alone */
    double drive_mixed_bytes;                   /* read and written together, half and half */
    double optimizer_bytes;                     /* that an update reads and writes */
    double host_flops; /* of the CPU's products in fp32, which updates of matrices make */
    double net_bytes;  /* of a host's network, each way */
    double root_bytes; /* between a host's RAM and all of its devices at once, each way */
    /* From a GPU to others of its host and back at once, while all do so; 0: they have no fast way
     * to each other. */
    double peer_bytes;
};
/* A machine that need not be here: nothing of the one that runs is looked at then. */
struct zinf_described_machine {
    const char *name;
    uint64_t gpu_bytes; /* memory of its GPU; 0: there is none */
    int capability;     /* of that: 90 = 9.0; 0: of a current one */
    uint64_t ram_bytes;
    int n_threads;
};
/* Seconds a unit of work of each kind of operation, and the speed of reads and writes beside each
 * other as a share of theirs alone. Measured ones belong to a machine and a number type. */
#define ZINF_RATE_KINDS 160
struct zinf_rates {
    double seconds[ZINF_RATE_KINDS];
    double read_beside_write, write_beside_read;
    double steps_apart; /* of the steps that were measured, the slowest over the fastest; 0: none */
    /* The drive's time in a training's recent steps, divided by its time by these rates: the least
     * and the largest; 0: not known. */
    double drive_least, drive_most;
};
/* Trains a few steps of the model with two blocks on the tiers that the options name, and says
 * what that took: about 20 s for a model of a billion parameters. Memory and room on the drive for
 * those two blocks and the table are needed. */
int zinf_rates_measure(struct zinf_rates *out, const struct zinf_trainer_options *options);

/* Of a rank in a pipeline: how many layers it has, the embedding and the head being one each, what
 * its lanes do, which of them is busy longest, what a step would take that waited for no other
 * rank, and how much longer all take together. */
struct zinf_pipe_rank {
    uint32_t layers;
    int bottleneck;
    double lane_seconds[8], alone_seconds, bubble_seconds;
    uint64_t bytes[3]; /* device, host, drive */
};

struct zinf_estimate_options {
    struct zinf_trainer_options trainer; /* of a training; mode and init are implied */
    const struct zinf_rates *rates;      /* NULL: from speeds */
    struct zinf_speeds speeds;
    double device_factor, drive_factor; /* so many times as fast; 0: 1 */
    /* Ranks, so many on each host, that share its speeds, RAM and threads; 0: 1. The estimate is of
     * one of them, but for the tokens. */
    uint32_t ranks, local_ranks;
    /* Of those on a host so many seats of one process; 0: 1. */
    uint32_t seats;
    /* What the configuration leaves open is as in that estimate, and not searched. NULL: it is. */
    const struct zinf_estimate *like;
    /* [ranks in a pipeline]: filled with what each of them does; NULL: nobody asks. */
    struct zinf_pipe_rank *pipe;
    FILE *plan;        /* the ledger is printed there; NULL: it is not */
    const char *trace; /* the predicted step as a Chrome trace; NULL: none */
};
struct zinf_estimate {
    uint64_t params, tokens;      /* tokens a step */
    uint64_t bytes[3], budget[3]; /* device, host, drive; UINT64_MAX: no limit */
    uint64_t host_limit; /* of the host's budget: what filling leaves to the system is not in it */
    uint64_t pinned;     /* of the host bytes: what transfers work on */
    bool ram_is_shared;  /* device and host bytes are one machine's RAM */
    double step_seconds;
    /* read, write (drive), to the device, to the host, device, host (CPU), to other ranks: busy,
     * and moved */
    double lane_seconds[8];
    uint64_t lane_bytes[8];
    int bottleneck;            /* lane */
    double drive_seconds;      /* while the drive reads or writes */
    double model_flops;        /* a step's forward and backward, nothing computed twice */
    double matrix_flops;       /* a second, of matrix products by the rates */
    double update_flops;       /* of a step's updates, on this rank's CPU */
    struct zinf_speeds speeds; /* known ones and assumed ones; not those of given rates */
    char schedule[32], device[96];
    /* Of ranks in a pipeline: how many, and how long the one that has most to do waits in a step
     * for values and gradients of the others, which is in step_seconds: the ranks' programs are
     * simulated together. Bytes are the most of any, lanes those of that one. */
    uint32_t pipe_ranks;
    double bubble_seconds;
    /* Of ranks that share matrices: how many, and what of a step is theirs: bytes that this rank
     * adds up with the others, those that it sends them for that, and the time of it, which is the
     * device's, too. */
    uint32_t tensor_ranks;
    double tensor_bytes, tensor_sent_bytes, tensor_seconds;
    /* Of ranks that share sequences: how many, and the bytes of keys, values and their gradients
     * that come from the others in a step, with the time of that. */
    uint32_t context_ranks;
    double context_bytes, context_seconds;
    /* Numbers that a step adds to sums of gradients on a GPU: by products themselves, if that gives
     * the same bits there, and by a kernel of its own. */
    double sums_by_products, sums_by_kernels;
    /* A step's, of units that seats copy from RAM, or that devices give each other's slices of. */
    double pull_seconds, link_seconds;
    int found[12]; /* what was searched, for `like` */
};
/* Plans a training and predicts its step in a steady state, with no weights and no memory taken.
 * -ENOMEM where it does not fit: the message is the table and names the keys to change. */
int zinf_estimate(struct zinf_estimate *out, const struct zinf_estimate_options *options);

#ifdef __cplusplus
}
#endif
#endif
