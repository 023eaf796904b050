/*
 * api: zinf as a library. A program opens a *session* with options. Each option is a name and a
 * text: {"model", "DIR"}, {"lora-rank", "8"}. The names are those of the command without dashes:
 * all options of zinf-train(1), and the options of zinf-eval(1) and zinf-generate(1) about
 * generation and metrics. A session runs a whole training, or single steps on batches of the
 * caller. It also evaluates, generates texts, computes logits and gradients, and saves the model.
 * The command makes the same calls. The value of option config is the path of a file, or the JSON
 * itself, which begins with '{'.
 *
 * Ownership: strings given by the caller are copied. A comment at each call says what the caller
 * must free. Structs begin with their size, which the caller sets (ZINF_SIZED), because a later
 * version may add fields.
 *
 * Threads: only one thread at a time may use a session. zinf_session_cancel may be called from any
 * thread and from a signal handler.
 * Errors: calls return 0 or -errno, and zinf_error() gives a sentence. The sentence writes option
 * names as the session opened last did: without dashes, or with dashes as on the command line.
 * Other messages go to the sink of zinf_log_set_sink (base.h).
 */
#ifndef ZINF_API_H
#define ZINF_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ZINF_SIZED(type)                                                                           \
    {                                                                                              \
        .size = sizeof(type)                                                                       \
    }

struct zinf_setting {
    const char *name, *text; /* text of an option without a value: "true" or "false" */
};
/* The options that there are, from 0 on, as `zinf help` shows them. All texts are constants. */
struct zinf_option_facts {
    size_t size;
    const char *name;  /* "seq-len" */
    const char *kind;  /* "flag"; "text"; "texts": may be given several times; "maybe": a text or
                        * ""; "word"; "integer"; "number"; "size", such as 4GiB */
    const char *value; /* what help calls the value; NULL for a flag */
    const char *help;  /* what the option does, as a part of a sentence */
    const char *usual; /* the default as a value, or NULL */
    const char *otherwise; /* what decides without a value, in words, or NULL */
    const char *key;       /* the key of the configuration that it sets, or NULL */
    const char *aliases;   /* other names with blanks between; "bf16=bf16" means that value. NULL */
    double min, max;       /* of numbers, inclusive; both 0: the key's range, or any */
    bool open;             /* values beside the words are allowed too */
};
/* -ENOENT: there are only i options. */
int zinf_option_facts(size_t i, struct zinf_option_facts *out);
/* The words that option i takes, from 0 on; NULL behind the last, and for options without. */
const char *zinf_option_word(size_t i, size_t word);
const char *zinf_version(void); /* "0.1.0" */

struct zinf_session;
/* Only reads the options; the first call that needs the model, the configuration or the data opens
 * them. A name may be given several times if its option takes several values. -EINVAL: the sentence
 * names the option. */
int zinf_session_open(struct zinf_session **out, const struct zinf_setting *options, size_t n);
void zinf_session_close(struct zinf_session *session);

/* Gives rows of data in addition to the data files. A row is a JSON object, as on one line of a
 * .jsonl file; one row at a time is in memory. The rows are copied to a file in the folder of
 * option output. A training keeps this file: with option resume, rows that the earlier run copied
 * are read from it, and the caller gives only the rows after them.
 *
 * With option streaming, rows of training are not copied, and there must be no data files: next and
 * skip are called while the session trains, by a thread of the library's, one call at a time, until
 * the training is over. With option resume, skip is called with the number of rows that the
 * earlier run has used. When the rows end before the training does, skip is called with 0, and the
 * rows begin again; -ESPIPE from it ends the training after the last whole step.
 *
 * A call that does not return keeps nobody from ending: zinf_session_cancel ends the training, and
 * zinf_session_close leaves the thread waiting after a second. So arg must stay valid until done is
 * called. */
