/* text: what a data file is, is told by its bytes: packed files, tables, JSON without a name, and
 * what is no text at all. */
#include "text/internal.h"
#include "text_files.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <zlib.h>
#include <zstd.h>

/* Appends one member. */
static size_t gzip_into(unsigned char *out, size_t room, const char *text)
{
    z_stream z = {0};
    CHECK(deflateInit2(&z, 6, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    z.next_in = (unsigned char *)(uintptr_t)text;
    z.avail_in = (uInt)strlen(text);
    z.next_out = out;
    z.avail_out = (uInt)room;
    CHECK(deflate(&z, Z_FINISH) == Z_STREAM_END);
    size_t bytes = room - z.avail_out;
    deflateEnd(&z);
    return bytes;
}

static bool skips; /* what cannot be read */

/* The tokens of a file as text, '|' for the end-of-text token; or the error. */
static const char *read_as(const char *path, const char *column)
{
    static char text[4096];
    struct zinf_tokenizer *tokenizer;
    struct text_token_cache cache;
    int32_t ids[sizeof text];
    CHECK(!zinf_tokenizer_bytes(&tokenizer));
    int code = text_token_cache_open(&cache, path, column, skips, tokenizer, NULL);
    zinf_tokenizer_close(tokenizer);
    if (code) {
        snprintf(text, sizeof text, "%s", zinf_error());
        return text;
    }
    CHECK(cache.count < sizeof text);
    CHECK(!text_token_cache_read(&cache, 0, cache.count, ids));
    for (uint64_t i = 0; i < cache.count; i++)
        text[i] = ids[i] == 256 ? '|' : (char)ids[i];
    text[cache.count] = 0;
    text_token_cache_close(&cache);
    return text;
}

#define CHECK_READ(path, column, wanted)                                                           \
    do {                                                                                           \
        const char *got_ = read_as(path, column);                                                  \
        CHECKF(!strcmp(got_, wanted), "'%s', not '%s'", got_, wanted);                             \
    } while (0)
#define CHECK_SAYS(path, column, piece)                                                            \
    do {                                                                                           \
        const char *got_ = read_as(path, column);                                                  \
        CHECKF(strstr(got_, piece), "'%s' does not say '%s'", got_, piece);                        \
    } while (0)

static void test_gzip(void)
{
    unsigned char packed[1024] = {0};
    size_t one = gzip_into(packed, 400, "abc def\n");
    CHECK_READ(write_bytes("one.txt.gz", packed, one), NULL, "abc def\n");
    CHECK_READ(write_bytes("no-name", packed, one), NULL, "abc def\n");
    size_t two = one + gzip_into(packed + one, 400, "more\n");
    CHECK_READ(write_bytes("two.gz", packed, two), NULL, "abc def\nmore\n");
    CHECK_READ(write_bytes("padded.gz", packed, two + 100), NULL, "abc def\nmore\n");
    CHECK_SAYS(write_bytes("short.gz", packed, one - 9), NULL, "short.gz: the packed data is");
    packed[one - 5] ^= 0x55; /* the checksum */
    CHECK_SAYS(write_bytes("bad.gz", packed, one), NULL, "damaged");
    packed[two] = 7;
    CHECK_SAYS(write_bytes("tail.gz", packed, two + 1), NULL, "damaged");
    size_t json = gzip_into(packed, sizeof packed, "{\"text\": \"a\"}\n{\"text\": \"b\"}\n");
    CHECK_READ(write_bytes("x.jsonl.gz", packed, json), NULL, "a|b");
}

static void test_zstd(void)
{
    char packed[1024];
    size_t one = ZSTD_compress(packed, sizeof packed, "abc def\n", 8, 3);
    CHECK_READ(write_bytes("one.txt.zst", packed, one), NULL, "abc def\n");
    size_t two = one + ZSTD_compress(packed + one, sizeof packed - one, "more\n", 5, 3);
    CHECK_READ(write_bytes("two.zst", packed, two), NULL, "abc def\nmore\n");
    CHECK_SAYS(write_bytes("short.zst", packed, one - 3), NULL, "cut short");
}

/* More than any buffer, so that every loop goes round. */
static void test_a_large_packed_file(void)
{
    size_t bytes = (size_t)3 << 20, bound = ZSTD_compressBound(bytes);
    char *text = malloc(bytes), *packed = malloc(bound);
    struct zinf_tokenizer *tokenizer;
    struct text_token_cache cache;
    uint32_t state = 1;
    for (size_t i = 0; i < bytes; i++) {
        state = state * 1664525 + 1013904223;
        text[i] = (char)(i % 61 == 60 ? '\n' : 'a' + (state >> 24) % 26);
    }
    size_t n = ZSTD_compress(packed, bound, text, bytes, 1);
    CHECK(n > (size_t)1 << 20);
    const char *path = write_bytes("large.zst", packed, n);
    CHECK(!zinf_tokenizer_bytes(&tokenizer));
    CHECKF(!text_token_cache_open(&cache, path, NULL, false, tokenizer, NULL), "%s", zinf_error());
    CHECK(cache.count == bytes);
    for (size_t i = 0; i < bytes; i += 4099) {
        int32_t id = -1;
        CHECK(!text_token_cache_read(&cache, i, 1, &id) && id == text[i]);
    }
    text_token_cache_close(&cache);
    zinf_tokenizer_close(tokenizer);
    free(text);
    free(packed);
}

static void test_broken_documents_are_left_out(void)
{
    static const char text[] =
        "{\"text\": \"a\"}\n{\"text\": \"b\n{\"txt\": \"c\"}\n{\"text\": \"d\"}\n";
    const char *path = write_bytes("broken.jsonl", text, sizeof text - 1);
    CHECK_SAYS(path, NULL, "line 2");
    skips = true;
    CHECK_READ(path, NULL, "a|d");
    skips = false;
}

static void test_names_of_json(void)
{
    static const char lines[] = "{\"text\": \"a\", \"n\": 1}\n{\"text\": \"b\"}\n";
    CHECK_READ(write_bytes("x.ndjson", lines, sizeof lines - 1), NULL, "a|b");
    CHECK_READ(write_bytes("no-extension", lines, sizeof lines - 1), NULL, "a|b");
    CHECK_READ(write_bytes("x.txt", lines, sizeof lines - 1), NULL, lines);
    CHECK_SAYS(write_bytes("x.jsonl", lines, sizeof lines - 1), "body", "has text, n");
    CHECK_SAYS(path_of("x.jsonl"), "n", "\"n\" field that is not a string");
    static const char other[] = "{\"body\": \"q\"}\n";
    CHECK_READ(write_bytes("y.jsonl", other, sizeof other - 1), "body", "q");
}

static void test_tables(void)
{
    static const char csv[] = "id,text,n\r\n1,plain,2\n2,\"a, \"\"b\"\"\nc\",3\n\n3,,4\n4,last,5";
    const char *path = write_bytes("x.csv", csv, sizeof csv - 1);
    CHECK_READ(path, NULL, "plain|a, \"b\"\nc|last");
    CHECK_READ(path, "id", "1|2|3|4");
    CHECK_SAYS(path, "body", "no column \"body\"");
    CHECK_SAYS(path, "body", "--text-column");
    CHECK_SAYS(path, "body", "its columns are id, text, n");
    static const char tsv[] = "\xef\xbb\xbftext\tn\nx, y\t1\n";
    CHECK_READ(write_bytes("x.tsv", tsv, sizeof tsv - 1), NULL, "x, y");
    static const char uneven[] = "text,n\na,1\nb\n";
    CHECK_SAYS(write_bytes("u.csv", uneven, sizeof uneven - 1), NULL,
               "line 3 has 1 fields, but the first line names 2");
    static const char open_quote[] = "text\n\"a\nb\n";
    CHECK_SAYS(write_bytes("q.csv", open_quote, sizeof open_quote - 1), NULL, "line 2: the field");
    static const char quote[] = "text\n\"a\"b\n";
    CHECK_SAYS(write_bytes("r.csv", quote, sizeof quote - 1), NULL, "written twice");
}

static void test_what_is_no_text(void)
{
    static const struct {
        const char *name, *bytes;
        size_t n;
        const char *says;
    } rows[] = {
        {"a.parquet", "PAR1\x15\x04", 6, "read_parquet('"},
        {"b.txt", "PAR1\x15\x04", 6, "is a Parquet file"},
        {"c.arrow", "\xff\xff\xff\xff\x10\0\0\0", 8, "Arrow"},
        {"d.xz",
         "\xfd"
         "7zXZ\0\0",
         7, "xz -d "},
        {"e.bz2", "BZh91AY", 7, "bunzip2 "},
        {"f.zip", "PK\3\4..", 6, "unzip "},
        {"g.pdf", "%PDF-1.7", 8, "pdftotext "},
        {"h.txt", "\xff\xfeh\0i\0", 6, "iconv -f UTF-16"},
        {"i.txt", "some\0bytes", 10, "is a binary file"},
        {"j.jsonl", "{\0}", 3, "is a binary file"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *path = write_bytes(rows[i].name, rows[i].bytes, rows[i].n);
        CHECK_SAYS(path, NULL, rows[i].says);
        CHECK_SAYS(path, NULL, rows[i].name);
    }
    char tar[512] = "a.txt";
    memcpy(tar + 257, "ustar", 5);
    CHECK_SAYS(write_bytes("k.tar", tar, sizeof tar), NULL, "tar -xf ");
    CHECK_SAYS(folder, NULL, "takes its files");
}

/* A blank line, and then a row. */
static int write_late(int fd)
{
    static const char row[] = "{\"text\": \"late\"}\n";
    const ssize_t bytes = sizeof row - 1;
    usleep(50000);
    if (write(fd, "\n", 1) != 1)
        return 1;
    usleep(50000);
    return write(fd, row, (size_t)bytes) != bytes;
}

static void test_pipes(void)
{
    int ends[2], saved = dup(STDIN_FILENO);
    CHECK(!pipe(ends));
    CHECK(write(ends[1], "from a pipe", 11) == 11);
    close(ends[1]);
    CHECK(dup2(ends[0], STDIN_FILENO) == STDIN_FILENO);
    close(ends[0]);
    CHECK_READ("-", NULL, "from a pipe");
    CHECK_SAYS("-", NULL, "standard input has no text");
    CHECK(!pipe(ends) && !fcntl(ends[0], F_SETFL, O_NONBLOCK));
    CHECK(dup2(ends[0], STDIN_FILENO) == STDIN_FILENO);
    close(ends[0]);
    const pid_t child = fork();
    if (!child)
        _exit(write_late(ends[1]));
    close(ends[1]);
    CHECK_READ("-", NULL, "late");
    CHECK(waitpid(child, &(int){0}, 0) == child);
    dup2(saved, STDIN_FILENO);
    close(saved);
}

int main(void)
{
    if (!mkdtemp(folder))
        return 99;
    TAP_RUN(test_broken_documents_are_left_out);
    TAP_RUN(test_gzip);
    TAP_RUN(test_zstd);
    TAP_RUN(test_a_large_packed_file);
    TAP_RUN(test_names_of_json);
    TAP_RUN(test_tables);
    TAP_RUN(test_what_is_no_text);
    TAP_RUN(test_pipes);
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) ? 99 : tap_done();
}
