/*
 * sentencepiece_model: a folder with tokenizer.model. The library turns text into ids; what Hugging
 * Face's Python tokenizers of LLaMA, Baichuan and T5 keep beside it is read here: tokens that were
 * added (added_tokens.json, and added_tokens_decoder of tokenizer_config.json), which are cut out
 * of the text first, and which of <s> and </s> stand around a text, or DeBERTa's [CLS] and [SEP].
 * Each stretch between added tokens is encoded by itself, with the model's own prefix.
 */
#include "build-config.h"

#include "text/tokenizer/sentencepiece.h"
#include "text/tokenizer/tokenizer_json.h"

#include <stdlib.h>

#ifdef ZINF_HAVE_SENTENCEPIECE

/* ---- vocabulary ---- */

static int read_pieces(struct zinf_tokenizer *tokenizer, uint32_t n_added, size_t added_bytes,
                       const char *what)
{
    const struct text_sentencepiece *model = tokenizer->sentencepiece;
    struct text_vocab *vocab = &tokenizer->vocab;
    int32_t size = text_sentencepiece_size(model);
    size_t total = added_bytes, n;
    if ((uint32_t)size > TEXT_MAX_ID)
        return zinf_fail(-EINVAL, "%s: more than %u pieces", what, TEXT_MAX_ID);
    for (int32_t id = 0; id < size; id++) {
        text_sentencepiece_piece(model, id, &n);
        total += n;
    }
    uint32_t all = n_added > (uint32_t)size ? n_added : (uint32_t)size;
    int code = text_vocab_init(vocab, all, (size_t)size, total);
    for (int32_t id = 0; id < size && !code; id++) {
        const char *piece = text_sentencepiece_piece(model, id, &n);
        bool known = text_vocab_find(vocab, piece, n) >= 0;
        code = text_vocab_add(vocab, (uint32_t)id, piece, n, !known);
    }
    return code;
}

/* ---- added tokens ---- */

struct added_list {
    struct text_added *tokens; /* their contents are borrowed from the documents */
    size_t count, capacity;
    uint32_t size; /* largest id + 1 */
    size_t bytes;
};

static int add(struct added_list *list, const struct text_added *token, const char *what)
{
    if (token->id < 0 || (uint32_t)token->id > TEXT_MAX_ID || !token->bytes)
        return zinf_fail(-EINVAL, "%s: the added token \"%.100s\" has no id in 0 .. %u", what,
                         token->content, TEXT_MAX_ID);
    for (size_t i = 0; i < list->count; i++)
        if (!strcmp(list->tokens[i].content, token->content))
            return 0; /* tokenizer_config.json says more and is read first */
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 64;
        void *grown = realloc(list->tokens, capacity * sizeof *list->tokens);
        if (!grown)
            return zinf_fail(-ENOMEM, "%s: no memory for added tokens", what);
        list->tokens = grown;
        list->capacity = capacity;
    }
    list->tokens[list->count++] = *token;
    list->bytes += token->bytes;
    if ((uint32_t)token->id >= list->size)
        list->size = (uint32_t)token->id + 1;
    return 0;
}

static int read_decoder(struct added_list *list, const cJSON *config, const char *what)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(config, "added_tokens_decoder"))
    {
        char *end;
        const char *content = "";
        struct text_added token = {.id =
                                       (int32_t)strtol(item->string ? item->string : "", &end, 10)};
        int code = zinf_json_string(item, what, "content", &content);
        code = code ? code : zinf_json_bool(item, what, "lstrip", &token.lstrip);
        code = code ? code : zinf_json_bool(item, what, "rstrip", &token.rstrip);
        code = code ? code : zinf_json_bool(item, what, "single_word", &token.single_word);
        token.content = (char *)content;
        token.bytes = strlen(content);
        token.id = item->string && *item->string && !*end ? token.id : -1;
        code = code ? code : add(list, &token, what);
        if (code)
            return code;
    }
    return 0;
}

