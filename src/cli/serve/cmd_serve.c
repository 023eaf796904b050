/*
 * serve: a model behind HTTP, for clients of OpenAI and of TGI and for a browser. What is served is
 * looked at here; serve.h has the rest.
 */
#include "cli/cli.h"
#include "cli/serve/serve.h"

#include <stdlib.h>
#include <unistd.h>

#define MOST_ADAPTERS 64
#define USUAL_TOKENS 4096
#define USUAL_BODY (1 << 20)

struct options {
    struct zinf_words adapters;
    const char *host, *key, *name;
    int64_t port, total_tokens, requests, seconds;
    uint64_t body_bytes;
};

static const struct options usual = {
    .host = "127.0.0.1", .port = 8080, .requests = 128, .seconds = 600, .body_bytes = USUAL_BODY};

static const char usage[] =
    "usage: zinf serve --model DIR [options]\n"
    "\n"
    "Answers the requests of OpenAI's and TGI's clients by HTTP, and has a page to\n"
    "chat with.\n"
    "Requests that arrive at the same time share each pass over the model.\n";

#define AT(field) .offset = offsetof(struct options, field)
/* clang-format off */
static const struct option own[] = {
    OPTION("--adapter", TEXTS, AT(adapters), "NAME=DIR...",
     "serve these adapters of the model, too, under these names"),
    OPTION("--name", TEXT, AT(name), "NAME", "name by which clients ask for the model",
     .otherwise = "its folder's"),
    OPTION("--host", TEXT, AT(host), "HOST", "address to listen on; 0.0.0.0 is every address",
     .usual = "127.0.0.1"),
    OPTION("--port", INTEGER, AT(port), "N",
     "port to listen on; 0 takes any free port", .max = 65535,
     .usual = "8080"),
    OPTION("--api-key", TEXT, AT(key), "KEY", "key that clients must send",
     .otherwise = "ZINF_API_KEY, or none"),
    OPTION("--max-total-tokens", INTEGER, AT(total_tokens), "N",
     "largest number of tokens of a prompt and its answer", .min = 2, .max = 1 << 24,
     .otherwise = "the context, at most 4096"),
    OPTION("--max-requests", INTEGER, AT(requests), "N",
     "largest number of requests that wait or are answered", .min = 1,
     .max = 1 << 14, .usual = "128"),
    OPTION("--max-body", SIZE, AT(body_bytes), "SIZE",
     "largest body of a request", .usual = "1MiB"),
    OPTION("--timeout", INTEGER, AT(seconds), "N",
     "seconds until an answer must have ended", .min = 1,
     .max = 1 << 20, .usual = "600"),
    CLI_NO_ROW
};
static const struct option_group groups[] = {
    CLI_DOOR(job_model),
    {.rows = own},
    CLI_DOOR(job_template),
    CLI_DOOR(generate_rows),
    CLI_DOOR(generate_least),
    CLI_DOOR(job_texts),
    CLI_DOOR(job_dtype),
    CLI_DOOR(job_device),
    CLI_NO_GROUP
};
/* clang-format on */

static int check(struct cli_call *call)
{
    struct options *o = call->options;
    struct zinf_job *job = &call->session->job;
    int code = session_need_model(call->session);
    if (!code && o->adapters.n > MOST_ADAPTERS)
        code = zinf_fail(-EINVAL, "--adapter: at most %d", MOST_ADAPTERS);
    if (!code && o->key && !*o->key)
        code = zinf_fail(-EINVAL, "--api-key is empty: give at least one character");
    job->texts.settings.num_beams = 1; /* whatever the folder says */
    if (!o->key && getenv("ZINF_API_KEY") && *getenv("ZINF_API_KEY"))
        o->key = getenv("ZINF_API_KEY");
    return code ? code : generate_check(&job->texts.settings);
}

/* The last part of a path. */
static const char *last_part(const char *path)
{
    const char *end = path + strlen(path), *at;
    while (end > path + 1 && end[-1] == '/')
        end--;
    for (at = end; at > path && at[-1] != '/';)
        at--;
    return at;
}

