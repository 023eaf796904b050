/*
 * gguf_vocab: a folder's tokenizer as llama.cpp's keys: the byte-level BPE of tokenizer.json
 * ("gpt2" there), or SentencePiece's pieces ("llama"), from tokenizer.model or from a BPE with
 * fallback to bytes. Which way text is cut before the merges llama.cpp knows by a name, which is
 * told here by the expression in tokenizer.json.
 */
#include "train/save/gguf.h"

#include "base/folder.h"
#include "base/protobuf.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MOST_BYTES (512u << 20)
#define MOST_TOKENS (1u << 24)

/* Types of tokens, as llama.cpp numbers them. */
enum { NORMAL = 1, UNKNOWN, CONTROL, USER, UNUSED, BYTE };

struct vocab {
    struct zinf_gguf_writer *to;
    const char *folder;
    const cJSON *config, *tokenizer, *settings; /* config.json, tokenizer.json and its config */
    char **tokens;                              /* [n], on the heap */
    int32_t *types;
    float *scores;
    uint64_t n;
};

static const cJSON *get(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

static int fail_memory(const struct vocab *v)
{
    return zinf_fail(-ENOMEM, "no memory for the tokenizer of %s", v->folder);
}

/* text is copied. */
static int set_token(struct vocab *v, uint64_t id, const char *text, size_t bytes, int type,
                     float score)
{
    if (id >= v->n)
        return 0; /* the model has no row for it */
    char *copy = strndup(text, bytes);
    if (!copy)
        return fail_memory(v);
    free(v->tokens[id]);
    v->tokens[id] = copy;
    v->types[id] = type;
    v->scores[id] = score;
    return 0;
}

/* Rows of the model that no token has. */
static int fill_gaps(struct vocab *v, float score)
{
    char name[32];
    int code = 0;
    for (uint64_t i = 0; !code && i < v->n; i++)
        if (!v->tokens[i]) {
            int n = snprintf(name, sizeof name, "[PAD%llu]", (unsigned long long)i);
            code = set_token(v, i, name, (size_t)n, UNUSED, score);
        }
    return code;
}

/* ---- added tokens ---- */

static bool surrounded(const char *text, const char *begin, const char *end)
{
    size_t n = strlen(text), b = strlen(begin), e = strlen(end);
    return n >= b + e && !strncmp(text, begin, b) && !strcmp(text + n - e, end);
}

/* Some are marked as plain that must not be written by a user. */
static bool looks_special(const char *text)
{
    return !strcmp(text, "<pad>") || !strcmp(text, "<mask>") || !strcmp(text, "<2mass>") ||
           !strcmp(text, "[@BOS@]") || surrounded(text, "<|", "|>") ||
           surrounded(text, "<\xef\xbd\x9c", "\xef\xbd\x9c>") || surrounded(text, "<unused", ">");
}

static int add_added(struct vocab *v, uint64_t id, const cJSON *token)
{
    const char *content = cJSON_GetStringValue(get(token, "content"));
    if (!content)
        return 0;
    if (cJSON_IsTrue(get(token, "special")) || looks_special(content))
        return set_token(v, id, content, strlen(content), CONTROL, -1000);
    char *plain = strdup(content), *at = plain, *to = plain;
    if (!plain)
        return fail_memory(v);
    while (*at) /* SentencePiece's mark of a space */
        if (!strncmp(at, "\xe2\x96\x81", 3)) {
            *to++ = ' ';
            at += 3;
        } else {
            *to++ = *at++;
        }
    int code = set_token(v, id, plain, (size_t)(to - plain), USER, -1000);
    free(plain);
    return code;
}

static int add_all_added(struct vocab *v)
{
    const cJSON *token;
    int code = 0;
    cJSON_ArrayForEach(token, get(v->tokenizer, "added_tokens"))
    {
        const cJSON *id = get(token, "id");
        if (!code && cJSON_IsNumber(id) && id->valuedouble >= 0)
            code = add_added(v, (uint64_t)id->valuedouble, token);
    }
    return code;
}

/* ---- tokenizer.json ---- */

static int add_pieces(struct vocab *v)
{
    const cJSON *piece;
    int code = 0;
    cJSON_ArrayForEach(piece, get(get(v->tokenizer, "model"), "vocab"))
    {
        if (!code && cJSON_IsNumber(piece) && piece->valuedouble >= 0)
            code = set_token(v, (uint64_t)piece->valuedouble, piece->string, strlen(piece->string),
                             NORMAL, -1000);
    }
    return code;
}

/* "left right", whether the file has that or a pair. */
static char *merge_text(const cJSON *merge)
{
    const char *left = cJSON_GetStringValue(cJSON_GetArrayItem(merge, 0));
    const char *right = cJSON_GetStringValue(cJSON_GetArrayItem(merge, 1));
    char *text = NULL;
    if (cJSON_IsString(merge))
        return strdup(merge->valuestring);
    if (!left || !right || asprintf(&text, "%s %s", left, right) < 0)
        return NULL;
    return text;
}

static int add_merges(struct vocab *v)
{
    const cJSON *list = get(get(v->tokenizer, "model"), "merges"), *merge;
    uint64_t n = 0, count = (uint64_t)cJSON_GetArraySize(list);
    char **texts = calloc(count + 1, sizeof *texts);
    int code = texts ? 0 : fail_memory(v);
    cJSON_ArrayForEach(merge, list)
    {
        if (!code && !(texts[n++] = merge_text(merge)))
            code = zinf_fail(-EINVAL, "%s/tokenizer.json: a merge is no pair", v->folder);
    }
    if (!code) /* readers want the list, though bytes alone are never merged */
        zinf_gguf_texts(v->to, "tokenizer.ggml.merges", texts, n);
    for (uint64_t i = 0; texts && i < n; i++)
        free(texts[i]);
    free(texts);
    return code;
}

/* The expressions by which text is cut, and llama.cpp's names for them. */
#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define WORDS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"
#define REST "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define CASED                                                                                      \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"
static const struct {
    const char *begins, *name;
} cuts[] = {
    {CONTRACTIONS WORDS "{1,3}" REST, "llama-bpe"},
    {CONTRACTIONS WORDS REST, "qwen2"},
    {CASED CONTRACTIONS "?", "gpt-4o"},
    {CASED "|", "tekken"},
};

static const char *cut_name(const struct vocab *v)
{
    const cJSON *all = get(v->tokenizer, "pre_tokenizer"), *list = get(all, "pretokenizers");
    const cJSON *first = cJSON_IsArray(list) ? cJSON_GetArrayItem(list, 0) : all;
    const char *type = cJSON_GetStringValue(get(first, "type"));
    const char *text = cJSON_GetStringValue(get(get(first, "pattern"), "Regex"));
    if (type && !strcmp(type, "ByteLevel"))
        return "gpt-2";
    if (type && !strcmp(type, "Digits") && cJSON_IsTrue(get(first, "individual_digits")))
        return "smollm";
    for (size_t i = 0; text && i < sizeof cuts / sizeof *cuts; i++)
        if (!strncmp(text, cuts[i].begins, strlen(cuts[i].begins)))
            return cuts[i].name;
    zinf_log(ZINF_LOG_WARN,
             "%s: llama.cpp may cut text in another way than this tokenizer: its expression is "
             "none that llama.cpp has a name for here; compare some ids before you rely on the "
             "file",
             v->folder);
    return "default";
}

/* Byte-level BPE. */
static int add_bpe(struct vocab *v)
{
    int code = add_pieces(v);
    if (!code)
        code = add_all_added(v);
    if (!code)
        code = fill_gaps(v, 0);
    if (code)
        return code;
    zinf_gguf_text(v->to, "tokenizer.ggml.model", "gpt2");
    zinf_gguf_text(v->to, "tokenizer.ggml.pre", cut_name(v));
    zinf_gguf_texts(v->to, "tokenizer.ggml.tokens", v->tokens, v->n);
    zinf_gguf_i32s(v->to, "tokenizer.ggml.token_type", v->types, v->n);
    return add_merges(v);
}

/* ---- SentencePiece ---- */

struct ranked {
    char *text;
    float score;
};

static int compare_texts(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    return strcmp(x->text, y->text);
}

/* Of a BPE with fallback to bytes: llama.cpp merges what has the best score, so that of a token is
 * its merge's rank. */
static int score_by_merges(struct vocab *v)
{
    const cJSON *list = get(get(v->tokenizer, "model"), "merges"), *merge;
    uint64_t n = 0, count = (uint64_t)cJSON_GetArraySize(list);
    struct ranked *ranks = calloc(count + 1, sizeof *ranks);
    int code = ranks ? 0 : fail_memory(v);
    cJSON_ArrayForEach(merge, list)
    {
        char *text = code ? NULL : merge_text(merge), *space = text ? strchr(text, ' ') : NULL;
        if (space)
            memmove(space, space + 1, strlen(space));
        ranks[n] = (struct ranked){text, -(float)n};
        n += text != NULL;
    }
    if (!code)
        qsort(ranks, n, sizeof *ranks, compare_texts);
    for (uint64_t i = 0; !code && i < v->n; i++) {
        struct ranked wanted = {v->tokens[i], 0}, *found;
        if (!v->tokens[i] || v->types[i] != NORMAL)
            continue;
        found = bsearch(&wanted, ranks, n, sizeof *ranks, compare_texts);
        v->scores[i] = found ? found->score : -(float)n;
        if (strlen(v->tokens[i]) == 6 && surrounded(v->tokens[i], "<0x", ">"))
            v->types[i] = BYTE;
    }
    for (uint64_t i = 0; ranks && i < n; i++)
        free(ranks[i].text);
    free(ranks);
    return code;
}

/* A piece: its text (1), score (2) and type (3), whose numbers are llama.cpp's. */
static int add_piece(struct vocab *v, uint64_t id, struct zinf_message piece)
{
    struct zinf_message text = {NULL, NULL};
    struct zinf_field field;
    uint64_t type = NORMAL;
    float score = 0;
    int more;
    while ((more = zinf_message_next(&piece, &field)) > 0) {
        if (field.number == 1)
            text = field.body;
        else if (field.number == 2 && field.body.end - field.body.at == 4)
            memcpy(&score, field.body.at, 4);
        else if (field.number == 3)
            type = field.value;
    }
    if (more < 0 || !text.at || type < NORMAL || type > BYTE)
        return zinf_fail(-EINVAL, "%s/tokenizer.model: piece %llu is damaged", v->folder,
                         (unsigned long long)id);
    return set_token(v, id, (const char *)text.at, (size_t)(text.end - text.at), (int)type, score);
}

static int read_model(struct vocab *v, const char *data, size_t bytes)
{
    struct zinf_message all = {(const uint8_t *)data, (const uint8_t *)data + bytes};
    struct zinf_field field;
    uint64_t id = 0;
    int more, code = 0;
    while (!code && (more = zinf_message_next(&all, &field)) > 0)
        if (field.number == 1)
            code = add_piece(v, id++, field.body);
    if (!code && (more < 0 || !id))
        code = zinf_fail(-EINVAL, "%s/tokenizer.model is damaged", v->folder);
    return code;
}

/* What is added to a tokenizer.model: by name in added_tokens.json, by number in its
 * configuration. */
static int add_beside(struct vocab *v)
{
    const cJSON *token;
    char *path = zinf_path_join(v->folder, "added_tokens.json");
    cJSON *added = NULL;
    int code = path ? 0 : -ENOMEM;
    if (!code && !access(path, F_OK))
        code = zinf_json_read_file(path, MOST_BYTES, ZINF_JSON_STRICT, &added);
    cJSON_ArrayForEach(token, added)
    {
        if (!code && cJSON_IsNumber(token) && token->valuedouble >= 0)
            code = set_token(v, (uint64_t)token->valuedouble, token->string, strlen(token->string),
                             USER, -1000);
    }
    cJSON_ArrayForEach(token, get(v->settings, "added_tokens_decoder"))
    {
        if (!code)
            code = add_added(v, strtoull(token->string, NULL, 10), token);
    }
    cJSON_Delete(added);
    free(path);
    return code;
}

static int add_sentencepiece(struct vocab *v, const char *model, size_t bytes)
{
    int code = model ? read_model(v, model, bytes) : add_pieces(v);
    if (!code && !model)
        code = score_by_merges(v);
    if (!code)
        code = model ? add_beside(v) : add_all_added(v);
    if (!code)
        code = fill_gaps(v, model ? -10000 : -1000);
    if (code)
        return code;
    zinf_gguf_text(v->to, "tokenizer.ggml.model", "llama");
    zinf_gguf_text(v->to, "tokenizer.ggml.pre", "default");
    zinf_gguf_texts(v->to, "tokenizer.ggml.tokens", v->tokens, v->n);
    zinf_gguf_f32s(v->to, "tokenizer.ggml.scores", v->scores, v->n);
    zinf_gguf_i32s(v->to, "tokenizer.ggml.token_type", v->types, v->n);
    return 0;
}

/* ---- special tokens ---- */

/* The text of a token that tokenizer_config.json names, "bos" for instance. */
static const char *special_text(const struct vocab *v, const char *word)
{
    char key[32];
    snprintf(key, sizeof key, "%s_token", word);
    const cJSON *entry = get(v->settings, key);
    return cJSON_GetStringValue(cJSON_IsObject(entry) ? get(entry, "content") : entry);
}

static int64_t special_id(const struct vocab *v, const char *word)
{
    const char *text = special_text(v, word);
    const cJSON *token;
    char key[32];
    cJSON_ArrayForEach(token, get(v->tokenizer, "added_tokens"))
    {
        const char *content = cJSON_GetStringValue(get(token, "content"));
        if (text && content && !strcmp(text, content) && cJSON_IsNumber(get(token, "id")))
            return (int64_t)get(token, "id")->valuedouble;
    }
    snprintf(key, sizeof key, "%s_token_id", word);
    const cJSON *id = get(v->config, key);
    return cJSON_IsNumber(id) ? (int64_t)id->valuedouble : -1;
}

static const char *special_of(const cJSON *part)
{
    return cJSON_GetStringValue(get(get(part, "SpecialToken"), "id"));
}

/* Whether tokens are put around a text: -1 unknown, else 0 or 1. */
struct around {
    int bos, eos, sep;
};

static void read_template(const struct vocab *v, const cJSON *processor, struct around *around)
{
    const cJSON *single = get(processor, "single"), *pair = get(processor, "pair");
    int n = cJSON_GetArraySize(single), n_pair = cJSON_GetArraySize(pair);
    const char *first = n > 1 ? special_of(cJSON_GetArrayItem(single, 0)) : NULL;
    const char *last = n > 1 ? special_of(cJSON_GetArrayItem(single, n - 1)) : NULL;
    const char *bos = special_text(v, "bos"), *cls = special_text(v, "cls");
    const char *eos = special_text(v, "eos"), *sep = special_text(v, "sep");
    if (first)
        around->bos =
            (!bos && !cls) || (bos && !strcmp(first, bos)) || (cls && !strcmp(first, cls));
    if (last)
        around->eos = !eos || !strcmp(last, eos);
    int begin = 0, end = n_pair;
    const char *at = special_of(cJSON_GetArrayItem(pair, 0));
    if (first && at && !strcmp(at, first))
        begin = 1;
    at = n_pair ? special_of(cJSON_GetArrayItem(pair, n_pair - 1)) : NULL;
    if (last && at && !strcmp(at, last))
        end--;
    if (end - begin <= 2) /* A and B, and nothing between them */
        return;
    at = special_of(cJSON_GetArrayItem(pair, begin + 1));
    around->sep = at && !last && ((sep && !strcmp(at, sep)) || (eos && !strcmp(at, eos)));
}

static void read_processor(const struct vocab *v, const cJSON *processor, struct around *around)
{
    const char *type = cJSON_GetStringValue(get(processor, "type"));
    if (type && !strcmp(type, "ByteLevel")) {
        around->bos = around->bos < 0 ? 0 : around->bos;
        around->eos = around->eos < 0 ? 0 : around->eos;
    } else if (type && !strcmp(type, "TemplateProcessing")) {
        read_template(v, processor, around);
    }
}

static void add_around(const struct vocab *v, const char *word, int value)
{
    char key[64];
    snprintf(key, sizeof key, "add_%s_token", word);
    const cJSON *said = get(v->settings, key);
    if (value < 0 && cJSON_IsBool(said))
        value = cJSON_IsTrue(said);
    snprintf(key, sizeof key, "tokenizer.ggml.add_%s_token", word);
    if (value >= 0)
        zinf_gguf_bool(v->to, key, value);
}

static void add_specials(const struct vocab *v)
{
    static const char *const words[][2] = {
        {"bos", "bos"},     {"eos", "eos"}, {"unk", "unknown"}, {"sep", "seperator"},
        {"pad", "padding"}, {"cls", "cls"}, {"mask", "mask"},
    };
    const cJSON *post = get(v->tokenizer, "post_processor"), *list = get(post, "processors"), *one;
    struct around around = {-1, -1, -1};
    char key[64];
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        int64_t id = special_id(v, words[i][0]);
        snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", words[i][1]);
        if (id >= 0 && (uint64_t)id < v->n)
            zinf_gguf_u32(v->to, key, (uint32_t)id);
    }
    cJSON_ArrayForEach(one, list) read_processor(v, one, &around);
    if (!cJSON_IsArray(list))
        read_processor(v, post, &around);
    add_around(v, "bos", around.bos);
    add_around(v, "eos", around.eos);
    add_around(v, "sep", around.sep);
}

