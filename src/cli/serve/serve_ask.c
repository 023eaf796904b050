/*
 * serve_ask: a client's JSON. What would change the text and is not known here is refused by name;
 * keys that change no text are passed over.
 */
#include "cli/serve/serve.h"

#include <stdlib.h>

#define WHAT "the request"
#define MOST_MESSAGES 4096

/* ---- what is not known ---- */

/* Of OpenAI's keys and TGI's parameters. */
static const char *const unknown_openai[] = {
    "logprobs",         "top_logprobs",      "tools",  "functions", "logit_bias",
    "presence_penalty", "frequency_penalty", "suffix", "echo",      "audio",
};
static const char *const unknown_tgi[] = {
    "typical_p", "frequency_penalty", "grammar",      "watermark",
    "truncate",  "top_n_tokens",      "tools_prompt", "decoder_input_details",
};
#define COUNT(list) (sizeof(list) / sizeof *(list))

static bool says_something(const cJSON *value)
{
    return value && !cJSON_IsNull(value) && !cJSON_IsFalse(value) &&
           !(cJSON_IsNumber(value) && value->valuedouble == 0) &&
           !(cJSON_IsString(value) && !*value->valuestring) &&
           !((cJSON_IsArray(value) || cJSON_IsObject(value)) && !value->child);
}

static int refuse_unknown(const cJSON *object, const char *const *keys, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (says_something(cJSON_GetObjectItemCaseSensitive(object, keys[i])))
            return zinf_fail(-EINVAL, WHAT ": %s is not supported here: leave it out", keys[i]);
    int64_t best = 1;
    int code = zinf_json_int(object, WHAT, "best_of", &best);
    if (!code && best > 1)
        code = zinf_fail(-EINVAL, WHAT ": best_of is not supported here: leave it out");
    return code;
}

static int check_format(const cJSON *body)
{
    const cJSON *format = cJSON_GetObjectItemCaseSensitive(body, "response_format");
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(format, "type");
    if (!format || cJSON_IsNull(format) ||
        (cJSON_IsString(type) && !strcmp(type->valuestring, "text")))
        return 0;
    return zinf_fail(-EINVAL, WHAT ": response_format: only {\"type\": \"text\"} is known here");
}

/* ---- how a text is made ---- */

static int read_integer(const cJSON *object, const char *key, int64_t least, int64_t most,
                        int64_t *out)
{
    if (!zinf_json_has(object, key))
        return 0;
    int code = zinf_json_int(object, WHAT, key, out);
    if (!code && (*out < least || *out > most))
        code = zinf_fail(-EINVAL, WHAT ": %s is %lld; it must be from %lld to %lld", key,
                         (long long)*out, (long long)least, (long long)most);
    return code;
}

static int read_number(const cJSON *object, const char *key, double least, double most, double *out)
{
    if (!zinf_json_has(object, key))
        return 0;
    int code = zinf_json_double(object, WHAT, key, out);
    if (!code && !(*out >= least && *out <= most))
        code =
            zinf_fail(-EINVAL, WHAT ": %s is %g; it must be from %g to %g", key, *out, least, most);
    return code;
}

static int add_stop(struct serve_ask *ask, const cJSON *text)
{
    if (!cJSON_IsString(text) || !*text->valuestring)
        return zinf_fail(-EINVAL, WHAT ": stop must be a text that is not empty, or a list of "
                                       "such texts");
    if (ask->stops.n >= 64)
        return zinf_fail(-EINVAL, WHAT ": more than 64 stop strings");
    ask->stops.items[ask->stops.n++] = text->valuestring;
    return 0;
}

static int read_stops(struct serve_ask *ask, const cJSON *stop)
{
    int code = 0;
    const cJSON *item;
    if (!stop || cJSON_IsNull(stop))
        return 0;
    if (!cJSON_IsArray(stop))
        return add_stop(ask, stop);
    cJSON_ArrayForEach(item, stop)
    {
        code = code ? code : add_stop(ask, item);
    }
    return code;
}

