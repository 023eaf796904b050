/*
 * beams: beam search as transformers does it for a text by itself. A step takes the best
 * candidates of all beams, twice as many as there are beams and more, so that enough of them go on
 * even where others end. Scores are fp32 sums, as there, since -1e9 stands for what cannot be
 * taken and its rounding decides what comes first.
 */
#include "train/run/beams.h"

#include <math.h>
#include <stdlib.h>

#define UNTAKEN -1e9F

static int64_t width(const struct beam_search *s)
{
    return s->n_prompt + s->most_new;
}

/* ---- candidates ---- */

static void insert(struct beam_search *s, int64_t *n, struct beam_candidate candidate)
{
    struct beam_candidate *c = s->candidates;
    if (*n == s->n_candidates && !(candidate.score > c[*n - 1].score))
        return;
    int64_t at = *n < s->n_candidates ? (*n)++ : *n - 1;
    for (; at > 0 && candidate.score > c[at - 1].score; at--)
        c[at] = c[at - 1];
    c[at] = candidate;
}

/* Log-probabilities of what may follow a beam, into row. */
static void weigh(struct beam_search *s, int64_t beam, const float *logits)
{
    const struct zinf_sampler *sampler = &s->options->sampler;
    int64_t length = s->n_prompt + s->n_new;
    float most = -INFINITY;
    double sum = 0;
    for (int64_t i = 0; i < s->vocab; i++)
        most = logits[i] > most ? logits[i] : most;
    for (int64_t i = 0; i < s->vocab; i++)
        sum += exp((double)(logits[i] - most));
    for (int64_t i = 0; i < s->vocab; i++)
        s->row[i] = (float)((double)(logits[i] - most) - log(sum));
    zinf_sample_penalize(sampler->repetition_penalty, beam_ids(s, beam), length, s->row, s->seen);
    zinf_sample_ban_repeats(sampler->no_repeat_ngram, beam_ids(s, beam), length, s->row);
    const struct zinf_word_place place = {.ids = beam_ids(s, beam),
                                          .n = length,
                                          .n_new = s->n_new,
                                          .most_new = s->most_new,
                                          .ends = s->options->ends,
                                          .n_ends = s->options->n_ends};
    zinf_sample_apply_rules(&s->options->rules, &place, s->row, s->vocab);
}

static bool is_end(const struct beam_search *s, int32_t id)
{
    for (int i = 0; i < s->options->n_ends; i++)
        if (s->options->ends[i] == id)
            return true;
    return false;
}

static void find_candidates(struct beam_search *s, const float *const *logits)
{
    bool last = s->n_new + 1 >= s->most_new;
    int64_t n = 0;
    for (int64_t b = 0; b < s->n; b++) {
        weigh(s, b, logits[b]);
        for (int64_t i = 0; i < s->vocab; i++) {
            float score = s->row[i] + s->scores[b];
            struct beam_candidate c = {isnan(score) ? -INFINITY : score, (int32_t)b, (int32_t)i,
                                       false};
            insert(s, &n, c);
        }
    }
    for (int64_t k = 0; k < n; k++)
        s->candidates[k].stops = last || is_end(s, s->candidates[k].id);
}

/* ---- finished texts ---- */

static void copy_with(const struct beam_search *s, int32_t *to, const struct beam_candidate *c)
{
    int64_t length = s->n_prompt + s->n_new;
    memcpy(to, beam_ids(s, c->parent), (size_t)length * sizeof *to);
    to[length] = c->id;
}

static void finish(struct beam_search *s, const struct beam_candidate *c, float score)
{
    struct beam_finished *f = s->finished;
    int64_t at = s->n_finished;
    int32_t slot = (int32_t)at;
    if (at == s->n) {
        if (!(score > f[--at].score))
            return;
        slot = f[at].slot;
    } else {
        s->n_finished++;
    }
    for (; at > 0 && score > f[at - 1].score; at--)
        f[at] = f[at - 1];
    f[at] = (struct beam_finished){score, s->n_new + 1, is_end(s, c->id), slot};
    copy_with(s, s->done_ids + slot * width(s), c);
}

static float penalty(const struct beam_search *s, int64_t length)
{
    return (float)pow((double)length, s->options->beams.length_penalty);
}

