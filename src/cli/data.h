/*
 * data: what the commands that read a model and text share: the tokenizer of a model folder, data
 * sets that open token files, and the configuration from file and command line.
 */
#ifndef ZINF_CLI_DATA_H
#define ZINF_CLI_DATA_H

#include "cli/cli.h"
#include "config/config.h"
#include "kernels/kernels.h"
#include "model/model.h"
#include "text/chat/chat.h"
#include "text/samples/task.h"
#include "text/text.h"
#include "train/train.h"

#include <glob.h>

/* What a model is trained for, and where its rows have that; NULL: as usual (task.h). */
struct cli_task {
    const char *name, *source_column, *target_column, *label_column, *prefix;
    const char *class_weights; /* "balanced", or a number each */
    bool new_head;             /* instead of the folder's */
    bool fresh;                /* all weights are */
    bool looks;                /* nothing is computed: rows are shown, whatever they are for */
};
/* Options of every command that runs a model. */
struct cli_common {
    struct cli_task task;
    const char *model, *adapter, *lora_targets, *config, *device, *dtype, *optimizer, *lr_scheduler,
        *text_column, *format, *chat_template, *truncate, *quantize, *pad_to;
    uint64_t device_memory, host_memory;
    int64_t world;       /* ranks of this run, or processes with seats; 0: 1 */
    const char *devices; /* seats.h */
    int64_t seats, seats_there;
    int64_t threads, seq_len, source_len, micro_batch, accumulation, seed, steps, warmup_steps,
        lora_rank, early_stopping, min_tokens;
    double lr, dropout, weight_decay, lora_alpha, lora_dropout;
    double label_smoothing, z_loss, neftune_alpha, preference_beta;
    const char *preference;
    bool lenient, load_best_at_end;
    bool pack, train_on_prompt, skip_bad_rows, group_by_length; /* of samples */
    bool no_training; /* nobody is told of learning rates */
    bool no_steps;    /* nor are a step's numbers of samples */
    bool quiet;       /* nor of anything in the configuration */
};
#define CLI_COMMON_DEFAULT                                                                         \
    {                                                                                              \
        .threads = -1, .micro_batch = -1, .accumulation = -1, .seed = 0, .steps = -1, .lr = -1,    \
        .dropout = -1, .weight_decay = -1, .warmup_steps = -1, .lora_rank = -1, .lora_alpha = -1,  \
        .lora_dropout = -1, .early_stopping = -1, .label_smoothing = -1, .z_loss = -1,             \
        .neftune_alpha = -1, .preference_beta = -1                                                 \
    }

/* Rows of a table of options, as USAGE_DEVICE says them. */
#define CLI_DEVICE_OPTIONS(c)                                                                      \
    {"--config", CLI_STRING, &(c)->config, 0, 0}, {"--device", CLI_STRING, &(c)->device, 0, 0},    \
        {"--device-memory", CLI_SIZE, &(c)->device_memory, 0, 0},                                  \
        {"--host-memory", CLI_SIZE, &(c)->host_memory, 0, 0},                                      \
        {"--threads", CLI_INT, &(c)->threads, 1, 4096},                                            \
        {"--quantize", CLI_STRING, &(c)->quantize, 0, 0},                                          \
    {                                                                                              \
        "--lenient", CLI_FLAG, &(c)->lenient, 0, 0                                                 \
    }

/* The same for data of samples, as USAGE_SAMPLES says them. */
#define CLI_SAMPLE_OPTIONS(c)                                                                      \
    {"--text-column", CLI_STRING, &(c)->text_column, 0, 0},                                        \
        {"--format", CLI_STRING, &(c)->format, 0, 0},                                              \
        {"--chat-template", CLI_STRING, &(c)->chat_template, 0, 0},                                \
        {"--train-on-prompt", CLI_FLAG, &(c)->train_on_prompt, 0, 0},                              \
        {"--pack", CLI_FLAG, &(c)->pack, 0, 0}, {"--truncate", CLI_STRING, &(c)->truncate, 0, 0},  \
        {"--min-tokens", CLI_INT, &(c)->min_tokens, 1, 1 << 24},                                   \
    {                                                                                              \
        "--skip-bad-rows", CLI_FLAG, &(c)->skip_bad_rows, 0, 0                                     \
    }

/* The same for a task, as USAGE_TASK says them. */
#define CLI_TASK_OPTIONS(c)                                                                        \
    {"--task", CLI_STRING, &(c)->task.name, 0, 0},                                                 \
        {"--source-column", CLI_STRING, &(c)->task.source_column, 0, 0},                           \
        {"--target-column", CLI_STRING, &(c)->task.target_column, 0, 0},                           \
        {"--label-column", CLI_STRING, &(c)->task.label_column, 0, 0},                             \
    {                                                                                              \
        "--prefix", CLI_STRING, &(c)->task.prefix, 0, 0                                            \
    }

