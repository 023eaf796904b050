/*
 * chat: templates against what transformers renders, formats of rows, what counts, folders and
 * their templates, broken rows.
 */
#include "text/chat/chat_template.h"
#include "text/samples/format.h"
#include "text_files.h"

#include <stdio.h>

/* ---- templates ---- */

/* A fixture's tokenizer with the template's own tokens. */
static struct zinf_tokenizer *open_tokenizer(const cJSON *fixture)
{
    char name[128];
    struct zinf_tokenizer *tokenizer = NULL;
    const cJSON *token;
    snprintf(name, sizeof name, "tokenizer_kinds/%s.json", get(fixture, "tokenizer")->valuestring);
    cJSON *json = read_fixture(name);
    cJSON *all = cJSON_GetObjectItem(json, "added_tokens");
    cJSON_ArrayForEach(token, get(fixture, "added"))
    {
        cJSON *added = cJSON_CreateObject();
        cJSON_AddNumberToObject(added, "id", token->valuedouble);
        cJSON_AddStringToObject(added, "content", token->string);
        cJSON_AddBoolToObject(added, "single_word", false);
        cJSON_AddBoolToObject(added, "lstrip", false);
        cJSON_AddBoolToObject(added, "rstrip", cJSON_IsTrue(get(fixture, "rstrip")));
        cJSON_AddBoolToObject(added, "normalized", false);
        cJSON_AddBoolToObject(added, "special", true);
        const cJSON *there;
        bool known = false;
        cJSON_ArrayForEach(there, all) known |=
            !strcmp(get(there, "content")->valuestring, token->string);
        if (known)
            cJSON_Delete(added);
        else
            cJSON_AddItemToArray(all, added);
    }
    char *text = zinf_json_print(json);
    CHECKF(!zinf_tokenizer_from_json(&tokenizer, text, strlen(text), name), "%s", zinf_error());
    cJSON_free(text);
    cJSON_Delete(json);
    return tokenizer;
}

static bool same_ids(const struct zinf_sample *sample, const cJSON *ids, const cJSON *counts)
{
    size_t i = 0;
    const cJSON *id, *mark = counts ? counts->child : NULL;
    cJSON_ArrayForEach(id, ids)
    {
        if (i >= sample->ids.count || sample->ids.ids[i] != id->valueint ||
            (mark && (sample->marks[i] & ZINF_MARK_COUNTS) != mark->valueint))
            return false;
        mark = mark ? mark->next : NULL;
        i++;
    }
    return i == sample->ids.count;
}

static size_t take_messages(const cJSON *list, struct zinf_chat_message *out)
{
    size_t n = 0;
    const cJSON *message;
    cJSON_ArrayForEach(message, list)
    {
        out[n++] = (struct zinf_chat_message){get(message, "role")->valuestring,
                                              get(message, "content")->valuestring, false};
    }
    return n;
}

static void check_template(const cJSON *fixture)
{
    struct zinf_tokenizer *tokenizer = open_tokenizer(fixture);
    struct zinf_chat *chat = NULL;
    struct zinf_sample sample = ZINF_SAMPLE_EMPTY;
    struct zinf_chat_message messages[64];
    const cJSON *row;
    int n_rows = 0;
    char *config = cJSON_Print(get(fixture, "config"));
    write_text("tokenizer_config.json", config);
    cJSON_free(config);
    CHECKF(!zinf_chat_open(&chat, folder, fixture->string, tokenizer), "%s", zinf_error());
    cJSON_ArrayForEach(row, get(fixture, "rows"))
    {
        size_t n = take_messages(get(row, "messages"), messages);
        zinf_sample_clear(&sample);
        CHECKF(!zinf_chat_encode(chat, messages, n, false, &sample), "%s", zinf_error());
        CHECKF(same_ids(&sample, get(row, "ids"), get(row, "counts")), "%s, row %d",
               fixture->string, n_rows);
        zinf_sample_clear(&sample);
        CHECK(!zinf_chat_encode(chat, messages, n - 1, true, &sample));
        CHECKF(same_ids(&sample, get(row, "prompt"), NULL), "prompt of %s, row %d", fixture->string,
               n_rows);
        n_rows++;
    }
    CHECK(n_rows == 6);
    zinf_sample_free(&sample);
    zinf_chat_close(chat);
    zinf_tokenizer_close(tokenizer);
}

