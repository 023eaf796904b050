/*
 * source: a data file as bytes that can be told and read. What a file is, its first bytes say, and
 * its name only where bytes cannot: gzip and zstd are unpacked on the way, what is no text is
 * refused with the line that makes text of it. Read from front to back, so that a pipe will do.
 */
#include "base/pulse.h"
#include "text/internal.h"

#include <fcntl.h>
#include <poll.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#define PACKED_BYTES ((size_t)256 << 10)
#define HEAD_BYTES 4096 /* looked at to tell what it is */

struct text_source {
    int fd;
    const char *path;
    enum text_kind kind;
    enum { RAW, GZIP, ZSTD } packing;
    unsigned char *packed; /* [PACKED_BYTES]: as the file has it, [at, end) is not unpacked yet */
    size_t at, end;
    bool ended, whole; /* of the file; the last packed member is complete */
    z_stream gzip;
    ZSTD_DStream *zstd;
    unsigned char head[HEAD_BYTES]; /* unpacked, given out first */
    size_t head_at, head_end;
    struct zinf_line_summer *lines; /* of what was given out */
};

/* ---- bytes ---- */

/* A pipe may have been opened by a program that does not block. */
static bool waits_for_bytes(int fd)
{
    struct pollfd readable = {.fd = fd, .events = POLLIN};
    return errno == EINTR || (errno == EAGAIN && (poll(&readable, 1, -1) > 0 || errno == EINTR));
}

static int fill_packed(struct text_source *s)
{
    while (!s->ended && s->at == s->end) {
        ssize_t n = read(s->fd, s->packed, PACKED_BYTES);
        if (n < 0 && waits_for_bytes(s->fd))
            continue;
        if (n < 0)
            return zinf_fail(-errno, "cannot read %s: %s", s->path, strerror(errno));
        s->at = 0;
        s->end = (size_t)n;
        s->ended = n == 0;
    }
    return 0;
}

static int fail_damaged(const struct text_source *s, const char *why)
{
    return zinf_fail(-EIO, "%s: the packed data is damaged (%s): fetch or pack it again", s->path,
                     why);
}

/* A file may be several gzip members one behind the other; zeros may fill the end. */
static int next_member(struct text_source *s)
{
    while (!s->ended && s->at < s->end && !s->packed[s->at]) {
        s->at++;
        int code = fill_packed(s);
        if (code)
            return code;
    }
    if (s->at == s->end)
        return 0;
    s->whole = false;
    return inflateReset(&s->gzip) == Z_OK ? 0 : fail_damaged(s, "zlib");
}

static int unpack_gzip(struct text_source *s, unsigned char *out, size_t bytes, size_t *done)
{
    s->gzip.next_in = s->packed + s->at;
    s->gzip.avail_in = (uInt)(s->end - s->at);
    s->gzip.next_out = out;
    s->gzip.avail_out = (uInt)bytes;
    int result = inflate(&s->gzip, Z_NO_FLUSH);
    s->at = s->end - s->gzip.avail_in;
    *done = bytes - s->gzip.avail_out;
    if (result == Z_STREAM_END)
        s->whole = true;
    else if (result != Z_OK && result != Z_BUF_ERROR)
        return fail_damaged(s, s->gzip.msg ? s->gzip.msg : "zlib");
    return 0;
}

static int unpack_zstd(struct text_source *s, unsigned char *out, size_t bytes, size_t *done)
{
    ZSTD_inBuffer from = {s->packed, s->end, s->at};
    ZSTD_outBuffer to = {out, bytes, 0};
    size_t result = ZSTD_decompressStream(s->zstd, &to, &from);
    if (ZSTD_isError(result))
        return fail_damaged(s, ZSTD_getErrorName(result));
    s->at = from.pos;
    *done = to.pos;
    s->whole = result == 0;
    return 0;
}

/* Up to bytes of the file's content; *done 0: it ended. */
static int read_content(struct text_source *s, unsigned char *out, size_t bytes, size_t *done)
{
    int code = 0;
    *done = 0;
    while (!code && !*done) {
        code = zinf_pulse_beat();
        if (!code)
            code = fill_packed(s);
        if (!code && s->packing == GZIP && s->whole)
            code = next_member(s);
        if (code || (s->at == s->end && s->packing == RAW))
            return code;
        if (s->at == s->end && s->whole)
            return 0;
        bool no_more = s->at == s->end;
        if (s->packing == RAW) {
            *done = s->end - s->at < bytes ? s->end - s->at : bytes;
            memcpy(out, s->packed + s->at, *done);
            s->at += *done;
        } else {
            code = s->packing == GZIP ? unpack_gzip(s, out, bytes, done)
                                      : unpack_zstd(s, out, bytes, done);
        }
        if (!code && no_more && !*done && !s->whole)
            code = fail_damaged(s, "it was cut short");
    }
    return code;
}

