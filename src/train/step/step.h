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
struct chunk_rows;
struct chunk_pairs;
struct embedded;
struct chunk_sum;

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
/* Makes a program in pieces, one that has `pieces`, once more for a taker, in the order that it was
 * scheduled in by the plan's order_rates. The plan is only read. */
int program_pieces(const struct plan *p, const struct zinf_program *program,
                   const struct zinf_taker *taker);

/* schedules.c: chooses which programs there are and in which order their operations run, and
 * predicts how long they take. */
int plan_first_programs(struct plan *p);
/* Chooses the schedule by the measured rates and builds its programs. If the work alone takes
 * `limit` seconds or more, no program is built and predicted_seconds is INFINITY. */
int plan_schedules(struct plan *p, double limit);
/* Rebuilds the programs so that the updates of n layers, or of as many as may, are deferred to the
 * next forward pass; all others are made in the backward pass. plan_schedules has chosen the
 * fastest number. */
int plan_defer(struct plan *p, uint32_t n);
/* Builds the program that makes gradients without updates, if the schedule has not needed it. */
int plan_needs_gradients(struct plan *p);
/* The programs of a step of p->schedule in a steady state; returns how many. */
int plan_step_programs(const struct plan *p, const struct zinf_program *programs[2]);

/* predictions.c. plan_each_piece shows a program, or one piece after the other of a program in
 * pieces; it ends with the first code of see that is not 0. */
int plan_each_piece(const struct plan *p, const struct zinf_program *program,
                    int (*see)(void *context, const struct zinf_program *piece), void *context);
/* The same for who looks at operations alone, not at their order, waits or addresses. */
int plan_look_at(const struct plan *p, const struct zinf_program *program,
                 int (*see)(void *context, const struct zinf_program *piece), void *context);
/* Predicts n programs that run one after the other; *sum is the prediction of all. */
int plan_predict(const struct plan *p, const struct zinf_program *const *programs, int n,
                 struct zinf_prediction *sum);
/* Predicts a program by each of n options, without arrays of operations; adds to sums [n]. */
int plan_predict_by(const struct plan *p, const struct zinf_program *program,
                    const struct zinf_predict_options *options, uint32_t n,
                    struct zinf_prediction *sums);
/* Both in one look at a program: adds to *sum what plan_predict says, and to sums. */
int plan_predict_also(const struct plan *p, const struct zinf_program *program,
                      struct zinf_prediction *sum, const struct zinf_predict_options *options,
                      uint32_t n, struct zinf_prediction *sums);
void prediction_add(struct zinf_prediction *sum, const struct zinf_prediction *one);

/* ---- what a trainer runs ---- */

/* Scalars of an update, the same for all sub-groups. */
struct update_scalars {
    struct zinf_optim_hyper hyper;
    float grad_scale;
};

/* batch.c: sets how many rows the samples of the next program have: those of the batch. Buffers
 * have room for the longest sample, and every operation works on their first rows. -EINVAL: the
 * batch is longer than the trainer's. */
int trainer_set_lengths(struct zinf_trainer *t, const struct zinf_batch *batch);
/* The row of a sample that tells its class, in a batch whose lengths are set. */
int64_t trainer_class_row(const struct zinf_trainer *t, const struct zinf_batch *batch,
                          uint64_t sample);
/* Copies the first `samples` samples of a batch, of the lengths that were set, to where the step
 * reads them. The step's other samples have weight 0. class_weights: the weight of a sample of each
 * class; NULL: 1. */
int trainer_set_batch(struct zinf_trainer *t, const struct zinf_batch *batch, int64_t samples,
                      const float *class_weights);
/* The first `given` numbers of a micro-batch's rows of an input, which begin with row `first` of a
 * sample (NULL: the batch does not have the input), and what stands in rows that are not there, up
 * to `all`. seq: rows of a sample. */
void trainer_set_input(int32_t *to, const struct zinf_value *value, const int32_t *from,
                       uint64_t given, uint64_t all, int64_t seq, uint64_t first);
/* Of labels: each sample's weight. */
void trainer_set_weights(float *to, const int32_t *labels, const float *class_weights,
                         uint64_t given, uint64_t all);
