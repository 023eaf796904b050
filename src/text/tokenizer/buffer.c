/* buffer: bytes and token ids that grow, and the repair of text that is not UTF-8. */
#include "text/internal.h"

#include <stdlib.h>

#define REPLACEMENT "\xef\xbf\xbd"

int text_buffer_reserve(struct text_buffer *buffer, size_t more)
{
    if (more <= buffer->capacity - buffer->count)
        return 0;
    if (buffer->limit && (more > buffer->limit || buffer->count > buffer->limit - more))
        return zinf_fail(-E2BIG, "more than %zu MiB", buffer->limit >> 20);
    size_t capacity = buffer->capacity + buffer->capacity / 2 + more + 64;
    char *grown = more <= SIZE_MAX / 4 ? realloc(buffer->bytes, capacity) : NULL;
    if (!grown)
        return zinf_fail(-ENOMEM, "no memory for %zu bytes of text", capacity);
    buffer->bytes = grown;
    buffer->capacity = capacity;
    return 0;
}

int text_buffer_add(struct text_buffer *buffer, const char *bytes, size_t n)
{
    int code = text_buffer_reserve(buffer, n);
    if (code || !n)
        return code;
    memcpy(buffer->bytes + buffer->count, bytes, n);
    buffer->count += n;
    return 0;
}

void text_buffer_free(struct text_buffer *buffer)
{
    free(buffer->bytes);
    *buffer = (struct text_buffer){0};
}

int text_buffer_repair(struct text_buffer *buffer, const char *bytes, size_t n)
{
    int code = 0;
    for (size_t at = 0; at < n && !code;) {
        int32_t stopped_at;
        size_t valid = text_utf8_valid(bytes + at, n - at, &stopped_at), used;
        code = text_buffer_add(buffer, bytes + at, valid);
        at += valid;
        if (at == n || code)
            break;
        text_utf8_next(bytes + at, n - at, &used);
        code = text_buffer_add(buffer, REPLACEMENT, strlen(REPLACEMENT));
        at += used;
    }
    return code;
}

int text_tokens_push(struct zinf_tokens *tokens, int32_t id)
{
    if (tokens->count == tokens->capacity) {
        size_t capacity = tokens->capacity ? 2 * tokens->capacity : 256;
        int32_t *grown = realloc(tokens->ids, capacity * sizeof *grown);
        if (!grown)
            return zinf_fail(-ENOMEM, "no memory for %zu token ids", capacity);
        tokens->ids = grown;
        tokens->capacity = capacity;
    }
    tokens->ids[tokens->count++] = id;
    return 0;
}

void zinf_tokens_free(struct zinf_tokens *tokens)
{
    free(tokens->ids);
    *tokens = (struct zinf_tokens){0};
}
