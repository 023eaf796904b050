/*
 * words: two texts as rows of numbers, the same number for the same word, and how many n-grams
 * they have in common. What the metrics of texts share; inside this folder only.
 */
#ifndef ZINF_METRICS_WORDS_H
#define ZINF_METRICS_WORDS_H

#include "metrics/metrics.h"

#define WORDS_MOST_ORDER 4

struct word_span {
    const char *at;
    size_t length;
};
/* Words of both texts in their order. Text is the caller's and stays while spans are looked at. */
struct words {
    struct word_span *spans; /* [n[0] + n[1]] on the heap: the first text's, then the second's */
    int32_t *ids;            /* of each, on the heap, once words_number was called */
    uint64_t n[2], capacity;
};
/* Appends a word to text 1 if second, else to text 0, which must be complete before. */
int words_add(struct words *w, bool second, const char *at, size_t length);
int words_number(struct words *w);
void words_free(struct words *w);

static inline const int32_t *words_ids(const struct words *w, bool second)
{
    return w->ids + (second ? w->n[0] : 0);
}
static inline uint64_t words_grams(uint64_t n_words, uint64_t order)
{
    return n_words >= order ? n_words - order + 1 : 0;
}
/* n-grams that both texts have, each as often as it is in the one that has it less often. */
int words_matches(const struct words *w, int order, uint64_t *matches);

#endif
