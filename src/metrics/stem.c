/*
 * stem: Porter's stemmer (Porter 1980, 10.1108/eb046814) with the changes that NLTK makes to it by
 * default, which rouge-score calls: a pool of irregular words, "ies" and "ied" of short words, "y"
 * after consonants, and a few suffixes more. Snowball's "porter" has none of these, so that its
 * stems (enjoy: enjoi, fly: fly) would give other scores.
 *
 * A step is a table of suffixes; the first one that a word has decides, even where its condition
 * fails.
 */
#include "metrics/metrics.h"

/* Of a word or of what is left of one without its suffix. */
struct shape {
    size_t measure; /* Porter's m: how often a consonant follows a vowel */
    bool has_vowel, ends_in_consonant, ends_doubled;
    bool ends_short; /* Porter's *o: consonant, vowel, consonant that is no w, x, y */
};

static bool is_one_of(char letter, const char *letters)
{
    return letter && strchr(letters, letter);
}

/* "y" is a vowel after a consonant. */
static struct shape shape_of(const char *word, size_t n)
{
    struct shape s = {0};
    bool now = true, before = true, earlier = true; /* consonants: the last three letters */
    for (size_t i = 0; i < n; i++) {
        earlier = before;
        before = now;
        now = word[i] == 'y' ? !i || !before : !is_one_of(word[i], "aeiou");
        s.has_vowel = s.has_vowel || !now;
        s.measure += i && now && !before;
    }
    if (n < 2)
        return (struct shape){0, s.has_vowel, n && now, false, false};
    s.ends_in_consonant = now;
    s.ends_doubled = now && word[n - 1] == word[n - 2];
    s.ends_short =
        n == 2 ? now && !before : now && !before && earlier && !is_one_of(word[n - 1], "wxy");
    return s;
}

/* ---- suffixes ---- */

struct rule {
    const char *suffix, *instead;
    int above; /* the measure of what is left must be; -1: nothing */
    int kept;  /* letters of the suffix that count as left */
};
struct word {
    char *at;
    size_t n;
};

static bool ends_in(const struct word *w, const char *suffix)
{
    size_t n = strlen(suffix);
    return w->n >= n && !memcmp(w->at + w->n - n, suffix, n);
}

/* No rule is longer than what it stands for. */
static void replace(struct word *w, size_t suffix, const char *instead)
{
    size_t n = strlen(instead);
    w->n -= suffix;
    memcpy(w->at + w->n, instead, n);
    w->n += n;
}

static void apply(struct word *w, const struct rule *rules)
{
    for (const struct rule *r = rules; r->suffix; r++) {
        if (!ends_in(w, r->suffix))
            continue;
        size_t suffix = strlen(r->suffix), left = w->n - suffix + (size_t)r->kept;
        if (r->above < 0 || shape_of(w->at, left).measure > (size_t)r->above)
            replace(w, suffix, r->instead);
        return;
    }
}

static const struct rule plurals[] = {
    {"sses", "ss", -1, 0}, {"ies", "i", -1, 0}, {"ss", "ss", -1, 0}, {"s", "", -1, 0}, {0}};
static const struct rule doubles[] = {{"ational", "ate", 0, 0}, {"tional", "tion", 0, 0},
                                      {"enci", "ence", 0, 0},   {"anci", "ance", 0, 0},
                                      {"izer", "ize", 0, 0},    {"bli", "ble", 0, 0},
                                      {"entli", "ent", 0, 0},   {"eli", "e", 0, 0},
                                      {"ousli", "ous", 0, 0},   {"ization", "ize", 0, 0},
                                      {"ation", "ate", 0, 0},   {"ator", "ate", 0, 0},
                                      {"alism", "al", 0, 0},    {"iveness", "ive", 0, 0},
                                      {"fulness", "ful", 0, 0}, {"ousness", "ous", 0, 0},
                                      {"aliti", "al", 0, 0},    {"iviti", "ive", 0, 0},
                                      {"biliti", "ble", 0, 0},  {"fulli", "ful", 0, 0},
                                      {"logi", "log", 0, 1},    {0}};
