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

#define INHERITED UINT32_MAX /* a deadline: as urgent as the operation that waits for it */
#define NEXT_STEP (1u << 24) /* first deadline of the next step */

/* The newest buffers of a pool and what each holds, so that contents can be used again. */
struct ring {
    zinf_pool pool;
    zinf_buffer *buffer; /* arrays of [n] */
    uint64_t *holds;
    uint64_t *used; /* when it was last used, to choose the oldest */
    uint32_t n;
};

/* The sample and group of chunks whose gradients a slot has, and the chunk that was the last to
 * look at them (emit_carried.c). */
struct d_carried_left {
    uint64_t sample;
    uint32_t group, chunk;
};
/* Operations [first, end) that have brought data to a slot. */
struct loads {
    uint32_t first, end;
};

/* The resources that an operation reads and writes. Only operations of stages need more room than
 * few_reads and few_writes; they provide it in `many`. */
#define FEW_USES 8
struct uses {
    zinf_resource few_reads[FEW_USES], few_writes[FEW_USES];
    zinf_resource *many; /* [2 capacity]: reads, then writes; NULL: few_reads, few_writes */
    uint32_t capacity, n_reads, n_writes;
    bool overflow; /* more was added than there is room for: emit() fails */
};
void uses_read(struct uses *u, zinf_resource r);
void uses_write(struct uses *u, zinf_resource r);

/* The state of a unit's parameters in a device slot. */
struct fetched {
    bool here;
    bool maybe;     /* only if a row of the range has chosen the unit: others must not rely on it */
    uint32_t range; /* the range of micro-batches in which it was fetched */
};

/* A gradient, or a part of one, in the place where it is computed (emit_grad.c). */
struct made_grad {
    struct zinf_operand at;
    zinf_resource resource;
    bool onto; /* some of its products were added to the sum directly (OP_ONTO) */
};
/* Sums that wait at once: one for each level of a tree of MAX_LAYER_MAJOR leaves, one for a leaf
 * that is being made, and one for the part that comes next; or one for each part of a sequence that
 * a rank may have, and one more. */
#define MAX_PARTIAL_SUMS 33
/* One unit's gradients of a range of micro-batches, summed on the device into one contribution. */
struct contribution {
    /* partial sums that still have to be added up, the newest last */
    struct made_grad sums[MAX_PARTIAL_SUMS];
    uint32_t n_sums;
    struct made_grad onto; /* if the newest has `onto`: the sum that it is added to */
};

/* One thing on its way: its memory at each place that its legs touch. */
struct stop {
    struct zinf_operand at;
    zinf_resource resource;
    bool known; /* else memory is allocated when a leg touches the place */
};
struct trip {
    uint32_t unit; /* or the value, with is_value */
    bool is_value, is_fetch;
    bool is_update;   /* its writes must wait until the record of the step before is written */
    bool updates_end; /* all updates of the unit come before it */
    bool encoded;     /* its image with codes is there already */
    bool gradient;    /* of carried data */
    uint16_t flags;
    uint32_t stage, of_chunk; /* of carried data */
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
    uint32_t position;    /* number of the next computation */
    uint32_t deadline;    /* of the operations that are appended now */
    uint16_t flags;       /* of the operations that are appended now */
    int16_t chunk;        /* the same (op.h), of those that have none of their own */
    bool makes_rows;      /* the program makes only logits: no loss and no REFERENCE values */
    bool without_sources; /* a decoding call without new source tokens */
    bool forward_alone;   /* the program has no backward: what stages keep for it is not stored */
    /* The program may be handed over in pieces, to the taker (NULL: they are counted). Of a piece
     * live on: the first n_fixed resources, and lives_on, an array that the first cut allocates. */
    bool cuts;
    const struct zinf_taker *taker;
    uint32_t n_fixed;
    zinf_resource *lives_on;
    bool speculates; /* speculation: a gradient is used for an update as soon as it is complete */

