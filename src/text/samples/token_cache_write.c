/*
 * token_cache_write: ids into the file of a cache, in bounded memory. The header comes last: a file
 * without one is no cache.
 */
#include "text/samples/token_cache.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>

uint64_t token_cache_check(const struct token_cache_header *header)
{
    return XXH3_64bits(header, offsetof(struct token_cache_header, check));
}

void token_cache_describe(struct token_cache_header *header, const struct stat *source,
                          uint64_t key)
{
    *header = (struct token_cache_header){.magic = TOKEN_CACHE_MAGIC, .key = key};
    header->source_bytes = (uint64_t)source->st_size;
    header->source_ns = (int64_t)source->st_mtim.tv_sec * 1000000000 + source->st_mtim.tv_nsec;
}

bool token_cache_same_source(const struct token_cache_header *a, const struct token_cache_header *b)
{
    return a->magic == b->magic && a->key == b->key && a->source_bytes == b->source_bytes &&
           a->source_ns == b->source_ns;
}

static int write_all(struct token_cache_writer *writer, const void *data, size_t bytes,
                     uint64_t offset)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n =
            pwrite(writer->fd, (const char *)data + done, bytes - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return zinf_fail(-errno, "cannot write the token cache %s: %s", writer->path,
                             strerror(errno));
        done += (size_t)n;
    }
    return 0;
}

int token_cache_put(struct token_cache_writer *writer, const int32_t *ids, size_t count)
{
    for (size_t first = 0; first < count; first += TOKEN_CACHE_BUFFER) {
        size_t n = count - first < TOKEN_CACHE_BUFFER ? count - first : TOKEN_CACHE_BUFFER;
        for (size_t i = 0; i < n; i++) {
            uint32_t id = (uint32_t)ids[first + i];
            uint16_t narrow = (uint16_t)id;
            if (writer->header.id_bytes == 2)
                memcpy(writer->buffer + 2 * i, &narrow, 2);
            else
                memcpy(writer->buffer + 4 * i, &id, 4);
            if ((id & writer->id_mask) > writer->header.largest || writer->header.count + i == 0) {
                writer->header.largest = id & writer->id_mask;
                writer->header.largest_at = writer->header.count + i;
            }
        }
        size_t bytes = n * writer->header.id_bytes;
        int code = write_all(writer, writer->buffer, bytes, writer->offset);
        if (!code)
            code = token_sums_add(&writer->sums, writer->buffer, bytes);
        if (code)
            return code;
        writer->offset += bytes;
        writer->header.count += n;
    }
    return 0;
}

static int check_unchanged(int source, const char *path, const struct token_cache_header *header)
{
    struct stat info;
    struct token_cache_header now;
    if (fstat(source, &info))
        return zinf_fail(-errno, "cannot stat %s: %s", path, strerror(errno));
    token_cache_describe(&now, &info, header->key);
    if (!token_cache_same_source(&now, header))
        return zinf_fail(-EIO, "%s was changed while it was read: try again", path);
    return 0;
}

/* The checksums and the source's lines behind the ids, then the header before them; *sums becomes
 * the caller's. */
static int end_writing(struct token_cache_writer *writer, const struct zinf_lines *lines,
                       uint32_t **sums)
{
    int code = token_sums_end(&writer->sums);
    uint64_t n = writer->sums.n, bytes = n * sizeof(uint32_t);
    if (!code)
        code = write_all(writer, writer->sums.sums, bytes, writer->offset);
    if (!code)
        code = write_all(writer, lines, sizeof *lines, writer->offset + bytes);
    writer->header.sums = code ? 0 : token_sums_of(writer->sums.sums, n);
    writer->header.lines = XXH3_64bits(lines, sizeof *lines);
    writer->header.check = token_cache_check(&writer->header);
    if (!code)
        code = write_all(writer, &writer->header, sizeof writer->header, 0);
    *sums = code ? NULL : writer->sums.sums;
    writer->sums.sums = code ? writer->sums.sums : NULL;
    return code;
}

int token_cache_write(struct text_token_cache *cache, const struct token_cache_origin *from,
                      struct token_cache_header *header)
{
    const char *path = text_source_path(from->source);
    struct token_cache_writer *writer = calloc(1, sizeof *writer);
    if (!writer)
        return zinf_fail(-ENOMEM, "no memory to tokenize %s", path);
    writer->header = *header;
    writer->header.id_bytes = from->content->id_bytes;
    writer->fd = cache->fd;
    writer->path = cache->name;
    writer->offset = TOKEN_CACHE_DATA;
    writer->id_mask = UINT32_MAX;
    cache->lines = malloc(sizeof *cache->lines);
    int code = cache->lines ? from->content->write(from->content->arg, from->source, writer)
                            : zinf_fail(-ENOMEM, "no memory to tokenize %s", path);
    if (!code)
        code = text_source_lines(from->source, cache->lines);
    if (!code && from->is_file)
        code = check_unchanged(from->fd, path, header);
    if (!code && !writer->header.count)
        code = zinf_fail(-EINVAL, "%s has no text", path);
    if (!code)
        code = end_writing(writer, cache->lines, &cache->sums);
    *header = writer->header;
    free(writer->sums.sums);
    free(writer);
    return code;
}
