/*
 * estimate: predicts the memory and time of a training without running it. It makes the plan that
 * the training would make, and simulates its step with rates that are measured, given or assumed.
 * Any thread may call; the caller owns what a call returns. Errors: -errno and a sentence.
 */
#ifndef ZINF_ESTIMATE_H
#define ZINF_ESTIMATE_H

#include "train/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Flops a second of causal attention over whole sequences of so many tokens: forward, two products
 * of scores, and backward, five. */
struct zinf_attention_speed {
    double tokens, forward, backward;
};
#define ZINF_ATTENTION_LENGTHS 4
/* Of a kind of product: besides flops a second, what makes small ones and those of few rows slower:
 * bytes of operands and results a second, and how many products without work could be made in one.
 */
struct zinf_product_speed {
    double flops, bytes, calls;
};
/* Speeds of a machine, each per second; 0: not known, a default is assumed and printed. */
struct zinf_speeds {
    double device_flops; /* of matrix products */
    /* The same by kind of product; all of them are known or none is. */
    struct zinf_product_speed products[ZINF_PRODUCTS];
    double wide_flops;      /* of products with an operand in fp32, where parameters have 16 bits */
    double attention_flops; /* of attention's forward, of sequences of a usual length */
    double attention_backward_flops; /* of its backward */
    /* The same by length, from short to long; tokens 0: no more. Where none is known, the two above
     * count for all lengths. */
    struct zinf_attention_speed attention[ZINF_ATTENTION_LENGTHS];
    double device_bytes; /* of the device's memory, read and written */
    /* Of a CPU: kernels that have no work but are shared by its threads; threads that wait and are
     * woken, one by the other; reads of a drive, of one small block, one after the other. They make
     * short steps longer; 0: they take no time. */
    double kernels, wakings, drive_answers;
    double sum_bytes;                           /* of which a thread makes the checksums */
    double drive_cpu_bytes;                     /* that a CPU can bring from or to the drive */
    double link_bytes;                          /* between host and device, each way */
    double drive_read_bytes, drive_write_bytes; /* alone */
    double drive_mixed_bytes;                   /* read and written together, half and half */
    /* The least and the most that the drive's rate was measured to be, as a part of the rates
     * above; 0: it was measured once. */
    double drive_least, drive_most;
    /* The drive's rate beside busy CPUs as a part of that above; 0: the same. */
    double drive_busy;
    double optimizer_bytes; /* bytes that an optimizer's update reads and writes */
    /* Bytes by which an update becomes longer where its numbers are packed: of 32 bits, and of 16;
     * and bytes of 16-bit numbers that are unpacked. */
    double pack_bytes, pack_half_bytes, unpack_bytes;
    double host_flops; /* matrix products of the CPU in fp32, for optimizers such as Muon */
    double net_bytes;  /* of a host's network, each way */
    double root_bytes; /* between a host's RAM and all of its devices at once, each way */
    /* Between a GPU and the others of its host, each way, while all GPUs send and receive; 0: they
     * have no direct link. */
    double peer_bytes;
};
/* A machine that is described rather than present: nothing of the running one is used. */
struct zinf_described_machine {
    const char *name;
    uint64_t gpu_bytes; /* memory of its GPU; 0: it has no GPU */
    int capability;     /* compute capability of the GPU: 90 for 9.0; 0: that of a current one */
    uint64_t ram_bytes;
    int n_threads;
};
/* seconds: time of one unit of work for each kind of operation. read_beside_write,
 * write_beside_read: speed while the other goes on, as a share of the speed alone. Measured rates
 * are valid for one machine and one number type. */
#define ZINF_RATE_KINDS 160
struct zinf_rates {
    double seconds[ZINF_RATE_KINDS];
    /* What an operation of the kind uses of all CPUs while it is alone; 0: not measured */
    double cpu[ZINF_RATE_KINDS];
    double read_beside_write, write_beside_read;
    double drive_beside_cpus; /* the same of a drive while all CPUs are busy; 0: 1 */
    /* What passes until a lane that waits begins, and until a drive that has nothing to do has
     * answered; 0 of rates that a training measures, whose steps show both together. */
    double waking_seconds, drive_answer_seconds;
    /* time of the slowest measured step over that of the fastest; 0: none was measured */
    double steps_apart;
    /* The drive's measured time in recent steps divided by its predicted time: the smallest and the
     * largest; 0: not known. */
    double drive_least, drive_most;
};
/* Measures rates: trains a few steps of the model, cut to two blocks, on the tiers that the options
 * name. Takes about 20 s for a model of a billion parameters, and needs memory and drive space for
 * the two blocks and the embedding table. */
int zinf_rates_measure(struct zinf_rates *out, const struct zinf_trainer_options *options);

