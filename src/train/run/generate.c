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
    struct zinf_text *text; /* NULL: the place is free */
    int64_t number;         /* the text's, in draws and in calls of made */
    int64_t seen;           /* tokens of it that the model has seen */
    int64_t now;            /* that the next call takes */
    const struct zinf_generate_options *options;
};

struct zinf_generator {
    struct zinf_trainer *trainer;
    const struct zinf_decode_shape *shape; /* NULL: nothing is remembered */
    struct zinf_generate_speed speed;
    int64_t vocab;
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

/* How many tokens of a text can be shown to the model. */
static int64_t capacity(const struct zinf_trainer *trainer, const struct zinf_text *text)
{
    const struct zinf_decode_shape *shape = zinf_trainer_decode_shape(trainer);
    return shape ? shape->capacity : whole_capacity(trainer, text, 1);
}

static int check_text(const struct zinf_trainer *trainer, int64_t number,
                      const struct zinf_text *text)
{
    if (text->n_prompt < 1 || text->n_prompt > capacity(trainer, text))
        return zinf_fail(-EINVAL, "text %lld has %lld tokens; there must be from 1 to %lld",
                         (long long)number + 1, (long long)text->n_prompt,
                         (long long)capacity(trainer, text));
    return call_sources_check(zinf_trainer_decode_shape(trainer), text, number);
}

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

/* The next token of a text from its logits. */
static int extend(struct zinf_generator *g, const struct place *place, float *logits)
{
    const struct zinf_generate_options *o = place->options;
    struct zinf_text *text = place->text;
    struct zinf_sampler sampler = o->sampler;
    sampler.text = (uint32_t)place->number;
    zinf_sample_penalize(sampler.repetition_penalty, text->ids, length(text), logits, g->seen);
    zinf_sample_ban_repeats(sampler.no_repeat_ngram, text->ids, length(text), logits);
    const struct zinf_word_place where = {.ids = text->ids,
                                          .n = length(text),
                                          .n_new = text->n_new,
                                          .most_new = o->max_new_tokens,
                                          .ends = o->ends,
                                          .n_ends = o->n_ends};
    zinf_sample_apply_rules(&o->rules, &where, logits, g->vocab);
    int32_t id = zinf_sample(&sampler, logits, g->vocab, (uint64_t)text->n_new, g->scratch);
    if (is_end(o, id)) {
        text->finish = ZINF_FINISH_END;
        return 0;
    }
    int code = append(text, id);
    if (code)
        return code;
    g->speed.new_tokens++;
    if (text->n_new >= o->max_new_tokens)
        text->finish = ZINF_FINISH_LENGTH;
    else if (length(text) > capacity(g->trainer, text)) /* it could not be shown to the model */
        text->finish = ZINF_FINISH_CONTEXT;
    code = o->made ? o->made(o->arg, place->number, text) : 0;
    if (code > 0)
        text->finish = ZINF_FINISH_STOP;
    return code < 0 ? code : 0;
}

/* ---- calls ---- */

/* How many tokens of each text the call takes: one of each text that only waits for one comes
 * before prompts. Whether there are any of these. */
static bool choose_rows(struct zinf_generator *g)
{
    int64_t left = g->n_rows;
    bool prompts = false;
    call_sources_begin(&g->coming);
    for (int turn = 0; turn < 2; turn++)
        for (int64_t p = 0; p < g->n_places; p++) {
            struct place *place = &g->places[p];
            const struct zinf_text *text = place->text;
            if (!text)
                continue;
            int64_t unseen = length(text) - place->seen;
            bool prompt = place->seen < text->n_prompt, begins = !place->seen && left;
            if (turn != (int)prompt || (begins && !call_sources_take(&g->coming, text)))
                continue;
            place->now = unseen < left ? unseen : left;
            left -= place->now;
            prompts = prompts || (prompt && place->now);
            g->speed.prompt_tokens += prompt ? place->now : 0;
            g->speed.prompt_tokens += begins ? text->n_source : 0;
        }
    return prompts;
}

static bool ends_now(const struct place *place)
{
    return place->text && place->now > 0 && place->seen + place->now == length(place->text);
}

static int64_t add_rows(struct zinf_generator *g, int64_t row, int64_t p, int64_t first, int64_t n)
{
    const struct place *place = &g->places[p];
    for (int64_t i = first; i < first + n; i++, row++) {
        g->ids[row] = place->text->ids[place->seen + i];
        g->sequences[row] = g->sources[row] = (int32_t)p;
        g->positions[row] = (int32_t)(place->seen + i);
    }
    return row;
}

/* Rows whose logits are wanted come last. */
static struct zinf_decode_rows make_rows(struct zinf_generator *g)
{
    struct zinf_decode_rows rows = {
        .ids = g->ids, .sequences = g->sequences, .positions = g->positions, .sources = g->sources};
    for (int64_t p = 0; p < g->n_places; p++) {
        const struct place *place = &g->places[p];
        if (!place->text)
            continue;
        rows.n = add_rows(g, rows.n, p, 0, place->now - ends_now(place));
        if (!place->seen && place->now)
            call_sources_add(&g->coming, place->text, p);
    }
    call_sources_show(&g->coming, &rows);
    for (int64_t p = 0; p < g->n_places; p++)
        if (ends_now(&g->places[p])) {
            rows.n = add_rows(g, rows.n, p, g->places[p].now - 1, 1);
            rows.n_logits++;
        }
    return rows;
}

static int take_call(struct zinf_generator *g)
{
    uint64_t begin = zinf_now_ns();
    bool prompts = choose_rows(g);
    struct zinf_decode_rows rows = make_rows(g);
    int code = zinf_trainer_decode(g->trainer, &rows, g->logits);
    int64_t row = 0;
    for (int64_t p = 0; !code && p < g->n_places; p++) {
        struct place *place = &g->places[p];
        bool wanted = ends_now(place);
        place->seen += place->now;
        place->now = 0;
        if (!wanted)
            continue;
        code = extend(g, place, g->logits + row++ * g->vocab);
        if (place->text->finish)
            place->text = NULL;
    }
    double seconds = (double)(zinf_now_ns() - begin) * 1e-9;
    *(prompts ? &g->speed.prompt_seconds : &g->speed.decode_seconds) += seconds;
    g->speed.decoded_tokens += prompts ? 0 : row;
    return code;
}

/* A token from the whole text; beyond the trainer's length from a window of it. */
static int compute_again(struct zinf_generator *g, struct place *place)
{
    const struct zinf_text *text = place->text;
    uint64_t begin = zinf_now_ns();
    bool first = !text->n_new;
    g->speed.prompt_tokens += first ? text->n_prompt + text->n_source : 0;
    int code = whole_logits(g->trainer, text, text->ids, length(text), g->logits);
    if (!code)
        code = extend(g, place, g->logits);
    double seconds = (double)(zinf_now_ns() - begin) * 1e-9;
    *(first ? &g->speed.prompt_seconds : &g->speed.decode_seconds) += seconds;
    g->speed.decoded_tokens += !first;
    if (text->finish)
        place->text = NULL;
    return code;
}

/* ---- the door ---- */

static int take_memory(struct zinf_generator *g)
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
    return call_sources_init(&g->coming, g->shape);
}

