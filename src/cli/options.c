/*
 * options: the command line, read strictly by the rows of the command. A value that looks like the
 * next option is taken for a forgotten value.
 */
#include "cli/cli.h"

#include <strings.h>

const char *const cli_dtypes[] = {"fp32", "bf16", "fp16", NULL};
const struct option cli_json[] = {
    OPTION("--json", FLAG, .offset = 0, NULL, "print one JSON object"), CLI_NO_ROW};

/* The command line on its way. */
struct line {
    struct cli_call *call;
    int argc, at;
    char **argv;
};

/* A word that asks for an option: "-" alone is a word (standard input by custom). */
static bool is_dashed(const char *word)
{
    return word[0] == '-' && word[1];
}

static const struct option *find(const struct line *line, const char *word,
                                 const struct option_group **group, const char **fixed)
{
    return option_find(line->call->command->groups, word, strcspn(word, "="), group, fixed);
}

static bool names_option(const struct line *line, const char *word)
{
    const struct option_group *group;
    const char *fixed;
    return is_dashed(word) && find(line, word, &group, &fixed);
}

/* Python's words behind what takes no value, as scripts of Hugging Face's Trainer have them. */
static const char *said_truth(struct line *line)
{
    const char *word = line->at < line->argc ? line->argv[line->at] : "";
    bool is_truth = !strcasecmp(word, "true") || !strcasecmp(word, "false");
    line->at += is_truth;
    return is_truth ? word : "true";
}

static int take(const struct line *line, const struct option *option,
                const struct option_group *group, const char *text)
{
    struct cli_call *call = line->call;
    if (!group->door)
        return option_read(option, group, text, option->flag, call->options);
    call->settings[call->n_settings++] = (struct zinf_setting){option->flag, text};
    return option_read(option, group, text, option->flag, call->looked_at); /* by this row */
}

/* Reads the option at line->at and moves past it and its values. */
static int read_option(struct line *line)
{
    const struct option_group *group;
    const char *word = line->argv[line->at], *fixed, *value = strchr(word, '=');
    const struct option *option = find(line, word, &group, &fixed);
    if (!option)
        return option_fail_unknown(line->call->command->groups, "unknown option", word);
    line->at++;
    value = value ? value + 1 : NULL;
    if (fixed) {
        if (!strcasecmp(value ? value : said_truth(line), "false"))
            return 0;
        return take(line, option, group, fixed);
    }
    if (!value && option->kind == OPTION_FLAG)
        value = said_truth(line);
    if (!value && option->kind == OPTION_MAYBE)
        value = "";
    if (value)
        return take(line, option, group, value);
    if (line->at >= line->argc || names_option(line, line->argv[line->at]))
        return zinf_fail(-EINVAL, "%s needs a value", option->flag);
    int code = take(line, option, group, line->argv[line->at++]);
    while (!code && option->kind == OPTION_TEXTS && line->at < line->argc &&
           !is_dashed(line->argv[line->at]))
        code = take(line, option, group, line->argv[line->at++]);
    return code;
}

static int add_word(const struct line *line, const char *word)
{
    struct zinf_words *words = &line->call->words;
    const struct cli_command *command = line->call->command;
    if (!command->takes_words)
        return option_fail_unknown(command->groups, "unexpected word", word);
    if (words->n == ZINF_MOST_WORDS)
        return zinf_fail(-EINVAL, "%s: more than %d words", command->name, ZINF_MOST_WORDS);
    words->items[words->n++] = word;
    return 0;
}

int cli_parse(struct cli_call *call, int argc, char **argv)
{
    struct line line = {call, argc, 1, argv};
    bool words_only = false;
    int code = option_read_usual(call->command->groups, call->options);
    while (line.at < argc && !code) {
        const char *word = argv[line.at];
        if (!words_only && (!strcmp(word, "--help") || !strcmp(word, "-h"))) {
            cli_print_usage(call->command, stdout);
            return 1;
        }
        if (!words_only && !strcmp(word, "--help=rows")) {
            cli_print_rows(call->command, stdout);
            return 1;
        }
        if (!words_only && is_dashed(word) && strcmp(word, "--")) {
            code = read_option(&line);
            continue;
        }
        line.at++;
        if (!words_only && !strcmp(word, "--"))
            words_only = true;
        else
            code = add_word(&line, word);
    }
    return code;
}