/* Numbers of an input that a sample of the batch at hand has. */
uint64_t trainer_given_per_sample(const struct zinf_trainer *t, const struct zinf_value *value);
/* Where a model's attention goes by pieces of a document: where a row's piece begins, and its
 * number within the sample, from 1. trainer_number_pieces goes through rows [row, end) of a sample,
 * from the place of the row before them, and writes their numbers to `to`, 0 for padding. to NULL:
 * it only finds the place of the last one. */
struct piece_place {
    int64_t first;
    int32_t number;
};
void trainer_number_pieces(struct piece_place *at, const int32_t *segments, int64_t row,
                           int64_t end, int64_t piece, int32_t *to);
/* chunk_rows.c: what chunks of sequences read of the batch and tell of their losses. Taken once;
 * trainer_chunk_batch: the batch of the next programs, which borrow it, once trainer_set_batch has
 * checked it. */
int trainer_take_chunks(struct zinf_trainer *t);
void trainer_release_chunks(struct zinf_trainer *t);
void trainer_chunk_batch(struct zinf_trainer *t, const struct zinf_batch *batch, int64_t samples,
                         bool of_step, const float *class_weights);
/* visited.c: how many chunks of one of the step's samples are visited: those in which it has rows.
 * Taken once, for sequences in chunks; trainer_visit: of a batch whose lengths are set. */
int64_t trainer_visited(const struct zinf_trainer *t, int64_t sample);
int trainer_take_visited(struct zinf_trainer *t);
void trainer_release_visited(struct zinf_trainer *t);
void trainer_visit(struct zinf_trainer *t, const struct zinf_batch *batch, int64_t samples);
/* shared_keys.c: GATHER_KEYS and SUM_KEYS, and the bytes that this rank receives in them. */
int trainer_gather_keys(struct zinf_trainer *t, const struct zinf_op *op);
int trainer_sum_keys(struct zinf_trainer *t, const struct zinf_op *op);
uint64_t trainer_shared_bytes(const struct zinf_trainer *t, const struct zinf_op *op);
/* Before a program of stages, and after it: its losses are added up then. */
void trainer_chunk_begin(struct zinf_trainer *t);
int trainer_chunk_end(struct zinf_trainer *t);
/* Before and after an operation of a stage, on the lane DEVICE: brings the rows that it reads to
 * the device, and takes the losses that it has made. Without chunks they do nothing. */
int trainer_chunk_reads(struct zinf_trainer *t, const struct zinf_op *op);
int trainer_chunk_tells(struct zinf_trainer *t, const struct zinf_op *op);
/* pairs.c: losses of pairs of samples that come in chunks. A forward pass tells each token's loss,
 * or each sample's score, chunk by chunk; once both samples of all pairs of a micro-batch are
 * complete, their loss is made on the host, and backward gets the gradient of each token's loss
 * from there: so the arithmetic is the same on all devices. Taken once; NULL (t->pairs) without
 * chunks or pairs. */
uint64_t pairs_bytes(const struct setup *s); /* of RAM; 0: none are taken */
int trainer_take_pairs(struct zinf_trainer *t);
void trainer_release_pairs(struct zinf_trainer *t);
/* The batch of the next programs, borrowed: a step's, or windows to evaluate. class_rows [samples]:
 * of scores. */
void trainer_pairs_batch(struct zinf_trainer *t, const struct zinf_batch *batch, int64_t samples,
                         bool of_step, const int64_t *class_rows);
/* Before a program; and when it has ended: the losses are added to *sum, on one
 * of the ranks that share sequences. Both where t->pairs is not NULL. */
void trainer_pairs_begin(struct zinf_trainer *t);
int trainer_pairs_end(struct zinf_trainer *t, struct chunk_sum *sum);
/* Whether they make the value, or are told it. */
bool trainer_pairs_have(const struct zinf_trainer *t, uint32_t value);
/* Takes what a micro-batch has told of a value; pulls writes the gradients of its losses. */
int trainer_pairs_tell(struct zinf_trainer *t, uint32_t value, int64_t micro, const float *told);
int trainer_pairs_pull(struct zinf_trainer *t, int64_t micro, float *pulls);
/* Whether this rank counts the losses and rewards that it has made: others have the same. */
bool trainer_pairs_count(const struct zinf_trainer *t);
/* Of the last program, with their labels; *n: of all samples that are compared. */
const float *trainer_pairs_rewards(const struct zinf_trainer *t, int64_t *n);
const int32_t *trainer_pairs_labels(const struct zinf_trainer *t);
/* An array within memory that begins at base; *at: the bytes before it, to which its own are added.
 * base NULL: they are only counted. */
