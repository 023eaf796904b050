/*
 * op: the kinds of operations that a step consists of. A table has one row for each: its name, the
 * function that runs it, and the speed by which its time is estimated until it has been measured.
 * Behind them come the kinds of the model's stages, one for each pass of each sort of stage. Rates
 * are indexed by kind.
 */
#ifndef ZINF_TRAIN_OP_H
#define ZINF_TRAIN_OP_H

#include "model/graph.h"
#include "offload/offload.h"
#include "train/estimate.h"

/* The speed of a machine by which an operation's time is estimated. */
enum op_cost {
    COST_NONE,
    COST_LINK,          /* between host and device */
    COST_OPTIMIZER,     /* the host's memory */
    COST_HOST_ADD,      /* two reads and a write of the named bytes in the host's memory */
    COST_DEVICE_ADD,    /* the same in the device's memory */
    COST_DEVICE_MEMORY, /* the device's memory */
    COST_RECORD,        /* two small writes, one after the other */
    COST_DRIVE_READ,
    COST_DRIVE_WRITE,
    COST_GATHER, /* between ranks: slices to all ranks */
    COST_PULL,   /* slices to a device from the memory of their ranks */
    COST_SUM,    /* between ranks: sums of gradients */
    COST_PEER,   /* collectives between the ranks' GPUs */
    COST_CROSS,  /* between neighbouring pipeline ranks */
    COST_STAGE, /* matrix products on the device, in flops that take as long (model/frame_cost.c) */
};

/* Kind, name, function of step/ops.c, cost; operands at[]. READ and WRITE are the executor's own.
 *   COPY_IN, COPY_OUT     H2D, D2H: at[0] <- at[1], bytes
 *   ASSEMBLE              HOST: at[0] the unit's flat buffer <- at[1] what its files have
 *   UNPACK, PACK          HOST: at[0] a sub-group's numbers <- at[1] them packed; the reverse. Of
 *                         parameters that are packed in RAM at[2] has the head, at[1] the rest
 *   PACKED_IN             H2D: at[0] <- the same as it is stored; at[1], at[2] as of UNPACK
 *   DEVICE_UNPACK         DEVICE: at[0] a sub-group's numbers <- at[1] what PACKED_IN brought
 *   ENCODE                HOST: at[0] the unit's image with codes (kernels/float8.h) <- at[1] its
 *                         parameters
 *   WIDEN                 DEVICE: at[0] the unit's parameters <- at[1] that image
 *   GRAD_ADD, DEVICE_ADD  by the CPU, or a device that it cannot read: at[0] += at[1], bytes
 *   DEVICE_COPY           DEVICE: at[0] <- at[1], bytes
 *   SQUARES               DEVICE: at[0] parts of the sum of squares <- at[1] the unit's gradient
 *   NORM_PART             at[0] the unit's gradient, or with arg 1 the result of SQUARES
 *   UPDATE, DEVICE_UPDATE by the CPU, or a device that it cannot read: at[0] state in, at[1] state
 *                         out, at[2] param in, at[3] param out, at[4] gradient; arg: the sub-group;
 *                         where there is a packed copy of the parameters, at[5] that
 *   CHOOSE                HOST: at[0] which rows have chosen which visit of the stage <- at[1] the
 *                         value that they choose by. Units are fetched if any micro-batch of a
 *                         range has chosen them; arg 1: this is the range's first
 *   CACHE_IN, CACHE_OUT   H2D, D2H: at[0] <- at[1] a stage's cache: what it holds; what a call adds
 *   GATHER                NET: at[0] <- the unit of all ranks' slices, of which at[1] is this one's
 *   PULL                  NET: as GATHER, to the device: each slice from its rank's memory
 *   SCATTER               NET: at[0] <- this rank's slice of the sum of all ranks' at[1]
 *   SUM_FOR_ALL           NET: at[0] <- all of that sum
 *   LINK_GATHER, _SCATTER NET: as GATHER and SCATTER, between devices
 *   GIVE, TAKE, TRADE     NET: with the rank that has the stages before (visit 0) or the next ones
 *                         (1), along PIPE: at[0] of the value arg goes there, at[1] comes: a value
 *                         from before, its gradient from behind
 *   SHARE                 NET: of a unit that ranks along PIPE have in common, in their order:
 *                         round `visit` is from that number to the next, the last to all others;
 *                         at[0] what this rank gives, at[1] what it takes
 *   GATHER_KEYS           NET: at[0] what the stage carries of all chunks, of which this rank's
 *                         place among those along CONTEXT is made, from all of them
 *   SUM_KEYS              NET: at[0] its gradients: in this rank's place the sum of all ranks';
 *                         of both arg 1: in RAM
 *   LINK_GATHER_KEYS, LINK_SUM_KEYS
 *                         NET: as these, between devices
 *   HAND                  DEVICE: at[0] what a chunk hands over, or its gradient, comes from
 *                         (visit 1) or goes to the next rank along CONTEXT (arg 1) or that before
 *   CLEAR                 HOST: at[0] <- zeros
 *   UNITE                 NET: units of the stage's sweep that any rank has chosen are chosen
 *   FLIP                  HOST: the unit's other generation becomes current; it is pending no more
 *   COMMIT, MEET          HOST, NET: the step before this one becomes durable here; on all ranks
 */
