/*
 * session: what a user asks for, which is a job, and what of it is open: model, tokenizer,
 * configuration, data sets, trainers. What callers of the door hold is this (api.h); the command,
 * which shows more than they see, reads it too.
 */
#ifndef ZINF_API_SESSION_H
#define ZINF_API_SESSION_H

#include "api/api.h"
#include "api/generate.h"
#include "api/options.h"
#include "base/apart.h"
#include "base/pulse.h"
#include "config/config.h"
#include "kernels/kernels.h"
#include "model/model.h"
#include "text/chat/chat.h"
#include "text/samples/choices.h"
#include "text/samples/task.h"
#include "text/text.h"
#include "train/estimate.h"
#include "train/score.h"
#include "train/train.h"

#include <glob.h>
#include <stdatomic.h>

/* What a model is trained for, and where its rows have that; NULL: as usual (task.h). */
struct zinf_job_task {
    const char *name, *source_column, *target_column, *label_column, *prefix, *around;
    const char *class_weights; /* "balanced", or a number each */
    double mask_probability;   /* of each token; 0: as usual */
    double length_percentile;  /* what windows are as long as, where no length is given; 0: all */
    bool new_head;             /* instead of the folder's */
    bool fresh;                /* all weights are */
    bool looks;                /* nothing is computed: rows are shown, whatever they are for */
};
/* How texts are made, and what is measured of them. */
struct zinf_job_texts {
    struct generate_settings settings;
    struct zinf_words stops, metrics;
    const char *system; /* what the system says first, where it chats */
    const char *predictions;
    int64_t batch, metric_samples; /* 0: all */
    bool chats, ignores_ends, stem;
};
/* Questions with several answers. */
struct zinf_job_choices {
    enum zinf_choice_style style;
    const char *few_shot;
    int64_t shots; /* 0: as usual */
};
/* How embeddings are made. */
struct zinf_job_embedding {
    int pooling; /* as the folder says, then enum zinf_pooling */
    const char *prompt_name;
    bool normalize, plain; /* to length 1, or not; neither: as the folder says */
};
/* Options fill it (rows.h); those that are keys of the configuration stand in settings. */
struct zinf_job {
    struct zinf_job_task task;
    struct zinf_job_texts texts;
    struct zinf_job_choices choices;
    struct zinf_job_embedding embedding;
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
    struct zinf_words sample_prompts; /* what a training goes on from on its way */
    int64_t sample_every;
    double epochs; /* 0: as steps say */
    bool no_shuffle, overwrite, accept_changes, no_final_checkpoint;
    bool streaming; /* rows are taken while a training needs them */
    int64_t shuffle_buffer;
    struct job_given *given; /* with streaming: the caller's rows; NULL: none */
};

/* How a model's folder and options make embeddings (embedding.c). */
struct job_embedding {
    enum zinf_pooling pooling;
    bool normalizes, has_modules;
    bool prompt_apart;   /* the folder's pooling leaves out a prompt's tokens */
    int64_t most_tokens; /* of a text; 0: as the model takes */
    char columns[256];   /* of its data, with commas */
};
/* What a session is used for. A configuration says more to a training than to what only computes.
 */
