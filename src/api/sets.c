/*
 * sets: the words of an option that names data files, as sets of files. FILE:WEIGHT is a set that
 * is mixed with others; NAME=FILE belongs to the set of that name; all other files are one set. A
 * word that is itself the name of a file means that file, whatever it has in it.
 */
#include "api/session.h"

#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>

/* What a word says. */
struct word {
    char *file;
    char name[ZINF_MOST_SET_NAME]; /* "": none */
    double weight;                 /* 0: none */
};

static bool is_file(const char *path)
{
    struct stat info;
    return !stat(path, &info);
}

/* ---- files ---- */

/* The files that name means: itself if there is one of that name, or no wild card in it. */
static int expand_name(glob_t *all, const char *name, int flags)
{
    static const char wild[] = "*?[\\";
    char literal[2 * PATH_MAX];
    size_t used = 0;
    bool exists = is_file(name);
    if (!exists && strpbrk(name, "*?["))
        return glob(name, flags, NULL, all);
    for (const char *at = name; *at && used + 2 < sizeof literal; at++) {
        if (exists && strchr(wild, *at))
            literal[used++] = '\\';
        literal[used++] = *at;
    }
    literal[used] = 0;
    return glob(literal, flags | GLOB_NOCHECK | (exists ? 0 : GLOB_NOESCAPE), NULL, all);
}

/* A quoted pattern is one that no shell has expanded. Its files come in the order of their names.
 */
static int add_files(struct job_set *set, const char *name)
{
    int result = expand_name(&set->files, name, set->has_files ? GLOB_APPEND : 0);
    set->has_files = true;
    if (result == GLOB_NOMATCH)
        return zinf_fail(-ENOENT, "no file matches %s", name);
    return result ? zinf_fail(-EIO, "cannot look for %s: %s", name, strerror(errno)) : 0;
}

/* ---- words ---- */

static int read_weight(const char *option, const char *text, struct word *out)
{
    const char *colon = strrchr(text, ':');
    char *end = NULL;
    if (!colon || colon == text || isspace((unsigned char)colon[1]))
        return 0;
    const double weight = strtod(colon + 1, &end);
    if (end == colon + 1 || *end)
        return 0;
    if (!isfinite(weight) || weight <= 0)
        return zinf_fail(-EINVAL, "%s %s: a weight is a number above 0", option, text);
    out->weight = weight;
    out->file[colon - text] = 0;
    return 0;
}

static int read_name(const char *option, const char *text, struct word *out)
{
    size_t n = 0;
    while (isalnum((unsigned char)text[n]) || (text[n] && strchr("_-.", text[n])))
        n++;
    if (!n || text[n] != '=' || !text[n + 1])
        return 0;
    if (n >= sizeof out->name)
        return zinf_fail(-EINVAL, "%s %s: the name has more than %zu characters", option, text,
                         sizeof out->name - 1);
    memcpy(out->name, text, n);
    out->name[n] = 0;
    memmove(out->file, text + n + 1, strlen(text + n + 1) + 1);
    return 0;
}

static int read_word(const char *option, const char *text, enum job_sets_by by, struct word *out)
{
    *out = (struct word){.file = strdup(text)};
    if (!out->file)
        return zinf_fail(-ENOMEM, "no memory for %s", option);
    if (is_file(text))
        return 0;
    return by == JOB_SETS_BY_WEIGHT ? read_weight(option, text, out) : read_name(option, text, out);
}

/* The set that a word belongs to; NULL: it has not begun. */
static struct job_set *find_set(struct job_sets *sets, const struct word *word)
{
    for (int i = 0; i < sets->n; i++)
        if (word->weight == 0 && !strcmp(sets->of[i].name, word->name))
            return &sets->of[i];
    return NULL;
}

static bool is_plain(const char *name, double weight)
{
    return !*name && weight == 0;
}

static int take_word(const char *option, struct job_sets *sets, const struct word *word)
{
    struct job_set *set = find_set(sets, word);
    const struct job_set *first = sets->of;
    if (sets->n && is_plain(first->name, first->weight) != is_plain(word->name, word->weight))
        return zinf_fail(-EINVAL,
                         "%s: some files have a %s, and others have none: give one to each file",
                         option, *word->name || *first->name ? "name" : "weight");
    if (!set) {
        set = &sets->of[sets->n++];
        memcpy(set->name, word->name, sizeof set->name);
        set->weight = word->weight;
    }
    return add_files(set, word->file);
}

int job_sets_read(const char *option, const struct zinf_words *words, enum job_sets_by by,
                  struct job_sets *out)
{
    int code = 0;
    out->of = calloc((size_t)words->n + 1, sizeof *out->of);
    if (!out->of)
        return zinf_fail(-ENOMEM, "no memory for %s", option);
    for (int i = 0; !code && i < words->n; i++) {
        struct word word;
        code = read_word(option, words->items[i], by, &word);
        if (!code)
            code = take_word(option, out, &word);
        free(word.file);
    }
    return code;
}

void job_sets_free(struct job_sets *sets)
{
    for (int i = 0; i < sets->n; i++)
        if (sets->of[i].has_files)
            globfree(&sets->of[i].files);
    free(sets->of);
    *sets = (struct job_sets){NULL, 0};
}
