/*
 * options: one table a command, read strictly. A number is a number to its last letter and within
 * its range, an unknown name is an error that offers the nearest known one, and a value that looks
 * like the next option is taken for a forgotten value. Nothing is abbreviated: a script that works
 * today works when options are added.
 */
#include "cli/cli.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>

#define MAX_OPTIONS 64
#define WHOLE_LIMIT 0x1p62 /* a max at or above this is no limit worth printing */

/* A word that asks for an option: "-" alone is a word (standard input by custom). */
static bool is_dashed(const char *word)
{
    return word[0] == '-' && word[1];
}

/* The option that word names, as --name or --name=value; *value is NULL or the text after '='. */
static const struct cli_option *find(const struct cli_option *options, int n_options,
                                     const char *word, const char **value)
{
    size_t length = strcspn(word, "=");
    for (int i = 0; i < n_options; i++)
        if (strlen(options[i].name) == length && !memcmp(options[i].name, word, length)) {
            *value = word[length] ? word + length + 1 : NULL;
            return &options[i];
        }
    return NULL;
}

static bool names_option(const struct cli_option *options, int n_options, const char *word)
{
    const char *value;
    return find(options, n_options, word, &value) != NULL;
}

/* Dashes are left out of the comparison: they are the same everywhere and would look like luck. */
static const char *nearest_option(const struct cli_option *options, int n_options, const char *word)
{
    const char *names[MAX_OPTIONS];
    char bare[64];
    int n = n_options < MAX_OPTIONS ? n_options : MAX_OPTIONS;
    for (int i = 0; i < n; i++)
        names[i] = options[i].name + strspn(options[i].name, "-");
    word += strspn(word, "-");
    size_t length = strcspn(word, "=");
    if (length >= sizeof bare)
        return NULL;
    memcpy(bare, word, length);
    bare[length] = 0;
    return cli_nearest(bare, names, (size_t)n);
}

static int fail_unknown(const struct cli_option *options, int n_options, const char *word)
{
    const char *near = nearest_option(options, n_options, word);
    const char *what = is_dashed(word) ? "unknown option" : "unexpected word";
    if (near)
        return zinf_fail(-EINVAL, "%s '%s'; did you mean --%s?", what, word, near);
    return zinf_fail(-EINVAL, "%s '%s'", what, word);
}

static int check_range(const struct cli_option *option, const char *text, double value)
{
    if ((option->min == 0 && option->max == 0) || (value >= option->min && value <= option->max))
        return 0;
    if (option->max >= WHOLE_LIMIT)
        return zinf_fail(-EINVAL, "%s %s is out of range: it must be at least %.15g", option->name,
                         text, option->min);
    return zinf_fail(-EINVAL, "%s %s is out of range: it must be from %.15g to %.15g", option->name,
                     text, option->min, option->max);
}

static int read_int(const struct cli_option *option, const char *text)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end || isspace((unsigned char)*text))
        return zinf_fail(-EINVAL, "%s '%s' is not a whole number", option->name, text);
    if (errno)
        return zinf_fail(-EINVAL, "%s %s is too large a number", option->name, text);
    int code = check_range(option, text, (double)value);
    if (!code)
        *(int64_t *)option->value = value;
    return code;
}

static int read_double(const struct cli_option *option, const char *text)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || isspace((unsigned char)*text) || !isfinite(value))
        return zinf_fail(-EINVAL, "%s '%s' is not a number", option->name, text);
    int code = check_range(option, text, value);
    if (!code)
        *(double *)option->value = value;
    return code;
}

static int add_string(struct zinf_words *strings, const char *what, const char *word)
{
    if (strings->n == ZINF_MOST_WORDS)
        return zinf_fail(-EINVAL, "%s: more than %d words", what, ZINF_MOST_WORDS);
    strings->items[strings->n++] = word;
    return 0;
}

static int read_value(const struct cli_option *option, const char *text)
{
    switch (option->kind) {
    case CLI_STRING:
    case CLI_MAYBE:
        *(const char **)option->value = text;
        return 0;
    case CLI_STRINGS:
        return add_string(option->value, option->name, text);
    case CLI_INT:
        return read_int(option, text);
    case CLI_DOUBLE:
        return read_double(option, text);
    case CLI_SIZE:
        if (*text && text[strspn(text, "0123456789.")] == 0 && strtod(text, NULL) > 0)
            return zinf_fail(-EINVAL, "%s %s has no unit: write %sGiB, or %sB for bytes",
                             option->name, text, text, text);
        if (zinf_size_parse(text, option->value))
            return zinf_fail_in(-EINVAL, "%s", option->name);
        return 0;
    case CLI_FLAG:
        break;
    }
    return zinf_fail(-EINVAL, "%s takes no value; leave out '=%s'", option->name, text);
}

/* Reads the option at argv[*at] and moves *at past it and its values. */
static int read_option(const struct cli_option *options, int n_options, int argc, char **argv,
                       int *at)
{
    const char *value;
    const struct cli_option *option = find(options, n_options, argv[*at], &value);
    if (!option)
        return fail_unknown(options, n_options, argv[*at]);
    ++*at;
    if (value)
        return read_value(option, value);
    if (option->kind == CLI_FLAG) {
        *(bool *)option->value = true;
        return 0;
    }
    if (option->kind == CLI_MAYBE) {
        *(const char **)option->value = "";
        return 0;
    }
    if (*at >= argc || names_option(options, n_options, argv[*at]))
        return zinf_fail(-EINVAL, "%s needs a value", option->name);
    int code = read_value(option, argv[(*at)++]);
    while (!code && option->kind == CLI_STRINGS && *at < argc && !is_dashed(argv[*at]))
        code = read_value(option, argv[(*at)++]);
    return code;
}

int cli_parse(const struct cli_command *command, const struct cli_option *options, int n_options,
              struct zinf_words *positional, int argc, char **argv)
{
    bool words_only = false;
    int code = 0;
    for (int i = 1; i < argc && !code;) {
        const char *word = argv[i];
        if (!words_only && (!strcmp(word, "--help") || !strcmp(word, "-h"))) {
            cli_print_usage(command, stdout);
            return 1;
        }
        if (!words_only && !strcmp(word, "--")) {
            words_only = true;
            i++;
        } else if (!words_only && is_dashed(word)) {
            code = read_option(options, n_options, argc, argv, &i);
        } else if (positional) {
            code = add_string(positional, command->name, word);
            i++;
        } else {
            code = fail_unknown(options, n_options, word);
        }
    }
    return code;
}

void cli_print_usage(const struct cli_command *command, FILE *out)
{
    fputs(command->usage, out);
    if (command->print_more)
        command->print_more(out);
}

int cli_error(const struct cli_command *command, int status)
{
    const char *message = zinf_error();
    fprintf(stderr, "zinf %s: %s\n", command->name, *message ? message : "failed");
    if (status == CLI_USAGE)
        fprintf(stderr, "'zinf help %s' lists the options\n", command->name);
    return status;
}
