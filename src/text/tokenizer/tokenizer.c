/*
 * tokenizer: opens a model folder's tokenizer, whichever form it has, and answers questions about
 * it. Forms: tokenizer.json (tokenizer_json.c); vocab.json with merges.txt, also under GPT-2's
 * first names encoder.json and vocab.bpe; tokenizer.model, or DeBERTa's spm.model
 * (sentencepiece_model.c); nothing, which means bytes.
 */
#include "text/internal.h"
#include "text/tokenizer/sentencepiece.h"
#include "text/tokenizer/tokenizer_json.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define END_OF_TEXT "<|endoftext|>"
#define MAX_FILE_BYTES ((size_t)128 << 20) /* three times the largest that is known */
/* Mixed into fingerprints: to be raised when the same files would give other ids. */
#define RULES_VERSION 1

int text_tokenizer_create(struct zinf_tokenizer **out)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return zinf_fail(-ENOMEM, "no memory for a tokenizer");
    (*out)->end_of_text = (*out)->bpe.unknown = -1;
    (*out)->normalizers.cut = TEXT_CUT_LINES;
    return 0;
}

void zinf_tokenizer_close(struct zinf_tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    for (int i = 0; i < TEXT_MAX_STAGES; i++)
        text_stage_fini(&tokenizer->stages[i]);
    text_added_fini(&tokenizer->added[0]);
    text_added_fini(&tokenizer->added[1]);
    text_bpe_fini(&tokenizer->bpe);
    text_unigram_fini(&tokenizer->unigram);
    text_wordpiece_fini(&tokenizer->wordpiece);
    text_sentencepiece_close(tokenizer->sentencepiece);
    text_normalizers_fini(&tokenizer->normalizers);
    text_decoders_fini(tokenizer);
    text_frames_fini(tokenizer);
    text_vocab_fini(&tokenizer->vocab);
    free(tokenizer);
}

static int32_t id_of_name(const struct zinf_tokenizer *tokenizer, const char *name)
{
    for (int i = 0; i < 2; i++) {
        const struct text_added *token = text_added_named(&tokenizer->added[i], name);
        if (token)
            return token->id;
    }
    return (int32_t)text_vocab_find(&tokenizer->vocab, name, strlen(name));
}

/* Picks the end-of-text token among the names in use, name first (may be NULL). */
static void pick_end(struct zinf_tokenizer *tokenizer, const char *name)
{
    static const char *const usual[] = {END_OF_TEXT,  "<|end_of_text|>", "</s>",
                                        "<|eot_id|>", "<|im_end|>",      "<eos>"};
    int32_t id = name ? id_of_name(tokenizer, name) : -1;
    for (size_t i = 0; id < 0 && i < sizeof usual / sizeof *usual; i++)
        id = id_of_name(tokenizer, usual[i]);
    tokenizer->end_of_text = id;
}

int zinf_tokenizer_bytes(struct zinf_tokenizer **out)
{
    struct zinf_tokenizer *tokenizer;
    int code = text_tokenizer_create(&tokenizer);
    if (code)
        return code;
    tokenizer->kind = TEXT_MODEL_BYTES;
    tokenizer->plain_decoder = true;
    code = text_vocab_init(&tokenizer->vocab, 257, 256, 256 + strlen(END_OF_TEXT));
    for (int byte = 0; byte < 256 && !code; byte++) {
        char text = (char)byte;
        code = text_vocab_add(&tokenizer->vocab, (uint32_t)byte, &text, 1, true);
    }
    if (!code)
        code = text_vocab_add(&tokenizer->vocab, 256, END_OF_TEXT, strlen(END_OF_TEXT), false);
    if (code) {
        zinf_tokenizer_close(tokenizer);
        return code;
    }
    tokenizer->end_of_text = 256;
    tokenizer->fingerprint = XXH3_64bits_withSeed("bytes", 5, RULES_VERSION);
    *out = tokenizer;
    return 0;
}

int zinf_tokenizer_from_json(struct zinf_tokenizer **out, const char *json, size_t bytes,
                             const char *what)
{
    struct zinf_tokenizer *tokenizer;
    int code = text_tokenizer_create(&tokenizer);
    if (code)
        return code;
    code = text_json_read(tokenizer, json, bytes, what);
    if (code) {
        zinf_tokenizer_close(tokenizer);
        return code;
    }
    pick_end(tokenizer, NULL);
    tokenizer->fingerprint = XXH3_64bits_withSeed(json, bytes, RULES_VERSION);
    *out = tokenizer;
    return 0;
}

/* ---- folders ---- */

/* The path of name in folder if it can be read, else NULL. */
static char *find_file(const char *folder, const char *name)
{
    char *path = zinf_path_join(folder, name);
    if (path && access(path, R_OK) && errno == ENOENT) {
        free(path);
        path = NULL;
    }
    return path;
}

static int open_json(struct zinf_tokenizer **out, const char *path)
{
    char *json;
    size_t bytes;
    int code = zinf_file_read(path, MAX_FILE_BYTES, &json, &bytes);
    if (code)
        return code;
    code = zinf_tokenizer_from_json(out, json, bytes, path);
    free(json);
    return code;
}