static void test_templates_are_as_transformers_has_them(void)
{
    cJSON *all = read_fixture("chat.json");
    const cJSON *fixture;
    int n = 0;
    cJSON_ArrayForEach(fixture, all)
    {
        check_template(fixture);
        n++;
    }
    CHECK(n == 11);
    cJSON_Delete(all);
    unlink(path_of("tokenizer_config.json"));
}

/* The sample of a row as text, what counts in brackets, the end of the text as "$"; or what is
 * wrong with it. */
static const char *show(enum zinf_format format, const char *template, const char *text)
{
    static char out[4096];
    struct zinf_chat *chat = NULL;
    struct zinf_format_recipe *recipe = NULL;
    struct zinf_sample sample = ZINF_SAMPLE_EMPTY;
    cJSON *row = NULL;
    size_t used = 0;
    bool before = false;
    write_text("tokenizer_config.json", "{\"eos_token\": \"$\"}");
    CHECK(!template || !zinf_chat_open(&chat, folder, template, byte_tokenizer()));
    struct zinf_format_options options = {
        .format = format, .chat = chat, .tokenizer = byte_tokenizer(), .folder = folder};
    CHECKF(!zinf_format_open(&recipe, &options), "%s", zinf_error());
    CHECKF(!zinf_json_parse(text, strlen(text), "row", ZINF_JSON_STRICT, &row), "%s", zinf_error());
    const struct zinf_recipe *r = zinf_format_recipe(recipe);
    int code = r->take(r->arg, row, &sample);
    for (size_t i = 0; !code && i < sample.ids.count && used < sizeof out - 8; i++) {
        bool counts = sample.marks[i] & ZINF_MARK_COUNTS;
        if (counts != before)
            out[used++] = counts ? '[' : ']';
        out[used++] = (char)sample.ids.ids[i];
        before = counts;
    }
    if (before)
        out[used++] = ']';
    out[used] = 0;
    if (code)
        snprintf(out, sizeof out, "%d: %s", code, zinf_error());
    cJSON_Delete(row);
    zinf_sample_free(&sample);
    zinf_format_close(recipe);
    zinf_chat_close(chat);
    return out;
}

static void check_shown(const char *is, const char *wanted)
{
    CHECKF(!strcmp(is, wanted), "is \"%s\", not \"%s\"", is, wanted);
}

