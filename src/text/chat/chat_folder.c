/*
 * chat_folder: which chat a model's folder means. Its template is a program in Jinja; what is here
 * are hashes of the programs whose rendering is built in. Any other could do anything, so it is
 * refused, and the user says by name which of ours it is.
 */
#include "text/chat/chat_template.h"

#include "base/folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>

#define MAX_FILE_BYTES ((size_t)64 << 20)

/* ---- known texts ---- */

/* XXH3 of the template without white space at its end, with escaped line ends as such: files have
 * both. Of the folders that these models were published in. */
static const struct {
    uint64_t hash;
    const char *name;
} known[] = {
    {0xa04f41d813a07b13ull, "chatml"},
    {0xda206a9e46a4ac01ull, "chatml"},  /* with a default for add_generation_prompt */
    {0xd5d943bd0bd9082full, "qwen2"},   /* Qwen2-7B-Instruct */
    {0xf9a29021c9d093adull, "qwen2.5"}, /* Qwen2.5-0.5B-Instruct */
    {0xcb7c5112dfc4a3b0ull, "llama2"},  /* Llama-2-7b-chat-hf */
    {0x9799ad6e2dea0594ull, "llama3"},  /* Meta-Llama-3-8B-Instruct */
    {0xa5d004210ebce758ull, "mistral"}, /* Mistral-7B-Instruct-v0.2 */
    {0xb7f52373b11c60d7ull, "mistral-v0.1"},
    {0x2c2e86beabccd2a4ull, "gemma"}, /* gemma-2b-it */
    {0x82fc89c04c54ba66ull, "phi3"},  /* Phi-3-mini-4k-instruct */
    {0xcd8aff863abd4554ull, "phi3"},  /* Phi-3.5-mini-instruct */
    {0x1db34e9fc60441d8ull, "zephyr"},
};

static const struct chat_template *template_named(const char *name)
{
    for (int i = 0; i < n_chat_templates; i++)
        if (!strcmp(chat_templates[i].name, name))
            return &chat_templates[i];
    return NULL;
}

/* What a training by a named template leaves. */
static const struct chat_template *recognise_own(const char *jinja, size_t bytes)
{
    const struct chat_template *found = NULL;
    for (int i = 0; !found && i < n_chat_templates; i++) {
        struct text_buffer own = {0};
        if (!chat_templates[i].separate && !chat_write_jinja(&own, &chat_templates[i]) &&
            bytes >= own.count && !memcmp(jinja, own.bytes, own.count) && bytes <= own.count + 1)
            found = &chat_templates[i];
        text_buffer_free(&own);
    }
    return found;
}

/* Which template a text of Jinja is; NULL: none that is known. */
static const struct chat_template *recognise(const char *jinja, size_t bytes)
{
    char *plain = malloc(bytes + 1);
    const struct chat_template *found = NULL;
    size_t n = 0;
    for (size_t i = 0; plain && i < bytes; i++) {
        bool escaped = jinja[i] == '\\' && i + 1 < bytes && jinja[i + 1] == 'n';
        plain[n++] = escaped ? '\n' : jinja[i];
        i += escaped;
    }
    while (n && strchr(" \t\r\n", plain[n - 1]))
        n--;
    uint64_t hash = plain ? XXH3_64bits(plain, n) : 0;
    for (size_t i = 0; !found && i < sizeof known / sizeof *known; i++)
        if (known[i].hash == hash)
            found = template_named(known[i].name);
    if (!found && plain)
        found = recognise_own(jinja, bytes);
    free(plain);
    return found;
}

const char *zinf_chat_template_name(int number)
{
    return number >= 0 && number < n_chat_templates ? chat_templates[number].name : NULL;
}

/* ---- files ---- */

/* A token is a string, or an object that has it as its content. */
static const char *token_text(const cJSON *config, const char *key)
{
    const cJSON *token = cJSON_GetObjectItemCaseSensitive(config, key);
    if (cJSON_IsObject(token))
        token = cJSON_GetObjectItemCaseSensitive(token, "content");
    return cJSON_IsString(token) ? token->valuestring : NULL;
}

int chat_special(const char *folder, const char *key, char **out)
{
    static const char *const files[] = {"tokenizer_config.json", "special_tokens_map.json"};
    char *text = NULL;
    int code = 0;
    for (int i = 0; !code && !text && i < 2; i++) {
        cJSON *config;
        code = zinf_folder_json(folder, files[i], MAX_FILE_BYTES, &config);
        const char *token = code ? NULL : token_text(config, key);
        if (token && !(text = strdup(token)))
            code = zinf_fail(-ENOMEM, "no memory for a token's text");
        cJSON_Delete(config);
    }
    if (!code && !text && !(text = strdup("")))
        code = zinf_fail(-ENOMEM, "no memory for a token's text");
    *out = text;
    return code;
}

