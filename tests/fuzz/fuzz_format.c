/*
 * fuzz target: any bytes as a row of data, in every format and by templates of each kind. A row is
 * broken, or its sample has a mark for each id; encoded again it is the same, whatever the row
 * before it left behind.
 */
#include "text/chat/chat.h"
#include "fuzz.h"

#include <stdlib.h>

static struct zinf_tokenizer *tokenizer;

/* A row and what it became: the recipe's memory is used again and again, as in a file. */
static void take(const struct zinf_recipe *recipe, const cJSON *row)
{
    struct zinf_sample first = ZINF_SAMPLE_EMPTY, second = ZINF_SAMPLE_EMPTY;
    int code = recipe->take(recipe->arg, row, &first);
    int again = recipe->take(recipe->arg, row, &second);
    if (code != again || first.ids.count != second.ids.count)
        abort();
    for (size_t i = 0; !code && i < first.ids.count; i++)
        if (first.ids.ids[i] != second.ids.ids[i] || first.marks[i] != second.marks[i] ||
            first.ids.ids[i] < 0 || first.marks[i] > ZINF_MARK_COUNTS)
            abort();
    if (code && code != -EINVAL)
        abort();
    zinf_sample_free(&first);
    zinf_sample_free(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const templates[] = {"mistral", "llama2", "chatml", "baichuan2", "alpaca"};
    cJSON *row;
    if (!tokenizer && zinf_tokenizer_bytes(&tokenizer))
        abort();
    if (zinf_json_parse((const char *)data, size, "fuzz", ZINF_JSON_STRICT, &row))
        return 0;
    for (int format = ZINF_FORMAT_TEXT; format < ZINF_FORMATS && cJSON_IsObject(row); format++)
        for (size_t i = 0; i < sizeof templates / sizeof *templates; i++) {
            struct zinf_chat *chat = NULL;
            struct zinf_format_recipe *recipe = NULL;
            if (zinf_chat_open(&chat, ".", templates[i], tokenizer))
                abort();
            const struct zinf_format_options options = {.format = (enum zinf_format)format,
                                                        .chat = chat,
                                                        .tokenizer = tokenizer,
                                                        .folder = "."};
            if (zinf_format_open(&recipe, &options))
                abort();
            take(zinf_format_recipe(recipe), row);
            zinf_format_close(recipe);
            zinf_chat_close(chat);
        }
    cJSON_Delete(row);
    return 0;
}