static void test_conversations(void)
{
    check_shown(show(ZINF_FORMAT_MESSAGES, "mistral",
                     "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},"
                     "{\"role\":\"assistant\",\"content\":\"b\"},{\"role\":\"user\",\"content\":"
                     "[{\"type\":\"text\",\"text\":\"c\"},{\"type\":\"text\",\"text\":\"d\"}]},"
                     "{\"role\":\"assistant\",\"content\":\"e\",\"weight\":0}]}"),
                "[INST] a [/INST][b$][INST] cd [/INST]e$");
    check_shown(
        show(ZINF_FORMAT_SHAREGPT, "phi3",
             "{\"conversations\":[{\"from\":\"system\",\"value\":\"s\"},{\"from\":\"human\","
             "\"value\":\"a\"},{\"from\":\"gpt\",\"value\":\"b\"}]}"),
        "<|system|>\ns<|end|>\n<|user|>\na<|end|>\n<|assistant|>\n[b<|end|>]\n$");
    check_shown(show(ZINF_FORMAT_ALPACA, "mistral",
                     "{\"instruction\":\"a\",\"input\":\"i\",\"output\":\"b\","
                     "\"history\":[[\"x\",\"y\"]]}"),
                "[INST] x [/INST][y$][INST] a\ni [/INST][b$]");
    check_shown(show(ZINF_FORMAT_ALPACA, NULL, "{\"instruction\":\"a\",\"output\":\"b\"}"),
                "Below is an instruction that describes a task. Write a response that "
                "appropriately completes the request.\n\n### Instruction:\na\n\n### "
                "Response:[b$]");
    check_shown(
        show(ZINF_FORMAT_ALPACA, NULL, "{\"instruction\":\"a\",\"input\":\"i\",\"output\":\"b\"}"),
        "Below is an instruction that describes a task, paired with an input that provides "
        "further context. Write a response that appropriately completes the "
        "request.\n\n### Instruction:\na\n\n### Input:\ni\n\n### Response:[b$]");
    check_shown(show(ZINF_FORMAT_PROMPT, NULL, "{\"prompt\":\"ab\",\"completion\":\"cd\"}"),
                "ab[cd$]");
    check_shown(show(ZINF_FORMAT_PROMPT, "mistral",
                     "{\"prompt\":[{\"role\":\"user\",\"content\":\"a\"}],"
                     "\"completion\":[{\"role\":\"assistant\",\"content\":\"b\"}]}"),
                "[INST] a [/INST][b$]");
    check_shown(show(ZINF_FORMAT_TEXT, NULL, "{\"text\":\"abc\"}"), "[abc$]");
    check_shown(show(ZINF_FORMAT_TEXT, NULL, "{\"text\":\"abc$\"}"), "[abc$]");
}

static void test_gdgpt(void)
{
    check_shown(show(ZINF_FORMAT_GDGPT, NULL, "{\"type\":\"pretrain\",\"text\":\"abc\"}"), "[abc]");
    check_shown(
        show(ZINF_FORMAT_GDGPT, NULL,
             "{\"type\":\"instruct\",\"instruct\":\"a\",\"input\":\" \\n\",\"output\":\"b\"}"),
        "Below is an instruction that describes a task, paired with an input that provides "
        "further context. Write a response that appropriately completes the "
        "request.\n\n### Instruction:\na\n\n### Response:\n[b\n$$]");
    check_shown(show(ZINF_FORMAT_GDGPT, NULL,
                     "{\"type\":\"ref_qa\",\"reference\":\"r\",\"rounds\":[[\"ask\",\"a\"],"
                     "[\"ask\",\"b\"],[\"ans\",\"c\"]]}"),
                "Generate responses to the given instruction series according to the reference "
                "text. \n\n### Reference: \nr\n\n### Instruction: a \n### Instruction: b \n### "
                "Response: [c $\n$]");
    check_shown(
        show(ZINF_FORMAT_GDGPT, NULL,
             "{\"type\":\"conver_has_api\",\"api_desc\":{\"n\":[1,2.0]},\"rounds\":[[\"ask\","
             "\"a\"],[\"ans-api\",{\"actions\":[{\"inner_thought\":\"t\",\"api_name\":\"f\","
             "\"api_param\":\"{\\\"x\\\": \\\"it's\\\", \\\"y\\\": [true, null]}\","
             "\"api_res\":{\"r\":1}}],\"ans\":\"c\"}]]}"),
        "Answer the following questions as best as you can. You have access to the "
        "following tool(s):\n{\n  \"n\": [\n    1,\n    2.0\n  ]\n}### Human: a \n### "
        "Assistent: [t\n#### api call\n```python\nf(x=\"it's\", y=[True, None])\n```  $]\n"
        "#### api output\n{\n  \"r\": 1\n}\n### Assistent: [c  $$]");
}

static void test_tokenised_rows(void)
{
    check_shown(show(ZINF_FORMAT_IDS, NULL, "{\"input_ids\":[97,98,99]}"), "[abc]");
    check_shown(show(ZINF_FORMAT_IDS, NULL,
                     "{\"input_ids\":[97,98,99,36],\"labels\":[-100,-100,99,36],"
                     "\"attention_mask\":null,\"position_ids\":[0,1,2,3]}"),
                "ab[c$]");
    check_shown(show(ZINF_FORMAT_IDS, NULL,
                     "{\"input_ids\":[0,0,97,98,0],\"labels\":[-100,-100,-100,98,-100],"
                     "\"attention_mask\":[0,0,1,1,0]}"),
                "a[b]");
}

