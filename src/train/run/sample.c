/* sample: one token from logits, by temperature, top-k and nucleus (Holtzman et al., 1904.09751).
 */
#include "train/train.h"

#include "base/random.h"

#include <math.h>
#include <stdlib.h>

struct candidate {
    float value; /* logit, then probability */
    int32_t id;
};

/* Larger first; equal values by id, so that the order is the same everywhere. */
static int by_value(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->value != y->value)
        return x->value < y->value ? 1 : -1;
    return x->id < y->id ? -1 : 1;
}

static int32_t most_likely(const float *logits, int64_t vocab)
{
    int32_t best = 0;
    for (int64_t i = 1; i < vocab; i++)
        if (logits[i] > logits[best])
            best = (int32_t)i;
    return best;
}

/* Softmax over the candidates kept; returns how many of them reach probability top_p. */
static int64_t to_probabilities(struct candidate *c, int64_t n, const struct zinf_sampler *s)
{
    double sum = 0, most = (double)c[0].value, reached = 0;
    for (int64_t i = 0; i < n; i++) {
        c[i].value = (float)exp(((double)c[i].value - most) / s->temperature);
        sum += (double)c[i].value;
    }
    for (int64_t i = 0; i < n; i++) {
        c[i].value = (float)((double)c[i].value / sum);
        reached += (double)c[i].value;
        if (reached >= s->top_p)
            return i + 1;
    }
    return n;
}

int32_t zinf_sample(const struct zinf_sampler *s, const float *logits, int64_t vocab, uint64_t draw,
                    void *scratch)
{
    struct candidate *c = scratch;
    if (s->temperature <= 0)
        return most_likely(logits, vocab);
    for (int64_t i = 0; i < vocab; i++)
        c[i] = (struct candidate){logits[i], (int32_t)i};
    qsort(c, (size_t)vocab, sizeof *c, by_value);
    int64_t n = s->top_k > 0 && s->top_k < vocab ? s->top_k : vocab;
    n = to_probabilities(c, n, s);
    double total = 0, reached = 0;
    for (int64_t i = 0; i < n; i++)
        total += (double)c[i].value;
    uint32_t counter[4] = {(uint32_t)draw, (uint32_t)(draw >> 32), 0, 0x5a3c}, bits[4];
    zinf_philox(counter, s->seed, bits);
    double point = ((double)bits[0] + 0.5) * 0x1p-32 * total;
    for (int64_t i = 0; i < n; i++) {
        reached += (double)c[i].value;
        if (point < reached)
            return c[i].id;
    }
    return c[n - 1].id;
}
