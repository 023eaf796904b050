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
int format_turn(struct format_turns *turns, const char *role, const char *content, bool silent);
/* Keeps text, which is the caller's no more, even where this fails. */
int format_keep(struct format_turns *turns, char *text);
void format_turns_clear(struct format_turns *turns); /* keeps items' memory */

struct zinf_format_recipe {
    struct zinf_recipe recipe;
    struct zinf_format_options options;
    const struct zinf_chat *chat; /* the options', or own */
    struct zinf_chat *own;
    char *end; /* of a text, as it is written; "" where the tokenizer has none */
    struct format_turns turns;
    struct chat_script script;
    cJSON *before; /* of UNPAIRED: the completion of the row before; NULL: there is none */
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
int format_take_mismatched(struct zinf_format_recipe *r, const cJSON *row,
                           struct zinf_sample *sample);
/* A prompt and an answer to it, of which the answer counts: both texts, or lists of messages.
 * shared, without a prompt: how much of the answer, bytes or messages, is one. field names the
 * answer. */
struct format_answer {
    const cJSON *prompt, *answer;
    size_t shared;
    const char *field;
};
int format_take_answer(struct zinf_format_recipe *r, const struct format_answer *a,
                       struct zinf_sample *sample);
int format_take_gdgpt(struct zinf_format_recipe *r, const cJSON *row, struct zinf_sample *sample);

/* format_python.c: a value as Python's repr() writes it, and as json.dumps(indent=2,
 * ensure_ascii=False) does. */
int format_repr(struct text_buffer *out, const cJSON *value);
int format_dump(struct text_buffer *out, const cJSON *value, int depth);

#endif
