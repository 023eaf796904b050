/*
 * gguf_tokenizer: from a file's keys to the files that a model folder has of its tokenizer:
 * tokenizer.json for byte-level BPE ("gpt2"), a SentencePiece model for pieces with scores
 * ("llama"), and tokenizer_config.json with the special tokens and the chat template.
 */
#include "train/save/gguf.h"

#include <stdio.h>
#include <stdlib.h>

/* Types of tokens, as llama.cpp and SentencePiece number them. */
enum { NORMAL = 1, UNKNOWN, CONTROL, USER, UNUSED, BYTE };

struct reading {
    const char *folder, *path;
    const cJSON *keys, *tokens, *types, *scores;
    cJSON *settings; /* tokenizer_config.json */
};

static const cJSON *key_of(const struct reading *r, const char *name)
{
    char key[64];
    snprintf(key, sizeof key, "tokenizer.ggml.%s", name);
    return cJSON_GetObjectItemCaseSensitive(r->keys, key);
}

static int type_of(const cJSON *type)
{
    return cJSON_IsNumber(type) ? (int)type->valuedouble : NORMAL;
}

static int write_file(const struct reading *r, const char *name, const void *data, size_t bytes)
{
    char *path = zinf_path_join(r->folder, name);
    int code = path ? zinf_file_write_atomic(path, data, bytes)
                    : zinf_fail(-ENOMEM, "no memory for the tokenizer of %s", r->path);
    free(path);
    return code;
}

static int write_json(const struct reading *r, const char *name, const cJSON *value)
{
    char *text = zinf_json_print(value);
    int code = text ? write_file(r, name, text, strlen(text))
                    : zinf_fail(-ENOMEM, "no memory for the tokenizer of %s", r->path);
    cJSON_free(text);
    return code;
}

/* ---- tokenizer_config.json ---- */

static const char *text_of_id(const struct reading *r, const char *name)
{
    const cJSON *id = key_of(r, name), *token;
    double i = 0;
    cJSON_ArrayForEach(token, (cJSON_IsNumber(id) ? r->tokens : NULL))
    {
        if (i++ == id->valuedouble)
            return cJSON_GetStringValue(token);
    }
    return NULL;
}

static void add_settings(struct reading *r, bool begins)
{
    static const char *const words[][2] = {{"bos_token_id", "bos_token"},
                                           {"eos_token_id", "eos_token"},
                                           {"unknown_token_id", "unk_token"},
                                           {"padding_token_id", "pad_token"},
                                           {"seperator_token_id", "sep_token"}};
    const cJSON *begin = key_of(r, "add_bos_token"), *end = key_of(r, "add_eos_token");
    const char *template =
        cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(r->keys, "tokenizer.chat_template"));
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const char *text = text_of_id(r, words[i][0]);
        if (text)
            cJSON_AddStringToObject(r->settings, words[i][1], text);
    }
    cJSON_AddBoolToObject(r->settings, "add_bos_token", begin ? cJSON_IsTrue(begin) : begins);
    cJSON_AddBoolToObject(r->settings, "add_eos_token", cJSON_IsTrue(end));
    if (template)
        cJSON_AddStringToObject(r->settings, "chat_template", template);
}

static bool wants(const struct reading *r, const char *name)
{
    return cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(r->settings, name));
}

/* ---- byte-level BPE ---- */

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define REST "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define PATHS "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define BEFORE "[^\\r\\n\\p{L}\\p{N}]?"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define LLAMA3 CONTRACTIONS "|" BEFORE "\\p{L}+|\\p{N}{1,3}" REST
#define QWEN2 CONTRACTIONS "|" BEFORE "\\p{L}+|\\p{N}" REST

/* llama.cpp's names of the ways in which text is cut. */
static const struct cut {
    const char *name, *expression; /* NULL: that of ByteLevel itself */
    bool digits, whole; /* digits one by one; a piece that is a token is not merged from parts */
} cuts[] = {
    {"gpt-2", NULL, false, false},
    {"smollm", NULL, true, false},
    {"llama-bpe", LLAMA3, false, true},
    {"llama3", LLAMA3, false, true},
    {"llama-v3", LLAMA3, false, true},
    {"qwen2", QWEN2, false, false},
    {"deepseek-r1-qwen", QWEN2, false, false},
    {"gpt-4o",
     BEFORE UPPER "*" LOWER "+" CONTRACTIONS "?|" BEFORE UPPER "+" LOWER "*" CONTRACTIONS
                  "?|\\p{N}{1,3}" PATHS,
     false, false},
    {"tekken", BEFORE UPPER "*" LOWER "+|" BEFORE UPPER "+" LOWER "*|\\p{N}" PATHS, false, true},
};

