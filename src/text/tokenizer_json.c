/*
 * tokenizer_json: byte-level BPE out of tokenizer.json, or out of vocab.json and merges.txt. What
 * is not understood is refused by name, never skipped: a tokenizer that is almost right trains a
 * model on almost the right ids. The post-processor, truncation and padding are left aside; they
 * do not take part in encode(add_special_tokens=False).
 */
#include "text/tokenizer_json.h"

#include <stdlib.h>

#define END_OF_TEXT "<|endoftext|>"

/* ---- added tokens ---- */

/* The id that the vocabulary has for content, spelled as the vocabulary spells; -1: none. */
static int64_t id_in_vocab(const struct text_vocab *vocab, const char *content, uint32_t id)
{
    size_t letters = strlen(content), n;
    char *bytes = malloc(letters + 1);
    int64_t found = -1;
    if (bytes && text_alphabet_decode(content, letters, bytes, &n))
        found = text_vocab_find(vocab, bytes, n);
    else if (text_vocab_has(vocab, id) && vocab->lengths[id] == letters &&
             !memcmp(vocab->bytes + vocab->offsets[id], content, letters))
        found = id;
    free(bytes);
    return found;
}

static int add_token(struct zinf_tokenizer *tokenizer, const struct text_added *token,
                     bool normalized, const char *what)
{
    struct text_vocab *vocab = &tokenizer->vocab;
    uint32_t id = (uint32_t)token->id;
    int64_t known = id_in_vocab(vocab, token->content, id);
    if (known >= 0 && known != id)
        return zinf_fail(-EINVAL,
                         "%s: the added token \"%.100s\" has the id %u, but %lld in the "
                         "vocabulary",
                         what, token->content, id, (long long)known);
    if (known < 0 && text_vocab_has(vocab, id))
        return zinf_fail(-EINVAL,
                         "%s: the id %u of the added token \"%.100s\" belongs to another "
                         "token",
                         what, id, token->content);
    int code = 0;
    if (known < 0)
        code = text_vocab_add(vocab, id, token->content, token->bytes, false);
    return code ? code : text_added_add(&tokenizer->added[normalized], token);
}

static int read_added(struct zinf_tokenizer *tokenizer, const cJSON *added, const char *what)
{
    const cJSON *item;
    if (added && !cJSON_IsNull(added) && !cJSON_IsArray(added))
        return zinf_fail(-EINVAL, "%s: \"added_tokens\" is not an array", what);
    cJSON_ArrayForEach(item, added)
    {
        struct text_added token = {0};
        bool special = false;
        const char *content = NULL;
        int64_t id = 0;
        int code = zinf_json_string(item, what, "content", &content);
        code = code ? code : zinf_json_int(item, what, "id", &id);
        code = code ? code : zinf_json_bool(item, what, "single_word", &token.single_word);
        code = code ? code : zinf_json_bool(item, what, "lstrip", &token.lstrip);
        code = code ? code : zinf_json_bool(item, what, "rstrip", &token.rstrip);
        code = code ? code : zinf_json_bool(item, what, "special", &special);
        bool normalized = !special;
        code = code ? code : zinf_json_bool(item, what, "normalized", &normalized);
        if (code)
            return code;
        token.content = (char *)content; /* text_added_add copies it */
        token.bytes = strlen(content);
        token.id = (int32_t)id;
        code = add_token(tokenizer, &token, normalized, what);
        if (code)
            return code;
    }
    return 0;
}

static int seal_added(struct zinf_tokenizer *tokenizer, const char *what)
{
    for (int i = 0; i < 2; i++) {
        struct text_added_set *set = &tokenizer->added[i];
        int code = text_added_seal(set);
        if (code)
            return code;
        for (size_t j = 1; j < set->count; j++)
            if (!strcmp(set->tokens[j - 1].content, set->tokens[j].content))
                return zinf_fail(-EINVAL, "%s: the added token \"%.100s\" is given twice", what,
                                 set->tokens[j].content);
    }
    return 0;
}

/* ---- pre-tokenizer ---- */

static struct text_stage *next_stage(struct zinf_tokenizer *tokenizer, const char *what)
{
    if (tokenizer->n_stages < TEXT_MAX_STAGES)
        return &tokenizer->stages[tokenizer->n_stages++];
    zinf_fail(-ENOTSUP, "%s: more than %d pre-tokenizers", what, TEXT_MAX_STAGES);
    return NULL;
}

static int read_byte_level(struct zinf_tokenizer *tokenizer, const cJSON *object, const char *what)
{
    bool use_regex = true, add_prefix_space = true;
    int code = zinf_json_bool(object, what, "use_regex", &use_regex);
    code = code ? code : zinf_json_bool(object, what, "add_prefix_space", &add_prefix_space);
    if (code || !(use_regex || add_prefix_space))
        return code;
    struct text_stage *stage = next_stage(tokenizer, what);
    if (!stage)
        return -ENOTSUP;
    stage->add_prefix_space = add_prefix_space;
    return use_regex ? text_stage_compile(stage, text_gpt2_pattern, false, what) : 0;
}

