/*
 * generate_beams: runs the model for beam searches. A text takes a sequence a beam; its prompt goes
 * through the first of them alone. When a beam goes on as several, the first keeps its sequence,
 * and the others get copies of it in sequences of beams that went no further: what is remembered
 * moves no more than it must. Texts share calls as in generate.c.
 */
#include "train/decode.h"
#include "train/run/beams.h"
#include "train/run/sources.h"
#include "train/run/whole.h"
#include "train/trainer.h"

#include <stdlib.h>

/* A text under way. */
struct place {
    int64_t text; /* -1: free */
    struct beam_search search;
    int64_t seen, now;    /* tokens of the prompt that the model has seen; that the call takes */
    int32_t *sequences;   /* [beams] */
    const float **logits; /* [beams] */
};

struct beams_run {
    struct zinf_trainer *trainer;
    const struct zinf_generate_options *options;
    struct zinf_text *texts;
    struct zinf_generate_speed *speed;
    int64_t n_texts, next, capacity, vocab, n_beams;
    struct place *places;
    int64_t n_places, n_rows;
    float *logits;                                  /* [places * beams][vocab] */
    int32_t *ids, *sequences, *positions, *sources; /* [n_rows]; a source has its place's number */
    struct call_sources coming;
};

/* ---- texts ---- */

static int begin_text(struct beams_run *r, struct place *p)
{
    const struct zinf_text *text = &r->texts[p->text];
    int64_t room = r->capacity - text->n_prompt + 1; /* the model is not given the last token */
    int64_t most = r->options->max_new_tokens < room ? r->options->max_new_tokens : room;
    p->seen = p->now = 0;
    return beam_search_begin(&p->search, r->options, text, most, r->vocab);
}

/* The best of what has finished, without the token that ended it. */
static int end_text(struct beams_run *r, struct place *p)
{
    const struct beam_search *s = &p->search;
    const struct beam_finished *best = s->n_finished ? &s->finished[0] : NULL;
    struct zinf_text *text = &r->texts[p->text];
    int64_t number = p->text, n_new = best ? best->n_new - best->by_end : 0;
    size_t n = (size_t)(s->n_prompt + n_new);
    int32_t *ids = realloc(text->ids, (n + 1) * sizeof *ids);
    if (!ids)
        return zinf_fail(-ENOMEM, "no memory for %zu tokens", n);
    if (best)
        memcpy(ids, s->done_ids + best->slot * (s->n_prompt + s->most_new), n * sizeof *ids);
    text->ids = ids;
    text->n_new = n_new;
    text->finish = !best || best->by_end                      ? ZINF_FINISH_END
                   : s->most_new < r->options->max_new_tokens ? ZINF_FINISH_CONTEXT
                                                              : ZINF_FINISH_LENGTH;
    r->speed->new_tokens += n_new;
    beam_search_end(&p->search);
    p->text = -1;
    int code = r->options->made ? r->options->made(r->options->arg, number, text) : 0;
    if (code > 0)
        text->finish = ZINF_FINISH_STOP;
    return code < 0 ? code : 0;
}

/* Free places take the texts that have not begun. */
static int fill_places(struct beams_run *r, bool *any)
{
    int code = 0;
    *any = false;
    for (int64_t i = 0; !code && i < r->n_places; i++) {
        struct place *p = &r->places[i];
        if (p->text < 0 && r->next < r->n_texts) {
            p->text = r->next++;
            code = begin_text(r, p);
        }
        *any = *any || p->text >= 0;
    }
    return code;
}

/* ---- what is remembered ---- */

static bool has(const int32_t *list, int64_t n, int32_t wanted)
{
    for (int64_t i = 0; i < n; i++)
        if (list[i] == wanted)
            return true;
    return false;
}

/* A sequence of the place that no beam of new_ones has. */
static int32_t free_sequence(const struct place *p, const int32_t *new_ones)
{
    int64_t n = p->search.n, i = 0;
    while (i + 1 < n && has(new_ones, n, p->sequences[i]))
        i++;
    return p->sequences[i];
}

/* Every beam has a sequence that holds what its parent has seen. first: all beams were the prompt,
 * which the first one's sequence has. */
