/*
 * trainer: a model on its tiers, and what runs on it. A trainer is a setup, a plan whose arenas and
 * store it has taken, queues and an executor, and what changes from step to step. Its parts are in
 * folders with a contract header each: plan (what is where), step (the programs and running them),
 * save (weights and state to and from files), run (a whole training). Inside src/train only.
 */
#ifndef ZINF_TRAINER_H
#define ZINF_TRAINER_H

#include "train/plan/plan.h"
#include "train/save/save.h"
#include "train/step/step.h"

#include <stdatomic.h>

#define SPECULATION_MEMORY 16 /* steps that decide whether to speculate */
#define DRIVE_SEEN 16         /* steps that say how a drive varies */

/* What awaits a unit's late update. */
enum pending {
    PENDING_NOTHING,
    PENDING_GRADIENT, /* the kept one */
    PENDING_ZEROS,    /* one that is not kept, since no row chose the unit */
};

/* How parameters that updates overwrite stand to the current generation of their copy. */
enum copied {
    COPY_UNKNOWN, /* none has been written */
    COPY_SAME,
    COPY_OLDER, /* an update that may be taken back has overwritten them since */
};

/* What is remembered of a source, and what this call does with it. */
struct source_memory {
    int64_t length; /* 0: nothing */
    bool comes, is_read;
};

/* Numbers of gradients that were added to sums on a device with kernels of its own. */
struct sums_made {
    uint64_t by_products, by_kernels;
};

struct zinf_trainer {
    struct setup setup;
    struct plan plan;
    struct zinf_queue *queues[ZINF_LANES]; /* H2D, D2H, DEVICE */
    struct zinf_queue *pull;               /* what the lane NET copies by; NULL: it does not */
    const void **lent;                     /* [ranks], by that */
    struct zinf_queue *adds;               /* and adds by beside that; NULL: it does not */
    struct zinf_event *sum_events[4];      /* of both */
    struct zinf_link *link;                /* what it gathers by on the GPUs; NULL: it does not */
    uint64_t *slice_bytes;                 /* [ranks], of that */
    struct share_arrays {                  /* [ranks along PIPE] each; in_bytes behind out_bytes */
        void **out, **in;
        uint64_t *out_bytes, *in_bytes;
    } share;
    const char *prefix; /* of tensor names: as the folder has them */
    uint64_t base_sum;  /* of frozen weights, as loaded; 0: none are */
    cJSON *identity;    /* of model, adapter, base and the files beside it */
    struct zinf_arena host;
    struct zinf_executor *executor;
    bool planned; /* the schedule has been chosen */
    /* since trainer_measure_begin; drive lanes' operations overlap once lanes do */
    double measured_seconds[ZINF_RATE_KINDS], measured_work[ZINF_RATE_KINDS];
    const struct zinf_program *ran[2]; /* by this step, as in a steady state */
    int n_ran;
    uint32_t n_calibrated;         /* steps that corrected the rates */
    double between_seconds;        /* of a step, that pass between operations */
    double drive_seen[DRIVE_SEEN]; /* of recent steps: the drive's seconds, by the sum of the rates
                                    * of reading and writing that would have given them */
    uint32_t n_drive_seen;
    double range[2];          /* the drive as in the fastest and slowest of these: of a step's
                               * prediction so much; 0: not known */
    uint64_t slow_drive_said; /* step in which the log said that the drive was slow */
    uint64_t planned_step;    /* when the schedule was chosen */

    /* scalars of the running program */
    struct zinf_compute compute;
    float gradient_scale; /* of the step's loss: loss scale / targets; */
    float mean_scale;     /* of what is a mean over micro-batches: loss scale / those */
    struct zinf_shard_ranks shard_ranks; /* of compute, where there are such */
    struct frame_arrays *frame;
    struct sums_made sums_made;    /* of the step, by the lane DEVICE */
    bool says_sums;                /* it has been said */
    struct zinf_numbers numbers;   /* of quantised weights, for the lane DEVICE */
    int64_t logits_row, n_logits;  /* from which on of a chunk, how many; */
    int64_t logits_chunk;          /* of the sequence's chunk */
    struct zinf_decoding decoding; /* of compute, where it is */
    int64_t *first_new, *n_cached; /* [n_sequences]: its first row in this call, rows after it */
    struct source_memory *sources; /* [n_sources] */
    int32_t *source_documents;     /* [most_source_rows]: of a call's tokens */
    bool filled;                   /* the fill program has run */
    struct update_scalars eager, late; /* of updates within the step, and of pending ones */
    uint8_t *pending;                  /* [n_units] of enum pending */
    uint8_t *copied;                   /* [n_units] of enum copied */
    bool *encoded;   /* [n_units]: its image with codes is there for as long as the trainer */
    uint8_t *chosen; /* [n_units]: by a row of the micro-batches that fetches are for; OP_CHOOSE */
    _Atomic bool give_up;             /* speculation has failed in this step */
    double partial_limit;             /* sum of squares from which it has */
    _Atomic double partial;           /* sum of squares so far */
    struct step_sums sums;            /* of the step, where sums are exact */
    bool clipped[SPECULATION_MEMORY]; /* of the last steps */
    _Atomic uint32_t n_disturbed;
    uint64_t n_redone; /* steps whose speculation failed */

    void *likeness; /* of embeddings with each other (embeddings.c); NULL before the first */
    uint64_t likeness_bytes;

    struct durable durable;
    uint64_t step, n_applied;
    struct zinf_loss_scale loss_scale;
};

/* step/shard_ranks.c: by which the trainer's stages meet those of ranks that share tensors. */
void trainer_open_shards(struct zinf_trainer *t);
int trainer_hand(struct zinf_trainer *t, const struct zinf_op *op); /* OP_HAND */

#endif
