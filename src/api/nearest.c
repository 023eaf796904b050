/*
 * nearest: what a mistyped word was probably meant to be. Edit distance with swapped neighbours
 * (optimal string alignment), letter case ignored; a beginning of one word only counts as near too.
 */
#include "api/options.h"

#include <ctype.h>
#include <strings.h>

#define MAX_WORD 64
#define MIN_PREFIX 3 /* letters: shorter beginnings fit too much */

static size_t min3(size_t a, size_t b, size_t c)
{
    size_t least = a < b ? a : b;
    return least < c ? least : c;
}

/* Rows of the table: before the last, last, this one; only three are ever looked at. */
static size_t distance(const char *a, const char *b)
{
    size_t rows[3][MAX_WORD + 1];
    size_t *before = rows[0], *last = rows[1], *row = rows[2];
    size_t n_a = strlen(a), n_b = strlen(b);
    if (n_a > MAX_WORD || n_b > MAX_WORD)
        return SIZE_MAX;
    for (size_t j = 0; j <= n_b; j++)
        last[j] = j;
    for (size_t i = 1; i <= n_a; i++) {
        row[0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);
            row[j] = min3(row[j - 1] + 1, last[j] + 1, last[j - 1] + (x != y));
            if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) &&
                y == tolower((unsigned char)a[i - 2]) && before[j - 2] + 1 < row[j])
                row[j] = before[j - 2] + 1;
        }
        size_t *free_row = before;
        before = last;
        last = row;
        row = free_row;
    }
    return last[n_b];
}

const char *zinf_nearest(const char *word, const char *const *words, size_t n)
{
    const char *best = NULL, *begins = NULL;
    size_t length = strlen(word), n_begin = 0;
    size_t near = length < 6 ? 1 : (length + 2) / 4; /* one slip in a short word, more in a long */
    for (size_t i = 0; i < n; i++) {
        size_t far = distance(word, words[i]);
        bool begun = length >= MIN_PREFIX && !strncasecmp(word, words[i], length);
        /* Of two as near, the one whose beginning was typed. */
        if ((far < near + (best == NULL) || (begun && far == near && best != begins)) &&
            far < strlen(words[i])) {
            best = words[i];
            near = far;
        }
        if (begun) {
            begins = words[i];
            n_begin++;
        }
    }
    return best || n_begin != 1 ? best : begins;
}
