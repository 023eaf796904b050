/*
 * generate: what the files of `zinf generate` share: the settings, from the command line and the
 * model folder's generation_config.json, and texts on their way out.
 */
#ifndef ZINF_CLI_GENERATE_H
#define ZINF_CLI_GENERATE_H

#include "cli/data.h"
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

/* "false", "true" or "never", as transformers has early_stopping. -EINVAL: none of them. */
int generate_parse_early(const char *what, const char *word, int *out);
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

/* generate_text.c: texts as characters. */
struct generate_text {
    size_t first; /* of the prompt's own tokens: special ones are before it, which are not shown */
    char *all;    /* prompt and new tokens */
    size_t bytes, prompt_bytes;
    size_t end;     /* where it is cut: at a stop string, or all */
    size_t printed; /* so far, when streamed */
};
struct generate_output {
    const struct zinf_tokenizer *tokenizer;
    const struct zinf_words *stops;
    struct generate_text *texts; /* [n] */
    const char *const *sources;  /* [n]: prompts that are not a part of their texts, or NULL */
    bool streams;                /* the only text, as it comes */
};
/* After a new token: 1 where a stop string is in the new text, which is cut there. */
int generate_text_made(struct generate_output *o, int64_t number, const struct zinf_text *text);
/* The text before any token was made. */
int generate_text_begin(struct generate_output *o, int64_t number, const struct zinf_text *text);
/* All of what has not been printed. */
void generate_text_print(struct generate_output *o, int64_t number);
/* One JSON object in a line. */
int generate_text_print_json(const struct generate_output *o, int64_t number,
                             const struct zinf_text *text);

#endif
