/*
 * run_batch: fills the batch for a trainer with windows of a data set. Inside src/train only.
 */
#ifndef ZINF_TRAIN_RUN_BATCH_H
#define ZINF_TRAIN_RUN_BATCH_H

#include "text/samples/samples.h"
#include "train/train.h"

struct run_batch {
    int32_t *arrays[ZINF_INPUTS]; /* [samples][rows], by input; NULL: not needed */
    enum zinf_rows_of rows_of[ZINF_INPUTS];
    int64_t most_seq, most_source;     /* rows of a sample in the arrays, at most */
    int64_t seq, source_seq;           /* rows of a sample now */
    int32_t *lengths, *source_lengths; /* [samples]: rows of each that are no padding */
    uint64_t tokens;                   /* of the windows, without padding; 0: all */
    bool varies; /* zinf.pad_to: windows are as long as the longest of a step */
    /* For sequences in chunks of a stream there are no arrays: rows are read from the data when
     * they are computed with. positions [samples]: of the windows. NULL: there are arrays. */
    struct zinf_dataset *by_rows;
    uint64_t *positions;
};
/* Allocates the arrays for so many windows of data, of full length until run_batch_fit. */
int run_batch_init(struct run_batch *b, const struct zinf_trainer *t, struct zinf_dataset *data,
                   int64_t samples);
/* Sets the batch's length for a step of all ranks, which takes `windows` windows from position
 * first: to the longest of these, if it varies. Every rank finds the same length, since it depends
 * only on the data. */
void run_batch_fit(struct run_batch *b, struct zinf_dataset *data, uint64_t first,
                   uint64_t windows);
/* Fills sample number `sample` of the batch with the window at a position of the training. */
int run_batch_take(struct run_batch *b, struct zinf_dataset *data, uint64_t position,
                   int64_t sample);
/* The checksum of the ids of the first sample, all of its tokens. */
int run_batch_sum_ids(struct run_batch *b, uint64_t *sum);
/* The batch for a trainer; it borrows what b has. */
struct zinf_batch run_batch_given(struct run_batch *b);
void run_batch_fini(struct run_batch *b);

#endif
