/*
 * texts: prompts gone on with, several at once. Tokens need not end where characters do, and
 * decoding may depend on what is before, so the whole text is decoded after each token. What is
 * shown as it grows holds back what may still change: an unfinished character, and what may be the
 * beginning of a stop string.
 */
#include "api/session.h"

#include <stdlib.h>

/* New tokens of a call, where nobody asks for others. Every call fetches what is not on the device:
 * prompts go through it in few calls then. */
#define USUAL_ROWS 512
#define FETCHING_ROWS 2048
#define USUAL_BATCH 16

/* One text as characters. */
struct shown {
    size_t first; /* of the prompt's own tokens: special ones are before it, which are not shown */
    char *all;    /* prompt and new tokens */
    size_t bytes, prompt_bytes;
    size_t end;  /* where it is cut: at a stop string, or all */
    size_t from; /* where what is shown begins; */
    size_t told; /* and as far as it was, when it grows */
};
struct texts {
    struct zinf_session *s;
    const char *const *prompts; /* [n] */
    const struct zinf_text_events *events;
    struct generate_settings settings;
    struct zinf_words stops;
    struct zinf_chat *chat;         /* NULL: prompts are gone on with as they are */
    struct zinf_text *at;           /* [n] */
    struct zinf_tokens *sources;    /* [n]: of an encoder-decoder */
    struct shown *shown;            /* [n] */
    int64_t n, longest, all_tokens; /* tokens of the longest prompt, and of all */
    int64_t all_sources, longest_source;
};

/* ---- characters ---- */

/* What an unfinished character is decoded to. */
static const char unfinished[] = "\xef\xbf\xbd";

static int decode(struct texts *o, int64_t number, const struct zinf_text *text)
{
    struct shown *t = &o->shown[number];
    free(t->all);
    t->all = NULL;
    int code = zinf_tokenizer_decode(o->s->tokenizer, text->ids + t->first,
                                     (size_t)(text->n_prompt + text->n_new) - t->first, &t->all,
                                     &t->bytes);
    t->end = t->bytes;
    return code;
}

/* Where the first stop string in the new text begins; its end if there is none. */
static size_t find_stop(const struct texts *o, const struct shown *t)
{
    size_t first = t->prompt_bytes < t->bytes ? t->prompt_bytes : t->bytes, end = t->bytes;
    for (int i = 0; i < o->stops.n; i++) {
        const char *stop = o->stops.items[i];
        const char *at = memmem(t->all + first, t->bytes - first, stop, strlen(stop));
        if (at && (size_t)(at - t->all) < end)
            end = (size_t)(at - t->all);
    }
    return end;
}

/* Up to where the text will stay as it is. */
static size_t settled(const struct texts *o, const struct shown *t)
{
    const size_t width = sizeof unfinished - 1;
    size_t end = t->end;
    while (end >= t->prompt_bytes + width && !memcmp(t->all + end - width, unfinished, width))
        end -= width;
    size_t least = end;
    for (int i = 0; i < o->stops.n; i++)
        for (size_t n = strlen(o->stops.items[i]); n > 0; n--)
            if (n <= end && end - n >= t->prompt_bytes && end - n < least &&
                !memcmp(t->all + end - n, o->stops.items[i], n))
                least = end - n;
    return least;
}

static void tell(const struct texts *o, struct shown *t, size_t end)
{
    if (end > t->told)
        o->events->grown(o->events->arg, t->all + t->told, end - t->told);
    t->told = end > t->told ? end : t->told;
}

static int made(void *arg, int64_t number, const struct zinf_text *text)
{
    struct texts *o = arg;
    struct shown *t = &o->shown[number];
    int code = decode(o, number, text);
    if (code)
        return code;
    t->end = find_stop(o, t);
    if (o->n == 1 && o->events->grown)
        tell(o, t, settled(o, t));
    return t->end < t->bytes;
}

/* ---- prompts ---- */

/* An adapter's folder may say the template that it was trained by; the tokens are the model's. */
static int open_template(struct texts *o)
{
    const struct zinf_session *s = o->s;
    struct zinf_chat *adapted = NULL;
    const char *name = s->job.chat_template;
    if (!name && s->job.adapter && !zinf_chat_open(&adapted, s->job.adapter, NULL, s->tokenizer))
        name = zinf_chat_name(adapted);
    int code = zinf_chat_open(&o->chat, s->job.model, name, s->tokenizer);
    zinf_chat_close(adapted);
    return code;
}

/* Where the template's stop is no single token, its text ends an answer. */
static int open_chat(struct texts *o)
{
    int32_t id;
    int code = open_template(o);
    if (code)
        return code;
    const char *stop = zinf_chat_stop(o->chat, &id);
    if (id >= 0 && o->settings.n_ends < GENERATE_MAX_ENDS)
        o->settings.ends[o->settings.n_ends++] = id;
    else if (*stop && o->stops.n < ZINF_MOST_WORDS)
        o->stops.items[o->stops.n++] = stop;
    return 0;
}