/* ---- what is served ---- */

static int add_model(struct serve_options *s, char *name, const char *adapter)
{
    if (!name)
        return zinf_fail(-ENOMEM, "no memory for a name");
    name[strcspn(name, "/")] = 0;
    struct serve_model *model = &s->models[s->n_models++];
    *model = (struct serve_model){.name = name, .adapter = adapter};
    for (int i = 0; i + 1 < s->n_models; i++)
        if (!strcmp(s->models[i].name, name))
            return zinf_fail(-EINVAL, "two models are called %s: give --name or --adapter NAME=DIR",
                             name);
    return 0;
}

/* Without a template clients may continue texts, but not chat. */
static int open_chat(struct zinf_session *s, struct serve_model *model)
{
    s->job.adapter = model->adapter;
    int code = s->tokenizer ? text_open_chat(s, &model->chat)
                            : zinf_fail(-ENOENT, "the model's folder has no tokenizer");
    s->job.adapter = NULL;
    if (!code)
        return 0;
    model->chat = NULL;
    snprintf(model->no_chat, sizeof model->no_chat, "%s", zinf_error());
    return s->job.chat_template || code == -ENOMEM ? code : 0;
}

/* NAME=DIR, or DIR. */
static int add_adapter(struct serve_options *s, const char *word)
{
    const char *sign = access(word, F_OK) ? strchr(word, '=') : NULL;
    const char *folder = sign ? sign + 1 : word;
    if (access(folder, F_OK))
        return zinf_fail(-ENOENT, "--adapter %s: there is no folder %s", word, folder);
    return add_model(s, sign ? strndup(word, (size_t)(sign - word)) : strdup(last_part(word)),
                     folder);
}

static int look(struct options *o, struct serve_options *s)
{
    struct zinf_session *session = s->session;
    int code = session_ready(session, JOB_TEXTS);
    if (!code)
        code = job_task_need_texts(session);
    if (!code)
        code = job_task_need_tokenizer(session);
    if (!code)
        code = add_model(s, strdup(o->name ? o->name : last_part(session->job.model)), NULL);
    for (int i = 0; !code && i < o->adapters.n; i++)
        code = add_adapter(s, o->adapters.items[i]);
    for (int i = 0; !code && i < s->n_models; i++)
        code = open_chat(session, &s->models[i]);
    if (code)
        return code;
    const int64_t context = zinf_model_facts(session->model)->context;
    const int64_t wanted = o->total_tokens ? o->total_tokens : USUAL_TOKENS;
    if (o->total_tokens > context)
        return zinf_fail(-EINVAL, "--max-total-tokens %lld: the model's context is %lld",
                         (long long)o->total_tokens, (long long)context);
    s->limits.total_tokens = wanted < context ? wanted : context;
    return 0;
}

static int work(struct cli_call *call)
{
    struct options *o = call->options;
    struct serve_model models[MOST_ADAPTERS + 1] = {{0}};
    struct serve_options s = {
        .host = o->host,
        .key = o->key,
        .port = o->port,
        .limits = {.requests = o->requests,
                   .texts = 16,
                   .seconds = o->seconds,
                   .body_bytes = o->body_bytes},
        .session = call->session,
        .models = models,
    };
    if (!job_ranks_works_alone("requests are answered"))
        return 0;
    int code = look(o, &s);
    if (!code)
        code = serve_run(&s);
    for (int i = 0; i < s.n_models; i++) {
        zinf_chat_close(models[i].chat);
        free((char *)(uintptr_t)models[i].name);
    }
    call->session->job.adapter = NULL;
    return code;
}

const struct cli_command cli_serve = {
    .name = "serve",
    .summary = "answer requests by HTTP",
    .usage = usage,
    .groups = groups,
    .bytes = sizeof(struct options),
    .usual = &usual,
    .check = check,
    .work = work,
};
