/*
 * texts: prompts continued, several at once, and one of them shown as it grows.
 */
#include "api/texts.h"

#include <stdlib.h>

struct texts {
    struct text_setup setup;
    struct zinf_chat *chat;
    const char *const *prompts; /* [n] */
    const struct zinf_text_events *events;
    struct text *at;                /* [n] */
    struct zinf_text *made;         /* [n]: what the trainer continues */
    int64_t n, longest, all_tokens; /* tokens of the longest prompt, and of all */
    int64_t all_sources, longest_source;
};

static void tell(const struct texts *o, struct text *t, size_t end)
{
    if (end > t->told)
        o->events->grown(o->events->arg, t->all + t->told, end - t->told);
    t->told = end > t->told ? end : t->told;
}

static int made(void *arg, int64_t number, const struct zinf_text *text)
{
    struct texts *o = arg;
    struct text *t = &o->at[number];
    t->made = *text;
    int stops = text_decode(&o->setup, t);
    if (stops >= 0 && o->n == 1 && o->events->grown)
        tell(o, t, text_settled(&o->setup, t));
    return stops;
}

/* ---- prompts ---- */

/* A user's words, after the system's. */
static int begin_chat(const struct texts *o, struct text *t, const char *prompt)
{
    const char *system = o->setup.s->job.texts.system;
    const struct zinf_chat_message messages[] = {{"system", system, false},
                                                 {"user", prompt, false}};
    return text_begin_chat(&o->setup, t, messages + !system, system ? 2 : 1);
}

static int begin(struct texts *o, int64_t number)
{
    struct text *t = &o->at[number];
    t->number = number;
    int code = o->chat ? begin_chat(o, t, o->prompts[number])
                       : text_begin(&o->setup, t, o->prompts[number]);
    o->all_tokens += t->made.n_prompt;
    o->longest = t->made.n_prompt > o->longest ? t->made.n_prompt : o->longest;
    o->all_sources += t->made.n_source;
    o->longest_source = t->made.n_source > o->longest_source ? t->made.n_source : o->longest_source;
    return code;
}

/* ---- the trainer ---- */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* What must be remembered of each text: all but the last new token, and its source. */
static struct zinf_decode_shape shape_of(const struct texts *o)
{
    const struct zinf_session *s = o->setup.s;
    const int64_t context = zinf_model_facts(s->model)->context;
    const int64_t batch = s->job.texts.batch ? s->job.texts.batch : TEXT_USUAL_BATCH;
    const int64_t beams = most(o->setup.settings.num_beams, 1);
    const int64_t rows = text_rows(s), source = o->longest_source;
    struct zinf_decode_shape shape = {
        .sequences = least(batch, o->n) * beams,
        .capacity = least(context, o->longest + o->setup.settings.max_new_tokens - 1),
        .rows = least(rows, o->all_tokens),
        .sources = source ? least(batch, o->n) : 0,
        .source_capacity = source,
        .source_rows = most(least(rows, o->all_sources), source),
    };
    shape.rows = most(shape.rows, shape.sequences);
    return shape;
}

/* ---- the door ---- */

static int prepare(struct texts *o, struct zinf_session *s)
{
    struct generate_settings *settings = &o->setup.settings;
    int code = session_ready(s, JOB_TEXTS);
    if (!code)
        code = job_task_need_texts(s);
    if (!code)
        code = job_task_need_tokenizer(s);
    if (!code && s->job.texts.chats)
        code = text_open_chat(s, &o->chat);
    o->setup.chat = o->chat;
    if (!code)
        code = text_setup_fill(&o->setup);
    for (int64_t i = 0; !code && i < o->n; i++)
        code = begin(o, i);
    if (!code && settings->max_length > 0)
        settings->max_new_tokens =
            settings->max_length > o->longest ? settings->max_length - o->longest : 1;
    return code;
}