static void test_templates_of_ids(void)
{
    const struct zinf_chat_message messages[] = {{"user", "a", false},
                                                 {"assistant", "b", false},
                                                 {"user", "c", false},
                                                 {"assistant", "d", false}};
    struct zinf_chat *chat = NULL;
    struct zinf_sample sample = ZINF_SAMPLE_EMPTY;
    static const int32_t ids[] = {195, 'a', 196, 'b', '$', 195, 'c', 196, 'd', '$'};
    static const char counts[] = "0001100011";
    char *text;
    write_text("tokenizer_config.json", "{\"eos_token\": \"$\"}");
    CHECK(!zinf_chat_open(&chat, folder, "baichuan2", byte_tokenizer()));
    CHECK(!zinf_chat_encode(chat, messages, 4, false, &sample) && sample.ids.count == 10);
    for (size_t i = 0; i < 10 && i < sample.ids.count; i++)
        CHECK(sample.ids.ids[i] == ids[i] && sample.marks[i] == counts[i] - '0');
    CHECK(zinf_chat_render(chat, messages, 4, false, &text) == -ENOTSUP);
    zinf_chat_close(chat);
    /* The role that follows ends a turn; its token counts. */
    zinf_sample_clear(&sample);
    CHECK(!zinf_chat_open(&chat, folder, "chatglm3", byte_tokenizer()));
    CHECK(!zinf_chat_encode(chat, messages, 4, false, &sample));
    size_t n = 0;
    for (size_t i = 0; i < sample.ids.count; i++)
        n += sample.marks[i];
    CHECKF(n == 1 + strlen("<|user|>") + 2, "%zu count", n);
    zinf_chat_close(chat);
    zinf_sample_free(&sample);
}

/* ---- folders ---- */

static const char chatml[] =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\\\n' + "
    "message['content'] + '<|im_end|>' + '\\\\n'}}{% endfor %}{% if add_generation_prompt %}{{ "
    "'<|im_start|>assistant\\\\n' }}{% endif %}";

static int open_folder(const char *name, const char *wanted)
{
    struct zinf_chat *chat = NULL;
    int code = zinf_chat_open(&chat, folder, name, byte_tokenizer());
    if (!code && wanted)
        CHECKF(!strcmp(zinf_chat_name(chat), wanted), "it is %s", zinf_chat_name(chat));
    zinf_chat_close(chat);
    return code;
}

static void test_a_folder_says_its_template(void)
{
    char config[2048];
    int32_t id;
    struct zinf_chat *chat = NULL;
    unlink(path_of("tokenizer_config.json"));
    CHECK(open_folder(NULL, NULL) == -ENOENT && strstr(zinf_error(), "--chat-template NAME"));
    snprintf(config, sizeof config, "{\"chat_template\": \"%s\"}", chatml);
    write_text("tokenizer_config.json", config);
    CHECK(!open_folder(NULL, "chatml") && !open_folder("llama3", "llama3"));
    snprintf(
        config, sizeof config,
        "{\"chat_template\": [{\"name\": \"tool\", \"template\": \"x\"}, {\"name\": \"default\", "
        "\"template\": \"%s\"}]}",
        chatml);
    write_text("tokenizer_config.json", config);
    CHECK(!open_folder(NULL, "chatml"));
    write_text("chat_template.jinja", "{{ 1 / 0 }}");
    CHECK(open_folder(NULL, NULL) == -ENOTSUP && strstr(zinf_error(), "never executed"));
    CHECK(open_folder("nonsense", NULL) == -EINVAL && strstr(zinf_error(), "nonsense"));
    unlink(path_of("chat_template.jinja"));
    CHECK(!zinf_chat_open(&chat, folder, "chatml", byte_tokenizer()));
    CHECK(!strcmp(zinf_chat_stop(chat, &id), "<|im_end|>") && id == -1);
    zinf_chat_close(chat);
}

