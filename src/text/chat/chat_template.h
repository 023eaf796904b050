/*
 * chat_template: the description of a template, and a conversation written by it. Inside this
 * folder only.
 */
#ifndef ZINF_CHAT_TEMPLATE_H
#define ZINF_CHAT_TEMPLATE_H

#include "text/chat/chat.h"
#include "text/internal.h"

/* Placeholders in the strings of a template. */
#define CHAT_BEGIN "\1" /* the begin of a text, as the tokenizer writes it */
#define CHAT_END "\2"
#define CHAT_ROLE "\3"  /* the role of the turn */
#define CHAT_BREAK "\4" /* a part ends here */

/* A turn is before, content, stop, after. Of an assistant, content and stop count. before NULL: the
 * template has no such turns. */
struct chat_turn {
    const char *before, *stop, *after;
};
struct chat_template {
    const char *name;
    const char *begin;     /* before the first turn */
    const char *no_system; /* before the first turn if that is not the system's */
    struct chat_turn system, user, assistant, tool;
    /* The system's text is put between these at the beginning of the first user turn. */
    const char *system_in_user[2];
    const char *answer; /* the beginning of an assistant turn for the model to continue */
    const char *end;    /* behind the last turn, unless `answer` is there */
    bool trims;         /* white space at both ends of content is removed */
    /* Each part is encoded by itself; "#195" is token 195. */
    bool separate;
    /* A plain text: the tokenizer's special tokens are put around it. */
    bool framed;
    /* Only the last turn has the stop. Other turns end where the next one's first part names the
     * role, and that part counts. */
    bool stops_by_role;
};
extern const struct chat_template chat_templates[];
extern const int n_chat_templates;

struct zinf_chat {
    const struct chat_template *template;
    const struct zinf_tokenizer *tokenizer;
    char *begin, *end; /* of a text, as the tokenizer writes them, or "" */
};

/* chat_folder.c: how tokenizer_config.json writes a text's begin ("bos_token") or end; "" if it
 * does not say. The caller frees *out. */
int chat_special(const char *folder, const char *key, char **out);
/* How a text's end is written: "eos_token", or the tokenizer's own end-of-text token. */
int chat_end_of_text(const char *folder, const struct zinf_tokenizer *tokenizer, char **out);

/* chat_jinja.c: appends the template as Jinja; -ENOTSUP if it consists of ids. */
int chat_write_jinja(struct text_buffer *out, const struct chat_template *t);

/* chat_render.c: a conversation as a list of parts. */
struct chat_part {
    size_t begin, end; /* range of the text */
    int32_t id;        /* the part's token; -1: it is text */
    bool counts;
};
struct chat_script {
    struct text_buffer text;
    struct chat_part *parts; /* in order, without gaps */
    size_t n_parts, capacity;
};
/* Appends a part. */
int chat_script_add(struct chat_script *script, const char *text, size_t bytes, bool counts);
int chat_write(struct chat_script *script, const struct zinf_chat *chat,
               const struct zinf_chat_message *messages, size_t n, bool answers);
void chat_script_free(struct chat_script *script);

/* chat_encode.c: appends the ids of the whole text. A counting part begins with the token that has
 * its first character, as in transformers. separate: parts are encoded one by one. */
int chat_script_encode(const struct chat_script *script, const struct zinf_tokenizer *tokenizer,
                       bool separate, struct zinf_sample *sample);
/* Puts the tokenizer's special tokens around a sample that is one text. open: none behind it. */
int chat_frame(const struct zinf_tokenizer *tokenizer, bool open, struct zinf_sample *sample);

#endif
