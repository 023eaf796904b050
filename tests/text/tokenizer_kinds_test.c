/*
 * tokenizer_kinds: tokenizers of every kind against what Hugging Face answers, whole and in
 * portions. The fixtures hold 32 bits of a hash for each text; which ids differ shows
 * tests/compare/against_tokenizers.py.
 */
#include "base/json.h"
#include "tap.h"
#include "text_portions.h"

#include <unistd.h>

static const char *const names[] = {
    "llama2", "metaspace_first", "gemma", "qwen2",      "llama3", "bloom",
    "neox",   "falcon",          "clip",  "continuing", "fused",  "t5",
    "t5_old", "unigram_bytes",   "bert",  "bert_cased", "words",  "deberta",
};
enum { N_NAMES = sizeof names / sizeof *names };

static cJSON *texts, *answers;

static char *fixture_path(const char *name)
{
    const char *root = getenv("SRCDIR");
    static char path[4096];
    snprintf(path, sizeof path, "%s/tests/fixtures/tokenizer_kinds/%s.json", root ? root : ".",
             name);
    return path;
}

static cJSON *read_fixture(const char *name)
{
    cJSON *json = NULL;
    int code = zinf_json_read_file(fixture_path(name), 1u << 20, ZINF_JSON_STRICT, &json);
    CHECKF(!code, "%s", zinf_error());
    return json;
}

static struct zinf_tokenizer *open_kind(const char *name)
{
    struct zinf_tokenizer *tokenizer = NULL;
    char *json;
    size_t bytes;
    int code = zinf_file_read(fixture_path(name), 1u << 20, &json, &bytes);
    CHECKF(!code, "%s", zinf_error());
    if (code)
        return NULL;
    code = zinf_tokenizer_from_json(&tokenizer, json, bytes, name);
    CHECKF(!code, "%s", zinf_error());
    free(json);
    return tokenizer;
}

/* ---- answers ---- */

static uint64_t hash_in(uint64_t hash, uint32_t number)
{
    return hash * 6364136223846793005u + number + 1;
}

static uint32_t hash_ids(const struct zinf_tokens *tokens)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < tokens->count; i++)
        hash = hash_in(hash, (uint32_t)tokens->ids[i]);
    return (uint32_t)(hash >> 32);
}

static uint32_t hash_text(const char *text, size_t bytes)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < bytes; i++)
        hash = hash_in(hash, (uint8_t)text[i]);
    return (uint32_t)(hash >> 32);
}

static uint32_t read_hash(const char *hex)
{
    char digits[9] = {0};
    memcpy(digits, hex, 8);
    return (uint32_t)strtoul(digits, NULL, 16);
}

static const char *hashes_of(const char *name)
{
    const cJSON *answer = cJSON_GetObjectItemCaseSensitive(answers, name);
    const cJSON *hashes = cJSON_GetObjectItemCaseSensitive(answer, "hashes");
    bool good = cJSON_IsString(hashes) &&
                strlen(hashes->valuestring) == 16 * (size_t)cJSON_GetArraySize(texts);
    CHECKF(good, "%s: a hash for each text", name);
    return good ? hashes->valuestring : NULL;
}

static void check_text(const struct zinf_tokenizer *tokenizer, const char *name, const char *text,
                       const char *hashes)
{
    struct zinf_tokens tokens = {0};
    char *back = NULL;
    size_t bytes = 0;
    CHECKF(!zinf_tokenizer_encode(tokenizer, text, strlen(text), &tokens), "%s", zinf_error());
    CHECKF(hash_ids(&tokens) == read_hash(hashes), "%s: ids of '%s'", name, text);
    CHECK(!zinf_tokenizer_decode(tokenizer, tokens.ids, tokens.count, &back, &bytes));
    CHECKF(hash_text(back, bytes) == read_hash(hashes + 8), "%s: '%s' decodes to '%s'", name, text,
           back);
    free(back);
    zinf_tokens_free(&tokens);
}

static void check_texts(const struct zinf_tokenizer *tokenizer, const char *name)
{
    const char *hashes = hashes_of(name);
    const cJSON *text = hashes && tokenizer ? texts->child : NULL;
    for (; text; text = text->next, hashes += 16)
        check_text(tokenizer, name, text->valuestring, hashes);
}

