/*
 * run_batch: a data set's windows as the batch that a trainer takes. Inside src/train only.
 */
#ifndef ZINF_TRAIN_RUN_BATCH_H
#define ZINF_TRAIN_RUN_BATCH_H

#include "text/samples.h"
#include "train/train.h"

struct run_batch {
    int32_t *arrays[ZINF_INPUTS]; /* [samples][each], by input; NULL: not asked for */
    uint64_t each[ZINF_INPUTS];
    int64_t seq;
};
/* For windows of data. */
int run_batch_init(struct run_batch *b, const struct zinf_trainer *t,
                   const struct zinf_dataset *data, int64_t samples);
/* The window at a position of the training becomes sample number `sample` of the batch. */
int run_batch_take(struct run_batch *b, struct zinf_dataset *data, uint64_t position,
                   int64_t sample);
/* Borrows the arrays. */
struct zinf_batch run_batch_given(const struct run_batch *b);
void run_batch_fini(struct run_batch *b);

#endif
