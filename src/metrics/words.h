/*
 * words: two texts as rows of numbers, where equal words have equal numbers, and the n-grams that
 * they share. For the metrics of texts; inside this folder only.
 */
#ifndef ZINF_METRICS_WORDS_H
#define ZINF_METRICS_WORDS_H

#include "metrics/metrics.h"

#define WORDS_MOST_ORDER 4

struct word_span {
    const char *at;
    size_t length;
};
/* The words of both texts in order. They point into the caller's texts. */
struct words {
    struct word_span *spans; /* [n[0] + n[1]] on the heap: those of text 0, then those of text 1 */
    int32_t *ids;            /* their numbers, on the heap; set by words_number */
    uint64_t n[2], capacity;
};
/* Appends a word to text 1 if second, else to text 0, which must be complete first. */
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
/* Number of n-grams that both texts have; one that occurs several times counts as often as in the
 * text that has it less often. */
int words_matches(const struct words *w, int order, uint64_t *matches);

#endif
