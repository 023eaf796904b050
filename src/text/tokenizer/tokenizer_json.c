/*
 * tokenizer_json: a tokenizer out of tokenizer.json, or out of vocab.json and merges.txt. What is
 * not understood is refused by name, never skipped: a tokenizer that is almost right trains a model
 * on almost the right ids. Truncation and padding are left aside: they are a caller's concern.
 */
#include "text/tokenizer/tokenizer_json.h"

#include <stdlib.h>

#define END_OF_TEXT "<|endoftext|>"

/* ---- added tokens ---- */

/* The id that the vocabulary has for content, spelled as the vocabulary spells; -1: none. */
static int64_t id_in_vocab(const struct zinf_tokenizer *tokenizer, const char *content, uint32_t id)
{
    const struct text_vocab *vocab = &tokenizer->vocab;
    size_t letters = strlen(content), n;
    if (!tokenizer->bpe.alphabet)
        return text_vocab_find(vocab, content, letters);
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

/* The content as text has it after the normalizers; text_added_add copies it, and decoding writes
 * it so. */
static int normalize_token(struct zinf_tokenizer *tokenizer, struct text_added *token,
                           struct text_buffer *out)
{
    struct text_passage passage = {token->content, token->bytes, true};
    struct text_buffer work[2] = {{0}}, *result;
    struct text_matcher matcher;
    bool moved;
    int code = text_matcher_init(&matcher);
    if (code)
        return code;
    code = text_normalize(&tokenizer->normalizers, &passage, &matcher, work, &result, &moved);
    code = code ? code : text_buffer_add(out, result->bytes, result->count);
    code = code ? code : text_buffer_add(out, "", 1);
    text_matcher_fini(&matcher);
    text_buffer_free(&work[0]);
    text_buffer_free(&work[1]);
    if (code)
        return code;
    bool other = strcmp(out->bytes, token->content) != 0;
    token->content = out->bytes;
    token->bytes = out->count - 1;
    if (!other)
        return 0;
    struct text_written *grown =
        realloc(tokenizer->written, (tokenizer->n_written + 1) * sizeof *tokenizer->written);
    char *text = strdup(token->content);
    tokenizer->written = grown ? grown : tokenizer->written;
    if (!grown || !text) {
        free(text);
        return zinf_fail(-ENOMEM, "no memory for an added token");
    }
    tokenizer->written[tokenizer->n_written++] = (struct text_written){token->id, text};
    return 0;
}

static int add_token(struct zinf_tokenizer *tokenizer, const struct text_added *token,
                     bool normalized, const char *what)
{
    struct text_vocab *vocab = &tokenizer->vocab;
    uint32_t id = (uint32_t)token->id;
    int64_t known = id_in_vocab(tokenizer, token->content, id);
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
    if (code || !normalized || !tokenizer->normalizers.count)
        return code ? code : text_added_add(&tokenizer->added[normalized], token);
    struct text_added as_text = *token;
    struct text_buffer content = {0};
    code = normalize_token(tokenizer, &as_text, &content);
    if (!code && as_text.bytes) /* one that normalizes to nothing is never found */
        code = text_added_add(&tokenizer->added[1], &as_text);
    text_buffer_free(&content);
    return code;
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

/* ---- whole files ---- */

/* A model that merges over the whole text is given words all the same, where no merge joins the end
 * of one to the next: the ids are the same, and text of any length passes. */
static void cut_into_words(struct zinf_tokenizer *tokenizer)
{
    const struct text_bpe *bpe = &tokenizer->bpe;
    const char *mark = bpe->alphabet ? " " : "\xe2\x96\x81";
    bool whole = tokenizer->kind == TEXT_MODEL_BPE && tokenizer->n_stages < TEXT_MAX_STAGES &&
                 !bpe->ignore_merges && !bpe->prefix && !bpe->suffix;
    for (int i = 0; i < tokenizer->n_stages; i++)
        whole &= !tokenizer->stages[i].code && !tokenizer->stages[i].spell;
    if (!whole || !text_bpe_cuts_at(bpe, &tokenizer->vocab, mark))
        return;
    struct text_stage *stage = &tokenizer->stages[tokenizer->n_stages++];
    stage->words = true;
    strcpy(stage->mark, mark);
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
    const cJSON *pre_tokenizer = cJSON_GetObjectItemCaseSensitive(document, "pre_tokenizer");
    code = text_json_read_normalizer(
        &tokenizer->normalizers, cJSON_GetObjectItemCaseSensitive(document, "normalizer"), what);
    if (!code)
        code = text_json_read_model(tokenizer, model, text_json_has_byte_level(pre_tokenizer),
                                    added, what);
    code = code ? code : read_added(tokenizer, added, what);
    code = code ? code : seal_added(tokenizer, what);
    code = code ? code : text_json_read_pre_tokenizer(tokenizer, pre_tokenizer, what);
    if (!code)
        code = text_json_read_decoder(tokenizer,
                                      cJSON_GetObjectItemCaseSensitive(document, "decoder"), what);
    if (!code)
        code = text_json_read_frame(
            tokenizer, cJSON_GetObjectItemCaseSensitive(document, "post_processor"), what);
    if (!code)
        cut_into_words(tokenizer);
    tokenizer->direct = tokenizer->bpe.alphabet && !tokenizer->normalizers.count;
    cJSON_Delete(document);
    return code;
}

int text_json_read_pair(struct zinf_tokenizer *tokenizer, const struct text_file *vocab,
                        const struct text_file *merges)
{
    cJSON *document;
    size_t n_lines = 1;
    int code = zinf_json_parse(vocab->text, vocab->bytes, vocab->what, ZINF_JSON_STRICT, &document);
    if (code)
        return code;
    for (size_t i = 0; i < merges->bytes; i++)
        n_lines += merges->text[i] == '\n';
    tokenizer->kind = TEXT_MODEL_BPE;
    tokenizer->direct = tokenizer->plain_decoder = tokenizer->bpe.alphabet = true;
    code = text_json_read_vocab(&tokenizer->vocab, document, true, NULL, vocab->what);
    cJSON_Delete(document);
    code = code ? code : text_bpe_init(&tokenizer->bpe, &tokenizer->vocab, n_lines);
    code = code ? code
                : text_json_read_merge_lines(tokenizer, merges->text, merges->bytes, merges->what);
    int64_t end = code ? -1 : text_vocab_find(&tokenizer->vocab, END_OF_TEXT, strlen(END_OF_TEXT));
    if (end >= 0) {
        struct text_added token = {.content = END_OF_TEXT, .id = (int32_t)end};
        token.bytes = strlen(END_OF_TEXT);
        code = add_token(tokenizer, &token, false, vocab->what);
    }
    code = code ? code : seal_added(tokenizer, vocab->what);
    if (code)
        return code;
    tokenizer->n_stages = 1;
    return text_pattern_compile(&tokenizer->stages[0].code, text_gpt2_pattern,
                                TEXT_PATTERN_EXPRESSION, vocab->what);
}
