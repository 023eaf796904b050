/*
 * options: values read by the row they belong to. A number is a number to its last letter and
 * within its range, a word is one of the row's, and an unknown name is an error that offers the
 * nearest known one, or says what to use instead of another program's.
 */
#include "api/options.h"

#include "api/foreign.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <strings.h>

#define MOST_OPTIONS 256
#define WHOLE_LIMIT 0x1p62 /* a max at or above this is no limit worth printing */
#define MOST_WORDS_BYTES 512

/* ---- rows ---- */

const struct option *option_at(const struct option_group *groups, size_t i,
                               const struct option_group **group)
{
    for (*group = groups; groups && (*group)->rows; ++*group) {
        const struct option *row = (*group)->rows;
        for (; row->flag; row++)
            if (!i--)
                return row;
    }
    return NULL;
}

const char *option_word(const struct option *option, size_t i)
{
    const char *const *words = option->words;
    if (option->word)
        return option->word(i);
    if (!words && option->key)
        words = zinf_config_key_words(option->key);
    for (size_t at = 0; words && words[at]; at++)
        if (*words[at] && !i--) /* the empty word of a key says that there is none */
            return words[at];
    return NULL;
}

/* Names of Python and of Hugging Face have underscores where options have dashes. */
static bool is_named(const char *name, size_t bytes, const char *word, size_t length)
{
    if (bytes != length)
        return false;
    for (size_t i = 0; i < length; i++)
        if ((name[i] == '_' ? '-' : name[i]) != (word[i] == '_' ? '-' : word[i]))
            return false;
    return true;
}

static const char *word_of(const struct option *option, const char *text, size_t length)
{
    const char *word;
    for (size_t i = 0; (word = option_word(option, i)); i++)
        if (strlen(word) == length && !memcmp(word, text, length))
            return word;
    return NULL;
}

/* Aliases that begin with a dash are of one dash (-np). */
static bool has_alias(const struct option *option, const char *name, size_t length, bool one_dash,
                      const char **fixed)
{
    const char *at = option->aliases ? option->aliases : "";
    for (size_t bytes; *at; at += bytes + (at[bytes] == ' ')) {
        bytes = strcspn(at, " ");
        size_t alone = strcspn(at, " ="), dash = *at == '-';
        if (one_dash != dash || !is_named(at + dash, alone - dash, name, length))
            continue;
        *fixed = alone < bytes ? word_of(option, at + alone + 1, bytes - alone - 1) : NULL;
        return true;
    }
    return false;
}

const struct option *option_find(const struct option_group *groups, const char *name, size_t length,
                                 const struct option_group **group, const char **fixed)
{
    size_t dashes = strspn(name, "-");
    const struct option *option;
    *fixed = NULL;
    if (dashes > length)
        return NULL;
    name += dashes;
    length -= dashes;
    for (size_t i = 0; dashes != 1 && (option = option_at(groups, i, group)); i++)
        if (is_named(option->flag + 2, strlen(option->flag) - 2, name, length))
            return option;
    for (size_t i = 0; (option = option_at(groups, i, group)); i++)
        if (has_alias(option, name, length, dashes == 1, fixed))
            return option;
    return NULL;
}

/* Dashes are left out of the comparison: they are the same everywhere and would look like luck. */
int option_fail_unknown(const struct option_group *groups, const char *what, const char *name)
{
    const char *names[MOST_OPTIONS], *remedy = foreign_remedy(name);
    const struct option_group *group;
    const struct option *option;
    char bare[64];
    size_t n = 0;
    if (remedy)
        return zinf_fail(-EINVAL, "%s '%s': %s", what, name, remedy);
    while (n + 1 < MOST_OPTIONS && (option = option_at(groups, n, &group)))
        names[n++] = option->flag + 2;
    names[n++] = "help";
    snprintf(bare, sizeof bare, "%.*s", (int)strcspn(name + strspn(name, "-"), "="),
             name + strspn(name, "-"));
    const char *near = zinf_nearest(bare, names, n);
    return zinf_fail(-EINVAL, "%s '%s'%s%s%s", what, name, near ? "; did you mean --" : "",
                     near ? near : "", near ? "?" : "");
}

/* ---- values ---- */

static int check_range(const struct option *option, const char *said, const char *text,
                       double value)
{
    if ((option->min == 0 && option->max == 0) || (value >= option->min && value <= option->max))
        return 0;
    if (option->max >= WHOLE_LIMIT)
        return zinf_fail(-EINVAL, "%s %s is out of range: it must be at least %.15g", said, text,
                         option->min);
    return zinf_fail(-EINVAL, "%s %s is out of range: it must be from %.15g to %.15g", said, text,
                     option->min, option->max);
}

/* What the end of a length multiplies it by; 0: it is none. */
static long long unit_of_length(const struct option *option, const char *end)
{
    if (!*end)
        return 1;
    const char unit = option->is_length && !end[1] ? *end : 0;
    return unit == 'K' || unit == 'k' ? 1 << 10 : unit == 'M' || unit == 'm' ? 1 << 20 : 0;
}

