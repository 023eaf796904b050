/*
 * data_show: tokens and lengths for the eye. What a token stands for may depend on those before it,
 * and one may end within a character, so that the text is decoded token by token, and a piece is
 * what each adds to it.
 */
#include "cli/data_show.h"

#include <stdlib.h>

#define MOST_TOKENS 600 /* of a sample: the rest is said as a number */
#define BAR_COLS 40

/* ---- tokens ---- */

/* As the terminal may have it: controls are spelled, ends of lines seen. */
static int print_piece(const char *text, size_t bytes)
{
    size_t most = 4 * bytes + 1;
    char *piece = strndup(text, bytes), *shown = malloc(most);
    int code = piece && shown ? 0 : zinf_fail(-ENOMEM, "no memory for the text of a token");
    for (const char *c = code ? "" : zinf_show_text(shown, most, piece); *c; c++) {
        if (*c == '\n')
            fputs("\xe2\x86\xb5\n", stdout);
        else if (*c == '\t')
            fputs("\\x09", stdout);
        else
            putchar(*c);
    }
    free(piece);
    free(shown);
    return code;
}

/* How much of a text stays whatever follows: not what stands for an unfinished character. */
static size_t settled(const char *text, size_t bytes)
{
    while (bytes >= 3 && !memcmp(text + bytes - 3, "\xef\xbf\xbd", 3))
        bytes -= 3;
    return bytes;
}

/* Neighbours differ in shade, so that tokens can be told apart. */
static void begin_token(size_t i, bool counts, bool before, bool color)
{
    static const char *const shades[2][2] = {{"\033[90m", "\033[37m"}, {"\033[32m", "\033[92m"}};
    if (color)
        fputs(shades[counts][i % 2], stdout);
    else if (counts != before)
        fputs(counts ? "[[" : "]]", stdout);
}

int data_show_tokens(const struct zinf_tokenizer *tokenizer, const int32_t *ids, const bool *counts,
                     size_t n, bool color)
{
    size_t shown = 0, most = n < MOST_TOKENS ? n : MOST_TOKENS;
    bool before = false;
    int code = 0;
    for (size_t i = 0; !code && i < most; i++) {
        char *text = NULL;
        size_t bytes = 0;
        bool here = counts ? counts[i] : true;
        code = zinf_tokenizer_decode(tokenizer, ids, i + 1, &text, &bytes);
        size_t end = code ? 0 : settled(text, bytes);
        begin_token(i, here, before, color);
        before = here;
        if (end > shown)
            code = print_piece(text + shown, end - shown);
        shown = end > shown ? end : shown;
        free(text);
    }
    fputs(color ? "\033[0m" : before ? "]]" : "", stdout);
    if (most < n)
        printf(" ... and %zu tokens", n - most);
    putchar('\n');
    return code;
}

/* ---- lengths ---- */

/* 1, 2, 5, 10, ...: so that some ten ranges reach to the longest. */
static uint32_t range_of(uint32_t longest)
{
    static const uint32_t steps[] = {1, 2, 5};
    for (uint32_t ten = 1;; ten *= 10)
        for (int i = 0; i < 3; i++)
            if (longest / (steps[i] * ten) < 12 || ten >= 1000000000u)
                return steps[i] * ten;
}

int data_show_lengths(const struct zinf_samples *samples)
{
    const struct zinf_samples_facts *f = zinf_samples_facts(samples);
    uint32_t width = range_of(f->longest), n_ranges = f->longest / width + 1;
    uint64_t *counts = calloc(n_ranges, sizeof *counts), most = 1;
    bool *cuts = calloc(n_ranges, sizeof *cuts);
    int code = counts && cuts ? 0 : zinf_fail(-ENOMEM, "no memory for a histogram");
    for (uint64_t i = 0; !code && i < f->n_samples; i++) {
        uint32_t whole, kept;
        zinf_samples_length(samples, i, &whole, &kept);
        uint64_t n = ++counts[whole / width];
        most = n > most ? n : most;
        cuts[whole / width] |= kept < whole;
    }
    for (uint32_t r = 0; !code && r < n_ranges; r++) {
        int bar = (int)((counts[r] * BAR_COLS + most - 1) / most);
        printf("%8u - %-8u ", r * width, (r + 1) * width - 1);
        for (int i = 0; i < bar; i++)
            fputs("\xe2\x96\x88", stdout);
        printf(" %llu%s\n", (unsigned long long)counts[r], cuts[r] ? ", some are cut" : "");
    }
    free(counts);
    free(cuts);
    return code;
}

/* ---- what became of the rows ---- */

/* "; 3 rows are broken", where there are any. */
static size_t add_count(char *text, size_t used, uint64_t n, const char *what)
{
    char count[32];
    if (!n || used >= 512)
        return used;
    return used + (size_t)snprintf(text + used, 512 - used, "; %s %s", cli_count(count, n), what);
}

void data_show_rows(char text[512], const struct zinf_samples *samples, const char *of)
{
    const struct zinf_samples_facts *f = zinf_samples_facts(samples);
    char n[32], ids[32], counted[32], windows[32];
    size_t used = (size_t)snprintf(text, 512, "%s samples of %s tokens", cli_count(n, f->n_samples),
                                   cli_count(ids, f->n_ids));
    if (f->n_counted) /* of samples with labels none does */
        used += (size_t)snprintf(text + used, 512 - used, ", of which %s count",
                                 cli_count(counted, f->n_counted));
    used += (size_t)snprintf(text + used, 512 - used, "; %s windows%s",
                             cli_count(windows, zinf_samples_n_windows(samples)), of);
    used = add_count(text, used, f->n_cut, "samples are cut");
    used = add_count(text, used, f->n_ids_cut, "tokens are cut off");
    used = add_count(text, used, f->n_sources_cut, "sources are cut");
    used = add_count(text, used, f->n_source_ids_cut, "of their tokens are cut off");
    used = add_count(text, used, f->n_long, "too long, left out");
    used = add_count(text, used, f->n_short, "too short, left out");
    used = add_count(text, used, f->n_unlabelled, "left out with nothing to learn");
    add_count(text, used, f->n_bad, f->n_bad == 1 ? "broken row left out" : "broken rows left out");
}