/* What both have under the same names. A top_k of -1 is all tokens, as in vLLM. */
static int read_settings(struct serve_ask *ask, const cJSON *object)
{
    struct generate_settings *s = &ask->settings;
    int64_t top_k = s->top_k, seed = 0;
    int code;
    if ((code = read_number(object, "temperature", 0, 1000, &s->temperature)) ||
        (code = read_number(object, "top_p", 1e-9, 1, &s->top_p)) ||
        (code = read_number(object, "repetition_penalty", 1e-9, 1e9, &s->repetition_penalty)) ||
        (code = read_integer(object, "top_k", -1, 1 << 24, &top_k)) ||
        (code = zinf_json_int(object, WHAT, "seed", &seed)))
        return code;
    if (zinf_json_has(object, "top_k"))
        s->top_k = top_k < 0 ? 0 : top_k;
    ask->has_seed = zinf_json_has(object, "seed");
    ask->seed = (uint64_t)seed;
    return read_stops(ask, cJSON_GetObjectItemCaseSensitive(object, "stop"));
}

/* ---- OpenAI ---- */

/* A content is a text, or a list of parts of which each is a text. */
static int read_content(struct serve_ask *ask, const cJSON *content, int number)
{
    struct serve_bytes all = {0};
    const cJSON *part;
    int code = 0;
    if (cJSON_IsString(content)) {
        ask->messages[number].content = content->valuestring;
        return 0;
    }
    if (!cJSON_IsArray(content))
        return zinf_fail(-EINVAL, WHAT ": messages[%d].content must be a text", number);
    cJSON_ArrayForEach(part, content)
    {
        const cJSON *text = cJSON_GetObjectItemCaseSensitive(part, "text");
        if (!code && !cJSON_IsString(text))
            code = zinf_fail(-EINVAL, WHAT ": messages[%d].content has a part that is no text",
                             number);
        if (!code)
            code = serve_bytes_add(&all, text->valuestring, strlen(text->valuestring));
    }
    if (!code)
        code = serve_bytes_add(&all, "", 1);
    ask->contents[number] = all.at;
    ask->messages[number].content = all.at;
    return code;
}

static int read_message(struct serve_ask *ask, const cJSON *message, int number)
{
    const cJSON *role = cJSON_GetObjectItemCaseSensitive(message, "role");
    if (!cJSON_IsString(role))
        return zinf_fail(-EINVAL, WHAT ": messages[%d] has no role", number);
    ask->messages[number].role =
        strcmp(role->valuestring, "developer") ? role->valuestring : "system";
    return read_content(ask, cJSON_GetObjectItemCaseSensitive(message, "content"), number);
}

static int read_messages(struct serve_ask *ask)
{
    const cJSON *messages = cJSON_GetObjectItemCaseSensitive(ask->body, "messages"), *message;
    const int n = cJSON_IsArray(messages) ? cJSON_GetArraySize(messages) : 0;
    int code = 0;
    if (n < 1 || n > MOST_MESSAGES)
        return zinf_fail(-EINVAL, WHAT ": messages must be a list of 1 to %d messages",
                         MOST_MESSAGES);
    ask->messages = calloc((size_t)n, sizeof *ask->messages);
    ask->contents = calloc((size_t)n, sizeof *ask->contents);
    if (!ask->messages || !ask->contents)
        return zinf_fail(-ENOMEM, "no memory for %d messages", n);
    ask->n_messages = n;
    message = messages->child;
    for (int i = 0; !code && message; i++, message = message->next)
        code = read_message(ask, message, i);
    return code;
}

static int take_prompts(struct serve_ask *ask, const cJSON *prompt, const char *key,
                        const struct serve_limits *l)
{
    const bool list = cJSON_IsArray(prompt);
    const int n = list ? cJSON_GetArraySize(prompt) : 1;
    if (n < 1 || n > l->texts)
        return zinf_fail(-EINVAL, WHAT ": %s has %d texts; there must be from 1 to %lld", key, n,
                         (long long)l->texts);
    ask->prompts = calloc((size_t)n, sizeof *ask->prompts);
    if (!ask->prompts)
        return zinf_fail(-ENOMEM, "no memory for %d prompts", n);
    const cJSON *item = list ? prompt->child : prompt;
    for (; ask->n_prompts < n; item = item->next) {
        if (!cJSON_IsString(item))
            return zinf_fail(-EINVAL, WHAT ": %s must be a text, or a list of texts", key);
        ask->prompts[ask->n_prompts++] = item->valuestring;
    }
    return 0;
}

