/*
 * step: a plan's programs, and running them. Programs are built by walking the model once
 * (emit*.c), costed and ordered by simulation (schedules.c); a lane that reaches an operation does
 * what ops.c says. The first step runs one operation at a time and is measured; later ones correct
 * the rates (calibrate.c), and the schedule is chosen again when they have drifted.
 *
 * Programs belong to their plan. What a trainer's lanes run is called in their threads; all else
 * in the trainer's own.
 */
#ifndef ZINF_TRAIN_STEP_H
#define ZINF_TRAIN_STEP_H

#include "train/plan/plan.h"
#include "train/step/agree.h"
#include "train/step/scales.h"

struct zinf_trainer;

/* ---- programs of a plan ---- */

/* emit.c, emit_grad.c, emit_update.c */
int program_gradients(struct plan *p);
int program_drain(struct plan *p);
int program_wait(struct plan *p);
int program_speculate(struct plan *p);
int program_forward(struct plan *p);
int program_sweep(struct plan *p);
int program_logits(struct plan *p);
int program_fill(struct plan *p);
int program_decode(struct plan *p);
int program_decode_sources(struct plan *p);

/* schedules.c: which programs there are, how they are ordered, what they are expected to take. */
int plan_first_programs(struct plan *p);
/* Chooses the schedule by the rates and builds its programs; the first step measures. Where a step
 * takes limit seconds or more by its work alone there is none, and predicted_seconds is INFINITY.
 */
int plan_schedules(struct plan *p, double limit);
/* Updates in the backward but for n layers, or as many as may wait for the next forward. What was
 * chosen is as many as take least time. */
int plan_defer(struct plan *p, uint32_t n);
/* The program of gradients alone, which a schedule may have no use for. */
int plan_needs_gradients(struct plan *p);
/* The programs of a step of p->schedule in a steady state; returns how many. */
int plan_step_programs(const struct plan *p, const struct zinf_program *programs[2]);
/* One after the other; op_seconds (may be NULL) is that of the first, then of the second. */
int plan_predict(const struct plan *p, const struct zinf_program *const *programs, int n,
                 double *op_seconds, struct zinf_prediction *sum);

/* ---- what a trainer runs ---- */

/* Of an update: scalars that are the same for all its sub-groups. */
struct update_scalars {
    struct zinf_optim_hyper hyper;
    float grad_scale;
};

/* batch.c: rows that a sample of the batch has in what runs next, which is what frames go by:
 * every operation works on the first so many of a place that has room for the longest. -EINVAL */
int trainer_set_lengths(struct zinf_trainer *t, const struct zinf_batch *batch);
/* Takes the first samples of a step from a batch, of those lengths; the step's other samples count
 * nothing. class_weights: what a sample of each class counts; NULL: 1. */
int trainer_set_batch(struct zinf_trainer *t, const struct zinf_batch *batch, int64_t samples,
                      const float *class_weights);
/* The sum of what the first samples count by their classes, of all ranks. */
int trainer_sum_weights(const struct zinf_trainer *t, const struct zinf_batch *batch,
                        int64_t samples, double *sum);
/* How many rows of the batch's first samples count in the mean loss. */
uint64_t trainer_count_targets(const struct zinf_trainer *t, const struct zinf_batch *batch,
                               int64_t samples);
/* [*n] of one of the losses, of a micro-batch's first samples. */
const float *trainer_losses_of(const struct zinf_trainer *t, uint32_t value, int64_t micro,
                               int64_t samples, uint64_t *n);
/* The sum of one of the losses over the first samples of the step; or added to a sum. */
double trainer_sum_loss(const struct zinf_trainer *t, uint32_t value, int64_t samples);
void trainer_add_loss(const struct zinf_trainer *t, uint32_t value, int64_t samples,
                      struct exact_sum *sum);
/* Sums over the pairs among them that count, accuracy too; and the means of such sums. */
int trainer_sum_rewards(const struct zinf_trainer *t, int64_t samples, struct zinf_rewards *sums);
void rewards_to_means(struct zinf_rewards *sums);
/* The sum of all losses but the graph's own: what balances experts. */
double trainer_other_losses(const struct zinf_trainer *t, int64_t samples);
/* embeddings.c. Samples of a row. */
int64_t trainer_together(const struct zinf_trainer *t);
/* What a forward sweep has made of a sample of the batch, [hidden]. */
void trainer_read_embedding(const struct zinf_trainer *t, int64_t sample, float *out);
/* Of the embeddings that the first sweep has made: what those of the whole step, of all ranks, lose
 * together, and its gradient, into the inputs of the sweep that goes backward. */
