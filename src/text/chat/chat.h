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
/* name: of a built-in template; NULL: the folder's own. folder's tokenizer_config.json says how the
 * begin and end of a text are written. -ENOENT: name is NULL and the folder has no template;
 * -ENOTSUP: its template is not known; -EINVAL: no template has that name. */
int zinf_chat_open(struct zinf_chat **out, const char *folder, const char *name,
                   const struct zinf_tokenizer *tokenizer);
void zinf_chat_close(struct zinf_chat *chat);
const char *zinf_chat_name(const struct zinf_chat *chat);
/* Names of the built-in ones by number, then NULL. */
const char *zinf_chat_template_name(int number);
/* What a model that was trained by the template writes at the end of its turn, as text and as one
 * token where the tokenizer has it (else -1). */
const char *zinf_chat_stop(const struct zinf_chat *chat, int32_t *id);

struct zinf_chat_message {
    const char *role; /* system, user, assistant, tool */
    const char *content;
    bool silent; /* of an assistant: not trained on */
};
/* Appends the ids of a conversation. What assistants said, with the end of their turn, counts.
 * answers: the beginning of an assistant's turn comes last, to be gone on with. -EINVAL: roles that
 * are out of order, or that the template does not have. */
int zinf_chat_encode(const struct zinf_chat *chat, const struct zinf_chat_message *messages,
                     size_t n, bool answers, struct zinf_sample *sample);
/* The text of that: heap, NUL-terminated. -ENOTSUP: the template is one of ids. */
int zinf_chat_render(const struct zinf_chat *chat, const struct zinf_chat_message *messages,
                     size_t n, bool answers, char **text);
/* The template in the notation of transformers, for a folder's chat_template.jinja: heap. -ENOTSUP
 * as above. */
int zinf_chat_jinja(const struct zinf_chat *chat, char **text);

/* ---- formats ---- */
/* The templates that are known by name, one by one; NULL behind the last. */
const char *zinf_chat_known(size_t i);

enum zinf_format {
    ZINF_FORMAT_STREAM,   /* texts, joined and cut into windows: no samples (text.h) */
    ZINF_FORMAT_TEXT,     /* "text": a sample each, of which all counts */
    ZINF_FORMAT_ALPACA,   /* instruction, input?, output, system?, history? */
    ZINF_FORMAT_SHAREGPT, /* conversations: [{from, value}] */
    ZINF_FORMAT_MESSAGES, /* messages: [{role, content}] */
    ZINF_FORMAT_PROMPT,   /* prompt, completion: texts or messages */
    /* prompt, chosen, rejected: texts or messages; without a prompt it is what the two begin with.
     * A pair of samples. */
    ZINF_FORMAT_PREFERENCE,
    /* prompt, completion, label: whether that is what is wanted. Samples rotate (samples.h). */
    ZINF_FORMAT_UNPAIRED,
    ZINF_FORMAT_GDGPT, /* type: pretrain, instruct, conversation, conver_has_api or ref_qa */
    ZINF_FORMAT_IDS,   /* input_ids, labels?, attention_mask?: rows that are tokenised already */
    ZINF_FORMATS,
};
const char *zinf_format_name(enum zinf_format format); /* "stream", "text", "alpaca", ... */
int zinf_format_parse(const char *name, enum zinf_format *out);
/* By the names of the first row's fields; STREAM where they say nothing else, and where the file is
 * text, tokens or standard input. */
int zinf_format_tell(const char *path, enum zinf_format *out);

struct zinf_format_options {
    enum zinf_format format;
    const struct zinf_chat *chat; /* NULL: formats of conversations are refused */
    const struct zinf_tokenizer *tokenizer;
    const char *folder;      /* of the tokenizer: how it writes the end of a text */
    const char *text_column; /* of TEXT; NULL: "text" */
    bool train_on_prompt;    /* all tokens count */
    bool margins;            /* of PREFERENCE: the label of what was rejected has a "margin" */
    /* The begin and the end of a text are put as ids where it has none, whatever the tokenizer puts
     * around texts: as TRL's trainers of ORPO and CPO do. */
    bool bare;
};
struct zinf_format_recipe;
/* Borrows the options. */
int zinf_format_open(struct zinf_format_recipe **out, const struct zinf_format_options *options);
const struct zinf_recipe *zinf_format_recipe(const struct zinf_format_recipe *recipe);
void zinf_format_close(struct zinf_format_recipe *recipe);

#ifdef __cplusplus
}
#endif
#endif