static void test_a_row_says_its_format(void)
{
    static const struct {
        const char *name, *text;
        enum zinf_format format;
    } files[] = {
        {"a.jsonl", "{\"instruction\":1,\"output\":2,\"text\":3}\n", ZINF_FORMAT_ALPACA},
        {"b.json", "[{\"messages\":[]}]", ZINF_FORMAT_MESSAGES},
        {"c.jsonl", "\n{\"conversations\":[]}", ZINF_FORMAT_SHAREGPT},
        {"d.csv", "prompt,completion\na,b\n", ZINF_FORMAT_PROMPT},
        {"j.jsonl", "{\"input_ids\":[1],\"text\":\"a\"}", ZINF_FORMAT_IDS},
        {"e.json", "[{\"type\":\"ref_qa\",\"rounds\":[]}]", ZINF_FORMAT_GDGPT},
        {"f.jsonl", "{\"text\":\"a\"}", ZINF_FORMAT_STREAM},
        {"g.jsonl", "{\"type\":\"instruct\"}", ZINF_FORMAT_STREAM},
        {"h.txt", "{\"messages\":[]}", ZINF_FORMAT_STREAM},
        {"i.jsonl", "{\"messages\":\n", ZINF_FORMAT_STREAM},
    };
    char path[512];
    enum zinf_format format;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        write_text(files[i].name, files[i].text);
        snprintf(path, sizeof path, "%s/%s", folder, files[i].name);
        CHECK(!zinf_format_tell(path, &format));
        CHECKF(format == files[i].format, "%s is %s", files[i].name, zinf_format_name(format));
        unlink(path);
    }
    CHECK(!zinf_format_tell("there is no such file", &format) && format == ZINF_FORMAT_STREAM);
    CHECK(zinf_format_parse("x", &format) == -EINVAL && strstr(zinf_error(), "gdgpt"));
}

static void test_a_template_recognises_its_own_text(void)
{
    const char *name;
    char *text;
    int n = 0;
    for (int i = 0; (name = zinf_chat_template_name(i)); i++) {
        struct zinf_chat *chat = NULL;
        CHECK(!zinf_chat_open(&chat, folder, name, byte_tokenizer()));
        int code = zinf_chat_jinja(chat, &text);
        CHECKF(!code || code == -ENOTSUP, "%s", zinf_error());
        zinf_chat_close(chat);
        if (code)
            continue;
        write_text("chat_template.jinja", text);
        CHECKF(!open_folder(NULL, name), "%s: %s", name, zinf_error());
        text[strlen(text) / 2] ^= 1;
        write_text("chat_template.jinja", text);
        CHECK(open_folder(NULL, NULL) == -ENOTSUP);
        free(text);
        n++;
    }
    CHECK(n == 11);
    unlink(path_of("chat_template.jinja"));
}

#define SAID(role, text) "{\"role\":\"" role "\",\"content\":\"" text "\"}"

static void breaks(enum zinf_format format, const char *template, const char *row,
                   const char *words)
{
    const char *shown = show(format, template, row);
    CHECKF(strstr(shown, words) && !strncmp(shown, "-22: ", 5), "\"%s\" of %s is not in \"%s\"",
           words, row, shown);
}

