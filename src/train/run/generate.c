/*
 * generate: which tokens go into the next call, and what is made of its logits. A text in its place
 * has tokens that the model has not seen: its prompt, later the token that was drawn last. Each
 * call takes as many as it has rows for, of texts under way first; a text whose last token is among
 * them gets another one.
 */
#include "train/generate.h"
#include "train/run/beams.h"
#include "train/run/sources.h"
#include "train/run/whole.h"
#include "train/trainer.h"

#include <stdlib.h>

/* A text under way. */
struct place {
    int64_t text; /* -1: free */
    int64_t seen; /* tokens of it that the model has seen */
    int64_t now;  /* that the next call takes */
};

struct generation {
    struct zinf_trainer *trainer;
    const struct zinf_generate_options *options;
    struct zinf_text *texts;
    struct zinf_generate_speed *speed;
    int64_t n_texts, next; /* the first one that has not begun */
    int64_t capacity, vocab;
    float *logits; /* [places][vocab] */
    void *scratch; /* [vocab] of 8 bytes */
    uint8_t *seen; /* [vocab] zeros */
    struct place *places;
    int64_t n_places, n_rows;                       /* at once, of a call */
    int32_t *ids, *sequences, *positions, *sources; /* [n_rows]; a source has its place's number */
    struct call_sources coming;
};

const char *zinf_finish_name(enum zinf_finish finish)
{
    static const char *const names[] = {"none", "length", "context", "end", "stop"};
    return names[finish];
}

/* ---- one text ---- */

static int64_t length(const struct zinf_text *text)
{
    return text->n_prompt + text->n_new;
}

static bool is_end(const struct zinf_generate_options *o, int32_t id)
{
    for (int i = 0; i < o->n_ends; i++)
        if (o->ends[i] == id)
            return true;
    return false;
}

static int append(struct zinf_text *text, int32_t id)
{
    int64_t n = length(text);
    if (text->n_new % 64 == 0) {
        int32_t *moved = realloc(text->ids, (size_t)(n + 64) * sizeof *moved);
        if (!moved)
            return zinf_fail(-ENOMEM, "no memory for %lld tokens", (long long)n + 64);
        text->ids = moved;
    }
    text->ids[n] = id;
    text->n_new++;
    return 0;
}

/* The next token of a text from its logits; says whether the text has ended. */
static int extend(struct generation *g, int64_t number, float *logits)
{
    const struct zinf_generate_options *o = g->options;
    struct zinf_text *text = &g->texts[number];
    struct zinf_sampler sampler = o->sampler;
    sampler.text = (uint32_t)number;
    zinf_sample_penalize(sampler.repetition_penalty, text->ids, length(text), logits, g->seen);
    zinf_sample_ban_repeats(sampler.no_repeat_ngram, text->ids, length(text), logits);
    const struct zinf_word_place place = {.ids = text->ids,
                                          .n = length(text),
                                          .n_new = text->n_new,
                                          .most_new = o->max_new_tokens,
                                          .ends = o->ends,
                                          .n_ends = o->n_ends};
    zinf_sample_apply_rules(&o->rules, &place, logits, g->vocab);
    int32_t id = zinf_sample(&sampler, logits, g->vocab, (uint64_t)text->n_new, g->scratch);
    if (is_end(o, id)) {
        text->finish = ZINF_FINISH_END;
        return 0;
    }
    int code = append(text, id);
    if (code)
        return code;
    g->speed->new_tokens++;
    if (text->n_new >= o->max_new_tokens)
        text->finish = ZINF_FINISH_LENGTH;
    else if (length(text) > g->capacity) /* it could not be shown to the model */
        text->finish = ZINF_FINISH_CONTEXT;
    code = o->made ? o->made(o->arg, number, text) : 0;
    if (code > 0)
        text->finish = ZINF_FINISH_STOP;
    return code < 0 ? code : 0;
}

/* ---- calls ---- */

/* Free places take the texts that have not begun; false: there are none under way. */
static bool fill_places(struct generation *g)
{
    bool any = false;
    for (int64_t p = 0; p < g->n_places; p++) {
        struct place *place = &g->places[p];
        if (place->text < 0 && g->next < g->n_texts)
            *place = (struct place){.text = g->next++};
        any = any || place->text >= 0;
    }
    return any;
}

/* How many tokens of each text the call takes: one of each text that only waits for one comes
 * before prompts. Whether there are any of these. */
static bool choose_rows(struct generation *g)
{
    int64_t left = g->n_rows;
    bool prompts = false;
    call_sources_begin(&g->coming);
    for (int turn = 0; turn < 2; turn++)
        for (int64_t p = 0; p < g->n_places; p++) {
            struct place *place = &g->places[p];
            if (place->text < 0)
                continue;
            const struct zinf_text *text = &g->texts[place->text];
            int64_t unseen = length(text) - place->seen;
            bool prompt = place->seen < text->n_prompt, begins = !place->seen && left;
            if (turn != (int)prompt || (begins && !call_sources_take(&g->coming, text)))
                continue;
            place->now = unseen < left ? unseen : left;
            left -= place->now;
            prompts = prompts || (prompt && place->now);
            g->speed->prompt_tokens += prompt ? place->now : 0;
            g->speed->prompt_tokens += begins ? text->n_source : 0;
        }
    return prompts;
}

static bool ends_now(const struct generation *g, const struct place *place)
{
    return place->text >= 0 && place->now > 0 &&
           place->seen + place->now == length(&g->texts[place->text]);
}

static int64_t add_rows(struct generation *g, int64_t row, int64_t p, int64_t first, int64_t n)
{
    const struct place *place = &g->places[p];
    for (int64_t i = first; i < first + n; i++, row++) {
        g->ids[row] = g->texts[place->text].ids[place->seen + i];
        g->sequences[row] = g->sources[row] = (int32_t)p;
        g->positions[row] = (int32_t)(place->seen + i);
    }
    return row;
}