enum job_use {
    JOB_LOOKS,     /* at shapes alone */
    JOB_GRADIENTS, /* of one batch, without an update */
    JOB_TEXTS,     /* sequences are gone on with, one at a time where nobody says more */
    JOB_GENERATES, /* as TEXTS, by all ranks and seats together */
    JOB_EVALUATES, /* of a batch its micro batch alone counts */
    JOB_TRAINS,    /* and does all the others too */
};
#define JOB_MOST_GPUS 64
struct job_seats {
    int gpus[JOB_MOST_GPUS];
    int n_gpus; /* that are named; 0: none is */
};
/* A data set as options name it. */
struct job_set {
    char name[ZINF_MOST_SET_NAME]; /* "": none */
    double weight;                 /* 0: none */
    glob_t files;
    bool has_files; /* files was begun */
};
struct job_sets {
    struct job_set *of; /* [n], on the heap */
    int n;
};
struct zinf_session {
    struct zinf_job job;
    enum job_use use;
    char **texts; /* of options, copied */
    size_t n_texts;
    const struct option **given; /* the options' rows */
    size_t n_given;
    char *rows[2];              /* files of zinf_session_rows */
    bool keeps_rows;            /* a training stands on them, and may be resumed */
    volatile sig_atomic_t stop; /* by zinf_session_cancel */
    atomic_bool waits;          /* for the first row: pulse ends that */
    struct zinf_pulse pulse;
    /* Of a training: what the command sets before (events, speeds, save, stuck), and what it makes
     * of the rest when all is open. opened: sees that, on every rank, and may say that it cannot
     * be; NULL: nobody does. */
    struct zinf_run_options run;
    int (*opened)(void *arg);
    void *opened_arg;

    /* ---- open; zinf_session_end leaves zeros from here on ---- */
    struct zinf_model *model;
    struct zinf_tokenizer *tokenizer;
    struct zinf_config *config;
    struct zinf_dataset *data, *eval_data;
    struct job_flow *flow;         /* that data takes its rows from, or NULL */
    struct zinf_measure *measures; /* of the last evaluation, one of each set; or NULL */
    struct zinf_trainer *trainer, *generator;
    char *config_text; /* its file, read once: a training begins by what stood there then */
    size_t config_bytes;
    bool trains;          /* the trainer does */
    struct zinf_net *net; /* between processes; NULL: there are no others */
    bool has_ranks;       /* it was looked for */
    bool is_broken;       /* opening has failed half way: the next use begins anew */
    struct job_seats seats;
    char *checkpoint;  /* that option resume found, or NULL */
    char *snapshot;    /* the folder that is meant where option model is a name that the hub's
                          cache has, or a GGUF file */
    const char *named; /* that name */
    struct {           /* of the job, which a training has changed */
        bool is_kept;
        const char *model;
        int64_t steps;
        struct zinf_config_settings settings;
    } asked;
    struct job_sets data_sets, eval_sets; /* of options data and eval-data */
    enum zinf_device_kind device;
    int64_t seq_len; /* resolved */
    enum zinf_task task;
    enum zinf_model_head head;    /* that the model is given instead of its own */
    bool reads_source;            /* the model has an encoder for it, whatever the task */
    int64_t source_len;           /* then, once data is open */
    struct zinf_choices *choices; /* of CHOICE */
    double *choice_logs; /* [choices->n_choices]: once they are measured, of the first rank */
    /* Of EMBEDDING; together: texts of a row, once data is open, and embeds: they are to be
     * embedded, each a row. */
    struct job_embedding embedding;
    int64_t together;
    bool embeds, knows_lengths;
    /* Of CLASSIFICATION and REGRESSION, once data is open. */
    bool knows_classes, asks_classes; /* the second: the model gets `classes` instead of its own */
    struct zinf_labels labels;
    struct zinf_model_classes classes; /* borrows the labels' names */
    float *class_weights;              /* [labels.n]; NULL: all count alike */
    bool shuffled;                     /* data is */
    bool chats;                        /* data are conversations */
    struct generate_settings
        settings;        /* of options and the model's folder, once scores are ready */
    int32_t left_out[4]; /* tokens that are no part of a text that is scored */
    struct zinf_run_scores scores;
    struct job_prompts *prompts; /* of a training, as long as it runs; NULL: none */
    struct zinf_origins origins; /* all that it reads */
};

/* ---- session.c ---- */

