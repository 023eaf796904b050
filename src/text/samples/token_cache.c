/*
 * token_cache: the token ids of one text or JSON file, in a file of their own. It is written once,
 * in bounded memory, under a temporary name, and used again while the text file's size and time,
 * the tokenizer and the rules here are the same. Read with pread: a mapping of a file that is cut
 * short under us would kill the process.
 *
 * File: a header of 128 bytes, the ids as uint16 or uint32, a checksum for every TOKEN_BLOCK bytes
 * of them, the sums of the text's lines, all in the machine's byte order; a cache from a machine of
 * the other order has another magic number, and is made anew. Every reading is compared with the
 * checksums.
 */
#include "text/samples/token_cache.h"

#include "base/apart.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

/* ---- where caches lie ---- */

/* A file without a name, gone when it is closed. */
static int open_private(int *out)
{
    const char *folders[] = {getenv("TMPDIR"), "/var/tmp", "/tmp"};
    int error = ENOENT;
    for (int i = 0; i < 3; i++) {
        char *path =
            folders[i] && *folders[i] ? zinf_path_join(folders[i], "zinf-tokens-XXXXXX") : NULL;
        if (!path)
            continue;
        int fd = mkstemp(path);
        if (fd < 0) {
            error = errno;
        } else {
            fcntl(fd, F_SETFD, FD_CLOEXEC);
            unlink(path);
        }
        free(path);
        if (fd >= 0) {
            *out = fd;
            return 0;
        }
    }
    return zinf_fail(-error,
                     "cannot make a temporary file for tokens: %s; set TMPDIR to a folder "
                     "with room",
                     strerror(error));
}

/* One file for each text file and tokenizer: FOLDER/NAME-HASH.tokens */
static char *cache_path(const char *folder, const char *path, uint64_t key)
{
    char name[320], *real = realpath(path, NULL);
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    uint64_t hash = XXH3_64bits_withSeed(real ? real : path, strlen(real ? real : path), key);
    free(real);
    snprintf(name, sizeof name, "%.200s-%016llx.tokens", base, (unsigned long long)hash);
    return zinf_path_join(folder, name);
}

static uint64_t blocks_of(const struct token_cache_header *header)
{
    return (header->count * header->id_bytes + TOKEN_BLOCK - 1) / TOKEN_BLOCK;
}

static uint32_t *read_sums(int fd, const struct token_cache_header *header)
{
    uint64_t n = blocks_of(header), bytes = n * sizeof(uint32_t), done = 0;
    uint64_t at = TOKEN_CACHE_DATA + header->count * header->id_bytes;
    char *sums = malloc(bytes);
    ssize_t got = 1;
    for (; sums && done < bytes && got > 0; done += got > 0 ? (uint64_t)got : 0)
        got = pread(fd, sums + done, bytes - done, (off_t)(at + done));
    if (sums && done == bytes && token_sums_of((uint32_t *)(void *)sums, n) == header->sums)
        return (uint32_t *)(void *)sums;
    free(sums);
    return NULL;
}

static bool is_whole(const struct token_cache_header *header, int fd)
{
    struct stat info;
    return header->check == token_cache_check(header) &&
           (header->id_bytes == 2 || header->id_bytes == 4) && header->count > 0 &&
           header->count < UINT64_MAX / 8 && !fstat(fd, &info) &&
           (uint64_t)info.st_size == TOKEN_CACHE_DATA + header->count * header->id_bytes +
                                         blocks_of(header) * sizeof(uint32_t) +
                                         sizeof(struct zinf_lines);
}

static struct zinf_lines *read_lines(int fd, const struct token_cache_header *header)
{
    struct zinf_lines *lines = malloc(sizeof *lines);
    uint64_t at =
        TOKEN_CACHE_DATA + header->count * header->id_bytes + blocks_of(header) * sizeof(uint32_t);
    if (lines && pread(fd, lines, sizeof *lines, (off_t)at) == (ssize_t)sizeof *lines &&
        XXH3_64bits(lines, sizeof *lines) == header->lines)
        return lines;
    free(lines);
    return NULL;
}