static inline void *told_array(char *base, uint64_t *at, uint64_t bytes)
{
    char *array = base ? base + *at : NULL;
    *at += zinf_align_up(bytes, sizeof(double));
    return array;
}
/* Of a loss that the last program has made, where losses are added up as they come
 * (plan_keeps_losses): its sum in the order of rows, and without rounding. */
struct chunk_sum {
    double in_order;
    struct exact_sum exact;
};
struct chunk_sum *trainer_chunk_sum(const struct zinf_trainer *t, uint32_t value);
/* The sum over all ranks of the class weights of the first samples. */
int trainer_sum_weights(const struct zinf_trainer *t, const struct zinf_batch *batch,
                        int64_t samples, double *sum);
/* How many rows of the batch's first samples count in the mean loss. */
int trainer_count_targets(const struct zinf_trainer *t, const struct zinf_batch *batch,
                          int64_t samples, uint64_t *count);
/* Whether rows of the input come from a batch's function; reads n of them. */
bool trainer_reads_rows(const struct zinf_batch *batch, enum zinf_input input);
int trainer_read_rows(const struct zinf_batch *batch, enum zinf_input input, int64_t sample,
                      int64_t first, int64_t n, int32_t *to);
/* Reads the first rows of a sample, some at a time, and shows them to see, whose first code that is
 * not 0 ends it. */
int trainer_each_rows(const struct zinf_batch *batch, enum zinf_input input, int64_t sample,
                      int64_t rows, int (*see)(void *context, const int32_t *some, uint64_t n),
                      void *context);
/* losses.c. One of the loss arrays, [*n], for the first samples of a micro-batch. Borrowed. */
const float *trainer_losses_of(const struct zinf_trainer *t, uint32_t value, int64_t micro,
                               int64_t samples, uint64_t *n);
/* The sum of one of the losses over the first samples of the step; trainer_add_loss adds it to an
 * exact sum. */
double trainer_sum_loss(const struct zinf_trainer *t, uint32_t value, int64_t samples);
void trainer_add_loss(const struct zinf_trainer *t, uint32_t value, int64_t samples,
                      struct exact_sum *sum);
/* Sums of rewards, and of the accuracy, over the preference pairs among the samples that count;
 * rewards_to_means divides them by their numbers. */
int trainer_sum_rewards(const struct zinf_trainer *t, int64_t samples, struct zinf_rewards *sums);
void rewards_to_means(struct zinf_rewards *sums);
/* The sum of the auxiliary losses: all but the graph's own, for instance those that balance
 * experts. */
double trainer_other_losses(const struct zinf_trainer *t, int64_t samples);
/* embedded.c: of samples in chunks. NULL (t->embedded) without chunks or embeddings. Each chunk
 * tells the sum of its rows, and reads which of them count, the sample's gradient and, the first
 * one, its loss. begin: before a program; end: after it. */
uint64_t embedded_bytes(const struct setup *s); /* of RAM; 0: none are taken */
int trainer_take_embedded(struct zinf_trainer *t);
void trainer_release_embedded(struct zinf_trainer *t);
void trainer_embedded_batch(struct zinf_trainer *t, const struct zinf_batch *batch,
                            int64_t samples);
void trainer_embedded_begin(struct zinf_trainer *t);
int trainer_embedded_end(struct zinf_trainer *t);
bool trainer_embedded_have(const struct zinf_trainer *t, uint32_t value);
void trainer_embedded_tell(struct zinf_trainer *t, int64_t micro, const float *told);
bool trainer_embedded_read(const struct zinf_trainer *t, enum zinf_input input, int64_t micro,
                           float *to);
/* Of a sample: the sum of its rows in the last program, [hidden], and their number; where its
 * gradient, [hidden], and its loss are put. */
