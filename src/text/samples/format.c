/*
 * format: which format a file has, by the fields of its first row, and recipes for them.
 */
#include "text/samples/format.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>

#define RULES 2 /* changes whenever rows become samples in another way */

static const char *const names[ZINF_FORMATS] = {
    "stream", "text",       "alpaca",   "sharegpt", "messages",
    "prompt", "preference", "unpaired", "gdgpt",    "ids",
};

const char *zinf_format_name(enum zinf_format format)
{
    return names[format];
}

int zinf_format_parse(const char *name, enum zinf_format *out)
{
    char all[128];
    size_t used = 0;
    for (int i = 0; i < ZINF_FORMATS; i++) {
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", i ? ", " : "", names[i]);
        if (!strcmp(names[i], name)) {
            *out = (enum zinf_format)i;
            return 0;
        }
    }
    return zinf_fail(-EINVAL, "--format %s is not one of %s", name, all);
}

/* ---- told by the first row ---- */

#define SEEN (-ECANCELED) /* ends the reading */

static bool has(const cJSON *row, const char *field)
{
    return cJSON_HasObjectItem(row, field);
}

static bool is_gdgpt(const cJSON *row)
{
    static const char *const fields[][2] = {
        {"pretrain", "text"},         {"instruct", "instruct"}, {"conversation", "rounds"},
        {"conver_has_api", "rounds"}, {"ref_qa", "rounds"},
    };
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(row, "type");
    for (size_t i = 0; cJSON_IsString(type) && i < sizeof fields / sizeof *fields; i++)
        if (!strcmp(type->valuestring, fields[i][0]) && has(row, fields[i][1]))
            return true;
    return false;
}

static int see_row(void *handle, const cJSON *row, long line)
{
    enum zinf_format *format = handle;
    (void)line;
    if (!row)
        return SEEN;
    if (is_gdgpt(row))
        *format = ZINF_FORMAT_GDGPT;
    else if (cJSON_IsArray(cJSON_GetObjectItemCaseSensitive(row, "input_ids")))
        *format = ZINF_FORMAT_IDS;
    else if (cJSON_IsArray(cJSON_GetObjectItemCaseSensitive(row, "messages")))
        *format = ZINF_FORMAT_MESSAGES;
    else if (cJSON_IsArray(cJSON_GetObjectItemCaseSensitive(row, "conversations")))
        *format = ZINF_FORMAT_SHAREGPT;
    else if (has(row, "instruction") && has(row, "output"))
        *format = ZINF_FORMAT_ALPACA;
    else if (has(row, "prompt") && has(row, "completion"))
        *format = ZINF_FORMAT_PROMPT;
    else if (has(row, "chosen") && has(row, "rejected"))
        *format = ZINF_FORMAT_PREFERENCE;
    return SEEN;
}

/* What cannot be read here fails again, and better, when it is opened. */
int zinf_format_tell(const char *path, enum zinf_format *out)
{
    struct text_source *source = NULL;
    struct text_sink sink = {.row = see_row, .handle = out};
    size_t n = strlen(path);
    *out = ZINF_FORMAT_STREAM;
    if (!strcmp(path, "-") || text_name_ends(path, n, ".bin") || text_name_ends(path, n, ".npy"))
        return 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return 0;
    if (lseek(fd, 0, SEEK_CUR) == 0 && !text_source_open(&source, fd, path) &&
        text_source_kind(source) != TEXT_PLAIN)
        text_documents_read(source, NULL, 0, &sink);
    text_source_close(source);
    close(fd);
    return 0;
}

/* ---- recipes ---- */

/* Each row a text of its own, all of which counts. */
static int take_text(struct zinf_format_recipe *r, const cJSON *row, struct zinf_sample *sample)
{
    const char *text;
    int code = format_string(row, r->options.text_column ? r->options.text_column : "text", &text);
    size_t bytes = code ? 0 : strlen(text), end = strlen(r->end);
    bool ends = end && bytes >= end && !strcmp(text + bytes - end, r->end);
    if (!code)
        code = chat_script_add(&r->script, text, bytes, true);
    if (!code && !ends)
        code = chat_script_add(&r->script, r->end, end, true);
    if (!code)
        code = format_add_text(r, r->script.text.bytes, r->script.text.count, sample);
    if (!code)
        format_count_from(sample, 0);
    return code;
}

typedef int take_row(struct zinf_format_recipe *r, const cJSON *row, struct zinf_sample *sample);

static int take_by(struct zinf_format_recipe *r, take_row *take, const cJSON *row,
                   struct zinf_sample *sample)
{
    format_turns_clear(&r->turns);
    r->script.n_parts = r->script.text.count = 0;
    int code = take(r, row, sample);
    for (size_t i = 0; !code && r->options.train_on_prompt && i < sample->ids.count; i++)
        sample->marks[i] |= ZINF_MARK_COUNTS;
    return code;
}

