/*
 * session: a job, which is what a user asks for, and what of it is open: model, tokenizer, data
 * sets and the configuration of file and options.
 */
#ifndef ZINF_API_SESSION_H
#define ZINF_API_SESSION_H

#include "api/options.h"
#include "base/apart.h"
#include "config/config.h"
#include "kernels/kernels.h"
#include "model/model.h"
#include "text/chat/chat.h"
#include "text/samples/task.h"
#include "text/text.h"
#include "train/train.h"

#include <glob.h>

/* What a model is trained for, and where its rows have that; NULL: as usual (task.h). */
struct zinf_job_task {
    const char *name, *source_column, *target_column, *label_column, *prefix;
    const char *class_weights; /* "balanced", or a number each */
    bool new_head;             /* instead of the folder's */
    bool fresh;                /* all weights are */
    bool looks;                /* nothing is computed: rows are shown, whatever they are for */
};
/* What a user asks for. Options fill it (rows.h); those that are keys of the configuration stand in
 * settings. */
struct zinf_job {
    struct zinf_job_task task;
    const char *model, *adapter, *config, *text_column, *format, *chat_template;
    struct zinf_words data;
    struct zinf_config_settings settings;
    enum zinf_device_kind device;
    enum zinf_cut truncate;
    int64_t world;       /* ranks of this run, or processes with seats; 0: 1 */
    const char *devices; /* seats.h */
    int64_t seats, seats_there;
    int64_t seq_len, source_len, seed, min_tokens;
    int64_t steps; /* < 0: as the data and the epochs say */
    bool lenient;
    bool pack, train_on_prompt, skip_bad_rows; /* of samples */
    /* Of a training's run. */
    struct zinf_words eval_data;
    const char *output, *log, *resume; /* resume "": from the last step of output */
    int64_t eval_every, save_every, save_total_limit;
    double epochs; /* 0: as steps say */
    bool no_shuffle, overwrite, accept_changes, no_final_checkpoint;
    /* Of the caller, who has no option for it. */
    bool no_training; /* nobody is told of learning rates */
    bool no_steps;    /* nor are a step's numbers of samples */
    bool quiet;       /* nor of anything in the configuration */
};
#define ZINF_JOB_DEFAULT                                                                           \
    {                                                                                              \
        .steps = -1                                                                                \
    }
/* Sets a key of the configuration where no option has. */
int zinf_job_set(struct zinf_job *job, const char *key, double number);

/* What a command has open; zinf_session_end frees it all. */
struct zinf_session {
    struct zinf_model *model;
    struct zinf_tokenizer *tokenizer;
    struct zinf_config *config;
    struct zinf_dataset *data, *eval_data;
    glob_t globs[2]; /* of --data and --eval-data */
    int n_globs;
    enum zinf_device_kind device;
    int64_t seq_len; /* resolved */
    enum zinf_task task;
    int64_t source_len; /* of SEQ2SEQ, once data is open */
    /* Of CLASSIFICATION and REGRESSION, once data is open. */
    bool knows_classes, asks_classes; /* the second: the model gets `classes` instead of its own */
    struct zinf_labels labels;
    struct zinf_model_classes classes; /* borrows the labels' names */
    float *class_weights;              /* [labels.n]; NULL: all count alike */
    char dtype[16];                    /* of the model folder, where it has one */
    bool shuffled;                     /* data is */
    bool chats;                        /* data are conversations */
    struct zinf_origins origins;       /* all that it reads */
};
/* Opens the model's config.json and its tokenizer; resolves --seq-len and --device. */
int zinf_session_begin(struct zinf_session *s, const struct zinf_job *c);
/* The same without a tokenizer: --model may be a config.json. */
int zinf_session_shape(struct zinf_session *s, const struct zinf_job *c);
/* -EINVAL: the model's folder has no tokenizer, and its vocabulary is not that of bytes. */
int zinf_session_need_tokenizer(const struct zinf_session *s, const struct zinf_job *c);
/* Patterns among files are expanded, "-" is standard input. cache_folder NULL: private. Checks ids
 * against the model's vocabulary. */
int zinf_session_data(struct zinf_session *s, const struct zinf_job *c,
                      const struct zinf_words *files, const char *cache_folder, bool shuffle,
                      struct zinf_dataset **out);
/* samples.c: which of files hold samples and in what form: told by their first rows, unless
 * --format or --text-column says. All are of one. */
int job_samples_tell(const struct zinf_job *c, const char *const *files, int n,
                     enum zinf_format *out);