static int open_vocab_and_merges(struct zinf_tokenizer **out, const char *vocab_path,
                                 const char *merges_path)
{
    struct zinf_tokenizer *tokenizer = NULL;
    char *vocab = NULL, *merges = NULL;
    size_t vocab_bytes, merges_bytes;
    int code = zinf_file_read(vocab_path, MAX_FILE_BYTES, &vocab, &vocab_bytes);
    if (!code)
        code = zinf_file_read(merges_path, MAX_FILE_BYTES, &merges, &merges_bytes);
    if (!code)
        code = text_tokenizer_create(&tokenizer);
    if (!code)
        code = text_json_read_pair(tokenizer, &(struct text_file){vocab, vocab_bytes, vocab_path},
                                   &(struct text_file){merges, merges_bytes, merges_path});
    if (!code) {
        tokenizer->framed_beside = true;
        pick_end(tokenizer, NULL);
        tokenizer->fingerprint = XXH3_64bits_withSeed(
            merges, merges_bytes, XXH3_64bits_withSeed(vocab, vocab_bytes, RULES_VERSION));
        *out = tokenizer;
        tokenizer = NULL;
    }
    zinf_tokenizer_close(tokenizer);
    free(vocab);
    free(merges);
    return code;
}

/* The JSON file name of a folder, or NULL where there is none; *path is its path, to be freed. */
static int read_beside(cJSON **out, char **path, const char *folder, const char *name)
{
    *out = NULL;
    *path = find_file(folder, name);
    return *path ? zinf_json_read_file(*path, MAX_FILE_BYTES, ZINF_JSON_STRICT, out) : 0;
}

static int open_sentencepiece(struct zinf_tokenizer **out, const char *folder, const char *path,
                              bool pairs)
{
    struct zinf_tokenizer *tokenizer = NULL;
    char *model = NULL, *config_path = NULL, *added_path = NULL;
    cJSON *config = NULL, *added = NULL;
    size_t bytes;
    int code = zinf_file_read(path, MAX_FILE_BYTES, &model, &bytes);
    code = code ? code : read_beside(&config, &config_path, folder, "tokenizer_config.json");
    code = code ? code : read_beside(&added, &added_path, folder, "added_tokens.json");
    code = code ? code : text_tokenizer_create(&tokenizer);
    struct text_sentencepiece_files files = {
        .model = model,
        .what = path,
        .model_bytes = bytes,
        .config = config,
        .added = added,
        .config_what = config_path,
        .added_what = added_path,
        .pairs = pairs,
    };
    code = code ? code : text_sentencepiece_read(tokenizer, &files);
    if (!code) {
        char *said[2] = {config ? cJSON_PrintUnformatted(config) : NULL,
                         added ? cJSON_PrintUnformatted(added) : NULL};
        tokenizer->fingerprint = XXH3_64bits_withSeed(model, bytes, RULES_VERSION);
        for (int i = 0; i < 2; i++) {
            if (said[i])
                tokenizer->fingerprint =
                    XXH3_64bits_withSeed(said[i], strlen(said[i]), tokenizer->fingerprint);
            cJSON_free(said[i]);
        }
        pick_end(tokenizer, NULL);
        *out = tokenizer;
        tokenizer = NULL;
    }
    zinf_tokenizer_close(tokenizer);
    cJSON_Delete(config);
    cJSON_Delete(added);
    free(config_path);
    free(added_path);
    free(model);
    return code;
}

/* -ENOENT without a message: the folder has none. A folder with a tokenizer of another kind must
 * not be taken for one without. */
static int open_model(struct zinf_tokenizer **out, const char *folder)
{
    static const char spm[] = "spm.model"; /* DeBERTa's */
    static const char *const models[] = {"tokenizer.model", "spiece.model", "sentencepiece.model",
                                         spm};
    static const char *const others[] = {"sentencepiece.bpe.model", "vocab.txt"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char *path = find_file(folder, models[i]);
        int code = path ? open_sentencepiece(out, folder, path, models[i] == spm) : -ENOENT;
        free(path);
        if (code != -ENOENT)
            return code;
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char *path = find_file(folder, others[i]);
        free(path);
        if (path)
            return zinf_fail(-ENOTSUP,
                             "%s: %s alone does not say how to tokenize: let transformers save the "
                             "tokenizer as tokenizer.json",
                             folder, others[i]);
    }
    return -ENOENT;
}

