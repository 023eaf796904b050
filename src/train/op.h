/* op: the kinds of operations that a step is made of, and how their rates are numbered. */
#ifndef ZINF_TRAIN_OP_H
#define ZINF_TRAIN_OP_H

#include "train/train.h"

/* What an operation does; operands by number. */
enum op_kind {
    OP_COPY_IN,    /* H2D: at[0] <- at[1], bytes */
    OP_COPY_OUT,   /* D2H: at[0] <- at[1], bytes */
    OP_EMBED_TILE, /* at[0] weights, at[1] x */
    OP_EMBED_POSITION,
    OP_BLOCK,          /* at[0] weights, at[1] x in, at[2] x out; arg layer */
    OP_BLOCK_BACKWARD, /* at[0] weights, at[1] x in, at[2] grads; arg 2 layer + recompute */
    OP_HEAD_NORM,      /* at[0] weights, at[1] x */
    OP_HEAD_TILE,      /* at[0] weights */
    OP_HEAD_FINISH,
    OP_HEAD_ALL,           /* arg: 1: gradients go to the sums */
    OP_HEAD_TILE_BACKWARD, /* at[0] weights, at[2] grads */
    OP_HEAD_NORM_BACKWARD, /* at[0] weights, at[1] x, at[2] grads */
    OP_EMBED_DROPOUT_BACKWARD,
    OP_EMBED_TILE_BACKWARD, /* at[2] grads; arg: 1: adds to them */
    OP_EMBED_POSITION_BACKWARD,
    OP_GRAD_ADD,   /* DEVICE or HOST: at[0] += at[1], bytes */
    OP_SQUARES,    /* DEVICE: at[0] parts of the sum of squares <- at[1] the unit's gradient */
    OP_NORM_PART,  /* DEVICE or HOST: at[0] the unit's gradient; arg 1: its parts of OP_SQUARES */
    OP_UPDATE,     /* at[0] state in, at[1] state out, at[2] param in, at[3] param out, at[4] grad;
                    * arg group */
    OP_FAR_UPDATE, /* the same by a device that the CPU cannot read */
    OP_FLIP,       /* HOST: the unit's other generation is its truth; it is pending no more */
    OP_COMMIT,     /* HOST: the step before this one outlives the process */
    OP_ROW_LOGITS, /* at[0] weights */
    OP_READ,
    OP_WRITE,
    OP_KINDS,
};
/* Rates are numbered by kind; of kinds that HOST and DEVICE both run, a GPU's have their own. */
enum {
    RATE_GPU_ADD = OP_KINDS,
    RATE_GPU_NORM,
    RATES,
};
_Static_assert(RATES <= ZINF_RATE_KINDS, "rates have room for every kind");

enum op_flags {
    OP_DEFERRED = 1, /* left out unless the unit is pending */
    OP_EAGER = 2,    /* left out once speculation has failed */
};

#endif
