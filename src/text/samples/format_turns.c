/*
 * format_turns: rows that hold conversations, in whichever words, as messages; and prompts with
 * their completions. What cannot be shown to a model as it was meant (images, calls of tools) makes
 * a row broken, and is never left out in silence.
 */
#include "text/samples/format.h"

#include <stdlib.h>

/* ---- messages in the making ---- */

static int add_turn(struct format_turns *turns, const char *role, const char *content, bool silent)
{
    if (turns->n == turns->capacity) {
        size_t capacity = turns->capacity ? 2 * turns->capacity : 16;
        void *grown = realloc(turns->items, capacity * sizeof *turns->items);
        if (!grown)
            return zinf_fail(-ENOMEM, "no memory for a conversation");
        turns->items = grown;
        turns->capacity = capacity;
    }
    turns->items[turns->n++] = (struct zinf_chat_message){role, content, silent};
    return 0;
}

/* Keeps text, which is the caller's no more, even where this fails. */
static int keep_text(struct format_turns *turns, char *text)
{
    char **grown = realloc(turns->texts, (turns->n_texts + 1) * sizeof *grown);
    if (!text || !grown) {
        free(text);
        turns->texts = grown ? grown : turns->texts;
        return zinf_fail(-ENOMEM, "no memory for a conversation");
    }
    turns->texts = grown;
    grown[turns->n_texts++] = text;
    return 0;
}

void format_turns_clear(struct format_turns *turns)
{
    for (size_t i = 0; i < turns->n_texts; i++)
        free(turns->texts[i]);
    turns->n = turns->n_texts = 0;
}

int format_string(const cJSON *row, const char *field, const char **out)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(row, field);
    if (!value)
        return zinf_fail(-EINVAL, "there is no \"%s\"", field);
    if (!cJSON_IsString(value))
        return zinf_fail(-EINVAL, "\"%s\" is not a string", field);
    *out = value->valuestring;
    return 0;
}

/* ---- what a message says ---- */

static const char *role_of(const char *name)
{
    static const char *const names[][2] = {
        {"system", "system"},   {"user", "user"},
        {"human", "user"},      {"assistant", "assistant"},
        {"gpt", "assistant"},   {"chatgpt", "assistant"},
        {"model", "assistant"}, {"function_call", "assistant"},
        {"tool", "tool"},       {"observation", "tool"},
        {"function", "tool"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i][0], name))
            return names[i][1];
    return NULL;
}

/* Content may be a list of parts; those of text are one text. */
static int join_parts(struct format_turns *turns, const cJSON *parts, const char **out)
{
    struct text_buffer text = {0};
    const cJSON *part;
    int code = 0;
    cJSON_ArrayForEach(part, parts)
    {
        const cJSON *type = cJSON_GetObjectItemCaseSensitive(part, "type");
        const char *words = NULL;
        if (code)
            break;
        if (!cJSON_IsString(type) || strcmp(type->valuestring, "text"))
            code = zinf_fail(-EINVAL, "a message has a part that is no text (\"%s\")",
                             cJSON_IsString(type) ? type->valuestring : "without a type");
        if (!code)
            code = format_string(part, "text", &words);
        if (!code)
            code = text_buffer_add(&text, words, strlen(words));
    }
    if (!code)
        code = text_buffer_add(&text, "", 1);
    if (code) {
        text_buffer_free(&text);
        return code;
    }
    *out = text.bytes;
    return keep_text(turns, text.bytes);
}

