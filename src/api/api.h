/*
 * api: what a program does with zinf without being the command. A *session* is made of options,
 * each a name and a text: those of zinf-train(1), and of zinf-eval(1) and zinf-generate(1) those
 * that say how texts are made and measured, without their dashes: {"model", "DIR"}, {"lora-rank",
 * "8"}. It trains as a whole, or takes steps of the caller's own; it evaluates, continues texts,
 * gives logits and gradients, and saves. The command is made of the same calls.
 *
 * Who has what: strings are copied. What a call returns is the caller's where the call says so.
 * Structs begin with their size, which the caller sets (ZINF_SIZED): a later version may have more.
 *
 * Threads: one at a time uses a session; zinf_session_cancel comes from any, a signal handler too.
 * Errors: 0 or -errno, and a sentence by zinf_error(), which calls options as the session that was
 * opened last does: by their names, or with dashes as the command has them. What is said beside
 * goes to the sink of zinf_log_set_sink (base.h).
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
    const char *name, *text; /* of what takes no value "true" or "false" */
};
struct zinf_session;
/* Reads the options alone; model, configuration and data are opened by the first call that needs
 * them. A name may come twice where its option takes several values. -EINVAL: the sentence names
 * the option. */
int zinf_session_open(struct zinf_session **out, const struct zinf_setting *options, size_t n);
void zinf_session_close(struct zinf_session *session);

/* Rows of data beside those of the files: JSON objects as the files' lines have them, one at a time
 * in memory. They go to a file in the folder of option output, which stays with a training: with
 * option resume the rows that it has taken are there, and the caller goes on behind them. */
enum zinf_row_kind {
    ZINF_ROWS_OF_TRAINING,
    ZINF_ROWS_OF_EVALUATION,
};
struct zinf_row_source {
    size_t size;
    /* 1 and a row that is borrowed until the next call, 0 at the end, < 0 to give up. */
    int (*next)(void *arg, const char **row);
    /* The first n are there: the next call gives the one behind them. 0, or < 0. NULL: all are read
     * again, and the first n dropped. */
    int (*skip)(void *arg, uint64_t n);
    void *arg;
};
int zinf_session_rows(struct zinf_session *session, enum zinf_row_kind which,
                      const struct zinf_row_source *rows);

struct zinf_step {
    size_t size;
    uint64_t step, steps; /* from 1; of all, 0: not known */
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
    uint64_t tokens; /* that count; samples or pairs where these do */
    /* Of the pairs, where samples are some: means of the rewards, the share that is right, and of
     * KTO the divergence, else NaN. */
    uint64_t pairs;
    double chosen, rejected, accuracy, kl;
    uint32_t n_scores;
    struct zinf_figure scores[8]; /* of option metric */
};
/* Any may be NULL. Called in the caller's thread; zinf_session_cancel may be called in them. */
struct zinf_events {
    size_t size;
    void (*stepped)(void *arg, const struct zinf_step *step);
    void (*evaluated)(void *arg, uint64_t step, const struct zinf_measure *found);
    void (*saved)(void *arg, uint64_t step, const char *folder);
    void *arg;
};
/* The whole training: what `zinf train` does, into the folder of option output. events: NULL:
 * nobody is told. */
int zinf_session_train(struct zinf_session *session, const struct zinf_events *events);
/* The step ends, is saved, and zinf_session_train returns. */
void zinf_session_cancel(struct zinf_session *session);

/* Samples of a step in this process: micro-batch times accumulate of them, and tokens in each. Of
 * several that a launcher started each has its own, and all make the same calls. */
int zinf_session_batch(struct zinf_session *session, int64_t *samples, int64_t *tokens);
/* One optimizer step over ids and targets [samples][tokens]; a target < 0 does not count. NULL
 * result: nobody asks. Option steps, of a schedule, counts from the first such call. */
int zinf_session_step(struct zinf_session *session, const int32_t *ids, const int32_t *targets,
                      struct zinf_step *result);
/* Over the data of option eval-data, or of data, by all processes together, which are told the
 * same: without updates. After steps of the weights that they left, else of the model's folder. */
int zinf_session_evaluate(struct zinf_session *session, struct zinf_measure *result);
/* Logits [vocabulary] after the last of n ids. */
int zinf_session_logits(struct zinf_session *session, const int32_t *ids, int64_t n, float *logits);
int64_t zinf_session_vocabulary(struct zinf_session *session); /* or -errno */
/* Forward and backward of the first batch of option data, without dropout: fp32 gradients under
 * their Hugging Face names into a safetensors file, loss and norm of the gradient. */
int zinf_session_gradients(struct zinf_session *session, const char *file, double *loss,
                           double *norm);

/* Continues a text, of an encoder-decoder answers it, by the weights that steps have left, else by
 * the model's folder; *out: the new part alone, on the heap, for free(). */
int zinf_session_generate(struct zinf_session *session, const char *prompt, char **out);
/* Several texts at once, option batch of them. Strings of an answer are borrowed for the call. */
struct zinf_answer {
    size_t size;
    const char *prompt; /* as the model reads it */
    const char *text;   /* the new part */
    const char *whole;  /* both; of a chat and of an encoder-decoder the new part */
    const char *finish; /* "length", "context", "end", "stop" */
    const int32_t *ids; /* [n_ids]: the new tokens */
    int64_t n_ids, prompt_tokens;
};
struct zinf_text_events {
    size_t size;
    /* Of the only prompt: a piece of the whole text, as it comes. NULL: nobody waits for it. */
    void (*grown)(void *arg, const char *piece, size_t bytes);
    void (*made)(void *arg, size_t number, const struct zinf_answer *answer); /* in their order */
    void *arg;
};
/* Tokens, those of sources too, and seconds of the calls that read prompts and of those that only
 * made new tokens, which are decoded_tokens. */
struct zinf_text_speed {
    size_t size;
    int64_t prompt_tokens, new_tokens, decoded_tokens;
    double prompt_seconds, decode_seconds;
};
int zinf_session_texts(struct zinf_session *session, const char *const *prompts, size_t n,
                       const struct zinf_text_events *events, struct zinf_text_speed *speed);
/* The weights that steps have left, as a Hugging Face model folder; of adapters PEFT's. */
int zinf_session_save(struct zinf_session *session, const char *folder);

/* What the training would take, before it begins; by stated speeds where none are measured. */
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
