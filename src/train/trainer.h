/*
 * trainer: a model in memory and everything that runs it. A trainer consists of a setup, a plan
 * whose arenas and store it has allocated, queues, an executor, and what changes from step to step.
 * Its parts are in folders with one contract header each: plan (what is where), step (the programs
 * of a step and running them), save (weights and state to and from files), run (a whole training).
 * Inside src/train only.
 */
#ifndef ZINF_TRAINER_H
#define ZINF_TRAINER_H

#include "train/plan/plan.h"
#include "train/save/save.h"
#include "train/step/step.h"

#include <stdatomic.h>

#define SPECULATION_MEMORY 16 /* recent steps whose clipping decides whether to speculate */
#define DRIVE_SEEN 16         /* recent steps that show how a drive's speed varies */

/* The gradient that awaits a unit's late update. */
enum pending {
    PENDING_NOTHING,
    PENDING_GRADIENT, /* the kept one */
    PENDING_ZEROS,    /* all zeros and not kept, since no row chose the unit */
};

/* How parameters that updates overwrite relate to the current generation of their copy on a drive.
 */
enum copied {
    COPY_UNKNOWN, /* no copy has been written */
    COPY_SAME,
    COPY_OLDER, /* an update that may be taken back has overwritten the parameters since */
};

/* A source whose keys and values are cached: its length in tokens, and whether it comes with this
 * call and is read by it. */
struct source_memory {
    int64_t length; /* 0: nothing is cached */
    bool comes, is_read;
};

/* How many gradient elements were added to sums on a device with kernels of its own: by matrix
 * products themselves, and by kernels of their own. */
struct sums_made {
    uint64_t by_products, by_kernels;
};

struct zinf_trainer {
    struct setup setup;
    struct plan plan;
    struct zinf_queue *queues[ZINF_LANES]; /* H2D, D2H, DEVICE */
    struct zinf_queue *pull;               /* copies of the lane NET; NULL: it has none */
    const void **lent;                     /* [ranks]: memory that ranks lend for these copies */
    struct zinf_queue *adds;          /* additions of the lane NET on the GPU; NULL: it has none */
    struct zinf_event *sum_events[4]; /* between pull and adds */
    uint64_t *slice_bytes;            /* [ranks]: sizes of slices in GPU collectives */
    struct share_arrays {             /* [ranks along PIPE] each; in_bytes behind out_bytes */
        void **out, **in;
        uint64_t *out_bytes, *in_bytes;
    } share;
    const char *prefix; /* of tensor names, as in the folder of the weights */
    uint64_t base_sum;  /* checksum of the frozen weights as loaded; 0: none are frozen */
    cJSON *identity;    /* of model, adapter, base weights and the files beside them (identity.h) */
    struct zinf_arena host;
    struct zinf_executor *executor;
    struct zinf_planned all; /* planned memory of all ranks */
    bool planned;            /* the schedule has been chosen */
    /* by kind, since trainer_measure_begin; operations of the drive lanes may overlap */
    double measured_seconds[ZINF_RATE_KINDS], measured_work[ZINF_RATE_KINDS];
    /* CPU time of the process by the kind of operation that ended next, and when that was */
    double measured_cpu[ZINF_RATE_KINDS], cpu_seconds;
    /* programs that this step ran, if they are those of a steady state */
    const struct zinf_program *ran[2];
    int n_ran;
    uint32_t n_calibrated;  /* steps that corrected the rates */
    double between_seconds; /* of a step that pass between operations */
    /* for recent steps: the sum of the rates of reading and writing that would explain the drive's
     * seconds */
    double drive_seen[DRIVE_SEEN];
    uint32_t n_drive_seen;
    /* a step's predicted seconds with the drive as in the fastest and the slowest of these, as a
     * fraction of the usual prediction; 0: not known */
    double range[2];
    uint64_t slow_drive_said; /* step in which the log said that the drive was slow */
    uint64_t planned_step;    /* when the schedule was chosen */

    /* scalars of the running program */
    struct zinf_compute compute;
    float gradient_scale; /* factor on the loss: loss scale / targets of the step */
    float mean_scale;     /* factor on auxiliary losses: loss scale / micro-batches */
    double cross_entropy; /* a part of the last sum of zinf_trainer_loss */
    struct zinf_shard_ranks shard_ranks; /* used by compute with tensor parallelism */
    struct frame_arrays *frame;
    struct chunk_rows *chunks;
    struct chunk_pairs *pairs;
    struct embedded *embedded;
    struct sums_made sums_made;  /* of the step; written by the lane DEVICE */
    bool says_sums;              /* the log has reported sums_made */
    struct zinf_numbers numbers; /* unpacked quantised weights, for the lane DEVICE */
    /* the first row of a chunk that logits are wanted of, and how many */
    int64_t logits_row, n_logits;
    int64_t logits_chunk; /* the chunk of the sequence that has these rows */
    int64_t *visited_of;  /* [samples of a step], of sequences in chunks: see trainer_visited */
    int64_t visited; /* chunks of a sequence in which the batch has rows; see trainer_visited */
    struct zinf_decoding decoding; /* used by compute in decoding */
    int64_t *first_new, *n_cached; /* [n_sequences]: tokens cached before this call, and after it */
    struct source_memory *sources; /* [n_sources] */
    int32_t *source_documents;     /* [most_source_rows]: segments of a call's source tokens */
    bool filled;                   /* the fill program has run */
    struct update_scalars eager, late; /* for updates within the step, and for pending updates */
    uint8_t *pending;                  /* [n_units] of enum pending */
    uint8_t *copied;                   /* [n_units] of enum copied */
    bool *encoded;                     /* [n_units]: its image with codes is made and stays valid */
    /* [n_units]: a row of the current range of micro-batches has chosen it (OP_CHOOSE) */
    uint8_t *chosen;
    _Atomic bool give_up;             /* speculation has failed in this step */
    double partial_limit;             /* sum of squares above which speculation fails */
    _Atomic double partial;           /* sum of squares so far */
    struct step_sums sums;            /* sums of the step that ranks agree on (agree.h) */
    bool clipped[SPECULATION_MEMORY]; /* whether recent steps were clipped or overflowed */
    _Atomic uint32_t n_disturbed;
    uint64_t n_redone; /* steps whose speculation failed */

    /* memory for similarities of embeddings (embeddings.c); NULL before the first use */
    void *likeness;
    uint64_t likeness_bytes;

    struct durable durable;
    uint64_t step, n_applied;
    uint32_t n_overflows; /* steps in a row that were skipped, up to now */
    struct zinf_loss_scale loss_scale;
};

/* step/shard_ranks.c: trainer_open_shards sets the functions by which stages exchange data with
 * tensor-parallel ranks. */
void trainer_open_shards(struct zinf_trainer *t);
int trainer_hand(struct zinf_trainer *t, const struct zinf_op *op); /* OP_HAND */

#endif
