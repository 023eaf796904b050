/*
 * generate: continues prompts, several at once. Settings come from the command line, then from the
 * model folder's generation_config.json. One prompt is printed as it grows, several when all are
 * done.
 */
#include "cli/adapters.h"
#include "cli/cli.h"
#include "cli/generate.h"
#include "api/seats.h"

#include <stdio.h>
#include <stdlib.h>

/* New tokens of a call, where nobody asks for others. Every call fetches what
 * is not on the device: prompts go through it in few calls then. */
#define USUAL_ROWS 512
#define FETCHING_ROWS 2048

struct generate_command {
    struct zinf_job common;
    struct cli_adapters adapters;
    struct zinf_words prompts, stops;
    const char *prompts_file;
    int64_t batch;
    bool json, ignores_ends, chats;
    const char *system; /* what the system says first, where it chats */
    struct generate_settings settings;
};

/* What a run has open. */
struct generation {
    const struct generate_command *command;
    struct generate_settings settings;
    struct zinf_session session;
    struct zinf_trainer *trainer;
    char **lines; /* of --prompts */
    size_t n_lines;
    const char **prompts; /* [n] */
    struct zinf_text *texts;
    struct zinf_tokens *sources; /* [n]: of an encoder-decoder */
    struct generate_output output;
    struct zinf_chat *chat;         /* NULL: prompts are gone on with as they are */
    int64_t n, longest, all_tokens; /* texts; tokens of the longest prompt, and of all */
};

/* ---- prompts ---- */

static int add_line(struct generation *g, const char *line)
{
    char **moved = realloc(g->lines, (g->n_lines + 1) * sizeof *moved);
    if (moved)
        g->lines = moved;
    if (!moved || !(moved[g->n_lines] = strdup(line)))
        return zinf_fail(-ENOMEM, "no memory for a prompt");
    g->n_lines++;
    return 0;
}

/* Lines without anything in them are no prompts. */
static int read_prompts(struct generation *g, const char *path)
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
        code = bytes ? add_line(g, line) : 0;
    }
    if (!code && ferror(file))
        code = zinf_fail(-EIO, "--prompts %s cannot be read", path);
    if (!code && !g->n_lines)
        code = zinf_fail(-EINVAL, "--prompts %s has no line with a prompt", path);
    free(line);
    if (file != stdin)
        fclose(file);
    return code;
}

static int take_prompts(struct generation *g)
{
    const struct generate_command *c = g->command;
    int code = c->prompts_file ? read_prompts(g, c->prompts_file) : 0;
    if (code)
        return code;
    size_t n = (size_t)c->prompts.n + g->n_lines;
    g->prompts = calloc(n, sizeof *g->prompts);
    g->texts = calloc(n, sizeof *g->texts);
    g->output = (struct generate_output){.stops = &c->stops, .streams = n == 1 && !c->json};
    g->output.texts = calloc(n, sizeof *g->output.texts);
    g->sources = calloc(n, sizeof *g->sources);
    if (!g->prompts || !g->texts || !g->output.texts || !g->sources)
        return zinf_fail(-ENOMEM, "no memory for %zu prompts", n);
    g->n = (int64_t)n;
    for (int i = 0; i < c->prompts.n; i++)
        g->prompts[i] = c->prompts.items[i];
    for (size_t i = 0; i < g->n_lines; i++)
        g->prompts[(size_t)c->prompts.n + i] = g->lines[i];
    return 0;
}

/* Tokens in front of those of the text itself. */
static size_t find_first(const struct zinf_tokens *framed, const struct zinf_tokens *ids)
{
    size_t first = 0;
    while (first + ids->count < framed->count &&
           memcmp(framed->ids + first, ids->ids, ids->count * sizeof *ids->ids))
        first++;
    return first;
}

/* A prompt's tokens with the special ones that the tokenizer puts around a text, as transformers
 * takes them; *first: how many of these come before it. */
