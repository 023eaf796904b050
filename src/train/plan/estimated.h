/*
 * estimated: a training that is not run, for an estimate or an emulation: its setup and its plan,
 * with the programs of a step by given speeds. No memory is taken. Inside this folder only; of one
 * thread.
 */
#ifndef ZINF_TRAIN_ESTIMATED_H
#define ZINF_TRAIN_ESTIMATED_H

#include "train/estimate.h"
#include "train/step/step.h"

struct estimated {
    struct zinf_net *net; /* of ranks that are only described; NULL: there are none */
    struct setup setup;
    struct variant variant;
    struct plan plan;
};
/* Makes setup, plan and programs without allocating memory. options must outlive e. Call
 * estimated_close after a failure, too. estimated_begin: the setup alone, which says whether this
 * rank's steps outlive the process. durable: false if those of another rank do not.
 * estimated_lower: if the schedule is another than this one, which is lower, makes the programs of
 * this one, as ranks do that agree on it. */
int estimated_begin(struct estimated *e, const struct zinf_estimate_options *options);
int estimated_open(struct estimated *e, const struct zinf_estimate_options *options, bool durable);
int estimated_lower(struct estimated *e, enum schedule schedule);
void estimated_close(struct estimated *e);
/* What a prediction needs to know about a rank: the programs of its step, which run one after the
 * other. */
struct estimated_step {
    const struct plan *plan; /* makes programs in pieces; they are of one rank, which is open */
    struct zinf_program programs[2];
    int n;
    struct zinf_machine machine;
    uint32_t rank, ranks; /* the pipeline rank, and how many there are */
    enum schedule schedule;
};
/* estimated_see_step borrows the programs: e must stay open. estimated_take_step moves them out of
 * e, which may then be closed but has no programs any more; call estimated_end_step to free them.
 */
void estimated_see_step(const struct estimated *e, struct estimated_step *out);
void estimated_take_step(struct estimated *e, struct estimated_step *out);
void estimated_end_step(struct estimated_step *step);
/* Predicts program number `part`, a whole one, of a step of n pipeline ranks, given in their order,
 * which wait for each other. out[n]: each rank's prediction; zeros if it has no such program.
 * begin, seconds: for each operation of the first rank, when it begins and how long it takes; or
 * NULL. */
int estimated_predict_part(const struct estimated_step ranks[], uint32_t n, int part, double *begin,
                           double *seconds, struct zinf_prediction *out);
/* Predicts the seconds of a step of n pipeline ranks. Second programs begin when all ranks have
 * ended their first. */
int estimated_predict(const struct estimated_step ranks[], uint32_t n, double *seconds);

#endif