static int add_message(struct format_turns *turns, const cJSON *message)
{
    bool openai = cJSON_GetObjectItemCaseSensitive(message, "role") != NULL;
    const cJSON *content = cJSON_GetObjectItemCaseSensitive(message, openai ? "content" : "value");
    const cJSON *weight = cJSON_GetObjectItemCaseSensitive(message, "weight");
    const char *name, *words = NULL;
    if (zinf_json_has(message, "tool_calls") || zinf_json_has(message, "function_call"))
        return zinf_fail(-EINVAL, "turn %zu calls a tool, which no template here writes",
                         turns->n + 1);
    int code = format_string(message, openai ? "role" : "from", &name);
    const char *role = code ? NULL : role_of(name);
    if (!code && !role)
        code = zinf_fail(-EINVAL,
                         "turn %zu has the role \"%s\", which is not known: use system, user, "
                         "assistant or tool",
                         turns->n + 1, name);
    if (!code && cJSON_IsArray(content))
        code = join_parts(turns, content, &words);
    else if (!code)
        code = format_string(message, openai ? "content" : "value", &words);
    bool silent = cJSON_IsNumber(weight) && weight->valuedouble == 0;
    return code ? code : add_turn(turns, role, words, silent);
}

static int add_messages(struct format_turns *turns, const cJSON *list, const char *field)
{
    const cJSON *message;
    int code = cJSON_IsArray(list) ? 0 : zinf_fail(-EINVAL, "\"%s\" is not a list of turns", field);
    cJSON_ArrayForEach(message, (code ? NULL : list))
    {
        if (!code)
            code = add_message(turns, message);
    }
    return code;
}

/* ---- conversations ---- */

static int add_history(struct format_turns *turns, const cJSON *history)
{
    const cJSON *pair;
    cJSON_ArrayForEach(pair, history)
    {
        const cJSON *asked = cJSON_GetArrayItem(pair, 0), *answer = cJSON_GetArrayItem(pair, 1);
        if (!cJSON_IsString(asked) || !cJSON_IsString(answer))
            return zinf_fail(-EINVAL, "\"history\" is not [[question, answer], ...]");
        int code = add_turn(turns, "user", asked->valuestring, false);
        if (!code)
            code = add_turn(turns, "assistant", answer->valuestring, false);
        if (code)
            return code;
    }
    return 0;
}

/* The prompt that models without a template were first taught instructions with (Stanford Alpaca)
 * says in its head whether there is an input; elsewhere it stands behind the instruction. */
static int add_instruction(struct zinf_format_recipe *r, const char *instruction, const char *input)
{
    static const char paired[] =
        "Below is an instruction that describes a task, paired with an input that provides further "
        "context. Write a response that appropriately completes the request.";
    bool plain = !strcmp(zinf_chat_name(r->chat), "alpaca");
    struct text_buffer text = {0};
    if (!*input)
        return add_turn(&r->turns, "user", instruction, false);
    int code = plain && !r->turns.n ? add_turn(&r->turns, "system", paired, false) : 0;
    if (!code)
        code = text_buffer_add(&text, instruction, strlen(instruction));
    const char *between = plain ? "\n\n### Input:\n" : "\n";
    if (!code)
        code = text_buffer_add(&text, between, strlen(between));
    if (!code)
        code = text_buffer_add(&text, input, strlen(input) + 1);
    if (code) {
        text_buffer_free(&text);
        return code;
    }
    code = keep_text(&r->turns, text.bytes);
    return code ? code : add_turn(&r->turns, "user", text.bytes, false);
}

static int add_alpaca(struct zinf_format_recipe *r, const cJSON *row)
{
    const char *instruction, *output, *input = "", *system = "";
    int code = format_string(row, "instruction", &instruction);
    if (!code)
        code = format_string(row, "output", &output);
    if (!code && zinf_json_has(row, "input"))
        code = format_string(row, "input", &input);
    if (!code && zinf_json_has(row, "system"))
        code = format_string(row, "system", &system);
    if (!code && *system)
        code = add_turn(&r->turns, "system", system, false);
    if (!code)
        code = add_history(&r->turns, cJSON_GetObjectItemCaseSensitive(row, "history"));
    if (!code)
        code = add_instruction(r, instruction, input);
    return code ? code : add_turn(&r->turns, "assistant", output, false);
}

