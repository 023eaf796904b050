/*
 * estimated: a training that nobody runs, as an estimate and an emulation look at it: its setup and
 * its plan, with the programs of a step by given speeds. No memory is taken. Inside this folder
 * only; of one thread.
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
/* options outlive it. To be closed after a failure, too. */
int estimated_open(struct estimated *e, const struct zinf_estimate_options *options);
void estimated_close(struct estimated *e);
/* What a prediction needs of a rank: the programs of its step, which begin one after the other. */
struct estimated_step {
    struct zinf_program programs[2];
    int n;
    struct zinf_machine machine;
    uint32_t rank, ranks; /* along PIPE */
};
/* As the rank, which stays open, has it; or taken from it, to be ended: the rank may be closed, but
 * has no programs any more. */
void estimated_see_step(const struct estimated *e, struct estimated_step *out);
void estimated_take_step(struct estimated *e, struct estimated_step *out);
void estimated_end_step(struct estimated_step *step);
/* Of program number `part` of a step of n ranks along PIPE, in their order: what each takes while
 * they wait for each other; zeros of those that have none. begin, seconds (may be NULL): of the
 * first rank's operations. -ENOMEM */
int estimated_predict_part(const struct estimated_step ranks[], uint32_t n, int part, double *begin,
                           double *seconds, struct zinf_prediction *out);
/* Seconds of their step, whose second programs begin when all have ended the first. */
int estimated_predict(const struct estimated_step ranks[], uint32_t n, double *seconds);

#endif
