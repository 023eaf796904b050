/*
 * id_stream: files of text or tokens as one stream of ids. The stream is a row of segments (a
 * file's tokens, or one end-of-text token between two files of documents), so that any place can be
 * read at once and nothing grows with the data but the number of files. Ids that are in memory
 * already are a segment, too.
 */
#include "text/samples/id_stream.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

struct segment {
    enum { FROM_CACHE, FROM_TOKEN_FILE, FROM_MEMORY, SEPARATOR } kind;
    char *path;
    uint64_t first, count; /* in the stream */
    bool documents;        /* a row of them: an end-of-text token parts it from its neighbours */
    struct text_token_cache cache;
    struct zinf_token_source source;
    int32_t *ids; /* [count], of FROM_MEMORY */
};

/* By its first bytes; raw 16-bit ids have none of their own, so there the name has to say it. */
static bool is_token_file(const char *path)
{
    static const uint32_t llmc[] = {20240520, 20240801};
    unsigned char first[8] = {0};
    uint32_t word;
    size_t n = strlen(path);
    if (text_name_ends(path, n, ".bin") || text_name_ends(path, n, ".npy"))
        return true;
    struct stat info;
    if (stat(path, &info) || !S_ISREG(info.st_mode)) /* a pipe is read once */
        return false;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? 0 : read(fd, first, sizeof first);
    if (fd >= 0)
        close(fd);
    memcpy(&word, first, sizeof word);
    return got == sizeof first &&
           (!memcmp(first, "\x93NUMPY", 6) || word == llmc[0] || word == llmc[1]);
}

/* ---- opening ---- */

static int open_token_file(struct segment *segment, const char *path,
                           const struct zinf_dataset_options *options)
{
    if (!options->open_token_file)
        return zinf_fail(-ENOTSUP, "%s: token files are not taken here, only text and JSON", path);
    int code = options->open_token_file(path, &segment->source);
    if (code)
        return code;
    segment->kind = FROM_TOKEN_FILE;
    segment->count = segment->source.count;
    if (!segment->count)
        return zinf_fail(-EINVAL, "the data file %s is empty", path);
    return 0;
}

static int bad_id(const struct text_ids *ids, const char *path, uint64_t at, uint32_t id)
{
    return zinf_fail(-ERANGE,
                     "%s: token %llu is id %u, but the model's vocabulary has only %u: "
                     "give the tokenizer or token file that belongs to the model",
                     path, (unsigned long long)at, id, ids->vocab);
}

static int open_text_file(struct text_ids *ids, struct segment *segment, const char *path,
                          const struct zinf_dataset_options *options)
{
    if (!options->tokenizer)
        return zinf_fail(-EINVAL, "%s: text needs a tokenizer%s%s", path,
                         options->why_no_tokenizer ? ": " : "",
                         options->why_no_tokenizer ? options->why_no_tokenizer : "");
    segment->kind = FROM_CACHE;
    int code =
        text_token_cache_open(&segment->cache, path, options->text_column, options->skip_bad_rows,
                              options->tokenizer, options->cache_folder);
    if (code)
        return code;
    segment->documents = segment->cache.documents;
    segment->count = segment->cache.count;
    if (segment->cache.largest >= ids->vocab)
        return bad_id(ids, path, segment->cache.largest_at, segment->cache.largest);
    return 0;
}

static struct segment *append_segment(struct text_ids *ids, const char *path)
{
    struct segment *segment = &ids->segments[ids->n_segments];
    segment->cache.fd = -1;
    segment->path = strdup(path);
    if (!segment->path) {
        zinf_fail(-ENOMEM, "no memory for the data file %s", path);
        return NULL;
    }
    ids->n_segments++;
    return segment;
}

/* Documents of two files meet here; the files themselves hold the tokens between their own. The
 * file at the end of the list moves on by one. */
static int insert_separator(struct text_ids *ids, const struct zinf_dataset_options *options)
{
    int32_t end = options->tokenizer ? zinf_tokenizer_end_of_text(options->tokenizer) : -1;
    if (end < 0)
        return 0;
    struct segment *last = &ids->segments[ids->n_segments - 1];
    struct segment separator = {.kind = SEPARATOR, .count = 1, .first = ids->n_tokens};
    separator.cache.fd = -1;
    separator.path = strdup("end-of-text token");
    if (!separator.path)
        return zinf_fail(-ENOMEM, "no memory for a data set");
    last[1] = *last;
    *last = separator;
    ids->n_segments++;
    ids->separator = end;
    ids->n_tokens++;
    if ((uint32_t)end >= ids->vocab)
        return bad_id(ids, separator.path, 0, (uint32_t)end);
    return 0;
}

static int append_file(struct text_ids *ids, int index, const struct zinf_dataset_options *options)
{
    const char *path = options->files[index];
    struct segment *segment = append_segment(ids, path);
    if (!segment)
        return -ENOMEM;
    int code = is_token_file(path) ? open_token_file(segment, path, options)
                                   : open_text_file(ids, segment, path, options);
    if (!code && index && (segment->documents || segment[-1].documents))
        code = insert_separator(ids, options);
    if (code)
        return code;
    segment = &ids->segments[ids->n_segments - 1];
    segment->first = ids->n_tokens;
    ids->n_tokens += segment->count;
    return 0;
}

