/* text: tokenizers' folders and files; what is not understood is refused by name. */
#include "text/text.h"
#include "tap.h"

#include <stdlib.h>
#include <unistd.h>

static void write_file(const char *folder, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (text)
        CHECK(!zinf_file_write_atomic(path, text, strlen(text)));
    else
        unlink(path);
}

static void test_folders(void)
{
    char folder[] = "text-test-XXXXXX";
    struct zinf_tokenizer *tokenizer;
    CHECK(mkdtemp(folder) != NULL);
    CHECK(!zinf_tokenizer_open(&tokenizer, folder));
    CHECK(!strcmp(zinf_tokenizer_kind(tokenizer), "bytes"));
    zinf_tokenizer_close(tokenizer);
    write_file(folder, "vocab.json", "{\"a\":0,\"b\":1,\"ab\":2,\"<|endoftext|>\":3,\"</s>\":4}");
    CHECK(zinf_tokenizer_open(&tokenizer, folder) == -EINVAL && strstr(zinf_error(), "merges.txt"));
    write_file(folder, "merges.txt", "#version: 0.2\r\na b\r\n");
    CHECKF(!zinf_tokenizer_open(&tokenizer, folder), "%s", zinf_error());
    CHECK(!strcmp(zinf_tokenizer_kind(tokenizer), "bpe"));
    CHECK(zinf_tokenizer_vocab(tokenizer) == 5 && zinf_tokenizer_end_of_text(tokenizer) == 3);
    uint64_t fingerprint = zinf_tokenizer_fingerprint(tokenizer);
    zinf_tokenizer_close(tokenizer);
    write_file(folder, "tokenizer_config.json", "{\"eos_token\":{\"content\":\"</s>\"}}");
    write_file(folder, "merges.txt", "a b");
    CHECK(!zinf_tokenizer_open(&tokenizer, folder));
    CHECK(zinf_tokenizer_end_of_text(tokenizer) == 4);
    CHECK(zinf_tokenizer_fingerprint(tokenizer) != fingerprint);
    zinf_tokenizer_close(tokenizer);
    write_file(folder, "merges.txt", "a b\nb a\n");
    CHECK(zinf_tokenizer_open(&tokenizer, folder) == -EINVAL);
    CHECKF(strstr(zinf_error(), "line 2") && strstr(zinf_error(), "\"ba\""), "%s", zinf_error());
    write_file(folder, "merges.txt", NULL);
    write_file(folder, "vocab.json", NULL);
    write_file(folder, "tokenizer.model", "x");
    CHECK(zinf_tokenizer_open(&tokenizer, folder) < 0 && strstr(zinf_error(), "tokenizer.model") &&
          strstr(zinf_error(), "SentencePiece"));
    write_file(folder, "tokenizer.model", NULL);
    write_file(folder, "tokenizer_config.json", NULL);
    rmdir(folder);
    CHECK(zinf_tokenizer_open(&tokenizer, folder) == -ENOENT);
}

#define BYTE_LEVEL                                                                                 \
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true}"
#define MODEL "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}"
#define SPLIT(pattern)                                                                             \
    "{\"model\":" MODEL ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":"  \
    "\"Split\",\"pattern\":{\"Regex\":\"" pattern "\"},\"behavior\":\"Isolated\"}," BYTE_LEVEL     \
    "]}}"
#define WITH(model, rest) "{\"model\":" model ",\"pre_tokenizer\":" BYTE_LEVEL rest "}"