static int take(void *arg, const cJSON *row, struct zinf_sample *sample)
{
    static take_row *const by_format[ZINF_FORMATS] = {
        [ZINF_FORMAT_TEXT] = take_text,
        [ZINF_FORMAT_ALPACA] = format_take_conversation,
        [ZINF_FORMAT_SHAREGPT] = format_take_conversation,
        [ZINF_FORMAT_MESSAGES] = format_take_conversation,
        [ZINF_FORMAT_PROMPT] = format_take_prompt,
        [ZINF_FORMAT_PREFERENCE] = format_take_chosen,
        [ZINF_FORMAT_UNPAIRED] = format_take_single,
        [ZINF_FORMAT_GDGPT] = format_take_gdgpt,
        [ZINF_FORMAT_IDS] = format_take_ids,
    };
    struct zinf_format_recipe *r = arg;
    return take_by(r, by_format[r->options.format], row, sample);
}

static int take_rejected(void *arg, const cJSON *row, uint32_t index, struct zinf_sample *sample)
{
    (void)index;
    return take_by(arg, format_take_rejected, row, sample);
}

static uint64_t hash_text(uint64_t hash, const char *text)
{
    return XXH3_64bits_withSeed(text, strlen(text) + 1, hash);
}

/* All that decides what a row becomes. */
static uint64_t key_of(const struct zinf_format_recipe *r)
{
    const struct zinf_format_options *o = &r->options;
    uint64_t hash =
        RULES + 256 * (uint64_t)o->format + o->train_on_prompt + 2 * o->margins + 4 * o->bare;
    hash = hash_text(hash, r->end ? r->end : "");
    hash = hash_text(hash, o->text_column ? o->text_column : "text");
    if (r->chat) {
        hash = hash_text(hash, zinf_chat_name(r->chat));
        hash = hash_text(hash, r->chat->begin);
        hash = hash_text(hash, r->chat->end);
    }
    return hash;
}

static int find_chat(struct zinf_format_recipe *r)
{
    const struct zinf_format_options *o = &r->options;
    r->chat = o->chat;
    if (o->chat || o->format == ZINF_FORMAT_TEXT || o->format == ZINF_FORMAT_PROMPT ||
        o->format == ZINF_FORMAT_PREFERENCE || o->format == ZINF_FORMAT_UNPAIRED ||
        o->format == ZINF_FORMAT_GDGPT || o->format == ZINF_FORMAT_IDS)
        return 0;
    if (o->format != ZINF_FORMAT_ALPACA)
        return zinf_fail(-EINVAL,
                         "data of the format \"%s\" needs a chat template: "
                         "--chat-template NAME",
                         names[o->format]);
    int code = zinf_chat_open(&r->own, o->folder, "alpaca", o->tokenizer);
    r->chat = r->own;
    return code;
}

/* The one token that a text is; -1: it is none. */
static int one_token(const struct zinf_tokenizer *tokenizer, const char *text, int32_t *id)
{
    struct zinf_tokens ids = {0};
    int code = *text ? zinf_tokenizer_encode(tokenizer, text, strlen(text), &ids) : 0;
    *id = !code && ids.count == 1 ? ids.ids[0] : -1;
    zinf_tokens_free(&ids);
    return code;
}

static int find_ends(struct zinf_format_recipe *r)
{
    const struct zinf_format_options *o = &r->options;
    char *begin = NULL;
    int code = chat_end_of_text(o->folder, o->tokenizer, &r->end);
    if (!code)
        code = one_token(o->tokenizer, r->end, &r->end_id);
    if (!code)
        code = chat_special(o->folder, "bos_token", &begin);
    if (!code)
        code = one_token(o->tokenizer, begin, &r->begin_id);
    free(begin);
    return code;
}

int zinf_format_open(struct zinf_format_recipe **out, const struct zinf_format_options *options)
{
    if (options->format == ZINF_FORMAT_STREAM)
        return zinf_fail(-EINVAL, "a stream of text has no samples");
    struct zinf_format_recipe *r = calloc(1, sizeof *r);
    if (!r)
        return zinf_fail(-ENOMEM, "no memory for a recipe");
    r->options = *options;
    int code = find_chat(r);
    if (!code && options->format != ZINF_FORMAT_IDS)
        code = find_ends(r);
    if (code) {
        zinf_format_close(r);
        return code;
    }
    r->recipe = (struct zinf_recipe){
        .name = names[options->format], .key = key_of(r), .take = take, .arg = r};
    if (options->format == ZINF_FORMAT_PREFERENCE) {
        r->recipe.n_samples = 2;
        r->recipe.take_other = take_rejected;
    }
    if (options->format == ZINF_FORMAT_UNPAIRED)
        r->recipe.rotates = true;
    *out = r;
    return 0;
}

const struct zinf_recipe *zinf_format_recipe(const struct zinf_format_recipe *recipe)
{
    return &recipe->recipe;
}

void zinf_format_close(struct zinf_format_recipe *r)
{
    if (!r)
        return;
    format_turns_clear(&r->turns);
    free(r->turns.items);
    free(r->turns.texts);
    chat_script_free(&r->script);
    zinf_chat_close(r->own);
    chat_script_free(&r->asked);
    zinf_tokens_free(&r->plain);
    zinf_tokens_free(&r->framed);
    zinf_sample_free(&r->prompt);
    zinf_sample_free(&r->rejected);
    free(r->end);
    free(r);
}
