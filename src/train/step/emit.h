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

#define INHERITED UINT32_MAX /* as urgent as what waits for it */
#define NEXT_STEP (1u << 24) /* first deadline of the next step */

/* The last buffers that were made in a pool and what they hold: what may be used again. */
struct ring {
    zinf_pool pool;
    zinf_buffer *buffer; /* [n] each */
    uint64_t *holds;
    uint64_t *used; /* when last, for choosing the oldest */
    uint32_t n;
};

/* A sample's group of chunks (emit_carried.c). */
struct d_carried_left {
    uint64_t sample;
    uint32_t group;
};

/* What an operation reads and writes. Few lists are long: a stage's operation brings memory. */
#define FEW_USES 8
struct uses {
    zinf_resource few_reads[FEW_USES], few_writes[FEW_USES];
    zinf_resource *many; /* [2 capacity]: reads, then writes; NULL: the few */
    uint32_t capacity, n_reads, n_writes;
    bool overflow; /* more was added than there is room for: emit() fails */
};
void uses_read(struct uses *u, zinf_resource r);
void uses_write(struct uses *u, zinf_resource r);

/* A unit's parameters in a slot. */
struct fetched {
    bool here;
    bool maybe;     /* only if it is chosen in the range: nobody else may take it for granted */
    uint32_t range; /* of micro-batches, in which it was fetched */
};

/* A gradient, or a part of one, where it is computed: emit_grad.c. */
struct made_grad {
    struct zinf_operand at;
    zinf_resource resource;
    bool onto; /* products of it are in the sum already: OP_ONTO */
};
/* One unit's gradients of a range of micro-batches, summed on the device into one contribution. */
/* Sums that wait at once: one for each level of a tree of MAX_LAYER_MAJOR leaves, one for a leaf
 * that is being made, and one for the part that comes next; or one for each part of a sequence that
 * a rank may have, and one more. */
#define MAX_PARTIAL_SUMS 33
struct contribution {
    struct made_grad sums[MAX_PARTIAL_SUMS]; /* that are still to be added up, the newest last */
    uint32_t n_sums;
    struct made_grad onto; /* what the newest, where its onto is set, is added to first */
};

/* One thing on its way: where it is at each place that its legs touch. */
struct stop {
    struct zinf_operand at;
    zinf_resource resource;
    bool known; /* else it is taken when a leg touches it */
};
struct trip {
    uint32_t unit; /* or value */
    bool is_value, is_fetch;
    bool is_update;   /* of what is written the older generation is needed until the record */
    bool updates_end; /* all updates of the unit come before it */
    bool encoded;     /* its image with codes is there already */
    uint16_t flags;
    struct zinf_location home;
    uint64_t whole_bytes, slice_bytes, slice_at, squares_bytes, code_bytes;
    struct stop stops[WAYPOINTS];
};

struct emitter {
    struct plan *p;
    const struct walk *walk;
    struct zinf_program *program;
    int code; /* first failure; later calls do nothing */
    uint64_t clock;
    int16_t micro;
    uint32_t position;    /* of the next computation */
    uint32_t deadline;    /* of what is emitted now */
    uint16_t flags;       /* of what is emitted now */
    bool makes_rows;      /* for logits alone: no loss, and no reference for it */
    bool without_sources; /* of sources nothing new comes */
    bool speculates;      /* gradients are used for an update as soon as they are complete */