static const struct rule adjectives[] = {
    {"icate", "ic", 0, 0}, {"ative", "", 0, 0}, {"alize", "al", 0, 0}, {"iciti", "ic", 0, 0},
    {"ical", "ic", 0, 0},  {"ful", "", 0, 0},   {"ness", "", 0, 0},    {0}};
static const struct rule before_ion[] = {
    {"al", "", 1, 0},    {"ance", "", 1, 0}, {"ence", "", 1, 0},
    {"er", "", 1, 0},    {"ic", "", 1, 0},   {"able", "", 1, 0},
    {"ible", "", 1, 0},  {"ant", "", 1, 0},  {"ement", "", 1, 0},
    {"ment", "", 1, 0},  {"ent", "", 1, 0},  {"sion", "s", 1, 1},
    {"tion", "t", 1, 1}, {"ou", "", 1, 0},   {"ism", "", 1, 0},
    {"ate", "", 1, 0},   {"iti", "", 1, 0},  {"ous", "", 1, 0},
    {"ive", "", 1, 0},   {"ize", "", 1, 0},  {0}};
static const struct rule last[] = {{"ll", "l", 1, 1}, {0}};
/* What "ed" and "ing" left behind. */
static const struct rule repairs[] = {
    {"at", "ate", -1, 0}, {"bl", "ble", -1, 0}, {"iz", "ize", -1, 0}, {0}};

/* ---- steps ---- */

static void take_past(struct word *w)
{
    if (ends_in(w, "ied")) {
        replace(w, 3, w->n == 4 ? "ie" : "i");
        return;
    }
    if (ends_in(w, "eed")) {
        w->n -= shape_of(w->at, w->n - 3).measure > 0;
        return;
    }
    size_t suffix = ends_in(w, "ed") ? 2 : ends_in(w, "ing") ? 3 : 0;
    if (!suffix || !shape_of(w->at, w->n - suffix).has_vowel)
        return;
    w->n -= suffix;
    size_t n = w->n;
    apply(w, repairs);
    struct shape s = shape_of(w->at, w->n);
    if (w->n != n)
        return;
    if (s.ends_doubled)
        w->n -= !is_one_of(w->at[n - 1], "lsz");
    else if (s.measure == 1 && s.ends_short)
        w->at[w->n++] = 'e';
}

static void take_y(struct word *w)
{
    if (w->n > 2 && w->at[w->n - 1] == 'y' && shape_of(w->at, w->n - 1).ends_in_consonant)
        w->at[w->n - 1] = 'i';
}

static void take_doubles(struct word *w)
{
    while (ends_in(w, "alli") && shape_of(w->at, w->n - 4).measure > 0)
        w->n -= 2;
    apply(w, doubles);
}

static void take_e(struct word *w)
{
    if (!w->n || w->at[w->n - 1] != 'e')
        return;
    struct shape s = shape_of(w->at, w->n - 1);
    w->n -= s.measure > 1 || (s.measure == 1 && !s.ends_short);
}

/* Words that no step may touch, each with its stem. */
static bool is_irregular(struct word *w)
{
    static const char *const pool[][2] = {
        {"sky", "sky"},         {"skies", "sky"},        {"dying", "die"},
        {"lying", "lie"},       {"tying", "tie"},        {"news", "news"},
        {"innings", "inning"},  {"inning", "inning"},    {"outings", "outing"},
        {"outing", "outing"},   {"cannings", "canning"}, {"canning", "canning"},
        {"howe", "howe"},       {"proceed", "proceed"},  {"exceed", "exceed"},
        {"succeed", "succeed"},
    };
    for (size_t i = 0; i < sizeof pool / sizeof *pool; i++)
        if (strlen(pool[i][0]) == w->n && ends_in(w, pool[i][0])) {
            replace(w, w->n, pool[i][1]);
            return true;
        }
    return false;
}

size_t zinf_stem(char *word, size_t length)
{
    struct word w = {word, length};
    if (length <= 2 || is_irregular(&w))
        return w.n;
    if (w.n == 4 && ends_in(&w, "ies"))
        w.n = 3;
    else
        apply(&w, plurals);
    take_past(&w);
    take_y(&w);
    take_doubles(&w);
    apply(&w, adjectives);
    apply(&w, before_ion);
    take_e(&w);
    apply(&w, last);
    return w.n;
}
