/* token_cache_text: the cache of a text file's tokens, as one stream (stream.c). */
#include "text/samples/token_cache.h"

#include <xxhash.h>

struct texts {
    const char *column;
    bool skips;
    struct text_stream stream;
};

static uint64_t key_of_texts(const void *arg, enum text_kind kind)
{
    const struct texts *texts = arg;
    const struct zinf_tokenizer *tokenizer = texts->stream.tokenizer;
    uint64_t column = kind ? XXH3_64bits(texts->column, strlen(texts->column)) : 0;
    uint64_t parts[4] = {zinf_tokenizer_fingerprint(tokenizer), kind,
                         (uint64_t)zinf_tokenizer_end_of_text(tokenizer), column + texts->skips};
    return XXH3_64bits(parts, sizeof parts);
}

static int put(void *arg, const int32_t *ids, size_t n)
{
    return token_cache_put(arg, ids, n);
}

static int write_texts(void *arg, struct text_source *source, struct token_cache_writer *writer)
{
    struct texts *texts = arg;
    struct text_sink sink = {
        .feed = text_stream_feed, .handle = &texts->stream, .skips = texts->skips};
    int code = text_stream_init(&texts->stream, texts->stream.tokenizer);
    texts->stream.put = put;
    texts->stream.arg = writer;
    if (!code)
        code = text_documents_read(source, texts->column, 0, &sink);
    if (!code && sink.n_left)
        zinf_log(ZINF_LOG_WARN, "%llu documents left out: %s", (unsigned long long)sink.n_left,
                 sink.first_left);
    text_stream_fini(&texts->stream);
    return code;
}

int text_token_cache_open(struct text_token_cache *cache, const char *path, const char *column,
                          bool skips, const struct zinf_tokenizer *tokenizer,
                          const char *cache_folder)
{
    struct texts texts = {
        .column = column ? column : "text", .skips = skips, .stream = {.tokenizer = tokenizer}};
    const struct token_cache_content content = {
        .key = key_of_texts,
        .write = write_texts,
        .arg = &texts,
        .id_bytes = zinf_tokenizer_vocab(tokenizer) <= 65536 ? 2 : 4,
    };
    return token_cache_open(cache, path, cache_folder, &content);
}