enum zinf_row_kind {
    ZINF_ROWS_OF_TRAINING,
    ZINF_ROWS_OF_EVALUATION,
};
struct zinf_row_source {
    size_t size;
    /* Returns 1 and a row, which is borrowed until the next call; 0 at the end; < 0 for failure. */
    int (*next)(void *arg, const char **row);
    /* Skips the first n rows, which an earlier run has copied: the following call of next gives row
     * n + 1. Returns 0, or < 0 for failure; -ESPIPE: these rows are gone. NULL: next is called for
     * all rows, and the first n are dropped. */
    int (*skip)(void *arg, uint64_t n);
    void *arg;
    /* With option streaming: called once, when next and skip will not be called any more: in
     * zinf_session_close, or, where one of them has not returned by then, when it does, in its own
     * thread. May be NULL. */
    void (*done)(void *arg);
};
int zinf_session_rows(struct zinf_session *session, enum zinf_row_kind which,
                      const struct zinf_row_source *rows);

struct zinf_step {
    size_t size;
    uint64_t step, steps; /* this step, from 1; steps of the whole training, 0: not known */
    double loss, grad_norm, lr, seconds;
    uint64_t tokens;
    bool skipped; /* overflow: no update was made */
};
struct zinf_figure {
    const char *name; /* "rouge1" */
    double value;
};
struct zinf_measure {
    size_t size;
    double loss;
    uint64_t tokens; /* over which loss is the mean; samples or pairs where the loss is of these */
    /* If the samples are preference pairs: their number, the mean reward of chosen and of rejected
     * answers, the share of pairs whose chosen answer has the higher reward, and for KTO the KL
     * divergence (NaN for other losses). */
    uint64_t pairs;
    double chosen, rejected, accuracy, kl;
    uint32_t n_scores;
    struct zinf_figure scores[8]; /* of option metric */
    const char *set; /* the name of the evaluation set (NAME=FILE), borrowed from the session; NULL:
                      * it has none */
    const struct zinf_measure *next; /* of zinf_session_evaluate: of the set after it, valid until
                                      * the session's next call; NULL: this is the last */
    double cross_entropy; /* the mean loss without the loss that balances experts; its exponential
                           * is the perplexity */
};
/* Any may be NULL. Called in the caller's thread; zinf_session_cancel may be called in them. */
struct zinf_events {
    size_t size;
    void (*stepped)(void *arg, const struct zinf_step *step);
    void (*evaluated)(void *arg, uint64_t step, const struct zinf_measure *found);
    void (*saved)(void *arg, uint64_t step, const char *folder);
    void *arg;
};
/* Runs the whole training, as `zinf train` does, and writes to the folder of option output. events
 * may be NULL: then no function is called. */
int zinf_session_train(struct zinf_session *session, const struct zinf_events *events);
/* Makes zinf_session_train finish the current step, save a checkpoint and return. Where it still
 * waits for the first row, it returns -EINTR. If no training runs, the next one ends so after its
 * first step: a signal that arrives while a program is about to train is not lost. */
void zinf_session_cancel(struct zinf_session *session);
/* Forgets a zinf_session_cancel that came when no training ran, such as just after the end of the
 * one that it was meant for. */
void zinf_session_uncancel(struct zinf_session *session);

/* samples: how many samples this process computes in a step (micro-batch size times gradient
 * accumulation); tokens: the length of each. If a launcher started several processes, each gives
 * samples of its own, and all of them must make the same calls. */
int zinf_session_batch(struct zinf_session *session, int64_t *samples, int64_t *tokens);
/* One optimizer step over ids and targets [samples][tokens]; a target < 0 has no loss. result may
 * be NULL. The learning-rate schedule begins at the first call and is as long as option steps says.
 */
int zinf_session_step(struct zinf_session *session, const int32_t *ids, const int32_t *targets,
                      struct zinf_step *result);
/* Evaluates the data of option eval-data, or else of option data, without updates. It uses the
 * weights after the steps made so far, or the model folder's if there were none. All processes
 * share the work, and all get the same result. */
