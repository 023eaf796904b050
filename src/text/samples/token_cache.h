/*
 * token_cache: the beginning of a cache file, shared by the files that write and read it. Inside
 * this folder only.
 */
#ifndef ZINF_TOKEN_CACHE_H
#define ZINF_TOKEN_CACHE_H

#include "text/internal.h"

#include <sys/stat.h>

#define TOKEN_CACHE_MAGIC 0x334b4f5446494e5aull /* "ZINFTOK3" */
#define TOKEN_CACHE_DATA 128

struct token_cache_header {
    uint64_t magic;
    uint64_t key; /* hash of the tokenizer and the rules */
    uint64_t source_bytes;
    int64_t source_ns; /* time of last change */
    uint64_t count;
    uint64_t largest_at;
    uint32_t largest;
    uint32_t id_bytes;
    uint64_t sums;  /* hash of the blocks' checksums */
    uint64_t lines; /* hash of the sums of the source's lines */
    uint64_t check; /* hash of the fields above */
};

/* A cache that is being written. */
#define TOKEN_CACHE_BUFFER 32768 /* ids */
struct token_cache_writer {
    struct token_cache_header header;
    int fd;
    const char *path; /* for messages */
    uint64_t offset;
    uint32_t id_mask; /* the bits of a number that are an id; the largest id is noted */
    struct token_sums sums;
    uint8_t buffer[TOKEN_CACHE_BUFFER * 4];
};
int token_cache_put(struct token_cache_writer *writer, const int32_t *ids, size_t count);

/* How a cache is made of a source. */
struct token_cache_content {
    /* Changes whenever a source of this kind could give other ids. */
    uint64_t (*key)(const void *arg, enum text_kind kind);
    int (*write)(void *arg, struct text_source *source, struct token_cache_writer *writer);
    void *arg;
    unsigned id_bytes; /* 2 or 4 */
};
/* Opens a cache or makes it; path and folder as in text_token_cache_open. */
int token_cache_open(struct text_token_cache *cache, const char *path, const char *folder,
                     const struct token_cache_content *content);

/* The source of a cache. */
struct token_cache_origin {
    int fd;
    struct text_source *source;
    const struct token_cache_content *content;
    bool is_file; /* it is no pipe, so it has a size and a time */
};

uint64_t token_cache_check(const struct token_cache_header *header);
void token_cache_describe(struct token_cache_header *header, const struct stat *source,
                          uint64_t key);
bool token_cache_same_source(const struct token_cache_header *a,
                             const struct token_cache_header *b);
/* Writes the content into the empty cache file. */
int token_cache_write(struct text_token_cache *cache, const struct token_cache_origin *from,
                      struct token_cache_header *header);

#endif
