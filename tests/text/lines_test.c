/* Sums of a file's lines: the same in whatever portions it is read, and the line that has changed
 * is found, also where a sum is of several lines. */
#include "tap.h"
#include "text/lines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct zinf_lines sum(const char *text, size_t bytes, size_t portion)
{
    struct zinf_line_summer *summer;
    struct zinf_lines lines;
    CHECK(!zinf_line_summer_create(&summer));
    for (size_t at = 0; at < bytes; at += portion)
        zinf_line_summer_add(summer, text + at, bytes - at < portion ? bytes - at : portion);
    zinf_line_summer_end(summer, &lines);
    zinf_line_summer_destroy(summer);
    return lines;
}

/* So many lines "line N", without an end of the last. */
static char *make_text(int lines, size_t *bytes)
{
    char *text = malloc((size_t)lines * 16 + 1);
    size_t n = 0;
    for (int i = 0; i < lines; i++)
        n += (size_t)sprintf(text + n, "line %d%s", i, i + 1 < lines ? "\n" : "");
    *bytes = n;
    return text;
}

static void test_portions(void)
{
    size_t bytes;
    char *text = make_text(3000, &bytes);
    struct zinf_lines whole = sum(text, bytes, bytes);
    CHECK(whole.count == 3000 && whole.per_sum == 4 && zinf_lines_n_sums(&whole) == 750);
    for (size_t portion = 1; portion < 40; portion += 3) {
        struct zinf_lines other = sum(text, bytes, portion);
        CHECK(!memcmp(&whole, &other, sizeof whole));
    }
    struct zinf_lines none = sum("", 0, 1);
    CHECK(none.count == 0 && zinf_lines_n_sums(&none) == 0);
    free(text);
}

static void test_each_line_is_found(void)
{
    static const int counts[] = {1, 2, 700, 1024, 1025, 5000};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        size_t bytes;
        char *text = make_text(counts[c], &bytes);
        struct zinf_lines then = sum(text, bytes, bytes);
        uint64_t line = 1, first, last;
        CHECK(!zinf_lines_differ(&then, &then, &first, &last));
        for (size_t at = 0; at < bytes; at++) {
            if (text[at] == '\n') {
                line++;
                continue;
            }
            if (at % 97)
                continue;
            text[at] ^= 1;
            struct zinf_lines now = sum(text, bytes, 4096);
            bool differs = zinf_lines_differ(&then, &now, &first, &last);
            CHECKF(differs && first <= line && line <= last && last - first < then.per_sum,
                   "%d lines, line %llu: %llu to %llu", counts[c], (unsigned long long)line,
                   (unsigned long long)first, (unsigned long long)last);
            text[at] ^= 1;
        }
        free(text);
    }
}

static void test_more_and_less(void)
{
    size_t a, b;
    char *text = make_text(1000, &a), *longer = make_text(1100, &b);
    struct zinf_lines then = sum(text, a, a), now = sum(longer, b, b), swapped;
    uint64_t first, last;
    CHECK(zinf_lines_differ(&then, &now, &first, &last) && first <= 1000 && last >= 1000);
    swapped = sum("one\ntwo\n", 8, 3);
    then = sum("two\none\n", 8, 3);
    CHECK(zinf_lines_differ(&then, &swapped, &first, &last) && first == 1 && last == 1);
    then = sum("one\n", 4, 4);
    CHECK(zinf_lines_differ(&then, &swapped, &first, &last) && first == 2 && last == 2);
    free(text);
    free(longer);
}

int main(void)
{
    TAP_RUN(test_portions);
    TAP_RUN(test_each_line_is_found);
    TAP_RUN(test_more_and_less);
    return tap_done();
}