static void test_ids_and_texts_equal_hugging_face(void)
{
    for (int i = 0; i < N_NAMES; i++) {
        struct zinf_tokenizer *tokenizer = open_kind(names[i]);
        check_texts(tokenizer, names[i]);
        zinf_tokenizer_close(tokenizer);
    }
}

/* ---- frames ---- */

static bool same_ids(const struct zinf_tokens *tokens, const cJSON *ids)
{
    size_t i = 0;
    const cJSON *id;
    cJSON_ArrayForEach(id, ids)
    {
        if (i >= tokens->count || tokens->ids[i] != id->valueint)
            return false;
        i++;
    }
    return i == tokens->count;
}

static void check_frames(const struct zinf_tokenizer *tokenizer, const char *name)
{
    const cJSON *answer = cJSON_GetObjectItemCaseSensitive(answers, name);
    struct zinf_tokens fox = {0}, jumps = {0}, one = {0}, two = {0}, types = {0};
    CHECK(!zinf_tokenizer_encode(tokenizer, "the fox", 7, &fox));
    CHECK(!zinf_tokenizer_encode(tokenizer, "jumps", 5, &jumps));
    CHECK(!zinf_tokenizer_frame(tokenizer, &fox, NULL, &one, NULL));
    CHECK(!zinf_tokenizer_frame(tokenizer, &fox, &jumps, &two, &types));
    CHECKF(same_ids(&one, cJSON_GetObjectItemCaseSensitive(answer, "single")), "%s", name);
    CHECKF(same_ids(&two, cJSON_GetObjectItemCaseSensitive(answer, "pair")), "%s", name);
    CHECKF(same_ids(&types, cJSON_GetObjectItemCaseSensitive(answer, "types")), "%s: types", name);
    zinf_tokens_free(&fox);
    zinf_tokens_free(&jumps);
    zinf_tokens_free(&one);
    zinf_tokens_free(&two);
    zinf_tokens_free(&types);
}

static void test_special_tokens_around_one_and_two_texts(void)
{
    for (int i = 0; i < N_NAMES; i++) {
        struct zinf_tokenizer *tokenizer = open_kind(names[i]);
        check_frames(tokenizer, names[i]);
        zinf_tokenizer_close(tokenizer);
    }
}

/* ---- tokenizer.model ---- */

static struct zinf_tokenizer *open_model(const char *folder)
{
    struct zinf_tokenizer *tokenizer = NULL;
    int code = zinf_tokenizer_open(&tokenizer, folder);
    CHECKF(!code || code == -ENOTSUP, "%s", zinf_error());
    return code ? NULL : tokenizer;
}

static char *model_folder(const char *name)
{
    char *path = fixture_path(name);
    path[strlen(path) - strlen(".json")] = 0;
    return path;
}

static void test_sentencepiece_model(void)
{
    struct zinf_tokenizer *tokenizer = open_model(model_folder("sentencepiece"));
    if (!tokenizer)
        SKIP("built without SentencePiece");
    CHECK(!strcmp(zinf_tokenizer_kind(tokenizer), "sentencepiece"));
    CHECK(zinf_tokenizer_end_of_text(tokenizer) == 2);
    check_texts(tokenizer, "sentencepiece");
    zinf_tokenizer_close(tokenizer);
}

/* spm.model: special tokens are pieces, the mask comes behind them, and pairs have types. */
static void test_deberta_model(void)
{
    struct zinf_tokenizer *tokenizer = open_model(model_folder("deberta_spm"));
    struct zinf_tokens mask = {0};
    if (!tokenizer)
        SKIP("built without SentencePiece");
    check_texts(tokenizer, "deberta_spm");
    check_frames(tokenizer, "deberta_spm");
    CHECK(!zinf_tokenizer_encode(tokenizer, "[MASK]", 6, &mask));
    CHECK(mask.count == 1 && (uint32_t)mask.ids[0] + 1 == zinf_tokenizer_vocab(tokenizer));
    zinf_tokens_free(&mask);
    zinf_tokenizer_close(tokenizer);
}

static void write_beside_model(const char *folder, const char *name, const char *bytes, size_t n)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (bytes)
        CHECK(!zinf_file_write_atomic(path, bytes, n));
    else
        unlink(path);
}

