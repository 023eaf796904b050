/* rows: the groups of options that jobs have (options.h). They fill a struct zinf_job. */
#ifndef ZINF_API_ROWS_H
#define ZINF_API_ROWS_H

#include "api/options.h"

extern const struct option job_device[];                         /* where and how */
extern const char *const job_device_words[];                     /* enum zinf_device_kind */
extern const struct option job_seats[];                          /* how many devices */
extern const struct option job_tensor[];                         /* whether they share matrices, */
extern const struct option job_context[];                        /* or each sequence, */
extern const struct option job_pipeline[];                       /* or have layers of their own */
extern const struct option job_rows[];                           /* --data and what its rows are */
extern const struct option job_template[];                       /* --chat-template alone */
extern const struct option job_task[];                           /* what a model is for */
extern const struct option job_shape_task[];                     /* the same, without data */
extern const struct option job_embedding[];                      /* how embeddings are made */
extern const struct option job_plain_texts[], job_prompt_name[]; /* and of what */
extern const struct option job_head[];                           /* of classes */
extern const struct option job_step[];                           /* what decides a step */
extern const struct option job_pairs[];                          /* the loss of pairs */
extern const struct option job_model[];                          /* --model */
extern const struct option job_shape[];   /* the same, of which no weights are needed */
extern const struct option job_begin[];   /* --init, --adapter */
extern const struct option job_eval[];    /* --eval-data */
extern const struct option job_shuffle[]; /* --no-shuffle */
extern const struct option job_output[];  /* --output, --log, --eval-every */
extern const struct option job_saves[];   /* of checkpoints */
extern const struct option job_epochs[];
extern const struct option job_seq[];          /* --seq-len */
extern const struct option job_source[];       /* --source-len */
extern const struct option job_shape_length[]; /* both, of a training that is not there */
extern const struct option job_pad[];          /* ... and in a step */
extern const struct option job_group[];        /* which samples come together */
extern const struct option job_best[];         /* what evaluations decide */
extern const struct option job_dtype[];        /* the number type of a computation */
extern const struct option job_micro[];        /* sequences computed at once */
extern const struct option job_seed[];
extern const struct option job_chat[];  /* prompts as what a user says */
extern const struct option job_texts[]; /* where texts end, and how many are made at once */
extern const struct option job_texts_seed[];
extern const struct option job_metrics[];     /* what texts and labels are measured by */
extern const struct option job_predictions[]; /* --predictions */
extern const struct option job_choices[];     /* of questions with several answers */

/* All of them, as a session has them: they fill a struct zinf_job (session.h). */
extern const struct option_group job_groups[];

/* spelling.c: whether sentences call options by their names, as the door's callers do, or by their
 * flags, as the command does. Of the whole process. */
void option_spell_names(bool by_name);

#endif
