/*
 * format: what the files of the formats share. A row becomes a script (chat_template.h): parts of
 * text, some of which count. The script becomes a sample. Inside this folder only.
 */
#ifndef ZINF_TEXT_FORMAT_H
#define ZINF_TEXT_FORMAT_H

#include "text/chat/chat_template.h"

/* A list of messages. Texts that are not in the row are kept in it. */
struct format_turns {
    struct zinf_chat_message *items;
    size_t n, capacity;
    char **texts; /* [n_texts], heap */
    size_t n_texts;
};
void format_turns_clear(struct format_turns *turns); /* keeps the memory */

struct zinf_format_recipe {
    struct zinf_recipe recipe;
    struct zinf_format_options options;
    const struct zinf_chat *chat; /* of the options, or own */
    struct zinf_chat *own;
    char *end; /* a text's end as it is written; "" if the tokenizer has none */
    struct format_turns turns;
    struct chat_script script, asked; /* of the whole row, and of its prompt */
    struct zinf_tokens plain, framed; /* ids while they are made */
    struct zinf_sample prompt;        /* the prompt alone */
    /* the rejected sample of the row whose chosen sample was taken last */
    struct zinf_sample rejected;
    int32_t begin_id, end_id; /* of bare texts; -1: none */
};

/* A field that must be a string. */
int format_string(const cJSON *row, const char *field, const char **out);
/* -EINVAL: the row has a text "system", which prompts with their answers do not have. */
int format_check_system(const cJSON *row);
/* Make the sample of a row, by format. */
int format_take_conversation(struct zinf_format_recipe *r, const cJSON *row,
                             struct zinf_sample *sample);
int format_take_prompt(struct zinf_format_recipe *r, const cJSON *row, struct zinf_sample *sample);
int format_take_chosen(struct zinf_format_recipe *r, const cJSON *row, struct zinf_sample *sample);
int format_take_rejected(struct zinf_format_recipe *r, const cJSON *row,
                         struct zinf_sample *sample);
int format_take_single(struct zinf_format_recipe *r, const cJSON *row, struct zinf_sample *sample);
/* Appends the ids of a text with the tokenizer's special tokens. */
int format_add_text(struct zinf_format_recipe *r, const char *text, size_t bytes,
                    struct zinf_sample *sample);
/* A prompt and an answer, which are texts, or lists of messages, or a text and a list. field: the
 * answer's name. shared: without a prompt, how many bytes or messages of the answer are the prompt.
 */
struct format_answer {
    const cJSON *prompt, *answer;
    size_t shared;
    const char *field;
};
/* Appends the ids of prompt and answer. first: index of the answer's first id, that is, the first
 * one that differs from the ids of the prompt alone, as in TRL. Marks none as counting. */
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
