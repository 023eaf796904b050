/*
 * rouge: n-grams in common, and longest common subsequences of the whole texts and of their
 * sentences, as rouge-score has them, down to the order in which a subsequence is traced back.
 */
#include "metrics/words.h"

#include <stdlib.h>

/* Text 0 is the predicted one, text 1 the reference. */
struct pair {
    char *lowered[2];
    struct words words;
    uint64_t *ends[2]; /* of each sentence, counted in words of its text */
    uint64_t n_sentences[2];
    uint8_t *marks;   /* [words of the reference]: lie on a common subsequence */
    uint8_t *steps;   /* [reference][predicted]: how the longest one of two rows goes on */
    uint64_t *row;    /* [predicted + 1]: lengths */
    uint64_t *counts; /* [2][words]: how often each word is left */
};

/* ---- words ---- */

/* Lowers as Python does: two letters beyond ASCII become letters of ASCII. */
static char *lower(const char *text)
{
    char *out = malloc(strlen(text) + 1), *to = out;
    for (const char *at = text; out && *at; at++) {
        if (!strncmp(at, "\xc4\xb0", 2)) { /* U+0130: i and a dot that is no letter */
            *to++ = 'i';
            *to++ = ' ';
            at += 1;
        } else if (!strncmp(at, "\xe2\x84\xaa", 3)) { /* U+212A, the sign of Kelvin */
            *to++ = 'k';
            at += 2;
        } else {
            *to++ = *at >= 'A' && *at <= 'Z' ? (char)(*at + 'a' - 'A') : *at;
        }
    }
    if (out)
        *to = 0;
    return out;
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

static int take_words(struct pair *p, bool second, bool stem)
{
    int code = 0;
    for (char *at = p->lowered[second]; !code && *at;) {
        size_t n = 0;
        while (is_letter(at[n]))
            n++;
        if (n)
            code = words_add(&p->words, second, at, stem && n > 3 ? zinf_stem(at, n) : n);
        if (at[n] == '\n')
            p->ends[second][p->n_sentences[second]++] = p->words.n[second];
        at += n + (at[n] != 0);
    }
    p->ends[second][p->n_sentences[second]++] = p->words.n[second];
    return code;
}

static uint64_t count_lines(const char *text)
{
    uint64_t n = 1;
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

static int begin_pair(struct pair *p, const char *predicted, const char *reference, bool stem)
{
    const char *const texts[2] = {predicted, reference};
    int code = 0;
    for (int second = 0; !code && second < 2; second++) {
        p->lowered[second] = lower(texts[second]);
        p->ends[second] = malloc(count_lines(texts[second]) * sizeof *p->ends[second]);
        if (!p->lowered[second] || !p->ends[second])
            return zinf_fail(-ENOMEM, "no memory for a text of %zu bytes", strlen(texts[second]));
        code = take_words(p, second, stem);
    }
    if (!code)
        code = words_number(&p->words);
    if (code)
        return code;
    uint64_t n = p->words.n[0], m = p->words.n[1];
    p->marks = malloc(m + 1);
    p->steps = malloc(n * m + 1);
    p->row = malloc((n + 1) * sizeof *p->row);
    p->counts = calloc(2 * (n + m) + 1, sizeof *p->counts);
    return p->marks && p->steps && p->row && p->counts
               ? 0
               : zinf_fail(-ENOMEM, "no memory to compare %llu with %llu words",
                           (unsigned long long)n, (unsigned long long)m);
}

static void end_pair(struct pair *p)
{
    for (int second = 0; second < 2; second++) {
        free(p->lowered[second]);
        free(p->ends[second]);
    }
    words_free(&p->words);
    free(p->marks);
    free(p->steps);
    free(p->row);
    free(p->counts);
}

/* ---- figures ---- */

static double f_measure(uint64_t hits, uint64_t n_predicted, uint64_t n_reference)
{
    if (!hits) /* also where there is nothing */
        return 0;
    double precision = (double)hits / (double)n_predicted;
    double recall = (double)hits / (double)n_reference;
    return 2 * precision * recall / (precision + recall);
}

static int score_grams(const struct pair *p, int order, double *f)
{
    uint64_t matches;
    int code = words_matches(&p->words, order, &matches);
    if (!code)
        *f = f_measure(matches, words_grams(p->words.n[0], (uint64_t)order),
                       words_grams(p->words.n[1], (uint64_t)order));
    return code;
}

enum { STEP_BOTH, STEP_PREDICTED, STEP_REFERENCE };

/* The longest common subsequence of n words of the prediction and m of the reference: each of the
 * latter's that is on it gets a mark. */
static void mark_common(struct pair *p, const int32_t *predicted, uint64_t n,
                        const int32_t *reference, uint64_t m, uint8_t *marks)
{
    memset(p->row, 0, (n + 1) * sizeof *p->row);
    for (uint64_t i = 0; i < m; i++)
        for (uint64_t j = 0, diagonal = 0; j < n; j++) {
            uint64_t above = p->row[j + 1], left = p->row[j];
            bool same = reference[i] == predicted[j];
            p->steps[i * n + j] = same ? STEP_BOTH : left > above ? STEP_PREDICTED : STEP_REFERENCE;
            p->row[j + 1] = same ? diagonal + 1 : left > above ? left : above;
            diagonal = above;
        }
    for (uint64_t i = m, j = n; i && j;) {
        uint8_t step = p->steps[(i - 1) * n + j - 1];
        i -= step != STEP_PREDICTED;
        j -= step != STEP_REFERENCE;
        if (step == STEP_BOTH)
            marks[i] = 1;
    }
}

static double score_whole(struct pair *p)
{
    uint64_t hits = 0, n = p->words.n[0], m = p->words.n[1];
    memset(p->marks, 0, m);
    mark_common(p, words_ids(&p->words, false), n, words_ids(&p->words, true), m, p->marks);
    for (uint64_t i = 0; i < m; i++)
        hits += p->marks[i];
    return f_measure(hits, n, m);
}

/* Of each sentence of the reference what any sentence of the prediction has in common with it; a
 * word hits no oftener than either text has it. */
static double score_sentences(struct pair *p)
{
    const int32_t *predicted = words_ids(&p->words, false), *reference = words_ids(&p->words, true);
    uint64_t n = p->words.n[0], m = p->words.n[1], hits = 0, *left[2] = {p->counts};
    left[1] = left[0] + n + m;
    for (uint64_t i = 0; i < n; i++)
        left[0][predicted[i]]++;
    for (uint64_t i = 0; i < m; i++)
        left[1][reference[i]]++;
    memset(p->marks, 0, m);
    for (uint64_t s = 0, first = 0; s < p->n_sentences[1]; first = p->ends[1][s++])
        for (uint64_t t = 0, from = 0; t < p->n_sentences[0]; from = p->ends[0][t++])
            mark_common(p, predicted + from, p->ends[0][t] - from, reference + first,
                        p->ends[1][s] - first, p->marks + first);
    for (uint64_t i = 0; i < m; i++) {
        uint64_t *a = &left[0][reference[i]], *b = &left[1][reference[i]];
        bool hit = p->marks[i] && *a && *b;
        hits += hit;
        *a -= hit;
        *b -= hit;
    }
    return f_measure(hits, n, m);
}

int zinf_rouge(const char *predicted, const char *reference, bool stem, struct zinf_rouge *out)
{
    struct pair p = {0};
    int code = begin_pair(&p, predicted, reference, stem);
    if (!code)
        code = score_grams(&p, 1, &out->rouge1);
    if (!code)
        code = score_grams(&p, 2, &out->rouge2);
    if (!code) {
        out->l = score_whole(&p);
        out->lsum = score_sentences(&p);
    }
    end_pair(&p);
    return code;
}
