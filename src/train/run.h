/* run: what the training loop and its checkpoints share. Inside this folder only. */
#ifndef ZINF_TRAIN_RUN_H
#define ZINF_TRAIN_RUN_H

#include "train/checkpoint.h"
#include "train/run_log.h"

struct run {
    const struct zinf_run_options *options;
    const struct zinf_config *config;
    struct zinf_trainer *trainer;
    struct run_log *log;
    int lock_fd;               /* of the output folder */
    int32_t *inputs, *targets; /* [accumulation * micro_batch][seq_len] */
    uint64_t position;         /* windows given out so far */
    bool resumes;
    struct checkpoint from;      /* resumes: where it goes on */
    struct checkpoint_data data; /* what is trained on; position is not kept here */
    cJSON *resolved;             /* the configuration, as checkpoints hold it */
    char *last_folder;           /* the checkpoint that was saved last, or NULL */
};

/* run_checkpoint.c */
/* Before the trainer is made: reads and verifies what --resume names, or refuses an output folder
 * that holds another run. */
int run_open_checkpoint(struct run *run);
/* After it: configuration and data against the checkpoint, then its state into the trainer. */
int run_resume(struct run *run);
/* A failure is reported here; training may go on after it. */
int run_save_checkpoint(struct run *run, uint64_t step);
/* What lies beside the weights is copied from --model, or, where that was a checkpoint that is gone
 * by now, from the last one saved. */
void run_choose_source(struct run *run);
void run_close_checkpoint(struct run *run);

#endif
