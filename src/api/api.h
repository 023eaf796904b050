/*
 * api: what a program does with zinf without being the command. A *session* is made of options,
 * each a name and a text: those of zinf-train(1) and of the part of zinf-generate(1) that says how
 * texts are made, without their dashes: {"model", "DIR"}, {"lora-rank", "8"}. It trains as a whole,
 * or takes steps of the caller's own; it evaluates, continues texts, gives logits and saves.
 *
 * Who has what: strings are copied. What a call returns is the caller's where the call says so.
 * Structs begin with their size, which the caller sets (ZINF_SIZED): a later version may have more.
 *
 * Threads: one at a time uses a session; zinf_session_cancel comes from any, a signal handler too.
 * Errors: 0 or -errno, and a sentence by zinf_error(). What is said beside goes to the sink of
 * zinf_log_set_sink (base.h).
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

/* Rows of data beside those of the files: JSON objects as the files' lines have them. next: 1 and a
 * row that is borrowed until the next call, 0 at the end, < 0 to give up. They are drained at once
 * into a file in the folder of option output, which goes with the session. */
enum zinf_row_kind {
    ZINF_ROWS_OF_TRAINING,
    ZINF_ROWS_OF_EVALUATION,
};
int zinf_session_rows(struct zinf_session *session, enum zinf_row_kind which,
                      int (*next)(void *arg, const char **row), void *arg);

struct zinf_step {
    size_t size;
    uint64_t step, steps; /* from 1; of all, 0: not known */
    double loss, grad_norm, lr, seconds;
    uint64_t tokens;
    bool skipped; /* overflow: no update was made */
};
struct zinf_measure {
    size_t size;
    double loss;
    uint64_t tokens; /* that count; samples or pairs where these do */
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

/* Samples of a step: micro-batch times accumulate of them, and tokens in each. */
int zinf_session_batch(struct zinf_session *session, int64_t *samples, int64_t *tokens);
/* One optimizer step over ids and targets [samples][tokens]; a target < 0 does not count. NULL
 * result: nobody asks. Option steps, of a schedule, counts from the first such call. */
int zinf_session_step(struct zinf_session *session, const int32_t *ids, const int32_t *targets,
                      struct zinf_step *result);
/* Over the data of option eval-data, or of data: without updates. After steps of the weights that
 * they left, else of the model's folder. */
int zinf_session_evaluate(struct zinf_session *session, struct zinf_measure *result);
/* Logits [vocabulary] after the last of n ids. */
int zinf_session_logits(struct zinf_session *session, const int32_t *ids, int64_t n, float *logits);
int64_t zinf_session_vocabulary(struct zinf_session *session); /* or -errno */
/* Continues a text, of an encoder-decoder answers it; *out: the new part alone, on the heap, for
 * free(). Of the model's folder: what steps have changed is to be saved and opened first. */
int zinf_session_generate(struct zinf_session *session, const char *prompt, char **out);
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
