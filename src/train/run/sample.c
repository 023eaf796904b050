/*
 * sample: one token from logits, by temperature, top-k and nucleus (Holtzman et al., 1904.09751).
 * Candidates come out of a heap in order of their logits, and only as many as are looked at: mostly
 * a few of a whole vocabulary.
 */
#include "train/generate.h"

#include "base/random.h"

#include <math.h>
#include <string.h>

struct candidate {
    float value; /* logit, then probability */
    int32_t id;
};

/* Larger first; equal values by id, so that the order is the same everywhere. */
static bool comes_before(const struct candidate *x, const struct candidate *y)
{
    return x->value != y->value ? x->value > y->value : x->id < y->id;
}

static void sink(struct candidate *heap, int64_t n, int64_t at)
{
    struct candidate sinking = heap[at];
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        child += child + 1 < n && comes_before(&heap[child + 1], &heap[child]);
        if (!comes_before(&heap[child], &sinking))
            break;
        heap[at] = heap[child];
    }
    heap[at] = sinking;
}

/* Candidates in order: those that have come out of the heap of the others lie behind it, the first
 * one last. */
struct order {
    const struct zinf_sampler *sampler;
    struct candidate *c; /* [vocab] */
    int64_t vocab, n_out, n;
    double most, sum; /* the largest logit; of the weights of the first n, all that count */
};

static struct candidate candidate_at(struct order *o, int64_t i)
{
    while (o->n_out <= i) {
        int64_t left = o->vocab - ++o->n_out;
        struct candidate first = o->c[0];
        o->c[0] = o->c[left];
        o->c[left] = first;
        if (left > 0)
            sink(o->c, left, 0);
    }
    return o->c[o->vocab - 1 - i];
}

static int32_t most_likely(const float *logits, int64_t vocab)
{
    int32_t best = 0;
    for (int64_t i = 1; i < vocab; i++)
        if (logits[i] > logits[best])
            best = (int32_t)i;
    return best;
}

static double weight(const struct order *o, struct candidate c)
{
    return exp(((double)c.value - o->most) / o->sampler->temperature);
}

static struct order put_in_order(const struct zinf_sampler *s, const float *logits, int64_t vocab,
                                 struct candidate *c)
{
    bool cut = s->top_k > 0 && s->top_k < vocab;
    struct order o = {.sampler = s, .c = c, .vocab = vocab, .n = cut ? s->top_k : vocab};
    for (int64_t i = 0; i < vocab; i++)
        c[i] = (struct candidate){logits[i], (int32_t)i};
    for (int64_t i = vocab / 2; i-- > 0;)
        sink(c, vocab, i);
    o.most = (double)c[0].value;
    for (int64_t i = 0; i < o.n; i++)
        o.sum += weight(&o, cut ? candidate_at(&o, i) : c[i]);
    return o;
}

/* The candidate at which the probabilities, in order, pass point; *passed: what they are then. */
static struct candidate walk(struct order *o, double point, double *passed)
{
    struct candidate now = {0};
    *passed = 0;
    for (int64_t i = 0; i < o->n && *passed <= point; i++) {
        now = candidate_at(o, i);
        *passed += weight(o, now) / o->sum;
    }
    return now;
}

int32_t zinf_sample(const struct zinf_sampler *s, const float *logits, int64_t vocab, uint64_t draw,
                    void *scratch)
{
    uint32_t counter[4] = {(uint32_t)draw, (uint32_t)(draw >> 32), s->text, 0x5a3c}, bits[4];
    double total = 1, passed;
    if (s->temperature <= 0)
        return most_likely(logits, vocab);
    struct order o = put_in_order(s, logits, vocab, scratch);
    if (s->top_p < 1) /* the nucleus ends with the first candidate that reaches top_p */
        walk(&o, nextafter(s->top_p, 0), &total);
    zinf_philox(counter, s->seed, bits);
    return walk(&o, ((double)bits[0] + 0.5) * 0x1p-32 * total, &passed).id;
}

void zinf_sample_penalize(double penalty, const int32_t *ids, int64_t n, float *logits,
                          uint8_t *seen)
{
    if (penalty <= 0 || penalty == 1)
        return;
    for (int64_t i = 0; i < n; i++) {
        float *logit = &logits[ids[i]];
        if (!seen[ids[i]])
            *logit = (float)(*logit > 0 ? (double)*logit / penalty : (double)*logit * penalty);
        seen[ids[i]] = 1;
    }
    for (int64_t i = 0; i < n; i++)
        seen[ids[i]] = 0;
}

void zinf_sample_ban_repeats(int64_t n, const int32_t *ids, int64_t n_ids, float *logits)
{
    if (n < 1 || n_ids + 1 < n)
        return;
    const int32_t *end = ids + n_ids - (n - 1); /* what a repeated row would begin with */
    for (int64_t i = 0; i + n <= n_ids; i++)
        if (!memcmp(ids + i, end, (size_t)(n - 1) * sizeof *ids))
            logits[ids[i + n - 1]] = -INFINITY;
}

static void ban(float *logits, int64_t vocab, int32_t id)
{
    if (id >= 0 && id < vocab)
        logits[id] = -INFINITY;
}

/* The last token of each row that all but that have come of. A row that is longer than what there
 * is is not looked at, as transformers has it. */
static void ban_words(const struct zinf_word_rules *rules, const struct zinf_word_place *place,
                      float *logits, int64_t vocab)
{
    for (int64_t i = 0; i < rules->n_bad_words;) {
        const int64_t length = rules->bad_words[i], before = length - 1;
        const int32_t *word = rules->bad_words + i + 1;
        if (length <= place->n &&
            !memcmp(place->ids + place->n - before, word, (size_t)before * sizeof *word))
            ban(logits, vocab, word[before]);
        i += length + 1;
    }
}

static void force(float *logits, int64_t vocab, int32_t id)
{
    for (int64_t i = 0; i < vocab; i++)
        logits[i] = i == id ? 0.0f : -INFINITY;
}

void zinf_sample_apply_rules(const struct zinf_word_rules *rules,
                             const struct zinf_word_place *place, float *logits, int64_t vocab)
{
    ban_words(rules, place, logits, vocab);
    const bool early = place->n < rules->min_length || place->n_new < rules->min_new_tokens;
    for (int i = 0; early && i < place->n_ends; i++)
        ban(logits, vocab, place->ends[i]);
    if (rules->forces_begin && place->n == 1)
        force(logits, vocab, rules->forced_begin);
    if (rules->forces_end && place->n_new + 1 >= place->most_new)
        force(logits, vocab, rules->forced_end);
    for (int64_t i = 0; i < rules->n_suppress_tokens; i++)
        ban(logits, vocab, rules->suppress_tokens[i]);
}
