/*
 * chat_encode: a written conversation as ids. The whole text is encoded at once, so that ids are
 * those of transformers; which of them stand for a part that counts is found by encoding the text
 * up to where the part begins and ends: what both encodings have in common lies before it.
 */
#include "text/chat/chat_template.h"

#include <stdlib.h>

static int encode_parts(const struct chat_script *script, const struct zinf_tokenizer *tokenizer,
                        struct zinf_sample *sample)
{
    int code = 0;
    for (size_t i = 0; !code && i < script->n_parts; i++) {
        const struct chat_part *part = &script->parts[i];
        unsigned marks = part->counts ? ZINF_MARK_COUNTS : 0;
        code = part->id >= 0
                   ? zinf_sample_add_ids(sample, &part->id, 1, marks)
                   : zinf_sample_add_text(sample, tokenizer, script->text.bytes + part->begin,
                                          part->end - part->begin, marks);
    }
    return code;
}

/* What a part of the text is as ids, beside the whole. */
struct prefix {
    size_t n_ids, n_common;
};

static int encode_prefix(const struct zinf_tokenizer *tokenizer, const struct chat_script *script,
                         size_t bytes, const struct zinf_tokens *whole, size_t first,
                         struct prefix *out)
{
    struct zinf_tokens part = {0};
    size_t n = 0;
    int code = zinf_tokenizer_encode(tokenizer, script->text.bytes, bytes, &part);
    while (!code && n < part.count && first + n < whole->count &&
           part.ids[n] == whole->ids[first + n])
        n++;
    *out = (struct prefix){part.count, n};
    zinf_tokens_free(&part);
    return code;
}

/* The token that byte `begin` is in. A token may swallow the white space behind it: then the byte
 * is in that one, and encoding it too gives no other ids. */
static int first_token(const struct zinf_tokenizer *tokenizer, const struct chat_script *script,
                       size_t begin, const struct zinf_tokens *ids, size_t first, size_t *out)
{
    size_t used, left = script->text.count - begin;
    struct prefix before, with;
    int code = encode_prefix(tokenizer, script, begin, ids, first, &before);
    *out = before.n_common;
    if (code || !text_is_white_space(text_utf8_next(script->text.bytes + begin, left, &used)))
        return code;
    code = encode_prefix(tokenizer, script, begin + used, ids, first, &with);
    if (before.n_ids == before.n_common && with.n_ids == with.n_common &&
        with.n_ids == before.n_ids && *out)
        --*out;
    return code;
}

static int mark_span(const struct zinf_tokenizer *tokenizer, const struct chat_script *script,
                     size_t begin, size_t end, struct zinf_sample *sample, size_t first)
{
    size_t from;
    struct prefix to;
    int code = first_token(tokenizer, script, begin, &sample->ids, first, &from);
    if (!code)
        code = encode_prefix(tokenizer, script, end, &sample->ids, first, &to);
    if (code)
        return code;
    to.n_common += to.n_common < to.n_ids; /* a token reaches across the end */
    for (size_t i = first + from; i < first + to.n_common && i < sample->ids.count; i++)
        sample->marks[i] |= ZINF_MARK_COUNTS;
    return 0;
}

int chat_script_encode(const struct chat_script *script, const struct zinf_tokenizer *tokenizer,
                       bool separate, struct zinf_sample *sample)
{
    if (separate)
        return encode_parts(script, tokenizer, sample);
    size_t first = sample->ids.count;
    int code = zinf_sample_add_text(sample, tokenizer, script->text.bytes, script->text.count, 0);
    for (size_t i = 0; !code && i < script->n_parts;) {
        size_t next = i + 1;
        while (next < script->n_parts && script->parts[next].counts == script->parts[i].counts)
            next++;
        if (script->parts[i].counts)
            code = mark_span(tokenizer, script, script->parts[i].begin, script->parts[next - 1].end,
                             sample, first);
        i = next;
    }
    return code;
}

int chat_frame(const struct zinf_tokenizer *tokenizer, bool open, struct zinf_sample *sample)
{
    struct zinf_sample framed = ZINF_SAMPLE_EMPTY;
    struct zinf_tokens ids = {0};
    const size_t n = sample->ids.count;
    const bool ends = n && sample->marks[n - 1] & ZINF_MARK_COUNTS;
    uint32_t front, behind;
    zinf_tokenizer_sides(tokenizer, &front, &behind);
    if (!front && !behind)
        return 0;
    int code = zinf_tokenizer_frame(tokenizer, &sample->ids, NULL, &ids, NULL);
    if (!code)
        code = zinf_sample_add_ids(&framed, ids.ids, open ? front + n : ids.count,
                                   ends ? ZINF_MARK_COUNTS : 0);
    if (!code) {
        memset(framed.marks, 0, front);
        if (n)
            memcpy(framed.marks + front, sample->marks, n);
        sample->ids.count = 0;
        code = zinf_sample_add_ids(sample, framed.ids.ids, framed.ids.count, 0);
    }
    if (!code)
        memcpy(sample->marks, framed.marks, framed.ids.count);
    zinf_tokens_free(&ids);
    zinf_sample_free(&framed);
    return code;
}

int zinf_chat_encode(const struct zinf_chat *chat, const struct zinf_chat_message *messages,
                     size_t n, bool answers, struct zinf_sample *sample)
{
    struct chat_script script = {0};
    int code = chat_write(&script, chat, messages, n, answers);
    if (!code)
        code = chat_script_encode(&script, chat->tokenizer, chat->template->separate, sample);
    if (!code && chat->template->framed)
        code = chat_frame(chat->tokenizer, answers, sample);
    chat_script_free(&script);
    return code;
}

int zinf_chat_render(const struct zinf_chat *chat, const struct zinf_chat_message *messages,
                     size_t n, bool answers, char **text)
{
    struct chat_script script = {0};
    if (chat->template->separate)
        return zinf_fail(-ENOTSUP, "the chat template \"%s\" is one of ids, not of text",
                         chat->template->name);
    int code = chat_write(&script, chat, messages, n, answers);
    *text = code ? NULL : malloc(script.text.count + 1);
    if (!code && !*text)
        code = zinf_fail(-ENOMEM, "no memory for a conversation");
    if (!code) {
        if (script.text.count)
            memcpy(*text, script.text.bytes, script.text.count);
        (*text)[script.text.count] = 0;
    }
    chat_script_free(&script);
    return code;
}