/* What a training for a task may ask for beside that. */
#define CLI_HEAD_OPTIONS(c)                                                                        \
    {"--class-weights", CLI_STRING, &(c)->task.class_weights, 0, 0},                               \
    {                                                                                              \
        "--new-head", CLI_FLAG, &(c)->task.new_head, 0, 0                                          \
    }

/* The loss of pairs. */
#define CLI_PAIR_OPTIONS(c)                                                                        \
    {"--preference", CLI_STRING, &(c)->preference, 0, 0},                                          \
    {                                                                                              \
        "--beta", CLI_DOUBLE, &(c)->preference_beta, 1e-9, 1e6                                     \
    }

/* The same for what decides a step, as USAGE_STEP says them. */
#define CLI_STEP_OPTIONS(c)                                                                        \
    {"--steps", CLI_INT, &(c)->steps, 0, 1e12},                                                    \
        {"--micro-batch", CLI_INT, &(c)->micro_batch, 1, 1 << 20},                                 \
        {"--accumulate", CLI_INT, &(c)->accumulation, 1, 1 << 14},                                 \
        {"--optimizer", CLI_STRING, &(c)->optimizer, 0, 0},                                        \
        {"--lr", CLI_DOUBLE, &(c)->lr, 0, 1e6},                                                    \
        {"--lr-scheduler", CLI_STRING, &(c)->lr_scheduler, 0, 0},                                  \
        {"--warmup-steps", CLI_INT, &(c)->warmup_steps, 0, 1e12},                                  \
        {"--weight-decay", CLI_DOUBLE, &(c)->weight_decay, 0, 1e6},                                \
        {"--lora-rank", CLI_INT, &(c)->lora_rank, 1, 1 << 16},                                     \
        {"--lora-alpha", CLI_DOUBLE, &(c)->lora_alpha, 1e-9, 1e9},                                 \
        {"--lora-dropout", CLI_DOUBLE, &(c)->lora_dropout, 0, 0.999},                              \
        {"--lora-targets", CLI_STRING, &(c)->lora_targets, 0, 0},                                  \
        {"--label-smoothing", CLI_DOUBLE, &(c)->label_smoothing, 0, 0.999},                        \
        {"--z-loss", CLI_DOUBLE, &(c)->z_loss, 0, 1e6},                                            \
        {"--neftune-alpha", CLI_DOUBLE, &(c)->neftune_alpha, 0, 1e6}, CLI_PAIR_OPTIONS(c),         \
    {                                                                                              \
        "--dropout", CLI_DOUBLE, &(c)->dropout, 0, 0.999                                           \
    }

/* How long samples and windows are, and which come together, as USAGE_PAD and USAGE_GROUP say. */
#define CLI_PAD_OPTION(c)                                                                          \
    {                                                                                              \
        "--pad-to", CLI_STRING, &(c)->pad_to, 0, 0                                                 \
    }
#define CLI_LENGTH_OPTIONS(c)                                                                      \
    {"--seq-len", CLI_INT, &(c)->seq_len, 1, 1 << 24},                                             \
        {"--source-len", CLI_INT, &(c)->source_len, 1, 1 << 24}, CLI_PAD_OPTION(c)
#define CLI_GROUP_OPTION(c)                                                                        \
    {                                                                                              \
        "--group-by-length", CLI_FLAG, &(c)->group_by_length, 0, 0                                 \
    }

/* What evaluations of a training decide. */
#define CLI_BEST_OPTIONS(c)                                                                        \
    {"--early-stopping", CLI_INT, &(c)->early_stopping, 1, 1e9},                                   \
    {                                                                                              \
        "--load-best-at-end", CLI_FLAG, &(c)->load_best_at_end, 0, 0                               \
    }

/* What a command has open; cli_session_close frees it all. */
struct cli_session {
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
};
/* Opens the model's config.json and its tokenizer; resolves --seq-len and --device. */
int cli_session_open(struct cli_session *s, const struct cli_common *c);
/* The same without a tokenizer: --model may be a config.json. */
int cli_session_shape(struct cli_session *s, const struct cli_common *c);
/* -EINVAL: the model's folder has no tokenizer, and its vocabulary is not that of bytes. */
int cli_session_need_tokenizer(const struct cli_session *s, const struct cli_common *c);
/* Patterns among files are expanded, "-" is standard input. cache_folder NULL: private. Checks ids
 * against the model's vocabulary. */
