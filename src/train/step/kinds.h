/*
 * kinds: the kinds of operations of a step, a row each: name, what runs it, what it costs by
 * default. The kinds of a model's stages follow behind the fixed ones, one for each pass of each
 * sort of stage. Rates are numbered by kind.
 */
#ifndef ZINF_TRAIN_KINDS_H
#define ZINF_TRAIN_KINDS_H

#include "model/graph.h"
#include "offload/offload.h"

/* at[] are the operation's operands. */
enum op_kind {
    OP_COPY_IN,       /* H2D: at[0] <- at[1], bytes */
    OP_COPY_OUT,      /* D2H: at[0] <- at[1], bytes */
    OP_GRAD_ADD,      /* by the CPU: at[0] += at[1], bytes */
    OP_DEVICE_ADD,    /* by a device that the CPU cannot read: at[0] += at[1], bytes */
    OP_SQUARES,       /* DEVICE: at[0] parts of the sum of squares <- at[1] the unit's gradient */
    OP_NORM_PART,     /* at[0] the unit's gradient; arg 1: its parts of OP_SQUARES */
    OP_UPDATE,        /* at[0] state in, at[1] state out, at[2] param in, at[3] param out, at[4]
                       * gradient; arg: the sub-group */
    OP_DEVICE_UPDATE, /* OP_UPDATE by a device that the CPU cannot read */
    OP_FLIP,          /* HOST: the unit's other generation is its truth; it is pending no more */
    OP_COMMIT,        /* HOST: the step before this one outlives the process */
    OP_READ,
    OP_WRITE,
    OP_STAGES, /* and what follows: stage_kind(). stage, visit; at: weights, values in, values out,
                * gradients, as a frame has them */
};
enum op_flags {
    OP_DEFERRED = 1,   /* left out unless the unit is pending */
    OP_EAGER = 2,      /* left out once speculation has failed */
    OP_RECOMPUTES = 4, /* a stage's backward makes again what forward did not keep */
    OP_ADDS = 8,       /* a stage's backward adds to gradients that are there */
};
/* By which of a machine's speeds an operation's time is guessed until it has been measured. */
enum op_cost {
    COST_NONE,
    COST_LINK,          /* between host and device */
    COST_OPTIMIZER,     /* the host's memory */
    COST_HOST_ADD,      /* two reads and a write of the bytes that are named */
    COST_DEVICE_ADD,    /* the same in the device's memory */
    COST_DEVICE_MEMORY, /* the device's memory */
    COST_RECORD,        /* two small writes, one after the other */
    COST_DRIVE_READ,
    COST_DRIVE_WRITE,
    COST_STAGE, /* products where it has flops, else the device's memory */
};

static inline uint16_t stage_kind(uint32_t sort, enum zinf_pass pass)
{
    return (uint16_t)(OP_STAGES + sort * ZINF_PASSES + pass);
}
/* Of a kind from OP_STAGES on. */
static inline uint32_t kind_sort(int kind)
{
    return (uint32_t)(kind - OP_STAGES) / ZINF_PASSES;
}
static inline enum zinf_pass kind_pass(int kind)
{
    return (enum zinf_pass)((kind - OP_STAGES) % ZINF_PASSES);
}

struct zinf_trainer;
struct op_row {
    const char *name;
    int (*run)(struct zinf_trainer *t, const struct zinf_op *op); /* NULL: the executor's own */
    enum op_cost cost;
};
/* ops.c; of any kind: those of stages share a row. */
const struct op_row *op_row(int kind);

#endif