/* -EINVAL: there is no option model. */
int session_need_model(const struct zinf_session *s);
/* Options that the configuration's file has (zinf_config_job) and that were not given. */
int session_take_file(struct zinf_session *s);
int session_need(const char *option, const void *value); /* -EINVAL: the option is missing */
/* And its tokenizer. */
int session_begin(struct zinf_session *s);
/* What the options say to a configuration. */
/* hub.c: the folder of a model's name in the cache of Hugging Face's programs, on the heap; NULL:
 * it is not there. */
char *job_hub_find(const char *name);
struct zinf_config_context session_context(const struct zinf_session *s);
/* Makes it, for what the session is used for; quiet: its notes are said by a later call. */
int session_config(struct zinf_session *s, bool quiet);
/* Model, tokenizer and configuration for this use, where they are not open for it. */
int session_ready(struct zinf_session *s, enum job_use use);
/* code, of which other ranks hear where it is a failure. */
int session_tell(struct zinf_session *s, int code);
/* Of the session's model. */
struct zinf_trainer_options session_trainer_options(const struct zinf_session *s,
                                                    enum zinf_trainer_mode mode);
/* One that trains, where that is asked for, and stays what it is where not. */
int session_need_trainer(struct zinf_session *s, bool trains);
void session_drop_trainers(struct zinf_session *s);
/* Into a struct of the caller, who may know fewer of its fields. */
void session_give(void *to, const void *from, size_t bytes);
struct zinf_measure session_measure_of(const struct zinf_evaluation *found);
/* Closes all that is open, and the job is what it was. */
void session_end(struct zinf_session *s);

/* ---- data.c ---- */

/* Opens the data of option data, and of option eval-data, of which each named set is a part.
 * Patterns among files are expanded, "-" is standard input. cache_folder NULL: private. Checks ids
 * against the model's vocabulary. */
int session_data(struct zinf_session *s, const char *cache_folder, bool shuffle);
/* files: those options' or, of who only evaluates, of option data. */
int session_eval_data(struct zinf_session *s, const struct zinf_words *files,
                      const char *cache_folder);

/* ---- flow.c ---- */

/* Rows of the caller, with option streaming. They outlive the session where a thread of theirs
 * does.
 */
int job_given_create(struct job_given **out, const struct zinf_row_source *rows);
void job_given_close(struct job_given *given); /* NULL: there are none */

struct job_flow; /* rows on their way, of option streaming */
/* As session_data, of rows that are taken as they are needed: those of option data or the caller's.
 */
int job_flow_open(struct zinf_session *s, struct zinf_dataset **out);
void job_flow_close(struct job_flow *flow); /* after the data set */
/* Who waits for the first row waits no longer; after stop was set, also in a signal handler. */
void job_flow_cancel(struct zinf_session *s);

/* ---- sets.c ---- */

enum job_sets_by {
    JOB_SETS_BY_WEIGHT, /* FILE:WEIGHT */
    JOB_SETS_BY_NAME,   /* NAME=FILE */
};
/* -EINVAL: a weight is none, or only some files have one. Free out in any case. */
int job_sets_read(const char *option, const struct zinf_words *words, enum job_sets_by by,
                  struct job_sets *out);
void job_sets_free(struct job_sets *sets);

/* ---- samples.c ---- */

/* What a stream of text is cut by, but for its files. */
struct zinf_dataset_options job_rows_stream(const struct zinf_session *s,
                                            const struct zinf_tokenizer *tokenizer);
/* The session's tokenizer, or NULL: the folder has none that is the model's. */
const struct zinf_tokenizer *job_rows_tokenizer(const struct zinf_session *s);
/* Which of files hold samples and in what form: told by their first rows, unless option format or
 * text-column says. All are of one. */
int job_samples_tell(const struct zinf_job *c, const char *const *files, int n,
                     enum zinf_format *out);
/* Whether they are what the task is for; file names them. */
int job_samples_check(const struct zinf_session *s, const char *file, enum zinf_format format);
/* As session_data, of samples. *out NULL, with given->may_be_empty: no sample is left. */
int job_samples_open(struct zinf_session *s, const struct zinf_samples_options *given,
                     enum zinf_format format, struct zinf_dataset **out);