static int open_folder(struct zinf_tokenizer **out, const char *folder)
{
    static const char *const pairs[][2] = {{"vocab.json", "merges.txt"},
                                           {"encoder.json", "vocab.bpe"}};
    struct stat info;
    if (stat(folder, &info))
        return zinf_fail(-errno, "cannot open the tokenizer's folder %s: %s", folder,
                         strerror(errno));
    char *path = find_file(folder, "tokenizer.json");
    if (path) {
        int code = open_json(out, path);
        free(path);
        return code;
    }
    for (int i = 0; i < 2; i++) {
        char *vocab = find_file(folder, pairs[i][0]), *merges = find_file(folder, pairs[i][1]);
        int code = -ENOENT;
        if (vocab && merges)
            code = open_vocab_and_merges(out, vocab, merges);
        else if (vocab || merges)
            code = zinf_fail(-EINVAL, "%s has %s but not %s: both are needed", folder,
                             pairs[i][vocab ? 0 : 1], pairs[i][vocab ? 1 : 0]);
        free(vocab);
        free(merges);
        if (code != -ENOENT)
            return code;
    }
    int code = open_model(out, folder);
    return code == -ENOENT ? zinf_tokenizer_bytes(out) : code;
}

/* The token that tokenizer_config.json has under a key, as a string or an object; or NULL. */
static const char *name_under(const cJSON *config, const char *key)
{
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(config, key);
    if (cJSON_IsObject(name))
        name = cJSON_GetObjectItemCaseSensitive(name, "content");
    return cJSON_IsString(name) ? name->valuestring : NULL;
}

/* Whether vocab.json and merges.txt are those of RoBERTa's kin, by the class of the tokenizer or of
 * the model: transformers then frames texts, although no file says how. */
static int find_roberta(const cJSON *config, const char *folder, bool *out)
{
    static const char *const classes[] = {"Roberta", "Bart", "Longformer", "LED"};
    static const char *const types[] = {"roberta", "bart", "longformer", "led"};
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(config, "tokenizer_class");
    char *path = NULL;
    cJSON *model = NULL;
    int code = 0;
    *out = false;
    for (size_t i = 0; cJSON_IsString(name) && i < 4; i++)
        *out |= !strncmp(name->valuestring, classes[i], strlen(classes[i]));
    if (cJSON_IsString(name))
        return 0;
    code = read_beside(&model, &path, folder, "config.json");
    name = cJSON_GetObjectItemCaseSensitive(model, "model_type");
    for (size_t i = 0; cJSON_IsString(name) && i < 4; i++)
        *out |= !strcmp(name->valuestring, types[i]);
    cJSON_Delete(model);
    free(path);
    return code;
}

/* What has no post-processor of its own gets begin and end where the configuration wants them. */
static int read_frames(struct zinf_tokenizer *tokenizer, const cJSON *config, const char *folder,
                       const char *what)
{
    const char *begin = name_under(config, "bos_token"), *end = name_under(config, "eos_token");
    bool wants_begin = false, wants_end = false, roberta = false;
    int code = config ? zinf_json_bool(config, what, "add_bos_token", &wants_begin) : 0;
    code = code || !config ? code : zinf_json_bool(config, what, "add_eos_token", &wants_end);
    code = code ? code : find_roberta(config, folder, &roberta);
    if (!code && roberta) {
        const int32_t first = id_of_name(tokenizer, begin ? begin : "<s>");
        const int32_t last = id_of_name(tokenizer, end ? end : "</s>");
        return text_frames_make_roberta(tokenizer, first, last);
    }
    if (code || !(wants_begin || wants_end))
        return code;
    return text_frames_make(tokenizer, wants_begin && begin ? id_of_name(tokenizer, begin) : -1,
                            wants_end && end ? id_of_name(tokenizer, end) : -1);
}

/* What tokenizer_config.json says beside the tokenizer's own files. */
static int read_names(struct zinf_tokenizer *tokenizer, const char *folder)
{
    char *path = NULL;
    cJSON *document = NULL;
    int code = read_beside(&document, &path, folder, "tokenizer_config.json");
    const char *end = name_under(document, "eos_token");
    if (!code && end)
        pick_end(tokenizer, end);
    if (!code && tokenizer->framed_beside)
        code = read_frames(tokenizer, document, folder, path);
    if (!code && tokenizer->framed_beside)
        text_frames_mix(tokenizer);
    cJSON_Delete(document);
    free(path);
    return code;
}

int zinf_tokenizer_open(struct zinf_tokenizer **out, const char *folder)
{
    struct zinf_tokenizer *tokenizer;
    int code = open_folder(&tokenizer, folder);
    if (code)
        return code;
    if (tokenizer->kind != TEXT_MODEL_BYTES)
        code = read_names(tokenizer, folder);
    if (code)
        zinf_tokenizer_close(tokenizer);
    else
        *out = tokenizer;
    return code;
}

/* ---- queries ---- */

const char *zinf_tokenizer_kind(const struct zinf_tokenizer *tokenizer)
{
    static const char *const names[] = {"bytes",     "bpe",       "unigram",
                                        "wordpiece", "wordlevel", "sentencepiece"};
    return names[tokenizer->kind];
}

uint32_t zinf_tokenizer_vocab(const struct zinf_tokenizer *tokenizer)
{
    return tokenizer->vocab.size;
}

int32_t zinf_tokenizer_end_of_text(const struct zinf_tokenizer *tokenizer)
{
    return tokenizer->end_of_text;
}

uint64_t zinf_tokenizer_fingerprint(const struct zinf_tokenizer *tokenizer)
{
    return tokenizer->fingerprint;
}
