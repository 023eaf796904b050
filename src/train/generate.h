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
    /* What was said before is less likely: its logits are divided by this, or multiplied where they
     * are negative (Keskar et al., arXiv 1909.05858); 0 or 1: off. */
    double repetition_penalty;
    int64_t no_repeat_ngram; /* no row of so many tokens comes twice; 0: any may */
    uint32_t text;           /* draws of different texts are independent */
};
/* Draws one id; draw n of a seed and a text is a pure function of these. scratch: [vocab] of
 * struct { float; int32 } = 8 * vocab bytes. */
int32_t zinf_sample(const struct zinf_sampler *sampler, const float *logits, int64_t vocab,
                    uint64_t draw, void *scratch);
/* The repetition penalty for n ids, in place, once for each that is among them. seen: [vocab]
 * zeros, which it leaves as they were. */
void zinf_sample_penalize(double penalty, const int32_t *ids, int64_t n, float *logits,
                          uint8_t *seen);
/* The logits of tokens that would end a row of n tokens that is already among ids become -INFINITY.
 */
void zinf_sample_ban_repeats(int64_t n, const int32_t *ids, int64_t n_ids, float *logits);

/* What may follow a text besides what is likely; all 0: anything. Named as transformers' keys are.
 */
struct zinf_word_rules {
    const int32_t *suppress_tokens; /* these never come */
    int64_t n_suppress_tokens;
    const int32_t
        *bad_words;      /* nor do these rows of tokens, each of which stands behind its length */
    int64_t n_bad_words; /* numbers, lengths too */
    /* No token that ends texts comes before; the first counts prompts, too. */
    int64_t min_length, min_new_tokens;
    bool forces_begin, forces_end; /* of a prompt of one token: what comes next; what comes last */
    int32_t forced_begin, forced_end;
};
/* A text's n ids, of which n_new are new and at most most_new may be. The logits of what may not
 * follow become -INFINITY. */
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
    ZINF_FINISH_CONTEXT, /* no room for another token */
    ZINF_FINISH_END,     /* a token that ends texts; it is not among the ids */
    ZINF_FINISH_STOP,    /* the caller said so */
};
const char *zinf_finish_name(enum zinf_finish finish); /* "length", "context", "end", "stop" */
struct zinf_text {
    int32_t *ids; /* [n_prompt + n_new] on the heap; room for more is made as it is needed */
    int64_t n_prompt, n_new;
    enum zinf_finish finish;
    /* What the encoder of an encoder-decoder reads for it; borrowed. A decode shape needs sources
     * for it. NULL: the model has no encoder. */
    const int32_t *source;
    int64_t n_source;
};
/* Beam search as transformers has it: so many continuations of a text are followed, and the one
 * with the best sum of log-probabilities, divided by its new tokens to the power of length_penalty,
 * is its text. Nothing is drawn. */
enum zinf_early {
    ZINF_EARLY_GUESS, /* it ends where a better one is unlikely, by the scores so far */
    ZINF_EARLY_FIRST, /* as soon as there are n finished ones */
    ZINF_EARLY_NEVER, /* only where there can be no better one */
};
struct zinf_beams {
    int64_t n; /* 0 or 1: one token after the other */
    double length_penalty;
    enum zinf_early early;
};
struct zinf_generate_options {
    struct zinf_sampler sampler; /* its text is the number of each */
    struct zinf_beams beams;     /* each takes a sequence of the decode shape */
    int64_t max_new_tokens;
    const int32_t *ends; /* tokens that end a text */
    int n_ends;
    struct zinf_word_rules rules;
    /* After each new token of a text, with beams after the last; 1: it ends here. < 0 ends all.
     * NULL: nobody is asked. */
    int (*made)(void *arg, int64_t text, const struct zinf_text *state);
    void *arg;
};
/* Tokens, those of sources too, and seconds of the calls that read prompts and of those that only
 * made new tokens. */
struct zinf_generate_speed {
    int64_t prompt_tokens, new_tokens, decoded_tokens; /* the last: by calls without a prompt */
    double prompt_seconds, decode_seconds;
};

/* ---- texts that come while others are made ---- */

/* A text takes a sequence of the trainer's decode shape (of a trainer without one there is one text
 * at a time) and part in every call until it ends; its options are its own, and its tokens do not
 * depend on the company. The trainer is borrowed, and nobody else uses it meanwhile. */
struct zinf_generator;
int zinf_generator_create(struct zinf_generator **out, struct zinf_trainer *trainer);
void zinf_generator_destroy(struct zinf_generator *generator);       /* NULL: nothing */
int64_t zinf_generator_room(const struct zinf_generator *generator); /* texts that can be added */
/* Begins a text with the next call. number: of its draws, and what made is told. Options and text
 * are borrowed until the text's finish says why it ended. -EINVAL: its prompt or source is too
 * long, or options ask for beams; -EBUSY: there is no room. */
int zinf_generator_add(struct zinf_generator *generator,
                       const struct zinf_generate_options *options, int64_t number,
                       struct zinf_text *text);
/* The text takes part no more; its finish stays. */
void zinf_generator_drop(struct zinf_generator *generator, const struct zinf_text *text);
/* One call of the trainer, with tokens of all texts under way, whose number it returns; < 0: it
 * failed, and none goes on. */
int64_t zinf_generator_call(struct zinf_generator *generator);

/* ---- a number of texts ---- */

/* texts: with n_prompt ids each, at least 1 and, with a decode shape, at most its capacity. */
int zinf_generate(struct zinf_trainer *trainer, const struct zinf_generate_options *options,
                  struct zinf_text *texts, int64_t n_texts, struct zinf_generate_speed *speed);

#ifdef __cplusplus
}
#endif
#endif