static int tokenize(const struct generation *g, const char *prompt, struct zinf_tokens *out,
                    size_t *first)
{
    const struct zinf_tokenizer *tokenizer = g->session.tokenizer;
    struct zinf_tokens ids = {0};
    int code = zinf_tokenizer_encode(tokenizer, prompt, strlen(prompt), &ids);
    if (!code && !ids.count)
        code = zinf_fail(-EINVAL, "--prompt is empty: give at least one character");
    if (!code)
        code = zinf_tokenizer_frame(tokenizer, &ids, NULL, out, NULL);
    *first = code ? 0 : find_first(out, &ids);
    zinf_tokens_free(&ids);
    return code;
}

static int encode_prompt(struct generation *g, int64_t number)
{
    const struct zinf_model_facts *facts = zinf_model_facts(g->session.model);
    struct zinf_text *text = &g->texts[number];
    struct zinf_tokens ids = {0};
    bool pairs = g->session.task == ZINF_TASK_SEQ2SEQ;
    int code = g->chat ? generate_chat_encode(g->chat, g->command->system, g->prompts[number], &ids)
                       : tokenize(g, g->prompts[number], &ids, &g->output.texts[number].first);
    for (size_t i = 0; !code && i < ids.count; i++)
        if (ids.ids[i] >= facts->vocab)
            code = zinf_fail(-EINVAL,
                             "the prompt's token id %d is outside of the model's "
                             "vocabulary of %lld: the tokenizer does not belong to this model",
                             ids.ids[i], (long long)facts->vocab);
    if (!code && (int64_t)ids.count > facts->context)
        code = zinf_fail(-EINVAL, "prompt %lld has %zu tokens; the model's context is %lld",
                         (long long)number + 1, ids.count, (long long)facts->context);
    *text = (struct zinf_text){.ids = ids.ids, .n_prompt = (int64_t)ids.count};
    if (!code && pairs) {
        code = generate_source(&g->session, &g->command->common, &ids, text);
        g->sources[number] = ids;
        text->ids = code ? NULL : text->ids;
        g->output.texts[number].first = 1; /* the decoder's start */
    }
    g->all_tokens += text->n_prompt;
    g->longest = text->n_prompt > g->longest ? text->n_prompt : g->longest;
    if (!code)
        code = generate_text_begin(&g->output, number, text);
    if (!code && g->chat) /* of a conversation the answer alone is shown */
        g->output.texts[number].printed = g->output.texts[number].prompt_bytes;
    return code;
}

/* ---- the trainer ---- */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* What must be remembered of each text: all but the last new token, and its source. */
static struct zinf_decode_shape shape_of(const struct generation *g)
{
    int64_t context = zinf_model_facts(g->session.model)->context;
    bool fetches = g->session.config->offload_param.device != ZINF_PLACE_NONE;
    int64_t batch = g->command->batch;
    int64_t beams = g->settings.num_beams > 1 ? g->settings.num_beams : 1;
    int64_t rows = fetches ? FETCHING_ROWS : USUAL_ROWS, most = 0, all = 0;
    for (int64_t i = 0; i < g->n; i++) {
        all += g->texts[i].n_source;
        most = g->texts[i].n_source > most ? g->texts[i].n_source : most;
    }
    struct zinf_decode_shape shape = {
        .sequences = least(batch, g->n) * beams,
        .capacity = least(context, g->longest + g->settings.max_new_tokens - 1),
        .rows = least(rows, g->all_tokens),
        .sources = most ? least(batch, g->n) : 0,
        .source_capacity = most,
        .source_rows = least(rows, all),
    };
    shape.rows = shape.rows < shape.sequences ? shape.sequences : shape.rows;
    shape.source_rows = shape.source_rows < most ? most : shape.source_rows;
    return shape;
}

/* Where keys and values cannot be remembered, every token takes its whole text. */
static int open_trainer(struct generation *g)
{
    const struct zinf_decode_shape shape = shape_of(g);
    struct zinf_trainer_options options = {
        .mode = ZINF_TRAINER_FORWARD,
        .model_path = g->command->common.model,
        .adapter = g->command->common.adapter,
        .config = g->session.config,
        .device = g->session.device,
        .decode = shape,
    };
    int code = zinf_trainer_create(&g->trainer, &options);
    if (code != -ENOTSUP)
        return code;
    zinf_log(ZINF_LOG_WARN, "every token computes its whole text again: %s", zinf_error());
    options.decode = (struct zinf_decode_shape){0};
    options.seq_len = least(g->session.seq_len, shape.capacity);
    options.source_len = shape.source_capacity;
    return zinf_trainer_create(&g->trainer, &options);
}