static int find_cut(const struct reading *r, const struct cut **out)
{
    const char *name = cJSON_GetStringValue(key_of(r, "pre"));
    for (size_t i = 0; name && i < sizeof cuts / sizeof *cuts; i++)
        if (!strcmp(name, cuts[i].name)) {
            *out = &cuts[i];
            return 0;
        }
    return zinf_fail(-ENOTSUP,
                     "%s: its tokenizer cuts text as \"%s\", which is not known: name a Hugging "
                     "Face folder of the model",
                     r->path, name ? name : "default");
}

static cJSON *new_byte_level(bool expression)
{
    cJSON *stage = cJSON_CreateObject();
    cJSON_AddStringToObject(stage, "type", "ByteLevel");
    cJSON_AddBoolToObject(stage, "add_prefix_space", false);
    cJSON_AddBoolToObject(stage, "trim_offsets", true);
    cJSON_AddBoolToObject(stage, "use_regex", expression);
    return stage;
}

static cJSON *new_cutting(const struct cut *cut)
{
    cJSON *all, *list, *first;
    if (!cut->expression && !cut->digits)
        return new_byte_level(true);
    all = cJSON_CreateObject();
    cJSON_AddStringToObject(all, "type", "Sequence");
    list = cJSON_AddArrayToObject(all, "pretokenizers");
    cJSON_AddItemToArray(list, first = cJSON_CreateObject());
    cJSON_AddStringToObject(first, "type", cut->digits ? "Digits" : "Split");
    if (cut->digits) {
        cJSON_AddBoolToObject(first, "individual_digits", true);
    } else {
        cJSON_AddStringToObject(cJSON_AddObjectToObject(first, "pattern"), "Regex",
                                cut->expression);
        cJSON_AddStringToObject(first, "behavior", "Isolated");
        cJSON_AddBoolToObject(first, "invert", false);
    }
    cJSON_AddItemToArray(list, new_byte_level(cut->digits));
    return all;
}

static void add_special(cJSON *list, const char *text)
{
    cJSON *part = cJSON_CreateObject(), *token = cJSON_AddObjectToObject(part, "SpecialToken");
    cJSON_AddStringToObject(token, "id", text);
    cJSON_AddNumberToObject(token, "type_id", 0);
    cJSON_AddItemToArray(list, part);
}

static void add_sequence(cJSON *list, const char *name)
{
    cJSON *part = cJSON_CreateObject(), *sequence = cJSON_AddObjectToObject(part, "Sequence");
    cJSON_AddStringToObject(sequence, "id", name);
    cJSON_AddNumberToObject(sequence, "type_id", 0);
    cJSON_AddItemToArray(list, part);
}

static void describe_special(const struct reading *r, cJSON *table, const char *text,
                             const char *id_name)
{
    const cJSON *id = key_of(r, id_name);
    if (!text || cJSON_HasObjectItem(table, text))
        return;
    cJSON *entry = cJSON_AddObjectToObject(table, text);
    cJSON_AddStringToObject(entry, "id", text);
    cJSON_AddItemToArray(cJSON_AddArrayToObject(entry, "ids"),
                         cJSON_CreateNumber(id ? id->valuedouble : 0));
    cJSON_AddItemToArray(cJSON_AddArrayToObject(entry, "tokens"), cJSON_CreateString(text));
}

/* What stands around a text, and around each of a pair. */
static cJSON *new_framing(const struct reading *r)
{
    const char *begin = wants(r, "add_bos_token") ? text_of_id(r, "bos_token_id") : NULL;
    const char *end = wants(r, "add_eos_token") ? text_of_id(r, "eos_token_id") : NULL;
    if (!begin && !end)
        return new_byte_level(true);
    cJSON *all = cJSON_CreateObject();
    cJSON_AddStringToObject(all, "type", "TemplateProcessing");
    for (int pair = 0; pair < 2; pair++) {
        cJSON *list = cJSON_AddArrayToObject(all, pair ? "pair" : "single");
        for (int i = 0; i <= pair; i++) {
            if (begin)
                add_special(list, begin);
            add_sequence(list, i ? "B" : "A");
            if (end)
                add_special(list, end);
        }
    }
    cJSON *table = cJSON_AddObjectToObject(all, "special_tokens");
    describe_special(r, table, begin, "bos_token_id");
    describe_special(r, table, end, "eos_token_id");
    return all;
}

