/*
 * run_batch: a data set's windows as the batch that a trainer takes. Inside src/train only.
 */
#ifndef ZINF_TRAIN_RUN_BATCH_H
#define ZINF_TRAIN_RUN_BATCH_H

#include "text/samples/samples.h"
#include "train/train.h"

struct run_batch {
    int32_t *arrays[ZINF_INPUTS]; /* [samples][rows], by input; NULL: not asked for */
    enum zinf_rows_of rows_of[ZINF_INPUTS];
    int64_t most_seq, most_source; /* rows of a sample that there is room for */
    int64_t seq, source_seq;       /* of the windows to come */
    uint64_t tokens;               /* of these, without padding; 0: all */
    bool varies;                   /* zinf.pad_to: as long as the longest of a step */
};
/* For windows of data; whole ones, until run_batch_fit. */
int run_batch_init(struct run_batch *b, const struct zinf_trainer *t, struct zinf_dataset *data,
                   int64_t samples);
/* The batch is to take windows from position first on that are computed together with those that
 * other ranks take, `windows` in all: it gets the length of the longest. It is found from what the
 * data say of their samples, so that every rank finds the same without asking. */
void run_batch_fit(struct run_batch *b, struct zinf_dataset *data, uint64_t first,
                   uint64_t windows);
/* The window at a position of the training becomes sample number `sample` of the batch. */
int run_batch_take(struct run_batch *b, struct zinf_dataset *data, uint64_t position,
                   int64_t sample);
/* Borrows the arrays. */
struct zinf_batch run_batch_given(const struct run_batch *b);
void run_batch_fini(struct run_batch *b);

#endif
