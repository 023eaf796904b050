/*
 * emit_call: an operation of a stage while it is made, for the files that emit stages (emit.c,
 * emit_parts.c).
 */
#ifndef ZINF_TRAIN_EMIT_CALL_H
#define ZINF_TRAIN_EMIT_CALL_H

#include "train/step/emit.h"

/* Operands in the order in which run_stage takes them: weights, values, gradients. */
struct call {
    const struct zinf_stage *stage;
    const struct walk_stage *info;
    struct zinf_op op;
    struct uses uses;
};

struct call emit_call_of(struct emitter *e, uint32_t stage, enum zinf_pass pass, uint32_t visit,
                         int64_t micro);
/* Computations share scratch and the activations at hand: each comes after the one before. */
void emit_compute(struct emitter *e, struct zinf_op *op, struct uses *uses);
void call_operand(struct emitter *e, struct call *c, struct zinf_operand operand);
/* Weights; whole: of all visits. What is at hand is there for every visit. */
void call_units(struct emitter *e, struct call *c, bool whole);
void call_inputs(struct emitter *e, struct call *c);
/* Where inputs and losses of a micro-batch are. */
struct zinf_operand emit_input_at(const struct emitter *e, uint32_t value, int64_t micro);
/* Of chunks a stage that reads another sequence has its keys and values at hand, and looks at the
 * sequence itself where it carries these, and goes back through them. */
bool call_reads(const struct emitter *e, const struct call *c, uint32_t value);
/* begins: the stage begins to make them. Backward needs only those that never left the device. */
void call_outputs(struct emitter *e, struct call *c, bool begins, bool backward);
/* A number of the stage and the micro-batch, or of its sample; the micro-batch's chunk. */
uint64_t emit_number(const struct emitter *e, uint32_t stage, int64_t micro);
uint64_t emit_carried_number(const struct emitter *e, uint32_t stage, int64_t micro);
uint32_t emit_chunk(const struct emitter *e, int64_t micro);
/* Whether what all chunks carry is made before any of them looks at it. */
bool emit_keys_first(const struct emitter *e, uint32_t stage);
/* Of sequences that ranks share: whether chunks hand the stage something over that is made in their
 * order, such as a mixer's state. */
bool emit_in_order(const struct emitter *e, uint32_t stage);
/* Groups of chunks that an operation looks at, one part of it a group; the chunk's own is the last.
 */
struct groups {
    uint32_t first, end;
};
struct groups call_groups(const struct emitter *e, uint32_t stage, int64_t micro);
void call_set_group(struct call *c, struct groups groups, uint32_t group);
/* What the stage carries; makes: of the chunk's own rows. Its gradient, of a part of this rank's.
 */
struct zinf_operand call_carried(struct emitter *e, struct call *c, bool makes);
struct zinf_operand call_d_carried(struct emitter *e, struct call *c, uint32_t part);
/* Of parts: the chunk's own alone, where the device has groups. gradient: the sum over all parts.
 */
struct zinf_operand call_carried_alone(struct emitter *e, struct call *c, bool gradient);
/* Of parts: gradients in groups go back to RAM at once. */
void call_end_d_carried(struct emitter *e, const struct call *c, struct zinf_operand at);
/* Units of the call, in the order of their operands; unit number i. */
uint32_t call_n_units(const struct call *c);
uint32_t call_unit(const struct call *c, uint32_t i);
bool call_trains(const struct emitter *e, uint32_t unit);
/* A micro-batch of a range: how many come before it, of how many. all 0: its gradients are not
 * added to a sum as they come. */
struct nth {
    int64_t n, all;
};
/* Places for the units' gradients, each a sum more of e->contributions; the range's first call may
 * go on with a sum. */
void call_contributions(struct emitter *e, struct call *c, struct nth nth);
/* Adds part to sum: numbers of unit i's sums. */
void call_join(struct emitter *e, const struct call *c, uint32_t i, uint32_t sum, uint32_t part);
/* Of a range so many contributions so far, of all its: sums that have a neighbour are added up. */
void call_join_contributions(struct emitter *e, const struct call *c, int64_t n, int64_t all);
/* A visit's units have their contributions of this range; those beside it, after the last one. */
void call_end(struct emitter *e, const struct call *c, bool last);
bool emit_has_gradient(const struct emitter *e, uint32_t value);

/* One micro-batch through one visit. Returns the last part's call. */
struct call emit_backward_visit(struct emitter *e, uint32_t stage, uint32_t visit, int64_t micro,
                                struct nth nth);
/* What the stage carries of all chunks of a sample, from its first micro-batch on: in front of
 * backward, which begins with the last chunk, and of forward where ranks share sequences. That of
 * the last chunk comes with its recomputation where it stays. */
void emit_carry(struct emitter *e, uint32_t stage, int64_t first);
/* emit_call.c. Back through what a chunk carries, where that of all chunks comes first: the
 * gradients at it are sums over all chunks then. */
struct call emit_carry_back(struct emitter *e, uint32_t stage, int64_t micro, struct nth nth);

#endif
