/*
 * stream: a text as the ids of its tokens, document by document, with an end-of-text token between
 * two documents.
 */
#include "text/internal.h"

int text_stream_init(struct text_stream *stream, const struct zinf_tokenizer *tokenizer)
{
    *stream = (struct text_stream){.tokenizer = tokenizer,
                                   .separator = zinf_tokenizer_end_of_text(tokenizer)};
    return text_encoder_init(&stream->encoder, tokenizer, &stream->tokens);
}

void text_stream_fini(struct text_stream *stream)
{
    text_encoder_fini(&stream->encoder);
    zinf_tokens_free(&stream->tokens);
}

int text_stream_feed(void *handle, const char *text, size_t begin, size_t end, bool last,
                     size_t *consumed)
{
    struct text_stream *stream = handle;
    int code = 0;
    /* The separator goes before a document that turns out not to be empty. */
    if (end > begin && !stream->in_document) {
        stream->in_document = true;
        if (stream->after_document && stream->separator >= 0)
            code = stream->put(stream->arg, &stream->separator, 1);
    }
    if (!code)
        code = text_encoder_feed(&stream->encoder, text, begin, end, last, consumed);
    if (!code)
        code = stream->put(stream->arg, stream->tokens.ids, stream->tokens.count);
    stream->tokens.count = 0;
    if (last) {
        stream->after_document |= stream->in_document;
        stream->in_document = false;
        text_encoder_restart(&stream->encoder);
    }
    return code;
}