#define OP_ROWS(ROW)                                                                               \
    ROW(OP_COPY_IN, "fetch", run_copy_in, COST_LINK)                                               \
    ROW(OP_ASSEMBLE, "assemble", run_assemble, COST_HOST_ADD)                                      \
    ROW(OP_UNPACK, "unpack", run_unpack, COST_OPTIMIZER)                                           \
    ROW(OP_PACK, "pack", run_pack, COST_OPTIMIZER)                                                 \
    ROW(OP_PACKED_IN, "fetch packed", run_packed_in, COST_LINK)                                    \
    ROW(OP_DEVICE_UNPACK, "device unpack", run_device_unpack, COST_DEVICE_ADD)                     \
    ROW(OP_ENCODE, "encode", run_encode, COST_OPTIMIZER)                                           \
    ROW(OP_WIDEN, "widen", run_widen, COST_DEVICE_MEMORY)                                          \
    ROW(OP_COPY_OUT, "return", run_copy_out, COST_LINK)                                            \
    ROW(OP_CACHE_IN, "fetch cache", trainer_cache_in, COST_LINK)                                   \
    ROW(OP_CACHE_OUT, "return cache", trainer_cache_out, COST_LINK)                                \
    ROW(OP_GRAD_ADD, "add gradient", run_add, COST_HOST_ADD)                                       \
    ROW(OP_DEVICE_ADD, "device add gradient", run_add, COST_DEVICE_ADD)                            \
    ROW(OP_DEVICE_COPY, "keep gradient", run_device_copy, COST_DEVICE_MEMORY)                      \
    ROW(OP_SQUARES, "squares", run_squares, COST_DEVICE_MEMORY)                                    \
    ROW(OP_NORM_PART, "gradient norm", run_norm, COST_OPTIMIZER)                                   \
    ROW(OP_UPDATE, "update", trainer_update, COST_OPTIMIZER)                                       \
    ROW(OP_DEVICE_UPDATE, "device update", trainer_update, COST_DEVICE_MEMORY)                     \
    ROW(OP_CHOOSE, "choose", run_choose, COST_HOST_ADD)                                            \
    ROW(OP_GATHER, "gather", run_gather, COST_GATHER)                                              \
    ROW(OP_PULL, "pull", run_pull, COST_PULL)                                                      \
    ROW(OP_SCATTER, "reduce-scatter", run_scatter, COST_SUM)                                       \
    ROW(OP_SUM_FOR_ALL, "all-reduce", run_sum_for_all, COST_SUM)                                   \
    ROW(OP_LINK_GATHER, "gather on the GPUs", run_link_gather, COST_PEER)                          \
    ROW(OP_LINK_SCATTER, "reduce-scatter on the GPUs", run_link_scatter, COST_PEER)                \
    ROW(OP_GIVE, "give", run_border, COST_CROSS)                                                   \
    ROW(OP_TAKE, "take", run_border, COST_CROSS)                                                   \
    ROW(OP_TRADE, "trade", run_border, COST_CROSS)                                                 \
    ROW(OP_SHARE, "share", run_share, COST_CROSS)                                                  \
    ROW(OP_GATHER_KEYS, "gather", run_gather_keys, COST_GATHER)                                    \
    ROW(OP_SUM_KEYS, "reduce-scatter", run_sum_keys, COST_SUM)                                     \
    ROW(OP_LINK_GATHER_KEYS, "gather on the GPUs", run_link_gather_keys, COST_PEER)                \
    ROW(OP_LINK_SUM_KEYS, "reduce-scatter on the GPUs", run_link_sum_keys, COST_PEER)              \
    ROW(OP_HAND, "hand over", trainer_hand, COST_GATHER)                                           \
    ROW(OP_CLEAR, "clear", run_clear, COST_HOST_ADD)                                               \
    ROW(OP_UNITE, "agree on choices", run_unite, COST_NONE)                                        \
    ROW(OP_FLIP, "turn", run_flip, COST_NONE)                                                      \
    ROW(OP_COMMIT, "commit", run_commit, COST_RECORD)                                              \
    ROW(OP_MEET, "meet", run_meet, COST_NONE)                                                      \
    ROW(OP_READ, "read", NULL, COST_DRIVE_READ)                                                    \
    ROW(OP_WRITE, "write", NULL, COST_DRIVE_WRITE)