static int read_openai(struct serve_ask *ask, const struct serve_limits *l)
{
    const cJSON *body = ask->body;
    const cJSON *stream = cJSON_GetObjectItemCaseSensitive(body, "stream_options");
    int code = refuse_unknown(body, unknown_openai, COUNT(unknown_openai));
    if (code || (code = check_format(body)) ||
        (code = zinf_json_string(body, WHAT, "model", &ask->model)) ||
        (code = zinf_json_bool(body, WHAT, "stream", &ask->streams)) ||
        (code = stream ? zinf_json_bool(stream, WHAT, "include_usage", &ask->counts) : 0) ||
        (code = read_integer(body, "n", 1, l->texts, &ask->copies)) ||
        (code = read_integer(body, "max_tokens", 1, 1 << 24, &ask->settings.max_new_tokens)) ||
        (code = read_integer(body, "max_completion_tokens", 1, 1 << 24,
                             &ask->settings.max_new_tokens)) ||
        (code = read_settings(ask, body)))
        return code;
    if (ask->dialect == SERVE_CHAT)
        return read_messages(ask);
    return take_prompts(ask, cJSON_GetObjectItemCaseSensitive(body, "prompt"), "prompt", l);
}

/* ---- TGI ---- */

static int read_tgi(struct serve_ask *ask, const struct serve_limits *l)
{
    const cJSON *parameters = cJSON_GetObjectItemCaseSensitive(ask->body, "parameters");
    const cJSON *draws = cJSON_GetObjectItemCaseSensitive(parameters, "do_sample");
    const cJSON *inputs = cJSON_GetObjectItemCaseSensitive(ask->body, "inputs");
    const struct generate_settings *s = &ask->settings;
    int code;
    if (!cJSON_IsString(inputs))
        return zinf_fail(-EINVAL, WHAT ": inputs must be a text");
    if (parameters && !cJSON_IsNull(parameters) && !cJSON_IsObject(parameters))
        return zinf_fail(-EINVAL, WHAT ": parameters must be an object");
    if ((code = refuse_unknown(parameters, unknown_tgi, COUNT(unknown_tgi))) ||
        (code = zinf_json_bool(ask->body, WHAT, "stream", &ask->streams)) ||
        (code = zinf_json_string(parameters, WHAT, "adapter_id", &ask->model)) ||
        (code = zinf_json_bool(parameters, WHAT, "details", &ask->details)) ||
        (code = zinf_json_bool(parameters, WHAT, "return_full_text", &ask->whole)) ||
        (code = read_integer(parameters, "max_new_tokens", 1, 1 << 24,
                             &ask->settings.max_new_tokens)) ||
        (code = read_settings(ask, parameters)) || (code = take_prompts(ask, inputs, "inputs", l)))
        return code;
    if (s->temperature < 0 && s->top_k < 0 && s->top_p < 0 && cJSON_IsBool(draws))
        ask->settings.temperature = cJSON_IsTrue(draws) ? 1 : 0;
    return 0;
}

/* ---- the door ---- */

/* cJSON would end a text there. */
static int refuse_nul(const char *text, size_t bytes)
{
    for (size_t i = 0; i + 5 < bytes; i++) {
        if (text[i] != '\\')
            continue;
        if (!memcmp(text + i, "\\u0000", 6))
            return zinf_fail(-EINVAL, WHAT ": a text has the character \\u0000: leave it out");
        i++; /* what is escaped is no escape */
    }
    return 0;
}

int serve_ask_read(struct serve_ask *ask, enum serve_dialect dialect, const char *text,
                   size_t bytes, const struct zinf_job_texts *usual, const struct serve_limits *l)
{
    *ask = (struct serve_ask){
        .dialect = dialect, .copies = 1, .settings = usual->settings, .stops = usual->stops};
    int code = refuse_nul(text, bytes);
    if (!code)
        code = zinf_json_parse(text, bytes, WHAT, ZINF_JSON_STRICT, &ask->body);
    if (!code && !cJSON_IsObject(ask->body))
        code = zinf_fail(-EINVAL, WHAT " must be a JSON object");
    if (!code)
        code = dialect == SERVE_TGI ? read_tgi(ask, l) : read_openai(ask, l);
    const int64_t n = ask->copies * (dialect == SERVE_CHAT ? 1 : ask->n_prompts);
    if (!code && n > l->texts)
        code = zinf_fail(-EINVAL, WHAT ": %lld texts; there may be %lld", (long long)n,
                         (long long)l->texts);
    return code;
}

void serve_ask_free(struct serve_ask *ask)
{
    for (int i = 0; i < ask->n_messages; i++)
        free(ask->contents[i]);
    free(ask->messages);
    free(ask->contents);
    free(ask->prompts);
    cJSON_Delete(ask->body);
    *ask = (struct serve_ask){0};
}