static const char config[] = "{\"add_eos_token\":true,\"added_tokens_decoder\":{"
                             "\"1\":{\"content\":\"<s>\"},\"9000\":{\"content\":\"<pad>\","
                             "\"rstrip\":true}}}";

/* What is beside the model: tokens with ids of their own, <s> and </s> around the text. */
static void check_config(const struct zinf_tokenizer *tokenizer)
{
    struct zinf_tokens whole = {0}, fox = {0}, framed = {0};
    const char *text = "fox<pad>  fox<s>";
    char *back;
    size_t bytes;
    CHECK(!zinf_tokenizer_encode(tokenizer, "fox", 3, &fox));
    CHECK(!zinf_tokenizer_encode(tokenizer, text, strlen(text), &whole));
    CHECK(zinf_tokenizer_vocab(tokenizer) == 9001);
    CHECKF(whole.count == 2 * fox.count + 2 && whole.ids[fox.count] == 9000 &&
               whole.ids[whole.count - 1] == 1 &&
               !memcmp(whole.ids + fox.count + 1, fox.ids, fox.count * sizeof *fox.ids),
           "%zu ids", whole.count);
    CHECK(!zinf_tokenizer_decode(tokenizer, whole.ids, whole.count, &back, &bytes));
    CHECKF(!strcmp(back, "fox<pad>fox"), "'%s'", back);
    CHECK(!zinf_tokenizer_frame(tokenizer, &fox, NULL, &framed, NULL));
    CHECK(framed.count == fox.count + 2 && framed.ids[0] == 1 && framed.ids[framed.count - 1] == 2);
    free(back);
    zinf_tokens_free(&whole);
    zinf_tokens_free(&fox);
    zinf_tokens_free(&framed);
}

static void test_what_is_beside_the_model(void)
{
    char folder[] = "kinds-test-XXXXXX", path[4200], *model;
    size_t bytes;
    struct zinf_tokenizer *tokenizer;
    snprintf(path, sizeof path, "%s/tokenizer.model", model_folder("sentencepiece"));
    CHECK(!zinf_file_read(path, 1u << 20, &model, &bytes));
    CHECK(mkdtemp(folder) != NULL);
    write_beside_model(folder, "tokenizer.model", model, bytes);
    write_beside_model(folder, "tokenizer_config.json", config, strlen(config));
    tokenizer = open_model(folder);
    if (tokenizer)
        check_config(tokenizer);
    zinf_tokenizer_close(tokenizer);
    write_beside_model(folder, "tokenizer_config.json", "{\"legacy\":false}", 16);
    CHECK(zinf_tokenizer_open(&tokenizer, folder) == -ENOTSUP);
    write_beside_model(folder, "tokenizer_config.json", NULL, 0);
    write_beside_model(folder, "added_tokens.json", "{\"<x>\":1}", 9);
    CHECK(zinf_tokenizer_open(&tokenizer, folder) < 0);
    write_beside_model(folder, "added_tokens.json", NULL, 0);
    write_beside_model(folder, "tokenizer.model", NULL, 0);
    rmdir(folder);
    free(model);
}

static void check_portions(const struct zinf_tokenizer *tokenizer, const char *name,
                           const char *text, size_t bytes, uint32_t *counter)
{
    struct zinf_tokens whole = {0}, parts = {0};
    int code = zinf_tokenizer_encode(tokenizer, text, bytes, &whole);
    CHECKF(!code, "%s", zinf_error());
    code = encode_in_portions(tokenizer, text, bytes, 0, counter, &parts);
    CHECKF(!code && hash_ids(&whole) == hash_ids(&parts) && whole.count == parts.count,
           "%s: portions differ in '%.300s'", name, text);
    zinf_tokens_free(&whole);
    zinf_tokens_free(&parts);
}

/* Texts strung together, with words between that leave places to cut, and some broken UTF-8. */
static size_t random_text(uint32_t *counter, char *out, size_t capacity)
{
    static const char *const joints[] = {"",     " ",        " the fox ", "\n",    "a b\nc d",
                                         "\xff", "\xe2\x82", "<sp>",      "<mask>"};
    size_t bytes = 0;
    uint32_t n = (uint32_t)cJSON_GetArraySize(texts), parts = 1 + random_below(counter, 8);
    for (uint32_t i = 0; i < parts; i++) {
        const char *part = cJSON_GetArrayItem(texts, (int)random_below(counter, n))->valuestring;
        const char *joint = joints[random_below(counter, 9)];
        size_t more = strlen(part) + strlen(joint);
        if (bytes + more >= capacity || strlen(part) > 400)
            continue;
        memcpy(out + bytes, part, strlen(part));
        memcpy(out + bytes + strlen(part), joint, strlen(joint));
        bytes += more;
    }
    out[bytes] = 0;
    return bytes;
}