static int read_split(struct zinf_tokenizer *tokenizer, const cJSON *object, const char *what)
{
    const char *behavior = "", *expression = NULL, *string = NULL;
    bool invert = false;
    const cJSON *pattern = cJSON_GetObjectItemCaseSensitive(object, "pattern");
    int code = zinf_json_string(object, what, "behavior", &behavior);
    code = code ? code : zinf_json_bool(object, what, "invert", &invert);
    code = code ? code : zinf_json_string(pattern, what, "Regex", &expression);
    code = code ? code : zinf_json_string(pattern, what, "String", &string);
    if (code)
        return code;
    bool removed = !strcmp(behavior, "Removed") && invert;
    if (strcmp(behavior, "Isolated") && !removed)
        return zinf_fail(-ENOTSUP,
                         "%s: the pre-tokenizer Split with behavior \"%.50s\"%s is not "
                         "supported",
                         what, behavior, invert ? ", inverted," : "");
    if (!expression == !string)
        return zinf_fail(-EINVAL, "%s: the pre-tokenizer Split has no \"pattern\"", what);
    struct text_stage *stage = next_stage(tokenizer, what);
    if (!stage)
        return -ENOTSUP;
    stage->drop_gaps = removed;
    return text_stage_compile(stage, expression ? expression : string, !expression, what);
}

static int read_pre_tokenizer(struct zinf_tokenizer *tokenizer, const cJSON *object,
                              const char *what)
{
    const char *type = "none";
    const cJSON *member = object;
    int code = zinf_json_string(object, what, "type", &type);
    if (code)
        return code;
    if (!strcmp(type, "Sequence")) {
        member = cJSON_GetObjectItemCaseSensitive(object, "pretokenizers");
        member = cJSON_IsArray(member) ? member->child : NULL;
    }
    bool in_sequence = member != object, byte_level = false;
    for (; member && !code; member = in_sequence ? member->next : NULL) {
        type = "none";
        code = zinf_json_string(member, what, "type", &type);
        if (code)
            break;
        if (byte_level)
            return zinf_fail(-ENOTSUP,
                             "%s: the pre-tokenizer \"%.50s\" after ByteLevel is not "
                             "supported",
                             what, type);
        byte_level = !strcmp(type, "ByteLevel");
        if (byte_level)
            code = read_byte_level(tokenizer, member, what);
        else if (!strcmp(type, "Split"))
            code = read_split(tokenizer, member, what);
        else
            return zinf_fail(-ENOTSUP,
                             "%s: the pre-tokenizer \"%.50s\" is not supported, only "
                             "ByteLevel, and Split before it",
                             what, type);
    }
    if (!code && !byte_level)
        code = zinf_fail(-ENOTSUP,
                         "%s: the pre-tokenizer does not end in ByteLevel; only "
                         "byte-level BPE is supported",
                         what);
    return code;
}

/* ---- whole files ---- */

/* A stage that must be absent or of the one kind that changes nothing here. */
static int refuse_other(const cJSON *document, const char *what, const char *key,
                        const char *allowed)
{
    const char *type = "of no type";
    const cJSON *object = cJSON_GetObjectItemCaseSensitive(document, key);
    if (!object || cJSON_IsNull(object))
        return 0;
    int code = zinf_json_string(object, what, "type", &type);
    if (!code && (!allowed || strcmp(type, allowed)))
        code = zinf_fail(-ENOTSUP, "%s: the %s \"%.50s\" is not supported", what, key, type);
    return code;
}

int text_json_read(struct zinf_tokenizer *tokenizer, const char *json, size_t bytes,
                   const char *what)
{
    cJSON *document;
    int code = zinf_json_parse(json, bytes, what, ZINF_JSON_STRICT, &document);
    if (code)
        return code;
    const cJSON *added = cJSON_GetObjectItemCaseSensitive(document, "added_tokens");
    const cJSON *model = cJSON_GetObjectItemCaseSensitive(document, "model");
    code = refuse_other(document, what, "normalizer", NULL);
    code = code ? code : refuse_other(document, what, "decoder", "ByteLevel");
    code = code ? code : text_json_read_model(tokenizer, model, added, what);
    code = code ? code : read_added(tokenizer, added, what);
    code = code ? code : seal_added(tokenizer, what);
    if (!code)
        code = read_pre_tokenizer(
            tokenizer, cJSON_GetObjectItemCaseSensitive(document, "pre_tokenizer"), what);
    cJSON_Delete(document);
    return code;
}

int text_json_read_pair(struct zinf_tokenizer *tokenizer, const char *vocab, size_t vocab_bytes,
                        const char *vocab_what, const char *merges, size_t merges_bytes,
                        const char *merges_what)
{
    cJSON *document;
    size_t n_lines = 1;
    int code = zinf_json_parse(vocab, vocab_bytes, vocab_what, ZINF_JSON_STRICT, &document);
    if (code)
        return code;
    for (size_t i = 0; i < merges_bytes; i++)
        n_lines += merges[i] == '\n';
    code = text_json_read_vocab(&tokenizer->vocab, document, NULL, vocab_what);
    cJSON_Delete(document);
    code = code ? code : text_bpe_init(&tokenizer->bpe, &tokenizer->vocab, n_lines);
    code = code ? code : text_json_read_merge_lines(tokenizer, merges, merges_bytes, merges_what);
    int64_t end = code ? -1 : text_vocab_find(&tokenizer->vocab, END_OF_TEXT, strlen(END_OF_TEXT));
    if (end >= 0) {
        struct text_added token = {.content = END_OF_TEXT, .id = (int32_t)end};
        token.bytes = strlen(END_OF_TEXT);
        code = add_token(tokenizer, &token, false, vocab_what);
    }
    code = code ? code : seal_added(tokenizer, vocab_what);
    if (code)
        return code;
    tokenizer->n_stages = 1;
    return text_stage_compile(&tokenizer->stages[0], text_gpt2_pattern, false, vocab_what);
}
