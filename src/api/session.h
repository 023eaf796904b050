/*
 * session: a job, which is what a user asks for, and what the session has opened for it: model,
 * tokenizer, configuration, data sets, trainers. Callers of the library hold it as an opaque
 * pointer (zinf.h); the command line reads its fields as well.
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

/* What the model is trained for, and which columns of the data have it; NULL: the default (task.h).
 */
struct zinf_job_task {
    const char *name, *source_column, *target_column, *label_column, *prefix, *around;
    const char *class_weights; /* "balanced", or one number for each class */
    double mask_probability;   /* of each token; 0: the default */
    /* if no length is given, windows are as long as this percentile of the samples; 0: as the
     * longest */
    double length_percentile;
    bool new_head; /* replaces the head of the model's folder */
    bool fresh;    /* all weights begin anew */
    bool looks;    /* rows are only shown, for any task; nothing is computed */
};
/* How texts are made, and what is measured of them. */
struct zinf_job_texts {
    struct generate_settings settings;
    struct zinf_words stops, metrics;
    const char *system; /* the system message of a chat */
    const char *predictions;
    int64_t batch, metric_samples; /* 0: all */
    bool chats, ignores_ends, stem;
};
/* Questions with several answers. */
struct zinf_job_choices {
    enum zinf_choice_style style;
    const char *few_shot;
    int64_t shots; /* 0: the default */
};
/* How embeddings are made. */
struct zinf_job_embedding {
    int pooling; /* 0: as the folder says; else 1 + enum zinf_pooling */
    const char *prompt_name;
    /* scale embeddings to length 1, or do not; neither set: as the folder says */
    bool normalize, plain;
};
/* Filled from options (rows.h); options that are keys of the configuration go to settings. */
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
    int64_t steps; /* < 0: computed from the data and the number of epochs */
    bool lenient;
    bool pack, train_on_prompt, skip_bad_rows; /* for data that are samples */
    /* For training. */
    struct zinf_words eval_data;
    const char *output, *log, *resume; /* resume "": continue from the last step in output */
    int64_t eval_every, save_every, save_total_limit;
    struct zinf_words sample_prompts; /* prompts that are continued during the training */
    int64_t sample_every;
    double epochs; /* 0: computed from steps */
    bool no_shuffle, overwrite, accept_changes, no_final_checkpoint;
    bool streaming; /* rows are read while the training runs */
    int64_t shuffle_buffer;
    struct job_given *given; /* with streaming: the caller's rows; NULL: none */
};

/* How a model's folder and options make embeddings (embedding.c). */
struct job_embedding {
    enum zinf_pooling pooling;
    bool normalizes, has_modules;
    bool prompt_apart;   /* the folder's pooling leaves out the tokens of a prompt */
    int64_t most_tokens; /* of a text; 0: as many as the model takes */
    char columns[256];   /* of its data, separated by commas */
};
/* What a session is used for. Some keys of the configuration matter to a training only. */
enum job_use {
    JOB_LOOKS,     /* only shapes are needed */
    JOB_GRADIENTS, /* gradients of one batch, without an update */
    JOB_TEXTS,     /* texts are continued, by default one at a time */
    JOB_GENERATES, /* as JOB_TEXTS, by all ranks and seats together */
    JOB_EVALUATES, /* only the micro batch of the configuration's batch sizes is used */
    JOB_TRAINS,    /* training, which may do all of the others as well */
};
#define JOB_MOST_GPUS 64
struct job_seats {
    int gpus[JOB_MOST_GPUS];
    int n_gpus; /* how many are named; 0: none */
};
/* One data set, as the options name it. */
struct job_set {
    char name[ZINF_MOST_SET_NAME]; /* "": none */
    double weight;                 /* 0: none */
    glob_t files;
    bool has_files; /* files has been filled and must be freed */
};
struct job_sets {
    struct job_set *of; /* [n], on the heap */
    int n;
};
struct zinf_session {
    struct zinf_job job;
    enum job_use use;
    char **texts; /* copies of the options' values */
    size_t n_texts;
    const struct option **given; /* rows of the options that were given */
    size_t n_given;
    char *rows[2];   /* files of zinf_session_rows */
    bool keeps_rows; /* keep these files: a training that may be resumed depends on them */
    volatile sig_atomic_t stop; /* set by zinf_session_cancel */
    atomic_bool waits;          /* waiting for the first row; pulse ends the wait */
    struct zinf_pulse pulse;
    /* For training. The command sets events, speeds, save and stuck beforehand; the session sets
     * the rest when all is open. opened: called then on every rank; a negative return ends the run.
     * NULL: not called. */
    struct zinf_run_options run;
    int (*opened)(void *arg);
    void *opened_arg;

