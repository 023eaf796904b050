/*
 * format_gdgpt: the five types of rows of the data of gdGPT (github.com/CoinCheung/gdGPT), told
 * by their field "type". Each part is encoded by itself, and a sample ends with the end of a text
 * whatever is cut off; spellings are as that program has them.
 */
#include "text/samples/format.h"

static const char instruct_head[] =
    "Below is an instruction that describes a task, paired with an input that provides further "
    "context. Write a response that appropriately completes the request.\n\n";
static const char conversation_head[] =
    "A chat between a curious human and an artificial intelligence assistant. The assistant gives "
    "helpful, detailed, and polite answers to the human's questions. \n\n";
static const char reference_head[] =
    "Generate responses to the given instruction series according to the reference text. "
    "\n\n### Reference: \n";
static const char tools_head[] =
    "Answer the following questions as best as you can. You have access to the following "
    "tool(s):\n";

/* A part that is gathered from pieces. */
static int put(struct zinf_format_recipe *r, bool counts, const char *const *pieces)
{
    struct text_buffer text = {0};
    int code = 0;
    for (; !code && *pieces; pieces++)
        code = text_buffer_add(&text, *pieces, strlen(*pieces));
    if (!code)
        code = chat_script_add(&r->script, text.bytes, text.count, counts);
    text_buffer_free(&text);
    return code;
}
#define PUT(r, counts, ...) put(r, counts, (const char *const[]){__VA_ARGS__, NULL})

/* ---- rounds ---- */

/* name(first='a', second=2), of an object or of its text. */
static int write_call(struct text_buffer *out, const char *name, const cJSON *params)
{
    cJSON *parsed = NULL;
    const cJSON *param;
    int code = text_buffer_add(out, name, strlen(name));
    if (!code && cJSON_IsString(params)) {
        code = zinf_json_parse(params->valuestring, strlen(params->valuestring), "api_param",
                               ZINF_JSON_STRICT, &parsed);
        params = parsed;
    }
    if (!code && !cJSON_IsObject(params))
        code = zinf_fail(-EINVAL, "\"api_param\" is no object");
    if (!code)
        code = text_buffer_add(out, "(", 1);
    cJSON_ArrayForEach(param, (code ? NULL : params))
    {
        if (!code && param != params->child)
            code = text_buffer_add(out, ", ", 2);
        if (!code)
            code = text_buffer_add(out, param->string, strlen(param->string));
        if (!code)
            code = text_buffer_add(out, "=", 1);
        if (!code)
            code = format_repr(out, param);
    }
    cJSON_Delete(parsed);
    return code ? code : text_buffer_add(out, ")", 2); /* with its NUL */
}

static int put_action(struct zinf_format_recipe *r, const cJSON *action, const char *name)
{
    const char *thought, *api;
    const cJSON *result = cJSON_GetObjectItemCaseSensitive(action, "api_res");
    struct text_buffer call = {0}, output = {0};
    int code = format_string(action, "inner_thought", &thought);
    if (!code)
        code = format_string(action, "api_name", &api);
    if (!code && !result)
        code = zinf_fail(-EINVAL, "an action has no \"api_res\"");
    if (!code)
        code = write_call(&call, api, cJSON_GetObjectItemCaseSensitive(action, "api_param"));
    if (!code)
        code = cJSON_IsString(result)
                   ? text_buffer_add(&output, result->valuestring, strlen(result->valuestring))
                   : format_dump(&output, result, 0);
    if (!code)
        code = text_buffer_add(&output, "", 1);
    if (!code)
        code = PUT(r, false, "### ", name, ": ");
    if (!code)
        code = PUT(r, true, thought, "\n#### api call\n```python\n", call.bytes, "\n```  ", r->end);
    if (!code)
        code = PUT(r, false, "\n#### api output\n", output.bytes, "\n");
    text_buffer_free(&call);
    text_buffer_free(&output);
    return code;
}

static int put_api_answer(struct zinf_format_recipe *r, const cJSON *content, const char *name)
{
    const cJSON *actions = cJSON_GetObjectItemCaseSensitive(content, "actions"), *action;
    const char *answer;
    int code = cJSON_IsArray(actions) ? format_string(content, "ans", &answer)
                                      : zinf_fail(-EINVAL, "an \"ans-api\" has no \"actions\"");
    cJSON_ArrayForEach(action, (code ? NULL : actions))
    {
        if (!code)
            code = put_action(r, action, name);
    }
    if (!code)
        code = PUT(r, false, "### ", name, ": ");
    return code ? code : PUT(r, true, answer, "  ", r->end);
}

