/*
 * generate: what the files of `zinf generate` share: the settings, from the command line and the
 * model folder's generation_config.json, and texts on their way out.
 */
#ifndef ZINF_CLI_GENERATE_H
#define ZINF_CLI_GENERATE_H

#include "cli/data.h"
#include "train/generate.h"

#define GENERATE_MAX_ENDS 64

/* What is negative has not been said. */
struct generate_settings {
    double temperature, top_p, repetition_penalty;
    int64_t top_k, max_new_tokens;
    int64_t max_length; /* of prompt and new tokens together; -1: none */
    int32_t ends[GENERATE_MAX_ENDS];
    int n_ends;
};
#define GENERATE_SETTINGS_UNSAID                                                                   \
    {                                                                                              \
        .temperature = -1, .top_p = -1, .repetition_penalty = -1, .top_k = -1,                     \
        .max_new_tokens = -1, .max_length = -1                                                     \
    }

/* generate_config.c: what has not been said, from the folder's generation_config.json, then from
 * its config.json, then the usual. */
int generate_read_config(struct generate_settings *s, const char *model,
                         const struct zinf_model *config);

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
    const struct cli_strings *stops;
    struct generate_text *texts; /* [n] */
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