static int add_template(const struct vocab *v)
{
    const char *text = cJSON_GetStringValue(get(v->settings, "chat_template"));
    char *path = zinf_path_join(v->folder, "chat_template.jinja"), *read = NULL;
    size_t bytes = 0;
    int code = path ? 0 : -ENOMEM;
    if (!code && !text && !access(path, F_OK))
        code = zinf_file_read(path, MOST_BYTES, &read, &bytes);
    if (!code && (text || read))
        zinf_gguf_text(v->to, "tokenizer.chat_template", text ? text : read);
    free(read);
    free(path);
    return code;
}

/* ---- the whole ---- */

static int add_by_kind(struct vocab *v)
{
    const cJSON *model = get(v->tokenizer, "model");
    const char *type = cJSON_GetStringValue(get(model, "type"));
    char *path = zinf_path_join(v->folder, "tokenizer.model"), *data = NULL;
    size_t bytes = 0;
    int code = path ? 0 : -ENOMEM;
    bool bpe = type && !strcmp(type, "BPE");
    if (!code && !access(path, F_OK))
        code = zinf_file_read(path, MOST_BYTES, &data, &bytes);
    if (!code && (data || (bpe && cJSON_IsTrue(get(model, "byte_fallback")))))
        code = add_sentencepiece(v, data, bytes);
    else if (!code && bpe)
        code = add_bpe(v);
    else if (!code)
        code = zinf_fail(-ENOTSUP,
                         "%s has no tokenizer that llama.cpp knows: a tokenizer.json with BPE, or "
                         "a tokenizer.model",
                         v->folder);
    free(data);
    free(path);
    return code;
}

