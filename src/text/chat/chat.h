/*
 * chat: conversations, and the formats of data files that hold them. A *chat* is a template (how
 * turns are written, as Hugging Face's apply_chat_template renders them) with a folder's tokenizer;
 * a *format* is how a row of a data file says a conversation, a prompt with its completion, or a
 * text. A format and a chat together are a recipe (samples.h).
 *
 * Templates are built in. A folder's chat_template is compared with the texts of those that are
 * known and never executed.
 *
 * Threads: read-only after opening. Errors: -errno and a sentence.
 */
#ifndef ZINF_CHAT_H
#define ZINF_CHAT_H

#include "text/samples/samples.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- templates ---- */

struct zinf_chat;
/* Opens a template. name: a built-in template; NULL: the folder's own. folder: has the tokenizer,
 * whose tokenizer_config.json says how a text's begin and end are written. -ENOENT: name is NULL
 * and the folder has no template; -ENOTSUP: the folder's template is not known; -EINVAL: there is
 * no template of that name. */
int zinf_chat_open(struct zinf_chat **out, const char *folder, const char *name,
                   const struct zinf_tokenizer *tokenizer);
void zinf_chat_close(struct zinf_chat *chat);
/* -EINVAL: there is no built-in template of that name. */
int zinf_chat_check(const char *name);
const char *zinf_chat_name(const struct zinf_chat *chat);
/* Names of the built-in ones by number, then NULL. */
const char *zinf_chat_template_name(int number);
/* What a model that was trained by the template writes at the end of its turn: the text, and in *id
 * its token, or -1 if it is not one token. */
const char *zinf_chat_stop(const struct zinf_chat *chat, int32_t *id);

struct zinf_chat_message {
    const char *role; /* system, user, assistant, tool */
    const char *content;
    bool silent; /* of an assistant: do not train on it */
};
/* Appends the ids of a conversation. The assistants' texts with the ends of their turns are marked
 * as counting. answers: ends with the beginning of an assistant's turn, for the model to continue.
 * -EINVAL: a role is out of order or not in the template. */
int zinf_chat_encode(const struct zinf_chat *chat, const struct zinf_chat_message *messages,
                     size_t n, bool answers, struct zinf_sample *sample);
/* Renders the conversation as text: heap, NUL-terminated. -ENOTSUP: the template consists of ids.
 */
int zinf_chat_render(const struct zinf_chat *chat, const struct zinf_chat_message *messages,
                     size_t n, bool answers, char **text);
/* Writes the template as transformers' chat_template.jinja: heap. -ENOTSUP: as above. */
int zinf_chat_jinja(const struct zinf_chat *chat, char **text);

/* ---- formats ---- */
/* The names of the templates that are known; NULL behind the last. */
const char *zinf_chat_known(size_t i);

enum zinf_format {
    ZINF_FORMAT_STREAM,   /* texts that are joined and cut into windows, without samples (text.h) */
    ZINF_FORMAT_TEXT,     /* "text": each row is a sample, all of which counts */
    ZINF_FORMAT_ALPACA,   /* instruction, input?, output, system?, history? */
    ZINF_FORMAT_SHAREGPT, /* conversations: [{from, value}] */
    ZINF_FORMAT_MESSAGES, /* messages: [{role, content}] */
    ZINF_FORMAT_PROMPT,   /* prompt, completion: texts or messages */
    /* prompt, chosen, rejected: texts or messages; a pair of samples. Without a prompt, what
     * both answers begin with is the prompt. */
    ZINF_FORMAT_PREFERENCE,
    /* prompt, completion, label: whether the completion is wanted. Samples rotate (samples.h). */
    ZINF_FORMAT_UNPAIRED,
    ZINF_FORMAT_GDGPT, /* type: pretrain, instruct, conversation, conver_has_api or ref_qa */
    ZINF_FORMAT_IDS,   /* input_ids, labels?, attention_mask?: rows that are already tokenised */
    ZINF_FORMATS,
};
const char *zinf_format_name(enum zinf_format format); /* "stream", "text", "alpaca", ... */
int zinf_format_parse(const char *name, enum zinf_format *out);
/* Tells the format by the field names of the first row. STREAM if they fit no other, or if the file
 * is text, tokens or standard input. */
int zinf_format_tell(const char *path, enum zinf_format *out);

struct zinf_format_options {
    enum zinf_format format;
    const struct zinf_chat *chat; /* NULL: conversations are refused */
    const struct zinf_tokenizer *tokenizer;
    const char *folder;      /* of the tokenizer, for the end of a text */
    const char *text_column; /* for TEXT; NULL: "text" */
    bool train_on_prompt;    /* all tokens count */
    bool margins; /* for PREFERENCE: the label of the rejected sample has the row's "margin" */
    /* Adds the ids of a text's begin and end if it lacks them, whatever the tokenizer adds, as
     * TRL's trainers of ORPO and CPO do. */
    bool bare;
};
struct zinf_format_recipe;
/* Creates a recipe. The options are borrowed. */
int zinf_format_open(struct zinf_format_recipe **out, const struct zinf_format_options *options);
const struct zinf_recipe *zinf_format_recipe(const struct zinf_format_recipe *recipe);
void zinf_format_close(struct zinf_format_recipe *recipe);

#ifdef __cplusplus
}
#endif
#endif
