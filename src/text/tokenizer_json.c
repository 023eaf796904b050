/*
 * tokenizer_json: byte-level BPE out of tokenizer.json, or out of vocab.json and merges.txt. What
 * is not understood is refused by name, never skipped: a tokenizer that is almost right trains a
 * model on almost the right ids. The post-processor, truncation and padding are left aside; they
 * do not take part in encode(add_special_tokens=False).
 */
#include "text/tokenizer_json.h"

#include <stdlib.h>

#define END_OF_TEXT "<|endoftext|>"

/* ---- vocabulary ---- */

struct extent {
    size_t count, bytes;
    uint32_t size; /* largest id + 1 */
};

static int measure(const cJSON *number, const char *token, const char *what, struct extent *extent)
{
    double id = cJSON_IsNumber(number) ? number->valuedouble : -1;
    if (!(id >= 0 && id <= TEXT_MAX_ID) || id != (uint32_t)id)
        return zinf_fail(-EINVAL, "%s: the id of the token \"%.100s\" is not an integer in 0 .. %u",
                         what, token, TEXT_MAX_ID);
    if ((uint32_t)id >= extent->size)
        extent->size = (uint32_t)id + 1;
    extent->count++;
    extent->bytes += strlen(token);
    return 0;
}

static int measure_added(const cJSON *added, const char *what, struct extent *extent)
{
    const cJSON *token;
    int code = 0;
    cJSON_ArrayForEach(token, added)
    {
        const char *content = "";
        if (!cJSON_IsObject(token))
            return zinf_fail(-EINVAL, "%s: \"added_tokens\" has a member that is no object", what);
        code = zinf_json_string(token, what, "content", &content);
        if (!code && !*content)
            code = zinf_fail(-EINVAL, "%s: an added token has no \"content\"", what);
        if (!code)
            code = measure(cJSON_GetObjectItemCaseSensitive(token, "id"), content, what, extent);
        if (code)
            return code;
    }
    return 0;
}

static int read_vocab(struct text_vocab *vocab, const cJSON *object, const cJSON *added,
                      const char *what)
{
    struct extent extent = {0};
    const cJSON *token;
    if (!cJSON_IsObject(object) || !object->child)
        return zinf_fail(-EINVAL, "%s: \"vocab\" is not an object of tokens and ids", what);
    cJSON_ArrayForEach(token, object)
    {
        int code = measure(token, token->string, what, &extent);
        if (code)
            return code;
    }
    size_t n_findable = extent.count;
    int code = measure_added(added, what, &extent);
    if (!code)
        code = text_vocab_init(vocab, extent.size, n_findable, extent.bytes);
    char *bytes = code ? NULL : malloc(extent.bytes + 1);
    if (!code && !bytes)
        code = zinf_fail(-ENOMEM, "%s: no memory for %zu bytes of tokens", what, extent.bytes);
    for (token = object->child; token && !code; token = token->next) {
        uint32_t id = (uint32_t)token->valuedouble;
        size_t letters = strlen(token->string), n;
        if (text_vocab_has(vocab, id))
            code =
                zinf_fail(-EINVAL, "%s: the id %u is given to two tokens, one of them \"%.100s\"",
                          what, id, token->string);
        else if (text_alphabet_decode(token->string, letters, bytes, &n))
            code = text_vocab_add(vocab, id, bytes, n, true);
        else /* spelled in other letters: no text leads there, but it can be decoded */
            code = text_vocab_add(vocab, id, token->string, letters, false);
    }
    free(bytes);
    return code;
}

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

/* ---- model ---- */

static int refuse_unless_empty(const cJSON *model, const char *what, const char *key)
{
    const char *text = "";
    int code = zinf_json_string(model, what, key, &text);
    if (!code && *text)
        code = zinf_fail(-ENOTSUP,
                         "%s: \"model.%s\" is \"%.50s\"; only byte-level BPE without it "
                         "is supported",
                         what, key, text);
    return code;
}

static int check_model(const cJSON *model, const char *what)
{
    const char *type = "BPE";
    double dropout = 0;
    bool byte_fallback = false;
    if (!cJSON_IsObject(model))
        return zinf_fail(-EINVAL, "%s: has no \"model\"", what);
    int code = zinf_json_string(model, what, "type", &type);
    if (!code && strcmp(type, "BPE"))
        code = zinf_fail(-ENOTSUP,
                         "%s: a tokenizer of kind \"%.50s\" is not supported, only "
                         "byte-level BPE",
                         what, type);
    code = code ? code : zinf_json_double(model, what, "dropout", &dropout);
    code = code ? code : zinf_json_bool(model, what, "byte_fallback", &byte_fallback);
    if (!code && (dropout != 0 || byte_fallback))
        code = zinf_fail(-ENOTSUP, "%s: \"model.%s\" is not supported: set it to %s", what,
                         byte_fallback ? "byte_fallback" : "dropout",
                         byte_fallback ? "false" : "null");
    code = code ? code : refuse_unless_empty(model, what, "continuing_subword_prefix");
    return code ? code : refuse_unless_empty(model, what, "end_of_word_suffix");
}

