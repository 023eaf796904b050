/*
 * tokenizer_model: the "model" of a tokenizer.json, and its vocabulary. Byte-pair merges come in
 * the order of their rank. Files are untrusted: ids are bounded before tables are sized by them,
 * and every merge's parts and result must be tokens.
 */
#include "text/tokenizer/tokenizer_json.h"

#include <math.h>
#include <stdio.h>
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

int text_json_read_vocab(struct text_vocab *vocab, const cJSON *object, bool alphabet,
                         const cJSON *added, const char *what)
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
        else if (alphabet && text_alphabet_decode(token->string, letters, bytes, &n))
            code = text_vocab_add(vocab, id, bytes, n, true);
        else /* spelled in other letters: no text leads there, but it can be decoded */
            code = text_vocab_add(vocab, id, token->string, letters, !alphabet);
    }
    free(bytes);
    return code;
}

/* ---- model ---- */

static int check_bpe(const cJSON *model, const char *what)
{
    double dropout = 0;
    int code = zinf_json_double(model, what, "dropout", &dropout);
    if (!code && dropout != 0)
        code = zinf_fail(-ENOTSUP, "%s: \"model.dropout\" is not supported: set it to null", what);
    return code;
}

/* A prefix or suffix, "" being none. */
static int read_affix(char **out, const cJSON *model, const char *what, const char *key)
{
    const char *text = "";
    int code = zinf_json_string(model, what, key, &text);
    if (code || !*text)
        return code;
    if (strlen(text) > TEXT_MAX_AFFIX)
        return zinf_fail(-ENOTSUP, "%s: \"model.%s\" is longer than %d bytes", what, key,
                         TEXT_MAX_AFFIX);
    *out = strdup(text);
    return *out ? 0 : zinf_fail(-ENOMEM, "%s: no memory for the model", what);
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
    if (!right || !left_bytes || !*right || (cJSON_IsString(merge) && strchr(right, ' ')))
        return zinf_fail(-EINVAL, "%s: merge %u is not two tokens", what, tokenizer->bpe.n_merges);
    int code = text_bpe_add_merge(&tokenizer->bpe, &tokenizer->vocab, left, left_bytes, right,
                                  strlen(right));
    return code ? zinf_fail_in(code, "%s", what) : 0;
}