/* A model that was trained by option chat-template says so in its folder, unless that does already.
 */
int job_samples_keep_template(const struct zinf_session *s, const char *folder);

/* ---- task.c ---- */

/* What the model is trained for: as option task says, if it can be, or as it is made. */
int job_task_tell(struct zinf_session *s);
/* As session_data, of sources and targets. The first data that are opened decide how long both are
 * in a window, where no option says: as long as the longest, up to what the model takes. */
int job_task_open(struct zinf_session *s, const struct zinf_samples_options *given,
                  struct zinf_dataset **out);
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
static inline bool job_gives_references(const struct zinf_session *s)
{
    const char *loss = s->config->preference;
    return s->task == ZINF_TASK_PREFERENCE && !s->config->adapter && !s->job.adapter &&
           strcmp(loss, "orpo") && strcmp(loss, "simpo");
}
/* Windows that so many rows are: a batch is counted in rows, of which a pair is one. */
static inline int64_t job_windows(const struct zinf_session *s, int64_t rows)
{
    return job_has_pairs(s->task) ? 2 * rows : s->together > 1 ? s->together * rows : rows;
}
/* Whether a loss is one of samples or pairs, and not of tokens. */
static inline bool job_is_of_samples(enum zinf_task task)
{
    return job_is_labelled(task) || job_has_pairs(task) || task == ZINF_TASK_EMBEDDING;
}
/* Whether a model that is trained for it goes on with texts. */
static inline bool job_makes_texts(enum zinf_task task)
{
    return !job_is_labelled(task) && task != ZINF_TASK_REWARD && task != ZINF_TASK_MASKED &&
           task != ZINF_TASK_EMBEDDING;
}
/* -EINVAL: the model's folder has no tokenizer, and its vocabulary is not that of bytes. */
int job_task_need_tokenizer(const struct zinf_session *s);
extern const char job_task_no_tokenizer[];             /* why not */
bool job_task_has_bytes(const struct zinf_session *s); /* as vocabulary: the 256, or 257 */
/* -EINVAL: the model's task is one without texts. */
int job_task_need_texts(const struct zinf_session *s);
/* A token of config.json by its key; -EINVAL: it has none. */
int job_task_token(const struct zinf_session *s, const char *key, int32_t *out);

/* What the job says of rows of framed texts, for an encoder. */
void job_task_rows(const struct zinf_session *s, struct zinf_samples_options *o);

/* ---- fit.c: samples of sources, targets and texts with labels ---- */

/* What is cut off of too long a sample, by option truncate; tokens that the tokenizer puts in front
 * of a text stay: *front of them. */
int job_fit_cut(const struct zinf_session *s, enum zinf_cut *cut, uint32_t *front);
/* Rows for n tokens: a multiple of 8, which suits the products, but at most so many. */
uint32_t job_fit_rounded(uint32_t n, uint32_t most);
/* Opened again with the lengths of the longest sample, of a first look in which nothing is cut but
 * what is too long for the model. */
int job_fit(const struct zinf_job *c, struct zinf_samples_options *o,
            struct zinf_samples **samples);
void job_fit_say(const struct zinf_samples *samples, const struct zinf_samples_options *o,
                 const char *what);

/* ---- classes.c ---- */

/* As job_task_open, of texts with labels. The first data, of a training those it trains on, may
 * decide what the classes are. */
int job_classes_open(struct zinf_session *s, const struct zinf_samples_options *given,
                     struct zinf_dataset **out);
/* Of answers that get a score: the head for it, once a session. */
int job_classes_settle_scores(struct zinf_session *s);

/* ---- masked.c: texts of which tokens are masked ---- */

/* The options of a stream of them, which borrow masking for the call that opens it. */
int job_masked_stream(struct zinf_session *s, struct zinf_dataset_options *options,
                      struct zinf_masking *masking);
