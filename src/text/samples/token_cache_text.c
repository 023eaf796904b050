/*
 * token_cache_text: a text as the ids of its tokens, document by document, with an end-of-text
 * token between two documents.
 */
#include "text/samples/token_cache.h"

#include <xxhash.h>

struct stream {
    const struct zinf_tokenizer *tokenizer;
    const char *column;
    bool skips;
    struct text_encoder encoder;
    struct zinf_tokens tokens;
    struct token_cache_writer *writer;
    int32_t separator; /* -1: none */
    bool after_document, in_document;
};

static uint64_t key_of_stream(const void *arg, enum text_kind kind)
{
    const struct stream *stream = arg;
    uint64_t column = kind ? XXH3_64bits(stream->column, strlen(stream->column)) : 0;
    uint64_t parts[4] = {zinf_tokenizer_fingerprint(stream->tokenizer), kind,
                         (uint64_t)zinf_tokenizer_end_of_text(stream->tokenizer),
                         column + stream->skips};
    return XXH3_64bits(parts, sizeof parts);
}

static int feed_stream(void *handle, const char *text, size_t begin, size_t end, bool last,
                       size_t *consumed)
{
    struct stream *stream = handle;
    int code = 0;
    /* The separator goes before a document that turns out not to be empty. */
    if (end > begin && !stream->in_document) {
        stream->in_document = true;
        if (stream->after_document && stream->separator >= 0)
            code = token_cache_put(stream->writer, &stream->separator, 1);
    }
    if (!code)
        code = text_encoder_feed(&stream->encoder, text, begin, end, last, consumed);
    if (!code)
        code = token_cache_put(stream->writer, stream->tokens.ids, stream->tokens.count);
    stream->tokens.count = 0;
    if (last) {
        stream->after_document |= stream->in_document;
        stream->in_document = false;
        text_encoder_restart(&stream->encoder);
    }
    return code;
}

static int write_stream(void *arg, struct text_source *source, struct token_cache_writer *writer)
{
    struct stream *stream = arg;
    struct text_sink sink = {.feed = feed_stream, .handle = stream, .skips = stream->skips};
    stream->writer = writer;
    int code = text_encoder_init(&stream->encoder, stream->tokenizer, &stream->tokens);
    if (!code)
        code = text_documents_read(source, stream->column, 0, &sink);
    if (!code && sink.n_left)
        zinf_log(ZINF_LOG_WARN, "%llu documents left out: %s", (unsigned long long)sink.n_left,
                 sink.first_left);
    text_encoder_fini(&stream->encoder);
    zinf_tokens_free(&stream->tokens);
    return code;
}

int text_token_cache_open(struct text_token_cache *cache, const char *path, const char *column,
                          bool skips, const struct zinf_tokenizer *tokenizer,
                          const char *cache_folder)
{
    struct stream stream = {
        .tokenizer = tokenizer,
        .column = column ? column : "text",
        .skips = skips,
        .separator = zinf_tokenizer_end_of_text(tokenizer),
    };
    const struct token_cache_content content = {
        .key = key_of_stream,
        .write = write_stream,
        .arg = &stream,
        .id_bytes = zinf_tokenizer_vocab(tokenizer) <= 65536 ? 2 : 4,
    };
    return token_cache_open(cache, path, cache_folder, &content);
}
