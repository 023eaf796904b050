/*
 * token_sums: checksums of a token cache, 32 bits of XXH3 for every block of ids, so that every
 * window that training reads is compared with what was written, whatever has happened to the file.
 */
#include "text/internal.h"

#include <stdlib.h>
#include <xxhash.h>

static int append(struct token_sums *s)
{
    if (s->n == s->capacity) {
        uint64_t capacity = s->capacity ? 2 * s->capacity : 1024;
        void *grown = realloc(s->sums, capacity * sizeof *s->sums);
        if (!grown)
            return zinf_fail(-ENOMEM, "no memory for the checksums of a token cache");
        s->sums = grown;
        s->capacity = capacity;
    }
    s->sums[s->n++] = (uint32_t)XXH3_64bits(s->block, s->filled);
    s->filled = 0;
    return 0;
}

int token_sums_add(struct token_sums *s, const void *ids, size_t bytes)
{
    const char *from = ids;
    int code = 0;
    while (!code && bytes) {
        size_t room = TOKEN_BLOCK - s->filled, n = bytes < room ? bytes : room;
        memcpy(s->block + s->filled, from, n);
        s->filled += (uint32_t)n;
        from += n;
        bytes -= n;
        if (s->filled == TOKEN_BLOCK)
            code = append(s);
    }
    return code;
}

int token_sums_end(struct token_sums *s)
{
    return s->filled ? append(s) : 0;
}

bool token_sums_agree(const uint32_t *sums, uint64_t block, const void *ids, size_t bytes)
{
    return (uint32_t)XXH3_64bits(ids, bytes) == sums[block];
}

uint64_t token_sums_of(const uint32_t *sums, uint64_t n)
{
    return XXH3_64bits(sums, n * sizeof *sums);
}