static int follow_beams(struct beams_run *r, struct place *p, bool first)
{
    const struct beam_search *s = &p->search;
    int32_t *new_ones = malloc((size_t)s->n * sizeof *new_ones);
    int code = new_ones ? 0 : zinf_fail(-ENOMEM, "no memory for %lld beams", (long long)s->n);
    for (int64_t b = 0; !code && b < s->n; b++) {
        int32_t sequence = p->sequences[first ? 0 : s->parents[b]];
        new_ones[b] = has(new_ones, b, sequence) ? -1 : sequence;
    }
    for (int64_t b = 0; !code && b < s->n; b++) {
        if (new_ones[b] >= 0)
            continue;
        new_ones[b] = free_sequence(p, new_ones);
        code = zinf_trainer_copy_sequence(r->trainer, new_ones[b],
                                          p->sequences[first ? 0 : s->parents[b]]);
    }
    if (!code)
        memcpy(p->sequences, new_ones, (size_t)s->n * sizeof *new_ones);
    free(new_ones);
    return code;
}

static int step(struct beams_run *r, struct place *p)
{
    bool first = !p->search.n_new;
    beam_search_step(&p->search, p->logits);
    r->speed->decoded_tokens += !first;
    if (p->search.done)
        return end_text(r, p);
    return zinf_trainer_decode_shape(r->trainer) ? follow_beams(r, p, first) : 0;
}

/* ---- calls ---- */

/* Beams under way come before prompts; all of a text go together. */
static bool choose_rows(struct beams_run *r)
{
    int64_t left = r->n_rows;
    bool prompts = false;
    call_sources_begin(&r->coming);
    for (int turn = 0; turn < 2; turn++)
        for (int64_t i = 0; i < r->n_places; i++) {
            struct place *p = &r->places[i];
            bool prompt = p->text >= 0 && !p->search.n_new;
            bool begins = prompt && !p->seen && left;
            if (p->text < 0 || turn != (int)prompt ||
                (begins && !call_sources_take(&r->coming, &r->texts[p->text])))
                continue;
            int64_t wanted = prompt ? p->search.n_prompt - p->seen : r->n_beams;
            p->now = wanted <= left ? wanted : prompt ? left : 0;
            left -= p->now;
            prompts = prompts || (prompt && p->now);
            r->speed->prompt_tokens += prompt ? p->now : 0;
            r->speed->prompt_tokens += begins ? r->texts[p->text].n_source : 0;
        }
    return prompts;
}

static bool ends_now(const struct place *p)
{
    return p->text >= 0 && p->now && (p->search.n_new || p->seen + p->now == p->search.n_prompt);
}

static void add_row(struct beams_run *r, struct zinf_decode_rows *rows, const struct place *p,
                    int64_t beam, int64_t position)
{
    r->ids[rows->n] = beam_ids(&p->search, beam)[position];
    r->sequences[rows->n] = p->sequences[beam];
    r->sources[rows->n] = (int32_t)(p - r->places);
    r->positions[rows->n++] = (int32_t)position;
}

/* Rows whose logits are wanted come last. */
static struct zinf_decode_rows make_rows(struct beams_run *r)
{
    struct zinf_decode_rows rows = {
        .ids = r->ids, .sequences = r->sequences, .positions = r->positions, .sources = r->sources};
    for (int64_t i = 0; i < r->n_places; i++) {
        const struct place *p = &r->places[i];
        if (p->text < 0 || p->search.n_new || !p->now)
            continue;
        for (int64_t k = p->seen; k < p->seen + p->now - ends_now(p); k++)
            add_row(r, &rows, p, 0, k);
        if (!p->seen)
            call_sources_add(&r->coming, &r->texts[p->text], i);
    }
    call_sources_show(&r->coming, &rows);
    int64_t before = rows.n;
    for (int64_t i = 0; i < r->n_places; i++) {
        struct place *p = &r->places[i];
        if (!ends_now(p))
            continue;
        int64_t beams = p->search.n_new ? r->n_beams : 1;
        for (int64_t b = 0; b < r->n_beams; b++) {
            p->logits[b] = r->logits + (rows.n - before) * r->vocab;
            if (b < beams)
                add_row(r, &rows, p, b, p->search.n_prompt + p->search.n_new - 1);
        }
        for (int64_t b = 1; beams == 1 && b < r->n_beams; b++)
            p->logits[b] = p->logits[0];
    }
    rows.n_logits = rows.n - before;
    return rows;
}

static int take_call(struct beams_run *r)
{
    uint64_t begin = zinf_now_ns();
    bool prompts = choose_rows(r);
    struct zinf_decode_rows rows = make_rows(r);
    int code = zinf_trainer_decode(r->trainer, &rows, r->logits);
    for (int64_t i = 0; !code && i < r->n_places; i++) {
        struct place *p = &r->places[i];
        bool wanted = ends_now(p);
        p->seen += p->text >= 0 && !p->search.n_new ? p->now : 0;
        p->now = 0;
        code = wanted ? step(r, p) : 0;
    }
    double seconds = (double)(zinf_now_ns() - begin) * 1e-9;
    *(prompts ? &r->speed->prompt_seconds : &r->speed->decode_seconds) += seconds;
    return code;
}