/* The folder's template: a string, or of several the one named default. */
static const char *template_text(const cJSON *config)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(config, "chat_template"), *one;
    const char *found = cJSON_IsString(value) ? value->valuestring : NULL;
    cJSON_ArrayForEach(one, (cJSON_IsArray(value) ? value : NULL))
    {
        const char *name = token_text(one, "name");
        if (name && !strcmp(name, "default"))
            found = token_text(one, "template");
    }
    return found;
}

static int read_template(const char *folder, char **text)
{
    char *path = zinf_path_join(folder, "chat_template.jinja");
    size_t bytes;
    cJSON *config = NULL;
    int code = path ? 0 : -ENOMEM;
    *text = NULL;
    if (!code && !access(path, F_OK)) {
        code = zinf_file_read(path, MAX_FILE_BYTES, text, &bytes);
    } else if (!code && !(code = zinf_folder_json(folder, "tokenizer_config.json", MAX_FILE_BYTES,
                                                  &config))) {
        const char *found = template_text(config);
        if (found && !(*text = strdup(found)))
            code = zinf_fail(-ENOMEM, "no memory for a chat template");
    }
    cJSON_Delete(config);
    free(path);
    return code;
}

/* ---- a chat ---- */

const char *zinf_chat_known(size_t i)
{
    return i < (size_t)n_chat_templates ? chat_templates[i].name : NULL;
}

static void names_text(char *out, size_t bytes)
{
    size_t used = 0;
    for (int i = 0; i < n_chat_templates && used < bytes; i++)
        used += (size_t)snprintf(out + used, bytes - used, "%s%s", i ? ", " : "",
                                 chat_templates[i].name);
}

static int choose(const char *folder, const char *name, const struct chat_template **out)
{
    char names[512], *text = NULL;
    names_text(names, sizeof names);
    *out = name ? template_named(name) : NULL;
    if (*out)
        return 0;
    if (name)
        return zinf_fail(-EINVAL, "--chat-template %s is not one of %s", name, names);
    int code = read_template(folder, &text);
    if (!code && !text)
        code = zinf_fail(-ENOENT, "%s has no chat template: --chat-template NAME, one of %s",
                         folder, names);
    if (!code && !(*out = recognise(text, strlen(text))))
        code =
            zinf_fail(-ENOTSUP,
                      "%s: its chat template is not a known one, and templates are never executed: "
                      "choose a known one that is like it with --chat-template NAME, one of %s",
                      folder, names);
    free(text);
    return code;
}

int zinf_chat_open(struct zinf_chat **out, const char *folder, const char *name,
                   const struct zinf_tokenizer *tokenizer)
{
    struct zinf_chat *chat = calloc(1, sizeof *chat);
    if (!chat)
        return zinf_fail(-ENOMEM, "no memory for a chat");
    chat->tokenizer = tokenizer;
    int code = choose(folder, name, &chat->template);
    if (!code)
        code = chat_special(folder, "bos_token", &chat->begin);
    if (!code)
        code = chat_end_of_text(folder, tokenizer, &chat->end);
    if (code) {
        zinf_chat_close(chat);
        return code;
    }
    *out = chat;
    return 0;
}

int chat_end_of_text(const char *folder, const struct zinf_tokenizer *tokenizer, char **out)
{
    int32_t id = zinf_tokenizer_end_of_text(tokenizer);
    size_t bytes;
    int code = chat_special(folder, "eos_token", out);
    if (code || **out || id < 0)
        return code;
    free(*out);
    *out = NULL;
    return zinf_tokenizer_decode(tokenizer, &id, 1, out, &bytes);
}

void zinf_chat_close(struct zinf_chat *chat)
{
    if (!chat)
        return;
    free(chat->begin);
    free(chat->end);
    free(chat);
}

int zinf_chat_check(const char *name)
{
    const struct chat_template *template;
    return choose(NULL, name, &template);
}

const char *zinf_chat_name(const struct zinf_chat *chat)
{
    return chat->template->name;
}

const char *zinf_chat_stop(const struct zinf_chat *chat, int32_t *id)
{
    const char *stop = chat->template->assistant.stop;
    struct zinf_tokens ids = {0};
    if (strchr(stop, *CHAT_END))
        stop = chat->end;
    *id = -1;
    if (*stop && !zinf_tokenizer_encode(chat->tokenizer, stop, strlen(stop), &ids) &&
        ids.count == 1)
        *id = ids.ids[0];
    zinf_tokens_free(&ids);
    return stop;
}
