/*
 * score: how good a model is on samples, by the metrics of metrics.h: its classes and numbers
 * beside their labels, or the texts that it makes. For a text it is given of each sample what comes
 * before the first token that counts, with its source where it has one, and what it makes of that
 * is compared with the tokens that count.
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
    /* How texts are made. Its `made` is not called. */
    struct zinf_generate_options generate;
    const int32_t *left_out; /* tokens that are no part of a text, such as padding */
    int n_left_out;
    uint64_t most_samples; /* the first ones; 0: all */
    /* Sees every pair, in order; < 0 ends it. NULL: nobody does. */
    int (*saw)(void *arg, uint64_t sample, const char *predicted, const char *reference);
    void *arg;
};
/* Adds the samples' texts to a board for texts. Several at once where the trainer continues
 * sequences. -EINVAL: a sample begins with a token that counts: there is nothing to go on from. */
int zinf_score_texts(struct zinf_trainer *trainer, const struct zinf_score_options *options,
                     struct zinf_samples *samples, struct zinf_scoreboard *board);

/* Of a training's evaluations, beside their loss; the first decides which is the best. */
#define ZINF_MOST_SCORES 8
struct zinf_run_scores {
    enum zinf_metric metrics[ZINF_MOST_SCORES];
    int n;
    enum zinf_scored of; /* what all of them compare */
    bool by_loss;        /* the best is the one with the least loss, whatever they are */
    bool stem;           /* of ROUGE */
    struct zinf_score_options options; /* of texts; most_samples of all */
    /* Sees the logits of every sample, in order, or its number, and the label as the sample has it;
     * < 0 ends it. NULL: nobody does. */
    int (*labelled)(void *arg, uint64_t sample, const float *logits, int64_t n, int32_t label);
    void *arg;
};
/* Prompts that a training goes on from on its way, for its log. */
struct zinf_run_prompts {
    const char *const *prompts;    /* [n], as they are shown */
    const struct zinf_text *texts; /* [n]: their tokens, and what encoders read */
    int n;
    uint64_t every; /* steps; 0: after the last one alone */
    const struct zinf_tokenizer *tokenizer;
    struct zinf_generate_options generate; /* nothing is drawn, and `made` is not called */
};
/* Adds all of data to a board for what the metrics compare; data of samples, in their order.
 * -EINVAL: the model does not make that. */
int zinf_score(struct zinf_trainer *trainer, const struct zinf_run_scores *scores,
               struct zinf_dataset *data, struct zinf_scoreboard *board);

/* A text whose probability after a context is wanted. If the model has an encoder, that reads the
 * context; else the context stands before the text, and its beginning is left out where both are
 * longer than the trainer's windows. */
struct zinf_continuation {
    const int32_t *context, *target; /* tokens, at least one each; borrowed */
    uint32_t n_context, n_target;
};
/* out[n]: the sum of the natural logarithms of the target's tokens' probabilities. start: what a
 * decoder with an encoder is fed first. Ranks compute batches in turn, and each gets all results.
 * -EINVAL: a target alone is longer than a window. */
int zinf_score_continuations(struct zinf_trainer *trainer, const struct zinf_continuation *items,
                             uint64_t n, int32_t start, double *out);

#ifdef __cplusplus
}
#endif
#endif