int zinf_session_evaluate(struct zinf_session *session, struct zinf_measure *result);
/* Computes the logits [vocabulary] of the token that follows n ids. */
int zinf_session_logits(struct zinf_session *session, const int32_t *ids, int64_t n, float *logits);
int64_t zinf_session_vocabulary(struct zinf_session *session); /* or -errno */
/* Runs forward and backward on the first batch of option data, without dropout. Writes the fp32
 * gradients under their Hugging Face names to a safetensors file, and returns the loss and the
 * gradient's norm. */
int zinf_session_gradients(struct zinf_session *session, const char *file, double *loss,
                           double *norm);

/* Continues a prompt; an encoder-decoder reads it as its source and generates a target. Uses the
 * weights after the steps made so far, or the model folder's. *out is only the new text, which the
 * caller must free(). */
int zinf_session_generate(struct zinf_session *session, const char *prompt, char **out);
/* What zinf_session_texts generated for one prompt. Pointers are valid during the callback only. */
struct zinf_answer {
    size_t size;
    const char *prompt; /* as the model reads it */
    const char *text;   /* the new text */
    const char *whole;  /* prompt and new text; for chats and encoder-decoders the new text */
    const char *finish; /* why it ended: "length", "context", "end", "stop" */
    const int32_t *ids; /* [n_ids]: the new tokens */
    int64_t n_ids, prompt_tokens;
    size_t prompt_bytes, text_bytes, whole_bytes; /* texts may have NULs before their last one */
};
struct zinf_text_events {
    size_t size;
    /* If there is one prompt: called with each piece of the whole text as it is generated. NULL:
     * not called. */
    void (*grown)(void *arg, const char *piece, size_t bytes);
    void (*made)(void *arg, size_t number, const struct zinf_answer *answer); /* in order */
    void *arg;
};
/* Tokens and times of a generation. Each pass of the model either reads prompts (or an
 * encoder-decoder's sources), in prompt_seconds, or only generates, in decode_seconds; new tokens
 * of passes of the second kind are decoded_tokens. */
struct zinf_text_speed {
    size_t size;
    int64_t prompt_tokens, new_tokens, decoded_tokens;
    double prompt_seconds, decode_seconds;
};
/* Continues n prompts; option batch says how many are computed at once. */
int zinf_session_texts(struct zinf_session *session, const char *const *prompts, size_t n,
                       const struct zinf_text_events *events, struct zinf_text_speed *speed);
/* Where embeddings go. Both functions may return < 0, which ends the work with that failure. */
struct zinf_embeddings {
    size_t size;
    /* Called once, before row: n embeddings of so many columns follow. NULL: not called. */
    int (*begin)(void *arg, uint64_t n, int64_t columns);
    /* Called for each row of the data, in order; embedding is valid during the call only. */
    int (*row)(void *arg, uint64_t index, const float *embedding, int64_t columns);
    void *arg;
};
/* Makes an embedding of each row of option data, as `zinf embed` does: of its text, by the model
 * folder's rules or options pooling, normalize and prompt-name. */
int zinf_session_embed(struct zinf_session *session, const struct zinf_embeddings *to);
/* Saves the weights after the steps made so far as a Hugging Face model folder; adapters are saved
 * as a PEFT folder. */
int zinf_session_save(struct zinf_session *session, const char *folder);

/* Computes what the training would take, before it begins. Times are computed from measured speeds,
 * or from stated defaults if none were measured. */
struct zinf_plan {
    size_t size;
    uint64_t params, tokens; /* tokens a step */
    uint64_t device_bytes, host_bytes, drive_bytes;
    uint64_t device_budget, host_budget; /* UINT64_MAX: no limit */
    double step_seconds, flops;          /* of a step's forward and backward */
    char bottleneck[16], schedule[32], device[96];
};
int zinf_session_plan(struct zinf_session *session, struct zinf_plan *out);

#ifdef __cplusplus
}
#endif
#endif
