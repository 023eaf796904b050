/*
 * frame: one call of a stage for one micro-batch. `train` fills in where everything is; the stage's
 * code enqueues operations by the frame_* calls below, never by the device's table. With queue NULL
 * the same code issues nothing and adds up what it would take: kept activations, scratch,
 * workspace, work. So sizes and flops are never written twice.
 *
 * Arrays are in the order of the stage's lists; weights, grads and units have those at hand first
 * and then the sweep's: the one of this visit, or, in ZINF_PASS_WHOLE, all of them.
 */
#ifndef ZINF_FRAME_H
#define ZINF_FRAME_H

#include "model/graph.h"

/* Who computes: one micro-batch. */
struct zinf_compute {
    const struct zinf_device *device;
    enum zinf_dtype dtype; /* of parameters and activations */
    int64_t batch, seq, source_seq;
    bool train; /* dropout on */
    uint64_t seed;
    uint32_t step;
    uint64_t first_sample; /* index of the micro-batch's first sample in the step's batch */
};
uint64_t zinf_axis_rows(const struct zinf_compute *c, enum zinf_axis axis);
/* Of one micro-batch's value, or of its gradient. */
uint64_t zinf_value_bytes(const struct zinf_compute *c, const struct zinf_value *value);
uint64_t zinf_value_gradient_bytes(const struct zinf_compute *c, const struct zinf_value *value);

/* Memory that a call takes from, in order; every take is aligned to 256 bytes. */
struct zinf_cursor {
    char *base; /* NULL: only counted */
    uint64_t bytes;
};

struct zinf_frame {
    const struct zinf_compute *compute;
    struct zinf_queue *queue; /* NULL: measures */
    const struct zinf_graph *graph;
    const struct zinf_stage *stage;
    enum zinf_pass pass;
    uint32_t visit, n_visits;
    const void *const *in;
    void *const *out;      /* PASS_ROW: out[0] is float [row_cols], and so here */
    void *const *d_out;    /* [out.n]; of the loss: NULL */
    void *const *d_in;     /* [in.n]; NULL: nothing flows back there */
    const bool *d_in_adds; /* [in.n]: a later stage has been there: add to it */
    const void *const *weights;
    float *const *grads;     /* fp32 flat buffers, written whole, gaps zero; NULL: frozen */
    bool grads_add;          /* only with ops->adds: add to them instead */
    float loss_scale;        /* of the gradient: loss scale / targets of the step */
    int64_t row;             /* PASS_ROW: which */
    struct zinf_cursor kept; /* the same place in forward and backward of a micro-batch */
    struct zinf_cursor scratch;
    /* while measuring */
    uint64_t workspace; /* most that one operation needs on the device */
    uint64_t outside;   /* most that a library takes outside of all arenas, of host memory */
    double flops, bytes;
};

/* What a call takes, by running its code without a queue. */
struct zinf_stage_size {
    uint64_t kept, scratch, workspace, outside;
    double flops; /* of matrix products and attention */
    double bytes; /* that the other operations read and write */
};
/* BACKWARD includes RECOMPUTE's scratch and workspace, but not its flops. */
int zinf_stage_measure(struct zinf_stage_size *out, const struct zinf_compute *compute,
                       const struct zinf_graph *graph, uint32_t stage, enum zinf_pass pass);
/* Runs the stage's code for f->pass. */
int zinf_stage_run(struct zinf_frame *f);

/* ---- for the code of stages ---- */

void *frame_keep(struct zinf_frame *f, uint64_t bytes);
void *frame_scratch(struct zinf_frame *f, uint64_t bytes);
/* The unit's number in weights and grads; tensor: in the unit. NULL where tensor < 0. */
const void *frame_weight(const struct zinf_frame *f, uint32_t unit, int tensor);
float *frame_grad(const struct zinf_frame *f, uint32_t unit, int tensor);
const struct zinf_unit *frame_unit(const struct zinf_frame *f, uint32_t unit);

#endif