static int read_unknown(struct zinf_tokenizer *tokenizer, const cJSON *model, const char *what)
{
    struct text_bpe *bpe = &tokenizer->bpe;
    const char *name = NULL;
    bool complete = bpe->alphabet;
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

static int read_bpe(struct zinf_tokenizer *tokenizer, const cJSON *model, const cJSON *added,
                    const char *what)
{
    struct text_bpe *bpe = &tokenizer->bpe;
    const cJSON *merges = cJSON_GetObjectItemCaseSensitive(model, "merges"), *merge;
    int code = check_bpe(model, what);
    code = code ? code : zinf_json_bool(model, what, "byte_fallback", &bpe->byte_fallback);
    code = code ? code : zinf_json_bool(model, what, "ignore_merges", &bpe->ignore_merges);
    code = code ? code : read_affix(&bpe->prefix, model, what, "continuing_subword_prefix");
    code = code ? code : read_affix(&bpe->suffix, model, what, "end_of_word_suffix");
    if (!code && bpe->byte_fallback && (bpe->alphabet || bpe->prefix || bpe->suffix))
        code = zinf_fail(-ENOTSUP, "%s: \"model.byte_fallback\" is not supported together with %s",
                         what, bpe->alphabet ? "ByteLevel" : "a prefix or suffix");
    if (!code && !cJSON_IsArray(merges))
        code = zinf_fail(-EINVAL, "%s: \"model.merges\" is not an array", what);
    if (!code)
        code = text_json_read_vocab(&tokenizer->vocab,
                                    cJSON_GetObjectItemCaseSensitive(model, "vocab"), bpe->alphabet,
                                    added, what);
    code = code ? code : text_bpe_init(bpe, &tokenizer->vocab, (size_t)cJSON_GetArraySize(merges));
    for (merge = code ? NULL : merges->child; merge && !code; merge = merge->next)
        code = read_merge(tokenizer, merge, what);
    return code ? code : read_unknown(tokenizer, model, what);
}

/* ---- words ---- */

static int read_unknown_word(struct zinf_tokenizer *tokenizer, const cJSON *model, const char *what,
                             const char *name)
{
    struct text_wordpiece *words = &tokenizer->wordpiece;
    int code = zinf_json_string(model, what, "unk_token", &name);
    if (code)
        return code;
    words->unknown = (int32_t)text_vocab_find(&tokenizer->vocab, name, strlen(name));
    words->unknown_name = strdup(name);
    return words->unknown_name ? 0 : zinf_fail(-ENOMEM, "%s: no memory for the model", what);
}

/* All tokens that text may be compared with. */
static int build_trie(struct text_trie *trie, const struct text_vocab *vocab, uint32_t size,
                      const char *what)
{
    struct text_trie_string *strings = malloc((size_t)size * sizeof *strings + 1);
    size_t n = 0;
    if (!strings)
        return zinf_fail(-ENOMEM, "%s: no memory for %u tokens", what, size);
    for (uint32_t id = 0; id < size; id++)
        if (text_vocab_has(vocab, id))
            strings[n++] = (struct text_trie_string){vocab->bytes + vocab->offsets[id],
                                                     vocab->lengths[id], (int32_t)id};
    int code = text_trie_build(trie, strings, n);
    free(strings);
    return code ? zinf_fail_in(code, "%s", what) : 0;
}

static int read_wordpiece(struct zinf_tokenizer *tokenizer, const cJSON *model, const cJSON *added,
                          const char *what)
{
    struct text_wordpiece *words = &tokenizer->wordpiece;
    const char *prefix = "##";
    words->longest = 100;
    int code = zinf_json_string(model, what, "continuing_subword_prefix", &prefix);
    code = code ? code : zinf_json_int(model, what, "max_input_chars_per_word", &words->longest);
    if (!code)
        code = text_json_read_vocab(&tokenizer->vocab,
                                    cJSON_GetObjectItemCaseSensitive(model, "vocab"), false, added,
                                    what);
    code = code ? code : read_unknown_word(tokenizer, model, what, "[UNK]");
    code = code ? code : build_trie(&words->trie, &tokenizer->vocab, tokenizer->vocab.size, what);
    for (const char *at = prefix; *at && !code; at++) {
        words->continued = text_trie_step(&words->trie, words->continued, (uint8_t)*at);
        if (!words->continued) {
            words->continued = UINT32_MAX;
            break;
        }
    }
    return code;
}

static int read_wordlevel(struct zinf_tokenizer *tokenizer, const cJSON *model, const cJSON *added,
                          const char *what)
{
    int code = text_json_read_vocab(
        &tokenizer->vocab, cJSON_GetObjectItemCaseSensitive(model, "vocab"), false, added, what);
    return code ? code : read_unknown_word(tokenizer, model, what, "<unk>");
}

/* ---- unigrams ---- */

static int check_piece(const cJSON *item, uint32_t id, const char *what)
{
    const cJSON *piece = cJSON_IsArray(item) ? item->child : NULL;
    const cJSON *score = piece ? piece->next : NULL;
    if (!cJSON_IsString(piece) || !cJSON_IsNumber(score) || score->next)
        return zinf_fail(-EINVAL, "%s: \"model.vocab\": item %u is not a token and its score", what,
                         id);
    return 0;
}

/* A list of [token, score]; the id is the place in it. */
static int read_pieces(struct zinf_tokenizer *tokenizer, const cJSON *list, const cJSON *added,
                       const char *what)
{
    struct text_vocab *vocab = &tokenizer->vocab;
    struct extent extent = {0};
    const cJSON *item;
    cJSON_ArrayForEach(item, list)
    {
        int code = check_piece(item, extent.size, what);
        if (!code && extent.size > TEXT_MAX_ID)
            code = zinf_fail(-EINVAL, "%s: more than %u tokens", what, TEXT_MAX_ID);
        if (code)
            return code;
        extent.size++;
        extent.bytes += strlen(item->child->valuestring);
    }
    uint32_t n = extent.size, id = n;
    extent.count = n;
    int code = measure_added(added, what, &extent);
    code = code ? code : text_vocab_init(vocab, extent.size, n, extent.bytes);
    double *scores = code ? NULL : malloc(((size_t)n + 1) * sizeof *scores), least = INFINITY;
    if (!code && !scores)
        return zinf_fail(-ENOMEM, "%s: no memory for %u tokens", what, n);
    tokenizer->unigram.scores = scores;
    /* From the end: of equal tokens the last is meant, and each id can be decoded. */
    for (item = list->child->prev; id-- && !code; item = item->prev) {
        const char *piece = item->child->valuestring;
        scores[id] = item->child->next->valuedouble;
        least = scores[id] < least ? scores[id] : least;
        bool known = text_vocab_find(vocab, piece, strlen(piece)) >= 0;
        code = text_vocab_add(vocab, id, piece, strlen(piece), !known);
    }
    tokenizer->unigram.unknown_score = least - 10; /* SentencePiece's penalty */
    return code ? code : build_trie(&tokenizer->unigram.trie, vocab, n, what);
}

static int read_unigram(struct zinf_tokenizer *tokenizer, const cJSON *model, const cJSON *added,
                        const char *what)
{
    struct text_unigram *unigram = &tokenizer->unigram;
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(model, "vocab");
    int64_t unknown = -1;
    if (!cJSON_IsArray(list) || !list->child)
        return zinf_fail(-EINVAL, "%s: \"vocab\" is not an array of tokens and scores", what);
    int code = zinf_json_int(model, what, "unk_id", &unknown);
    code = code ? code : zinf_json_bool(model, what, "byte_fallback", &unigram->byte_fallback);
    code = code ? code : read_pieces(tokenizer, list, added, what);
    if (!code && (unknown < -1 || unknown >= cJSON_GetArraySize(list)))
        code = zinf_fail(-EINVAL, "%s: \"model.unk_id\" is no id of the vocabulary", what);
    unigram->unknown = (int32_t)unknown;
    for (int byte = 0; byte < 256 && !code; byte++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", byte);
        unigram->fallback_ids[byte] = (int32_t)text_vocab_find(&tokenizer->vocab, name, 6);
    }
    return code;
}

/* ---- any model ---- */

/* Files from before "type" was written show their kind by what they have. */
static const char *guess_type(const cJSON *model)
{
    if (cJSON_IsArray(cJSON_GetObjectItemCaseSensitive(model, "vocab")))
        return "Unigram";
    if (cJSON_HasObjectItem(model, "merges"))
        return "BPE";
    return cJSON_HasObjectItem(model, "max_input_chars_per_word") ? "WordPiece" : "BPE";
}

int text_json_read_model(struct zinf_tokenizer *tokenizer, const cJSON *model, bool alphabet,
                         const cJSON *added, const char *what)
{
    static const struct {
        const char *name;
        enum text_model_kind kind;
        int (*read)(struct zinf_tokenizer *, const cJSON *, const cJSON *, const char *);
    } kinds[] = {
        {"BPE", TEXT_MODEL_BPE, read_bpe},
        {"Unigram", TEXT_MODEL_UNIGRAM, read_unigram},
        {"WordPiece", TEXT_MODEL_WORDPIECE, read_wordpiece},
        {"WordLevel", TEXT_MODEL_WORDLEVEL, read_wordlevel},
    };
    if (!cJSON_IsObject(model))
        return zinf_fail(-EINVAL, "%s: has no \"model\"", what);
    const char *type = guess_type(model);
    int code = zinf_json_string(model, what, "type", &type);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && !code; i++)
        if (!strcmp(kinds[i].name, type)) {
            tokenizer->kind = kinds[i].kind;
            tokenizer->bpe.alphabet = alphabet && tokenizer->kind == TEXT_MODEL_BPE;
            return kinds[i].read(tokenizer, model, added, what);
        }
    return code ? code
                : zinf_fail(-ENOTSUP, "%s: a tokenizer of kind \"%.50s\" is not supported", what,
                            type);
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
