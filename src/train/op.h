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

/* Kind, name, function of step/ops.c, cost. Below: the lane of each kind and its operands at[].
 * READ and WRITE are run by the executor itself.
 *   COPY_IN, COPY_OUT     H2D, D2H: at[0] <- at[1], bytes
 *   ASSEMBLE              HOST: at[0] the unit's flat buffer <- at[1] what the model's files have
 *   UNPACK, PACK          HOST: at[0] a sub-group's numbers <- at[1] packed ones; the reverse. If
 *                         RAM has the head of packed parameters, at[2] is that and at[1] the rest
 *   PACKED_IN             H2D: at[0] <- the packed sub-group; at[1], at[2] as for UNPACK
 *   DEVICE_UNPACK         DEVICE: at[0] a sub-group's numbers <- at[1] what PACKED_IN brought
 *   ENCODE                HOST: at[0] the unit's image with codes (kernels/float8.h) <- at[1] its
 *                         parameters
 *   WIDEN                 DEVICE: at[0] the unit's parameters <- at[1] that image
 *   GRAD_ADD, DEVICE_ADD  by the CPU, or by a device with its own memory: at[0] += at[1], bytes
 *   DEVICE_COPY           DEVICE: at[0] <- at[1], bytes
 *   SQUARES               DEVICE: at[0] partial sums of squares <- at[1] the unit's gradient
 *   NORM_PART             at[0] the unit's gradient, or with arg 1 the result of SQUARES
 *   UPDATE, MATRIX_UPDATE, DEVICE_UPDATE
 *                         by the CPU, of matrices by itself because its time is another, or by a
 *                         device with memory of its own: at[0] state in, at[1]
 *                         state out, at[2] param in, at[3] param out, at[4] gradient, at[5] the
 *                         packed copy of the parameters if there is one; arg: the sub-group.
 *                         With ranks that share matrices on the lane DEVICE, whose thread meets
 *                         these also in stages
 *   CHOOSE                HOST: at[0] which rows have chosen which visit of the stage <- at[1] the
 *                         value by which they choose. Units are fetched if any micro-batch of a
 *                         range has chosen them; arg 1: this is the range's first micro-batch
 *   CACHE_IN, CACHE_OUT   H2D, D2H: at[0] <- at[1] a stage's cache: all that it holds; what a call
 *                         has added
 *   GATHER                NET: at[0] the whole unit <- all ranks' slices, at[1] is this rank's
 *   PULL                  NET: as GATHER, but the device copies each slice from its rank's memory
 *   SCATTER               NET: at[0] <- this rank's slice of the sum of all ranks' at[1]
 *   SUM_FOR_ALL           NET: at[0] <- all of that sum
 *   LINK_GATHER, _SCATTER NET: as GATHER and SCATTER, between GPUs
 *   GIVE, TAKE, TRADE     NET: with the pipeline rank before (visit 0) or the next one (visit 1):
 *                         sends at[0], receives at[1], of the value arg: the rank before sends the
 *                         value, the next one its gradient
 *   SHARE                 NET: the gradient of a unit that several pipeline ranks have; round
 *                         `visit` is from the rank with that index among them to the one after it,
 *                         the last round to all others; at[0] is sent, at[1] received
 *   GATHER_KEYS           NET: at[0] what a stage carries of all chunks, gathered from the ranks
 *                         along CONTEXT; this rank's part is in its place; arg:
 *                         enum keys_at. Of chunks without tokens nothing moves
 *   SUM_KEYS              NET: at[0] its gradients: this rank's part becomes the sum of all ranks';
 *                         arg as there
 *   LINK_GATHER_KEYS, LINK_SUM_KEYS
 *                         NET: as these, between GPUs
 *   HAND                  DEVICE: at[0] the state that a chunk hands over, or its gradient, is
 *                         received (visit 1) or sent (visit 0); the neighbour along CONTEXT is the
 *                         next rank (arg 1) or the one before (arg 0)
 *   CLEAR                 HOST: at[0] <- zeros
 *   UNITE                 NET: a unit of the stage's sweep that any rank has chosen becomes chosen
 *   FLIP                  HOST: the unit's other generation becomes current, and its update is no
 *                         longer pending
 *   COMMIT, MEET          HOST: writes the record of the step before; NET: waits until all ranks
 *                         have done so
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
    ROW(OP_MATRIX_UPDATE, "update", trainer_update, COST_OPTIMIZER)                                \
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
    ROW(OP_GATHER_KEYS, "gather", trainer_gather_keys, COST_GATHER)                                \
    ROW(OP_SUM_KEYS, "reduce-scatter", trainer_sum_keys, COST_SUM)                                 \
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
/* Where keys are that ranks exchange: of all chunks, or of one chunk of each rank, in RAM. */
enum keys_at { KEYS_ON_DEVICE, KEYS_IN_RAM, KEYS_OF_ONE_CHUNK };
/* chunk: an operation is left out if the micro-batch's sample has no rows in the chunk with this
 * number, nor in later ones; 0: never. of_chunk: what a transfer with OP_CARRIED moves begins with
 * this chunk, and what is of chunks without rows does not move. visit: 1: it is the gradient. */
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
    /* An update in which ranks along TENSOR meet, in one order. With OP_EAGER it is never skipped:
       the ranks agree there on whether to make it. */
    OP_MEETS = 32768,
    OP_ANY_PACKED = OP_PACKED | OP_PARAM | OP_GRAD,
};

/* Which kind of data an operation with the flag OP_PACKED, OP_PARAM or OP_GRAD moves. */
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

static inline bool op_updates(int kind)
{
    return kind == OP_UPDATE || kind == OP_MATRIX_UPDATE || kind == OP_DEVICE_UPDATE;
}

/* op.c */
const char *op_kind_name(int kind);
enum op_cost op_kind_cost(int kind);

#endif
