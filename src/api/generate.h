/*
 * generate: how texts are made: settings of options and of the model folder's
 * generation_config.json, prompts of chats and of encoder-decoders.
 */
#ifndef ZINF_API_GENERATE_H
#define ZINF_API_GENERATE_H

#include "api/session.h"
#include "train/generate.h"

#include <math.h>

#define GENERATE_MAX_ENDS 64

/* What is negative has not been said. */
#define GENERATE_MAX_RULES 1024 /* numbers */
struct generate_settings {
    double temperature, top_p, repetition_penalty;
    double length_penalty; /* NAN: not said */
    int64_t top_k, max_new_tokens, num_beams, no_repeat_ngram;
    int early_stopping; /* enum zinf_early */
    int64_t max_length; /* of prompt and new tokens together; -1: none */
    int32_t ends[GENERATE_MAX_ENDS];
    int n_ends;
    struct zinf_word_rules rules; /* but for the arrays, which are these */
    int32_t suppressed[GENERATE_MAX_RULES], bad_words[GENERATE_MAX_RULES];
};
#define GENERATE_SETTINGS_UNSAID                                                                   \
    {                                                                                              \
        .temperature = -1, .top_p = -1, .repetition_penalty = -1, .length_penalty = NAN,           \
        .top_k = -1, .max_new_tokens = -1, .max_length = -1, .num_beams = -1,                      \
        .no_repeat_ngram = -1, .early_stopping = -1                                                \
    }

/* generate_config.c: what has not been said, from the folder's generation_config.json, then from
 * its config.json, then the usual. */
int generate_read_config(struct generate_settings *s, const char *model,
                         const struct zinf_model *config);

/* "false", "true", "never", as transformers has early_stopping: enum zinf_early. */
extern const char *const generate_early_words[];
extern const struct option generate_rows[]; /* they fill generate_settings */
/* What zinf_generate is asked for. */
struct zinf_generate_options generate_options(const struct generate_settings *s, uint64_t seed);

/* generate_chat.c: the chat of --chat, whose stop joins those that are there; it is borrowed from
 * the chat. A user's words, after the system's unless NULL, as ids to be gone on with. */
int generate_chat_open(struct zinf_chat **out, const struct zinf_job *c,
                       const struct zinf_tokenizer *tokenizer, struct generate_settings *settings,
                       struct zinf_words *stops);
int generate_chat_encode(const struct zinf_chat *chat, const char *system, const char *prompt,
                         struct zinf_tokens *ids);

/* generate_source.c: a prompt of an encoder-decoder. ids, its framed tokens, become those of its
 * source, which text borrows. */
int generate_source(const struct zinf_session *s, const struct zinf_job *c, struct zinf_tokens *ids,
                    struct zinf_text *text);

#endif
