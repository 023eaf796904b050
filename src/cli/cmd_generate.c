/*
 * generate: continues prompts, several at once. One prompt is printed as it grows, several when all
 * are done.
 */
#include "cli/adapters.h"
#include "cli/cli.h"

#include <stdlib.h>

struct options {
    struct cli_adapters adapters;
    struct zinf_words prompts;
    const char *prompts_file;
    bool json;
    char **lines; /* of prompts_file */
    size_t n_lines;
};

/* ---- prompts ---- */

static int add_line(struct options *o, const char *line)
{
    char **moved = realloc(o->lines, (o->n_lines + 1) * sizeof *moved);
    if (moved)
        o->lines = moved;
    if (!moved || !(moved[o->n_lines] = strdup(line)))
        return zinf_fail(-ENOMEM, "no memory for a prompt");
    o->n_lines++;
    return 0;
}

/* Lines without anything in them are no prompts. */
static int read_prompts(struct options *o, const char *path)
{
    FILE *file = strcmp(path, "-") ? fopen(path, "r") : stdin;
    char *line = NULL;
    size_t capacity = 0;
    ssize_t bytes;
    int code = 0;
    if (!file)
        return zinf_fail(-errno, "--prompts %s: %s", path, strerror(errno));
    while (!code && (bytes = getline(&line, &capacity, file)) >= 0) {
        while (bytes > 0 && (line[bytes - 1] == '\n' || line[bytes - 1] == '\r'))
            line[--bytes] = 0;
        code = bytes ? add_line(o, line) : 0;
    }
    if (!code && ferror(file))
        code = zinf_fail(-EIO, "--prompts %s cannot be read", path);
    if (!code && !o->n_lines)
        code = zinf_fail(-EINVAL, "--prompts %s has no line with a prompt", path);
    free(line);
    if (file != stdin)
        fclose(file);
    return code;
}

/* Those of the command line, then those of the file; for free(). */
static const char **all_prompts(const struct options *o, size_t *n)
{
    const size_t n_words = (size_t)o->prompts.n;
    *n = n_words + o->n_lines;
    const char **all = calloc(*n, sizeof *all);
    for (size_t i = 0; all && i < *n; i++)
        all[i] = i < n_words ? o->prompts.items[i] : o->lines[i - n_words];
    return all;
}

/* ---- texts ---- */

static void grown(void *arg, const char *piece, size_t bytes)
{
    (void)arg;
    fwrite(piece, 1, bytes, stdout);
    fflush(stdout);
}

/* The only one has been printed as it grew. */
static void made_one(void *arg, size_t number, const struct zinf_answer *answer)
{
    (void)arg, (void)number, (void)answer;
    putchar('\n');
}

static void made(void *arg, size_t number, const struct zinf_answer *answer)
{
    (void)arg;
    fputs(number ? "\n" : "", stdout);
    fwrite(answer->whole, 1, answer->whole_bytes, stdout);
    putchar('\n');
}

static void made_json(void *arg, size_t number, const struct zinf_answer *answer)
{
    cJSON *object = cJSON_CreateObject();
    (void)number;
    zinf_json_add_text(object, "prompt", answer->prompt, answer->prompt_bytes);
    zinf_json_add_text(object, "text", answer->text, answer->text_bytes);
    cJSON_AddStringToObject(object, "finish", answer->finish);
    cJSON_AddNumberToObject(object, "prompt_tokens", (double)answer->prompt_tokens);
    cJSON_AddNumberToObject(object, "new_tokens", (double)answer->n_ids);
    cJSON_AddItemToObject(object, "ids", cJSON_CreateIntArray(answer->ids, (int)answer->n_ids));
    int *code = arg;
    *code = *code ? *code : cli_print_json_line(object);
}

static void print_speed(const struct zinf_text_speed *s)
{
    fflush(stdout); /* a file that both go to has them in their order */
    fprintf(stderr, "%lld prompt tokens in %.2f s, %lld new tokens", (long long)s->prompt_tokens,
            s->prompt_seconds, (long long)s->new_tokens);
    if (s->decoded_tokens && s->decode_seconds > 0)
        fprintf(stderr, ", %.1f tokens/s", (double)s->decoded_tokens / s->decode_seconds);
    fputc('\n', stderr);
}

