/*
 * tokenizer_model: the "model" of a tokenizer.json: the vocabulary, spelled in the byte-level
 * alphabet, and the merges in the order of their rank. Files are untrusted: ids are bounded before
 * tables are sized by them, and every merge's parts and result must be tokens.
 */
#include "text/tokenizer_json.h"

#include <stdlib.h>

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

int text_json_read_vocab(struct text_vocab *vocab, const cJSON *object, const cJSON *added,
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

int text_json_read_model(struct zinf_tokenizer *tokenizer, const cJSON *model, const cJSON *added,
                         const char *what)
{
    int code = check_model(model, what);
    if (code)
        return code;
    const cJSON *merges = cJSON_GetObjectItemCaseSensitive(model, "merges"), *merge;
    if (!cJSON_IsArray(merges))
        return zinf_fail(-EINVAL, "%s: \"model.merges\" is not an array", what);
    code = text_json_read_vocab(&tokenizer->vocab, cJSON_GetObjectItemCaseSensitive(model, "vocab"),
                                added, what);
    if (!code)
        code =
            text_bpe_init(&tokenizer->bpe, &tokenizer->vocab, (size_t)cJSON_GetArraySize(merges));
    for (merge = merges->child; merge && !code; merge = merge->next)
        code = read_merge(tokenizer, merge, what);
    code = code ? code : read_unknown(tokenizer, model, what);
    return code ? code
                : zinf_json_bool(model, what, "ignore_merges", &tokenizer->bpe.ignore_merges);
}

int text_json_read_merge_lines(struct zinf_tokenizer *tokenizer, const char *text, size_t bytes,
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
