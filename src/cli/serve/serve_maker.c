/*
 * serve_maker: the thread that has the model. Requests are taken in the order in which they came.
 * Their texts take part in every call of the generator until they end; what came later joins as
 * soon as a place is free. One adapter at a time is open: a request for another one waits until the
 * texts that grow have ended, and nothing overtakes it.
 */
#include "cli/serve/serve.h"

#include <stdlib.h>
#include <sys/random.h>

struct maker {
    struct serve_desk *desk;
    struct zinf_session *session;
    const struct serve_limits *limits;
    struct zinf_generator *generator;
    const struct serve_model *model; /* which is open; NULL: none is */
    struct serve_request **at;       /* [limits->requests]: that are being answered */
    int64_t n;
};

/* ---- the model ---- */

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static struct zinf_decode_shape shape_of(const struct maker *m)
{
    const struct zinf_session *s = m->session;
    const int64_t batch = s->job.texts.batch ? s->job.texts.batch : TEXT_USUAL_BATCH;
    const int64_t rows = text_rows(s), total = m->limits->total_tokens;
    const bool sources = s->task == ZINF_TASK_SEQ2SEQ;
    return (struct zinf_decode_shape){
        .sequences = batch,
        .capacity = total,
        .rows = most(rows, batch),
        .sources = sources ? batch : 0,
        .source_capacity = sources ? total : 0,
        .source_rows = sources ? most(rows, total) : 0,
    };
}

static int open_model(struct maker *m, const struct serve_model *model)
{
    const struct zinf_decode_shape shape = shape_of(m);
    struct zinf_trainer *trainer;
    if (m->model == model)
        return 0;
    if (m->model)
        zinf_log(ZINF_LOG_INFO, "%s is opened instead of %s", model->name, m->model->name);
    zinf_generator_destroy(m->generator);
    m->generator = NULL;
    m->model = NULL;
    session_drop_trainers(m->session);
    m->session->job.adapter = model->adapter;
    int code = text_need_trainer(m->session, &shape, &trainer);
    if (!code)
        code = zinf_generator_create(&m->generator, trainer);
    m->model = code ? NULL : model;
    return code;
}

/* ---- the end of a request ---- */

static void end(struct maker *m, struct serve_request *r, enum serve_outcome outcome)
{
    int64_t i = 0, prompts = 0, new_tokens = 0;
    for (int t = 0; t < r->n_texts; t++) {
        const struct zinf_text *made = &r->texts[t].text.made;
        if (r->texts[t].state == SERVE_TEXT_GROWS)
            zinf_generator_drop(m->generator, made);
        prompts += made->source ? made->n_source : made->n_prompt;
        new_tokens += made->n_new;
    }
    pthread_mutex_lock(&m->desk->lock);
    m->desk->counts.requests[outcome]++;
    m->desk->counts.prompt_tokens += (uint64_t)prompts;
    m->desk->counts.new_tokens += (uint64_t)new_tokens;
    pthread_mutex_unlock(&m->desk->lock);
    while (m->at[i] != r)
        i++;
    memmove(m->at + i, m->at + i + 1, (size_t)(--m->n - i) * sizeof *m->at);
    serve_desk_done(m->desk, r);
}

/* An error is an event where the stream has begun, which only this thread decides. */
static void fail(struct maker *m, struct serve_request *r, int status, const char *message)
{
    struct serve_bytes bytes = {0};
    const bool event = r->ask.streams && r->status == 200;
    serve_say_error(status, message, event, &bytes);
    serve_desk_tell(m->desk, r, status, &bytes, true);
    end(m, r, status < 500 ? SERVE_REFUSED : SERVE_FAILED);
}

/* ---- its begin ---- */

static int made(void *arg, int64_t number, const struct zinf_text *text);