    struct ring slots[SLOT_SIZES], xs, kept, carried, d_carried;
    uint32_t *carried_filled;              /* [carried.n]: end of the chunks that the slot has */
    struct loads *carried_loads;           /* [carried.n]: in this piece of the program */
    struct d_carried_left *d_carried_left; /* [d_carried.n]: whose gradients the slot has */
    zinf_resource *carried_home;           /* [carried_homes], then those of gradients */
    zinf_pool files, packed, packed_slots, packed_grads, codes, code_slots, updated, grads,
        beside_grads, host_grads, tiles, x_staging, exchanged, caches, staging[SLOT_SIZES];
    zinf_buffer *staged; /* [n_units]: the last staging buffer that had its parameters */
    /* [n_units]: number of that buffer among those of its size; how many there were of each size */
    uint32_t *staged_as, n_staged[SLOT_SIZES];
    zinf_resource *own;      /* [n_units]: its own device slot */
    zinf_resource *images;   /* [n_units]: the place of its image with codes in RAM */
    bool *encoded;           /* [n_units]: whether that image is up to date */
    struct fetched *fetched; /* [n_units]: into its own slot, or the last time */
    uint32_t range;          /* number of the range of micro-batches that is being emitted */
    bool only_chosen;        /* units are fetched only if rows of the range have chosen them */
    zinf_resource *param, *grad, *done; /* [n_units]: live parameters, kept gradient, updates */
    uint32_t *grads_seen, *grads_total; /* [n_units]: contributions this step */
    /* [plan_n_leaving live]: homes of what leaves the device */
    zinf_resource *x;
    zinf_resource inputs, losses, logits, whole_grads;
    zinf_resource unpacked; /* the marks that say whether what the device unpacked is damaged */
    zinf_resource sequence; /* keeps computations in order */
    /* What the CPU works in, on any lane, when it updates matrices or whole tensors, and where it
     * unpacks. */
    zinf_resource update_work;
    /* crossing [live]: with pipeline parallelism, else NULL: the values and gradients of a
     * micro-batch, which are computed here or exchanged with a neighbour. wire: keeps exchanges
     * with neighbours in their order; if ranks share homes of chunks, or hand states over, it keeps
     * all collectives in order. */
    zinf_resource *crossing, wire;
    /* hands: this rank has taken a state from a neighbour along CONTEXT and not given one on yet.
     * hands_next: that neighbour is the next rank. */
    bool hands, hands_next;
    bool meets_late; /* see emit_meet */
    /* index of this visit's contributions in the tree of sums, and how many leaves it has */
    int64_t turn, n_turns;
    uint32_t *turns_seen; /* [n_units]: contributions so far in this visit */
    zinf_resource record; /* the record of the step before */
    /* For stages whose rows choose visits: weighed [n_choices live]: the value on the device by
     * which they choose; listed [n_choices live]: the list of choices on the device; decided
     * [n_choices]: the choices on the host; choice: the value on the host. */
    zinf_resource *weighed, *listed, *decided, choice;
    uint64_t working;  /* the stage and micro-batch whose activations the working buffer holds */
    uint64_t carrying; /* the stage and sample for which all chunks' carried rows exist now */
    uint32_t part;     /* the current one of this rank's parts of a sequence */

    /* used while an operation of a stage is built */
    struct zinf_operand *operands;      /* [most_operands] */
    zinf_resource *stage_uses;          /* [2 (most_operands + FEW_USES)] */
    struct contribution *contributions; /* [most_units] */
    /* [n_units], for a sweep that runs whole: where the operation writes each unit's gradient, and
     * the sums so far */
    struct made_grad *swept, *swept_sums;
};

/* emitter.c, emit_values.c */
int emitter_init(struct emitter *e, struct plan *p, struct zinf_program *program, const char *name);
/* emitter_finish frees what building needed and returns the first failure. emit appends an
 * operation to the program. emit_buffer makes the pool's next buffer. */
int emitter_finish(struct emitter *e);
void emit(struct emitter *e, struct zinf_op *op, const struct uses *uses);
/* emit_pieces.c: cuts the program here if it is to be cut and the piece is long enough. The caller
 * holds nothing of a call that is being made: what lives on is what the emitter knows of. */
