/* dataset: windows, shuffling, files of all kinds, the token cache, bad input. */
#include "text/internal.h"
#include "text_files.h"

#include <fcntl.h>
#include <sys/stat.h>

static struct zinf_dataset_options options_for(const char *const *files, int n_files)
{
    return (struct zinf_dataset_options){
        .files = files,
        .n_files = n_files,
        .tokenizer = byte_tokenizer(),
        .seq_len = 4,
        .vocab = 257,
        .seed = 11,
    };
}

static struct zinf_dataset *open_ok(const struct zinf_dataset_options *options)
{
    struct zinf_dataset *dataset = NULL;
    int code = zinf_dataset_open(&dataset, options);
    CHECKF(!code, "%s", zinf_error());
    return dataset;
}

/* The whole stream as a string; '|' for the end-of-text token. */
static const char *stream_of(const char *const *files, int n_files)
{
    static char text[256];
    int32_t ids[256];
    struct zinf_dataset_options options = options_for(files, n_files);
    options.seq_len = 1;
    struct zinf_dataset *dataset = open_ok(&options);
    if (!dataset)
        return "";
    uint64_t n = zinf_dataset_n_tokens(dataset);
    CHECK(n < sizeof text && !zinf_dataset_read(dataset, 0, n, ids));
    for (uint64_t i = 0; i < n; i++)
        text[i] = ids[i] == 256 ? '|' : ids[i] ? (char)ids[i] : '0';
    text[n] = 0;
    zinf_dataset_close(dataset);
    return text;
}

/* ---- windows ---- */

static void test_windows_and_shifted_targets(void)
{
    const char *file = write_text("w.txt", "abcdefghijklmn"); /* 14 tokens, T = 4 */
    struct zinf_dataset_options options = options_for(&file, 1);
    struct zinf_dataset *dataset = open_ok(&options);
    int32_t inputs[4], targets[4];
    CHECK(zinf_dataset_n_tokens(dataset) == 14 && zinf_dataset_n_windows(dataset) == 3);
    for (uint64_t position = 0; position < 7; position++) {
        CHECK(!zinf_dataset_window(dataset, position, inputs, targets));
        for (int i = 0; i < 4; i++) {
            CHECK(inputs[i] == 'a' + (int)(position % 3) * 4 + i);
            CHECK(targets[i] == inputs[i] + 1);
        }
    }
    int32_t out[3];
    CHECK(!zinf_dataset_read(dataset, 11, 3, out) && out[0] == 'l' && out[2] == 'n');
    CHECK(zinf_dataset_read(dataset, 12, 3, out) == -EINVAL);
    CHECK(zinf_dataset_read(dataset, UINT64_MAX, 2, out) == -EINVAL);
    zinf_dataset_close(dataset);
}

static void window_order(struct zinf_dataset *dataset, uint64_t epoch, uint64_t n, int *order)
{
    int32_t inputs[4], targets[4];
    for (uint64_t i = 0; i < n; i++) {
        CHECK(!zinf_dataset_window(dataset, epoch * n + i, inputs, targets));
        order[i] = inputs[0] - '0' + 64 * (inputs[1] - '0');
    }
}

/* Bytes 4i and 4i + 1 hold i, so that a window says which one it is. */
static const char *write_numbered(const char *name, int n_windows)
{
    char bytes[4096];
    for (int i = 0; i <= n_windows; i++) {
        bytes[4 * i] = (char)('0' + i % 64);
        bytes[4 * i + 1] = (char)('0' + i / 64);
        bytes[4 * i + 2] = bytes[4 * i + 3] = '-';
    }
    return write_bytes(name, bytes, (size_t)(4 * n_windows + 1));
}

static void test_epochs_are_whole_and_differ(void)
{
    enum { N = 301 };
    const char *file = write_numbered("n.txt", N);
    struct zinf_dataset_options options = options_for(&file, 1);
    int order[3][N], again[N];
    options.shuffle = true;
    struct zinf_dataset *dataset = open_ok(&options);
    CHECK(zinf_dataset_n_windows(dataset) == N);
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        bool seen[N] = {false};
        window_order(dataset, epoch, N, order[epoch]);
        for (int i = 0; i < N; i++) {
            CHECKF(order[epoch][i] < N && !seen[order[epoch][i]], "window %d twice", i);
            seen[order[epoch][i] % N] = true;
        }
    }
    CHECK(memcmp(order[0], order[1], sizeof again) && memcmp(order[1], order[2], sizeof again));
    zinf_dataset_close(dataset);

    dataset = open_ok(&options); /* the same seed, sought backwards */
    for (uint64_t epoch = 3; epoch-- > 0;) {
        window_order(dataset, epoch, N, again);
        CHECK(!memcmp(order[epoch], again, sizeof again));
    }
    zinf_dataset_close(dataset);
    options.seed++;
    dataset = open_ok(&options);
    window_order(dataset, 0, N, again);
    CHECK(memcmp(order[0], again, sizeof again));
    int32_t inputs[4], targets[4];
    CHECK(!zinf_dataset_window(dataset, UINT64_MAX, inputs, targets));
    zinf_dataset_close(dataset);
}

