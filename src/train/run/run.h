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

/* By what an output folder's runs find their steps again: see run_name.c. */
struct run_name {
    uint8_t id[16];
    bool found;           /* there is one */
    bool copied;          /* but it is of the folder that this one is a copy of */
    uint64_t identity[2]; /* of that folder; 0: not known */
    uint32_t ranks;       /* that have a part of the steps there each */
    char *steps;          /* the path on whose drive steps were committed, or NULL: on none */
};

/* Steps that an earlier process of the run left on the drives. */
struct left_steps {
    char *folder;  /* NULL: there are none */
    char *problem; /* a folder of this run is there, but nothing to go on from; or NULL */
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
    bool saves;                   /* by another one */
    int lock_fd;                  /* of the output folder */
    struct run_batch batch;       /* accumulation * micro_batch windows */
    struct run_evaluation *evaluations; /* [n_evaluations]: of each part of the evaluation data */
    uint32_t n_evaluations;
    uint64_t position; /* windows given out so far */
    struct checkpoint_best best;
    struct checkpoint_best end_best; /* the last step, where its evaluation is better than that */
    struct run_name name;
    bool named;         /* its steps may outlive it */
    uint8_t own_id[16]; /* the name of this rank's part of them */
    uint64_t origin;    /* of several ranks' steps, see checkpoint.h */
    struct left_steps left;
    bool recovers;                        /* goes on after the last of them */
    bool resumes;                         /* goes on from a checkpoint */
    struct checkpoint from;               /* either: where it goes on */
    struct checkpoint_data data;          /* what is trained on; position is not kept here */
    cJSON *identity;                      /* what it stands on: identity.h */
    cJSON *inputs;                        /* the files that it reads: inputs.h; of rank 0 */
    cJSON *resolved;                      /* the configuration, as checkpoints hold it */
    struct checkpoint_background *saving; /* or NULL: none is being saved now */
    char *last_folder;                    /* the checkpoint that was saved last, or NULL */
    /* Why the last checkpoint could not be saved, as all ranks know: it fails the run at its end,
     * which all come to. */
    int unsaved;
    char *unsaved_why;
};

/* run.c: of one rank; the options' net is that of the ranks, and their seats are none. */
int run_rank(const struct zinf_run_options *options);

/* run_ranks.c: other ranks. Without any, this one is the first of one. */
bool run_is_first(const struct run *run);
int64_t run_ranks(const struct run *run);
/* -EINVAL where they were started to do something else; the data's order is known once the trainer
 * is. */
int run_compare_ranks(struct run *run);
int run_compare_data(struct run *run);
int run_begin_steps(struct run *run);
/* After a step, once: sets stops and saves. */
int run_look_at_signals(struct run *run);
/* Of rows that are taken as they are needed, before a step, as often as it takes: *there, what
 * zinf_dataset_reaches has said here, becomes what it is for all ranks: -EAGAIN as long as one
 * waits. Sets stops. -EINVAL: they do not have the same rows. */
int run_look_at_rows(struct run *run, int *there, uint64_t sum);
/* Of a failure. */
void run_tell_ranks(struct run *run, int code);
/* An evaluation's next batch of every rank: adds their losses, and of pairs their rewards, in the
 * order of windows to the sums in out. */
int run_share_loss(struct zinf_trainer *t, struct zinf_dataset *data, struct run_batch *arrays,
                   uint64_t *first, struct zinf_evaluation *out);
/* What rank 0 knows alone. */
int run_share_flag(const struct run *run, bool *flag);
/* At the end of a run that succeeded here: 0 if it did on all ranks; a failed one reports why. */
int run_meet_at_end(struct run *run);

/* run_steps_ranks.c: steps that several ranks have a part of each */
/* What rank 0 has read of the run's name. */
int run_share_name(struct run *run);
/* What each has found becomes what all have: the newest step that is on every drive, at least. */
int run_share_steps(struct run *run);
/* Whether those that there are belong to another number of ranks: then whether to go on from the
 * checkpoint, which is said, or -EEXIST, -ENODATA. */
bool run_has_other_ranks(const struct run *run);
int run_leave_other_ranks(struct run *run);
/* Frees the space of such steps. */
void run_drop_other_ranks(const struct run *run);

/* run_ranks.c: after a step; adds what the process's other seats have moved to and from drives. */
int run_share_times(struct run *run, struct zinf_step_result *result);
struct run_seats run_seats_of(const struct run *run);