int zinf_generator_create(struct zinf_generator **out, struct zinf_trainer *trainer)
{
    struct zinf_generator *g = *out = calloc(1, sizeof *g);
    if (!g)
        return zinf_fail(-ENOMEM, "no memory for a generator");
    g->trainer = trainer;
    g->shape = zinf_trainer_decode_shape(trainer);
    g->vocab = zinf_model_facts(zinf_trainer_model(trainer))->vocab;
    g->n_places = g->shape ? places_of(g->shape, 1) : 1;
    g->n_rows = g->shape ? g->shape->rows : 1;
    int code = take_memory(g);
    if (!code)
        return 0;
    zinf_generator_destroy(g);
    *out = NULL;
    return code;
}

void zinf_generator_destroy(struct zinf_generator *g)
{
    if (!g)
        return;
    free(g->logits);
    free(g->scratch);
    free(g->seen);
    free(g->places);
    free(g->ids);
    call_sources_fini(&g->coming);
    free(g);
}

static int64_t n_under_way(const struct zinf_generator *g)
{
    int64_t n = 0;
    for (int64_t p = 0; p < g->n_places; p++)
        n += g->places[p].text != NULL;
    return n;
}

int64_t zinf_generator_room(const struct zinf_generator *g)
{
    return g->n_places - n_under_way(g);
}

int zinf_generator_add(struct zinf_generator *g, const struct zinf_generate_options *options,
                       int64_t number, struct zinf_text *text)
{
    int64_t p = 0;
    int code = check_text(g->trainer, number, text);
    while (p < g->n_places && g->places[p].text)
        p++;
    if (!code && p == g->n_places)
        code = zinf_fail(-EBUSY, "%lld texts are under way", (long long)g->n_places);
    if (!code && options->beams.n > 1)
        code = zinf_fail(-EINVAL, "texts that come one after the other have no beams");
    if (code)
        return code;
    text->n_new = 0;
    text->finish = ZINF_FINISH_NONE;
    g->places[p] = (struct place){.text = text, .number = number, .options = options};
    return 0;
}

void zinf_generator_drop(struct zinf_generator *g, const struct zinf_text *text)
{
    for (int64_t p = 0; p < g->n_places; p++)
        if (g->places[p].text == text)
            g->places[p] = (struct place){0};
}

int64_t zinf_generator_call(struct zinf_generator *g)
{
    int code = 0;
    if (n_under_way(g))
        code = g->shape ? take_call(g) : compute_again(g, &g->places[0]);
    return code ? code : n_under_way(g);
}

static int generate_all(struct zinf_trainer *trainer, const struct zinf_generate_options *options,
                        struct zinf_text *texts, int64_t n_texts, struct zinf_generate_speed *speed)
{
    struct zinf_generator *g;
    int64_t next = 0, left = n_texts;
    int code = zinf_generator_create(&g, trainer);
    while (!code && left) {
        for (; !code && next < n_texts && zinf_generator_room(g); next++)
            code = zinf_generator_add(g, options, next, &texts[next]);
        int64_t n = code ? code : zinf_generator_call(g);
        code = n < 0 ? (int)n : 0;
        left = n + n_texts - next;
    }
    if (!code)
        *speed = g->speed;
    zinf_generator_destroy(g);
    return code;
}

int zinf_generate(struct zinf_trainer *trainer, const struct zinf_generate_options *options,
                  struct zinf_text *texts, int64_t n_texts, struct zinf_generate_speed *speed)
{
    int code = 0;
    *speed = (struct zinf_generate_speed){0};
    for (int64_t i = 0; !code && i < n_texts; i++) {
        code = check_text(trainer, i, &texts[i]);
        texts[i].n_new = 0;
        texts[i].finish = ZINF_FINISH_NONE;
    }
    if (code)
        return code;
    return options->beams.n > 1 ? generate_by_beams(trainer, options, texts, n_texts, speed)
                                : generate_all(trainer, options, texts, n_texts, speed);
}
