/*
 * emit: shared by the files that build programs. An emitter knows which unit is in which slot at
 * each point of the program (the order is known, so this is decided while building), and what
 * each buffer's resource is; waits follow from the resources.
 */
#ifndef ZINF_TRAIN_EMIT_H
#define ZINF_TRAIN_EMIT_H

#include "train/trainer.h"

#define NO_UNIT UINT32_MAX

/* A buffer that several units use in turn. */
struct ring {
    zinf_resource resource[MAX_LOOK_AHEAD + 1];
    uint32_t unit[MAX_LOOK_AHEAD + 1]; /* which unit's data it holds, or NO_UNIT */
    uint64_t used[MAX_LOOK_AHEAD + 1]; /* when last used, for choosing the oldest */
    uint32_t n;
};

struct emitter {
    struct zinf_trainer *t;
    struct zinf_program *program;
    int code; /* first failure; later calls do nothing */
    uint64_t clock;
    int16_t micro;
    struct ring slots, param_stages, grad_slots, grad_stages, grad_sums, state_slots, outs, d_outs;
    zinf_resource *device_param;        /* [n_units]: own slot or resident parameters */
    bool *fetched;                      /* [n_units]: own slot holds the unit */
    zinf_resource *param, *grad;        /* [n_units]: in their tiers */
    uint32_t *grads_seen, *grads_total; /* [n_units]: contributions this step */
    zinf_resource *state;               /* [n_groups] */
    zinf_resource tokens, losses, logits, tile_grads;
    uint32_t working_layer; /* whose activations the working buffer holds */
};

int emitter_init(struct emitter *e, struct zinf_trainer *t, struct zinf_program *program,
                 const char *name);
/* Seals the program; returns the first failure. */
int emitter_finish(struct emitter *e);

/* The oldest place of a ring; its content is gone. */
uint32_t ring_take(struct emitter *e, struct ring *ring);

struct uses {
    zinf_resource reads[8], writes[8];
    uint32_t n_reads, n_writes;
};
void emit(struct emitter *e, const struct zinf_op *op, const struct uses *uses);
static inline void uses_read(struct uses *u, zinf_resource r)
{
    u->reads[u->n_reads++] = r;
}
static inline void uses_write(struct uses *u, zinf_resource r)
{
    u->writes[u->n_writes++] = r;
}

/* Brings a unit's parameters to the device if they are not there; says where they are and adds
 * the read to uses. */
void *emit_fetch(struct emitter *e, uint32_t unit, struct uses *uses);

#endif