static void test_refusals_name_what_and_where(void)
{
    static const struct {
        const char *json, *said;
    } cases[] = {
        {"{\"model\":{\"type\":\"Morfessor\"}}", "Morfessor"},
        {"{\"model\":{\"type\":\"Unigram\"}}", "vocab"},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\"]]}}", "item 0"},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",1]],\"unk_id\":1}}", "unk_id"},
        {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{}}}", "vocab"},
        {"{}", "model"},
        {"[1]", "model"},
        {"{\"model\":", "line 1"},
        {"{\"model\":" MODEL ",\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}}", "UnicodeScripts"},
        {"{\"model\":" MODEL ",\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"xy\"}}",
         "Metaspace"},
        {"{\"model\":" MODEL ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
         "{\"type\":\"Digits\"}," BYTE_LEVEL "," BYTE_LEVEL "]}}",
         "twice"},
        {WITH(MODEL, ",\"normalizer\":{\"type\":\"NFQ\"}"), "NFQ"},
        {WITH(MODEL,
              ",\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAAA\"}"),
         "precompiled_charsmap"},
        {WITH(MODEL, ",\"normalizer\":{\"type\":\"Replace\",\"pattern\":{},\"content\":\"\"}"),
         "pattern"},
        {WITH(MODEL, ",\"decoder\":{\"type\":\"CTC\"}"), "CTC"},
        {WITH(MODEL, ",\"post_processor\":{\"type\":\"Other\"}"), "Other"},
        {WITH(MODEL, ",\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":[\"a\",-1]}"), "id"},
        {WITH("{\"vocab\":{\"a\":0,\"b\":1},\"merges\":[\"a b\"]}", ""), "\"ab\""},
        {WITH("{\"vocab\":{\"a\":0,\"ab\":1},\"merges\":[\"a b\"]}", ""), "\"b\""},
        {WITH("{\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}", ""), "two tokens"},
        {WITH("{\"vocab\":{\"a\":-1},\"merges\":[]}", ""), "\"a\""},
        {WITH("{\"vocab\":{\"a\":1e18},\"merges\":[]}", ""), "\"a\""},
        {WITH("{\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]}", ""), "twice"},
        {WITH("{\"vocab\":{\"a\":0},\"merges\":[\"a\"]}", ""), "merge 0"},
        {WITH("{\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]}", ""), "merge 0"},
        {WITH("{\"vocab\":{},\"merges\":[]}", ""), "vocab"},
        {WITH("{\"vocab\":{\"a\":0},\"merges\":[],\"byte_fallback\":true}", ""), "byte_fallback"},
        {WITH("{\"vocab\":{\"a\":0},\"merges\":[],\"dropout\":0.1}", ""), "dropout"},
        {WITH("{\"vocab\":{\"a\":0},\"merges\":[],\"end_of_word_suffix\":"
              "\"0123456789012345678901234567890123\"}",
              ""),
         "end_of_word_suffix"},
        {WITH("{\"vocab\":{\"a\":0},\"merges\":[],\"unk_token\":\"<u>\"}", ""), "<u>"},
        {WITH(MODEL, ",\"added_tokens\":[{\"id\":1,\"content\":\"x\"}]"), "belongs"},
        {WITH(MODEL, ",\"added_tokens\":[{\"id\":1,\"content\":\"a\"}]"), "\"a\""},
        {WITH(MODEL, ",\"added_tokens\":[{\"id\":7}]"), "content"},
        {WITH(MODEL, ",\"added_tokens\":[{\"content\":\"x\"}]"), "\"x\""},
        {SPLIT("\\\\w+"), "\\w"},
        {SPLIT("(?<=a)b"), "group"},
        {SPLIT("a*"), "empty"},
        {SPLIT("[[^a]b]"), "class within"},
        {SPLIT("\\\\p{Han}+"), "property"},
        {SPLIT("\\\\p{N}{1,3}+"), "after {n,m}"},
        {SPLIT("(a"), "'(a'"},
        {SPLIT("^a"), "anchor"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct zinf_tokenizer *tokenizer = NULL;
        const char *json = cases[i].json;
        int code = zinf_tokenizer_from_json(&tokenizer, json, strlen(json), "given.json");
        CHECKF(code < 0, "%s is taken", json);
        CHECKF(strstr(zinf_error(), cases[i].said) && strstr(zinf_error(), "given.json"),
               "%s: '%s' does not name %s", json, zinf_error(), cases[i].said);
        if (!code)
            zinf_tokenizer_close(tokenizer);
    }
}

/* Bytes outside a small vocabulary are left out without unk_token, and fused as it says with. */
static void check_ids(const char *json, const char *text, const char *want)
{
    struct zinf_tokenizer *tokenizer;
    struct zinf_tokens tokens = {0};
    char got[256] = "";
    if (zinf_tokenizer_from_json(&tokenizer, json, strlen(json), "small")) {
        CHECKF(0, "%s", zinf_error());
        return;
    }
    CHECK(!zinf_tokenizer_encode(tokenizer, text, strlen(text), &tokens));
    for (size_t i = 0; i < tokens.count; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%d ", tokens.ids[i]);
    CHECKF(!strcmp(got, want), "'%s' gives %s, not %s", text, got, want);
    zinf_tokens_free(&tokens);
    zinf_tokenizer_close(tokenizer);
}

#define SMALL(rest)                                                                                \
    "{\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"?\":3},\"merges\":[[\"a\",\"b\"]]" rest "}"

static void test_bytes_outside_the_vocabulary(void)
{
    check_ids(WITH(SMALL(""), ""), "axyb", "2 ");
    check_ids(WITH(SMALL(",\"unk_token\":\"?\""), ""), "axyb", "0 3 3 1 ");
    check_ids(WITH(SMALL(",\"unk_token\":\"?\",\"fuse_unk\":true"), ""), "axyb", "0 3 1 ");
}

/* \d is the digits of all scripts, of those too that are newer than the engine: they stand apart.
 */
static void test_newer_digits(void)
{
    static const char split[] =
        "{\"model\":" MODEL ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{"
        "\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\d\"},\"behavior\":\"Isolated\"},"
        "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,"
        "\"use_regex\":false}]}}";
    check_ids(split, "a7b", "0 1 ");
    check_ids(split,
              "a\xf0\x90\xb5\x80"
              "b",
              "0 1 "); /* U+10D40 */
    check_ids(split,
              "a\xf0\x91\x9b\x90"
              "b",
              "0 1 "); /* U+116D0 */
    check_ids(split,
              "a\xf0\x91\xbd\x90"
              "b",
              "0 1 "); /* U+11F50 */
    check_ids(split,
              "a\xf0\x91\xbc\x84"
              "b",
              "2 "); /* U+11F04, a letter */
}

#define UNIGRAMS                                                                                   \
    "{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"?\",0],[\"a\",-1],[\"b\",-1],["   \
    "\"ab\",-2],"                                                                                  \
    "[\"aa\",-1.5]]}}"

/* Of equal sums the path that was found first stays; what is unknown is one token. */
static void test_ties_between_paths(void)
{
    check_ids(UNIGRAMS, "ab", "3 ");
    check_ids(UNIGRAMS, "aab", "4 2 ");
    check_ids(UNIGRAMS, "axyzb", "1 0 2 ");
}

int main(void)
{
    TAP_RUN(test_folders);
    TAP_RUN(test_refusals_name_what_and_where);
    TAP_RUN(test_bytes_outside_the_vocabulary);
    TAP_RUN(test_newer_digits);
    TAP_RUN(test_ties_between_paths);
    return tap_done();
}