/* ---- kinds of files ---- */

static void test_documents_are_joined(void)
{
    const char *lines =
        write_text("d.jsonl", "{\"text\": \"ab\"}\n\n  {\"id\": 1, \"text\": \"cd\"}\r\n"
                              "{\"text\": \"\"}\n{\"text\":\"\\u0000\\n\"}");
    CHECKF(!strcmp(stream_of(&lines, 1), "ab|cd|0\n"), "%s", stream_of(&lines, 1));
    const char *array =
        write_text("d.json", "\xef\xbb\xbf [ {\"text\":\"a}\\\"]\"} ,\n{\"text\":\"b\", \"x\":"
                             "{\"y\":[1]}}]\n");
    CHECKF(!strcmp(stream_of(&array, 1), "a}\"]|b"), "%s", stream_of(&array, 1));
    const char *one = write_text("one.json", "{\n\"text\":\"xyz\"}");
    CHECK(!strcmp(stream_of(&one, 1), "xyz"));
    const char *row = write_text("row.json", "{\"text\":\"x\"} {\"text\":\"y\"}");
    CHECK(!strcmp(stream_of(&row, 1), "x|y"));
    const char *text = write_text("t.unknown", "T<|endoftext|>");
    const char *several[] = {lines, text, text, one, row};
    CHECKF(!strcmp(stream_of(several, 5), "ab|cd|0\n|T<|endoftext|>T<|endoftext|>|xyz|x|y"), "%s",
           stream_of(several, 5));
}

struct fake {
    int opened, closed;
};
static struct fake fake;

static int fake_read(void *handle, uint64_t first, uint64_t n, int32_t *out)
{
    CHECK(handle == &fake && first + n <= 100);
    for (uint64_t i = 0; i < n; i++)
        out[i] = first + i == 77 ? 5000 : (int32_t)(first + i);
    return 0;
}

static void fake_close(void *handle)
{
    ((struct fake *)handle)->closed++;
}

static int fake_open(const char *path, struct zinf_token_source *out)
{
    if (!strstr(path, "tokens.bin"))
        return zinf_fail(-ENOENT, "no %s", path);
    fake.opened++;
    *out = (struct zinf_token_source){100, fake_read, fake_close, &fake};
    return 0;
}

static void test_token_files_and_ids_beyond_the_vocabulary(void)
{
    const char *files[] = {"tokens.bin", write_text("after.txt", "hello")};
    struct zinf_dataset_options options = options_for(files, 2);
    struct zinf_dataset *dataset = NULL;
    int32_t out[100];
    CHECK(zinf_dataset_open(&dataset, &options) == -ENOTSUP && strstr(zinf_error(), "tokens.bin"));
    options.open_token_file = fake_open;
    dataset = open_ok(&options);
    CHECK(zinf_dataset_n_tokens(dataset) == 105);
    CHECK(!zinf_dataset_read(dataset, 97, 5, out) && out[2] == 99 && out[3] == 'h');
    CHECK(zinf_dataset_read(dataset, 70, 20, out) == -ERANGE);
    CHECKF(strstr(zinf_error(), "tokens.bin") && strstr(zinf_error(), "token 77 ") &&
               strstr(zinf_error(), "5000"),
           "%s", zinf_error());
    zinf_dataset_close(dataset);
    CHECK(fake.opened == 1 && fake.closed == 1);
    options.vocab = 'm'; /* text is looked at when it is opened: 'o' is the largest */
    CHECK(zinf_dataset_open(&dataset, &options) == -ERANGE);
    CHECKF(strstr(zinf_error(), "after.txt") && strstr(zinf_error(), "token 4 ") &&
               strstr(zinf_error(), "111"),
           "%s", zinf_error());
    CHECK(fake.opened == 2 && fake.closed == 2);
}

/* ---- text in windows ---- */

struct gathered {
    struct text_encoder encoder;
    struct zinf_tokens tokens;
};