/* Whether they are what the task is for; file names them. */
int job_samples_check(const struct zinf_session *s, const struct zinf_job *c, const char *file,
                      enum zinf_format format);
/* As zinf_session_data, of samples. */
int job_samples_open(struct zinf_session *s, const struct zinf_job *c,
                     const struct zinf_samples_options *given, enum zinf_format format,
                     struct zinf_dataset **out);
/* A model that was trained by --chat-template says so in its folder, unless that does already. */
int job_samples_keep_template(const struct zinf_job *c, const struct zinf_tokenizer *tokenizer,
                              const char *folder);
/* task.c: what the model is trained for: as --task says, if it can be, or as it is made. */
int job_task_tell(struct zinf_session *s, const struct zinf_job *c);
/* As zinf_session_data, of sources and targets. The first data that are opened decide how long both
 * are in a window, where no option says: as long as the longest, up to what the model takes. */
int job_task_open(struct zinf_session *s, const struct zinf_job *c,
                  const struct zinf_samples_options *given, struct zinf_dataset **out);
/* Whether a sample has a label: a class or a number. */
static inline bool job_is_labelled(enum zinf_task task)
{
    return task == ZINF_TASK_CLASSIFICATION || task == ZINF_TASK_REGRESSION;
}
/* Whether samples come in pairs, a preferred one and another. */
static inline bool job_has_pairs(enum zinf_task task)
{
    return task == ZINF_TASK_PREFERENCE || task == ZINF_TASK_REWARD;
}
/* Whether pairs come with what their reference says: a model without adapters is its own, as it is
 * before the first step. */
static inline bool job_gives_references(const struct zinf_session *s, const struct zinf_job *c)
{
    const char *loss = s->config->preference;
    return s->task == ZINF_TASK_PREFERENCE && !s->config->adapter && !c->adapter &&
           strcmp(loss, "orpo") && strcmp(loss, "simpo");
}
/* Windows that so many rows are: a batch is counted in rows, of which a pair is one. */
static inline int64_t job_windows(enum zinf_task task, int64_t rows)
{
    return job_has_pairs(task) ? 2 * rows : rows;
}
/* Whether a loss is one of samples or pairs, and not of tokens. */
static inline bool job_is_of_samples(enum zinf_task task)
{
    return job_is_labelled(task) || job_has_pairs(task);
}
/* -EINVAL: the model's task is one without texts. */
int job_task_need_texts(const struct zinf_session *s, const struct zinf_job *c);
/* Opened again with the lengths of the longest sample, of a first look in which nothing is cut but
 * what is too long for the model. */
int job_task_fit(const struct zinf_job *c, struct zinf_samples_options *o,
                 struct zinf_samples **samples);
/* What is cut off of too long a sample, by --truncate; tokens that the tokenizer puts in front of a
 * text stay: *front of them. */
int job_task_cut(const struct zinf_session *s, const struct zinf_job *c, enum zinf_cut *cut,
                 uint32_t *front);
void job_task_say_cut(const struct zinf_samples *samples, const struct zinf_samples_options *o,
                      const char *what);
/* classes.c: the same of texts with labels. The first data, of a training those it trains on, may
 * decide what the classes are. */
int job_classes_open(struct zinf_session *s, const struct zinf_job *c,
                     const struct zinf_samples_options *given, struct zinf_dataset **out);
/* Of answers that get a score: the head for it, once a session. */
int job_classes_settle_scores(struct zinf_session *s, const struct zinf_job *c);
/* A token of config.json by its key; -EINVAL: it has none. */
int job_task_token(const struct zinf_session *s, const struct zinf_job *c, const char *key,
                   int32_t *out);
/* What the options say to a configuration. */
struct zinf_config_context zinf_job_context(const struct zinf_job *c);
int zinf_session_config(struct zinf_session *s, const struct zinf_job *c);
/* A trainer of the session's model; seq_len 0: the session's. */
struct zinf_trainer_options zinf_session_options(const struct zinf_session *s,
                                                 const struct zinf_job *c,
                                                 enum zinf_trainer_mode mode, int64_t seq_len);
int zinf_session_trainer(struct zinf_session *s, const struct zinf_job *c,
                         enum zinf_trainer_mode mode, int64_t seq_len, struct zinf_trainer **out);
void zinf_session_end(struct zinf_session *s);
int zinf_job_need(const char *option, const void *value); /* -EINVAL: the option is missing */
/* -EINVAL, a wrong use: --model is missing */
int zinf_job_check(const struct zinf_job *c);

#endif