/* As job_task_open, of rows. */
int job_masked_rows(struct zinf_session *s, const struct zinf_samples_options *given,
                    struct zinf_dataset **out);

/* ---- embed.c ---- */

/* Embeddings of all rows of option data: n of cols numbers. begin is called once before row, which
 * gets each in the order of the files; both may end it with < 0. */
struct job_embeddings {
    uint64_t n;
    int64_t cols;
    int (*begin)(void *arg, uint64_t n, int64_t cols);
    int (*row)(void *arg, uint64_t index, const float *embedding, int64_t cols);
    void *arg;
};
int job_embed(struct zinf_session *s, struct job_embeddings *out);

/* ---- seats.c: with whom this process works, and on how many devices ---- */

/* The other processes, as a launcher has it, whose log this one leaves to rank 0's. They come at
 * their own pace: the net is patient. */
int job_ranks_find(struct zinf_session *s);
bool job_ranks_is_first(const struct zinf_net *net);
/* For what one process does alone (`what`: "texts are made"): true for the first of those that a
 * launcher started, which says so, and where there are no others. */
bool job_ranks_works_alone(const char *what);
/* Texts are made by several seats or ranks together, which share tensors or layers. */
bool texts_are_shared(const struct zinf_session *session);
/* How many devices it drives, and which: asked for by options seats or devices or zinf.seats; where
 * nobody asks, all GPUs that are visible, shared by the processes of a host, and of host devices
 * one. Sets what a configuration is told of both. -EINVAL, a wrong use, with a sentence. */
int job_seats_find(struct zinf_session *s);
/* Nobody has asked for several, and this training or evaluation cannot be shared: one GPU is taken,
 * which is said, and the configuration is to be read anew. */
bool job_seats_leave_one(struct zinf_session *s);
/* The GPUs of the seats, or NULL: those of the process's share of its host's. */
const int *job_seats_gpus(const struct zinf_session *s);

/* ---- training.c ---- */

/* What options rule out together. -EINVAL, a wrong use. */
int job_train_check(const struct zinf_job *c);

/* ---- micro.c ---- */

/* Where the configuration leaves the micro batch to the plan: the largest that fits, or the one
 * that a run had that is gone on from. Sets it in the configuration, and for any that is read
 * later. All ranks call it. */
int job_micro_find(struct zinf_session *s, struct zinf_estimate_options *options);
/* Of a training of this session. */
int job_micro_settle(struct zinf_session *s);

/* ---- prompts.c ---- */

/* Once data are open: option sample-prompts as tokens, into session->prompts. */
int job_prompts_open(struct zinf_session *s);
void job_prompts_close(struct job_prompts *prompts);
/* For a run, or NULL. */
const struct zinf_run_prompts *job_prompts_of(const struct zinf_session *s);

/* ---- scores.c ---- */

/* Of a command that only evaluates: metrics by name, and nothing said of texts without one. */
int job_scores_check(const struct zinf_session *s);
/* Once the session is open: how texts are made, by the options, then the model's folder. data: what
 * is scored; it must have rows of prompts and answers. Nothing to do without metrics. */
int job_scores_prepare(struct zinf_session *s, struct zinf_dataset *data);
/* Of every metric its value over data. The trainer is the one, of these options, that measured the
 * loss; where another one can make texts faster, and it does not train, it is given up for that
 * one. Of ranks the first writes the predictions. */
int job_scores_measure(struct zinf_session *s, const struct zinf_trainer_options *options,
                       struct zinf_dataset *data, struct zinf_trainer **trainer,
                       struct zinf_measure *result);

/* ---- choices.c ---- */

/* All results of multiple-choice questions, with the keys of lm-evaluation-harness's result files.
 * Free with cJSON_Delete. */
cJSON *job_choices_json(const struct zinf_session *s);

#endif