static int make(struct cli_call *call)
{
    const struct options *o = call->options;
    struct zinf_text_speed speed = ZINF_SIZED(struct zinf_text_speed);
    size_t n;
    int printed = 0;
    const char **prompts = all_prompts(o, &n);
    if (!prompts)
        return zinf_fail(-ENOMEM, "no memory for %zu prompts", n);
    const bool streams = n == 1 && !o->json;
    const struct zinf_text_events events = {.size = sizeof events,
                                            .grown = streams ? grown : NULL,
                                            .made = o->json   ? made_json
                                                    : streams ? made_one
                                                              : made,
                                            .arg = &printed};
    int code = zinf_session_texts(call->session, prompts, n, &events, &speed);
    free(prompts);
    code = code ? code : printed;
    if (!code && job_ranks_is_first(call->session->net))
        print_speed(&speed);
    return code;
}

static const char usage[] =
    "usage: zinf generate --model DIR --prompt TEXT... [options]\n"
    "\n"
    "Continues texts and prints them. What is not given comes from the folder's\n"
    "generation_config.json.\n";

#define AT(field) .offset = offsetof(struct options, field)
/* clang-format off */
static const struct option own[] = {
    OPTION("--adapter", TEXTS, AT(adapters.words), "DIR...",
     "and adapters of it, as PEFT writes them; several add up, DIR=0.5 by half"),
    OPTION("--prompt", TEXTS, AT(prompts), "TEXT...", "the beginnings; one is printed as it grows"),
    OPTION("--prompts", TEXT, AT(prompts_file), "FILE",
     "a beginning in each line; - for standard input"),
    CLI_NO_ROW
};
static const struct option own_json[] = {
    OPTION("--json", FLAG, AT(json), NULL, "one JSON object a text"),
    CLI_NO_ROW
};
static const struct option_group groups[] = {
    CLI_DOOR(job_model),
    {.rows = own},
    CLI_DOOR(job_chat),
    CLI_DOOR(job_template),
    CLI_DOOR(generate_rows),
    CLI_DOOR(generate_least),
    CLI_DOOR(generate_beams),
    CLI_DOOR(job_texts),
    {.rows = own_json},
    CLI_DOOR(job_texts_seed),
    CLI_DOOR(job_dtype),
    CLI_DOOR(job_device),
    CLI_DOOR(job_seats),
    CLI_DOOR(job_tensor),
    CLI_DOOR(job_pipeline),
    CLI_NO_GROUP
};
/* clang-format on */

static int check(struct cli_call *call)
{
    const struct options *o = call->options;
    const struct zinf_job *c = &call->session->job;
    int code = session_need_model(call->session);
    if (!code && !o->prompts.n && !o->prompts_file)
        code = zinf_fail(-EINVAL, "--prompt TEXT or --prompts FILE is missing");
    if (!code && !c->texts.chats && (c->texts.system || c->chat_template))
        code = zinf_fail(-EINVAL, "--system and --chat-template need --chat");
    for (int i = 0; !code && i < c->texts.stops.n; i++)
        if (!*c->texts.stops.items[i])
            code = zinf_fail(-EINVAL, "--stop is empty: give at least one character");
    return code ? code : generate_check(&c->texts.settings);
}

static int work(struct cli_call *call)
{
    struct options *o = call->options;
    if (!texts_are_shared(call->session) && !job_ranks_works_alone("texts are made"))
        return 0;
    int code = cli_adapters_open(&o->adapters, &call->session->job.adapter);
    if (!code && o->prompts_file)
        code = read_prompts(o, o->prompts_file);
    if (!code)
        code = make(call);
    for (size_t i = 0; i < o->n_lines; i++)
        free(o->lines[i]);
    free(o->lines);
    cli_adapters_close(&o->adapters);
    return code;
}

const struct cli_command cli_generate = {
    .name = "generate",
    .summary = "continue prompts",
    .usage = usage,
    .groups = groups,
    .bytes = sizeof(struct options),
    .check = check,
    .work = work,
};
