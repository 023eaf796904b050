/*
 * tokenizer_bytes: bytes as tokens, written as the tokenizer.json of a byte-level BPE without
 * merges, which Hugging Face's readers take as well: for a model whose vocabulary is larger than
 * that of bytes and that is to be trained on text none the less.
 */
#include "text/internal.h"
#include "base/json.h"

#include <stdlib.h>

#define END_OF_TEXT 256

static cJSON *byte_level(void)
{
    cJSON *stage = cJSON_CreateObject();
    cJSON_AddStringToObject(stage, "type", "ByteLevel");
    cJSON_AddBoolToObject(stage, "add_prefix_space", false);
    cJSON_AddBoolToObject(stage, "trim_offsets", true);
    cJSON_AddBoolToObject(stage, "use_regex", true);
    return stage;
}

static void add_end_of_text(cJSON *root)
{
    static const char *const flags[] = {"single_word", "lstrip", "rstrip", "normalized"};
    cJSON *list = cJSON_AddArrayToObject(root, "added_tokens"), *token = cJSON_CreateObject();
    cJSON_AddNumberToObject(token, "id", END_OF_TEXT);
    cJSON_AddStringToObject(token, "content", "<|endoftext|>");
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        cJSON_AddBoolToObject(token, flags[i], false);
    cJSON_AddBoolToObject(token, "special", true);
    cJSON_AddItemToArray(list, token);
}

static void add_model(cJSON *root)
{
    cJSON *model = cJSON_AddObjectToObject(root, "model"), *vocab;
    char letter[8];
    cJSON_AddStringToObject(model, "type", "BPE");
    vocab = cJSON_AddObjectToObject(model, "vocab");
    for (int byte = 0; byte < 256; byte++) {
        letter[text_alphabet_put((uint8_t)byte, letter)] = 0;
        cJSON_AddNumberToObject(vocab, letter, byte);
    }
    cJSON_AddArrayToObject(model, "merges");
}

int zinf_tokenizer_write_bytes(const char *folder)
{
    cJSON *root = cJSON_CreateObject();
    char *path = zinf_path_join(folder, "tokenizer.json");
    cJSON_AddStringToObject(root, "version", "1.0");
    add_end_of_text(root);
    cJSON_AddNullToObject(root, "normalizer");
    cJSON_AddItemToObject(root, "pre_tokenizer", byte_level());
    cJSON_AddItemToObject(root, "decoder", byte_level());
    add_model(root);
    char *text = cJSON_Print(root);
    int code = path && text ? zinf_file_write_atomic(path, text, strlen(text))
                            : zinf_fail(-ENOMEM, "no memory for a tokenizer");
    cJSON_free(text);
    cJSON_Delete(root);
    free(path);
    return code;
}