const float *trainer_embedded_sum(const struct zinf_trainer *t, int64_t sample);
int64_t trainer_embedded_rows(const struct zinf_trainer *t, int64_t sample);
float *trainer_embedded_pulls(const struct zinf_trainer *t, int64_t sample);
float *trainer_embedded_loss(const struct zinf_trainer *t, int64_t sample);
/* embeddings.c: the RAM that it takes to compare the samples of a step. */
uint64_t likeness_bytes(const struct setup *s);
/* Copies the embedding, [hidden], that a forward sweep has made of a sample of the batch. */
void trainer_read_embedding(const struct zinf_trainer *t, int64_t sample, float *out);
/* Computes the contrastive loss of the embeddings of the whole step, on all ranks together, which
 * the first sweep has made. Its gradient becomes an input of the sweep that goes backward. */
int trainer_pull(struct zinf_trainer *t);
/* The sum of the contrastive losses among a forward sweep's rows, and the number of rows. */
int trainer_likeness(struct zinf_trainer *t, int64_t samples, double *sum, uint64_t *count);
/* step.c: makes the updates that a step has deferred. Call before anything else reads parameters or
 * state. */
int trainer_settle(struct zinf_trainer *t);
/* Runs a program that makes losses, logits or gradients. -EBADMSG: the device has found that packed
 * parameters, of which these are made, are damaged. */
int trainer_run(struct zinf_trainer *t, const struct zinf_program *program);
/* batch.c: for a step of the lengths that were set: the bytes that an operation moves, and its work
 * as a share of that for the longest samples. trainer_is_shorter: whether the lengths are below the
 * longest. */
uint64_t trainer_moved(void *context, const struct zinf_op *op);
double trainer_share(void *context, const struct zinf_op *op);
/* The operation's expected time as a share of that in the program, if rows choose the same experts
 * as in the last step. The program itself assumes that all choices are equally likely. */
double trainer_share_as_chosen(void *context, const struct zinf_op *op);
bool trainer_is_shorter(const struct zinf_trainer *t);
/* Whether the operation is of a chunk in which its sample has no rows. It is then left out, unless
 * it begins sums of gradients: those it makes zeros (trainer_begins_sums, run_stage.c). */
bool trainer_is_beyond(const struct zinf_trainer *t, const struct zinf_op *op);
bool trainer_begins_sums(const struct zinf_trainer *t, const struct zinf_op *op);
/* calibrate.c: the predicted seconds of the step that begins, for the lengths that were set and the
 * updates that are pending; 0: not known. rests: the step makes no speculative updates. */
double trainer_expected_seconds(struct zinf_trainer *t, bool rests);
/* Measuring. trainer_measure_begin forgets what was measured; trainer_measured adds an operation;
 * trainer_measure_end computes the rates from a step that ran one operation at a time;
 * trainer_calibrate corrects the rates by a step whose lanes overlapped; trainer_foresee predicts
 * the range of the first such step. */
void trainer_measure_begin(struct zinf_trainer *t);
void trainer_measured(void *context, const struct zinf_op *op, double seconds);
void trainer_measure_end(struct zinf_trainer *t);
int trainer_calibrate(struct zinf_trainer *t, const struct zinf_lane_times *times);
int trainer_foresee(struct zinf_trainer *t);
/* run_stage.c: trainer_take_frame allocates the arrays that stages get their operands in, once;
 * trainer_run_stage runs the operation of any stage. */
struct frame_arrays;
int trainer_take_frame(struct zinf_trainer *t);
void trainer_release_frame(struct zinf_trainer *t);
int trainer_run_stage(struct zinf_trainer *t, const struct zinf_op *op);
/* Adds to the sum of a unit's gradient what the stage before it has not added by itself (OP_ONTO).
 */
int trainer_add_rest(struct zinf_trainer *t, const struct zinf_op *op);
/* ops.c: fills the device slots of units that have a slot of their own and are not trained. Call
 * before the first other program. */
int trainer_fill(struct zinf_trainer *t);
/* forward.c: collects the logits [n][vocab] of rows that a program has computed, each rank some of
 * them, on all ranks. */
int trainer_take_logits(struct zinf_trainer *t, int64_t n, float *logits);
/* The sum of the target losses of the one sample that zinf_trainer_loss has computed, over the
 * ranks that share the sample. */
int trainer_sum_targets(struct zinf_trainer *t, double *sum);
/* decode.c: call before the first decoding, and at the end */
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
