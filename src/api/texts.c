/*
 * texts: prompts continued, several at once, and one of them shown as it grows. Where ranks share
 * the model's tensors or layers, each of them makes all texts, of the same logits, and the first
 * one shows them.
 */
#include "api/texts.h"

#include "train/seats.h"

#include <stdlib.h>
#include <xxhash.h>

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

static int prepare(struct texts *o, struct zinf_session *s)
{
    struct generate_settings *settings = &o->setup.settings;
    int code = job_task_need_texts(s);
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

static int make(struct texts *o, struct zinf_trainer *trainer, struct zinf_text_speed *result)
{
    const struct zinf_job *c = &o->setup.s->job;
    struct zinf_generate_speed speed;
    struct zinf_generate_options options = generate_options(&o->setup.settings, (uint64_t)c->seed);
    options.n_ends = c->texts.ignores_ends ? 0 : options.n_ends;
    options.made = made;
    options.arg = o;
    int code = make_all(o, trainer, &options, &speed);
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

static int make_alone(struct texts *o, struct zinf_text_speed *result)
{
    const struct zinf_decode_shape shape = shape_of(o);
    struct zinf_trainer *trainer;
    int code = text_need_trainer(o->setup.s, &shape, &trainer);
    return code ? code : make(o, trainer, result);
}

/* ---- by several ranks ---- */

struct together {
    struct texts *seats; /* each seat's own */
    struct zinf_text_speed *speed;
};

/* Of prompts and of what decides their texts. */
static uint64_t sum_of(const struct texts *o)
{
    const struct generate_settings settings = o->setup.settings;
    uint64_t sum = (uint64_t)o->setup.s->job.seed;
    for (int64_t i = 0; i < o->n; i++) {
        const struct zinf_text *text = &o->at[i].made;
        const uint64_t numbers[] = {
            sum, XXH3_64bits(text->ids, (size_t)text->n_prompt * sizeof *text->ids),
            XXH3_64bits(text->source, (size_t)text->n_source * sizeof *text->source),
            (uint64_t)settings.max_new_tokens};
        sum = XXH3_64bits(numbers, sizeof numbers);
    }
    return sum;
}

static int make_on_seat(void *arg, uint32_t seat, struct zinf_net *net)
{
    struct together *t = arg;
    struct texts *o = &t->seats[seat];
    const struct zinf_session *s = o->setup.s;
    const int *gpus = job_seats_gpus(s);
    const struct zinf_decode_shape shape = shape_of(o);
    const struct text_trainer wanted = {&shape, net, gpus ? &gpus[seat] : NULL};
    struct zinf_trainer_options options = session_trainer_options(s, ZINF_TRAINER_FORWARD);
    struct zinf_trainer *trainer = NULL;
    options.net = net;
    int code = zinf_run_compare_texts(&options, sum_of(o));
    if (!code)
        code = text_make_trainer(s, &wanted, &trainer);
    if (!code)
        code = make(o, trainer, seat ? NULL : t->speed);
    zinf_trainer_destroy(trainer);
    if (code && net)
        zinf_net_tell(net, zinf_error());
    return code;
}

static bool is_above_one(const struct zinf_session *s, const char *key)
{
    const struct zinf_config_setting *asked = zinf_config_settings_find(&s->job.settings, key);
    return asked && (asked->text ? strtod(asked->text, NULL) : asked->number) > 1;
}

/* Whether the configuration has ranks share the model, if the ranks that were started and its own
 * zinf.seats are several. What is wrong with it is said by the load that the session makes. */
static bool config_shares(struct zinf_session *s)
{
    static const struct zinf_config_setting one = {.key = "train_micro_batch_size_per_gpu",
                                                   .number = 1};
    struct zinf_config_context context = session_context(s);
    struct zinf_config *config;
    uint32_t rank, world = 1;
    bool shares = false;
    if (!s->job.config)
        return false;
    if (zinf_net_launched_as(&rank, &world))
        context.world_size = world;
    context.quiet = context.no_training = context.no_steps = context.show = true;
    if (zinf_config_settings_add(&context.settings, &one) ||
        session_load_config(s, &context, &config))
        return false;
    for (size_t axis = 1; axis < sizeof config->mesh / sizeof *config->mesh; axis++)
        shares |= config->mesh[axis] > 1;
    zinf_config_destroy(config);
    return shares;
}

bool texts_are_shared(struct zinf_session *s)
{
    return s->job.seats > 1 || s->job.devices || is_above_one(s, "zinf.mesh.tensor") ||
           is_above_one(s, "zinf.mesh.pipe") || is_above_one(s, "zinf.mesh.context") ||
           config_shares(s);
}

/* ---- the door ---- */

static int open_texts(struct texts *o, struct zinf_session *s, const struct texts *like)
{
    *o = *like;
    o->setup =
        (struct text_setup){.s = s, .settings = s->job.texts.settings, .stops = s->job.texts.stops};
    o->at = calloc((size_t)o->n, sizeof *o->at);
    o->made = calloc((size_t)o->n, sizeof *o->made);
    return o->at && o->made ? prepare(o, s)
                            : zinf_fail(-ENOMEM, "no memory for %lld prompts", (long long)o->n);
}

static void close_texts(struct texts *o)
{
    for (int64_t i = 0; o->at && i < o->n; i++)
        text_free(&o->at[i]);
    free(o->at);
    free(o->made);
    zinf_chat_close(o->chat);
}

int zinf_session_texts(struct zinf_session *s, const char *const *prompts, size_t n,
                       const struct zinf_text_events *events, struct zinf_text_speed *speed)
{
    static const struct zinf_text_events quiet = {.size = sizeof quiet};
    int code = session_ready(s, texts_are_shared(s) ? JOB_GENERATES : JOB_TEXTS);
    if (code)
        return code;
    const bool shared = s->use == JOB_GENERATES;
    const uint32_t n_seats = shared ? (uint32_t)s->config->seats : 1;
    struct texts *seats = calloc(n_seats, sizeof *seats);
    struct together all = {.seats = seats, .speed = speed};
    if (!seats)
        return zinf_fail(-ENOMEM, "no memory for %u seats", n_seats);
    for (uint32_t i = 0; !code && i < n_seats; i++) {
        const bool shows = !i && (!shared || job_ranks_is_first(s->net));
        const struct texts like = {
            .prompts = prompts, .events = shows ? events : &quiet, .n = (int64_t)n};
        code = open_texts(&seats[i], s, &like);
    }
    if (!code && shared)
        session_drop_trainers(s);
    if (!code)
        code = shared ? zinf_run_on_seats(n_seats, s->net, make_on_seat, &all, s->run.stuck)
                      : make_alone(&seats[0], speed);
    for (uint32_t i = 0; i < n_seats; i++)
        close_texts(&seats[i]);
    free(seats);
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