int gguf_add_vocab(struct zinf_gguf_writer *writer, const char *folder, const cJSON *config,
                   uint64_t n_vocab)
{
    cJSON *tokenizer = NULL, *settings = NULL;
    int code = n_vocab > MOST_TOKENS
                   ? zinf_fail(-EINVAL, "%s: no tokenizer has so many tokens", folder)
                   : zinf_folder_json(folder, "tokenizer.json", MOST_BYTES, &tokenizer);
    if (!code)
        code = zinf_folder_json(folder, "tokenizer_config.json", MOST_BYTES, &settings);
    struct vocab v = {.to = writer,
                      .folder = folder,
                      .config = config,
                      .tokenizer = tokenizer,
                      .settings = settings,
                      .n = code ? 0 : n_vocab};
    v.tokens = calloc(v.n + 1, sizeof *v.tokens);
    v.types = calloc(v.n + 1, sizeof *v.types);
    v.scores = calloc(v.n + 1, sizeof *v.scores);
    if (!code && (!v.tokens || !v.types || !v.scores))
        code = fail_memory(&v);
    if (!code)
        code = add_by_kind(&v);
    if (!code)
        add_specials(&v);
    if (!code)
        gguf_add_of_tokenizer(v.to, v.config, v.settings);
    if (!code)
        code = add_template(&v);
    for (uint64_t i = 0; v.tokens && i < v.n; i++)
        free(v.tokens[i]);
    free(v.tokens);
    free(v.types);
    free(v.scores);
    cJSON_Delete(tokenizer);
    cJSON_Delete(settings);
    return code;
}