void emit_cut(struct emitter *e);
zinf_buffer emit_buffer(struct emitter *e, zinf_pool pool);
/* Finds the slot of a ring that holds a thing (*hit), or gives it a new buffer in place of the one
 * used longest ago. Returns its index. */
uint32_t ring_find(struct emitter *e, struct ring *ring, uint64_t thing, bool *hit);
/* The index that ring_find would return. */
uint32_t ring_next(const struct ring *ring, uint64_t thing);
/* Brings a unit's parameters to the device if they are not there. Returns where they are and adds
 * the read to uses. */
struct zinf_operand emit_fetch(struct emitter *e, uint32_t unit, struct uses *uses);
/* Fetches the parameters of units that stay in device slots of their own. */
void emit_own_slots(struct emitter *e);
/* Finds where the CPU can still read the parameters that a fetch brought, and how much of the unit
 * is there. false: nowhere. Until the reader has finished, the slot is not reused. */
bool emit_fetched(struct emitter *e, uint32_t unit, struct stop *hand, enum portion *portion);
/* Whether the staging buffer that had the unit's parameters last may still be read. */
bool emit_is_staged(const struct emitter *e, uint32_t unit);
/* For a caller that needs a unit's parameters even if no row has chosen it: if the fetch of this
 * range was skipped, reads them from the drive to the place where the fetch would have brought
 * them. */
void emit_fetch_unchosen(struct emitter *e, uint32_t unit);
/* emit_value_new: the place where a stage writes a new value; emit_value_made then sends it to its
 * tier. emit_value: the place of a value, which is brought back to the device if needed. */
struct zinf_operand emit_value_new(struct emitter *e, uint32_t value, int64_t micro,
                                   struct uses *uses);
void emit_value_made(struct emitter *e, uint32_t value, int64_t micro, struct zinf_operand at);
struct zinf_operand emit_value(struct emitter *e, uint32_t value, int64_t micro, struct uses *uses);
/* For gradients of values that are kept in another tier chunk by chunk: the place of a chunk's
 * gradient on the device. Its content is brought from that tier, unless it is fresh.
 * emit_gradient_made stores it there again. value must have a gradient. */
struct zinf_operand emit_gradient(struct emitter *e, uint32_t value, int64_t micro, bool fresh,
                                  struct uses *uses);
void emit_gradient_made(struct emitter *e, uint32_t value, int64_t micro, struct zinf_operand at);
/* For what a stage keeps of a micro-batch for its backward (plan_kept_leaves): its place on the
 * device. Its content is brought from its home unless it is fresh. emit_kept_made stores it there.
 * emit_kept_aside: a place of which nothing is stored. */
struct zinf_operand emit_kept(struct emitter *e, uint32_t stage, int64_t micro, bool fresh,
                              struct uses *uses);
void emit_kept_made(struct emitter *e, uint32_t stage, int64_t micro, struct zinf_operand at);
struct zinf_operand emit_kept_aside(struct emitter *e, struct uses *uses);
/* emit_drive appends a transfer between a drive's extent and memory, emit_copy one between host and
 * device. unit -1: the bytes are no unit's. */
struct drive_transfer {
    enum zinf_lane lane; /* READ or WRITE */
    int32_t unit, group;
    const struct zinf_location *where;
    struct zinf_operand memory;
};
void emit_drive(struct emitter *e, const struct drive_transfer *transfer, const struct uses *uses);
struct device_copy {
    enum zinf_lane lane; /* H2D or D2H */
    int32_t unit;
    struct zinf_operand to, from;
    uint64_t bytes;
};
void emit_copy(struct emitter *e, const struct device_copy *copy, const struct uses *uses);

/* emit.c: append the forward or backward operations of a stage for a range of micro-batches. */
void emit_forward(struct emitter *e, uint32_t stage, struct range micros);
void emit_backward(struct emitter *e, uint32_t stage, struct range micros);
/* emit_parts.c: the backward operations if chunks of sequences are dealt to ranks in parts. */
void emit_backward_parts(struct emitter *e, uint32_t stage, struct range micros);
/* Backward of a stage that runs last: all micro-batches add to one place, in order, which is one
 * contribution. With setup.exact the same as emit_backward. */