static void add_added(cJSON *list, double id, const char *text, bool special)
{
    cJSON *token = cJSON_CreateObject();
    cJSON_AddNumberToObject(token, "id", id);
    cJSON_AddStringToObject(token, "content", text);
    cJSON_AddBoolToObject(token, "single_word", false);
    cJSON_AddBoolToObject(token, "lstrip", false);
    cJSON_AddBoolToObject(token, "rstrip", false);
    cJSON_AddBoolToObject(token, "normalized", false);
    cJSON_AddBoolToObject(token, "special", special);
    cJSON_AddItemToArray(list, token);
}

/* Tokens of the model; what was added; rows that no token has are left out. */
static void add_vocabulary(const struct reading *r, cJSON *vocab, cJSON *added)
{
    const cJSON *token, *type = r->types ? r->types->child : NULL;
    double id = 0;
    cJSON_ArrayForEach(token, r->tokens)
    {
        int kind = type_of(type);
        if (kind == CONTROL || kind == USER)
            add_added(added, id, token->valuestring, kind == CONTROL);
        else if (kind != UNUSED)
            cJSON_AddNumberToObject(vocab, token->valuestring, id);
        type = type ? type->next : NULL;
        id++;
    }
}

static int write_bpe(const struct reading *r)
{
    const struct cut *cut = NULL;
    const cJSON *merges = key_of(r, "merges");
    int code = find_cut(r, &cut);
    if (!code && !cJSON_IsArray(merges))
        code = zinf_fail(-EINVAL, "%s has no tokenizer.ggml.merges", r->path);
    if (code)
        return code;
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "version", "1.0");
    cJSON *added = cJSON_AddArrayToObject(root, "added_tokens");
    cJSON_AddItemToObject(root, "pre_tokenizer", new_cutting(cut));
    cJSON_AddItemToObject(root, "post_processor", new_framing(r));
    cJSON_AddItemToObject(root, "decoder", new_byte_level(true));
    cJSON *model = cJSON_AddObjectToObject(root, "model");
    cJSON_AddStringToObject(model, "type", "BPE");
    cJSON_AddBoolToObject(model, "byte_fallback", false);
    cJSON_AddBoolToObject(model, "ignore_merges", cut->whole);
    cJSON *vocab = cJSON_AddObjectToObject(model, "vocab");
    add_vocabulary(r, vocab, added);
    if (!vocab || !cJSON_AddItemReferenceToObject(model, "merges", (cJSON *)merges))
        code = zinf_fail(-ENOMEM, "no memory for the tokenizer of %s", r->path);
    if (!code)
        code = write_json(r, "tokenizer.json", root);
    cJSON_Delete(root);
    return code;
}

/* ---- SentencePiece ---- */

struct message {
    uint8_t *at;
    size_t n, capacity;
    bool failed;
};

static void put(struct message *m, const void *data, size_t n)
{
    if (m->capacity - m->n < n) {
        size_t capacity = 2 * m->capacity + n + 256;
        uint8_t *at = m->failed ? NULL : realloc(m->at, capacity);
        if (!at) {
            m->failed = true;
            return;
        }
        m->at = at;
        m->capacity = capacity;
    }
    memcpy(m->at + m->n, data, n);
    m->n += n;
}

static void put_varint(struct message *m, uint64_t value)
{
    uint8_t byte;
    do {
        byte = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        put(m, &byte, 1);
        value >>= 7;
    } while (value);
}

static void put_number(struct message *m, unsigned field, int64_t value)
{
    put_varint(m, field << 3);
    put_varint(m, (uint64_t)value);
}

static void put_bytes(struct message *m, unsigned field, const void *data, size_t n)
{
    put_varint(m, field << 3 | 2);
    put_varint(m, n);
    put(m, data, n);
}

static void put_piece(struct message *to, const char *text, float score, int type)
{
    struct message piece = {0};
    put_bytes(&piece, 1, text, strlen(text));
    put_varint(&piece, 2 << 3 | 5);
    put(&piece, &score, sizeof score);
    put_number(&piece, 3, type);
    to->failed |= piece.failed;
    put_bytes(to, 1, piece.at, piece.n);
    free(piece.at);
}

