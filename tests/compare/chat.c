/*
 * chat: for against_chat.py. Reads a JSON array of rows, and prints for each its ids and marks, or
 * what is wrong with it: one JSON object a line. Usage: chat FOLDER TEMPLATE|- FORMAT FILE
 * [prompt]; a row {"answer": [messages]} is encoded to be gone on with. chat FOLDER TEMPLATE jinja
 * prints the template.
 */
#include "text/chat/chat.h"

#include <stdio.h>
#include <stdlib.h>

static void print_sample(const struct zinf_sample *sample, int code)
{
    if (code) {
        cJSON *text = cJSON_CreateString(zinf_error());
        char *quoted = cJSON_PrintUnformatted(text);
        printf("{\"error\": %s}\n", quoted);
        cJSON_free(quoted);
        cJSON_Delete(text);
        return;
    }
    printf("{\"ids\": [");
    for (size_t i = 0; i < sample->ids.count; i++)
        printf("%s%d", i ? ", " : "", sample->ids.ids[i]);
    printf("], \"counts\": [");
    for (size_t i = 0; i < sample->ids.count; i++)
        printf("%s%d", i ? ", " : "", sample->marks[i] & ZINF_MARK_COUNTS);
    printf("]}\n");
}

static int encode_answer(const struct zinf_chat *chat, const cJSON *list,
                         struct zinf_sample *sample)
{
    struct zinf_chat_message messages[256];
    size_t n = 0;
    const cJSON *message;
    cJSON_ArrayForEach(message, list)
    {
        messages[n++] =
            (struct zinf_chat_message){cJSON_GetObjectItem(message, "role")->valuestring,
                                       cJSON_GetObjectItem(message, "content")->valuestring, false};
    }
    return zinf_chat_encode(chat, messages, n, true, sample);
}

static int print_jinja(const struct zinf_chat *chat)
{
    char *text = NULL;
    int code = zinf_chat_jinja(chat, &text);
    fputs(code ? "" : text, stdout);
    return code != 0;
}

int main(int argc, char **argv)
{
    struct zinf_tokenizer *tokenizer = NULL;
    struct zinf_chat *chat = NULL;
    struct zinf_format_recipe *recipe = NULL;
    struct zinf_sample sample = ZINF_SAMPLE_EMPTY;
    cJSON *rows = NULL;
    const cJSON *row;
    if (argc < 4 || (argc < 5 && strcmp(argv[3], "jinja")))
        return 2;
    struct zinf_format_options options = {.folder = argv[1], .train_on_prompt = argc > 5};
    int code = zinf_tokenizer_open(&tokenizer, argv[1]);
    if (!code && strcmp(argv[2], "none"))
        code = zinf_chat_open(&chat, argv[1], strcmp(argv[2], "-") ? argv[2] : NULL, tokenizer);
    options.chat = chat;
    options.tokenizer = tokenizer;
    if (!code && !strcmp(argv[3], "jinja"))
        return print_jinja(chat);
    if (!code)
        code = zinf_format_parse(argv[3], &options.format);
    if (!code)
        code = zinf_format_open(&recipe, &options);
    if (!code)
        code = zinf_json_read_file(argv[4], (size_t)1 << 30, ZINF_JSON_STRICT, &rows);
    cJSON_ArrayForEach(row, rows)
    {
        const cJSON *answer = cJSON_GetObjectItem(row, "answer");
        const struct zinf_recipe *r = zinf_format_recipe(recipe);
        zinf_sample_clear(&sample);
        int result = answer ? encode_answer(chat, answer, &sample) : r->take(r->arg, row, &sample);
        print_sample(&sample, result);
    }
    if (code)
        fprintf(stderr, "%s\n", zinf_error());
    cJSON_Delete(rows);
    zinf_sample_free(&sample);
    zinf_format_close(recipe);
    zinf_chat_close(chat);
    zinf_tokenizer_close(tokenizer);
    return code ? 1 : 0;
}