enum op_kind {
#define OP_KIND(kind, name, run, cost) kind,
    OP_ROWS(OP_KIND)
#undef OP_KIND
    /* A stage's operation: stage, visit; at: weights, values in, values out, gradients, in the
     * order of a frame (model/frame.h). */
    OP_STAGES,
};
enum op_flags {
    OP_DEFERRED = 1, /* skipped unless the unit has a pending update */
    OP_EAGER = 2,    /* skipped once speculation has failed */
    /* a stage's backward first recomputes activations that forward did not keep */
    OP_RECOMPUTES = 4,
    OP_ADDS = 8,      /* a stage's backward adds to the gradients in its operands */
    OP_CHOSEN = 16,   /* skipped unless a row has chosen the unit */
    OP_UNCHOSEN = 32, /* skipped if a row has chosen the unit */
    /* Reads or updates by a kept gradient that is not written if it is all zeros (PENDING_ZEROS):
       then the read is skipped, and the update uses zeros. */
    OP_KEPT = 64,
    OP_REFERENCE = 128, /* a stage's forward for a REFERENCE value: without adapters and dropout */
    OP_VALUE = 256,     /* moves the value arg: only the rows that the step's samples have */
    OP_PACKED = 512,    /* moves or updates the state of sub-group arg, which may be packed */
    OP_PARAM = 1024,    /* the same for its parameters */
    OP_GRAD = 2048,     /* the same for its kept gradient */
    /* A stage's backward adds products directly to sums, which are further operands behind the
       gradients; or the operation that adds the gradients for which it did not (run_stage.c). */
    OP_ONTO = 8192,
    OP_CARRIED = 4096, /* moves what a stage carries from chunk to chunk */
    OP_OF_ROW = 16384, /* skipped if the row of logits is in another chunk */
    OP_ANY_PACKED = OP_PACKED | OP_PARAM | OP_GRAD,
};

/* What an operation with one of the flags OP_PACKED, OP_PARAM and OP_GRAD moves. */
static inline enum zinf_packable op_packable(const struct zinf_op *op)
{
    return op->flags & OP_GRAD    ? ZINF_PACKABLE_GRAD
           : op->flags & OP_PARAM ? ZINF_PACKABLE_PARAM
                                  : ZINF_PACKABLE_STATE;
}

static inline uint16_t stage_kind(uint32_t sort, enum zinf_pass pass)
{
    return (uint16_t)(OP_STAGES + sort * ZINF_PASSES + pass);
}
/* For a kind from OP_STAGES on: its sort of stage, and its pass. */
static inline uint32_t kind_sort(int kind)
{
    return (uint32_t)(kind - OP_STAGES) / ZINF_PASSES;
}
static inline enum zinf_pass kind_pass(int kind)
{
    return (enum zinf_pass)((kind - OP_STAGES) % ZINF_PASSES);
}
#define MAX_STAGE_SORTS ((ZINF_RATE_KINDS - OP_STAGES) / ZINF_PASSES)

/* op.c */
const char *op_kind_name(int kind);
enum op_cost op_kind_cost(int kind);

#endif