static int add_row(struct zinf_format_recipe *r, const cJSON *row)
{
    const char *field = r->options.format == ZINF_FORMAT_SHAREGPT ? "conversations" : "messages";
    const char *system = "";
    int code = 0;
    if (r->options.format == ZINF_FORMAT_ALPACA)
        return add_alpaca(r, row);
    if (zinf_json_has(row, "tools"))
        return zinf_fail(-EINVAL, "it has \"tools\", which no template here writes");
    if (zinf_json_has(row, "system"))
        code = format_string(row, "system", &system);
    if (!code && *system)
        code = add_turn(&r->turns, "system", system, false);
    if (!code && !zinf_json_has(row, field))
        code = zinf_fail(-EINVAL, "there is no \"%s\"", field);
    return code ? code
                : add_messages(&r->turns, cJSON_GetObjectItemCaseSensitive(row, field), field);
}

static int check_answers(const struct format_turns *turns, size_t first)
{
    for (size_t i = first; i < turns->n; i++)
        if (!strcmp(turns->items[i].role, "assistant"))
            return 0;
    return zinf_fail(-EINVAL, "the conversation has no assistant turn");
}

int format_take_conversation(struct zinf_format_recipe *r, const cJSON *row,
                             struct zinf_sample *sample)
{
    int code = add_row(r, row);
    if (!code)
        code = check_answers(&r->turns, 0);
    if (!code)
        code = chat_write(&r->script, r->chat, r->turns.items, r->turns.n, false);
    if (!code)
        code = chat_script_encode(&r->script, r->options.tokenizer, r->chat->template->separate,
                                  sample);
    return code || !r->chat->template->framed ? code
                                              : chat_frame(r->options.tokenizer, false, sample);
}

/* ---- a prompt and its completion ---- */

/* The whole and the prompt by itself, of which the end of the text is no part. */
static int write_texts(struct zinf_format_recipe *r, const char *prompt, size_t prompt_bytes,
                       const char *completion)
{
    size_t bytes = strlen(completion), end = strlen(r->end);
    bool ends = end && bytes >= end && !strcmp(completion + bytes - end, r->end);
    int code = chat_script_add(&r->asked, prompt, prompt_bytes, false);
    if (!code)
        code = chat_script_add(&r->script, prompt, prompt_bytes, false);
    if (!code)
        code = chat_script_add(&r->script, completion, bytes, false);
    if (!code && !ends && !r->options.bare)
        code = chat_script_add(&r->script, r->end, end, false);
    return code;
}

/* A prompt that is a text is what the user says, unless the messages begin with it already. */
static int add_prompt(struct zinf_format_recipe *r, const struct format_answer *a)
{
    const char *text = cJSON_GetStringValue(a->prompt);
    if (!text)
        return add_messages(&r->turns, a->prompt, "prompt");
    return add_turn(&r->turns, "user", text, false);
}

static int write_messages(struct zinf_format_recipe *r, const struct format_answer *a)
{
    int code = r->chat ? 0
                       : zinf_fail(-EINVAL, "its prompt is a conversation, and there is no chat "
                                            "template: --chat-template NAME");
    if (!code && a->prompt)
        code = add_prompt(r, a);
    size_t asked = a->prompt ? r->turns.n : a->shared;
    if (!code)
        code = add_messages(&r->turns, a->answer, a->field);
    if (!code)
        code = check_answers(&r->turns, asked);
    if (!code)
        code = chat_write(&r->script, r->chat, r->turns.items, r->turns.n, false);
    return code ? code : chat_write(&r->asked, r->chat, r->turns.items, asked, true);
}

/* As a model is fed it; a conversation is written with all its tokens. */
static int add_script(struct zinf_format_recipe *r, const struct chat_script *script, bool messages,
                      struct zinf_sample *sample)
{
    const struct chat_template *t = messages ? r->chat->template : NULL;
    if (t && t->separate)
        return chat_script_encode(script, r->options.tokenizer, true, sample);
    if (r->options.bare || (t && !t->framed))
        return zinf_sample_add_text(sample, r->options.tokenizer, script->text.bytes,
                                    script->text.count, 0);
    return format_add_text(r, script->text.bytes, script->text.count, sample);
}

