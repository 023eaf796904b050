/*
 * chat_template: what a template says, and a conversation that is written by one. Inside this
 * folder only.
 */
#ifndef ZINF_CHAT_TEMPLATE_H
#define ZINF_CHAT_TEMPLATE_H

#include "text/chat/chat.h"
#include "text/internal.h"

/* In the strings of a template. */
#define CHAT_BEGIN "\1" /* of a text, as the tokenizer writes it */
#define CHAT_END "\2"
#define CHAT_ROLE "\3"  /* the turn's */
#define CHAT_BREAK "\4" /* a part ends */

/* A turn is before, content, stop, after; an assistant's content and stop count. before NULL: there
 * are no such turns. */
struct chat_turn {
    const char *before, *stop, *after;
};
struct chat_template {
    const char *name;
    const char *begin;     /* before all */
    const char *no_system; /* where the first turn is not the system's */
    struct chat_turn system, user, assistant, tool;
    /* What the system says stands between these at the beginning of the first user's turn. */
    const char *system_in_user[2];
    const char *answer; /* the beginning of an assistant's turn that is to be gone on with */
    const char *end;    /* after all, without answer */
    bool trims;         /* content, of white space at its ends */
    /* Each part is encoded by itself; "#195" is the token 195. */
    bool separate;
    /* A plain text, around which the tokenizer puts its tokens as around any other. */
    bool framed;
    /* The stop comes after the last turn alone: others end where the next one's first part says
     * who speaks, which counts. */
    bool stops_by_role;
};
extern const struct chat_template chat_templates[];
extern const int n_chat_templates;

struct zinf_chat {
    const struct chat_template *template;
    const struct zinf_tokenizer *tokenizer;
    char *begin, *end; /* of a text, as the tokenizer writes them; "" where it does not */
};

/* chat_folder.c: how folder's tokenizer_config.json writes the begin (key "bos_token") or end of a
 * text; *out is the caller's. "" where it does not say. */
int chat_special(const char *folder, const char *key, char **out);
/* How the end of a text is written: "eos_token", or the tokenizer's own end-of-text token. */
int chat_end_of_text(const char *folder, const struct zinf_tokenizer *tokenizer, char **out);

/* chat_jinja.c: appends the template in the notation of transformers; -ENOTSUP as below. */
int chat_write_jinja(struct text_buffer *out, const struct chat_template *t);

/* chat_render.c: a conversation as a row of parts. */
struct chat_part {
    size_t begin, end; /* in the text */
    int32_t id;        /* the part is this token; -1: it is text */
    bool counts;
};
struct chat_script {
    struct text_buffer text;
    struct chat_part *parts; /* one behind the other, without gaps */
    size_t n_parts, capacity;
};
/* Another part at the text's end. */
int chat_script_add(struct chat_script *script, const char *text, size_t bytes, bool counts);
int chat_write(struct chat_script *script, const struct zinf_chat *chat,
               const struct zinf_chat_message *messages, size_t n, bool answers);
void chat_script_free(struct chat_script *script);

/* chat_encode.c: appends the ids of the whole text; what counts begins with the token that its
 * first character is in, as in transformers. separate: of each part. */
int chat_script_encode(const struct chat_script *script, const struct zinf_tokenizer *tokenizer,
                       bool separate, struct zinf_sample *sample);
/* Puts the tokenizer's tokens around a sample that is one text; open: none behind it. */
int chat_frame(const struct zinf_tokenizer *tokenizer, bool open, struct zinf_sample *sample);

#endif
