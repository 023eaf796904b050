/*
 * decode: ids to text. A token may hold a part of a character, so bytes are joined first and read
 * as UTF-8 after; each malformed part becomes one U+FFFD. Ids without a token (a model's padding
 * rows) stand for nothing.
 */
#include "text/internal.h"

#include <stdlib.h>

#define REPLACEMENT "\xef\xbf\xbd"

static size_t joined_bytes(const struct zinf_tokenizer *tokenizer, const int32_t *ids, size_t count,
                           char *out)
{
    const struct text_vocab *vocab = &tokenizer->vocab;
    size_t total = 0;
    for (size_t i = 0; i < count; i++) {
        if (ids[i] < 0 || !text_vocab_has(vocab, (uint32_t)ids[i]))
            continue;
        size_t n = vocab->lengths[ids[i]];
        if (out)
            memcpy(out + total, vocab->bytes + vocab->offsets[ids[i]], n);
        total += n;
    }
    return total;
}

/* Copies with replacement, or only counts when out is NULL. */
static size_t repair(const char *bytes, size_t n, char *out)
{
    size_t written = 0;
    for (size_t at = 0; at < n;) {
        int32_t stopped_at;
        size_t valid = text_utf8_valid(bytes + at, n - at, &stopped_at), used;
        if (out)
            memcpy(out + written, bytes + at, valid);
        written += valid;
        at += valid;
        if (at == n)
            break;
        text_utf8_next(bytes + at, n - at, &used);
        if (out)
            memcpy(out + written, REPLACEMENT, 3);
        written += 3;
        at += used;
    }
    return written;
}

int zinf_tokenizer_decode(const struct zinf_tokenizer *tokenizer, const int32_t *ids, size_t count,
                          char **text, size_t *bytes)
{
    size_t raw_bytes = joined_bytes(tokenizer, ids, count, NULL);
    char *raw = malloc(raw_bytes + 1), *out = NULL;
    if (!raw)
        return zinf_fail(-ENOMEM, "no memory to decode %zu tokens", count);
    joined_bytes(tokenizer, ids, count, raw);
    size_t out_bytes = repair(raw, raw_bytes, NULL);
    out = malloc(out_bytes + 1);
    if (!out) {
        free(raw);
        return zinf_fail(-ENOMEM, "no memory to decode %zu tokens", count);
    }
    repair(raw, raw_bytes, out);
    out[out_bytes] = 0;
    free(raw);
    *text = out;
    *bytes = out_bytes;
    return 0;
}
