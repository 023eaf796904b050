/*
 * score: evaluates a model on samples by the metrics of metrics.h: compares its classes or numbers
 * with labels, or the texts that it generates. For a text the prompt is the part of a sample before
 * its first token that counts in the loss, with the sample's source if it has one; the generated
 * text is compared with the tokens that count.
 *
 * Threads and errors as in train.h.
 */
#ifndef ZINF_SCORE_H
#define ZINF_SCORE_H

#include "metrics/metrics.h"
#include "text/samples/samples.h"
#include "train/generate.h"

#ifdef __cplusplus
extern "C" {
#endif

struct zinf_score_options {
    const struct zinf_tokenizer *tokenizer;
    /* How texts are generated. `made` is not called. */
    struct zinf_generate_options generate;
    const int32_t *left_out; /* tokens to omit from texts, such as padding */
    int n_left_out;
    uint64_t most_samples; /* how many samples are used, from the first; 0: all */
    /* Called with every pair of texts, in order; a result < 0 ends the evaluation with it. May be
     * NULL. */
    int (*saw)(void *arg, uint64_t sample, const char *predicted, const char *reference);
    void *arg;
};
/* Generates the samples' texts and adds them to a board for texts; several at once if the trainer
 * has a decode shape. -EINVAL: a sample begins with a token that counts, so it has no prompt. */
int zinf_score_texts(struct zinf_trainer *trainer, const struct zinf_score_options *options,
                     struct zinf_samples *samples, struct zinf_scoreboard *board);

/* The metrics that a training's evaluations compute beside the loss. The first one decides which
 * evaluation is the best. */
#define ZINF_MOST_SCORES 8
struct zinf_run_scores {
    enum zinf_metric metrics[ZINF_MOST_SCORES];
    int n;
    enum zinf_scored of;               /* what all of them compare */
    bool by_loss;                      /* the best is the one with the least loss instead */
    bool stem;                         /* ROUGE uses stems of words */
    struct zinf_score_options options; /* for texts; most_samples for all metrics */
    /* Called for every sample, in order, with its logits (or its predicted number) and its label as
     * stored; a result < 0 ends the evaluation with it. May be NULL. */
    int (*labelled)(void *arg, uint64_t sample, const float *logits, int64_t n, int32_t label);
    void *arg;
};
/* Prompts that a training continues now and then, for its log. */
struct zinf_run_prompts {
    const char *const *prompts;    /* [n], as they are shown */
    const struct zinf_text *texts; /* [n]: their tokens, and sources for encoders */
    int n;
    uint64_t every; /* steps between them; 0: only after the last step */
    const struct zinf_tokenizer *tokenizer;
    struct zinf_generate_options generate; /* nothing is sampled, and `made` is not called */
};
/* Evaluates the model on data, which must have samples, and adds them in order to a board for what
 * the metrics compare. -EINVAL: the model's output does not suit the metrics. */
int zinf_score(struct zinf_trainer *trainer, const struct zinf_run_scores *scores,
               struct zinf_dataset *data, struct zinf_scoreboard *board);

/* A text whose probability after a context is wanted. If the model has an encoder, it reads the
 * context. Else the context stands before the text, and its beginning is dropped if both together
 * are longer than the trainer's windows. */
struct zinf_continuation {
    const int32_t *context, *target; /* tokens, at least one each; borrowed */
    uint32_t n_context, n_target;
};
/* out[n]: for each item the sum of the natural logarithms of its target tokens' probabilities.
 * start: the first token for a decoder with an encoder. Ranks compute batches in turn, and each
 * gets all results. -EINVAL: a target alone is longer than a window. */
int zinf_score_continuations(struct zinf_trainer *trainer, const struct zinf_continuation *items,
                             uint64_t n, int32_t start, double *out);

#ifdef __cplusplus
}
#endif
#endif
