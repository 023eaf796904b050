/* help: what `zinf help NAME` prints, of the command's rows; and the rows themselves for programs.
 */
#include "cli/cli.h"

#include <stdlib.h>

#define HELP_COLS 80
#define TEXT_COL 24

/* "what it does (default: what is taken)" on the heap, or NULL. */
static char *text_of(const struct option *option)
{
    const char *usual = option->usual ? option->usual : option->otherwise;
    char *text = NULL;
    bool says = usual != NULL;
    if (asprintf(&text, "%s%s%s%s", option->help, says ? " (default: " : "", says ? usual : "",
                 says ? ")" : "") < 0)
        return NULL;
    return text;
}

/* Bytes of the words of text that fit into cols characters; at least one word. */
static size_t fitting(const char *text, size_t cols)
{
    size_t last = 0, n = 0;
    for (; n <= cols && text[n]; n++)
        if (text[n] == ' ')
            last = n;
    if (n <= cols)
        return n;
    return last ? last : strcspn(text, " ");
}

static void print_option(const struct option *option, FILE *out)
{
    char label[64], *text = text_of(option);
    const char *value = option->value ? option->value : "", *at = text ? text : option->help;
    snprintf(label, sizeof label, "  %s%s%s", option->flag, *value && *value != '[' ? " " : "",
             value);
    size_t used = strlen(label) < TEXT_COL ? TEXT_COL : strlen(label) + 1;
    fprintf(out, "%-*s", *at ? (int)used : 0, label);
    for (size_t n; *at; used = TEXT_COL) {
        n = fitting(at, HELP_COLS - used);
        fprintf(out, "%.*s", (int)n, at);
        at += n + (at[n] == ' ');
        if (*at)
            fprintf(out, "\n%*s", TEXT_COL, "");
    }
    fputc('\n', out);
    free(text);
}

void cli_print_usage(const struct cli_command *command, FILE *out)
{
    fputs(command->usage, out);
    for (const struct option_group *group = command->groups; group && group->rows; group++) {
        if (group == command->groups)
            fputc('\n', out);
        if (group->title)
            fprintf(out, "%s\n", group->title);
        for (const struct option *option = group->rows; option->flag; option++)
            print_option(option, out);
    }
    if (command->print_more)
        command->print_more(out);
}

/* ---- for programs ---- */

/* A sentence of the help, or the paragraph that the row has. */
static void print_manual(const struct option *option, FILE *out)
{
    char *text = option->manual ? NULL : text_of(option);
    const char *at = text ? text : option->manual ? option->manual : option->help;
    if (text && *text >= 'a' && *text <= 'z')
        *text += 'A' - 'a';
    for (; *at; at++)
        if (*at == '\n')
            fputs("\\n", out);
        else
            fputc(*at, out);
    fputs(text ? "." : "", out);
    free(text);
}

void cli_print_rows(const struct cli_command *command, FILE *out)
{
    const struct option_group *group;
    const struct option *option;
    for (size_t i = 0; (option = option_at(command->groups, i, &group)); i++) {
        const char *word;
        const char *usual = option->usual ? option->usual : option->otherwise;
        fprintf(out, "%s\t%s\t", option->flag, option->value ? option->value : "");
        for (size_t w = 0; (word = option_word(option, w)); w++)
            fprintf(out, "%s%s", w ? " " : "", word);
        fprintf(out, "%s\t%s\t%s\t", option->open ? " ..." : "", usual ? usual : "",
                option->key ? option->key : "");
        print_manual(option, out);
        fputc('\n', out);
    }
}
