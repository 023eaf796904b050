/* text: tokenizers against Hugging Face's ids, streaming in any cuts. */
#include "base/json.h"
#include "tap.h"
#include "text_portions.h"

#include <unistd.h>

static const char *const names[] = {"plain", "prefix", "split", "literal"};
enum { N_NAMES = sizeof names / sizeof *names };

static const char *source_path(const char *name)
{
    static char path[4096];
    const char *root = getenv("SRCDIR");
    snprintf(path, sizeof path, "%s/tests/fixtures/tokenizer/%s", root ? root : ".", name);
    return path;
}

static struct zinf_tokenizer *open_fixture(const char *name)
{
    struct zinf_tokenizer *tokenizer = NULL;
    char file[64], *json;
    size_t bytes;
    snprintf(file, sizeof file, "%s.json", name);
    if (zinf_file_read(source_path(file), 1u << 20, &json, &bytes)) {
        CHECKF(0, "%s", zinf_error());
        return NULL;
    }
    int code = zinf_tokenizer_from_json(&tokenizer, json, bytes, file);
    CHECKF(!code, "%s", zinf_error());
    free(json);
    return tokenizer;
}

static cJSON *read_cases(const char *name)
{
    char file[64];
    cJSON *cases = NULL;
    snprintf(file, sizeof file, "%s_cases.json", name);
    int code = zinf_json_read_file(source_path(file), 1u << 20, ZINF_JSON_STRICT, &cases);
    CHECKF(!code, "%s", zinf_error());
    return cases;
}

static bool same_ids(const struct zinf_tokens *tokens, const cJSON *ids)
{
    const cJSON *id;
    size_t i = 0;
    cJSON_ArrayForEach(id, ids)
    {
        if (i >= tokens->count || tokens->ids[i] != id->valueint)
            return false;
        i++;
    }
    return i == tokens->count;
}

static const char *text_of(const cJSON *item, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(item, key)->valuestring;
}

static void test_ids_equal_hugging_face(void)
{
    for (int i = 0; i < N_NAMES; i++) {
        struct zinf_tokenizer *tokenizer = open_fixture(names[i]);
        cJSON *cases = read_cases(names[i]), *item;
        int n = 0;
        cJSON_ArrayForEach(item, cases)
        {
            struct zinf_tokens tokens = {0};
            const char *text = text_of(item, "text");
            CHECK(!zinf_tokenizer_encode(tokenizer, text, strlen(text), &tokens));
            CHECKF(same_ids(&tokens, cJSON_GetObjectItemCaseSensitive(item, "ids")),
                   "%s: ids of '%s'", names[i], text);
            zinf_tokens_free(&tokens);
            n++;
        }
        CHECKF(n > 150, "%s: %d cases", names[i], n);
        cJSON_Delete(cases);
        zinf_tokenizer_close(tokenizer);
    }
}

static void test_decoding_equals_hugging_face(void)
{
    for (int i = 0; i < N_NAMES; i++) {
        struct zinf_tokenizer *tokenizer = open_fixture(names[i]);
        cJSON *cases = read_cases(names[i]), *item, *id;
        cJSON_ArrayForEach(item, cases)
        {
            struct zinf_tokens tokens = {0};
            char *text;
            size_t bytes;
            cJSON_ArrayForEach(id, cJSON_GetObjectItemCaseSensitive(item, "ids"))
                text_tokens_push(&tokens, id->valueint);
            CHECK(!zinf_tokenizer_decode(tokenizer, tokens.ids, tokens.count, &text, &bytes));
            CHECKF(!strcmp(text, text_of(item, "decoded")) && strlen(text) == bytes,
                   "%s: '%s' decodes to '%s'", names[i], text_of(item, "text"), text);
            free(text);
            zinf_tokens_free(&tokens);
        }
        cJSON_Delete(cases);
        zinf_tokenizer_close(tokenizer);
    }
}

static bool equal_tokens(const struct zinf_tokens *a, const struct zinf_tokens *b)
{
    return a->count == b->count &&
           (!a->count || !memcmp(a->ids, b->ids, a->count * sizeof *a->ids));
}

static void check_portions(const struct zinf_tokenizer *tokenizer, const char *text, size_t bytes,
                           uint32_t most, uint32_t *counter)
{
    struct zinf_tokens whole = {0}, pieces = {0};
    CHECK(!zinf_tokenizer_encode(tokenizer, text, bytes, &whole));
    int code = encode_in_portions(tokenizer, text, bytes, most, counter, &pieces);
    CHECKF(!code && equal_tokens(&whole, &pieces), "portions of up to %u bytes differ in '%.300s'",
           most, text);
    zinf_tokens_free(&whole);
    zinf_tokens_free(&pieces);
}

