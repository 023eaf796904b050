/*
 * chart: a line chart in characters. Values are drawn into a raster of dots, then each character
 * shows a cell of them: 2 x 4 as Braille where the terminal takes UTF-8, else one dot as '*'.
 * Where several values share a column of dots, their whole range is drawn: a noisy curve looks
 * noisy.
 */
#include "cli/cli.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <strings.h>

#define LABEL_COLS 11 /* "  -1.234e+05" less a column; the axis follows */
#define MIN_ROWS 2
#define MAX_ROWS 200
#define MIN_COLS (LABEL_COLS + 10)
#define MAX_COLS 1000

bool cli_utf8(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        if (!value || !*value)
            continue;
        const char *set = strchr(value, '.');
        return set && (!strncasecmp(set, ".utf-8", 6) || !strncasecmp(set, ".utf8", 5));
    }
    return false;
}

/* Dots of width x height, row 0 at the top; cell_w x cell_h of them make a character. */
struct raster {
    unsigned char *dots;
    size_t width, height, cell_w, cell_h;
};

struct range {
    double low, high;
};

static struct range range_of(const double *values, size_t n)
{
    struct range range = {DBL_MAX, -DBL_MAX};
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(values[i]))
            continue;
        range.low = fmin(range.low, values[i]);
        range.high = fmax(range.high, values[i]);
    }
    return range;
}

static bool is_empty(struct range range)
{
    return range.low > range.high;
}

/* The values of column x: those that fall into it, or one between its neighbours when there are
 * fewer values than columns. */
static struct range column_of(const double *values, size_t n, size_t x, size_t width)
{
    if (n > width) {
        size_t first = (size_t)((double)x * (double)n / (double)width);
        size_t last = (size_t)((double)(x + 1) * (double)n / (double)width);
        last = last > n ? n : last;
        return range_of(values + first, last > first ? last - first : 1);
    }
    double at = n > 1 ? (double)x * (double)(n - 1) / (double)(width - 1) : 0;
    size_t i = (size_t)at;
    double part = at - (double)i;
    double value =
        part > 0 && i + 1 < n ? values[i] + part * (values[i + 1] - values[i]) : values[i];
    return range_of(&value, 1);
}

/* Halves first: the difference of two finite values may not be finite. */
static size_t row_of(const struct raster *r, struct range all, double value)
{
    double span = all.high / 2 - all.low / 2;
    double part = span > 0 ? (all.high / 2 - value / 2) / span : 0.5;
    return (size_t)lround(part * (double)(r->height - 1));
}

static void draw(struct raster *r, const double *values, size_t n, struct range all)
{
    size_t last_top = 0, last_bottom = 0;
    bool joined = false;
    for (size_t x = 0; x < r->width; x++) {
        struct range column = column_of(values, n, x, r->width);
        if (is_empty(column)) {
            joined = false;
            continue;
        }
        size_t top = row_of(r, all, column.high), bottom = row_of(r, all, column.low);
        size_t from = top, to = bottom;
        /* Meet the column before half of the way: a steep line has no gap. */
        if (joined && top > last_bottom + 1)
            from = (top + last_bottom + 1) / 2;
        if (joined && bottom + 1 < last_top)
            to = (bottom + last_top) / 2;
        for (size_t y = from; y <= to; y++)
            r->dots[y * r->width + x] = 1;
        for (size_t y = last_bottom + 1; joined && y < from; y++)
            r->dots[y * r->width + x - 1] = 1;
        for (size_t y = to + 1; joined && y < last_top; y++)
            r->dots[y * r->width + x - 1] = 1;
        last_top = top;
        last_bottom = bottom;
        joined = true;
    }
}

/* U+2800 with a bit for each dot: 1 2 3 7 down the left, 4 5 6 8 down the right. */
static void print_braille(FILE *out, const struct raster *r, size_t row, size_t col)
{
    static const unsigned char bits[4][2] = {
        {0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    unsigned cell = 0;
    for (size_t y = 0; y < 4; y++)
        for (size_t x = 0; x < 2; x++)
            if (r->dots[(row * 4 + y) * r->width + col * 2 + x])
                cell |= bits[y][x];
    fprintf(out, "\xe2%c%c", (char)(0xa0 | cell >> 6), (char)(0x80 | (cell & 0x3f)));
}

static void print_row(FILE *out, const struct raster *r, size_t row, const char *label)
{
    bool braille = r->cell_h == 4;
    fprintf(out, "%*s %s", LABEL_COLS - 2, label, braille ? "│" : "|");
    for (size_t col = 0; col < r->width / r->cell_w; col++)
        if (braille)
            print_braille(out, r, row, col);
        else
            fputc(r->dots[row * r->width + col] ? '*' : ' ', out);
    fputc('\n', out);
}

static void print_foot(FILE *out, const struct raster *r, size_t n)
{
    bool braille = r->cell_h == 4;
    size_t cols = r->width / r->cell_w;
    fprintf(out, "%*s %s", LABEL_COLS - 2, "", braille ? "└" : "+");
    for (size_t col = 0; col < cols; col++)
        fputs(braille ? "─" : "-", out);
    fprintf(out, "\n%*s1%*zu\n", LABEL_COLS, "", (int)cols - 1, n);
}

static size_t clamp(int value, int least, int most)
{
    return (size_t)(value < least ? least : value > most ? most : value);
}

void cli_chart(FILE *out, const char *title, const double *values, size_t n, int rows, int cols)
{
    bool braille = cli_utf8();
    struct raster r = {.cell_w = braille ? 2 : 1, .cell_h = braille ? 4 : 1};
    struct range all = range_of(values, n);
    size_t n_rows = clamp(rows, MIN_ROWS, MAX_ROWS);
    char high[32], low[32];
    fprintf(out, "%s\n", title);
    if (is_empty(all)) {
        fputs("  (no values)\n", out);
        return;
    }
    r.width = (clamp(cols, MIN_COLS, MAX_COLS) - LABEL_COLS) * r.cell_w;
    r.height = n_rows * r.cell_h;
    r.dots = calloc(r.width * r.height, 1);
    if (!r.dots)
        return; /* a chart is a convenience: without memory for it there is none */
    draw(&r, values, n, all);
    snprintf(high, sizeof high, "%.4g", all.high);
    snprintf(low, sizeof low, "%.4g", all.low);
    for (size_t row = 0; row < n_rows; row++)
        print_row(out, &r, row, row == 0 ? high : row == n_rows - 1 ? low : "");
    print_foot(out, &r, n);
    free(r.dots);
}
