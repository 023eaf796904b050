/* words: numbers by sorting, and n-grams in common by merging two sorted rows: no table to size. */
#include "metrics/words.h"

#include <stdlib.h>

int words_add(struct words *w, bool second, const char *at, size_t length)
{
    uint64_t n = w->n[0] + w->n[1];
    if (n == w->capacity) {
        uint64_t more = n ? 2 * n : 64;
        struct word_span *moved = realloc(w->spans, more * sizeof *moved);
        if (!moved)
            return zinf_fail(-ENOMEM, "no memory for %llu words", (unsigned long long)more);
        w->spans = moved;
        w->capacity = more;
    }
    w->spans[n] = (struct word_span){at, length};
    w->n[second]++;
    return 0;
}

void words_free(struct words *w)
{
    free(w->spans);
    free(w->ids);
    *w = (struct words){0};
}

static int compare_spans(const struct word_span *x, const struct word_span *y)
{
    int order = memcmp(x->at, y->at, x->length < y->length ? x->length : y->length);
    return order ? order : (x->length > y->length) - (x->length < y->length);
}

struct numbered {
    struct word_span span;
    uint64_t at;
};

static int compare_numbered(const void *a, const void *b)
{
    const struct numbered *x = a, *y = b;
    return compare_spans(&x->span, &y->span);
}

int words_number(struct words *w)
{
    uint64_t n = w->n[0] + w->n[1];
    struct numbered *sorted = malloc((n + 1) * sizeof *sorted);
    w->ids = malloc((n + 1) * sizeof *w->ids);
    if (!sorted || !w->ids) {
        free(sorted);
        return zinf_fail(-ENOMEM, "no memory for %llu words", (unsigned long long)n);
    }
    for (uint64_t i = 0; i < n; i++)
        sorted[i] = (struct numbered){w->spans[i], i};
    qsort(sorted, n, sizeof *sorted, compare_numbered);
    int32_t id = 0;
    for (uint64_t i = 0; i < n; i++) {
        id += i && compare_spans(&sorted[i - 1].span, &sorted[i].span);
        w->ids[sorted[i].at] = id;
    }
    free(sorted);
    return 0;
}

/* ---- n-grams ---- */

struct gram {
    int32_t ids[WORDS_MOST_ORDER]; /* those beyond the order are 0 */
};

static int compare_grams(const void *a, const void *b)
{
    const struct gram *x = a, *y = b;
    for (int i = 0; i < WORDS_MOST_ORDER; i++)
        if (x->ids[i] != y->ids[i])
            return x->ids[i] < y->ids[i] ? -1 : 1;
    return 0;
}

static void sort_grams(const int32_t *ids, uint64_t n, int order, struct gram *grams)
{
    for (uint64_t i = 0; i < n; i++) {
        grams[i] = (struct gram){{0}};
        for (int k = 0; k < order; k++)
            grams[i].ids[k] = ids[i + (uint64_t)k];
    }
    qsort(grams, n, sizeof *grams, compare_grams);
}

int words_matches(const struct words *w, int order, uint64_t *matches)
{
    uint64_t n = words_grams(w->n[0], (uint64_t)order), m = words_grams(w->n[1], (uint64_t)order);
    struct gram *grams = malloc((n + m + 1) * sizeof *grams);
    *matches = 0;
    if (!grams)
        return zinf_fail(-ENOMEM, "no memory for %llu n-grams", (unsigned long long)(n + m));
    sort_grams(words_ids(w, false), n, order, grams);
    sort_grams(words_ids(w, true), m, order, grams + n);
    for (uint64_t i = 0, j = 0; i < n && j < m;) {
        int which = compare_grams(&grams[i], &grams[n + j]);
        *matches += !which;
        i += which <= 0;
        j += which >= 0;
    }
    free(grams);
    return 0;
}