/* Opens an existing cache if it belongs to this source and its ends are whole. */
static void try_existing(struct text_token_cache *cache, struct token_cache_header *header)
{
    struct token_cache_header found;
    int fd = open(cache->name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return;
    if (pread(fd, &found, sizeof found, 0) == (ssize_t)sizeof found &&
        token_cache_same_source(&found, header) && is_whole(&found, fd) &&
        (cache->lines = read_lines(fd, &found)))
        cache->sums = read_sums(fd, &found);
    if (!cache->sums) {
        free(cache->lines);
        cache->lines = NULL;
        close(fd);
        return;
    }
    *header = found;
    cache->fd = fd;
    cache->reused = true;
}

static int make_named(struct text_token_cache *cache, const struct token_cache_origin *from,
                      struct token_cache_header *header)
{
    char *temporary = NULL;
    int code = zinf_file_temporary(cache->name, &temporary, &cache->fd);
    if (code)
        return zinf_fail_in(code, "the token cache");
    code = token_cache_write(cache, from, header);
    if (!code && fsync(cache->fd))
        code = zinf_fail(-errno, "cannot flush the token cache %s: %s", temporary, strerror(errno));
    if (!code && rename(temporary, cache->name))
        code = zinf_fail(-errno, "cannot rename %s to %s: %s", temporary, cache->name,
                         strerror(errno));
    if (code)
        unlink(temporary);
    free(temporary);
    return code;
}

static int open_cache_file(struct text_token_cache *cache, const struct token_cache_origin *from,
                           const char *folder, struct token_cache_header *header)
{
    const char *path = text_source_path(from->source);
    if (!folder || !from->is_file) {
        int code = open_private(&cache->fd);
        cache->name = strdup("(a temporary file)");
        if (!code && !cache->name)
            code = zinf_fail(-ENOMEM, "no memory for a name");
        return code ? code : token_cache_write(cache, from, header);
    }
    int code = zinf_apart_no_link(folder);
    if (!code)
        code = zinf_make_dirs(folder);
    cache->name = code ? NULL : cache_path(folder, path, header->key);
    if (!cache->name)
        return code ? code : -ENOMEM;
    try_existing(cache, header);
    return cache->reused ? 0 : make_named(cache, from, header);
}

/* Files have to be whole when the training goes on with them; pipes are read once. */
static int open_origin(struct token_cache_origin *from, const char *path, const char *name,
                       struct stat *info)
{
    bool standard = !strcmp(path, "-");
    from->fd =
        standard ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0) : open(path, O_RDONLY | O_CLOEXEC);
    if (from->fd < 0 || fstat(from->fd, info))
        return zinf_fail(-errno, "cannot open the data file %s: %s", name, strerror(errno));
    from->is_file = !standard && S_ISREG(info->st_mode);
    if (standard && isatty(from->fd))
        return zinf_fail(-EINVAL, "--data - reads standard input, which is a terminal: give a pipe "
                                  "or a file");
    if (S_ISDIR(info->st_mode))
        return zinf_fail(-EINVAL,
                         "the data file %s is a folder, not a regular file: --data '%s/*' "
                         "takes its files",
                         name, name);
    if (!standard && !from->is_file && !S_ISFIFO(info->st_mode))
        return zinf_fail(-EINVAL, "the data file %s is not a regular file", name);
    if (S_ISREG(info->st_mode) && !info->st_size)
        return zinf_fail(-EINVAL, "the data file %s is empty", name);
    return text_source_open(&from->source, from->fd, name);
}

int token_cache_open(struct text_token_cache *cache, const char *path, const char *folder,
                     const struct token_cache_content *content)
{
    const char *name = strcmp(path, "-") ? path : "standard input";
    struct token_cache_origin from = {.fd = -1, .content = content};
    struct stat info;
    struct token_cache_header header;
    *cache = (struct text_token_cache){.fd = -1, .path = strdup(name)};
    int code = cache->path ? open_origin(&from, path, name, &info)
                           : zinf_fail(-ENOMEM, "no memory to open %s", name);
    if (code)
        goto out;
    enum text_kind kind = text_source_kind(from.source);
    token_cache_describe(&header, &info, content->key(content->arg, kind));
    code = open_cache_file(cache, &from, folder, &header);
    cache->count = header.count;
    cache->id_bytes = header.id_bytes;
    cache->largest = header.largest;
    cache->largest_at = header.largest_at;
    cache->documents = kind != TEXT_PLAIN;
out:
    text_source_close(from.source);
    if (from.fd >= 0)
        close(from.fd);
    if (code)
        text_token_cache_close(cache);
    return code;
}