static int gather(void *handle, const char *text, size_t begin, size_t end, bool last,
                  size_t *consumed)
{
    struct gathered *gathered = handle;
    return text_encoder_feed(&gathered->encoder, text, begin, end, last, consumed);
}

static struct zinf_tokenizer *bpe_tokenizer(void)
{
    char path[4096], *json = NULL;
    struct zinf_tokenizer *tokenizer = NULL;
    size_t bytes = 0;
    const char *root = getenv("SRCDIR");
    snprintf(path, sizeof path, "%s/tests/fixtures/tokenizer/plain.json", root ? root : ".");
    CHECKF(!zinf_file_read(path, 1u << 20, &json, &bytes), "%s", zinf_error());
    CHECKF(!zinf_tokenizer_from_json(&tokenizer, json, bytes, path), "%s", zinf_error());
    free(json);
    return tokenizer;
}

/* A file read through windows as small as can be has the ids of the whole. */
static void test_small_windows_give_the_same_ids(void)
{
    static const char *const parts[] = {
        "the ",     "fox",   "\n\n  ", "  <mask>",      "\xf0\x9f\x98\x80",
        "!?",       " 1984", "\xff",   "<|endoftext|>", "<|end",
        "zzwordzz", "1",     "\t"};
    struct zinf_tokenizer *tokenizer = bpe_tokenizer();
    char text[20000];
    size_t bytes = 0;
    for (uint32_t i = 0; bytes < sizeof text - 32; i = i * 1103515245 + 12345) {
        const char *part = parts[(i >> 16) % 13];
        memcpy(text + bytes, part, strlen(part));
        bytes += strlen(part);
    }
    const char *path = write_bytes("windows.txt", text, bytes);
    struct zinf_tokens whole = {0};
    CHECK(!zinf_tokenizer_encode(tokenizer, text, bytes, &whole));
    for (size_t window = 8; window < 3000; window += window < 64 ? 1 : window) {
        struct gathered gathered = {0};
        struct text_sink sink = {.feed = gather, .handle = &gathered};
        struct text_source *source = NULL;
        int fd = open(path, O_RDONLY);
        CHECK(!text_encoder_init(&gathered.encoder, tokenizer, &gathered.tokens));
        CHECKF(!text_source_open(&source, fd, path), "%s", zinf_error());
        CHECKF(!text_documents_read(source, NULL, window, &sink), "%s", zinf_error());
        text_source_close(source);
        CHECKF(gathered.tokens.count == whole.count &&
                   !memcmp(gathered.tokens.ids, whole.ids, whole.count * sizeof *whole.ids),
               "windows of %zu bytes", window);
        text_encoder_fini(&gathered.encoder);
        zinf_tokens_free(&gathered.tokens);
        close(fd);
    }
    zinf_tokens_free(&whole);
    zinf_tokenizer_close(tokenizer);
}

/* 20 MiB of one kind of character, behind a beginning that is text: refused before memory fills up.
 */
static void test_endless_pieces_are_refused(void)
{
    char begin[4096];
    memset(begin, 'x', sizeof begin);
    const char *path = write_bytes("zeros.txt", begin, sizeof begin);
    struct zinf_tokenizer *tokenizer = bpe_tokenizer();
    struct text_token_cache cache;
    CHECK(!truncate(path, 20 << 20));
    CHECK(text_token_cache_open(&cache, path, NULL, false, tokenizer, NULL) == -EFBIG);
    CHECKF(strstr(zinf_error(), "zeros.txt") && strstr(zinf_error(), "16777216"), "%s",
           zinf_error());
    zinf_tokenizer_close(tokenizer);
}

/* ---- cache ---- */

static int files_in(const char *name)
{
    int count = 0;
    DIR *dir = opendir(name);
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        count += entry->d_name[0] != '.';
    if (dir)
        closedir(dir);
    return count;
}

static bool is_reused(const char *path, const struct zinf_tokenizer *tokenizer, uint64_t count)
{
    struct text_token_cache cache;
    int code = text_token_cache_open(&cache, path, NULL, false, tokenizer, path_of("cache"));
    CHECKF(!code && cache.count == count, "%s, %llu tokens", code ? zinf_error() : "no error",
           (unsigned long long)(code ? 0 : cache.count));
    bool reused = !code && cache.reused;
    if (!code)
        text_token_cache_close(&cache);
    return reused;
}

static void damage_cache(off_t cut)
{
    char path[1024];
    DIR *dir = opendir(path_of("cache"));
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        struct stat info;
        snprintf(path, sizeof path, "%s/%s", path_of("cache"), entry->d_name);
        if (entry->d_name[0] != '.' && !stat(path, &info))
            CHECK(!truncate(path, info.st_size - cut));
    }
    if (dir)
        closedir(dir);
}