    /* ---- open; zinf_session_end leaves zeros from here on ---- */
    struct zinf_model *model;
    struct zinf_tokenizer *tokenizer;
    struct zinf_config *config;
    struct zinf_dataset *data, *eval_data;
    struct job_flow *flow;         /* from which data takes its rows, or NULL */
    struct zinf_measure *measures; /* results of the last evaluation, one for each set; or NULL */
    struct zinf_trainer *trainer, *generator;
    /* text of the configuration file; it is read only once, so that later changes to it do not
     * matter */
    char *config_text;
    size_t config_bytes;
    bool trains;          /* the trainer is one that trains */
    struct zinf_net *net; /* connects the processes; NULL: there is only one */
    bool has_ranks;       /* net has been looked for */
    bool is_broken;       /* opening has failed: the next use opens everything anew */
    struct job_seats seats;
    char *checkpoint; /* the checkpoint that option resume has found, or NULL */
    /* the folder to read if option model names a model in the cache of Hugging Face, or a GGUF file
     */
    char *snapshot;
    const char *named; /* that name */
    struct {           /* values of the job before a training changed them */
        bool is_kept;
        const char *model;
        int64_t steps;
        struct zinf_config_settings settings;
    } asked;
    struct job_sets data_sets, eval_sets; /* of options data and eval-data */
    enum zinf_device_kind device;
    int64_t seq_len; /* resolved */
    enum zinf_task task;
    enum zinf_model_head head;    /* the head that replaces the model's own */
    bool reads_source;            /* the model has an encoder, whatever the task */
    int64_t source_len;           /* length of its sources, once data is open */
    struct zinf_choices *choices; /* for the task CHOICE */
    /* [choices->n_choices] log probabilities, on rank 0 once they are measured */
    double *choice_logs;
    /* For the task EMBEDDING. together: how many texts a row of the data has, once data is open.
     * embeds: the texts are to be embedded rather than trained on, one a row. */
    struct job_embedding embedding;
    int64_t together;
    bool embeds, knows_lengths;
    /* For CLASSIFICATION and REGRESSION, once data is open. */
    /* asks_classes: the model gets `classes` instead of its own */
    bool knows_classes, asks_classes;
    struct zinf_labels labels;
    struct zinf_model_classes classes; /* borrows the names of labels */
    float *class_weights;              /* [labels.n]; NULL: all classes have the same weight */
    bool shuffled;                     /* data is shuffled */
    bool chats;                        /* the data are conversations */
    /* From options and the model's folder, once scores are prepared. */
    struct generate_settings settings;
    int32_t left_out[4]; /* tokens that are removed from a text before it is scored */
    struct zinf_run_scores scores;
    struct job_prompts *prompts; /* sample prompts while a training runs; NULL: none */
    struct zinf_origins origins; /* all files that the session reads */
};

/* ---- session.c ---- */

/* -EINVAL: option model is missing. */
int session_need_model(const struct zinf_session *s);
/* Takes options from the configuration file (zinf_config_job) that were not given otherwise. */
int session_take_file(struct zinf_session *s);
int session_need(const char *option, const void *value); /* -EINVAL: the option is missing */
/* Opens the model and its tokenizer. */
int session_begin(struct zinf_session *s);
/* hub.c: the folder of a model in the cache of Hugging Face's programs, by the model's name, on the
 * heap; NULL: it is not there. */
char *job_hub_find(const char *name);
/* What a configuration needs to know of the options. */
struct zinf_config_context session_context(const struct zinf_session *s);
/* The configuration for a context. A file is read at the first call only, and its text kept. */
int session_load_config(struct zinf_session *s, const struct zinf_config_context *context,
                        struct zinf_config **out);
/* Reads the configuration for the session's use. quiet: do not print its notes; a later call does.
 */
