/*
 * model: a piece to the model that the tokenizer has. Text repeats its words, so pieces and their
 * ids are kept in a table of fixed size, where a newer one takes the place of an older.
 */
#include "text/tokenizer/tokenizer.h"

#include <stdlib.h>
#include <xxhash.h>

#define CACHE_SLOTS (1u << 14) /* of 64 bytes: 1 MiB, which stays in a core's cache */
#define CACHED_BYTES 30
#define CACHED_IDS 8

struct text_cache {
    struct {
        uint8_t bytes, n_ids; /* bytes 0: free */
        char piece[CACHED_BYTES];
        int32_t ids[CACHED_IDS];
    } slots[CACHE_SLOTS];
};

int text_scratch_create(struct text_scratch **out)
{
    *out = calloc(1, sizeof **out);
    if (*out)
        (*out)->cache = calloc(1, sizeof *(*out)->cache);
    if (*out && (*out)->cache)
        return 0;
    text_scratch_destroy(*out);
    *out = NULL;
    return zinf_fail(-ENOMEM, "no memory to tokenize");
}

void text_scratch_destroy(struct text_scratch *scratch)
{
    if (!scratch)
        return;
    free(scratch->symbols);
    free(scratch->heap);
    free(scratch->paths);
    free(scratch->cache);
    free(scratch);
}

static int encode(const struct zinf_tokenizer *tokenizer, const char *piece, size_t bytes,
                  struct text_scratch *scratch, struct zinf_tokens *tokens)
{
    int64_t id;
    switch (tokenizer->kind) {
    case TEXT_MODEL_BPE:
        return text_bpe_encode(&tokenizer->bpe, &tokenizer->vocab, piece, bytes, scratch, tokens);
    case TEXT_MODEL_UNIGRAM:
        return text_unigram_encode(&tokenizer->unigram, &tokenizer->vocab, piece, bytes, scratch,
                                   tokens);
    case TEXT_MODEL_WORDPIECE:
        return text_wordpiece_encode(&tokenizer->wordpiece, piece, bytes, tokens);
    case TEXT_MODEL_WORDLEVEL:
        id = text_vocab_find(&tokenizer->vocab, piece, bytes);
        id = id < 0 ? tokenizer->wordpiece.unknown : id;
        if (id < 0)
            break;
        return text_tokens_push(tokens, (int32_t)id);
    case TEXT_MODEL_SENTENCEPIECE:
        return text_sentencepiece_put(tokenizer, piece, bytes, tokens);
    case TEXT_MODEL_BYTES:
        break;
    }
    return zinf_fail(-EINVAL, "the tokenizer does not know \"%.*s\", and has no token for that",
                     (int)(bytes < 100 ? bytes : 100), piece);
}

int text_model_encode(const struct zinf_tokenizer *tokenizer, const char *piece, size_t bytes,
                      struct text_scratch *scratch, struct zinf_tokens *tokens)
{
    struct text_cache *cache = scratch->cache;
    if (bytes > CACHED_BYTES || bytes < 2)
        return encode(tokenizer, piece, bytes, scratch, tokens);
    size_t slot = XXH3_64bits(piece, bytes) & (CACHE_SLOTS - 1);
    if (cache->slots[slot].bytes == bytes && !memcmp(cache->slots[slot].piece, piece, bytes)) {
        int code = 0;
        for (int i = 0; i < cache->slots[slot].n_ids && !code; i++)
            code = text_tokens_push(tokens, cache->slots[slot].ids[i]);
        return code;
    }
    size_t before = tokens->count;
    int code = encode(tokenizer, piece, bytes, scratch, tokens);
    size_t n = tokens->count - before;
    if (!code && n <= CACHED_IDS) {
        cache->slots[slot].bytes = (uint8_t)bytes;
        cache->slots[slot].n_ids = (uint8_t)n;
        memcpy(cache->slots[slot].piece, piece, bytes);
        if (n)
            memcpy(cache->slots[slot].ids, tokens->ids + before, n * sizeof *tokens->ids);
    }
    return code;
}