/* "a b" or ["a", "b"] */
static int read_merge(struct zinf_tokenizer *tokenizer, const cJSON *merge, const char *what)
{
    const char *left = NULL, *right = NULL;
    size_t left_bytes = 0;
    if (cJSON_IsString(merge)) {
        left = merge->valuestring;
        left_bytes = strcspn(left, " ");
        right = left[left_bytes] ? left + left_bytes + 1 : NULL;
    } else if (cJSON_IsArray(merge) && cJSON_GetArraySize(merge) == 2 &&
               cJSON_IsString(merge->child) && cJSON_IsString(merge->child->next)) {
        left = merge->child->valuestring;
        left_bytes = strlen(left);
        right = merge->child->next->valuestring;
    }
    if (!right || !left_bytes || !*right || strchr(right, ' '))
        return zinf_fail(-EINVAL, "%s: merge %u is not two tokens", what, tokenizer->bpe.n_merges);
    int code = text_bpe_add_merge(&tokenizer->bpe, &tokenizer->vocab, left, left_bytes, right,
                                  strlen(right));
    return code ? zinf_fail_in(code, "%s", what) : 0;
}

static int read_unknown(struct zinf_tokenizer *tokenizer, const cJSON *model, const char *what)
{
    struct text_bpe *bpe = &tokenizer->bpe;
    const char *name = NULL;
    bool complete = true;
    for (int byte = 0; byte < 256; byte++)
        complete &= bpe->byte_ids[byte] >= 0;
    int code = zinf_json_string(model, what, "unk_token", &name);
    if (code || !name)
        return code;
    bpe->unknown = (int32_t)text_vocab_find(&tokenizer->vocab, name, strlen(name));
    if (bpe->unknown < 0 && !complete)
        return zinf_fail(-EINVAL, "%s: \"model.unk_token\" \"%.50s\" is not in the vocabulary",
                         what, name);
    return zinf_json_bool(model, what, "fuse_unk", &bpe->fuse_unknown);
}

static int read_model(struct zinf_tokenizer *tokenizer, const cJSON *model, const cJSON *added,
                      const char *what)
{
    int code = check_model(model, what);
    if (code)
        return code;
    const cJSON *merges = cJSON_GetObjectItemCaseSensitive(model, "merges"), *merge;
    if (!cJSON_IsArray(merges))
        return zinf_fail(-EINVAL, "%s: \"model.merges\" is not an array", what);
    code = read_vocab(&tokenizer->vocab, cJSON_GetObjectItemCaseSensitive(model, "vocab"), added,
                      what);
    if (!code)
        code =
            text_bpe_init(&tokenizer->bpe, &tokenizer->vocab, (size_t)cJSON_GetArraySize(merges));
    for (merge = merges->child; merge && !code; merge = merge->next)
        code = read_merge(tokenizer, merge, what);
    code = code ? code : read_unknown(tokenizer, model, what);
    return code ? code
                : zinf_json_bool(model, what, "ignore_merges", &tokenizer->bpe.ignore_merges);
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
    code = code ? code : read_model(tokenizer, model, added, what);
    code = code ? code : read_added(tokenizer, added, what);
    code = code ? code : seal_added(tokenizer, what);
    if (!code)
        code = read_pre_tokenizer(
            tokenizer, cJSON_GetObjectItemCaseSensitive(document, "pre_tokenizer"), what);
    cJSON_Delete(document);
    return code;
}

static int read_merge_lines(struct zinf_tokenizer *tokenizer, const char *text, size_t bytes,
                            const char *what)
{
    int line = 1, code = 0;
    for (const char *at = text, *end = text + bytes; at < end && !code; line++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *stop = newline ? newline : end, *next = newline ? newline + 1 : end;
        if (stop > at && stop[-1] == '\r')
            stop--;
        bool version = stop - at >= 8 && !memcmp(at, "#version", 8);
        const char *space = memchr(at, ' ', (size_t)(stop - at));
        if (stop > at && !version) {
            if (!space || space == at || space + 1 == stop)
                return zinf_fail(-EINVAL, "%s: line %d: not two tokens", what, line);
            code = text_bpe_add_merge(&tokenizer->bpe, &tokenizer->vocab, at, (size_t)(space - at),
                                      space + 1, (size_t)(stop - space - 1));
            if (code)
                return zinf_fail_in(code, "%s: line %d", what, line);
        }
        at = next;
    }
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
    code = read_vocab(&tokenizer->vocab, document, NULL, vocab_what);
    cJSON_Delete(document);
    code = code ? code : text_bpe_init(&tokenizer->bpe, &tokenizer->vocab, n_lines);
    code = code ? code : read_merge_lines(tokenizer, merges, merges_bytes, merges_what);
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
