/*
 * run: a whole training, from options to a saved model: steps over the windows of a data set,
 * evaluation, log, checkpoints, and going on after one or after the last step that outlived its
 * process. A run owns its trainer, its log and its lock of the output folder, and works in its
 * caller's thread. What its files share; inside this folder only.
 */
#ifndef ZINF_TRAIN_RUN_H
#define ZINF_TRAIN_RUN_H

#include "train/save/checkpoint.h"
#include "train/run/run_batch.h"
#include "train/run/run_log.h"

/* What the file run-id of an output folder says. With it the runs of the folder find their steps on
 * the drives again; see run_name.c. */
struct run_name {
    uint8_t id[16];
    bool found;           /* the file is there */
    bool copied;          /* it came here with a copy of another output folder */
    uint64_t identity[2]; /* of that folder; 0: not known */
    uint32_t ranks;       /* each of which has a part of the steps */
    char *steps;          /* steps were committed on this path's drive; NULL: there are none */
};

/* Steps that an earlier process of the run left on the drives. */
struct left_steps {
    char *folder;  /* NULL: there are none */
    char *problem; /* why the run's folder on the drive has no step to go on from; or NULL */
    uint64_t step;
    bool incomplete; /* the machine was restarted since, and nothing was flushed */
};

struct run {
    const struct zinf_run_options *options;
    const struct zinf_config *config;
    struct zinf_trainer *trainer;
    struct run_log *log;
    struct zinf_net *net;         /* the trainer options', where there are other ranks; or NULL */
    struct run_seat_times *times; /* [ranks] of the last step; NULL: there are no others */
    int stops;                    /* the number of a signal that a rank has got, or 0 */
    bool saves;                   /* a rank has got the signal that asks for a checkpoint */
    int lock_fd;                  /* of the output folder */
    struct run_batch batch;       /* accumulation * micro_batch windows */
    struct run_evaluation *evaluations; /* [n_evaluations]: of each part of the evaluation data */
    uint32_t n_evaluations;
    uint64_t position; /* windows given out so far */
    struct checkpoint_best best;
    struct checkpoint_best end_best; /* the last step, where its evaluation is better than that */
    struct run_name name;
    bool named;         /* it has a name by which its steps can be found after a crash */
    uint8_t own_id[16]; /* the name of this rank's part of them */
    uint64_t origin;    /* of several ranks' steps, see checkpoint.h */
    struct left_steps left;
    bool recovers;               /* goes on after the last step on the drives */
    bool resumes;                /* goes on from a checkpoint */
    struct checkpoint from;      /* where it goes on, after a recovered step or a checkpoint */
    struct checkpoint_data data; /* what is trained on; position is not kept here */
    cJSON *identity;             /* what it stands on: identity.h */
    cJSON *inputs;               /* the files that it reads: inputs.h; of rank 0 */
    cJSON *resolved;             /* the configuration, as checkpoints hold it */
    struct checkpoint_background *saving; /* or NULL: none is being saved now */
    char *last_folder;                    /* the checkpoint that was saved last, or NULL */
    /* The error of the last checkpoint if it could not be saved; all ranks have the same. The run
     * then fails when it has ended on all ranks. */
    int unsaved;
    char *unsaved_why;
};

/* run.c: runs one rank. The options' net connects the ranks; their field `seats` is not used. */
int run_rank(const struct zinf_run_options *options);

/* run_ranks.c: what ranks agree on. A run without other ranks is rank 0 of 1. */
bool run_is_first(const struct run *run);
int64_t run_ranks(const struct run *run);
/* -EINVAL if the ranks were started with different settings, or with different data. The second is
 * called once the trainer is made: only then is the order of the data known. */
int run_compare_ranks(struct run *run);
int run_compare_data(struct run *run);
/* Waits for all ranks, before the first step and at the end of a run. 0: all have come here without
 * failing; else the error of a rank that failed. */
int run_meet(struct run *run);
/* Call once after each step: the ranks tell each other about signals, which sets stops and saves.
 */
int run_look_at_signals(struct run *run);
/* For data that are read while the training runs; call before a step, until it says something else
 * than wait. *there is in: what zinf_dataset_reaches returned on this rank; out: the common answer,
 * -EAGAIN as long as any rank waits for rows. sum: checksum of the rows so far. Sets stops.
 * -EINVAL: ranks do not have the same rows. */
int run_look_at_rows(struct run *run, int *there, uint64_t sum);
/* Tells the other ranks that this one has failed, and why. code 0: does nothing. */
void run_tell_ranks(struct run *run, int code);
/* Evaluates the next batch of every rank. Adds their losses, and for pairs their rewards, to the
 * sums in out in the order of windows, so that the sum does not depend on the number of ranks. */
int run_share_loss(struct zinf_trainer *t, struct zinf_dataset *data, struct run_batch *arrays,
                   uint64_t *first, struct zinf_evaluation *out);
/* Sets *flag on all ranks to its value on rank 0. */
int run_share_flag(const struct run *run, bool *flag);

/* run_steps_ranks.c: committed steps of which each of several ranks has a part */
/* Sends the run's name, which rank 0 has read, to all ranks. */
int run_share_name(struct run *run);
/* Each rank has looked for steps on its own drive; afterwards all know the newest step that every
 * drive has. */
int run_share_steps(struct run *run);
/* run_has_other_ranks: whether the steps found were committed by another number of ranks. If so,
 * run_leave_other_ranks decides. 0: the run goes on from a checkpoint, with a warning, or begins
 * anew as asked; -ENODATA, -EEXIST: no checkpoint is there, and the steps would be lost. */