/* One rank of a pipeline. layers: the embedding and the head count as one each; bottleneck: its
 * busiest lane; alone_seconds: its step if it never waited for other ranks; bubble_seconds: how
 * much longer the step of all ranks takes. */
struct zinf_pipe_rank {
    uint32_t layers;
    int bottleneck;
    double lane_seconds[8], alone_seconds, bubble_seconds;
    uint64_t bytes[3]; /* device, host, drive */
};

struct zinf_estimate_options {
    struct zinf_trainer_options trainer; /* of the training; mode and init are set by the call */
    const struct zinf_rates *rates;      /* NULL: derived from speeds */
    struct zinf_speeds speeds;
    double device_factor, drive_factor; /* multiply the speed of device and drive; 0: 1 */
    /* The number of ranks, and of ranks on each host, which share its link, RAM and threads; 0: 1.
     * The estimate describes one rank; tokens are those of all. */
    uint32_t ranks, local_ranks;
    /* How many of the ranks on a host are seats of one process; 0: 1. */
    uint32_t seats;
    /* Take what the configuration leaves open from this estimate. NULL: search for the best. */
    const struct zinf_estimate *like;
    /* [pipeline ranks]: receives what each of them does; NULL: not needed. */
    struct zinf_pipe_rank *pipe;
    FILE *plan;        /* the memory ledger is printed there; NULL: it is not printed */
    const char *trace; /* path of a Chrome trace of the predicted step; NULL: none */
};
struct zinf_estimate {
    uint64_t params, tokens;      /* tokens a step */
    uint64_t bytes[3], budget[3]; /* device, host, drive; UINT64_MAX: no limit */
    /* Of all ranks; planned.process is 0 unless all of them are seats of one process. */
    struct zinf_planned planned;
    uint64_t host_limit; /* of host memory, without what is left to the operating system */
    uint64_t pinned;     /* bytes of host memory that are page-locked for transfers */
    bool ram_is_shared;  /* device and host bytes are one machine's RAM */
    double step_seconds; /* of steps that do not clip */
    /* Where gradient_clipping is set and updates are made before the norm is known: the most that a
     * step takes that clips, its updates being taken back and its gradients made again; and each
     * step where at least half of them clip. 0: clipping takes no time. */
    double clipped_seconds, all_clipped_seconds;
    /* Busy seconds and moved bytes of each lane: drive reads, drive writes, to the device, to the
     * host, device, CPU, to other ranks. */
    double lane_seconds[8];
    uint64_t lane_bytes[8];
    /* The same if no packed data became shorter (zinf.pack), which is the most that they take;
     * lane_bytes has what they usually take. */
    uint64_t lane_bytes_most[8];
    int bottleneck;       /* lane */
    double drive_seconds; /* time during which the drive reads or writes */
    double model_flops;   /* of a step's forward and backward pass, recomputation not counted */
    double matrix_flops;  /* speed of matrix products by the rates, per second */
    bool packs;           /* whether state on the drive is packed */
    double update_flops;  /* of matrix products in a step's updates, on this rank's CPU */
    struct zinf_speeds speeds; /* given and assumed ones; not set if rates were given */
    char schedule[32], device[96];
    /* Pipelines: the number of ranks, and how long in a step the rank with most work waits for
     * values and gradients of the others. step_seconds includes that: the ranks' programs are
     * simulated together. Bytes are the largest of any rank, lanes those of the rank with most
     * work. */
    uint32_t pipe_ranks;
    double bubble_seconds;
    /* Tensor parallelism: the number of ranks; bytes that this rank reduces with the others in a
     * step, bytes that it sends for that and in updates of matrices that they share, and the time
     * this takes, during which the device waits. */
    uint32_t tensor_ranks;
    double tensor_bytes, tensor_sent_bytes, tensor_seconds;
    /* Context parallelism: the number of ranks; bytes of keys, values and their gradients that come
     * from the others in a step, and the time this takes. */
    uint32_t context_ranks;
    double context_bytes, context_seconds;
    /* Numbers that a step adds to gradient sums on a GPU: by the matrix products themselves, if
     * that gives the same bits, and by a separate kernel. */
    double sums_by_products, sums_by_kernels;
    /* In a step, the time in which seats copy units from RAM, and in which devices send each other
     * slices of units. */
    double pull_seconds, link_seconds;
    int found[12]; /* what the search has chosen, for `like` */
};
/* Plans a training and predicts a step in its steady state, without loading weights or allocating
 * their memory. -ENOMEM: it does not fit; the message is the memory table and names the keys to
 * change. */
int zinf_estimate(struct zinf_estimate *out, const struct zinf_estimate_options *options);
/* Whether the configuration's optimizer updates whole matrices, by products of the CPU in fp32, as
 * Muon does. */
bool zinf_updates_matrices(const struct zinf_config *config);

#ifdef __cplusplus
}
#endif
#endif