/* What follows a prompt is cut off of it for the time of the call. */
static int tell_all(const struct texts *o)
{
    for (int64_t i = 0; i < o->n; i++) {
        struct text *t = &o->at[i];
        const struct zinf_text *text = &t->made;
        const size_t begin = text_new(t);
        if (o->n == 1 && o->events->grown)
            tell(o, t, t->end);
        if (!o->events->made)
            continue;
        char *prompt = malloc(begin + 1);
        if (!prompt)
            return zinf_fail(-ENOMEM, "no memory for a text");
        memcpy(prompt, t->all, begin);
        prompt[begin] = t->all[t->end] = 0;
        const size_t from = t->from < t->end ? t->from : t->end;
        const struct zinf_answer answer = {
            .size = sizeof answer,
            .prompt = text->source ? o->prompts[i] : prompt,
            .text = t->all + begin,
            .whole = t->all + from,
            .finish = zinf_finish_name(text->finish),
            .ids = text->ids + text->n_prompt,
            .n_ids = text->n_new,
            .prompt_tokens = text->source ? text->n_source : text->n_prompt,
            .prompt_bytes = text->source ? strlen(o->prompts[i]) : begin,
            .text_bytes = t->end - begin,
            .whole_bytes = t->end - from,
        };
        o->events->made(o->events->arg, (size_t)i, &answer);
        free(prompt);
    }
    return 0;
}

/* The trainer's copies of the texts hold their ids for the time of the call. */
static int make_all(struct texts *o, struct zinf_trainer *trainer,
                    const struct zinf_generate_options *options, struct zinf_generate_speed *speed)
{
    for (int64_t i = 0; i < o->n; i++)
        o->made[i] = o->at[i].made;
    int code = zinf_generate(trainer, options, o->made, o->n, speed);
    for (int64_t i = 0; i < o->n; i++)
        o->at[i].made = o->made[i];
    return code;
}

static int make(struct texts *o, struct zinf_text_speed *result)
{
    struct zinf_session *s = o->setup.s;
    const struct zinf_job *c = &s->job;
    const struct zinf_decode_shape shape = shape_of(o);
    struct zinf_generate_speed speed;
    struct zinf_trainer *trainer;
    int code = text_need_trainer(s, &shape, &trainer);
    if (code)
        return code;
    struct zinf_generate_options options = generate_options(&o->setup.settings, (uint64_t)c->seed);
    options.n_ends = c->texts.ignores_ends ? 0 : options.n_ends;
    options.made = made;
    options.arg = o;
    code = make_all(o, trainer, &options, &speed);
    if (!code)
        code = tell_all(o);
    const struct zinf_text_speed found = {.prompt_tokens = speed.prompt_tokens,
                                          .new_tokens = speed.new_tokens,
                                          .decoded_tokens = speed.decoded_tokens,
                                          .prompt_seconds = speed.prompt_seconds,
                                          .decode_seconds = speed.decode_seconds};
    if (!code && result)
        session_give(result, &found, sizeof found);
    return code;
}

int zinf_session_texts(struct zinf_session *s, const char *const *prompts, size_t n,
                       const struct zinf_text_events *events, struct zinf_text_speed *speed)
{
    struct texts o = {.prompts = prompts, .events = events, .n = (int64_t)n};
    o.setup =
        (struct text_setup){.s = s, .settings = s->job.texts.settings, .stops = s->job.texts.stops};
    o.at = calloc(n, sizeof *o.at);
    o.made = calloc(n, sizeof *o.made);
    int code = o.at && o.made ? prepare(&o, s) : zinf_fail(-ENOMEM, "no memory for %zu prompts", n);
    if (!code)
        code = make(&o, speed);
    for (size_t i = 0; o.at && i < n; i++)
        text_free(&o.at[i]);
    free(o.at);
    free(o.made);
    zinf_chat_close(o.chat);
    return code;
}

static void keep_text(void *arg, size_t number, const struct zinf_answer *answer)
{
    (void)number;
    *(char **)arg = strdup(answer->text);
}

int zinf_session_generate(struct zinf_session *s, const char *prompt, char **out)
{
    const struct zinf_text_events events = {.size = sizeof events, .made = keep_text, .arg = out};
    *out = NULL;
    int code = zinf_session_texts(s, &prompt, 1, &events, NULL);
    return code || *out ? code : zinf_fail(-ENOMEM, "no memory for a text");
}