static int begin_text(struct maker *m, struct serve_request *r, struct serve_text *t)
{
    const struct serve_ask *ask = &r->ask;
    const struct zinf_job_texts *usual = &m->session->job.texts;
    struct text *text = &t->text;
    const int64_t total = m->limits->total_tokens;
    text->number = t->index;
    int code = ask->dialect == SERVE_CHAT
                   ? text_begin_chat(&r->setup, text, ask->messages, (size_t)ask->n_messages)
                   : text_begin(&r->setup, text, ask->prompts[t->index / ask->copies]);
    if (code)
        return code;
    const int64_t n = text->made.source ? text->made.n_source : text->made.n_prompt;
    const bool asked = ask->settings.max_new_tokens != usual->settings.max_new_tokens;
    const int64_t new_tokens = asked ? ask->settings.max_new_tokens : 0;
    if (n > total || text->made.n_prompt + new_tokens > total)
        return zinf_fail(
            -EINVAL,
            "the prompt has %lld tokens and %lld new ones are asked for; there is room "
            "for %lld together: ask for less, or start zinf serve with more "
            "--max-total-tokens",
            (long long)n, (long long)new_tokens, (long long)total);
    text->told = text->prompt_bytes;
    t->options = generate_options(&r->setup.settings, ask->seed);
    if (r->setup.settings.max_length > 0)
        t->options.max_new_tokens = most(r->setup.settings.max_length - text->made.n_prompt, 1);
    t->options.n_ends = usual->ignores_ends ? 0 : t->options.n_ends;
    t->options.made = made;
    t->options.arg = t;
    return 0;
}

static int begin(struct maker *m, struct serve_request *r)
{
    struct serve_ask *ask = &r->ask;
    const int prompts = ask->dialect == SERVE_CHAT ? 1 : ask->n_prompts;
    r->setup = (struct text_setup){.s = m->session,
                                   .settings = ask->settings,
                                   .stops = ask->stops,
                                   .chat = ask->dialect == SERVE_CHAT ? r->model->chat : NULL};
    if (ask->dialect == SERVE_CHAT && !r->model->chat)
        return zinf_fail(-EINVAL, "%s", r->model->no_chat);
    if (!ask->has_seed && getrandom(&ask->seed, sizeof ask->seed, GRND_NONBLOCK) < 0)
        ask->seed = zinf_now_ns();
    ask->seed = ask->has_seed ? ask->seed : ask->seed >> 12; /* so that JSON can say it */
    int code = text_setup_fill(&r->setup);
    if (code)
        return code;
    r->texts = calloc((size_t)(prompts * ask->copies), sizeof *r->texts);
    if (!r->texts)
        return zinf_fail(-ENOMEM, "no memory for the texts of a request");
    while (!code && r->n_texts < prompts * ask->copies) {
        struct serve_text *t = &r->texts[r->n_texts];
        *t = (struct serve_text){.request = r, .index = r->n_texts++};
        code = begin_text(m, r, t);
    }
    return code;
}

static int say_begin(struct maker *m, struct serve_request *r)
{
    struct serve_bytes bytes = {0};
    int code = 0;
    for (int i = 0; !code && i < r->n_texts; i++)
        code = serve_say_begin(&r->texts[i], &bytes);
    serve_desk_tell(m->desk, r, 200, &bytes, false);
    return code;
}

/* ---- texts ---- */

/* The last piece comes with the end. */
static int made(void *arg, int64_t number, const struct zinf_text *text)
{
    struct serve_text *t = arg;
    struct serve_request *r = t->request;
    struct serve_bytes bytes = {0};
    (void)number;
    int stops = text_decode(&r->setup, &t->text);
    if (stops || text->finish || !r->ask.streams)
        return stops;
    const size_t settled = text_settled(&r->setup, &t->text);
    const size_t from = t->text.told, n = settled > from ? settled - from : 0;
    int code = serve_say_piece(t, t->text.all + from, n, &bytes);
    t->text.told += n;
    serve_desk_tell(r->desk, r, 0, &bytes, false);
    return code;
}

static int64_t count_texts(const struct maker *m, int state)
{
    int64_t n = 0;
    for (int64_t i = 0; i < m->n; i++)
        for (int t = 0; t < m->at[i]->n_texts; t++)
            n += (int)m->at[i]->texts[t].state == state;
    return n;
}

static void add_texts(struct maker *m)
{
    for (int64_t i = 0; i < m->n; i++) {
        struct serve_request *r = m->at[i];
        int code = 0;
        for (int t = 0; !code && t < r->n_texts && zinf_generator_room(m->generator); t++) {
            struct serve_text *text = &r->texts[t];
            if (text->state != SERVE_TEXT_WAITS)
                continue;
            code = zinf_generator_add(m->generator, &text->options, text->index, &text->text.made);
            text->state = code ? SERVE_TEXT_ENDED : SERVE_TEXT_GROWS;
        }
        if (code) {
            fail(m, r, 400, zinf_error());
            i--;
        }
    }
}