/* Texts of the fixtures strung together, with bytes that are no UTF-8 between some. */
static size_t random_text(const cJSON *cases, uint32_t *counter, char *out, size_t capacity)
{
    static const char *const broken[] = {"\xff", "\xc3",         "\xe2\x82", "\xf0\x9f\x98",
                                         "\x80", "\xe0\x80\x80", "\xc0\xaf", "\xf4\x90\x80\x80"};
    size_t bytes = 0;
    uint32_t parts = 1 + random_below(counter, 12), n = (uint32_t)cJSON_GetArraySize(cases);
    for (uint32_t i = 0; i < parts; i++) {
        const cJSON *item = cJSON_GetArrayItem(cases, (int)random_below(counter, n));
        const char *part = text_of(item, "text");
        if (random_below(counter, 8) == 0)
            part = broken[random_below(counter, 8)];
        if (bytes + strlen(part) >= capacity)
            break;
        memcpy(out + bytes, part, strlen(part));
        bytes += strlen(part);
    }
    out[bytes] = 0;
    return bytes;
}

static void test_any_cuts_give_the_same_ids(void)
{
    uint32_t counter = 0;
    char text[8192];
    for (int i = 0; i < N_NAMES; i++) {
        struct zinf_tokenizer *tokenizer = open_fixture(names[i]);
        cJSON *cases = read_cases(names[i]), *item;
        cJSON_ArrayForEach(item, cases)
        {
            const char *one = text_of(item, "text");
            check_portions(tokenizer, one, strlen(one), 1, &counter);
        }
        for (int round = 0; round < 300; round++) {
            size_t bytes = random_text(cases, &counter, text, sizeof text);
            check_portions(tokenizer, text, bytes, round % 3 ? 5 : 60, &counter);
        }
        cJSON_Delete(cases);
        zinf_tokenizer_close(tokenizer);
    }
}

/* Almost nothing may wait for more text, or memory would not be bounded. */
static void test_streaming_makes_headway(void)
{
    struct zinf_tokenizer *tokenizer = open_fixture("plain");
    struct zinf_tokens tokens = {0};
    struct text_encoder encoder;
    char text[4096];
    size_t consumed = 0;
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = "the quick brown fox\n"[i % 20];
    CHECK(!text_encoder_init(&encoder, tokenizer, &tokens));
    CHECK(!text_encoder_feed(&encoder, text, 0, sizeof text, false, &consumed));
    CHECKF(consumed > sizeof text - 64, "%zu bytes consumed", consumed);
    text_encoder_fini(&encoder);
    zinf_tokens_free(&tokens);
    zinf_tokenizer_close(tokenizer);
}

/* ---- bytes ---- */

static void test_bytes_tokenizer(void)
{
    struct zinf_tokenizer *tokenizer;
    struct zinf_tokens tokens = {0};
    char all[256], *text;
    size_t bytes;
    for (int i = 0; i < 256; i++)
        all[i] = (char)i;
    CHECK(!zinf_tokenizer_bytes(&tokenizer));
    CHECK(!strcmp(zinf_tokenizer_kind(tokenizer), "bytes"));
    CHECK(zinf_tokenizer_vocab(tokenizer) == 257);
    CHECK(zinf_tokenizer_end_of_text(tokenizer) == 256);
    CHECK(!zinf_tokenizer_encode(tokenizer, all, 256, &tokens) && tokens.count == 256);
    for (size_t i = 0; i < tokens.count; i++)
        CHECK(tokens.ids[i] == (int32_t)i);
    int32_t ids[] = {'h', 0xc3, 0xa9, 0xff, 256, 9999, -1, 0xe2, 0x82, '.'};
    CHECK(!zinf_tokenizer_decode(tokenizer, ids, 10, &text, &bytes));
    CHECKF(!strcmp(text, "h\xc3\xa9\xef\xbf\xbd<|endoftext|>\xef\xbf\xbd."), "'%s'", text);
    free(text);
    zinf_tokens_free(&tokens);
    zinf_tokenizer_close(tokenizer);
}

/* One U+FFFD for each maximal part that no valid text begins with, as everybody decodes. */
static void test_malformed_bytes_when_decoding(void)
{
    static const struct {
        const char *bytes;
        int replaced;
    } cases[] = {
        {"\xc0\xaf", 2},         {"\xe0\x80\x80", 3},     {"\xe0\xa0", 1}, {"\xed\xa0\x80", 3},
        {"\xf0\x80\x80\x80", 4}, {"\xf0\x9f\x98", 1},     {"\xe2\x82", 1}, {"\xf4\x90\x80\x80", 4},
        {"\xf5\x80", 2},         {"\xf0\x9f\x98\xe2", 2}, {"\x80", 1},     {"\xe2\xe2\x82\xac", 1},
    };
    struct zinf_tokenizer *tokenizer;
    CHECK(!zinf_tokenizer_bytes(&tokenizer));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct zinf_tokens tokens = {0};
        char *text;
        size_t bytes;
        int replaced = 0;
        zinf_tokenizer_encode(tokenizer, cases[i].bytes, strlen(cases[i].bytes), &tokens);
        CHECK(!zinf_tokenizer_decode(tokenizer, tokens.ids, tokens.count, &text, &bytes));
        for (const char *at = text; (at = strstr(at, "\xef\xbf\xbd")); at += 3)
            replaced++;
        CHECKF(replaced == cases[i].replaced, "case %zu: %d replaced", i, replaced);
        free(text);
        zinf_tokens_free(&tokens);
    }
    zinf_tokenizer_close(tokenizer);
}