int session_config(struct zinf_session *s, bool quiet);
/* Opens model, tokenizer and configuration for this use, unless they are open for it already. */
int session_ready(struct zinf_session *s, enum job_use use);
/* Returns code; if it is a failure, tells the other ranks. */
int session_tell(struct zinf_session *s, int code);
/* Trainer options for the session's model. */
struct zinf_trainer_options session_trainer_options(const struct zinf_session *s,
                                                    enum zinf_trainer_mode mode);
/* Makes the session's trainer if there is none; with trains, one that trains. */
int session_need_trainer(struct zinf_session *s, bool trains);
void session_drop_trainers(struct zinf_session *s);
/* Copies a result into a struct of the caller, which may be of an older version with fewer fields.
 */
void session_give(void *to, const void *from, size_t bytes);
struct zinf_measure session_measure_of(const struct zinf_evaluation *found);
/* Closes all that is open, and restores the job. */
void session_end(struct zinf_session *s);

/* ---- data.c ---- */

/* Opens the data of options data and eval-data; each named set becomes a part. Expands patterns in
 * file names; "-" is standard input. cache_folder NULL: a private one. -EINVAL if a token is not in
 * the model's vocabulary. */
int session_data(struct zinf_session *s, const char *cache_folder, bool shuffle);
/* files: the words of option eval-data or, for a command that only evaluates, of option data. */
int session_eval_data(struct zinf_session *s, const struct zinf_words *files,
                      const char *cache_folder);

/* What data would decide, for an estimate, which has none: the head of the task's model, and that
 * two texts belong together. */
int session_assume_data(struct zinf_session *s);

/* ---- flow.c ---- */

/* Rows that the caller supplies, with option streaming. They are freed when both the session and
 * the thread that reads them have ended. */
int job_given_create(struct job_given **out, const struct zinf_row_source *rows);
void job_given_close(struct job_given *given); /* NULL is allowed */

struct job_flow; /* rows being read, with option streaming */
/* As session_data, for rows that are read while the training runs: those of option data or the
 * caller's. */
int job_flow_open(struct zinf_session *s, struct zinf_dataset **out);
void job_flow_close(struct job_flow *flow); /* call after the data set is closed */
/* Ends a wait for the first row. Call after stop was set; safe in a signal handler. */
void job_flow_cancel(struct zinf_session *s);

/* ---- sets.c ---- */

enum job_sets_by {
    JOB_SETS_BY_WEIGHT, /* FILE:WEIGHT */
    JOB_SETS_BY_NAME,   /* NAME=FILE */
};
/* -EINVAL: a weight is not a number, or only some files have one. Free out even after a failure. */
int job_sets_read(const char *option, const struct zinf_words *words, enum job_sets_by by,
                  struct job_sets *out);
void job_sets_free(struct job_sets *sets);

/* ---- samples.c ---- */

/* How a stream of text is cut into windows; all options but the files. */
struct zinf_dataset_options job_rows_stream(const struct zinf_session *s,
                                            const struct zinf_tokenizer *tokenizer);
/* The session's tokenizer; NULL: the folder has none for this model. */
const struct zinf_tokenizer *job_rows_tokenizer(const struct zinf_session *s);
/* Finds out from the files' first rows which format their samples have, unless option format or
 * text-column says it. All files must have the same. */
int job_samples_tell(const struct zinf_job *c, const char *const *files, int n,
                     enum zinf_format *out);
/* -EINVAL: the task cannot use samples of this format. file: named in the message. */
int job_samples_check(const struct zinf_session *s, const char *file, enum zinf_format format);
/* As session_data, for samples. *out is NULL if no sample is left and given->may_be_empty allows
 * it. */
int job_samples_open(struct zinf_session *s, const struct zinf_samples_options *given,
                     enum zinf_format format, struct zinf_dataset **out);
/* Writes the template of option chat-template into the trained model's folder, unless it has one.
 */
int job_samples_keep_template(const struct zinf_session *s, const char *folder);

/* ---- task.c ---- */

/* Sets the task: that of option task, if the model can be trained for it, or the one that the model
 * is made for. */
int job_task_tell(struct zinf_session *s);
/* -EINVAL: option pack, and samples of the task are not packed. */
int job_task_check_packed(const struct zinf_session *s);
/* idle.c: warns of options that belong to other tasks, or to samples where a file is a stream. */
void job_task_note_idle(const struct zinf_session *s);
void job_stream_note_idle(const struct zinf_session *s, const char *file);
/* As session_data, for sources and targets. If no option sets their lengths in a window, the first
 * data that are opened do: those of the longest, up to what the model takes. */