static int read_integer(const struct option *option, const char *said, const char *text,
                        int64_t *out)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    const long long unit = unit_of_length(option, end);
    if (end == text || !unit || isspace((unsigned char)*text))
        return zinf_fail(-EINVAL, "%s '%s' is not a whole number", said, text);
    if (errno || __builtin_mul_overflow(value, unit, &value))
        return zinf_fail(-EINVAL, "%s %s is too large a number", said, text);
    *out = value;
    return check_range(option, said, text, (double)value);
}

static int read_number(const struct option *option, const char *said, const char *text, double *out)
{
    char *end;
    *out = strtod(text, &end);
    if (end == text || *end || isspace((unsigned char)*text) || !isfinite(*out))
        return zinf_fail(-EINVAL, "%s '%s' is not a number", said, text);
    return check_range(option, said, text, *out);
}

static int read_size(const char *said, const char *text, uint64_t *out)
{
    if (*text && text[strspn(text, "0123456789.")] == 0 && strtod(text, NULL) > 0)
        return zinf_fail(-EINVAL, "%s %s has no unit: write %sGiB, or %sB for bytes", said, text,
                         text, text);
    return zinf_size_parse(text, out) ? zinf_fail_in(-EINVAL, "%s", said) : 0;
}

/* "use a, b or c", and which was probably meant. */
static int fail_word(const struct option *option, const char *said, const char *text)
{
    const char *all[MOST_OPTIONS], *word;
    char words[MOST_WORDS_BYTES] = "";
    size_t used = 0, n = 0;
    while (n < MOST_OPTIONS && (word = option_word(option, n)))
        all[n++] = word;
    for (size_t i = 0; i < n && used < sizeof words; i++)
        used += (size_t)snprintf(words + used, sizeof words - used, "%s%s",
                                 !i          ? ""
                                 : i + 1 < n ? ", "
                                             : " or ",
                                 all[i]);
    const char *near = zinf_nearest(text, all, n);
    return zinf_fail(-EINVAL, "%s %s: use %s%s%s%s", said, text, words,
                     near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

/* *out: the place of text among the words. */
static int read_word(const struct option *option, const char *said, const char *text, int *out)
{
    const char *word;
    for (int i = 0; (word = option_word(option, (size_t)i)); i++)
        if (!(option->key ? strcasecmp(word, text) : strcmp(word, text))) {
            *out = i;
            return 0;
        }
    return option->open || !option_word(option, 0) ? 0 : fail_word(option, said, text);
}

static int add_text(struct zinf_words *words, const char *said, const char *text)
{
    if (words->n == ZINF_MOST_WORDS)
        return zinf_fail(-EINVAL, "%s: more than %d words", said, ZINF_MOST_WORDS);
    words->items[words->n++] = text;
    return 0;
}

static int read_flag(const char *said, const char *text, bool *out)
{
    *out = !strcasecmp(text, "true");
    if (*out || !strcasecmp(text, "false"))
        return 0;
    return zinf_fail(-EINVAL, "%s takes no value; leave out '=%s'", said, text);
}

int option_read(const struct option *option, const struct option_group *group, const char *text,
                const char *said, void *base)
{
    void *field = (char *)base + group->at + option->offset;
    union {
        bool flag;
        int word;
        int64_t integer;
        double number;
        uint64_t size;
    } unused; /* what is set in a configuration is kept as its text, and only checked here */
    void *out = option->key ? (void *)&unused : field;
    int code = 0, ignored = 0;
    switch (option->kind) {
    case OPTION_FLAG:
        code = read_flag(said, text, out);
        break;
    case OPTION_TEXTS:
        code = read_word(option, said, text, &ignored);
        return code ? code : add_text(field, said, text);
    case OPTION_TEXT:
    case OPTION_MAYBE:
        code = read_word(option, said, text, &ignored);
        if (!code && !option->key)
            *(const char **)field = text;
        break;
    case OPTION_WORD:
        code = read_word(option, said, text, out);
        break;
    case OPTION_INTEGER:
        code = word_of(option, text, strlen(text)) ? 0 : read_integer(option, said, text, out);
        break;
    case OPTION_NUMBER:
        code = read_number(option, said, text, out);
        break;
    case OPTION_SIZE:
        code = read_size(said, text, out);
        break;
    }
    if (code || !option->key)
        return code;
    const struct zinf_config_setting setting = {.key = option->key, .text = text, .name = said};
    return zinf_config_settings_add(field, &setting);
}

int option_read_usual(const struct option_group *groups, void *base)
{
    const struct option_group *group;
    const struct option *option;
    int code = 0;
    for (size_t i = 0; !code && (option = option_at(groups, i, &group)); i++)
        if (option->usual && !option->key && !group->door)
            code = option_read(option, group, option->usual, option->flag, base);
    return code;
}
