/*
 * fatbin: the PTX in what nvcc embeds: a header of 16 bytes, then entries, each with a header of
 * its own. The layout is not documented; it was read off nvcc 12 and 13, and whatever does not look
 * so is passed over. The driver compiles the PTX of the newest generation that is not newer than
 * the GPU; so does this.
 */
#include "fatbin.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

enum { WRAPPER_MAGIC = 0x466243b1 };
static const uint32_t MAGIC = 0xba55ed50;
enum { KIND_PTX = 1, ZSTD = 0x8000, LZ4 = 0x2000 };

struct header {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t bytes; /* of the entries */
};

struct entry {
    uint16_t kind, version;
    uint32_t header_bytes;
    uint64_t bytes;
    uint32_t compressed_bytes, unknown;
    uint16_t minor, major;
    uint32_t generation;
    uint32_t name, name_bytes;
    uint64_t flags, zero, text_bytes;
};

static char *unpack(const struct entry *e, size_t *n)
{
    const char *payload = (const char *)e + e->header_bytes;
    if (e->flags & LZ4)
        return NULL;
    *n = e->flags & ZSTD ? (size_t)e->text_bytes : (size_t)e->bytes;
    char *text = malloc(*n + 1);
    if (!text)
        return NULL;
    if (!(e->flags & ZSTD))
        memcpy(text, payload, *n);
    else if (ZSTD_isError(ZSTD_decompress(text, *n, payload, e->compressed_bytes))) {
        free(text);
        return NULL;
    }
    text[*n] = 0;
    *n = strlen(text);
    return text;
}

char *fatbin_ptx(const void *wrapper, int capability, size_t *n)
{
    const struct {
        uint32_t magic, version;
        const struct header *header;
    } *w = wrapper;
    const struct entry *best = NULL;
    if (w->magic != WRAPPER_MAGIC || w->header->magic != MAGIC)
        return NULL;
    const char *at = (const char *)w->header + w->header->header_bytes;
    const char *end = at + w->header->bytes;
    while (at + sizeof(struct entry) <= end) {
        const struct entry *e = (const struct entry *)(const void *)at;
        if (e->kind == KIND_PTX && (int)e->generation <= capability &&
            (!best || e->generation > best->generation))
            best = e;
        at += e->header_bytes + e->bytes;
    }
    return best ? unpack(best, n) : NULL;
}