static void test_broken_rows_are_named(void)
{
    const enum zinf_format m = ZINF_FORMAT_MESSAGES;
    breaks(m, "chatml", "{\"messages\":[" SAID("user", "a") "]}", "no assistant turn");
    breaks(m, "chatml", "{\"messages\":[]}", "no assistant turn");
    breaks(m, "chatml", "{\"messages\":4}", "not a list of turns");
    breaks(m, "chatml", "{\"x\":4}", "there is no \"messages\"");
    breaks(m, "chatml", "{\"messages\":[" SAID("assistant", "a") "]}",
           "roles out of order: turn 1");
    breaks(
        m, "chatml",
        "{\"messages\":[" SAID("user", "a") "," SAID("user", "b") "," SAID("assistant", "c") "]}",
        "roles out of order: turn 2");
    breaks(
        m, "chatml",
        "{\"messages\":[" SAID("user", "a") "," SAID("system", "b") "," SAID("assistant", "c") "]}",
        "roles out of order: turn 2");
    breaks(
        m, "gemma",
        "{\"messages\":[" SAID("system", "a") "," SAID("user", "b") "," SAID("assistant", "c") "]}",
        "\"gemma\" has no turns of \"system\"");
    breaks(m, "chatml", "{\"messages\":[" SAID("wizard", "a") "]}", "\"wizard\"");
    breaks(m, "chatml", "{\"messages\":[{\"role\":\"user\"}]}", "there is no \"content\"");
    breaks(m, "chatml", "{\"messages\":[{\"role\":\"user\",\"content\":4}]}", "not a string");
    breaks(m, "chatml",
           "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}",
           "image_url");
    breaks(m, "chatml",
           "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[1],\"content\":\"\"}]}",
           "calls a tool");
    breaks(m, "chatml", "{\"messages\":[],\"tools\":[1]}", "tools");
    breaks(ZINF_FORMAT_ALPACA, NULL, "{\"instruction\":\"a\"}", "there is no \"output\"");
    breaks(ZINF_FORMAT_PROMPT, NULL, "{\"prompt\":[],\"completion\":[]}", "--chat-template");
    breaks(ZINF_FORMAT_PREFERENCE, NULL, "{\"question\":\"q\",\"chosen\":\"a\",\"rejected\":\"b\"}",
           "there is no \"prompt\", and \"question\" would not be read");
    breaks(ZINF_FORMAT_PREFERENCE, NULL,
           "{\"system\":\"s\",\"prompt\":\"q\",\"chosen\":\"a\",\"rejected\":\"b\"}",
           "\"system\" would not be read");
    breaks(ZINF_FORMAT_PROMPT, NULL, "{\"system\":\"s\",\"prompt\":\"q\",\"completion\":\"a\"}",
           "\"system\" would not be read");
    breaks(ZINF_FORMAT_GDGPT, NULL, "{\"type\":\"x\"}", "not one of pretrain");
    breaks(ZINF_FORMAT_GDGPT, NULL, "{\"type\":\"conversation\",\"rounds\":[[\"ask\",\"a\"]]}",
           "no \"ans\"");
    breaks(ZINF_FORMAT_GDGPT, NULL, "{\"type\":\"conversation\",\"rounds\":[[\"say\",\"a\"]]}",
           "\"say\"");
    breaks(ZINF_FORMAT_IDS, NULL, "{\"input_ids\":[]}", "or is empty");
    breaks(ZINF_FORMAT_IDS, NULL, "{\"input_ids\":[1,2],\"labels\":[1]}", "\"labels\" has 1 ");
    breaks(ZINF_FORMAT_IDS, NULL, "{\"input_ids\":[1,2],\"labels\":4}", "not a list");
    breaks(ZINF_FORMAT_IDS, NULL, "{\"input_ids\":[1,2],\"labels\":[1,3]}", "has 3 where");
    breaks(ZINF_FORMAT_IDS, NULL, "{\"input_ids\":[1,2.5]}", "no whole number");
    breaks(ZINF_FORMAT_IDS, NULL, "{\"input_ids\":[1,-2]}", "ids begin at 0");
}

int main(void)
{
    if (!mkdtemp(folder))
        return 1;
    TAP_RUN(test_templates_are_as_transformers_has_them);
    TAP_RUN(test_conversations);
    TAP_RUN(test_gdgpt);
    TAP_RUN(test_tokenised_rows);
    TAP_RUN(test_templates_of_ids);
    TAP_RUN(test_a_folder_says_its_template);
    TAP_RUN(test_a_template_recognises_its_own_text);
    TAP_RUN(test_a_row_says_its_format);
    TAP_RUN(test_broken_rows_are_named);
    unlink(path_of("tokenizer_config.json"));
    rmdir(folder);
    return tap_done();
}