int text_ids_open(struct text_ids *ids, const struct zinf_dataset_options *options)
{
    *ids = (struct text_ids){.vocab = options->vocab};
    ids->segments = calloc(2 * (size_t)options->n_files, sizeof *ids->segments);
    int code = ids->segments
                   ? 0
                   : zinf_fail(-ENOMEM, "no memory for a data set of %d files", options->n_files);
    for (int i = 0; !code && i < options->n_files; i++)
        code = append_file(ids, i, options);
    if (code)
        text_ids_close(ids);
    return code;
}

int text_ids_of_memory(struct text_ids *ids, const char *name, uint32_t vocab, const int32_t *from,
                       uint64_t n)
{
    struct segment *segment = calloc(1, sizeof *segment);
    *ids = (struct text_ids){.segments = segment, .vocab = vocab};
    if (!segment)
        return zinf_fail(-ENOMEM, "no memory for a data set");
    *segment = (struct segment){.kind = FROM_MEMORY, .count = n};
    ids->n_segments = 1;
    ids->n_tokens = n;
    segment->cache.fd = -1;
    segment->path = strdup(name);
    segment->ids = malloc(n * sizeof *segment->ids);
    if (!segment->path || !segment->ids) {
        text_ids_close(ids);
        return zinf_fail(-ENOMEM, "no memory for %llu tokens", (unsigned long long)n);
    }
    memcpy(segment->ids, from, n * sizeof *from);
    return 0;
}

void text_ids_close(struct text_ids *ids)
{
    for (size_t i = 0; i < ids->n_segments; i++) {
        struct segment *segment = &ids->segments[i];
        text_token_cache_close(&segment->cache);
        if (segment->source.close)
            segment->source.close(segment->source.handle);
        free(segment->ids);
        free(segment->path);
    }
    free(ids->segments);
    *ids = (struct text_ids){0};
}

/* ---- files ---- */

/* The file's segment: those between files are none's. */
static const struct segment *segment_of_file(const struct text_ids *ids, uint32_t index)
{
    for (size_t i = 0; i < ids->n_segments; i++)
        if (ids->segments[i].kind != SEPARATOR && !index--)
            return &ids->segments[i];
    return NULL;
}

uint32_t text_ids_n_files(const struct text_ids *ids)
{
    uint32_t n = 0;
    while (segment_of_file(ids, n))
        n++;
    return n;
}

/* Token files have no sums of their own. */
static int sum_token_file(const struct segment *segment, uint64_t *out)
{
    int32_t ids[16384];
    const uint64_t step = sizeof ids / sizeof *ids;
    XXH3_state_t *state = XXH3_createState();
    int code = state ? 0 : zinf_fail(-ENOMEM, "no memory to sum %s", segment->path);
    if (state)
        XXH3_64bits_reset(state);
    for (uint64_t at = 0; !code && at < segment->count; at += step) {
        uint64_t left = segment->count - at, n = left < step ? left : step;
        code = segment->source.read(segment->source.handle, at, n, ids);
        if (!code)
            XXH3_64bits_update(state, ids, n * sizeof *ids);
    }
    *out = code ? 0 : XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return code;
}

int text_ids_file(const struct text_ids *ids, uint32_t index, struct zinf_data_file *out)
{
    const struct segment *segment = segment_of_file(ids, index);
    if (!segment)
        return zinf_fail(-EINVAL, "data file %u is not there", index);
    if (segment->kind == FROM_CACHE) {
        text_token_cache_describe(&segment->cache, out);
        return 0;
    }
    *out = (struct zinf_data_file){.path = segment->path, .count = segment->count};
    return sum_token_file(segment, &out->sum);
}

/* ---- reading ---- */

/* The last segment that begins at or before token first. */
static size_t segment_of(const struct text_ids *ids, uint64_t first)
{
    size_t low = 0, high = ids->n_segments;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (ids->segments[middle].first <= first)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static int read_segment(const struct text_ids *ids, const struct segment *segment, uint64_t first,
                        uint64_t n, int32_t *out)
{
    int code = 0;
    if (segment->kind == SEPARATOR)
        out[0] = ids->separator;
    else if (segment->kind == FROM_CACHE)
        code = text_token_cache_read(&segment->cache, first, n, out);
    else if (segment->kind == FROM_MEMORY)
        memcpy(out, segment->ids + first, n * sizeof *out);
    else
        code = segment->source.read(segment->source.handle, first, n, out);
    if (code)
        return code;
    for (uint64_t i = 0; i < n; i++) /* negative ids are large ones here */
        if ((uint32_t)out[i] >= ids->vocab)
            return bad_id(ids, segment->path, first + i, (uint32_t)out[i]);
    return 0;
}

int text_ids_read(const struct text_ids *ids, uint64_t first, uint64_t n, int32_t *out)
{
    if (first > ids->n_tokens || n > ids->n_tokens - first)
        return zinf_fail(-EINVAL, "tokens %llu to %llu are beyond the data's %llu",
                         (unsigned long long)first, (unsigned long long)(first + n),
                         (unsigned long long)ids->n_tokens);
    for (size_t i = segment_of(ids, first); n; i++) {
        const struct segment *segment = &ids->segments[i];
        uint64_t within = first - segment->first, left = segment->count - within;
        uint64_t part = n < left ? n : left;
        int code = read_segment(ids, segment, within, part, out);
        if (code)
            return code;
        out += part;
        first += part;
        n -= part;
    }
    return 0;
}