void emit_backward_last(struct emitter *e, uint32_t stage, struct range micros);
/* Forward and backward in one operation, for a sweep all of whose units are on the device at once.
 */
void emit_whole(struct emitter *e, uint32_t stage, struct range micros);
/* Computes the stage's logits of some rows, visit by visit, and copies them to the host. If
 * micro-batches are chunks of a sample, only the chunk that has the rows is computed. */
void emit_row(struct emitter *e, uint32_t stage, struct range micros);

/* The place of a value while it is computed for a REFERENCE. */
struct zinf_operand emit_reference_at(const struct emitter *e, uint32_t value, int64_t micro);
/* emit_border.c: an exchange with the pipeline rank before this one, or with the next one. */
void emit_border(struct emitter *e, const struct visit *border);

/* emit_choice.c: call when the value by which the stage's visits are chosen has been made, at
 * `value`: the host turns it into lists of rows. micros: the micro-batches for which the stage's
 * units are fetched together; after the last one, ranks that gather units agree on which units any
 * of them has chosen. */
void emit_choice_made(struct emitter *e, uint32_t stage, int64_t micro, struct range micros,
                      struct zinf_operand value);
/* Adds to uses what the operations of a fetch that may be left out wait for. */
void emit_choice_awaits(struct emitter *e, uint32_t unit, struct uses *uses);
/* Add to uses that an operation makes that value, and that it reads the lists. */
void emit_choice_makes(struct emitter *e, uint32_t stage, int64_t micro, struct uses *uses);
void emit_choice_reads(struct emitter *e, uint32_t stage, int64_t micro, struct uses *uses);
/* emit_cache.c, for a decoding call. emit_rows copies the sequences and positions of its rows to
 * the device. emit_cache: the place of a stage's cache on the device, to which it is brought.
 * emit_cache_made returns what the stage has added to where the cache lives. */
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
/* If what is carried, or its gradient, does not live on the device: the home with this number of a
 * chunk, and the resource of the home. */
struct zinf_location emit_carried_at(const struct emitter *e, uint32_t stage, uint64_t number,
                                     bool gradient);
zinf_resource emit_carried_home(const struct emitter *e, uint64_t number, bool gradient);
/* Call before a piece ends: what slots have was brought there for chunks of later pieces, too. */
void emit_carried_cut(struct emitter *e);
/* emit_keys.c: for sequences in parts, for the sample that begins with micro-batch `first`.
 * emit_gather_keys gathers what the stage carries on all ranks along CONTEXT. emit_sum_keys adds up
 * its gradients over all parts, on the rank that has made the chunk. */
void emit_gather_keys(struct emitter *e, uint32_t stage, int64_t first);
/* Hands a state over between neighbours along CONTEXT, between computations. takes: this rank
 * receives the state after the chunk before its front (or rear) chunks; else it sends the state
 * after the last of them. gradient: the gradient goes the other way round. */
struct handing {
    bool rear, takes, gradient;
};
void emit_hand(struct emitter *e, uint32_t stage, int64_t first, struct handing how);
void emit_sum_keys(struct emitter *e, uint32_t stage, int64_t first);
/* Fills the gradients with zeros if they do not live on the device. */
void emit_clear_keys(struct emitter *e, uint32_t stage, int64_t first);
/* The slot on the device for what one chunk alone carries, at its place in its group; or for its
 * gradient, which is brought from where it lives. */
struct zinf_operand emit_carried_alone(struct emitter *e, uint32_t stage, uint32_t chunk,
                                       bool gradient, struct uses *uses);

/* emit_grad.c */
/* The place where the operation that computes a contribution writes it; adds the write to uses. */
struct made_grad emit_grad_target(struct emitter *e, uint32_t unit, struct uses *uses);
/* Whether the next contribution is added directly to the unit's sum on the device. *sum: that sum.
 */
bool emit_grad_adds(const struct emitter *e, uint32_t unit, struct made_grad *sum);
/* A further place for a part of a contribution; emit_grad_join adds it to the first on the device.
 */