/* What is no UTF-8 becomes the ids of its bytes, and what is between stays as it was. */
static void test_invalid_utf8_goes_byte_by_byte(void)
{
    struct zinf_tokenizer *tokenizer = open_fixture("plain");
    struct zinf_tokens tokens = {0}, left = {0}, right = {0};
    CHECK(!zinf_tokenizer_encode(tokenizer, "the fox\xff\xc3 jumps", 15, &tokens));
    CHECK(!zinf_tokenizer_encode(tokenizer, "the fox", 7, &left));
    CHECK(!zinf_tokenizer_encode(tokenizer, " jumps", 6, &right));
    CHECK(tokens.count == left.count + 2 + right.count);
    CHECK(tokens.ids[left.count] == tokenizer->bpe.byte_ids[0xff]);
    CHECK(tokens.ids[left.count + 1] == tokenizer->bpe.byte_ids[0xc3]);
    CHECK(!memcmp(tokens.ids, left.ids, left.count * sizeof *left.ids));
    CHECK(!memcmp(tokens.ids + left.count + 2, right.ids, right.count * sizeof *right.ids));
    zinf_tokens_free(&tokens);
    zinf_tokens_free(&left);
    zinf_tokens_free(&right);
    zinf_tokenizer_close(tokenizer);
}

/* ---- GPT-2's own vocabulary ---- */

static void check_gpt2_ids(const struct zinf_tokens *tokens, const cJSON *expected)
{
    uint64_t hash = 0;
    char text[20];
    for (size_t i = 0; i < tokens->count; i++)
        hash = hash * 6364136223846793005u + (uint64_t)tokens->ids[i] + 1;
    snprintf(text, sizeof text, "%016llx", (unsigned long long)hash);
    const cJSON *count = cJSON_GetObjectItemCaseSensitive(expected, "count"), *id;
    CHECKF(tokens->count == (size_t)count->valueint, "%zu ids", tokens->count);
    CHECKF(!strcmp(text, text_of(expected, "hash")), "the ids hash to %s", text);
    size_t first = 0, last = tokens->count - 8;
    cJSON_ArrayForEach(id, cJSON_GetObjectItemCaseSensitive(expected, "first"))
        CHECK(tokens->ids[first++] == id->valueint);
    cJSON_ArrayForEach(id, cJSON_GetObjectItemCaseSensitive(expected, "last"))
        CHECK(tokens->ids[last++] == id->valueint);
}

static void test_gpt2_ids_of_tinyshakespeare(void)
{
    const char *data = getenv("ZINF_DATA"), *root = getenv("SRCDIR");
    char folder[4096], path[4160], *text = NULL;
    struct zinf_tokenizer *tokenizer = NULL;
    struct zinf_tokens tokens = {0}, pieces = {0};
    cJSON *expected = NULL;
    size_t bytes, back_bytes;
    uint32_t counter = 0;
    if (data)
        snprintf(folder, sizeof folder, "%s", data);
    else
        snprintf(folder, sizeof folder, "%s/../shared/data", root ? root : ".");
    snprintf(path, sizeof path, "%s/tinyshakespeare.txt", folder);
    if (access(path, R_OK))
        SKIP("no tinyshakespeare.txt: set ZINF_DATA to a folder with it and gpt2-bpe");
    CHECK(!zinf_file_read(path, 1u << 24, &text, &bytes));
    snprintf(path, sizeof path, "%s/gpt2-bpe", folder);
    CHECKF(!zinf_tokenizer_open(&tokenizer, path), "%s", zinf_error());
    CHECK(zinf_tokenizer_vocab(tokenizer) == 50257);
    CHECK(zinf_tokenizer_end_of_text(tokenizer) == 50256);
    CHECK(!zinf_json_read_file(source_path("gpt2.json"), 65536, ZINF_JSON_STRICT, &expected));
    CHECK(!zinf_tokenizer_encode(tokenizer, text, bytes, &tokens));
    check_gpt2_ids(&tokens, expected);
    CHECK(!encode_in_portions(tokenizer, text, bytes, 10000, &counter, &pieces));
    CHECK(equal_tokens(&tokens, &pieces));
    char *back;
    CHECK(!zinf_tokenizer_decode(tokenizer, tokens.ids, tokens.count, &back, &back_bytes));
    CHECK(back_bytes == bytes && !memcmp(back, text, bytes));
    free(back);
    free(text);
    zinf_tokens_free(&tokens);
    zinf_tokens_free(&pieces);
    cJSON_Delete(expected);
    zinf_tokenizer_close(tokenizer);
}

int main(void)
{
    TAP_RUN(test_ids_equal_hugging_face);
    TAP_RUN(test_decoding_equals_hugging_face);
    TAP_RUN(test_any_cuts_give_the_same_ids);
    TAP_RUN(test_streaming_makes_headway);
    TAP_RUN(test_bytes_tokenizer);
    TAP_RUN(test_malformed_bytes_when_decoding);
    TAP_RUN(test_invalid_utf8_goes_byte_by_byte);
    TAP_RUN(test_gpt2_ids_of_tinyshakespeare);
    return tap_done();
}