static void test_cache_reuse_and_invalidation(void)
{
    struct zinf_tokenizer *bytes = byte_tokenizer(), *bpe = bpe_tokenizer();
    const char *file = write_text("c.txt", "zzzz");
    char path[512];
    snprintf(path, sizeof path, "%s", file);
    CHECK(!is_reused(path, bytes, 4));
    CHECK(is_reused(path, bytes, 4));
    CHECK(files_in(path_of("cache")) == 1);
    CHECK(!is_reused(path, bpe, 4)); /* each tokenizer has its own */
    CHECK(is_reused(path, bytes, 4) && is_reused(path, bpe, 4));
    CHECK(files_in(path_of("cache")) == 2);
    struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    CHECK(!utimensat(AT_FDCWD, path, times, 0)); /* another time */
    CHECK(!is_reused(path, bytes, 4) && is_reused(path, bytes, 4));
    write_text("c.txt", "zzzzz");
    CHECK(!utimensat(AT_FDCWD, path, times, 0)); /* the same time, another size */
    CHECK(!is_reused(path, bytes, 5) && is_reused(path, bytes, 5));
    damage_cache(1);
    CHECK(!is_reused(path, bytes, 5) && is_reused(path, bytes, 5));
    damage_cache(100);
    CHECK(!is_reused(path, bytes, 5));
    CHECK(files_in(path_of("cache")) == 2); /* no leftovers under temporary names */
    zinf_tokenizer_close(bpe);
}

/* Any byte of it: either it is made anew, or the window that has it is refused by name. */
static void test_damaged_cache_is_not_read(void)
{
    struct zinf_tokenizer *tokenizer = byte_tokenizer();
    struct text_token_cache cache;
    enum { TOKENS = 20000 }; /* some blocks, the last one short */
    static char text[TOKENS + 1];
    static int32_t whole[TOKENS], ids[TOKENS];
    char path[512], name[1024];
    int refused = 0, anew = 0;
    for (int i = 0; i < TOKENS; i++)
        text[i] = (char)('a' + i * i % 23);
    snprintf(path, sizeof path, "%s", write_text("damaged.txt", text));
    CHECK(!text_token_cache_open(&cache, path, NULL, false, tokenizer, path_of("cache")));
    CHECK(cache.count == TOKENS && !text_token_cache_read(&cache, 0, TOKENS, whole));
    snprintf(name, sizeof name, "%s", cache.name);
    text_token_cache_close(&cache);
    for (off_t at = 3; at < 128 + 2 * TOKENS + 12; at += 211) {
        int fd = open(name, O_RDWR);
        char byte = 0;
        CHECK(pread(fd, &byte, 1, at) == 1);
        byte ^= 4;
        CHECK(pwrite(fd, &byte, 1, at) == 1);
        close(fd);
        CHECK(!text_token_cache_open(&cache, path, NULL, false, tokenizer, path_of("cache")));
        bool reused = cache.reused;
        int code = text_token_cache_read(&cache, 0, TOKENS, ids);
        CHECKF(code == -EBADMSG || (!code && !memcmp(ids, whole, sizeof ids)), "byte %ld",
               (long)at);
        CHECK(!code || strstr(zinf_error(), name));
        CHECK(reused ? code != 0 : code == 0);
        refused += code != 0;
        anew += !reused;
        text_token_cache_close(&cache);
        if (!code)
            continue;
        CHECK(!unlink(name)); /* as the message says; then it is made again */
        CHECK(!text_token_cache_open(&cache, path, NULL, false, tokenizer, path_of("cache")));
        text_token_cache_close(&cache);
    }
    CHECKF(refused > 0 && anew > 0, "%d refused, %d made anew", refused, anew);
    CHECK(!unlink(name));
}

static void test_without_cache_folder_nothing_is_left(void)
{
    const char *file = write_text("p.txt", "private tokens");
    setenv("TMPDIR", folder, 1);
    int before = files_in(folder);
    CHECK(!strcmp(stream_of(&file, 1), "private tokens"));
    CHECK(files_in(folder) == before);
    unsetenv("TMPDIR");
}

/* ---- bad input ---- */

static void check_refused(const char *file, const char *said)
{
    struct zinf_dataset_options options = options_for(&file, 1);
    struct zinf_dataset *dataset = NULL;
    char cache[512];
    snprintf(cache, sizeof cache, "%s", path_of("bad-cache"));
    options.cache_folder = cache;
    int code = zinf_dataset_open(&dataset, &options);
    CHECKF(code < 0, "%s is taken", file);
    CHECKF(strstr(zinf_error(), file) && strstr(zinf_error(), said), "%s: '%s' does not say %s",
           file, zinf_error(), said);
    if (!code)
        zinf_dataset_close(dataset);
}