static void test_any_cuts_give_the_same_ids(void)
{
    uint32_t counter = 0;
    char text[4096];
    for (int i = 0; i < N_NAMES; i++) {
        struct zinf_tokenizer *tokenizer = open_kind(names[i]);
        for (int round = 0; round < 150; round++) {
            size_t bytes = random_text(&counter, text, sizeof text);
            check_portions(tokenizer, names[i], text, bytes, &counter);
        }
        zinf_tokenizer_close(tokenizer);
    }
}

/* Bytes of any kind become ids of the vocabulary, and ids of any kind some text. */
static void test_any_bytes_and_any_ids(void)
{
    uint32_t counter = 0;
    for (int i = 0; i < N_NAMES; i++) {
        struct zinf_tokenizer *tokenizer = open_kind(names[i]);
        for (int round = 0; round < 150; round++) {
            struct zinf_tokens tokens = {0};
            size_t n = random_below(&counter, 64), bytes;
            uint32_t vocab = zinf_tokenizer_vocab(tokenizer);
            char *text = malloc(n + 1), *back = NULL;
            for (size_t j = 0; j < n; j++)
                text[j] = (char)random_below(&counter, 256);
            CHECKF(!zinf_tokenizer_encode(tokenizer, text, n, &tokens), "%s", zinf_error());
            for (size_t j = 0; j < tokens.count; j++)
                CHECK(tokens.ids[j] >= 0 && (uint32_t)tokens.ids[j] < vocab);
            for (size_t j = 0; j < n; j++)
                text_tokens_push(&tokens, (int32_t)random_below(&counter, vocab + 4) - 2);
            CHECK(!zinf_tokenizer_decode(tokenizer, tokens.ids, tokens.count, &back, &bytes));
            CHECK(back && !back[bytes]);
            free(back);
            free(text);
            zinf_tokens_free(&tokens);
        }
        zinf_tokenizer_close(tokenizer);
    }
}

/* Ordinary text must not wait for its end, or memory would not be bounded. */
static void test_streaming_makes_headway(void)
{
    char text[8192];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = "the quick brown fox jumps.\n"[i % 27];
    for (int i = 0; i < N_NAMES; i++) {
        struct zinf_tokenizer *tokenizer = open_kind(names[i]);
        struct zinf_tokens tokens = {0};
        struct text_encoder encoder;
        size_t consumed = 0;
        /* Replaces \s+ or \s{2,}; waits for a capital; waits for a digit: no end is known to be
         * safe. */
        if (!strcmp(names[i], "clip") || !strcmp(names[i], "deberta") ||
            !strcmp(names[i], "fused") || !strcmp(names[i], "unigram_bytes")) {
            zinf_tokenizer_close(tokenizer);
            continue;
        }
        CHECK(!text_encoder_init(&encoder, tokenizer, &tokens));
        CHECK(!text_encoder_feed(&encoder, text, 0, sizeof text, false, &consumed));
        CHECKF(consumed > sizeof text - 100 && tokens.count > 1000,
               "%s: %zu bytes consumed, %zu tokens", names[i], consumed, tokens.count);
        text_encoder_fini(&encoder);
        zinf_tokens_free(&tokens);
        zinf_tokenizer_close(tokenizer);
    }
}

int main(void)
{
    texts = read_fixture("texts");
    answers = read_fixture("answers");
    TAP_RUN(test_ids_and_texts_equal_hugging_face);
    TAP_RUN(test_special_tokens_around_one_and_two_texts);
    TAP_RUN(test_sentencepiece_model);
    TAP_RUN(test_deberta_model);
    TAP_RUN(test_what_is_beside_the_model);
    TAP_RUN(test_any_cuts_give_the_same_ids);
    TAP_RUN(test_any_bytes_and_any_ids);
    TAP_RUN(test_streaming_makes_headway);
    cJSON_Delete(texts);
    cJSON_Delete(answers);
    return tap_done();
}