static int put_round(struct zinf_format_recipe *r, const cJSON *round, const char *const names[2])
{
    const cJSON *role = cJSON_GetArrayItem(round, 0), *content = cJSON_GetArrayItem(round, 1);
    if (!cJSON_IsArray(round) || !cJSON_IsString(role) || !content)
        return zinf_fail(-EINVAL, "a round is not [role, content]");
    if (!strcmp(role->valuestring, "ans-api"))
        return put_api_answer(r, content, names[1]);
    bool asks = !strcmp(role->valuestring, "ask");
    if (!asks && strcmp(role->valuestring, "ans"))
        return zinf_fail(-EINVAL, "a round's role \"%s\" is not one of ask, ans, ans-api",
                         role->valuestring);
    if (!cJSON_IsString(content))
        return zinf_fail(-EINVAL, "what is said in a round of \"%s\" is not a string",
                         role->valuestring);
    if (asks)
        return PUT(r, false, "### ", names[0], ": ", content->valuestring, " \n");
    int code = PUT(r, false, "### ", names[1], ": ");
    return code ? code : PUT(r, true, content->valuestring, " ", r->end, "\n");
}

static int put_rounds(struct zinf_format_recipe *r, const cJSON *row, const char *const names[2])
{
    const cJSON *rounds = cJSON_GetObjectItemCaseSensitive(row, "rounds"), *round;
    size_t before = r->script.n_parts;
    int code = cJSON_IsArray(rounds) ? 0 : zinf_fail(-EINVAL, "there is no list \"rounds\"");
    bool answered = false;
    cJSON_ArrayForEach(round, (code ? NULL : rounds))
    {
        if (!code)
            code = put_round(r, round, names);
    }
    for (size_t i = before; i < r->script.n_parts; i++)
        answered |= r->script.parts[i].counts;
    return code || answered ? code : zinf_fail(-EINVAL, "the conversation has no \"ans\"");
}

/* ---- the types ---- */

static const char *const human[] = {"Human", "Assistent"};

static int put_pretrain(struct zinf_format_recipe *r, const cJSON *row)
{
    const char *text;
    int code = format_string(row, "text", &text);
    return code ? code : PUT(r, true, text);
}

static int put_instruct(struct zinf_format_recipe *r, const cJSON *row)
{
    const cJSON *given = cJSON_GetObjectItemCaseSensitive(row, "input");
    const char *instruct, *output, *input = cJSON_IsString(given) ? given->valuestring : "";
    int code = format_string(row, "instruct", &instruct);
    bool blank = input[strspn(input, " \t\r\n\v\f")] == 0;
    if (!code)
        code = format_string(row, "output", &output);
    if (!code)
        code = PUT(r, false, instruct_head, "### Instruction:\n", instruct, "\n\n",
                   blank ? "" : "### Input:\n", blank ? "" : input, blank ? "" : "\n\n",
                   "### Response:\n");
    return code ? code : PUT(r, true, output, "\n", r->end);
}

static int put_conversation(struct zinf_format_recipe *r, const cJSON *row)
{
    int code = PUT(r, false, conversation_head);
    return code ? code : put_rounds(r, row, human);
}

static int put_tools(struct zinf_format_recipe *r, const cJSON *row)
{
    const cJSON *tools = cJSON_GetObjectItemCaseSensitive(row, "api_desc");
    struct text_buffer text = {0};
    int code = tools ? text_buffer_add(&text, tools_head, strlen(tools_head))
                     : zinf_fail(-EINVAL, "there is no \"api_desc\"");
    if (!code)
        code = format_dump(&text, tools, 0);
    if (!code)
        code = chat_script_add(&r->script, text.bytes, text.count, false);
    text_buffer_free(&text);
    return code ? code : put_rounds(r, row, human);
}

static int put_reference(struct zinf_format_recipe *r, const cJSON *row)
{
    static const char *const names[] = {"Instruction", "Response"};
    const char *reference;
    int code = format_string(row, "reference", &reference);
    if (!code)
        code = PUT(r, false, reference_head, reference, "\n\n");
    return code ? code : put_rounds(r, row, names);
}

int format_take_gdgpt(struct zinf_format_recipe *r, const cJSON *row, struct zinf_sample *sample)
{
    static const struct {
        const char *name;
        int (*put)(struct zinf_format_recipe *r, const cJSON *row);
    } types[] = {
        {"pretrain", put_pretrain},         {"instruct", put_instruct},
        {"conversation", put_conversation}, {"conver_has_api", put_tools},
        {"ref_qa", put_reference},
    };
    const char *type;
    int code = format_string(row, "type", &type);
    size_t i = 0, n = sizeof types / sizeof *types;
    while (!code && i < n && strcmp(types[i].name, type))
        i++;
    if (!code && i == n)
        code = zinf_fail(-EINVAL,
                         "\"type\": \"%s\" is not one of pretrain, instruct, conversation, "
                         "conver_has_api, ref_qa",
                         type);
    if (!code)
        code = types[i].put(r, row);
    if (!code && i > 0) { /* all but pretrain */
        code = chat_script_add(&r->script, r->end, strlen(r->end), true);
        sample->keeps_last = true;
    }
    return code ? code : chat_script_encode(&r->script, r->options.tokenizer, true, sample);
}