/* Rows whose logits are wanted come last. */
static struct zinf_decode_rows make_rows(struct generation *g)
{
    struct zinf_decode_rows rows = {
        .ids = g->ids, .sequences = g->sequences, .positions = g->positions, .sources = g->sources};
    for (int64_t p = 0; p < g->n_places; p++) {
        const struct place *place = &g->places[p];
        if (place->text < 0)
            continue;
        rows.n = add_rows(g, rows.n, p, 0, place->now - ends_now(g, place));
        if (!place->seen && place->now)
            call_sources_add(&g->coming, &g->texts[place->text], p);
    }
    call_sources_show(&g->coming, &rows);
    for (int64_t p = 0; p < g->n_places; p++)
        if (ends_now(g, &g->places[p])) {
            rows.n = add_rows(g, rows.n, p, g->places[p].now - 1, 1);
            rows.n_logits++;
        }
    return rows;
}

static int take_call(struct generation *g)
{
    uint64_t begin = zinf_now_ns();
    bool prompts = choose_rows(g);
    struct zinf_decode_rows rows = make_rows(g);
    int code = zinf_trainer_decode(g->trainer, &rows, g->logits);
    int64_t row = 0;
    for (int64_t p = 0; !code && p < g->n_places; p++) {
        struct place *place = &g->places[p];
        bool wanted = ends_now(g, place);
        place->seen += place->now;
        place->now = 0;
        if (!wanted)
            continue;
        code = extend(g, place->text, g->logits + row++ * g->vocab);
        if (g->texts[place->text].finish)
            place->text = -1;
    }
    double seconds = (double)(zinf_now_ns() - begin) * 1e-9;
    *(prompts ? &g->speed->prompt_seconds : &g->speed->decode_seconds) += seconds;
    g->speed->decoded_tokens += prompts ? 0 : row;
    return code;
}

/* The whole text for each of its tokens; beyond the trainer's length a window of it. */
static int compute_again(struct generation *g, int64_t number)
{
    struct zinf_text *text = &g->texts[number];
    int code = 0;
    g->speed->prompt_tokens += text->n_prompt + text->n_source;
    while (!code && !text->finish) {
        uint64_t begin = zinf_now_ns();
        bool first = !text->n_new;
        code = whole_logits(g->trainer, text, text->ids, length(text), g->logits);
        if (!code)
            code = extend(g, number, g->logits);
        double seconds = (double)(zinf_now_ns() - begin) * 1e-9;
        *(first ? &g->speed->prompt_seconds : &g->speed->decode_seconds) += seconds;
        g->speed->decoded_tokens += !first;
    }
    return code;
}

/* ---- all texts ---- */

static int check_texts(const struct generation *g)
{
    for (int64_t i = 0; i < g->n_texts; i++)
        if (g->texts[i].n_prompt < 1 || g->texts[i].n_prompt > g->capacity)
            return zinf_fail(-EINVAL, "text %lld has %lld tokens; there must be from 1 to %lld",
                             (long long)i + 1, (long long)g->texts[i].n_prompt,
                             (long long)g->capacity);
    return call_sources_check(zinf_trainer_decode_shape(g->trainer), g->texts, g->n_texts);
}

static int take_memory(struct generation *g)
{
    size_t vocab = (size_t)g->vocab, rows = (size_t)g->n_rows, places = (size_t)g->n_places;
    g->logits = malloc(places * vocab * sizeof *g->logits);
    g->scratch = malloc(vocab * 8);
    g->seen = calloc(vocab, 1);
    g->places = calloc(places, sizeof *g->places);
    g->ids = calloc(4 * rows, sizeof *g->ids);
    if (!g->logits || !g->scratch || !g->seen || !g->places || !g->ids)
        return zinf_fail(-ENOMEM, "no memory for %zu rows of logits", places);
    g->sequences = g->ids + rows;
    g->positions = g->sequences + rows;
    g->sources = g->positions + rows;
    for (size_t p = 0; p < places; p++)
        g->places[p].text = -1;
    return call_sources_init(&g->coming, zinf_trainer_decode_shape(g->trainer));
}

int zinf_generate(struct zinf_trainer *trainer, const struct zinf_generate_options *options,
                  struct zinf_text *texts, int64_t n_texts, struct zinf_generate_speed *speed)
{
    const struct zinf_decode_shape *shape = zinf_trainer_decode_shape(trainer);
    struct generation g = {.trainer = trainer,
                           .options = options,
                           .texts = texts,
                           .speed = speed,
                           .n_texts = n_texts,
                           .capacity =
                               shape ? shape->capacity : whole_capacity(trainer, texts, n_texts),
                           .vocab = zinf_model_facts(zinf_trainer_model(trainer))->vocab,
                           .n_places = shape ? places_of(shape, 1) : 1,
                           .n_rows = shape ? shape->rows : 1};
    *speed = (struct zinf_generate_speed){0};
    int code = check_texts(&g);
    for (int64_t i = 0; !code && i < n_texts; i++) {
        texts[i].n_new = 0;
        texts[i].finish = ZINF_FINISH_NONE;
    }
    if (!code && options->beams.n > 1)
        return generate_by_beams(trainer, options, texts, n_texts, speed);
    if (!code)
        code = take_memory(&g);
    while (!code && shape && fill_places(&g))
        code = take_call(&g);
    for (int64_t i = 0; !code && !shape && i < n_texts; i++)
        code = compute_again(&g, i);
    free(g.logits);
    free(g.scratch);
    free(g.seen);
    free(g.places);
    free(g.ids);
    call_sources_fini(&g.coming);
    return code;
}