/* A user's words, after the system's, as ids to be gone on with. */
static int encode_chat(const struct texts *o, const char *prompt, struct zinf_tokens *ids)
{
    const char *system = o->s->job.texts.system;
    const struct zinf_chat_message messages[] = {{"system", system, false},
                                                 {"user", prompt, false}};
    struct zinf_sample sample = ZINF_SAMPLE_EMPTY;
    int code = zinf_chat_encode(o->chat, messages + !system, system ? 2 : 1, true, &sample);
    if (!code) { /* its ids become the caller's */
        *ids = sample.ids;
        sample.ids = (struct zinf_tokens){0};
    }
    zinf_sample_free(&sample);
    return code;
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
static int encode_plain(const struct texts *o, const char *prompt, struct zinf_tokens *out,
                        size_t *first)
{
    struct zinf_tokens ids = {0};
    int code = zinf_tokenizer_encode(o->s->tokenizer, prompt, strlen(prompt), &ids);
    if (!code && !ids.count)
        code = zinf_fail(-EINVAL, "--prompt is empty: give at least one character");
    if (!code)
        code = zinf_tokenizer_frame(o->s->tokenizer, &ids, NULL, out, NULL);
    *first = code ? 0 : find_first(out, &ids);
    zinf_tokens_free(&ids);
    return code;
}

/* What an encoder reads, ended as in training: ids become its source's, which text borrows. The
 * text begins with the token that the decoder is fed first, which nobody wants to see. */
static int make_source(const struct zinf_session *s, struct zinf_tokens *ids,
                       struct zinf_text *text)
{
    int32_t start, end, *first = NULL, *all = NULL;
    int code = job_task_token(s, "decoder_start_token_id", &start);
    if (!code)
        code = job_task_token(s, "eos_token_id", &end);
    if (code)
        return code;
    bool ends = ids->ids[ids->count - 1] == end;
    first = malloc(sizeof *first);
    all = realloc(ids->ids, (ids->count + 1) * sizeof *all);
    if (all)
        ids->ids = all;
    if (!all || !first) {
        free(first);
        return zinf_fail(-ENOMEM, "no memory for a prompt of %zu tokens", ids->count);
    }
    if (!ends)
        ids->ids[ids->count++] = end;
    *first = start;
    *text = (struct zinf_text){
        .ids = first, .n_prompt = 1, .source = ids->ids, .n_source = (int64_t)ids->count};
    return 0;
}

static int check_ids(const struct texts *o, int64_t number, const struct zinf_tokens *ids)
{
    const struct zinf_model_facts *facts = zinf_model_facts(o->s->model);
    for (size_t i = 0; i < ids->count; i++)
        if (ids->ids[i] >= facts->vocab)
            return zinf_fail(-EINVAL,
                             "the prompt's token id %d is outside of the model's "
                             "vocabulary of %lld: the tokenizer does not belong to this model",
                             ids->ids[i], (long long)facts->vocab);
    if ((int64_t)ids->count > facts->context)
        return zinf_fail(-EINVAL, "prompt %lld has %zu tokens; the model's context is %lld",
                         (long long)number + 1, ids->count, (long long)facts->context);
    return 0;
}

static int encode(struct texts *o, int64_t number)
{
    struct zinf_text *text = &o->at[number];
    struct shown *shown = &o->shown[number];
    struct zinf_tokens ids = {0};
    int code = o->chat ? encode_chat(o, o->prompts[number], &ids)
                       : encode_plain(o, o->prompts[number], &ids, &shown->first);
    if (!code)
        code = check_ids(o, number, &ids);
    *text = (struct zinf_text){.ids = ids.ids, .n_prompt = (int64_t)ids.count};
    if (!code && o->s->task == ZINF_TASK_SEQ2SEQ) {
        code = make_source(o->s, &ids, text);
        o->sources[number] = ids;
        text->ids = code ? NULL : text->ids;
        shown->first = 1; /* the decoder's start */
    }
    o->all_tokens += text->n_prompt;
    o->longest = text->n_prompt > o->longest ? text->n_prompt : o->longest;
    o->all_sources += text->n_source;
    o->longest_source = text->n_source > o->longest_source ? text->n_source : o->longest_source;
    if (!code)
        code = decode(o, number, text);
    shown->prompt_bytes = shown->bytes;
    shown->from = shown->told = o->chat ? shown->bytes : 0; /* of a chat the answer alone */
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
    const struct zinf_session *s = o->s;
    const int64_t context = zinf_model_facts(s->model)->context;
    const bool fetches = s->config->offload_param.device != ZINF_PLACE_NONE;
    const int64_t batch = s->job.texts.batch ? s->job.texts.batch : USUAL_BATCH;
    const int64_t beams = most(o->settings.num_beams, 1);
    const int64_t rows = fetches ? FETCHING_ROWS : USUAL_ROWS, source = o->longest_source;
    struct zinf_decode_shape shape = {
        .sequences = least(batch, o->n) * beams,
        .capacity = least(context, o->longest + o->settings.max_new_tokens - 1),
        .rows = least(rows, o->all_tokens),
        .sources = source ? least(batch, o->n) : 0,
        .source_capacity = source,
        .source_rows = most(least(rows, o->all_sources), source),
    };
    shape.rows = most(shape.rows, shape.sequences);
    return shape;
}

static bool covers(const struct zinf_decode_shape *has, const struct zinf_decode_shape *wants)
{
    return has->sequences >= wants->sequences && has->capacity >= wants->capacity &&
           has->sources >= wants->sources && has->source_capacity >= wants->source_capacity;
}

/* Weights that steps have changed are those of the trainer that made them. Where keys and values
 * cannot be remembered, every token takes its whole text. */
static int need_generator(const struct texts *o, struct zinf_trainer **out)
{
    struct zinf_session *s = o->s;
    const struct zinf_decode_shape shape = shape_of(o);
    *out = s->trains ? s->trainer : s->generator;
    if (s->trains || (s->generator && covers(zinf_trainer_decode_shape(s->generator), &shape)))
        return 0;
    struct zinf_trainer_options options = {
        .mode = ZINF_TRAINER_FORWARD,
        .model_path = s->job.model,
        .adapter = s->job.adapter,
        .config = s->config,
        .device = s->device,
        .decode = shape,
    };
    session_drop_trainers(s);
    int code = zinf_trainer_create(&s->generator, &options);
    if (code == -ENOTSUP) {
        zinf_log(ZINF_LOG_WARN, "every token computes its whole text again: %s", zinf_error());
        options.decode = (struct zinf_decode_shape){0};
        options.seq_len = least(s->seq_len, shape.capacity);
        options.source_len = shape.source_capacity;
        code = zinf_trainer_create(&s->generator, &options);
    }
    *out = s->generator;
    return code;
}

/* ---- the door ---- */

static int prepare(struct texts *o)
{
    struct zinf_session *s = o->s;
    int code = session_ready(s, JOB_TEXTS);
    if (!code)
        code = job_task_need_texts(s);
    if (!code)
        code = job_task_need_tokenizer(s);
    o->settings = s->job.texts.settings;
    o->stops = s->job.texts.stops;
    if (!code)
        code = generate_read_config(&o->settings, s->job.model, s->model);
    if (!code && s->job.texts.chats)
        code = open_chat(o);
    for (int64_t i = 0; !code && i < o->n; i++)
        code = encode(o, i);
    if (!code && o->settings.max_length > 0)
        o->settings.max_new_tokens =
            o->settings.max_length > o->longest ? o->settings.max_length - o->longest : 1;
    return code;
}

/* What follows a prompt is cut off of it for the time of the call. */
static int tell_all(const struct texts *o)
{
    for (int64_t i = 0; i < o->n; i++) {
        struct shown *t = &o->shown[i];
        const struct zinf_text *text = &o->at[i];
        const size_t begin = t->prompt_bytes < t->end ? t->prompt_bytes : t->end;
        if (o->n == 1 && o->events->grown)
            tell(o, t, t->end);
        if (!o->events->made)
            continue;
        char *prompt = strndup(t->all, begin);
        if (!prompt)
            return zinf_fail(-ENOMEM, "no memory for a text");
        t->all[t->end] = 0;
        const struct zinf_answer answer = {
            .size = sizeof answer,
            .prompt = text->source ? o->prompts[i] : prompt,
            .text = t->all + begin,
            .whole = t->all + (t->from < t->end ? t->from : t->end),
            .finish = zinf_finish_name(text->finish),
            .ids = text->ids + text->n_prompt,
            .n_ids = text->n_new,
            .prompt_tokens = text->source ? text->n_source : text->n_prompt,
        };
        o->events->made(o->events->arg, (size_t)i, &answer);
        free(prompt);
    }
    return 0;
}

static int make(struct texts *o, struct zinf_text_speed *result)
{
    const struct zinf_job *c = &o->s->job;
    struct zinf_generate_speed speed;
    struct zinf_trainer *trainer;
    int code = need_generator(o, &trainer);
    if (code)
        return code;
    struct zinf_generate_options options = generate_options(&o->settings, (uint64_t)c->seed);
    options.n_ends = c->texts.ignores_ends ? 0 : o->settings.n_ends;
    options.made = made;
    options.arg = o;
    code = zinf_generate(trainer, &options, o->at, o->n, &speed);
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
    struct texts o = {.s = s, .prompts = prompts, .events = events, .n = (int64_t)n};
    o.at = calloc(n, sizeof *o.at);
    o.sources = calloc(n, sizeof *o.sources);
    o.shown = calloc(n, sizeof *o.shown);
    int code = o.at && o.sources && o.shown ? prepare(&o)
                                            : zinf_fail(-ENOMEM, "no memory for %zu prompts", n);
    if (!code)
        code = make(&o, speed);
    for (size_t i = 0; o.at && o.sources && o.shown && i < n; i++) {
        free(o.at[i].ids);
        free(o.shown[i].all);
        zinf_tokens_free(&o.sources[i]);
    }
    free(o.at);
    free(o.sources);
    free(o.shown);
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
