/*
 * beams: beam search: follows the n likeliest continuations of one text beside each other. A search
 * knows only tokens and scores; generate_beams.c runs the model for it. Inside this folder only;
 * each search is used by one thread.
 */
#ifndef ZINF_TRAIN_BEAMS_H
#define ZINF_TRAIN_BEAMS_H

#include "train/generate.h"

struct beam_candidate {
    float score;        /* sum of log-probabilities */
    int32_t parent, id; /* the beam that it continues, and the token that it adds */
    bool stops;         /* the text ends with this token */
};
struct beam_finished {
    float score; /* divided by the length penalty */
    int64_t n_new;
    bool by_end;  /* its last token is one that ends texts */
    int32_t slot; /* row of done_ids */
};
struct beam_search {
    const struct zinf_generate_options *options;
    int64_t n, vocab, n_prompt, most_new; /* n: beams; most_new: new tokens of this text */
    int64_t n_new;                        /* tokens that every beam has so far */
    int32_t *ids, *next_ids;              /* [n][n_prompt + most_new] */
    float *scores;                        /* [n] */
    int32_t *parents;                     /* [n]: which beam each was before the last step */
    struct beam_candidate *candidates;    /* [n_candidates], the best first */
    int64_t n_candidates;
    struct beam_finished *finished; /* [n], the best first */
    int64_t n_finished;
    int32_t *done_ids; /* [n][n_prompt + most_new] */
    float *row;        /* [vocab] */
    uint8_t *seen;     /* [vocab] zeros */
    bool improves;     /* a running beam may still become better than a finished one */
    bool done;
};

/* Begins a search. prompt is copied; options are borrowed. -ENOMEM */
int beam_search_begin(struct beam_search *s, const struct zinf_generate_options *options,
                      const struct zinf_text *prompt, int64_t most_new, int64_t vocab);
void beam_search_end(struct beam_search *s);
/* Takes one step. logits[b]: [vocab], for the token after beam b. In the first step all may point
 * to the same row. */
void beam_search_step(struct beam_search *s, const float *const *logits);
static inline const int32_t *beam_ids(const struct beam_search *s, int64_t beam)
{
    return s->ids + beam * (s->n_prompt + s->most_new);
}

/* generate_beams.c: generates every text by beam search, as zinf_generate, which has checked the
 * texts. */
int generate_by_beams(struct zinf_trainer *trainer, const struct zinf_generate_options *options,
                      struct zinf_text *texts, int64_t n_texts, struct zinf_generate_speed *speed);

#endif
