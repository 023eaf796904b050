/*
 * token_cache: the token ids of one text or JSON file, in a file of their own. It is written once,
 * in bounded memory, under a temporary name, and used again while the text file's size and time,
 * the tokenizer and the rules here are the same. Read with pread: a mapping of a file that is cut
 * short under us would kill the process.
 *
 * File: a header of 128 bytes, then the ids as uint16 or uint32, all in the machine's byte order;
 * a cache from a machine of the other order has another magic number, and is made anew.
 */
#include "text/internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define MAGIC 0x314b4f5446494e5aull /* "ZINFTOK1" */
#define DATA_OFFSET 128
#define BUFFER_IDS 32768

struct header {
    uint64_t magic;
    uint64_t key; /* tokenizer and rules */
    uint64_t source_bytes;
    int64_t source_ns; /* time of last change */
    uint64_t count;
    uint64_t largest_at;
    uint32_t largest;
    uint32_t id_bytes;
    uint64_t check; /* hash of what is above */
};

static uint64_t check_of(const struct header *header)
{
    return XXH3_64bits(header, offsetof(struct header, check));
}

static void describe(struct header *header, const struct stat *source, uint64_t key)
{
    *header = (struct header){.magic = MAGIC, .key = key};
    header->source_bytes = (uint64_t)source->st_size;
    header->source_ns = (int64_t)source->st_mtim.tv_sec * 1000000000 + source->st_mtim.tv_nsec;
}

static bool same_source(const struct header *a, const struct header *b)
{
    return a->magic == b->magic && a->key == b->key && a->source_bytes == b->source_bytes &&
           a->source_ns == b->source_ns;
}

/* ---- writing ---- */

struct writer {
    struct text_encoder encoder;
    struct zinf_tokens tokens;
    struct header header;
    int fd;
    const char *path; /* for messages */
    uint64_t offset;
    int32_t separator; /* -1: none */
    bool after_document, in_document;
    uint8_t buffer[BUFFER_IDS * 4];
};

static int write_all(struct writer *writer, const void *data, size_t bytes, uint64_t offset)
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

static int write_ids(struct writer *writer, const int32_t *ids, size_t count)
{
    for (size_t first = 0; first < count; first += BUFFER_IDS) {
        size_t n = count - first < BUFFER_IDS ? count - first : BUFFER_IDS;
        for (size_t i = 0; i < n; i++) {
            uint32_t id = (uint32_t)ids[first + i];
            uint16_t narrow = (uint16_t)id;
            if (writer->header.id_bytes == 2)
                memcpy(writer->buffer + 2 * i, &narrow, 2);
            else
                memcpy(writer->buffer + 4 * i, &id, 4);
            if (id > writer->header.largest || writer->header.count + i == 0) {
                writer->header.largest = id;
                writer->header.largest_at = writer->header.count + i;
            }
        }
        size_t bytes = n * writer->header.id_bytes;
        int code = write_all(writer, writer->buffer, bytes, writer->offset);
        if (code)
            return code;
        writer->offset += bytes;
        writer->header.count += n;
    }
    return 0;
}

static int feed_writer(void *handle, const char *text, size_t begin, size_t end, bool last,
                       size_t *consumed)
{
    struct writer *writer = handle;
    int code = 0;
    /* The separator goes before a document that turns out not to be empty. */
    if (end > begin && !writer->in_document) {
        writer->in_document = true;
        if (writer->after_document && writer->separator >= 0)
            code = write_ids(writer, &writer->separator, 1);
    }
    if (!code)
        code = text_encoder_feed(&writer->encoder, text, begin, end, last, consumed);
    if (!code)
        code = write_ids(writer, writer->tokens.ids, writer->tokens.count);
    writer->tokens.count = 0;
    if (last) {
        writer->after_document |= writer->in_document;
        writer->in_document = false;
        text_encoder_restart(&writer->encoder);
    }
    return code;
}

/* What is tokenized. */
struct origin {
    int fd;
    struct text_source *source;
    const char *column;
    bool is_file; /* and no pipe: it has a size and a time */
};

static int check_unchanged(int source, const char *path, const struct header *header)
{
    struct stat info;
    struct header now;
    if (fstat(source, &info))
        return zinf_fail(-errno, "cannot stat %s: %s", path, strerror(errno));
    describe(&now, &info, header->key);
    if (!same_source(&now, header))
        return zinf_fail(-EIO, "%s was changed while it was read: try again", path);
    return 0;
}

/* Tokenizes the open file source into the empty file fd. */
static int write_cache(int fd, const char *fd_path, const struct origin *from,
                       const struct zinf_tokenizer *tokenizer, struct header *header)
{
    const char *path = text_source_path(from->source);
    struct writer *writer = calloc(1, sizeof *writer);
    if (!writer)
        return zinf_fail(-ENOMEM, "no memory to tokenize %s", path);
    writer->header = *header;
    writer->header.id_bytes = zinf_tokenizer_vocab(tokenizer) <= 65536 ? 2 : 4;
    writer->fd = fd;
    writer->path = fd_path;
    writer->offset = DATA_OFFSET;
    writer->separator = zinf_tokenizer_end_of_text(tokenizer);
    struct text_sink sink = {feed_writer, writer};
    int code = text_encoder_init(&writer->encoder, tokenizer, &writer->tokens);
    if (!code)
        code = text_documents_read(from->source, from->column, 0, &sink);
    if (!code && from->is_file)
        code = check_unchanged(from->fd, path, header);
    if (!code && !writer->header.count)
        code = zinf_fail(-EINVAL, "%s has no text", path);
    writer->header.check = check_of(&writer->header);
    if (!code)
        code = write_all(writer, &writer->header, sizeof writer->header, 0);
    *header = writer->header;
    text_encoder_fini(&writer->encoder);
    zinf_tokens_free(&writer->tokens);
    free(writer);
    return code;
}

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

