/*
 * emit: shared by the files that build programs. An emitter knows which unit's parameters and
 * which activations are on the device at each point of the program (the order of computation is
 * known, so this is decided while building), and what each thing's resource is; waits follow.
 *
 * Deadlines: computations count up from 0, whatever leads to one inherits its number. Updates
 * that only the next step needs come after all of them, in the order of the next forward.
 */
#ifndef ZINF_TRAIN_EMIT_H
#define ZINF_TRAIN_EMIT_H

#include "train/trainer.h"

#define NO_UNIT UINT32_MAX
#define INHERITED UINT32_MAX /* as urgent as what waits for it */
#define NEXT_STEP (1u << 24) /* first deadline of the next step */

/* The last buffers that were made in a pool and what they hold: what may be used again. */
#define MAX_RING (MAX_LAYER_MAJOR + X_SLOTS)
struct ring {
    zinf_pool pool;
    zinf_buffer buffer[MAX_RING];
    uint64_t holds[MAX_RING];
    uint64_t used[MAX_RING]; /* when last, for choosing the oldest */
    uint32_t n;
};

struct uses {
    zinf_resource reads[8], writes[8];
    uint32_t n_reads, n_writes;
};
static inline void uses_read(struct uses *u, zinf_resource r)
{
    u->reads[u->n_reads++] = r;
}
static inline void uses_write(struct uses *u, zinf_resource r)
{
    u->writes[u->n_writes++] = r;
}

struct emitter {
    struct plan *p;
    struct zinf_program *program;
    int code; /* first failure; later calls do nothing */
    uint64_t clock;
    int16_t micro;
    uint32_t position; /* of the next computation */
    uint32_t deadline; /* of what is emitted now */
    uint16_t flags;    /* the same */

    /* what becomes of a unit's gradient in this program */
    bool keeps_all, speculates;

    struct ring slots, xs;
    zinf_pool stages, grads, host_grads, tiles, x_stages;
    zinf_buffer *staged;                /* [n_units]: where its parameters were on the host */
    uint32_t *staged_as, n_staged;      /* [n_units]: as which of all that were */
    zinf_resource *own;                 /* [n_units]: device slot of its own */
    bool *fetched;                      /* [n_units]: it holds the unit */
    zinf_resource *param, *grad, *done; /* [n_units]: live parameters, kept gradient, updates */
    uint32_t *grads_seen, *grads_total; /* [n_units]: contributions this step */
    zinf_resource *x;                   /* [(n_layers + 1) n_x_micros]: activations in their tier */
    zinf_resource tokens, losses, logits, tile_grads;
    zinf_resource sequence; /* of computations */
    zinf_resource record;   /* of the step before */
    uint64_t working;       /* whose activations the working buffer holds */
};

/* emitter.c */
int emitter_init(struct emitter *e, struct plan *p, struct zinf_program *program, const char *name);
/* Frees what building needed; returns the first failure. */
int emitter_finish(struct emitter *e);
void emit(struct emitter *e, struct zinf_op *op, const struct uses *uses);
zinf_buffer emit_buffer(struct emitter *e, zinf_pool pool);
/* Brings a unit's parameters to the device if they are not there; says where they are and adds
 * the read to uses. */
struct zinf_operand emit_fetch(struct emitter *e, uint32_t unit, struct uses *uses);
/* Where the CPU can still read what a fetch brought; false: nowhere. Whoever reads it there keeps
 * the slot from others. */
bool emit_fetched(struct emitter *e, uint32_t unit, struct zinf_operand *memory,
                  zinf_resource *resource);
/* Input of block l (l = n_layers: of the final norm) of a micro-batch: made here and taken to its
 * tier by emit_x_made, or brought back. */
struct zinf_operand emit_x_new(struct emitter *e, uint32_t layer, int64_t micro, struct uses *uses);
void emit_x_made(struct emitter *e, uint32_t layer, int64_t micro, struct zinf_operand x);
struct zinf_operand emit_x(struct emitter *e, uint32_t layer, int64_t micro, struct uses *uses);
/* A transfer between a drive's extent and memory. */
void emit_drive(struct emitter *e, enum zinf_lane lane, int32_t unit, int32_t arg,
                const struct zinf_location *where, struct zinf_operand memory,
                const struct uses *uses);
void emit_copy(struct emitter *e, enum zinf_lane lane, int32_t unit, struct zinf_operand to,
               struct zinf_operand from, uint64_t bytes, const struct uses *uses);

/* emit_grad.c: a gradient from where it is computed to its sum, its norm and its update */
struct made_grad {
    struct zinf_operand at;
    zinf_resource resource;
    bool is_sum; /* at is the kept place itself, or adds to what another operation made */
};
/* Where the operation that computes a contribution writes; adds to uses. */
struct made_grad emit_grad_target(struct emitter *e, uint32_t unit, struct uses *uses);
/* A second place to compute into, added to the first afterwards, on the device. */
struct made_grad emit_grad_part(struct emitter *e, struct uses *uses);
void emit_grad_join(struct emitter *e, uint32_t unit, struct made_grad sum, struct made_grad part);
/* A contribution is there. */
void emit_grad_made(struct emitter *e, uint32_t unit, struct made_grad g);

/* emit_update.c */
/* The update of a unit whose gradient is at grad (whole unit, host memory). */
void emit_update_eager(struct emitter *e, uint32_t unit, struct zinf_operand grad,
                       zinf_resource resource);
/* The update of a unit by its kept gradient, if it is pending. */
void emit_update_late(struct emitter *e, uint32_t unit);
/* After all late updates and before the eager ones: the record of the step before. */
void emit_commit(struct emitter *e);

#endif