static void take_requests(struct maker *m)
{
    struct serve_request *r;
    serve_desk_expire(m->desk); /* what is too late is not begun */
    while (
        (!m->generator || count_texts(m, SERVE_TEXT_WAITS) < zinf_generator_room(m->generator)) &&
        (r = serve_desk_take(m->desk, m->n ? m->model : NULL))) {
        m->at[m->n++] = r;
        int code = open_model(m, r->model);
        if (code) {
            fail(m, r, 500, zinf_error());
            continue;
        }
        code = begin(m, r);
        if (code)
            fail(m, r, code == -ENOMEM ? 500 : 400, zinf_error());
        else if (r->ask.streams && say_begin(m, r))
            fail(m, r, 500, zinf_error());
    }
    if (m->generator)
        add_texts(m);
}

/* Texts that the last call has ended. */
static int end_texts(struct serve_request *r, struct serve_bytes *bytes)
{
    int code = 0;
    for (int i = 0; i < r->n_texts; i++) {
        struct serve_text *t = &r->texts[i];
        if (t->state != SERVE_TEXT_GROWS || !t->text.made.finish)
            continue;
        t->state = SERVE_TEXT_ENDED;
        r->n_ended++;
        if (!code && r->ask.streams)
            code = serve_say_end(t, bytes);
    }
    if (!code && r->n_ended == r->n_texts)
        code = serve_say_all(r, bytes);
    return code;
}

static void look_at(struct maker *m, struct serve_request *r)
{
    struct serve_bytes bytes = {0};
    int code = end_texts(r, &bytes);
    const bool all = r->n_ended == r->n_texts;
    const uint64_t ns = zinf_now_ns() - r->begin_ns;
    if (code || (!all && ns > (uint64_t)m->limits->seconds * 1000000000u)) {
        serve_bytes_free(&bytes);
        fail(m, r, code ? 500 : 504,
             code ? zinf_error() : "the request has taken longer than zinf serve's --timeout");
        return;
    }
    const bool gone = !all && serve_desk_is_gone(m->desk, r);
    serve_desk_tell(m->desk, r, all || gone ? 200 : 0, &bytes, all || gone);
    if (all || gone)
        end(m, r, all ? SERVE_ANSWERED : SERVE_LEFT);
}

/* One call for all texts. */
static int step(struct maker *m)
{
    const int64_t grow = count_texts(m, SERVE_TEXT_GROWS);
    const int64_t left = zinf_generator_call(m->generator);
    char message[512];
    if (left < 0) {
        snprintf(message, sizeof message, "%s", zinf_error());
        while (m->n)
            fail(m, m->at[0], 500, message);
        return zinf_fail((int)left, "%s", message);
    }
    pthread_mutex_lock(&m->desk->lock);
    m->desk->counts.calls += grow > 0;
    m->desk->counts.call_texts += (uint64_t)grow;
    pthread_mutex_unlock(&m->desk->lock);
    for (int64_t i = m->n; i > 0; i--)
        look_at(m, m->at[i - 1]);
    return 0;
}

/* ---- the door ---- */

int serve_make(struct serve_desk *desk, int (*ready)(void *arg), bool (*stop)(void *arg), void *arg)
{
    const struct serve_options *o = desk->options;
    struct maker m = {.desk = desk, .session = o->session, .limits = &o->limits};
    m.at = calloc((size_t)o->limits.requests, sizeof *m.at);
    int code =
        m.at ? open_model(&m, &o->models[0])
             : zinf_fail(-ENOMEM, "no memory for %lld requests", (long long)o->limits.requests);
    if (!code)
        code = ready(arg);
    for (bool stops = false; !code && !(stops && !m.n);) {
        stops = stop(arg);
        if (stops)
            serve_desk_close(desk);
        take_requests(&m);
        if (m.n)
            code = step(&m);
        else if (!stops)
            serve_desk_wait(desk);
    }
    serve_desk_close(desk);
    zinf_generator_destroy(m.generator);
    free(m.at);
    return code;
}
