/*
 * format: what the files of the formats share. A row becomes a script (chat_template.h), parts of
 * text of which some count, and the script a sample. Inside this folder only.
 */
#ifndef ZINF_TEXT_FORMAT_H
#define ZINF_TEXT_FORMAT_H

#include "text/chat/chat_template.h"

/* Messages in the making; texts that are not the row's own are kept by it. */
struct format_turns {
    struct zinf_chat_message *items;
    size_t n, capacity;
    char **texts; /* [n_texts], heap */
    size_t n_texts;
};
void format_turns_clear(struct format_turns *turns); /* keeps items' memory */

struct zinf_format_recipe {
    struct zinf_recipe recipe;
    struct zinf_format_options options;
    const struct zinf_chat *chat; /* the options', or own */
    struct zinf_chat *own;
    char *end; /* of a text, as it is written; "" where the tokenizer has none */
    struct format_turns turns;
    struct chat_script script, asked; /* all of it, and the prompt alone */
    struct zinf_tokens plain, framed; /* ids in the making */
    struct zinf_sample prompt;        /* by itself */
    struct zinf_sample rejected;      /* of the row whose chosen answer was taken last */
    int32_t begin_id, end_id;         /* of bare texts; -1: none */
};

/* A field that has to be a string. */
int format_string(const cJSON *row, const char *field, const char **out);
/* Script and what counts of a row, by format. */
int format_take_conversation(struct zinf_format_recipe *r, const cJSON *row,
                             struct zinf_sample *sample);
int format_take_prompt(struct zinf_format_recipe *r, const cJSON *row, struct zinf_sample *sample);
int format_take_chosen(struct zinf_format_recipe *r, const cJSON *row, struct zinf_sample *sample);
int format_take_rejected(struct zinf_format_recipe *r, const cJSON *row,
                         struct zinf_sample *sample);
int format_take_single(struct zinf_format_recipe *r, const cJSON *row, struct zinf_sample *sample);
/* Ids of a text with the tokenizer's tokens around it. */
int format_add_text(struct zinf_format_recipe *r, const char *text, size_t bytes,
                    struct zinf_sample *sample);
/* A prompt and an answer to it: both texts, or lists of messages, or a text and messages that
 * answer it. shared, without a prompt: how much of the answer, bytes or messages, is one. field
 * names the answer. */
struct format_answer {
    const cJSON *prompt, *answer;
    size_t shared;
    const char *field;
};
/* first: the ids from there on are the answer's: all behind what the prompt by itself has in common
 * with the whole, as TRL has it. None is marked yet. */
int format_take_answer(struct zinf_format_recipe *r, const struct format_answer *a,
                       struct zinf_sample *sample, size_t *first);
void format_count_from(struct zinf_sample *sample, size_t first);
int format_take_gdgpt(struct zinf_format_recipe *r, const cJSON *row, struct zinf_sample *sample);
int format_take_ids(struct zinf_format_recipe *r, const cJSON *row, struct zinf_sample *sample);

/* format_python.c: a value as Python's repr() writes it, and as json.dumps(indent=2,
 * ensure_ascii=False) does. */
int format_repr(struct text_buffer *out, const cJSON *value);
int format_dump(struct text_buffer *out, const cJSON *value, int depth);

#endif