    struct ring slots[SLOT_SIZES], xs, carried, d_carried;
    uint32_t *carried_filled;              /* [carried.n]: end of the chunks that are in the slot */
    struct d_carried_left *d_carried_left; /* [d_carried.n]: whose gradients are in the slot */
    zinf_resource *carried_home;           /* [carried_homes], and of gradients */
    zinf_pool files, packed, packed_slots, packed_grads, codes, code_slots, updated, grads,
        beside_grads, host_grads, tiles, x_staging, exchanged, caches, staging[SLOT_SIZES];
    zinf_buffer *staged; /* [n_units]: where its parameters were on the host */
    uint32_t *staged_as, n_staged[SLOT_SIZES]; /* [n_units]: as which of all of its size */
    zinf_resource *own;                        /* [n_units]: device slot of its own */
    zinf_resource *images;                     /* [n_units]: places of images with codes, in RAM, */
    bool *encoded;                      /* [n_units]: and whether what is there is up to date */
    struct fetched *fetched;            /* [n_units]: into that, or last of all */
    uint32_t range;                     /* of micro-batches, that is being emitted */
    bool only_chosen;                   /* fetches are for units that the range's rows choose */
    zinf_resource *param, *grad, *done; /* [n_units]: live parameters, kept gradient, updates */
    uint32_t *grads_seen, *grads_total; /* [n_units]: contributions this step */
    zinf_resource *x; /* [plan_n_leaving live]: values and gradients in their tier */
    zinf_resource inputs, losses, logits, whole_grads;
    zinf_resource unpacked; /* marks of damage, of what the device unpacks */
    zinf_resource sequence; /* of computations */
    /* Of a pipeline; NULL without one. crossing [live]: the values and gradients of a micro-batch,
     * which are computed here or exchanged with a neighbour. wire: keeps exchanges with neighbours
     * in their order, and where ranks share homes of chunks, or hand states over, all that ranks
     * meet in. */
    zinf_resource *crossing, wire;
    /* What a rank has taken from a neighbour, the next one or that before, is not given on yet. */
    bool hands, hands_next;
    bool meets_late; /* see emit_meet */
    int64_t turn,
        n_turns; /* number of this visit's contributions in the tree of sums, and of how many */
    uint32_t *turns_seen; /* [n_units]: contributions in this visit */
    zinf_resource record; /* of the step before */
    /* of values that visits are chosen by: made on the device, [n_choices live]; as a list
     * there, alike; decided on the host, [n_choices]; on the way between */
    zinf_resource *weighed, *listed, *decided, choice;
    uint64_t working;  /* whose activations the working buffer holds */
    uint64_t carrying; /* the stage and sample whose carried rows of all chunks exist now */
    uint32_t part;     /* of this rank's parts of a sequence, the one at hand */

    /* of the operation of a stage that is being made */
    struct zinf_operand *operands;      /* [most_operands] */
    zinf_resource *stage_uses;          /* [2 (most_operands + FEW_USES)] */
    struct contribution *contributions; /* [most_units] */
    /* [n_units], of a sweep that runs whole: what the operation makes of each, and the sums so far
     */
    struct made_grad *swept, *swept_sums;
};

/* emitter.c, emit_values.c */
int emitter_init(struct emitter *e, struct plan *p, struct zinf_program *program, const char *name);
/* Frees what building needed; returns the first failure. */
int emitter_finish(struct emitter *e);
void emit(struct emitter *e, struct zinf_op *op, const struct uses *uses);
zinf_buffer emit_buffer(struct emitter *e, zinf_pool pool);
/* The place in the ring that holds a thing, or a new one in the oldest's stead. */
uint32_t ring_find(struct emitter *e, struct ring *ring, uint64_t thing, bool *hit);
/* The slot that ring_find will give: the thing's, or that of what was used longest ago. */
uint32_t ring_next(const struct ring *ring, uint64_t thing);
/* Brings a unit's parameters to the device if they are not there; says where they are and adds
 * the read to uses. */
struct zinf_operand emit_fetch(struct emitter *e, uint32_t unit, struct uses *uses);
/* The parameters of all units with device slots of their own. */
void emit_own_slots(struct emitter *e);
/* Where the CPU can still read what a fetch brought, and how much of the unit that is; false:
 * nowhere. Whoever reads it there keeps the slot from others. */
bool emit_fetched(struct emitter *e, uint32_t unit, struct stop *hand, enum portion *portion);
/* For who needs a unit's parameters although no row may have chosen it: reads them, where the fetch
 * of this range was left out, to where that would have brought them. */
void emit_fetch_unchosen(struct emitter *e, uint32_t unit);
/* A value that a stage makes: its place while it is made; then to its tier. Or brought back. */
struct zinf_operand emit_value_new(struct emitter *e, uint32_t value, int64_t micro,
                                   struct uses *uses);
void emit_value_made(struct emitter *e, uint32_t value, int64_t micro, struct zinf_operand at);
struct zinf_operand emit_value(struct emitter *e, uint32_t value, int64_t micro, struct uses *uses);
/* Where gradients of a value are stored in another tier chunk by chunk: the place of a chunk's
 * gradient on the device. Its content is brought from that tier, unless it is fresh.
 * emit_gradient_made stores it there again. value: one that has a gradient. */
struct zinf_operand emit_gradient(struct emitter *e, uint32_t value, int64_t micro, bool fresh,
                                  struct uses *uses);
void emit_gradient_made(struct emitter *e, uint32_t value, int64_t micro, struct zinf_operand at);
/* A transfer between a drive's extent and memory. */
void emit_drive(struct emitter *e, enum zinf_lane lane, int32_t unit, int32_t arg,
                const struct zinf_location *where, struct zinf_operand memory,
                const struct uses *uses);
