/*
 * generate: texts continued token by token. Several go on at once: each call of the trainer takes
 * the next tokens of all of them, so that a layer's parameters are fetched once for all; a text
 * that ends makes room for the next. A trainer made with a decode shape remembers keys and values,
 * and those of what an encoder has read; one made without computes the whole text again for each
 * token, one text at a time.
 *
 * Threads and errors as in train.h.
 */
#ifndef ZINF_GENERATE_H
#define ZINF_GENERATE_H

#include "train/decode.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- one token ---- */

struct zinf_sampler {
    double temperature; /* 0: the most likely token */
    int64_t top_k;      /* 0: all */
    double top_p;       /* 1: all */
    uint64_t seed;
    /* Makes tokens that the text already has less likely: their logits are divided by this, or
     * multiplied if negative (Keskar et al., arXiv 1909.05858); 0 or 1: off. */
    double repetition_penalty;
    int64_t no_repeat_ngram; /* no sequence of this many tokens comes twice; 0: off */
    uint32_t text;           /* number of the text; draws of different texts are independent */
};
/* Draws one token id. The result depends only on the sampler, the logits and the number of the
 * draw. scratch: 8 * vocab bytes. */
int32_t zinf_sample(const struct zinf_sampler *sampler, const float *logits, int64_t vocab,
                    uint64_t draw, void *scratch);
/* Applies the repetition penalty in place, once to each token that is among the n ids. seen:
 * [vocab] zeros, which are zeros again afterwards. */
void zinf_sample_penalize(double penalty, const int32_t *ids, int64_t n, float *logits,
                          uint8_t *seen);
/* Sets the logits of tokens to -INFINITY that would repeat a sequence of n tokens that ids already
 * have. */
void zinf_sample_ban_repeats(int64_t n, const int32_t *ids, int64_t n_ids, float *logits);

/* Rules on what may follow a text, whatever its probability; all 0: no rules. Members have the
 * names of transformers' keys. */
struct zinf_word_rules {
    const int32_t *suppress_tokens; /* tokens that never come */
    int64_t n_suppress_tokens;
    const int32_t *bad_words; /* sequences of tokens that never come, each preceded by its length */
    int64_t n_bad_words;      /* numbers in bad_words, including lengths */
    /* The least tokens before one that ends texts may come: with the prompt, and without it. */
    int64_t min_length, min_new_tokens;
    /* forced_begin: the token after a prompt of one token; forced_end: the last token that fits */
    bool forces_begin, forces_end;
    int32_t forced_begin, forced_end;
};
/* The state of a text: its n ids, of which n_new are new; at most most_new can be.
 * zinf_sample_apply_rules sets the logits of tokens that may not follow to -INFINITY. */
struct zinf_word_place {
    const int32_t *ids;
    int64_t n, n_new, most_new;
    const int32_t *ends; /* tokens that end texts */
    int n_ends;
};
void zinf_sample_apply_rules(const struct zinf_word_rules *rules,
                             const struct zinf_word_place *place, float *logits, int64_t vocab);

/* ---- texts ---- */

enum zinf_finish {
    ZINF_FINISH_NONE,
    ZINF_FINISH_LENGTH,  /* max_new_tokens */
    ZINF_FINISH_CONTEXT, /* the text is as long as the model or the decode shape allows */
    ZINF_FINISH_END,     /* a token that ends texts came; it is not among the ids */
    ZINF_FINISH_STOP,    /* the caller's `made` returned 1 */
};
const char *zinf_finish_name(enum zinf_finish finish); /* "length", "context", "end", "stop" */
struct zinf_text {
    int32_t *ids; /* [n_prompt + n_new] on the heap; reallocated as the text grows */
    int64_t n_prompt, n_new;
    enum zinf_finish finish;
    /* The tokens that the encoder of an encoder-decoder reads; borrowed. A decode shape must have
     * sources for them. NULL: the model has no encoder. */
    const int32_t *source;
    int64_t n_source;
};
/* Beam search as in transformers: follows n continuations of a text and takes the one with the best
 * sum of log-probabilities, divided by its number of new tokens to the power of length_penalty.
 * Nothing is sampled. `early` says when a search ends: */
enum zinf_early {
    ZINF_EARLY_GUESS, /* when a better text is unlikely by the scores so far */
    ZINF_EARLY_FIRST, /* as soon as n texts have ended */
    ZINF_EARLY_NEVER, /* only when there can be no better text */
};
struct zinf_beams {
    int64_t n; /* beams; 0 or 1: no beam search */
    double length_penalty;
    enum zinf_early early;
};
struct zinf_generate_options {
    struct zinf_sampler sampler; /* `text` is set to the number of each text */
    struct zinf_beams beams;     /* each beam takes a sequence of the decode shape */
    int64_t max_new_tokens;
    const int32_t *ends; /* tokens that end a text */
    int n_ends;
    struct zinf_word_rules rules;
    /* Called after each new token of a text; with beams only at its end. Result 1: the text ends
     * here; < 0: the call fails with it. May be NULL. */
    int (*made)(void *arg, int64_t text, const struct zinf_text *state);
    void *arg;
};
/* Numbers of tokens (prompt_tokens includes sources), and seconds of calls that read prompts and of
 * calls that only made new tokens. */
struct zinf_generate_speed {
    /* decoded_tokens: new tokens of calls without a prompt */
    int64_t prompt_tokens, new_tokens, decoded_tokens;
    double prompt_seconds, decode_seconds;
};

/* ---- texts that come while others are made ---- */

/* A generator continues several texts, which can be added while others are under way. Each takes a
 * sequence of the trainer's decode shape (without one there is one text at a time) until it ends.
 * Each has its own options, and its tokens do not depend on the other texts. The trainer is
 * borrowed and must not be used otherwise meanwhile. */
struct zinf_generator;
int zinf_generator_create(struct zinf_generator **out, struct zinf_trainer *trainer);
void zinf_generator_destroy(struct zinf_generator *generator);       /* NULL is allowed */
int64_t zinf_generator_room(const struct zinf_generator *generator); /* texts that can be added */
/* Adds a text; it begins with the next call. number: identifies the text in its draws and for
 * `made`. options and text are borrowed until text->finish says why it ended. -EINVAL: prompt or
 * source is too long, or options ask for beams; -EBUSY: there is no room. */
int zinf_generator_add(struct zinf_generator *generator,
                       const struct zinf_generate_options *options, int64_t number,
                       struct zinf_text *text);
/* Removes a text that has not ended; its `finish` does not change. */
void zinf_generator_drop(struct zinf_generator *generator, const struct zinf_text *text);
/* Calls the trainer once, with tokens of the texts under way. Returns how many texts are under way
 * afterwards; < 0: the call failed, and no text can go on. */
int64_t zinf_generator_call(struct zinf_generator *generator);

/* ---- a number of texts ---- */

/* Continues n_texts texts until all have ended. Each must have n_prompt ids, at least 1 and, with a
 * decode shape, at most its capacity. *speed: set. */
int zinf_generate(struct zinf_trainer *trainer, const struct zinf_generate_options *options,
                  struct zinf_text *texts, int64_t n_texts, struct zinf_generate_speed *speed);

#ifdef __cplusplus
}
#endif
#endif