static void test_bad_input(void)
{
    check_refused(path_of("missing.txt"), "No such file");
    check_refused(folder, "regular file");
    check_refused(write_text("empty.txt", ""), "empty");
    check_refused(write_text("empty.jsonl", ""), "empty");
    CHECK(files_in(path_of("bad-cache")) == 0);
    check_refused(write_text("short.txt", "abcd"), "4 tokens");
    check_refused(write_text("l1.jsonl", "{\"text\":\"a\"}\n{\"text\":\n\n"), "line 2");
    check_refused(write_text("l2.jsonl", "{\"text\":\"a\"}\n\nnonsense\n"), "line 3");
    check_refused(write_text("l3.jsonl", "{\"text\":\"a\"}\n{\"txt\":1}\n"),
                  "line 2: the object has no \"text\"");
    check_refused(write_text("l3.jsonl", "{\"instruction\":\"a\",\"response\":\"b\"}\n"),
                  "such as prompt and completion; it has instruction, response");
    check_refused(write_text("l4.jsonl", "{\"text\":5}\n"), "not a string");
    check_refused(write_text("l5.jsonl", "[1]\n"), "line 1: not an object");
    check_refused(write_text("l6.jsonl", "{\"text\":\"a\"} {}\n"), "line 1: more text");
    check_refused(write_text("l7.jsonl", "{\"text\":\"\xff\"}\n"), "line 1: not UTF-8");
    check_refused(write_text("j1.json", "[{\"text\":\"a\"},\n\n {\"text\":\n bad}]"), "line 4");
    check_refused(write_text("j2.json", "[{\"text\":\"a\"},\n{\"text\":\"a\"\n"),
                  "line 2: the object that begins here has no end");
    check_refused(write_text("j3.json", "[{\"text\":\"a\"}\n{\"text\":\"a\"}]"), "line 2");
    check_refused(write_text("j4.json", "[{\"text\":\"a\"},]"), "']'");
    check_refused(write_text("j5.json", "[{\"text\":\"a\"}] x"), "'x'");
    check_refused(write_text("j6.json", "[{\"text\":\"a\"}\n"), "ends");
    check_refused(write_text("j7.json", "[]"), "no text");
    check_refused(write_text("j8.json", "\"text\""), "'\"'");
    CHECK(files_in(path_of("bad-cache")) == 1); /* short.txt alone was tokenised */
}

static void test_bad_options(void)
{
    const char *file = write_text("o.txt", "abcdefgh");
    struct zinf_dataset_options options = options_for(&file, 0);
    struct zinf_dataset *dataset = NULL;
    CHECK(zinf_dataset_open(&dataset, &options) == -EINVAL);
    options = options_for(&file, 1);
    options.seq_len = 0;
    CHECK(zinf_dataset_open(&dataset, &options) == -EINVAL);
    options = options_for(&file, 1);
    options.vocab = 0;
    CHECK(zinf_dataset_open(&dataset, &options) == -EINVAL);
    options = options_for(&file, 1);
    options.tokenizer = NULL;
    CHECK(zinf_dataset_open(&dataset, &options) == -EINVAL && strstr(zinf_error(), "o.txt"));
    options = options_for(&file, 1);
    options.cache_folder = file; /* a file, not a folder */
    CHECK(zinf_dataset_open(&dataset, &options) < 0 && strstr(zinf_error(), "o.txt"));
    CHECK(!dataset);
}

int main(void)
{
    if (!mkdtemp(folder)) {
        printf("Bail out! cannot make a folder\n");
        return 1;
    }
    TAP_RUN(test_windows_and_shifted_targets);
    TAP_RUN(test_epochs_are_whole_and_differ);
    TAP_RUN(test_documents_are_joined);
    TAP_RUN(test_token_files_and_ids_beyond_the_vocabulary);
    TAP_RUN(test_small_windows_give_the_same_ids);
    TAP_RUN(test_endless_pieces_are_refused);
    TAP_RUN(test_cache_reuse_and_invalidation);
    TAP_RUN(test_damaged_cache_is_not_read);
    TAP_RUN(test_without_cache_folder_nothing_is_left);
    TAP_RUN(test_bad_input);
    TAP_RUN(test_bad_options);
    zinf_tokenizer_close(byte_tokenizer());
    remove_folder(folder);
    return tap_done();
}