void text_token_cache_close(struct text_token_cache *cache)
{
    if (cache->fd >= 0)
        close(cache->fd);
    free(cache->path);
    free(cache->name);
    free(cache->sums);
    free(cache->lines);
    *cache = (struct text_token_cache){.fd = -1};
}

/* The block's bytes, compared; *bytes of them. */
static int read_block(const struct text_token_cache *cache, uint64_t block, char *buffer,
                      size_t *bytes)
{
    uint64_t at = block * TOKEN_BLOCK, left = cache->count * cache->id_bytes - at;
    size_t done = 0;
    *bytes = left < TOKEN_BLOCK ? (size_t)left : TOKEN_BLOCK;
    while (done < *bytes) {
        ssize_t got =
            pread(cache->fd, buffer + done, *bytes - done, (off_t)(TOKEN_CACHE_DATA + at + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return zinf_fail(got ? -errno : -EIO, "cannot read the token cache %s of %s: %s",
                             cache->name, cache->path, got ? strerror(errno) : "it became shorter");
        done += (size_t)got;
    }
    if (token_sums_agree(cache->sums, block, buffer, *bytes))
        return 0;
    return zinf_fail(-EBADMSG,
                     "the token cache %s is damaged (at byte %llu): remove it, it is made again "
                     "from %s",
                     cache->name, (unsigned long long)(TOKEN_CACHE_DATA + at), cache->path);
}

static void widen(int32_t *out, const char *ids, size_t n, unsigned id_bytes)
{
    if (id_bytes == 4)
        memcpy(out, ids, 4 * n);
    for (size_t i = 0; id_bytes == 2 && i < n; i++) {
        uint16_t narrow;
        memcpy(&narrow, ids + 2 * i, 2);
        out[i] = narrow;
    }
}

int text_token_cache_read(const struct text_token_cache *cache, uint64_t first, uint64_t n,
                          int32_t *out)
{
    char buffer[TOKEN_BLOCK];
    const uint64_t in_block = TOKEN_BLOCK / cache->id_bytes;
    while (n) {
        uint64_t block = first / in_block, from = first % in_block;
        size_t bytes;
        int code = read_block(cache, block, buffer, &bytes);
        if (code)
            return code;
        uint64_t there = bytes / cache->id_bytes - from;
        size_t ids = (size_t)(n < there ? n : there);
        widen(out, buffer + from * cache->id_bytes, ids, cache->id_bytes);
        out += ids;
        first += ids;
        n -= ids;
    }
    return 0;
}

static uint64_t sum_cache(const struct text_token_cache *cache)
{
    const uint64_t bytes = cache->count * cache->id_bytes;
    const uint64_t parts[] = {bytes,
                              token_sums_of(cache->sums, (bytes + TOKEN_BLOCK - 1) / TOKEN_BLOCK)};
    return XXH3_64bits_withSeed(parts, sizeof parts, cache->documents);
}

void text_token_cache_describe(const struct text_token_cache *cache, struct zinf_data_file *out)
{
    *out = (struct zinf_data_file){
        .path = cache->path, .count = cache->count, .sum = sum_cache(cache), .lines = cache->lines};
}

int zinf_token_cache_verify(const char *path)
{
    struct token_cache_header header = {0};
    struct text_token_cache cache = {.path = strdup("its source"), .name = strdup(path)};
    char buffer[TOKEN_BLOCK];
    size_t bytes;
    int code = 0;
    cache.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (cache.fd < 0 || !cache.path || !cache.name)
        code = zinf_fail(-errno, "cannot open %s: %s", path, strerror(errno));
    else if (pread(cache.fd, &header, sizeof header, 0) != (ssize_t)sizeof header ||
             header.magic != TOKEN_CACHE_MAGIC)
        code = zinf_fail(-EINVAL, "%s is no token cache of this version: remove it", path);
    else if (!is_whole(&header, cache.fd) || !(cache.sums = read_sums(cache.fd, &header)) ||
             !(cache.lines = read_lines(cache.fd, &header)))
        code = zinf_fail(-EBADMSG, "the token cache %s is damaged: remove it", path);
    cache.count = header.count;
    cache.id_bytes = header.id_bytes;
    for (uint64_t i = 0; !code && i < blocks_of(&header); i++)
        code = read_block(&cache, i, buffer, &bytes);
    text_token_cache_close(&cache);
    return code;
}