/* Opens an existing cache if it is whole and belongs to this source; *out is -1 else. */
static void try_existing(const char *path, struct header *header, int *out)
{
    struct header found;
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    *out = -1;
    if (fd < 0)
        return;
    bool good = pread(fd, &found, sizeof found, 0) == (ssize_t)sizeof found &&
                same_source(&found, header) && found.check == check_of(&found) &&
                (found.id_bytes == 2 || found.id_bytes == 4) && found.count > 0 &&
                found.count < UINT64_MAX / 8 && !fstat(fd, &info) &&
                (uint64_t)info.st_size == DATA_OFFSET + found.count * found.id_bytes;
    if (!good) {
        close(fd);
        return;
    }
    *header = found;
    *out = fd;
}

static int make_named(const char *final_path, const struct origin *from,
                      const struct zinf_tokenizer *tokenizer, struct header *header, int *out)
{
    size_t length = strlen(final_path) + 32;
    char *temporary = malloc(length);
    if (!temporary)
        return zinf_fail(-ENOMEM, "no memory for a path of %zu bytes", length);
    snprintf(temporary, length, "%s.tmp.%ld", final_path, (long)getpid());
    int code = 0, fd = open(temporary, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        code =
            zinf_fail(-errno, "cannot create the token cache %s: %s", temporary, strerror(errno));
        free(temporary);
        return code;
    }
    code = write_cache(fd, temporary, from, tokenizer, header);
    if (!code && fsync(fd))
        code = zinf_fail(-errno, "cannot flush the token cache %s: %s", temporary, strerror(errno));
    if (!code && rename(temporary, final_path))
        code =
            zinf_fail(-errno, "cannot rename %s to %s: %s", temporary, final_path, strerror(errno));
    if (code) {
        unlink(temporary);
        close(fd);
    } else {
        *out = fd;
    }
    free(temporary);
    return code;
}

static int open_cache_file(struct text_token_cache *cache, const struct origin *from,
                           const struct zinf_tokenizer *tokenizer, const char *folder,
                           struct header *header)
{
    const char *path = text_source_path(from->source);
    if (!folder || !from->is_file) {
        int code = open_private(&cache->fd);
        return code ? code : write_cache(cache->fd, "(a temporary file)", from, tokenizer, header);
    }
    int code = zinf_make_dirs(folder);
    char *name = code ? NULL : cache_path(folder, path, header->key);
    if (!name)
        return code ? code : -ENOMEM;
    try_existing(name, header, &cache->fd);
    cache->reused = cache->fd >= 0;
    if (!cache->reused)
        code = make_named(name, from, tokenizer, header, &cache->fd);
    free(name);
    return code;
}

/* Files have to be whole when the training goes on with them; pipes are read once. */
static int open_origin(struct origin *from, const char *path, const char *name, struct stat *info)
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

int text_token_cache_open(struct text_token_cache *cache, const char *path, const char *column,
                          const struct zinf_tokenizer *tokenizer, const char *cache_folder)
{
    const char *name = strcmp(path, "-") ? path : "standard input";
    struct origin from = {.fd = -1, .column = column ? column : "text"};
    struct stat info;
    struct header header;
    *cache = (struct text_token_cache){.fd = -1, .path = strdup(name)};
    int code = cache->path ? open_origin(&from, path, name, &info)
                           : zinf_fail(-ENOMEM, "no memory to open %s", name);
    if (code)
        goto out;
    enum text_kind kind = text_source_kind(from.source);
    uint64_t column_hash = kind ? XXH3_64bits(from.column, strlen(from.column)) : 0;
    uint64_t parts[4] = {zinf_tokenizer_fingerprint(tokenizer), kind,
                         (uint64_t)zinf_tokenizer_end_of_text(tokenizer), column_hash};
    describe(&header, &info, XXH3_64bits(parts, sizeof parts));
    code = open_cache_file(cache, &from, tokenizer, cache_folder, &header);
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
    *cache = (struct text_token_cache){.fd = -1};
}

int text_token_cache_read(const struct text_token_cache *cache, uint64_t first, uint64_t n,
                          int32_t *out)
{
    char buffer[16384];
    size_t at_once = sizeof buffer / cache->id_bytes;
    while (n) {
        size_t ids = n < at_once ? (size_t)n : at_once, bytes = ids * cache->id_bytes, done = 0;
        uint64_t offset = DATA_OFFSET + first * cache->id_bytes;
        while (done < bytes) {
            ssize_t got = pread(cache->fd, buffer + done, bytes - done, (off_t)(offset + done));
            if (got < 0 && errno == EINTR)
                continue;
            if (got <= 0)
                return zinf_fail(got ? -errno : -EIO,
                                 "cannot read the token cache of %s at token "
                                 "%llu: %s",
                                 cache->path, (unsigned long long)first,
                                 got ? strerror(errno) : "it became shorter");
            done += (size_t)got;
        }
        for (size_t i = 0; i < ids; i++) {
            uint16_t narrow;
            if (cache->id_bytes == 4)
                memcpy(out + i, buffer + 4 * i, 4);
            else {
                memcpy(&narrow, buffer + 2 * i, 2);
                out[i] = narrow;
            }
        }
        out += ids;
        first += ids;
        n -= ids;
    }
    return 0;
}