/* Those among the best n alone: the others are there to go on. */
static void take_finished(struct beam_search *s)
{
    bool full = s->n_finished == s->n && s->options->beams.early == ZINF_EARLY_FIRST;
    for (int64_t k = 0; k < s->n && k < s->n_candidates; k++) {
        const struct beam_candidate *c = &s->candidates[k];
        if (c->stops && !full && s->improves)
            finish(s, c, c->score / penalty(s, s->n_new + 1));
    }
}

/* ---- what goes on ---- */

/* The best n candidates, those that stop last; their scores keep what was taken off for that. */
static void take_running(struct beam_search *s)
{
    int64_t n = 0;
    for (int stops = 0; stops < 2; stops++)
        for (int64_t k = 0; k < s->n_candidates && n < s->n; k++) {
            const struct beam_candidate *c = &s->candidates[k];
            if (c->stops != stops)
                continue;
            s->parents[n] = c->parent;
            s->scores[n] = c->score + (stops ? UNTAKEN : 0);
            copy_with(s, s->next_ids + n * width(s), c);
            n++;
        }
    int32_t *ids = s->ids;
    s->ids = s->next_ids;
    s->next_ids = ids;
}

/* Whether the best that runs could still come before the worst that has finished: at its present
 * length, or, where nothing shall be missed, at the one that is best for it. */
static bool may_improve(const struct beam_search *s)
{
    bool longest =
        s->options->beams.early == ZINF_EARLY_NEVER && s->options->beams.length_penalty > 0;
    float best = s->scores[0] / penalty(s, longest ? s->most_new : s->n_new);
    return best > (s->n_finished == s->n ? s->finished[s->n - 1].score : UNTAKEN);
}

void beam_search_step(struct beam_search *s, const float *const *logits)
{
    bool all_stop = true;
    find_candidates(s, logits);
    for (int64_t k = 0; k < s->n_candidates; k++)
        all_stop = all_stop && s->candidates[k].stops;
    take_finished(s); /* from the beams as they were */
    take_running(s);
    s->n_new++;
    s->improves = s->improves && may_improve(s);
    bool full = s->n_finished == s->n && s->options->beams.early == ZINF_EARLY_FIRST;
    s->done = !s->improves || full || all_stop;
}

/* ---- life ---- */

static int take_memory(struct beam_search *s)
{
    size_t n = (size_t)s->n, all = n * (size_t)width(s), vocab = (size_t)s->vocab;
    s->ids = calloc(all, sizeof *s->ids);
    s->next_ids = calloc(all, sizeof *s->ids);
    s->done_ids = calloc(all, sizeof *s->ids);
    s->scores = calloc(n, sizeof *s->scores);
    s->parents = calloc(n, sizeof *s->parents);
    s->candidates = calloc((size_t)s->n_candidates, sizeof *s->candidates);
    s->finished = calloc(n, sizeof *s->finished);
    s->row = malloc(vocab * sizeof *s->row);
    s->seen = calloc(vocab, 1);
    return s->ids && s->next_ids && s->done_ids && s->scores && s->parents && s->candidates &&
                   s->finished && s->row && s->seen
               ? 0
               : zinf_fail(-ENOMEM, "no memory for %lld beams", (long long)s->n);
}

/* Before the first step all beams are the prompt, and only the first may be continued. */
int beam_search_begin(struct beam_search *s, const struct zinf_generate_options *options,
                      const struct zinf_text *prompt, int64_t most_new, int64_t vocab)
{
    int64_t per_beam = options->n_ends ? 1 + options->n_ends : 2;
    *s = (struct beam_search){.options = options,
                              .n = options->beams.n,
                              .vocab = vocab,
                              .n_prompt = prompt->n_prompt,
                              .most_new = most_new,
                              .improves = true};
    s->n_candidates = per_beam < vocab ? per_beam * s->n : vocab * s->n;
    int code = take_memory(s);
    for (int64_t b = 0; !code && b < s->n; b++) {
        memcpy(s->ids + b * width(s), prompt->ids, (size_t)s->n_prompt * sizeof *s->ids);
        s->scores[b] = b ? UNTAKEN : 0;
    }
    return code;
}

void beam_search_end(struct beam_search *s)
{
    free(s->ids);
    free(s->next_ids);
    free(s->done_ids);
    free(s->scores);
    free(s->parents);
    free(s->candidates);
    free(s->finished);
    free(s->row);
    free(s->seen);
    *s = (struct beam_search){0};
}
