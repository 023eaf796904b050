/*
 * emit_call: builds one operation of a stage, operand by operand; for the files that emit stages
 * (emit.c, emit_parts.c).
 */
#ifndef ZINF_TRAIN_EMIT_CALL_H
#define ZINF_TRAIN_EMIT_CALL_H

#include "train/step/emit.h"

/* An operation of a stage while it is built. Operands must be added in the order in which run_stage
 * takes them: weights, values, gradients. */
struct call {
    const struct zinf_stage *stage;
    const struct walk_stage *info;
    struct zinf_op op;
    struct uses uses;
};

/* Begins an operation. The program may be cut here. */
struct call emit_call_of(struct emitter *e, uint32_t stage, enum zinf_pass pass, uint32_t visit,
                         int64_t micro);
/* Appends a computation of the device. Computations share scratch and working memory, so each waits
 * for the one before. */
void emit_compute(struct emitter *e, struct zinf_op *op, struct uses *uses);
void call_operand(struct emitter *e, struct call *c, struct zinf_operand operand);
/* Fetches the weights of the visit, or with `whole` of all visits, and adds them as operands. The
 * units beside a sweep are fetched for every visit. */
void call_units(struct emitter *e, struct call *c, bool whole);
void call_inputs(struct emitter *e, struct call *c);
/* The place of an input or a loss of a micro-batch on the device. */
struct zinf_operand emit_input_at(const struct emitter *e, uint32_t value, int64_t micro);
/* Whether the call reads the value. With chunks, cross-attention uses the keys and values of the
 * source that it has carried; it reads the source itself only when it makes these and when it goes
 * back through them. */
bool call_reads(const struct emitter *e, const struct call *c, uint32_t value);
/* Adds the stage's outputs as operands. begins: this call is the first to write them. Backward gets
 * only those that never leave the device, and those that it reads (walk_value.returns). */
void call_outputs(struct emitter *e, struct call *c, bool begins, bool backward);
/* emit_number identifies a stage and a micro-batch, emit_carried_number a stage and the
 * micro-batch's sample. emit_chunk: the micro-batch's chunk. */
uint64_t emit_number(const struct emitter *e, uint32_t stage, int64_t micro);
uint64_t emit_carried_number(const struct emitter *e, uint32_t stage, int64_t micro);
uint32_t emit_chunk(const struct emitter *e, int64_t micro);
/* Whether the stage computes what it carries (keys and values) for all chunks before any chunk
 * reads it. */
bool emit_keys_first(const struct emitter *e, uint32_t stage);
/* With context parallelism: whether the stage's chunks hand a state over, such as a mixer's, and
 * must be computed in order. */
bool emit_in_order(const struct emitter *e, uint32_t stage);
/* The groups of chunks that an operation reads. It is divided into one part for each group; the
 * last group has the operation's own chunk. call_set_group makes the call the part for one of the
 * groups. */
struct groups {
    uint32_t first, end;
};
struct groups call_groups(const struct emitter *e, uint32_t stage, int64_t micro);
void call_set_group(struct call *c, struct groups groups, uint32_t group);
/* Add as the last operand what the stage keeps of the call's micro-batch, if that leaves the
 * device. fresh: the call makes it. call_kept_aside: only the parts of this call look at it; *at,
 * which is zero before the first part, is the place that all of them have. */
struct zinf_operand call_kept(struct emitter *e, struct call *c, bool fresh);
void call_kept_aside(struct emitter *e, struct call *c, struct zinf_operand *at);
/* Call after the forward of a visit: to its home, if anybody reads it later. */
void call_end_kept(struct emitter *e, const struct call *c, struct zinf_operand at);
/* Add as operand what the stage carries of the call's group (makes: the call computes that of its
 * own chunk), or its gradient for one of this rank's parts. */
struct zinf_operand call_carried(struct emitter *e, struct call *c, bool makes);
struct zinf_operand call_d_carried(struct emitter *e, struct call *c, uint32_t part);
/* The same for the call's own chunk only, if the device has several groups. gradient: the gradient,
 * summed over all parts. */
struct zinf_operand call_carried_alone(struct emitter *e, struct call *c, bool gradient);
/* For sequences in parts: call after the computation to return a group's gradients to their home.
 */
void call_end_d_carried(struct emitter *e, const struct call *c, struct zinf_operand at);
/* The units of the call in the order of their operands: how many, and number i. call_trains:
 * whether a unit is trained. */
uint32_t call_n_units(const struct call *c);
uint32_t call_unit(const struct call *c, uint32_t i);
bool call_trains(const struct emitter *e, uint32_t unit);
/* n: how many contributions of a range come before this one; all: how many there are. all 0:
 * gradients are never added directly to a sum. */
struct nth {
    int64_t n, all;
};
/* Adds places for the units' gradients as operands; each becomes a further partial sum in
 * e->contributions. The first call of a range may go on with a sum that is there. */
void call_contributions(struct emitter *e, struct call *c, struct nth nth);
/* Adds partial sum `part` of unit i to its partial sum `sum`. */
void call_join(struct emitter *e, const struct call *c, uint32_t i, uint32_t sum, uint32_t part);
/* Call after n of a range's `all` contributions: adds up partial sums that are neighbours in the
 * tree. */
void call_join_contributions(struct emitter *e, const struct call *c, int64_t n, int64_t all);
/* Call when a visit has all contributions of this range: passes them to emit_grad_made. last: it is
 * the stage's last visit; units that all visits contribute to are passed on only then. */
void call_end(struct emitter *e, const struct call *c, bool last);
bool emit_has_gradient(const struct emitter *e, uint32_t value);

/* Appends the backward of one micro-batch through one visit. Returns the call of its last part. */
struct call emit_backward_visit(struct emitter *e, uint32_t stage, uint32_t visit, int64_t micro,
                                struct nth nth);
/* Computes what the stage carries for all chunks of a sample, whose first micro-batch is `first`,
 * unless it exists already. Used before backward, which begins with the last chunk, and before
 * forward if keys are computed first. If it stays on the device, that of the last chunk may be left
 * to its recomputation. */
void emit_carry(struct emitter *e, uint32_t stage, int64_t first);
/* emit_call.c: appends the backward through what a chunk carries, if keys are computed first: the
 * gradient is then a sum over all chunks. */
struct call emit_carry_back(struct emitter *e, uint32_t stage, int64_t micro, struct nth nth);

#endif