int cli_session_data(struct cli_session *s, const struct cli_common *c,
                     const struct cli_strings *files, const char *cache_folder, bool shuffle,
                     struct zinf_dataset **out);
/* samples.c: which of files hold samples and in what form: told by their first rows, unless
 * --format or --text-column says. All are of one. */
int cli_samples_tell(const struct cli_common *c, const char *const *files, int n,
                     enum zinf_format *out);
/* Whether they are what the task is for; file names them. */
int cli_samples_check(const struct cli_session *s, const struct cli_common *c, const char *file,
                      enum zinf_format format);
/* As cli_session_data, of samples. */
int cli_samples_open(struct cli_session *s, const struct cli_common *c,
                     const struct zinf_samples_options *given, enum zinf_format format,
                     struct zinf_dataset **out);
/* What --truncate says; NULL: the usual. -EINVAL: none of its words. */
int cli_samples_cut(const char *word, enum zinf_cut *out);
/* A model that was trained by --chat-template says so in its folder, unless that does already. */
int cli_samples_keep_template(const struct cli_common *c, const struct zinf_tokenizer *tokenizer,
                              const char *folder);
/* task.c: what the model is trained for: as --task says, if it can be, or as it is made. */
int cli_task_tell(struct cli_session *s, const struct cli_common *c);
/* As cli_session_data, of sources and targets. The first data that are opened decide how long both
 * are in a window, where no option says: as long as the longest, up to what the model takes. */
int cli_task_open(struct cli_session *s, const struct cli_common *c,
                  const struct zinf_samples_options *given, struct zinf_dataset **out);
/* Whether a sample has a label: a class or a number. */
static inline bool cli_is_labelled(enum zinf_task task)
{
    return task == ZINF_TASK_CLASSIFICATION || task == ZINF_TASK_REGRESSION;
}
/* Whether samples come in pairs, a preferred one and another. */
static inline bool cli_has_pairs(enum zinf_task task)
{
    return task == ZINF_TASK_PREFERENCE || task == ZINF_TASK_REWARD;
}
/* Whether a loss is one of samples or pairs, and not of tokens. */
static inline bool cli_is_of_samples(enum zinf_task task)
{
    return cli_is_labelled(task) || cli_has_pairs(task);
}
/* -EINVAL: the model's task is one without texts. */
int cli_task_need_texts(const struct cli_session *s, const struct cli_common *c);
/* Opened again with the lengths of the longest sample, of a first look in which nothing is cut but
 * what is too long for the model. */
int cli_task_fit(const struct cli_common *c, struct zinf_samples_options *o,
                 struct zinf_samples **samples);
/* What is cut off of too long a sample, by --truncate; tokens that the tokenizer puts in front of a
 * text stay: *front of them. */
int cli_task_cut(const struct cli_session *s, const struct cli_common *c, enum zinf_cut *cut,
                 uint32_t *front);
void cli_task_say_cut(const struct zinf_samples *samples, const struct zinf_samples_options *o,
                      const char *what);
/* classes.c: the same of texts with labels. The first data, of a training those it trains on, may
 * decide what the classes are. */
int cli_classes_open(struct cli_session *s, const struct cli_common *c,
                     const struct zinf_samples_options *given, struct zinf_dataset **out);
/* Of answers that get a score: the head for it, once a session. */
int cli_classes_settle_scores(struct cli_session *s, const struct cli_common *c);
/* A token of config.json by its key; -EINVAL: it has none. */
int cli_task_token(const struct cli_session *s, const struct cli_common *c, const char *key,
                   int32_t *out);
/* What became of the rows, in a sentence or two; text has 512 bytes. */
void cli_samples_describe(char text[512], const struct zinf_samples *samples);
/* What the options say to a configuration. */
struct zinf_config_context cli_context(const struct cli_common *c);
int cli_session_config(struct cli_session *s, const struct cli_common *c);
/* A trainer of the session's model; seq_len 0: the session's. */
struct zinf_trainer_options cli_session_options(const struct cli_session *s,
                                                const struct cli_common *c,
                                                enum zinf_trainer_mode mode, int64_t seq_len);
int cli_session_trainer(struct cli_session *s, const struct cli_common *c,
                        enum zinf_trainer_mode mode, int64_t seq_len, struct zinf_trainer **out);
void cli_session_close(struct cli_session *s);
int cli_need(const char *option, const void *value); /* -EINVAL: the option is missing */
/* auto, host or cuda; NULL is auto. -EINVAL with a sentence. */
int data_parse_device(const char *text, enum zinf_device_kind *out);
/* -EINVAL, a wrong use of the command: --model is missing, --device has a name that is not known */
int cli_check_common(const struct cli_common *c);

#endif