static int read_added(struct added_list *list, const cJSON *added, const char *what)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, added)
    {
        double id = cJSON_IsNumber(item) ? item->valuedouble : -1;
        struct text_added token = {.content = item->string ? item->string : ""};
        token.bytes = strlen(token.content);
        token.id = id >= 0 && id <= TEXT_MAX_ID ? (int32_t)id : -1;
        int code = add(list, &token, what);
        if (code)
            return code;
    }
    return 0;
}

static int put_added(struct zinf_tokenizer *tokenizer, const struct added_list *list,
                     const char *what)
{
    int code = 0;
    for (size_t i = 0; i < list->count && !code; i++) {
        const struct text_added *token = &list->tokens[i];
        int64_t known = text_vocab_find(&tokenizer->vocab, token->content, token->bytes);
        bool taken = text_vocab_has(&tokenizer->vocab, (uint32_t)token->id);
        if (known >= 0 ? known != token->id : taken)
            return zinf_fail(-EINVAL, "%s: the id %d of the added token \"%.100s\" is not its own",
                             what, token->id, token->content);
        if (!taken)
            code = text_vocab_add(&tokenizer->vocab, (uint32_t)token->id, token->content,
                                  token->bytes, true);
        code = code ? code : text_added_add(&tokenizer->added[0], token);
    }
    code = code ? code : text_added_seal(&tokenizer->added[0]);
    return code ? code : text_added_seal(&tokenizer->added[1]);
}

/* ---- pairs ---- */

static int32_t piece_id(const struct text_sentencepiece *model, const char *name)
{
    size_t n, bytes = strlen(name);
    for (int32_t id = 0; id < text_sentencepiece_size(model); id++) {
        const char *piece = text_sentencepiece_piece(model, id, &n);
        if (n == bytes && !memcmp(piece, name, n))
            return id;
    }
    return -1;
}

/* DeBERTa's special tokens are pieces, but for the mask, which comes behind them all. */
static int add_special(struct added_list *list, const struct text_sentencepiece *model,
                       const char *what)
{
    static char names[][8] = {"[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"};
    const int n = sizeof names / sizeof *names;
    int code = 0;
    for (int i = 0; i < n && !code; i++) {
        struct text_added token = {
            .content = names[i], .bytes = strlen(names[i]), .id = piece_id(model, names[i])};
        if (token.id < 0 && i + 1 < n)
            return zinf_fail(-ENOTSUP,
                             "%s: has no piece %s: let transformers save the tokenizer as "
                             "tokenizer.json",
                             what, names[i]);
        token.id = token.id < 0 ? text_sentencepiece_size(model) : token.id;
        code = add(list, &token, what);
    }
    return code;
}

static int read_pair_frames(struct zinf_tokenizer *tokenizer, const cJSON *config, const char *what)
{
    bool lower = false, split = false;
    int code = config ? zinf_json_bool(config, what, "do_lower_case", &lower) : 0;
    if (!code && config)
        code = zinf_json_bool(config, what, "split_by_punct", &split);
    if (!code && (lower || split))
        code = zinf_fail(-ENOTSUP,
                         "%s: %s is not supported with spm.model: let transformers save the "
                         "tokenizer as tokenizer.json",
                         what, lower ? "do_lower_case" : "split_by_punct");
    return code ? code
                : text_frames_make_pairs(tokenizer, piece_id(tokenizer->sentencepiece, "[CLS]"),
                                         piece_id(tokenizer->sentencepiece, "[SEP]"));
}

/* ---- what stands around a text ---- */

static int read_frames(struct zinf_tokenizer *tokenizer, const cJSON *config, const char *what)
{
    const char *class = "";
    int code = zinf_json_string(config, what, "tokenizer_class", &class);
    bool t5 = strstr(class, "T5") != NULL, legacy = true, begin = !t5, end = t5;
    code = code ? code : zinf_json_bool(config, what, "add_bos_token", &begin);
    code = code ? code : zinf_json_bool(config, what, "add_eos_token", &end);
    code = code ? code : zinf_json_bool(config, what, "legacy", &legacy);
    if (!code && !legacy && !t5)
        code = zinf_fail(-ENOTSUP,
                         "%s: \"legacy\": false is not supported with tokenizer.model: let "
                         "transformers save the tokenizer as tokenizer.json",
                         what);
    int32_t first = begin ? text_sentencepiece_begin_id(tokenizer->sentencepiece) : -1;
    int32_t last = end ? text_sentencepiece_end_id(tokenizer->sentencepiece) : -1;
    return code ? code : text_frames_make(tokenizer, first, last);
}