/* Every beam's whole text for each of its tokens; beyond the trainer's length a window of it. */
static int compute_again(struct beams_run *r, struct place *p)
{
    const struct beam_search *s = &p->search;
    const struct zinf_text *text = &r->texts[p->text];
    int code = begin_text(r, p);
    r->speed->prompt_tokens += code ? 0 : s->n_prompt + text->n_source;
    while (!code && p->text >= 0) {
        uint64_t begin = zinf_now_ns();
        bool first = !s->n_new;
        for (int64_t b = 0; !code && b < r->n_beams; b++) {
            p->logits[b] = r->logits + (first ? 0 : b) * r->vocab;
            if (!b || !first)
                code = whole_logits(r->trainer, text, beam_ids(s, b), s->n_prompt + s->n_new,
                                    r->logits + b * r->vocab);
        }
        code = code ? code : step(r, p);
        double seconds = (double)(zinf_now_ns() - begin) * 1e-9;
        *(first ? &r->speed->prompt_seconds : &r->speed->decode_seconds) += seconds;
    }
    return code;
}

/* ---- all texts ---- */

static int check_shape(const struct beams_run *r, const struct zinf_decode_shape *shape)
{
    if (!shape || (r->n_places >= 1 && shape->rows >= r->n_beams))
        return 0;
    return zinf_fail(-EINVAL,
                     "%lld beams: the trainer continues %lld sequences by %lld tokens a call, and "
                     "each beam takes one of them",
                     (long long)r->n_beams, (long long)shape->sequences, (long long)shape->rows);
}

static int take_memory(struct beams_run *r)
{
    size_t rows = (size_t)r->n_rows, n = (size_t)r->n_beams;
    r->places = calloc((size_t)r->n_places, sizeof *r->places);
    r->logits = malloc((size_t)r->n_places * n * (size_t)r->vocab * sizeof *r->logits);
    r->ids = calloc(4 * rows, sizeof *r->ids);
    if (!r->places || !r->logits || !r->ids)
        return zinf_fail(-ENOMEM, "no memory for %zu beams", (size_t)r->n_places * n);
    r->sequences = r->ids + rows;
    r->positions = r->sequences + rows;
    r->sources = r->positions + rows;
    for (int64_t i = 0; i < r->n_places; i++) {
        struct place *p = &r->places[i];
        p->text = -1;
        p->sequences = malloc(n * sizeof *p->sequences);
        p->logits = malloc(n * sizeof *p->logits);
        if (!p->sequences || !p->logits)
            return zinf_fail(-ENOMEM, "no memory for %zu beams", n);
        for (size_t b = 0; b < n; b++)
            p->sequences[b] = (int32_t)((size_t)i * n + b);
    }
    return call_sources_init(&r->coming, zinf_trainer_decode_shape(r->trainer));
}

static void release_memory(struct beams_run *r)
{
    for (int64_t i = 0; r->places && i < r->n_places; i++) {
        beam_search_end(&r->places[i].search);
        free(r->places[i].sequences);
        free(r->places[i].logits);
    }
    free(r->places);
    free(r->logits);
    free(r->ids);
    call_sources_fini(&r->coming);
}

int generate_by_beams(struct zinf_trainer *trainer, const struct zinf_generate_options *options,
                      struct zinf_text *texts, int64_t n_texts, struct zinf_generate_speed *speed)
{
    const struct zinf_decode_shape *shape = zinf_trainer_decode_shape(trainer);
    struct beams_run r = {.trainer = trainer,
                          .options = options,
                          .texts = texts,
                          .speed = speed,
                          .n_texts = n_texts,
                          .n_beams = options->beams.n,
                          .capacity =
                              shape ? shape->capacity : whole_capacity(trainer, texts, n_texts),
                          .vocab = zinf_model_facts(zinf_trainer_model(trainer))->vocab,
                          .n_places = shape ? places_of(shape, options->beams.n) : 1,
                          .n_rows = shape ? shape->rows : 1};
    bool any = true;
    int code = check_shape(&r, shape);
    if (!code)
        code = take_memory(&r);
    while (!code && shape && any) {
        code = fill_places(&r, &any);
        if (!code && any)
            code = take_call(&r);
    }
    for (int64_t i = 0; !code && !shape && i < n_texts; i++) {
        r.places[0].text = i;
        code = compute_again(&r, &r.places[0]);
    }
    release_memory(&r);
    return code;
}
