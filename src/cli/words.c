/* words: numbers and fields as people read them: 1,234,567; 23.7 min; a label and what it names,
 * cut at words to the terminal's width. */
#include "cli/cli.h"

#include <math.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

const char *cli_count(char out[32], uint64_t n)
{
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%llu", (unsigned long long)n), used = 0;
    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0)
            out[used++] = ',';
        out[used++] = digits[i];
    }
    out[used] = 0;
    return out;
}

const char *cli_duration(char out[32], double seconds)
{
    static const struct {
        double below, unit;
        const char *name;
    } units[] = {
        {1e-3, 1e-6, "us"}, {1, 1e-3, "ms"},     {90, 1, "s"},
        {5400, 60, "min"},  {172800, 3600, "h"}, {INFINITY, 86400, "days"},
    };
    size_t i = 0;
    while (i < 5 && seconds >= units[i].below)
        i++;
    snprintf(out, 32, "%.3g %s", seconds / units[i].unit, units[i].name);
    return out;
}

int cli_columns(FILE *out)
{
    struct winsize size;
    const char *columns = getenv("COLUMNS");
    int n = columns ? atoi(columns) : 0;
    if (n <= 0 && !ioctl(fileno(out), TIOCGWINSZ, &size))
        n = size.ws_col;
    return n >= 40 ? n : n > 0 ? 40 : 80;
}

/* Bytes of the words of text that fit into cols characters; at least one word. */
static size_t fitting(const char *text, int cols)
{
    size_t last = 0;
    int at = 0;
    for (size_t i = 0; text[i]; i++) {
        if (text[i] == ' ' && at <= cols)
            last = i;
        at += ((unsigned char)text[i] & 0xc0) != 0x80;
        if (at > cols && last)
            return last;
    }
    return at <= cols || !last ? strcspn(text, at <= cols ? "" : " ") : last;
}

/* Where to cut a row: between its columns if that leaves enough, else between words. */
static size_t row_fitting(const char *row, size_t n, int cols)
{
    size_t gap = 0;
    for (size_t i = 0; i + 1 < n && i <= (size_t)cols; i++)
        if (row[i] == ' ' && row[i + 1] == ' ' && i > (size_t)cols / 3)
            gap = i;
    while (gap && row[gap - 1] == ' ')
        gap--;
    if (gap > (size_t)cols / 3)
        return gap;
    size_t space = (size_t)cols < n ? (size_t)cols : n;
    while (space > (size_t)cols / 3 && row[space] != ' ')
        space--;
    return space > (size_t)cols / 3 ? space : n;
}

void cli_print_lines(FILE *out, const char *text)
{
    bool wraps = isatty(fileno(out)) || getenv("COLUMNS");
    int cols = cli_columns(out), indent = 0;
    while (*text) {
        size_t n = strcspn(text, "\n");
        size_t part =
            wraps && n + (size_t)indent > (size_t)cols ? row_fitting(text, n, cols - indent) : n;
        fprintf(out, "%*s%.*s\n", indent, "", (int)part, text);
        text += part;
        while (part < n && *text == ' ')
            text++;
        indent = *text && *text != '\n' ? 9 : 0;
        text += *text == '\n';
    }
}

void cli_print_field(FILE *out, const char *label, int label_cols, const char *text)
{
    int cols = cli_columns(out) - label_cols - 2;
    do {
        size_t n = fitting(text, cols);
        fprintf(out, "%-*s  %.*s\n", label_cols, label, (int)n, text);
        text += n + (text[n] == ' ');
        label = "";
    } while (*text);
}