int text_sentencepiece_read(struct zinf_tokenizer *tokenizer,
                            const struct text_sentencepiece_files *files)
{
    struct added_list list = {0};
    tokenizer->kind = TEXT_MODEL_SENTENCEPIECE;
    int code = text_sentencepiece_check(files->model, files->model_bytes, files->what);
    if (!code)
        code = text_sentencepiece_open(&tokenizer->sentencepiece, files->model, files->model_bytes,
                                       files->what);
    code = code || !files->config ? code : read_decoder(&list, files->config, files->config_what);
    code = code || !files->added ? code : read_added(&list, files->added, files->added_what);
    if (!code && files->pairs)
        code = add_special(&list, tokenizer->sentencepiece, files->what);
    code = code ? code : read_pieces(tokenizer, list.size, list.bytes, files->what);
    code = code ? code : put_added(tokenizer, &list, files->what);
    free(list.tokens);
    if (!code && files->pairs)
        code = read_pair_frames(tokenizer, files->config, files->config_what);
    else if (!code && files->config)
        code = read_frames(tokenizer, files->config, files->config_what);
    return code;
}

int text_sentencepiece_put(const struct zinf_tokenizer *tokenizer, const char *piece, size_t bytes,
                           struct zinf_tokens *tokens)
{
    int32_t *ids;
    size_t count;
    int code = text_sentencepiece_encode(tokenizer->sentencepiece, piece, bytes, &ids, &count);
    if (code)
        return code;
    for (size_t i = 0; i < count && !code; i++)
        code = text_tokens_push(tokens, ids[i]);
    free(ids);
    return code;
}

/* Added tokens as they are written, what lies between as the library has it. */
int text_sentencepiece_join(const struct zinf_tokenizer *tokenizer, const int32_t *ids,
                            size_t count, struct text_buffer *out)
{
    const struct text_vocab *vocab = &tokenizer->vocab;
    int32_t size = text_sentencepiece_size(tokenizer->sentencepiece);
    int code = 0;
    for (size_t i = 0, end; i < count && !code; i = end) {
        char *text;
        size_t bytes;
        for (end = i; end < count && ids[end] >= 0 && ids[end] < size;)
            end++;
        if (end > i) {
            code = text_sentencepiece_decode(tokenizer->sentencepiece, ids + i, end - i, &text,
                                             &bytes);
            code = code ? code : text_buffer_repair(out, text, bytes);
            if (!code)
                free(text);
            continue;
        }
        end++;
        if (ids[i] >= 0 && text_vocab_has(vocab, (uint32_t)ids[i]))
            code =
                text_buffer_add(out, vocab->bytes + vocab->offsets[ids[i]], vocab->lengths[ids[i]]);
    }
    return code;
}

#else

int text_sentencepiece_read(struct zinf_tokenizer *tokenizer,
                            const struct text_sentencepiece_files *files)
{
    (void)tokenizer;
    return zinf_fail(-ENOTSUP,
                     "%s: this zinf was built without SentencePiece: install libsentencepiece-dev "
                     "and build again, or let transformers save the tokenizer as tokenizer.json",
                     files->what);
}

int text_sentencepiece_put(const struct zinf_tokenizer *tokenizer, const char *piece, size_t bytes,
                           struct zinf_tokens *tokens)
{
    (void)tokenizer;
    (void)piece;
    (void)bytes;
    (void)tokens;
    return -ENOTSUP;
}

int text_sentencepiece_join(const struct zinf_tokenizer *tokenizer, const int32_t *ids,
                            size_t count, struct text_buffer *out)
{
    (void)tokenizer;
    (void)ids;
    (void)count;
    (void)out;
    return -ENOTSUP;
}

void text_sentencepiece_close(struct text_sentencepiece *model)
{
    (void)model; /* there is none */
}

#endif