int job_task_open(struct zinf_session *s, const struct zinf_samples_options *given,
                  struct zinf_dataset **out);
/* Whether samples have a label: a class or a number. */
static inline bool job_is_labelled(enum zinf_task task)
{
    return task == ZINF_TASK_CLASSIFICATION || task == ZINF_TASK_REGRESSION;
}
/* Whether samples come in pairs, a preferred one and another. */
static inline bool job_has_pairs(enum zinf_task task)
{
    return task == ZINF_TASK_PREFERENCE || task == ZINF_TASK_REWARD;
}
static inline bool job_is_adapted(const struct zinf_session *s)
{
    return s->config->adapter || s->job.adapter;
}
/* Whether pairs come with log probabilities of a reference model, which are computed before the
 * first step, or before an evaluation. With adapters the model without them is the reference
 * instead, in every step, unless sequences are computed in chunks. */
static inline bool job_gives_references(const struct zinf_session *s)
{
    const char *loss = s->config->preference;
    return s->task == ZINF_TASK_PREFERENCE && strcmp(loss, "orpo") && strcmp(loss, "simpo") &&
           (!job_is_adapted(s) || zinf_cuts_sequences(s->config, s->seq_len));
}
/* The number of windows that `rows` rows are. Batches are counted in rows, and a pair is one row.
 */
static inline int64_t job_windows(const struct zinf_session *s, int64_t rows)
{
    return job_has_pairs(s->task) ? 2 * rows : s->together > 1 ? s->together * rows : rows;
}
/* Whether the loss is of samples or pairs rather than of tokens. */
static inline bool job_is_of_samples(enum zinf_task task)
{
    return job_is_labelled(task) || job_has_pairs(task) || task == ZINF_TASK_EMBEDDING;
}
/* Whether a model that is trained for the task can continue texts. */
static inline bool job_makes_texts(enum zinf_task task)
{
    return !job_is_labelled(task) && task != ZINF_TASK_REWARD && task != ZINF_TASK_MASKED &&
           task != ZINF_TASK_EMBEDDING;
}
/* -EINVAL: the model's folder has no tokenizer, and its vocabulary is not that of single bytes. */
int job_task_need_tokenizer(const struct zinf_session *s);
extern const char job_task_no_tokenizer[];             /* the message for that */
bool job_task_has_bytes(const struct zinf_session *s); /* the vocabulary is the 256 bytes, or 257 */
/* -EINVAL: a model for this task does not make texts. */
int job_task_need_texts(const struct zinf_session *s);
/* The token id under a key of config.json; -EINVAL: there is none. */
int job_task_token(const struct zinf_session *s, const char *key, int32_t *out);

/* Sets what the job says about rows of texts with special tokens around them, for an encoder. */
void job_task_rows(const struct zinf_session *s, struct zinf_samples_options *o);

/* ---- fit.c: samples of sources, targets and texts with labels ---- */

/* Which end of a sample that is too long is cut off, from option truncate. *front: the number of
 * tokens that the tokenizer puts in front of a text; these always stay. */
int job_fit_cut(const struct zinf_session *s, enum zinf_cut *cut, uint32_t *front);
/* Window length for n tokens: rounded up to a multiple of 8, at which products are fastest, but at
 * most `most`. */
uint32_t job_fit_rounded(uint32_t n, uint32_t most);
/* Opens the samples twice: first to find the longest, cutting only what is too long for the model,
 * then again with that length. */
int job_fit(const struct zinf_job *c, struct zinf_samples_options *o,
            struct zinf_samples **samples);
void job_fit_say(const struct zinf_samples *samples, const struct zinf_samples_options *o,
                 const char *what);

/* ---- classes.c ---- */

/* As job_task_open, for texts with labels. The first data that are opened, in a training those it
 * trains on, may decide what the classes are. */
int job_classes_open(struct zinf_session *s, const struct zinf_samples_options *given,
                     struct zinf_dataset **out);
/* For answers that get a score: gives the model the head for it, once in a session. */
int job_classes_settle_scores(struct zinf_session *s);

/* The same without data, for an estimate: the folder's head or, where it has none or another kind,
 * one for two classes or a number. */