void emit_copy(struct emitter *e, enum zinf_lane lane, int32_t unit, struct zinf_operand to,
               struct zinf_operand from, uint64_t bytes, const struct uses *uses);

/* emit.c: the operations of a stage, for micro-batches [first, end) where it says so. */
void emit_forward(struct emitter *e, uint32_t stage, struct range micros);
void emit_backward(struct emitter *e, uint32_t stage, struct range micros);
/* emit_parts.c: the same of sequences whose chunks are dealt in parts. */
void emit_backward_parts(struct emitter *e, uint32_t stage, struct range micros);
/* All micro-batches add to one place, in their order: one contribution. */
void emit_backward_last(struct emitter *e, uint32_t stage, struct range micros);
/* Forward and backward of a sweep that is at hand whole. */
void emit_whole(struct emitter *e, uint32_t stage, struct range micros);
/* The stage's result for rows, visit by visit, to the host; of micro-batches that are chunks of a
 * sample only that of the chunk which has the row. */
void emit_row(struct emitter *e, uint32_t stage, struct range micros);

/* Where a value is for a reference. */
struct zinf_operand emit_reference_at(const struct emitter *e, uint32_t value, int64_t micro);
/* emit_border.c: an exchange with the pipeline rank before this one, or with the next one. */
void emit_border(struct emitter *e, const struct visit *border);

/* emit_choice.c: what visits of the stage are chosen by is made, at `value`: it becomes lists. Of
 * the micro-batches that the stage's units are fetched for together; after the last one ranks that
 * gather units learn what any of them has chosen. */
void emit_choice_made(struct emitter *e, uint32_t stage, int64_t micro, struct range micros,
                      struct zinf_operand value);
/* Adds to uses what the operations of a fetch that may be left out wait for. */
void emit_choice_awaits(struct emitter *e, uint32_t unit, struct uses *uses);
/* Adds to uses: makes it; reads the list. */
void emit_choice_makes(struct emitter *e, uint32_t stage, int64_t micro, struct uses *uses);
void emit_choice_reads(struct emitter *e, uint32_t stage, int64_t micro, struct uses *uses);
/* emit_cache.c: of a decoding call. Sequences and positions of its rows; a stage's cache, on the
 * device, and what the stage has added to it back to where it lives. */
void emit_rows(struct emitter *e);
struct zinf_operand emit_cache(struct emitter *e, uint32_t stage, struct uses *uses);
void emit_cache_made(struct emitter *e, uint32_t stage, struct zinf_operand cache);

/* emit_carried.c: the slot on the device with what a stage carries of a sample's group of chunks
 * (emit_carried), or with its gradient (emit_d_carried). Both add to uses. `made`: the chunks that
 * the operation makes; earlier chunks of the group are brought to the slot first. `chunks`: the
 * chunks whose gradients are brought to the slot first, unless the group's gradients are fresh.
 * emit_carried_made stores what the operation has made in the tier where it is kept. */
struct span_of {
    uint32_t first, end;
};
struct zinf_operand emit_carried(struct emitter *e, uint32_t stage, uint64_t sample, uint32_t group,
                                 struct span_of made, struct uses *uses);
void emit_carried_made(struct emitter *e, uint32_t stage, uint32_t chunk, struct zinf_operand slot);
struct zinf_operand emit_d_carried(struct emitter *e, uint32_t stage, uint64_t sample,
                                   uint32_t group, struct span_of chunks, bool fresh,
                                   struct uses *uses);
void emit_d_carried_made(struct emitter *e, uint32_t stage, struct span_of chunks,
                         struct zinf_operand slot);
/* Where what is carried lives if not on the device, or its gradient: a chunk's home, which has a
 * number, and the home's resource. */
struct zinf_location emit_carried_at(const struct emitter *e, uint32_t stage, uint64_t number,
                                     bool gradient);
zinf_resource emit_carried_home(const struct emitter *e, uint64_t number, bool gradient);
/* emit_keys.c. Of sequences in parts, of the sample that micro-batch `first` begins: what the stage
 * carries, from ranks that share it to all; the sum of its gradients over all parts, to the rank
 * that has made what they are of. */
void emit_gather_keys(struct emitter *e, uint32_t stage, int64_t first);
/* What a neighbour along CONTEXT hands over of the chunk before this rank's front or rear chunks,
 * or this rank of the last of them; of gradients the other way round. Between computations. */
