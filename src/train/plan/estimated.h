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

#endif
