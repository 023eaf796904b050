/* score_labels: what a model makes of windows beside their labels: a class is the one with the
 * largest logit, of equal ones the first. */
#include "train/run/run_batch.h"
#include "train/score.h"
#include "train/trainer.h"

#include <stdlib.h>

struct labelling {
    struct zinf_trainer *trainer;
    const struct zinf_run_scores *scores;
    struct zinf_scoreboard *board;
    struct run_batch batch;
    float *logits; /* [windows of a call][n_classes] */
    int64_t n_classes;
};

static int32_t largest(const float *logits, int64_t n)
{
    int64_t best = 0;
    for (int64_t c = 1; c < n; c++)
        if (logits[c] > logits[best])
            best = c;
    return (int32_t)best;
}

static int take(struct labelling *l, uint64_t sample, int64_t window)
{
    const struct zinf_run_scores *s = l->scores;
    const float *logits = l->logits + window * l->n_classes;
    const int32_t label = l->batch.arrays[ZINF_INPUT_LABELS][window];
    float number;
    int code;
    memcpy(&number, &label, sizeof number);
    if (s->of == ZINF_SCORED_NUMBERS)
        code = zinf_scoreboard_number(l->board, (double)logits[0], (double)number);
    else
        code = zinf_scoreboard_class(l->board, largest(logits, l->n_classes), label);
    return !code && s->labelled ? s->labelled(s->arg, sample, logits, l->n_classes, label) : code;
}

/* Windows from first on, as many as the trainer takes at once. */
static int take_windows(struct labelling *l, struct zinf_dataset *data, uint64_t first, int64_t n)
{
    int code = 0;
    run_batch_fit(&l->batch, data, first, (uint64_t)n);
    for (int64_t i = 0; !code && i < n; i++)
        code = run_batch_take(&l->batch, data, first + (uint64_t)i, i);
    const struct zinf_batch batch = run_batch_given(&l->batch);
    if (!code)
        code = zinf_trainer_classify(l->trainer, &batch, n, l->logits);
    for (int64_t i = 0; !code && i < n; i++)
        code = take(l, first + (uint64_t)i, i);
    return code;
}

static int score_labels(struct zinf_trainer *trainer, const struct zinf_run_scores *scores,
                        struct zinf_dataset *data, struct zinf_scoreboard *board)
{
    const struct setup *s = &trainer->setup;
    const uint64_t most = scores->options.most_samples, all = zinf_dataset_n_windows(data);
    const uint64_t n = most && most < all ? most : all, each = (uint64_t)s->batch;
    struct labelling l = {
        .trainer = trainer, .scores = scores, .board = board, .n_classes = s->graph->vocab};
    int code = run_batch_init(&l.batch, trainer, data, s->batch);
    l.logits = calloc(each * (uint64_t)l.n_classes, sizeof *l.logits);
    if (!code && !l.batch.arrays[ZINF_INPUT_LABELS])
        code = zinf_fail(-EINVAL, "the model has no classes to compare with labels");
    if (!code && !l.logits)
        code = zinf_fail(-ENOMEM, "no memory for the logits of %llu samples",
                         (unsigned long long)each);
    for (uint64_t first = 0; !code && first < n; first += each)
        code = take_windows(&l, data, first, (int64_t)(n - first < each ? n - first : each));
    free(l.logits);
    run_batch_fini(&l.batch);
    return code;
}

int zinf_score(struct zinf_trainer *trainer, const struct zinf_run_scores *scores,
               struct zinf_dataset *data, struct zinf_scoreboard *board)
{
    return scores->of == ZINF_SCORED_TEXTS
               ? zinf_score_texts(trainer, &scores->options, zinf_dataset_samples(data), board)
               : score_labels(trainer, scores, data, board);
}