int text_source_read(struct text_source *s, char *out, size_t bytes, size_t *done)
{
    size_t head = s->head_end - s->head_at;
    int code = 0;
    if (head) {
        *done = head < bytes ? head : bytes;
        memcpy(out, s->head + s->head_at, *done);
        s->head_at += *done;
    } else {
        code = read_content(s, (unsigned char *)out, bytes, done);
    }
    if (!code)
        zinf_line_summer_add(s->lines, out, *done);
    return code;
}

int text_source_lines(struct text_source *s, struct zinf_lines *out)
{
    char rest[16384];
    size_t done = 1;
    int code = 0;
    while (!code && done)
        code = text_source_read(s, rest, sizeof rest, &done);
    if (!code)
        zinf_line_summer_end(s->lines, out);
    return code;
}

/* ---- what it is ---- */

bool text_name_ends(const char *name, size_t n, const char *extension)
{
    size_t m = strlen(extension);
    return n >= m && !strncasecmp(name + n - m, extension, m);
}

/* Bytes of the name without the packing's extension. */
static size_t bare_length(const char *path)
{
    size_t n = strlen(path);
    return text_name_ends(path, n, ".gz")     ? n - 3
           : text_name_ends(path, n, ".zst")  ? n - 4
           : text_name_ends(path, n, ".zstd") ? n - 5
                                              : n;
}

/* Formats that are no text, and what to do; %s is the file. */
static const struct {
    size_t at, bytes;
    const char *magic, *name, *remedy;
} formats[] = {
    {0, 4, "PAR1", "a Parquet file",
     "python3 -c \"import pandas as p; p.read_parquet('%s').to_json('data.jsonl', "
     "orient='records', lines=True)\" makes data.jsonl of it"},
    {0, 6, "ARROW1", "an Arrow file",
     "python3 -c \"import pandas as p; p.read_feather('%s').to_json('data.jsonl', "
     "orient='records', lines=True)\" makes data.jsonl of it"},
    {0, 4, "\xff\xff\xff\xff", "an Arrow stream",
     "python3 -c \"import datasets as d; d.Dataset.from_file('%s').to_json('data.jsonl')\" makes "
     "data.jsonl of it"},
    {0, 6,
     "\xfd"
     "7zXZ",
     "packed by xz", "xz -d %s unpacks it"},
    {0, 3, "BZh", "packed by bzip2", "bunzip2 %s unpacks it"},
    {0, 4, "PK\3\4", "a zip archive", "unzip %s unpacks it"},
    {0, 6, "7z\xbc\xaf\x27\x1c", "a 7z archive", "7z x %s unpacks it"},
    {257, 5, "ustar", "a tar archive", "tar -xf %s unpacks it"},
    {0, 5, "%PDF-", "a PDF", "pdftotext %s makes text of it"},
    {0, 2, "\xff\xfe", "UTF-16", "iconv -f UTF-16 -t UTF-8 %s >data.txt makes UTF-8 of it"},
    {0, 2, "\xfe\xff", "UTF-16", "iconv -f UTF-16 -t UTF-8 %s >data.txt makes UTF-8 of it"},
    {0, 15, "SQLite format 3", "a data base of SQLite", "give the text alone"},
    {0, 4,
     "\x7f"
     "ELF",
     "a program", "give text"},
};

static int fail_format(const struct text_source *s, const char *name, const char *remedy)
{
    const char *hole = strstr(remedy, "%s");
    return zinf_fail(-EINVAL, "%s is %s, no text: %.*s%s%s", s->path, name,
                     (int)(hole ? hole - remedy : (ptrdiff_t)strlen(remedy)), remedy,
                     hole ? s->path : "", hole ? hole + 2 : "");
}

static int refuse_binary(const struct text_source *s)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (s->head_end >= formats[i].at + formats[i].bytes &&
            !memcmp(s->head + formats[i].at, formats[i].magic, formats[i].bytes))
            return fail_format(s, formats[i].name, formats[i].remedy);
    size_t n = bare_length(s->path);
    if (text_name_ends(s->path, n, ".bin") || text_name_ends(s->path, n, ".npy"))
        return zinf_fail(-EINVAL, "%s: token files are not read packed: unpack it first", s->path);
    if (memchr(s->head, 0, s->head_end))
        return zinf_fail(-EINVAL,
                         "%s is a binary file, no text (it has a zero byte): give text, .jsonl, "
                         ".csv, or tokens as .bin or .npy",
                         s->path);
    return 0;
}