/* ---- a run ---- */

static int made(void *arg, int64_t number, const struct zinf_text *text)
{
    return generate_text_made(arg, number, text);
}

static void print_speed(const struct zinf_generate_speed *s)
{
    fflush(stdout); /* a file that both go to has them in their order */
    fprintf(stderr, "%lld prompt tokens in %.2f s, %lld new tokens", (long long)s->prompt_tokens,
            s->prompt_seconds, (long long)s->new_tokens);
    if (s->decoded_tokens && s->decode_seconds > 0)
        fprintf(stderr, ", %.1f tokens/s", (double)s->decoded_tokens / s->decode_seconds);
    fputc('\n', stderr);
}

static int print_texts(struct generation *g)
{
    int code = 0;
    for (int64_t i = 0; !code && i < g->n; i++) {
        if (g->command->json)
            code = generate_text_print_json(&g->output, i, &g->texts[i]);
        else
            generate_text_print(&g->output, i);
        if (!g->command->json && i + 1 < g->n)
            putchar('\n');
    }
    return code;
}

static int continue_prompts(struct generation *g)
{
    struct zinf_generate_speed speed;
    const struct generate_settings *s = &g->settings;
    struct zinf_generate_options options = generate_options(s, (uint64_t)g->command->common.seed);
    options.n_ends = g->command->ignores_ends ? 0 : s->n_ends;
    options.made = made;
    options.arg = &g->output;
    int code = zinf_generate(g->trainer, &options, g->texts, g->n, &speed);
    if (!code)
        code = print_texts(g);
    if (!code)
        print_speed(&speed);
    return code;
}

static int prepare(struct generation *g, const struct zinf_job *c, struct zinf_words *stops)
{
    int code = take_prompts(g);
    if (!code)
        code = zinf_session_begin(&g->session, c);
    if (!code)
        code = job_task_need_texts(&g->session, c);
    if (!code)
        code = zinf_session_need_tokenizer(&g->session, c);
    g->output.tokenizer = g->session.tokenizer;
    if (!code)
        code = generate_read_config(&g->settings, c->model, g->session.model);
    if (!code && g->command->chats)
        code = generate_chat_open(&g->chat, c, g->session.tokenizer, &g->settings, stops);
    g->output.sources = g->session.task == ZINF_TASK_SEQ2SEQ ? g->prompts : NULL;
    for (int64_t i = 0; !code && i < g->n; i++)
        code = encode_prompt(g, i);
    if (!code && g->settings.max_length > 0)
        g->settings.max_new_tokens =
            g->settings.max_length > g->longest ? g->settings.max_length - g->longest : 1;
    return code ? code : zinf_session_config(&g->session, c);
}

static int generate(struct generate_command *command)
{
    struct generation g = {.command = command, .settings = command->settings};
    command->common.no_training = true;
    int code = zinf_job_set(&command->common, "train_micro_batch_size_per_gpu", 1);
    if (!code)
        code = prepare(&g, &command->common, &command->stops);
    if (!code)
        code = open_trainer(&g);
    if (!code)
        code = continue_prompts(&g);
    for (int64_t i = 0; i < g.n; i++) {
        free(g.texts[i].ids);
        free(g.output.texts[i].all);
        zinf_tokens_free(&g.sources[i]);
    }
    for (size_t i = 0; i < g.n_lines; i++)
        free(g.lines[i]);
    free(g.lines);
    free(g.prompts);
    free(g.texts);
    free(g.sources);
    free(g.output.texts);
    zinf_chat_close(g.chat);
    zinf_trainer_destroy(g.trainer);
    zinf_session_end(&g.session);
    return code;
}