int job_classes_assume(struct zinf_session *s);

/* ---- masked.c: texts of which tokens are masked ---- */

/* Sets the options of a stream of masked texts. They borrow masking until the stream is open. */
int job_masked_stream(struct zinf_session *s, struct zinf_dataset_options *options,
                      struct zinf_masking *masking);
/* As job_task_open, for rows of masked texts. */
int job_masked_rows(struct zinf_session *s, const struct zinf_samples_options *given,
                    struct zinf_dataset **out);

/* ---- embed.c ---- */

/* Embeddings of all rows of option data: n vectors of cols numbers. begin is called once, then row
 * for each vector in the order of the files; a negative return of either ends the call. */
struct job_embeddings {
    uint64_t n;
    int64_t cols;
    int (*begin)(void *arg, uint64_t n, int64_t cols);
    int (*row)(void *arg, uint64_t index, const float *embedding, int64_t cols);
    void *arg;
};
int job_embed(struct zinf_session *s, struct job_embeddings *out);

/* ---- seats.c: with whom this process works, and on how many devices ---- */

/* Connects to the processes that a launcher has started with this one; ranks other than 0 stop
 * logging. The net waits as long as it takes until all have come. */
int job_ranks_find(struct zinf_session *s);
bool job_ranks_is_first(const struct zinf_net *net);
/* For work that one process does alone. True without other processes, and for the first of those
 * that a launcher has started, which then logs it. what: for the message, for instance "texts are
 * made". */
bool job_ranks_works_alone(const char *what);
/* Whether several seats or ranks make texts together, since each has only a part of the tensors,
 * the layers or the sequences. */
bool texts_are_shared(struct zinf_session *session);
/* Decides how many devices this process drives and which: by options seats or devices, or
 * zinf.seats. By default all visible GPUs, divided among the processes of a host; or one host
 * device. Sets what a configuration needs to know of it. -EINVAL: the options are wrong. */
int job_seats_find(struct zinf_session *s);
/* Falls back to one GPU, with a message, if this training or evaluation cannot be shared by several
 * and the user has not asked for several. True: it did, and the configuration must be read anew. */
bool job_seats_leave_one(struct zinf_session *s);
/* The numbers of the seats' GPUs; NULL: this process's share of its host's GPUs. */
const int *job_seats_gpus(const struct zinf_session *s);

/* ---- training.c ---- */

/* -EINVAL: options that exclude each other were given. */
int job_train_check(const struct zinf_job *c);

/* ---- micro.c ---- */

/* Chooses the micro batch if the configuration leaves it open: the largest that fits, or that of
 * the run that is resumed. Sets it in the configuration, and in any that is read later. All ranks
 * call it. */
int job_micro_find(struct zinf_session *s, struct zinf_estimate_options *options);
/* The same for a training of this session. */
int job_micro_settle(struct zinf_session *s);

/* ---- prompts.c ---- */

/* Tokenizes option sample-prompts into session->prompts. Call once data are open. */
int job_prompts_open(struct zinf_session *s);
void job_prompts_close(struct job_prompts *prompts);
/* The prompts as a run takes them, or NULL. */
const struct zinf_run_prompts *job_prompts_of(const struct zinf_session *s);

/* ---- scores.c ---- */

/* For a command that only evaluates. -EINVAL: a metric is not known, or options about texts were
 * given without a metric. */
int job_scores_check(const struct zinf_session *s);
/* Decides how texts are made: by the options, then by the model's folder. Call once the session is
 * open. data: what is scored; it must have rows of prompts and answers. Without metrics it does
 * nothing. */
int job_scores_prepare(struct zinf_session *s, struct zinf_dataset *data);
/* Computes the value of every metric over data. *trainer: the trainer, made with these options,
 * that has measured the loss. If it does not train, and another kind makes texts faster, it is
 * destroyed and replaced. Rank 0 writes the predictions. */
int job_scores_measure(struct zinf_session *s, const struct zinf_trainer_options *options,
                       struct zinf_dataset *data, struct zinf_trainer **trainer,
                       struct zinf_measure *result);

/* ---- choices.c ---- */

/* All results of multiple-choice questions, under the keys that result files of
 * lm-evaluation-harness have. Free with cJSON_Delete. */
cJSON *job_choices_json(const struct zinf_session *s);

#endif