/* An object that begins in the first line: of a file whose name says nothing. */
static bool looks_like_json(const struct text_source *s)
{
    size_t i = 0;
    while (i < s->head_end && strchr(" \t\r\n", s->head[i]))
        i++;
    if (i == s->head_end || s->head[i++] != '{')
        return false;
    while (i < s->head_end && strchr(" \t", s->head[i]))
        i++;
    return i < s->head_end && s->head[i] == '"';
}

static enum text_kind kind_of(const struct text_source *s)
{
    static const struct {
        const char *extension;
        enum text_kind kind;
    } names[] = {
        {".jsonl", TEXT_JSON_LINES}, {".ndjson", TEXT_JSON_LINES}, {".json", TEXT_JSON},
        {".csv", TEXT_CSV},          {".tsv", TEXT_TSV},           {".tab", TEXT_TSV},
    };
    size_t n = bare_length(s->path);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (text_name_ends(s->path, n, names[i].extension))
            return names[i].kind;
    const char *slash = strrchr(s->path, '/'), *base = slash ? slash + 1 : s->path;
    bool named = memchr(base, '.', n - (size_t)(base - s->path)) != NULL;
    return !named && looks_like_json(s) ? TEXT_JSON_LINES : TEXT_PLAIN;
}

/* ---- open and close ---- */

static int start_packing(struct text_source *s)
{
    static const unsigned char gzip[] = {0x1f, 0x8b}, zstd[] = {0x28, 0xb5, 0x2f, 0xfd};
    int code = fill_packed(s);
    size_t n = s->end - s->at;
    if (code)
        return code;
    if (n >= sizeof gzip && !memcmp(s->packed, gzip, sizeof gzip)) {
        s->packing = GZIP;
        if (inflateInit2(&s->gzip, MAX_WBITS + 16) != Z_OK)
            return zinf_fail(-ENOMEM, "no memory to unpack %s", s->path);
    } else if (n >= sizeof zstd && !memcmp(s->packed, zstd, sizeof zstd)) {
        s->packing = ZSTD;
        s->zstd = ZSTD_createDStream();
        if (!s->zstd)
            return zinf_fail(-ENOMEM, "no memory to unpack %s", s->path);
    }
    return 0;
}

/* Behind blank lines. */
static bool has_line(const struct text_source *s)
{
    size_t i = 0;
    while (i < s->head_end && strchr(" \t\r\n", s->head[i]))
        i++;
    return memchr(s->head + i, '\n', s->head_end - i) != NULL;
}

/* A pipe may have no more than a line yet. */
static bool is_enough(const struct text_source *s)
{
    struct stat found;
    const bool is_pipe = !fstat(s->fd, &found) && !S_ISREG(found.st_mode);
    return s->head_end == HEAD_BYTES || (is_pipe && has_line(s));
}

int text_source_open(struct text_source **out, int fd, const char *path)
{
    struct text_source *s = calloc(1, sizeof *s);
    size_t done = 1;
    int code = 0;
    if (s)
        s->packed = malloc(PACKED_BYTES);
    if (!s || !s->packed) {
        free(s);
        return zinf_fail(-ENOMEM, "no memory to read %s", path);
    }
    s->fd = fd;
    s->path = path;
    code = zinf_line_summer_create(&s->lines);
    if (!code)
        code = start_packing(s);
    while (!code && done && !is_enough(s)) {
        code = read_content(s, s->head + s->head_end, HEAD_BYTES - s->head_end, &done);
        s->head_end += code ? 0 : done;
    }
    if (!code)
        code = refuse_binary(s);
    if (code) {
        text_source_close(s);
        return code;
    }
    s->kind = kind_of(s);
    *out = s;
    return 0;
}

enum text_kind text_source_kind(const struct text_source *s)
{
    return s->kind;
}

const char *text_source_path(const struct text_source *s)
{
    return s->path;
}

void text_source_close(struct text_source *s)
{
    if (!s)
        return;
    if (s->packing == GZIP)
        inflateEnd(&s->gzip);
    ZSTD_freeDStream(s->zstd);
    zinf_line_summer_destroy(s->lines);
    free(s->packed);
    free(s);
}

/* ---- the lines of a whole file (lines.h) ---- */

int zinf_lines_of_file(const char *path, struct zinf_lines *out)
{
    struct text_source *source = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int code = fd < 0 ? zinf_fail(-errno, "cannot open %s: %s", path, strerror(errno))
                      : text_source_open(&source, fd, path);
    if (!code)
        code = text_source_lines(source, out);
    text_source_close(source);
    if (fd >= 0)
        close(fd);
    return code;
}
