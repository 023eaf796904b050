/* score_labels: what a model makes of windows beside their labels: a class is the one with the
 * largest logit, of equal ones the first. Ranks, or those that share sequences together, are
 * dealt batches in turn, and each hears what all have made, in the order of the windows. */
#include "train/run/run_batch.h"
#include "train/score.h"
#include "train/trainer.h"

#include <stdlib.h>

struct labelling {
    struct zinf_trainer *trainer;
    const struct zinf_run_scores *scores;
    struct zinf_scoreboard *board;
    struct run_batch batch;
    /* Of a batch [each] rows: logits [n_classes], then the label. all: of every rank. */
    float *logits, *own, *all;
    int64_t n_classes;
    uint64_t each, n; /* windows of a call, of all */
};

static int32_t largest(const float *logits, int64_t n)
{
    int64_t best = 0;
    for (int64_t c = 1; c < n; c++)
        if (logits[c] > logits[best])
            best = c;
    return (int32_t)best;
}

static int take(struct labelling *l, uint64_t sample, const float *row)
{
    const struct zinf_run_scores *s = l->scores;
    const float *logits = row, number = row[l->n_classes];
    int32_t label;
    int code;
    memcpy(&label, &number, sizeof label);
    if (s->of == ZINF_SCORED_NUMBERS)
        code = zinf_scoreboard_number(l->board, (double)logits[0], (double)number);
    else
        code = zinf_scoreboard_class(l->board, largest(logits, l->n_classes), label);
    return !code && s->labelled ? s->labelled(s->arg, sample, logits, l->n_classes, label) : code;
}

static uint64_t windows_from(const struct labelling *l, uint64_t first)
{
    uint64_t left = first < l->n ? l->n - first : 0;
    return left < l->each ? left : l->each;
}

/* This rank's batch; without one it computes with the others, for they may need its slices. */
static int classify(struct labelling *l, struct zinf_dataset *data, uint64_t first)
{
    uint64_t n = windows_from(l, first), windows = n ? n : 1;
    size_t row = (size_t)l->n_classes + 1;
    int code = 0;
    run_batch_fit(&l->batch, data, n ? first : 0, windows);
    for (uint64_t i = 0; !code && i < windows; i++)
        code = run_batch_take(&l->batch, data, n ? first + i : 0, (int64_t)i);
    const struct zinf_batch batch = run_batch_given(&l->batch);
    if (!code)
        code = zinf_trainer_classify(l->trainer, &batch, (int64_t)windows, l->logits);
    for (uint64_t i = 0; !code && i < n; i++) {
        memcpy(l->own + i * row, l->logits + i * (row - 1), (row - 1) * sizeof *l->own);
        memcpy(l->own + i * row + row - 1, &l->batch.arrays[ZINF_INPUT_LABELS][i], sizeof *l->own);
    }
    return code;
}

/* A batch of each rank, or of those that share sequences. */
static int take_round(struct labelling *l, struct zinf_dataset *data, uint64_t first)
{
    const struct setup *s = &l->trainer->setup;
    size_t row = (size_t)l->n_classes + 1, batch = l->each * row;
    const struct zinf_axis *data_ranks = data_axis(s);
    const uint32_t sharing = context_axis(s)->world;
    int code = classify(l, data, first + setup_sharer(s, data_ranks->rank) * l->each);
    if (!code && data_ranks->net)
        code = zinf_net_gather(data_ranks->net, l->own, l->all, batch * sizeof *l->own);
    for (uint32_t r = 0; r < data_ranks->world; r += sharing) {
        uint64_t begin = first + setup_sharer(s, r) * l->each, n = windows_from(l, begin);
        for (uint64_t i = 0; !code && i < n; i++)
            code = take(l, begin + i, l->all + r * batch + i * row);
    }
    return code;
}

static int take_memory(struct labelling *l)
{
    const struct zinf_axis *axis = data_axis(&l->trainer->setup);
    uint64_t ranks = axis->world, row = (uint64_t)l->n_classes + 1;
    l->logits = calloc(l->each * row, sizeof *l->logits);
    l->all = calloc(l->each * row * ranks, sizeof *l->all);
    if (!l->logits || !l->all)
        return zinf_fail(-ENOMEM, "no memory for the logits of %llu samples",
                         (unsigned long long)(l->each * ranks));
    l->own = l->all + axis->rank * l->each * row;
    return 0;
}

static int score_labels(struct zinf_trainer *trainer, const struct zinf_run_scores *scores,
                        struct zinf_dataset *data, struct zinf_scoreboard *board)
{
    const struct setup *s = &trainer->setup;
    const uint64_t most = scores->options.most_samples, all = zinf_dataset_n_windows(data);
    struct labelling l = {.trainer = trainer,
                          .scores = scores,
                          .board = board,
                          .n_classes = s->graph->vocab,
                          .each = (uint64_t)s->batch,
                          .n = most && most < all ? most : all};
    int code = run_batch_init(&l.batch, trainer, data, s->batch);
    if (!code && !l.batch.arrays[ZINF_INPUT_LABELS])
        code = zinf_fail(-EINVAL, "the model has no classes to compare with labels");
    if (!code)
        code = take_memory(&l);
    for (uint64_t first = 0; !code && first < l.n; first += l.each * setup_sharers(s))
        code = take_round(&l, data, first);
    free(l.logits);
    free(l.all);
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
