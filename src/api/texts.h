/*
 * texts: how a session's model makes texts. A *setup* is what decides a text besides its prompt:
 * the settings of options and of the model's folder, strings that end it, a chat template. A *text*
 * goes from a prompt to tokens, and, as it grows, back to characters. Tokens need not end where
 * characters do, and decoding may depend on what is before, so the whole text is decoded after each
 * token.
 *
 * Threads: as the session's. Errors: -errno and a sentence.
 */
#ifndef ZINF_API_TEXTS_H
#define ZINF_API_TEXTS_H

#include "api/session.h"

struct text_setup {
    struct zinf_session *s;
    struct generate_settings settings;
    struct zinf_words stops;
    const struct zinf_chat *chat; /* NULL: prompts are continued as they are */
};
/* What has been said stands in it; the rest comes from the model's folder and the template, whose
 * end of a turn ends texts. */
int text_setup_fill(struct text_setup *setup);
/* The template of option chat-template, or of the adapter's folder, or of the model's. */
int text_open_chat(const struct zinf_session *s, struct zinf_chat **out);

struct text {
    int64_t number; /* of the prompt, in messages */
    struct zinf_text made;
    struct zinf_tokens source; /* of an encoder-decoder */

    size_t first; /* of the prompt's own tokens: special ones are before it, which are not shown */
    char *all;    /* prompt and new tokens as characters */
    size_t bytes, prompt_bytes;
    size_t end;  /* where it is cut: at a stop string, or all */
    size_t from; /* where what is shown begins; */
    size_t told; /* and as far as it was, when it grows */
};
int text_begin(const struct text_setup *setup, struct text *text, const char *prompt);
int text_begin_chat(const struct text_setup *setup, struct text *text,
                    const struct zinf_chat_message *messages, size_t n);
void text_free(struct text *text);
/* After each new token: its characters. 1: a stop string is there, before which the text ends. */
int text_decode(const struct text_setup *setup, struct text *text);
/* Up to where the characters will stay as they are: an unfinished character, and what may be the
 * beginning of a stop string, may still change. */
size_t text_settled(const struct text_setup *setup, const struct text *text);
/* Where the new text begins: behind the prompt. */
static inline size_t text_new(const struct text *text)
{
    return text->prompt_bytes < text->end ? text->prompt_bytes : text->end;
}

/* A trainer that remembers so much, or one that computes every text again for each token, where
 * that cannot be remembered: one of a net's ranks (NULL: it is alone), with a GPU of its own (NULL:
 * whichever there is). */
struct text_trainer {
    const struct zinf_decode_shape *shape;
    struct zinf_net *net;
    const int *gpu;
};
int text_make_trainer(const struct zinf_session *s, const struct text_trainer *wanted,
                      struct zinf_trainer **out);
/* The session's, which is alone, and made where it is not there or remembers less. */
int text_need_trainer(struct zinf_session *s, const struct zinf_decode_shape *shape,
                      struct zinf_trainer **out);
/* New tokens of a call: where parameters are fetched, every call fetches them, and prompts go
 * through it in few calls. */
int64_t text_rows(const struct zinf_session *s);
#define TEXT_USUAL_BATCH 16

#endif