static int64_t id_under(const struct reading *r, const char *name, int64_t otherwise)
{
    const cJSON *id = key_of(r, name);
    return cJSON_IsNumber(id) ? (int64_t)id->valuedouble : otherwise;
}

/* trainer_spec (2) and normalizer_spec (3): merges by score, bytes for what has no piece, and texts
 * as they are. */
static void put_rules(struct message *to, const struct reading *r, bool has_bytes)
{
    struct message rules = {0};
    const cJSON *prefix = key_of(r, "add_space_prefix");
    put_number(&rules, 3, 2);
    put_number(&rules, 35, has_bytes);
    put_number(&rules, 40, id_under(r, "unknown_token_id", 0));
    put_number(&rules, 41, id_under(r, "bos_token_id", -1));
    put_number(&rules, 42, id_under(r, "eos_token_id", -1));
    put_number(&rules, 43, id_under(r, "padding_token_id", -1));
    put_bytes(to, 2, rules.at, rules.n);
    rules.n = 0;
    put_bytes(&rules, 1, "identity", 8);
    put_number(&rules, 3, !prefix || cJSON_IsTrue(prefix));
    put_number(&rules, 4, 0);
    put_number(&rules, 5, 1);
    put_bytes(to, 3, rules.at, rules.n);
    to->failed |= rules.failed;
    free(rules.at);
}

static int write_pieces(struct reading *r)
{
    const cJSON *token, *type = r->types ? r->types->child : NULL;
    const cJSON *score = r->scores ? r->scores->child : NULL;
    cJSON *added = cJSON_AddObjectToObject(r->settings, "added_tokens_decoder");
    struct message model = {0};
    bool has_bytes = false;
    char id[16];
    int n = 0;
    cJSON_ArrayForEach(token, r->tokens)
    {
        int kind = type_of(type);
        put_piece(&model, token->valuestring, score ? (float)score->valuedouble : 0, kind);
        has_bytes |= kind == BYTE;
        snprintf(id, sizeof id, "%d", n++);
        if (kind == CONTROL || kind == USER) {
            cJSON *entry = cJSON_AddObjectToObject(added, id);
            cJSON_AddStringToObject(entry, "content", token->valuestring);
            cJSON_AddBoolToObject(entry, "special", kind == CONTROL);
        }
        type = type ? type->next : NULL;
        score = score ? score->next : NULL;
    }
    put_rules(&model, r, has_bytes);
    cJSON_AddStringToObject(r->settings, "tokenizer_class", "LlamaTokenizer");
    int code = model.failed ? zinf_fail(-ENOMEM, "no memory for the tokenizer of %s", r->path)
                            : write_file(r, "tokenizer.model", model.at, model.n);
    free(model.at);
    return code;
}

/* ---- the whole ---- */

static int check_arrays(const struct reading *r)
{
    const cJSON *token;
    int n = cJSON_GetArraySize(r->tokens);
    bool good = n > 0 && (!r->types || cJSON_GetArraySize(r->types) == n) &&
                (!r->scores || cJSON_GetArraySize(r->scores) == n);
    cJSON_ArrayForEach(token, r->tokens) good &= cJSON_IsString(token);
    return good ? 0
                : zinf_fail(-EINVAL, "%s: the lists of its tokenizer's tokens do not fit", r->path);
}

int gguf_write_tokenizer(const char *folder, const char *path, const cJSON *keys)
{
    struct reading r = {.folder = folder, .path = path, .keys = keys};
    r.tokens = key_of(&r, "tokens");
    r.types = key_of(&r, "token_type");
    r.scores = key_of(&r, "scores");
    const char *kind = cJSON_GetStringValue(key_of(&r, "model"));
    const bool pieces = kind && !strcmp(kind, "llama"), bpe = kind && !strcmp(kind, "gpt2");
    if (!pieces && !bpe)
        return zinf_fail(-ENOTSUP,
                         "%s has a tokenizer of kind \"%s\", which is not read: gpt2 and llama are",
                         path, kind ? kind : "none");
    int code = check_arrays(&r);
    r.settings = cJSON_CreateObject();
    if (!code && !r.settings)
        code = zinf_fail(-ENOMEM, "no memory for the tokenizer of %s", path);
    if (!code) {
        add_settings(&r, pieces);
        code = pieces ? write_pieces(&r) : write_bpe(&r);
    }
    if (!code)
        code = write_json(&r, "tokenizer_config.json", r.settings);
    cJSON_Delete(r.settings);
    return code;
}
