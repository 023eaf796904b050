/* score: samples into prompts, prompts into texts, and these beside the samples' own. A group of
 * texts at a time, so that no more of them are in memory than are worth sharing a call. Ranks that
 * have the model whole make a part of each group; others make all of it, each by all's slices. */
#include "train/run/shared_texts.h"
#include "train/score.h"

#include <stdlib.h>

#define GROUP 64

struct scoring {
    const struct zinf_score_options *options;
    struct zinf_samples *samples;
    struct zinf_text texts[GROUP];
    struct zinf_tokens references[GROUP], sources[GROUP];
    struct zinf_tokens plain; /* tokens of a text without what is left out */
    uint64_t first;           /* sample */
    int64_t n;                /* texts in the group */
};

static bool is_among(int32_t id, const int32_t *ids, int n)
{
    for (int i = 0; i < n; i++)
        if (ids[i] == id)
            return true;
    return false;
}

static int push(struct zinf_tokens *tokens, const int32_t *ids, size_t n)
{
    if (tokens->count + n > tokens->capacity) {
        size_t capacity = 2 * tokens->capacity + n;
        int32_t *moved = realloc(tokens->ids, capacity * sizeof *moved);
        if (!moved)
            return zinf_fail(-ENOMEM, "no memory for %zu tokens", capacity);
        tokens->ids = moved;
        tokens->capacity = capacity;
    }
    memcpy(tokens->ids + tokens->count, ids, n * sizeof *ids);
    tokens->count += n;
    return 0;
}

/* ---- samples ---- */

/* What comes before the first token that counts, and the run of those that do. */
static int split(struct scoring *s, uint64_t index, const struct zinf_sample *sample)
{
    struct zinf_text *text = &s->texts[s->n];
    struct zinf_tokens *reference = &s->references[s->n];
    size_t begin = 0, end, n = sample->ids.count;
    while (begin < n && !(sample->marks[begin] & ZINF_MARK_COUNTS))
        begin++;
    for (end = begin; end < n && sample->marks[end] & ZINF_MARK_COUNTS;)
        end++;
    if (!begin)
        return zinf_fail(
            -EINVAL,
            "sample %llu begins with a token that counts for the loss: there is no text "
            "before it to continue",
            (unsigned long long)index + 1);
    reference->count = 0;
    int code = push(reference, sample->ids.ids + begin, end - begin);
    *text =
        (struct zinf_text){.ids = malloc(begin * sizeof *text->ids), .n_prompt = (int64_t)begin};
    if (!code && !text->ids)
        code = zinf_fail(-ENOMEM, "no memory for a prompt of %zu tokens", begin);
    if (!code)
        memcpy(text->ids, sample->ids.ids, begin * sizeof *text->ids);
    s->sources[s->n].count = 0;
    if (!code && sample->source.count)
        code = push(&s->sources[s->n], sample->source.ids, sample->source.count);
    text->source = sample->source.count ? s->sources[s->n].ids : NULL;
    text->n_source = (int64_t)sample->source.count;
    s->n++;
    return code;
}

static int read_group(struct scoring *s, uint64_t end)
{
    struct zinf_sample sample = ZINF_SAMPLE_EMPTY;
    int code = 0;
    for (uint64_t i = s->first; !code && i < end; i++) {
        code = zinf_samples_read(s->samples, i, &sample);
        if (!code)
            code = split(s, i, &sample);
    }
    zinf_sample_free(&sample);
    return code;
}

static void release_group(struct scoring *s)
{
    for (int64_t i = 0; i < s->n; i++)
        free(s->texts[i].ids);
    s->n = 0;
}

/* ---- texts ---- */

static int decode(struct scoring *s, const int32_t *ids, size_t n, char **text)
{
    const struct zinf_score_options *o = s->options;
    const struct zinf_generate_options *g = &o->generate;
    size_t bytes;
    int code = 0;
    *text = NULL;
    s->plain.count = 0;
    for (size_t i = 0; !code && i < n; i++)
        if (!is_among(ids[i], g->ends, g->n_ends) && !is_among(ids[i], o->left_out, o->n_left_out))
            code = push(&s->plain, &ids[i], 1);
    return code ? code
                : zinf_tokenizer_decode(o->tokenizer, s->plain.ids, s->plain.count, text, &bytes);
}

static int score_text(struct scoring *s, int64_t i, struct zinf_scoreboard *board)
{
    const struct zinf_score_options *o = s->options;
    const struct zinf_text *text = &s->texts[i];
    char *predicted = NULL, *reference = NULL;
    int code = decode(s, text->ids + text->n_prompt, (size_t)text->n_new, &predicted);
    if (!code)
        code = decode(s, s->references[i].ids, s->references[i].count, &reference);
    if (!code)
        code = zinf_scoreboard_text(board, predicted, reference);
    if (!code && o->saw)
        code = o->saw(o->arg, s->first + (uint64_t)i, predicted, reference);
    free(predicted);
    free(reference);
    return code;
}

int zinf_score_texts(struct zinf_trainer *trainer, const struct zinf_score_options *options,
                     struct zinf_samples *samples, struct zinf_scoreboard *board)
{
    uint64_t n = zinf_samples_facts(samples)->n_samples;
    struct zinf_generate_options generate = options->generate;
    struct scoring *s = calloc(1, sizeof *s);
    int code = s ? 0 : zinf_fail(-ENOMEM, "no memory for an evaluation");
    if (options->most_samples && options->most_samples < n)
        n = options->most_samples;
    generate.made = NULL;
    for (uint64_t first = 0; !code && first < n; first += GROUP) {
        s->options = options;
        s->samples = samples;
        s->first = first;
        code = read_group(s, n - first < GROUP ? n : first + GROUP);
        if (!code)
            code = make_shared_texts(trainer, &generate, s->texts, s->n);
        for (int64_t i = 0; !code && i < s->n; i++)
            code = score_text(s, i, board);
        release_group(s);
    }
    for (int i = 0; s && i < GROUP; i++) {
        zinf_tokens_free(&s->references[i]);
        zinf_tokens_free(&s->sources[i]);
    }
    if (s)
        zinf_tokens_free(&s->plain);
    free(s);
    return code;
}