struct handing {
    bool rear, takes, gradient;
};
void emit_hand(struct emitter *e, uint32_t stage, int64_t first, struct handing how);
void emit_sum_keys(struct emitter *e, uint32_t stage, int64_t first);
/* Where the gradients do not live on the device: they begin as zeros. */
void emit_clear_keys(struct emitter *e, uint32_t stage, int64_t first);
/* A slot for one chunk by itself, at its place in its group; what it carries, or, brought from
 * where it lives, its gradient. */
struct zinf_operand emit_carried_alone(struct emitter *e, uint32_t stage, uint32_t chunk,
                                       bool gradient, struct uses *uses);

/* emit_grad.c */
/* Where the operation that computes a contribution writes; adds to uses. */
struct made_grad emit_grad_target(struct emitter *e, uint32_t unit, struct uses *uses);
/* Whether the next contribution is added to the unit's sum on the device as it comes, and where
 * that is. */
bool emit_grad_adds(const struct emitter *e, uint32_t unit, struct made_grad *sum);
/* A second place to compute into, added to the first afterwards, on the device. */
struct made_grad emit_grad_part(struct emitter *e, uint32_t unit, struct uses *uses);
/* of: elements of the unit; n 0: all. */
void emit_grad_join(struct emitter *e, uint32_t unit, struct made_grad sum, struct made_grad part,
                    struct zinf_span of);
/* A contribution is there. */
void emit_grad_made(struct emitter *e, uint32_t unit, struct made_grad g);
/* A contribution to a gradient, or a sum of several, and where it is now. */
struct carried {
    struct stop at;
    struct end end; /* GRAD_SLOT: a contribution that was not moved yet */
    bool onto;      /* as of made_grad */
};
/* Adds *c to the unit's sum with this number, or if there is none yet keeps it as that sum.
 * Afterwards *c is the sum. */
void emit_grad_add(struct emitter *e, uint32_t unit, uint32_t number, struct turn turn,
                   struct carried *c);
/* Number of the first place for sums of a stage's contributions to the unit. turn: the number of
 * the stage's contribution within a visit. */
uint32_t emit_grad_base(const struct emitter *e, uint32_t unit, uint32_t turn);
/* The unit's first sum, at a place where the CPU can read it. */
struct carried emit_grad_sum(struct emitter *e, uint32_t unit);
/* Whether the unit is updated as soon as its gradient is complete. */
bool emit_grad_is_eager(const struct emitter *e, uint32_t unit);

/* emit_shared.c: after all visits, adds up the gradients of units that stages of several pipeline
 * ranks use. */
void emit_shared(struct emitter *e);

/* emit_swept.c */
/* Of a sweep that runs whole: where its operation for the first micro-batch of a range, or a later
 * one, writes gradients (e->swept, one for each unit, frozen ones too); they are there. Where they
 * have slots, the range's are one contribution. */
void emit_swept_targets(struct emitter *e, const struct zinf_ids *sweep, bool first,
                        struct uses *uses);
void emit_swept_made(struct emitter *e, const struct zinf_ids *sweep, bool first, bool last);

/* emit_way.c: a way's legs, one after the other; or one of them. */
void emit_way(struct emitter *e, struct trip *trip, const struct legs *legs);
void emit_leg(struct emitter *e, struct trip *trip, const struct leg *leg);
/* Two legs by way of PACKED_STAGING or GRAD_PACKED, or three by way of PACKED_SLOT besides, a
 * sub-group at a time, so that the drive works while others are packed or unpacked. How many they
 * are. */
int emit_packed(struct emitter *e, struct trip *trip, const struct leg *legs);
/* Of a fetch, the legs that bring the unit off the drive to where it is whole or the rank's slice.
 * How many they are. */
int emit_off_drive(struct emitter *e, struct trip *trip, const struct legs *legs);
/* Of a unit's parameters, whose home is known. */
struct trip trip_of_params(const struct emitter *e, uint32_t unit);
zinf_resource emit_grad_slot(struct emitter *e, uint32_t unit);
/* What each rank has updated of a unit, to all. Between the updates and the unit's next use. */
void emit_spread(struct emitter *e, uint32_t unit);

/* emit_update.c */
/* The update of a unit whose gradient's sum, the rank's slice, is at grad. */
void emit_update_eager(struct emitter *e, uint32_t unit, struct end sum, const struct stop *grad);
/* The update of a unit by its kept gradient, if it is pending. */
void emit_update_late(struct emitter *e, uint32_t unit);
/* After all late updates and before the eager ones: the record of the step before. */
void emit_commit(struct emitter *e);
/* Waits until all ranks have written their record of the step before: at once or, if no visit
 * updates anything (meets_late), after all visits. */
void emit_meet(struct emitter *e);

#endif