/* run_checkpoint.c */
/* Before the trainer is made: reads and verifies what --resume names, or refuses an output folder
 * that holds another run. */
int run_open_checkpoint(struct run *run);
/* After it: configuration and data against the checkpoint, then its state into the trainer. */
int run_resume(struct run *run);
/* A failure is reported here; training may go on after it. last: nothing follows, so it is waited
 * for. The caller notes one that is to fail the run, and run_fail_unsaved fails it. */
void run_note_unsaved(struct run *run, int code);
int run_fail_unsaved(const struct run *run);
int run_save_checkpoint(struct run *run, uint64_t step, bool last);
/* Where the data stand now. */
static inline void run_mark_data(const struct run *run, struct checkpoint_data *data)
{
    data->position = run->position;
    data->mark = zinf_dataset_mark(run->options->data, run->position);
}
/* Before a step: ends a save in the background that is done or stands in its way. now: waits. */
void run_end_saving(struct run *run, bool now);
/* What lies beside the weights is copied from --model, or, where that was a checkpoint that is gone
 * by now, from the last one saved. */
void run_choose_source(struct run *run);
void run_close_checkpoint(struct run *run);
/* CPU threads of the arithmetic. */
static inline uint64_t run_threads(const struct run *run)
{
    int64_t asked = run->config->threads;
    return asked > 0 ? (uint64_t)asked : (uint64_t)zinf_cpu_count();
}

/* run_identity.c: once the data are open and, on rank 0, the settings are known. */
int run_identify(struct run *run);
/* -EINVAL: it stands on something else than `from` did, which folder holds. */
int run_compare_identity(const struct run *run, const char *folder);
/* Of the first rank, before its first step: notes in the output folder what it reads. */
int run_write_inputs(const struct run *run);

/* run_name.c: reads it; -EBADMSG: it is damaged. Makes a new one. Says in it that there are steps
 * of so many ranks on a path, or with NULL that there are none. */
int run_name_read(struct run_name *name, const char *output);
int run_name_make(struct run_name *name, const char *output);
int run_name_mark(struct run_name *name, const char *output, const char *steps, uint32_t ranks);
void run_name_free(struct run_name *name);
/* By which one of several ranks knows its own; of one rank the name itself. */
void run_name_of_rank(const uint8_t id[16], uint32_t rank, uint32_t world, uint8_t out[16]);

/* run_output.c: what another run left in the output folder. */
/* Refuses to begin in a folder with a model, log or checkpoints that this run does not go on from.
 */
int run_guard_output(const struct run *run);
/* Before anything is written: none of the run's files and folders is an input. */
int run_check_origins(const struct run *run);
/* Once the run can begin: --overwrite removes them; the log of a run that never came to a
 * checkpoint is put aside where --resume begins it anew. */
int run_clear_output(const struct run *run);

/* run_best.c */
/* After an evaluation: whether it is the best so far. Its weights are then kept in OUTPUT/best,
 * where the model is to be that of the best; what cannot be kept is reported. */
void run_best_see(struct run *run, uint64_t step, const struct run_evaluation *evaluation);
/* The same of the last step, where no evaluation was due. */
void run_best_see_end(struct run *run, uint64_t step, const struct run_evaluation *evaluation);
/* Before the last step's weights become the model: a record in folder that they are the best. */
int run_best_mark(const struct run *run, const char *folder);
/* Whether so many evaluations were no better that the run ends early. */
bool run_best_is_over(const struct run *run);
/* At the end: makes OUTPUT/model of the best weights, and tells *done whether there are any. */
int run_best_publish(struct run *run, uint64_t step, bool *done);

/* run_prompts.c */
/* The prompts gone on with: told, and as a JSON list of the heap's where there is a log. All ranks
 * make them. */
int run_answer_prompts(struct run *run, uint64_t step, char **out);

/* run_steps.c */
/* Before anything else: the run's name, and whether it goes on from steps on the drives. */
int run_find_steps(struct run *run);
/* What to do where those turn out to be damaged: 0: make the trainer again, from a checkpoint. */
int run_fall_back(struct run *run, int code);
/* Data, configuration and counters of the recovered step. */
int run_recover(struct run *run);
/* Whether the recovered step is also the checkpoint that --resume means. */
bool run_has_checkpoint(const struct run *run);
/* The step that was just done and logged, or the state before the first, survives the process. */
int run_commit_step(struct run *run);
/* Results are saved: the steps go. Otherwise they stay, if there are any. */
void run_leave_steps(struct run *run, bool done);
void run_close_steps(struct run *run);

#endif