static int check_beams(struct generate_command *o)
{
    struct generate_settings *s = &o->settings;
    bool draws = s->temperature > 0 || s->top_k > 0 || s->top_p >= 0;
    if (s->num_beams > 1 && draws)
        return zinf_fail(-EINVAL, "--num-beams draws nothing: leave out --temperature, --top-k "
                                  "and --top-p");
    if (s->num_beams < 2 && (s->early_stopping >= 0 || !isnan(s->length_penalty)))
        return zinf_fail(-EINVAL, "--length-penalty and --early-stopping are of --num-beams N");
    return 0;
}

static int check_strings(const struct generate_command *o)
{
    if (!o->prompts.n && !o->prompts_file)
        return zinf_fail(-EINVAL, "--prompt TEXT or --prompts FILE is missing");
    if (!o->chats && (o->system || o->common.chat_template))
        return zinf_fail(-EINVAL, "--system and --chat-template are of --chat");
    for (int i = 0; i < o->stops.n; i++)
        if (!*o->stops.items[i])
            return zinf_fail(-EINVAL, "--stop is empty: give at least one character");
    return 0;
}

static const char usage[] =
    "usage: zinf generate --model DIR --prompt TEXT... [options]\n"
    "\n"
    "Continues texts and prints them. What is not given comes from the folder's\n"
    "generation_config.json.\n";

#define AT(field) .offset = offsetof(struct generate_command, field)
#define IN(field) .at = offsetof(struct generate_command, field)
/* clang-format off */
static const struct option own[] = {
    OPTION("--adapter", TEXTS, AT(adapters.words), "DIR...",
     "and adapters of it, as PEFT writes them; several add up, DIR=0.5 by half"),
    OPTION("--prompt", TEXTS, AT(prompts), "TEXT...", "the beginnings; one is printed as it grows"),
    OPTION("--prompts", TEXT, AT(prompts_file), "FILE",
     "a beginning in each line; - for standard input"),
    OPTION("--chat", FLAG, AT(chats), NULL,
     "prompts are what a user says: write them by the folder's chat template, print the answer"),
    OPTION("--system", TEXT, AT(system), "TEXT", "what the system says before"),
    CLI_NO_ROW
};
static const struct option own_rest[] = {
    OPTION("--stop", TEXTS, AT(stops), "TEXT...", "end a text before any of these"),
    OPTION("--ignore-eos", FLAG, AT(ignores_ends), NULL, "go on after an end-of-text token"),
    OPTION("--batch", INTEGER, AT(batch), "N", "texts at once", .min = 1, .max = 1 << 16,
     .usual = "16"),
    OPTION("--json", FLAG, AT(json), NULL, "one JSON object a text"),
    OPTION("--seed", INTEGER, AT(common.seed), "N", "the same seed gives the same texts",
     .max = 9e15),
    CLI_NO_ROW
};
static const struct option_group groups[] = {
    {.rows = job_model, IN(common)},
    {.rows = own},
    {.rows = job_template, IN(common)},
    {.rows = generate_rows, IN(settings)},
    {.rows = own_rest},
    {.rows = job_dtype, IN(common)},
    {.rows = job_device, IN(common)},
    CLI_NO_GROUP
};
/* clang-format on */

static int check(struct cli_call *call)
{
    struct generate_command *o = call->options;
    int code = zinf_job_check(&o->common);
    if (!code)
        code = check_strings(o);
    return code ? code : check_beams(o);
}

static int work(struct cli_call *call)
{
    struct generate_command *o = call->options;
    if (!job_ranks_works_alone("texts are made"))
        return 0;
    int code = cli_adapters_open(&o->adapters, &o->common.adapter);
    if (!code)
        code = generate(o);
    cli_adapters_close(&o->adapters);
    return code;
}

const struct cli_command cli_generate = {
    .name = "generate",
    .summary = "continue prompts",
    .usage = usage,
    .groups = groups,
    .bytes = sizeof(struct generate_command),
    .usual = &(const struct generate_command){.common = ZINF_JOB_DEFAULT,
                                              .settings = GENERATE_SETTINGS_UNSAID},
    .check = check,
    .work = work,
};