bool run_has_other_ranks(const struct run *run);
int run_leave_other_ranks(struct run *run);
/* Frees the space of such steps. */
void run_drop_other_ranks(const struct run *run);

/* run_ranks.c: call after a step; adds to result what the other seats of the process have moved to
 * and from drives. */
int run_share_times(struct run *run, struct zinf_step_result *result);
struct run_seats run_seats_of(const struct run *run);

/* run_checkpoint.c */
/* Before the trainer is made: reads and verifies what --resume names, or refuses an output folder
 * that holds another run. */
int run_open_checkpoint(struct run *run);
/* After the trainer is made: compares configuration and data with the checkpoint's, then loads its
 * state. */
int run_resume(struct run *run);
/* run_save_checkpoint reports a failure itself, and training may go on after it. last: no step
 * follows, so the call waits until the checkpoint is written. A caller for whom the failure should
 * fail the run calls run_note_unsaved; run_fail_unsaved then returns that error at the end. */
void run_note_unsaved(struct run *run, int code);
int run_fail_unsaved(const struct run *run);
int run_save_checkpoint(struct run *run, uint64_t step, bool last);
/* Where the data stand now. */
static inline void run_mark_data(const struct run *run, struct checkpoint_data *data)
{
    data->position = run->position;
    data->mark = zinf_dataset_mark(run->options->data, run->position);
}
/* Call before a step: takes the result of a background save that has ended. now: waits for its end.
 */
void run_end_saving(struct run *run, bool now);
/* Chooses the folder from which config.json, tokenizer and the like are copied beside saved
 * weights: that of --model or, if that was a checkpoint which has been removed since, the last one
 * saved. */
void run_choose_source(struct run *run);
void run_close_checkpoint(struct run *run);
/* CPU threads of the arithmetic. */
static inline uint64_t run_threads(const struct run *run)
{
    int64_t asked = run->config->threads;
    return asked > 0 ? (uint64_t)asked : (uint64_t)zinf_cpu_count();
}

/* run_identity.c: notes what the run depends on (model, data, settings). Call once the data are
 * open and, on rank 0, the settings are known. */
int run_identify(struct run *run);
/* -EINVAL: the model, data or settings differ from those of the checkpoint `from` in that folder.
 */
int run_compare_identity(const struct run *run, const char *folder);
/* Writes to the output folder which files the run reads. Rank 0 calls it before the first step. */
int run_write_inputs(const struct run *run);

/* run_name.c: the file run-id of an output folder. read: -EBADMSG: the file is damaged. make:
 * writes a new name. mark: notes that `ranks` ranks have committed steps on the path; steps NULL:
 * that there are none. */
int run_name_read(struct run_name *name, const char *output);
int run_name_make(struct run_name *name, const char *output);
int run_name_mark(struct run_name *name, const char *output, const char *steps, uint32_t ranks);
void run_name_free(struct run_name *name);
/* The name under which one of `world` ranks keeps its part of the steps: the run's name with rank
 * and world in its last bytes; for one rank the run's name itself. */
void run_name_of_rank(const uint8_t id[16], uint32_t rank, uint32_t world, uint8_t out[16]);

/* run_output.c: what another run left in the output folder. */
/* Refuses to begin in a folder with a model, log or checkpoints that this run does not go on from.
 */
int run_guard_output(const struct run *run);
/* Call before anything is written. -EINVAL: the run would write over one of its inputs. */
int run_check_origins(const struct run *run);
/* Call once the run can begin. With --overwrite it removes what the other run left. Where --resume
 * begins anew, because the run never came to a checkpoint, it renames the old log. */
int run_clear_output(const struct run *run);

/* run_best.c */
/* Call after an evaluation: notes if it is the best so far. If the model saved at the end is to be
 * the best one, the weights are then written to OUTPUT/best; a failure to write is reported, and
 * the run goes on. */
void run_best_see(struct run *run, uint64_t step, const struct run_evaluation *evaluation);
/* The same after the last step, if no evaluation was due there. */
void run_best_see_end(struct run *run, uint64_t step, const struct run_evaluation *evaluation);
/* Call before the last step's weights become the model: writes into folder that they are the best.
 */
int run_best_mark(const struct run *run, const char *folder);
/* Whether zinf.early_stopping evaluations in a row were no better, so that the run ends early. */
bool run_best_is_over(const struct run *run);
/* Call at the end: makes OUTPUT/model from the weights in OUTPUT/best. *done: whether there are
 * any. */
int run_best_publish(struct run *run, uint64_t step, bool *done);

/* run_prompts.c */
/* Generates the continuations of the sample prompts, passes them to the caller's event and, if
 * there is a log, stores them in *out as a JSON list on the heap. All ranks must call it. */
int run_answer_prompts(struct run *run, uint64_t step, char **out);

/* run_steps.c */
/* Before anything else: the run's name, and whether it goes on from steps on the drives. */
int run_find_steps(struct run *run);
/* Decides what to do if the steps on the drives turn out to be damaged (code). 0: make the trainer
 * again, from a checkpoint. */
int run_fall_back(struct run *run, int code);
/* Data, configuration and counters of the recovered step. */
int run_recover(struct run *run);
/* Whether the recovered step is also the checkpoint that --resume means. */
bool run_has_checkpoint(const struct run *run);
/* Makes the step that was just done and logged, or the state before the first step, survive the end
 * of the process. */
int run_commit_step(struct run *run);
/* done: the results are saved, so the steps are removed from the drives. Otherwise they stay. */
void run_leave_steps(struct run *run, bool done);
void run_close_steps(struct run *run);

#endif
