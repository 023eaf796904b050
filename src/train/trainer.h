/*
 * trainer: what planning, emission, running and file transfer share. Inside this folder only.
 *
 * A plan is a *choice* (how far to look ahead, which blocks keep their activations, ...) and the
 * *lines* that follow from it: what is where, in fixed places of the device and host arenas.
 */
#ifndef ZINF_TRAINER_H
#define ZINF_TRAINER_H

#include "base/memory.h"
#include "offload/offload.h"
#include "train/train.h"

#define MAX_LOOK_AHEAD 8
#define STATE_SLOTS 3 /* sub-groups under way: one read, one updated, one written */
#define OUT_SLOTS 2   /* updated parameters on their way to their tier */
#define GRAD_STAGES 2 /* gradients on their way to their sum, on the host */

struct choice {
    int look_ahead; /* parameter slots on the device less one */
    int grad_slots; /* device gradients on their way out */
    int n_kept;     /* blocks [n_layers - n_kept, n_layers) keep their activations */
    int n_own;      /* units that have a device slot of their own, from unit 0 */
    bool head_all;  /* all table tiles on the device at once: logits computed once */
};

/* Offsets in the device ("d_") and host ("h_") arenas, filled from the lines. */
struct places {
    uint64_t d_slots, d_own, d_grad_slots, d_out, d_tokens, d_x, d_dx, d_kept, d_working, d_scratch,
        d_head, d_workspace, d_table_grads;
    uint64_t h_tokens, h_scalars, h_param_stages, h_grad_stages, h_state_slots, h_out, h_transfer;
};

struct trainer_sizes {
    uint64_t slot, grad_slot, kept, scratch, head, workspace, out, x, state_slot;
    uint64_t transfer; /* what loading and saving need on the host */
};

struct zinf_trainer {
    struct zinf_trainer_options options;
    const struct zinf_config *config;
    struct zinf_model *model;
    struct zinf_model_spec spec_values; /* the model's, with the configuration's dropout */
    const struct zinf_model_spec *spec;
    struct zinf_device *device;
    struct zinf_queue *queues[ZINF_LANES]; /* H2D, D2H, DEVICE */
    enum zinf_dtype dtype;
    int64_t batch, seq, n_micro; /* B, T, G */
    uint64_t rows;               /* N = B * T */
    uint32_t n_units, n_layers;
    const char *prefix; /* of tensor names: as the folder has them */

    struct zinf_layout layout;
    struct zinf_tiers *tiers;
    struct zinf_store *store;
    struct zinf_ledger *ledger;
    uint64_t budget[ZINF_MEMORY_TIERS];
    enum zinf_tier param_tier, state_tier, grad_tier;
    struct choice choice;
    struct places at;
    struct trainer_sizes sizes;
    struct zinf_arena host;

    /* pointers into the arenas */
    int32_t *d_ids, *d_targets, *d_positions; /* [G][N], [G][N], [N] */
    int32_t *h_ids, *h_targets, *h_positions;
    float *d_losses, *h_losses; /* [G][N] */
    float *h_logits;            /* [tiles][tile_rows] */
    char *d_dx;
    struct zinf_block_kept *kept; /* [n_layers]: kept ones; others point to working */
    struct zinf_block_scratch scratch;
    struct zinf_head head;
    const void **tile_weights; /* [n_tiles], head_all, as the next two */
    float **tile_grads;        /* an area of their own */
    float **tile_sums;         /* the sums, where they are on the device */

    struct zinf_executor *executor;
    struct zinf_program gradients, update, forward, logits;

    /* scalars of the running program */
    struct zinf_compute compute;
    int64_t logits_row;
    double *norm_parts; /* [n_groups] sums of squares */
    float grad_scale;
    struct zinf_optim_hyper hyper;

    uint64_t step, n_applied;
    struct zinf_loss_scale loss_scale;
};

/* plan.c */
int trainer_plan(struct zinf_trainer *t);
/* plan_blas.c: what OpenBLAS takes outside of the arenas */
uint64_t trainer_blas_bytes(const struct zinf_trainer *t);
/* After the arenas exist: every pointer. */
void trainer_place(struct zinf_trainer *t);

static inline char *device_at(const struct zinf_trainer *t, uint64_t offset)
{
    return (char *)t->device->memory + offset;
}

static inline char *host_at(const struct zinf_trainer *t, uint64_t offset)
{
    return t->host.base + offset;
}

/* Input of block l (l = n_layers: of the final norm). Forward alone has two, in turn. */
static inline char *x_at(const struct zinf_trainer *t, uint32_t layer)
{
    uint64_t slot = t->options.mode == ZINF_TRAINER_FORWARD ? layer % 2 : layer;
    return device_at(t, t->at.d_x + slot * t->sizes.x);
}

static inline bool block_is_kept(const struct zinf_trainer *t, uint32_t layer)
{
    return (int)(t->n_layers - layer) <= t->choice.n_kept;
}

/* emit.c, emit_update.c: the programs */
enum op_kind {
    OP_COPY_IN,    /* H2D: memory <- memory2, bytes */
    OP_COPY_OUT,   /* D2H: memory <- memory2, bytes */
    OP_EMBED_TILE, /* memory weights, unit, micro */
    OP_EMBED_POSITION,
    OP_BLOCK,          /* memory weights; arg = layer */
    OP_BLOCK_BACKWARD, /* memory weights, memory2 grads; arg = 2 layer + recompute */
    OP_HEAD_NORM,
    OP_HEAD_TILE,
    OP_HEAD_FINISH,
    OP_HEAD_ALL,
    OP_HEAD_TILE_BACKWARD,
    OP_HEAD_NORM_BACKWARD,
    OP_EMBED_DROPOUT_BACKWARD,
    OP_EMBED_TILE_BACKWARD,
    OP_EMBED_POSITION_BACKWARD,
    OP_GRAD_ADD,  /* DEVICE or HOST: memory += memory2, bytes */
    OP_NORM_PART, /* DEVICE or HOST: memory = unit's gradient */
    OP_UPDATE,    /* DEVICE or HOST: memory state, memory2 param out, memory3 grad; arg group */
    OP_ROW_LOGITS,
    OP_DRIVE, /* READ, WRITE */
};
int trainer_emit_gradients(struct zinf_trainer *t);
int trainer_emit_forward(struct zinf_trainer *t);
int trainer_emit_logits(struct zinf_trainer *t);
int trainer_emit_update(struct zinf_trainer *t);

/* ops.c: one operation of any program */
int trainer_run_op(void *context, const struct zinf_op *op);
const char *trainer_op_name(void *context, const struct zinf_op *op, char buffer[64]);

/* state_access.c: what checkpoints see of the state. flat: the rank's slice of the unit in fp32, in
 * flat order, aligned to ZINF_MEMORY_ALIGN. which 0: master, 1, 2: moments. */
/* Makes the updates that a step left to be made later. */
int trainer_settle(struct zinf_trainer *t);
int trainer_state_read(struct zinf_trainer *t, uint32_t unit, int which, float *flat);
/* which 0 also sets the parameter in its number type; uses the transfer region's packed part. */
int trainer_state_write(struct zinf_trainer *t, uint32_t unit, int which, const float *flat);

/* transfer.c */
int trainer_load(struct zinf_trainer *t);
uint64_t trainer_transfer_bytes(const struct zinf_model *model, enum zinf_dtype dtype);

#endif
