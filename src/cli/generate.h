/* generate: texts on their way out of `zinf generate`. */
#ifndef ZINF_CLI_GENERATE_H
#define ZINF_CLI_GENERATE_H

#include "api/generate.h"
#include "cli/cli.h"

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