struct made_grad emit_grad_part(struct emitter *e, uint32_t unit, struct uses *uses);
/* Adds part to sum. of: which elements of the unit; n 0: all. */
void emit_grad_join(struct emitter *e, uint32_t unit, struct made_grad sum, struct made_grad part,
                    struct zinf_span of);
/* Call when a contribution has been computed: adds it to its sum and, if it is the last and the
 * update is eager, updates the unit. */
void emit_grad_made(struct emitter *e, uint32_t unit, struct made_grad g);
/* A contribution to a gradient, or a sum of several, and the place where it is now. */
struct carried {
    struct stop at;
    struct end end; /* GRAD_SLOT: a contribution that has not been moved yet */
    bool onto;      /* as in struct made_grad */
};
/* Adds *c to the unit's sum with this number; the first one is kept as that sum. Afterwards *c is
 * the sum. */
void emit_grad_add(struct emitter *e, uint32_t unit, uint32_t number, struct turn turn,
                   struct carried *c);
/* The number of the first place for sums of a stage's contributions to the unit. turn: the number
 * of the stage's contribution within a visit. */
uint32_t emit_grad_base(const struct emitter *e, uint32_t unit, uint32_t turn);
/* The unit's first sum; it is brought to host memory if it lives on a drive. */
struct carried emit_grad_sum(struct emitter *e, uint32_t unit);
/* Whether the unit is updated as soon as its gradient is complete. */
bool emit_grad_is_eager(const struct emitter *e, uint32_t unit);

/* emit_shared.c: after all visits, adds up the gradients of units that stages of several pipeline
 * ranks use. */
void emit_shared(struct emitter *e);

/* emit_swept.c */
/* For a sweep that runs whole. emit_swept_targets sets where its operation for the first
 * micro-batch of a range, or for a later one, writes gradients (e->swept, one for each unit, also
 * for frozen ones). Call emit_swept_made when they are computed. If gradients have slots, those of
 * the range are one contribution. */
void emit_swept_targets(struct emitter *e, const struct zinf_ids *sweep, bool first,
                        struct uses *uses);
void emit_swept_made(struct emitter *e, const struct zinf_ids *sweep, bool first, bool last);

/* emit_way.c: append all legs of a way, one after the other; or one leg. */
void emit_way(struct emitter *e, struct trip *trip, const struct legs *legs);
void emit_leg(struct emitter *e, struct trip *trip, const struct leg *leg);
/* Appends two legs through PACKED_STAGING or GRAD_PACKED, or three that also go through
 * PACKED_SLOT, one sub-group at a time, so that the drive works while other sub-groups are packed
 * or unpacked. Returns how many legs it has appended. */
int emit_packed(struct emitter *e, struct trip *trip, const struct leg *legs);
/* Appends the legs of a fetch that bring the unit, or the rank's slice, from the drive to memory.
 * Returns how many. */
int emit_off_drive(struct emitter *e, struct trip *trip, const struct legs *legs);
/* Begins a trip of a unit's parameters from or to their home. emit_grad_slot: a new device slot for
 * the unit's gradient. */
struct trip trip_of_params(const struct emitter *e, uint32_t unit);
zinf_resource emit_grad_slot(struct emitter *e, uint32_t unit);
/* Brings what each rank has updated of a unit to all ranks, after the updates and before the unit's
 * next use. */
void emit_spread(struct emitter *e, uint32_t unit);

/* emit_update.c */
/* The update of a unit whose gradient's sum, the rank's slice, is at grad. */
void emit_update_eager(struct emitter *e, uint32_t unit, struct end sum, const struct stop *grad);
/* The update of a unit by its kept gradient, if it is pending. */
void emit_update_late(struct emitter *e, uint32_t unit);
/* Writes the record of the step before, after all late updates and before the eager ones. Nothing
 * unless steps are durable. */
void emit_commit(struct emitter *e);
/* Waits until all ranks have written their record of the step before: at once or, if no visit
 * updates anything (meets_late), after all visits. */
void emit_meet(struct emitter *e);

#endif