int format_add_text(struct zinf_format_recipe *r, const char *text, size_t bytes,
                    struct zinf_sample *sample)
{
    r->plain.count = r->framed.count = 0;
    int code = zinf_tokenizer_encode(r->options.tokenizer, text, bytes, &r->plain);
    if (!code)
        code = zinf_tokenizer_frame(r->options.tokenizer, &r->plain, NULL, &r->framed, NULL);
    return code ? code : zinf_sample_add_ids(sample, r->framed.ids, r->framed.count, 0);
}

static size_t common(const struct zinf_tokens *a, const struct zinf_tokens *b)
{
    size_t n = 0;
    while (n < a->count && n < b->count && a->ids[n] == b->ids[n])
        n++;
    return n;
}

/* TRL's trainers of ORPO and CPO take one token off a prompt that differs, and put begin and end of
 * the text where they are missing. */
static int finish_bare(struct zinf_format_recipe *r, struct zinf_sample *sample, size_t *first)
{
    const struct zinf_tokens *prompt = &r->prompt.ids, *ids = &sample->ids;
    int code = 0;
    *first = prompt->count - (*first < prompt->count);
    if (r->begin_id >= 0 && (!*first || ids->ids[0] != r->begin_id)) {
        code = zinf_sample_add_ids(sample, &r->begin_id, 1, 0);
        if (!code) {
            memmove(ids->ids + 1, ids->ids, (ids->count - 1) * sizeof *ids->ids);
            ids->ids[0] = r->begin_id;
            ++*first;
        }
    }
    bool ends = ids->count > *first && ids->ids[ids->count - 1] == r->end_id;
    return code || ends || r->end_id < 0 ? code : zinf_sample_add_ids(sample, &r->end_id, 1, 0);
}

int format_take_answer(struct zinf_format_recipe *r, const struct format_answer *a,
                       struct zinf_sample *sample, size_t *first)
{
    const char *answer = cJSON_GetStringValue(a->answer);
    const char *prompt = a->prompt ? cJSON_GetStringValue(a->prompt) : answer;
    const bool messages = cJSON_IsArray(a->answer);
    int code;
    r->turns.n = r->script.n_parts = r->script.text.count = 0;
    r->asked.n_parts = r->asked.text.count = 0;
    zinf_sample_clear(&r->prompt);
    if (messages)
        code = write_messages(r, a);
    else if (!prompt || !answer)
        code = zinf_fail(-EINVAL, "\"%s\" is not a string", prompt ? a->field : "prompt");
    else
        code = a->prompt ? write_texts(r, prompt, strlen(prompt), answer)
                         : write_texts(r, answer, a->shared, answer + a->shared);
    if (!code)
        code = add_script(r, &r->asked, messages, &r->prompt);
    if (!code)
        code = add_script(r, &r->script, messages, sample);
    *first = code ? 0 : common(&r->prompt.ids, &sample->ids);
    for (size_t i = 0; !code && i < sample->ids.count; i++)
        sample->marks[i] = 0;
    return code || !r->options.bare ? code : finish_bare(r, sample, first);
}

void format_count_from(struct zinf_sample *sample, size_t first)
{
    for (size_t i = first; i < sample->ids.count; i++)
        sample->marks[i] |= ZINF_MARK_COUNTS;
}

int format_check_system(const cJSON *row)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(row, "system"));
    if (!text || !*text)
        return 0;
    return zinf_fail(-EINVAL, "its \"system\" would not be read: put that text before the prompt, "
                              "give messages with a turn of the system, or leave it out of the "
                              "rows");
}

int format_take_prompt(struct zinf_format_recipe *r, const cJSON *row, struct zinf_sample *sample)
{
    const struct format_answer a = {
        .prompt = cJSON_GetObjectItemCaseSensitive(row, "prompt"),
        .answer = cJSON_GetObjectItemCaseSensitive(row, "completion"),
        .field = "completion",
    };
    size_t first;
    if (!a.prompt || !a.answer)
        return zinf_fail(-EINVAL, "there is no \"%s\"", a.prompt ? "completion" : "prompt");
    int code = format_check_system(row);
    if (!code)
        code = format_take_answer(r, &a, sample, &first);
    if (!code)
        format_count_from(sample, first);
    return code;
}