int trainer_pull(struct zinf_trainer *t);
/* The sum of the losses of a forward sweep's rows among each other, and their number. */
int trainer_likeness(struct zinf_trainer *t, int64_t samples, double *sum, uint64_t *count);
/* step.c: makes the updates that a step left to be made later; before anything else looks at
 * parameters or state. */
int trainer_settle(struct zinf_trainer *t);
/* Runs a program that makes losses, logits or gradients. -EBADMSG: the device has found packed
 * parameters damaged that these are made of. */
int trainer_run(struct zinf_trainer *t, const struct zinf_program *program);
/* batch.c: bytes that an operation moves now, and its share of the work that the program was made
 * for, in a step of the lengths that were set. Whether those are less than the longest. */
uint64_t trainer_moved(void *context, const struct zinf_op *op);
double trainer_share(void *context, const struct zinf_op *op);
/* The same of its time, where rows choose as they did last: what the program says of those that may
 * be left out holds if all choices are equally likely. */
double trainer_share_as_chosen(void *context, const struct zinf_op *op);
bool trainer_is_shorter(const struct zinf_trainer *t);
/* calibrate.c: what the step that begins will take, of the lengths that were set, by what is
 * pending; 0: not known. rests: speculation does. */
double trainer_expected_seconds(struct zinf_trainer *t, bool rests);
/* What was measured. Begins anew; takes an operation; makes the rates of a step that
 * was run one operation at a time; corrects them by a step whose lanes overlapped. */
void trainer_measure_begin(struct zinf_trainer *t);
void trainer_measured(void *context, const struct zinf_op *op, double seconds);
void trainer_measure_end(struct zinf_trainer *t);
int trainer_calibrate(struct zinf_trainer *t, const struct zinf_lane_times *times);
/* run_stage.c: the arrays of its frames, before the first; any stage's operation. */
struct frame_arrays;
int trainer_take_frame(struct zinf_trainer *t);
void trainer_release_frame(struct zinf_trainer *t);
int trainer_run_stage(struct zinf_trainer *t, const struct zinf_op *op);
/* What the stage before has not added of a unit's gradient to a sum by itself (OP_ONTO). */
int trainer_add_rest(struct zinf_trainer *t, const struct zinf_op *op);
/* ops.c: before the first other program, fills the device slots that units have of their own
 * whose parameters no step changes. */
int trainer_fill(struct zinf_trainer *t);
/* forward.c: logits [n][vocab] of the rows that a program has made some of, on all ranks. */
int trainer_take_logits(struct zinf_trainer *t, int64_t n, float *logits);
/* The sum of the targets' losses of the one sample that zinf_trainer_loss has computed, over ranks
 * that share it. */
int trainer_sum_targets(struct zinf_trainer *t, double *sum);
/* decode.c: before the first call, and at the end */
int trainer_begin_decoding(struct zinf_trainer *t);
void trainer_end_decoding(struct zinf_trainer *t);
/* cache_ops.c: OP_CACHE_IN, OP_CACHE_OUT */
int trainer_cache_in(struct zinf_trainer *t, const struct zinf_op *op);
int trainer_cache_out(struct zinf_trainer *t, const struct zinf_op *op);
/* update.c: OP_UPDATE, OP_DEVICE_UPDATE */
int trainer_update(struct zinf_trainer *t, const struct zinf_op *op);

/* ops.c: one operation of any program */
int trainer_run_op(void *context, const struct zinf_op *op);
bool trainer_skip_op(void *context, const struct zinf_op *op);
/* But for what a step's choices leave out, which is not known before it runs. */
bool trainer_skip_not_due(void *context, const struct zinf_op *op);
const char *trainer_op_name(void *context, const struct zinf_op *op, char buffer[64]);
/* The same for a program that no trainer runs. */
const char *plan_op_name(const struct setup *setup, const struct zinf_op *op, char buffer[64]);

#endif
