/*
 * bleu: BLEU of a corpus as sacrebleu has it. Its tokenizer "13a", that of mteval-v13a.pl, is a row
 * of substitutions, and is one here: PCRE2 makes them. They work on bytes: each looks at characters
 * of ASCII and at what stands next to them, so that no character is taken apart.
 */
#include "metrics/words.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <math.h>
#include <pcre2.h>
#include <stdlib.h>

/* What Python takes for space. */
#define SPACES "[\\s\\x1c-\\x1f\\x{85}]+"
#define SPACES_OPTIONS (PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF)

static const struct substitution {
    const char *pattern, *instead;
    uint32_t options;
} substitutions[] = {
    {SPACES "\\z", "", SPACES_OPTIONS},
    {"<skipped>", "", PCRE2_LITERAL},
    {"-\n", "", PCRE2_LITERAL},
    {"\n", " ", PCRE2_LITERAL},
    {"&quot;", "\"", PCRE2_LITERAL},
    {"&amp;", "&", PCRE2_LITERAL},
    {"&lt;", "<", PCRE2_LITERAL},
    {"&gt;", ">", PCRE2_LITERAL},
    {"\\A|\\z", " ", 0},
    {"([{-~[-` -&(-+:-@/])", " $1 ", 0},
    {"([^0-9])([.,])", "$1 $2 ", 0},
    {"([.,])([^0-9])", " $1 $2", 0},
    {"([0-9])(-)", "$1 $2 ", 0},
    {SPACES, " ", SPACES_OPTIONS},
};

/* A new text on the heap; NULL: no memory. */
static char *substitute(const struct substitution *s, const char *text)
{
    const uint32_t options = PCRE2_SUBSTITUTE_GLOBAL | PCRE2_SUBSTITUTE_OVERFLOW_LENGTH;
    int number;
    PCRE2_SIZE at, bytes = strlen(text) + 64;
    char *out = NULL;
    pcre2_code *pattern = pcre2_compile((PCRE2_SPTR)s->pattern, PCRE2_ZERO_TERMINATED, s->options,
                                        &number, &at, NULL);
    for (int turn = 0; pattern && turn < 2; turn++) { /* the second with the bytes it takes */
        free(out);
        out = malloc(bytes);
        int count = out ? pcre2_substitute(pattern, (PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, 0,
                                           options, NULL, NULL, (PCRE2_SPTR)s->instead,
                                           PCRE2_ZERO_TERMINATED, (PCRE2_UCHAR *)out, &bytes)
                        : -1;
        if (count >= 0)
            break;
        if (!out || count != PCRE2_ERROR_NOMEMORY || turn) {
            free(out);
            out = NULL;
            break;
        }
    }
    pcre2_code_free(pattern);
    return out;
}

/* Without the spaces at its ends. */
static void strip(char *text)
{
    size_t n = strlen(text);
    while (n && text[n - 1] == ' ')
        text[--n] = 0;
    size_t first = strspn(text, " ");
    memmove(text, text + first, n - first + 1);
}

char *zinf_bleu_tokens(const char *text)
{
    char *now = strdup(text);
    for (size_t i = 0; now && i < sizeof substitutions / sizeof *substitutions; i++) {
        char *next = substitute(&substitutions[i], now);
        free(now);
        now = next;
    }
    if (now)
        strip(now);
    else
        zinf_fail(-ENOMEM, "no memory for the tokens of %zu bytes", strlen(text));
    return now;
}

/* ---- counts ---- */

static int add_words(struct words *w, bool second, const char *tokens)
{
    int code = 0;
    while (!code && *tokens) {
        size_t n = strcspn(tokens, " ");
        code = words_add(w, second, tokens, n);
        tokens += n + (tokens[n] == ' ');
    }
    return code;
}

static int add_counts(struct zinf_bleu *bleu, const struct words *w)
{
    int code = 0;
    for (int order = 1; !code && order <= ZINF_BLEU_ORDER; order++) {
        uint64_t matches;
        code = words_matches(w, order, &matches);
        if (code)
            break;
        bleu->matches[order - 1] += matches;
        bleu->totals[order - 1] += words_grams(w->n[0], (uint64_t)order);
    }
    bleu->predicted_words += code ? 0 : w->n[0];
    bleu->reference_words += code ? 0 : w->n[1];
    return code;
}

int zinf_bleu_add(struct zinf_bleu *bleu, const char *predicted, const char *reference)
{
    struct words w = {0};
    struct zinf_bleu sum = *bleu;
    char *texts[2] = {zinf_bleu_tokens(predicted), NULL};
    if (texts[0])
        texts[1] = zinf_bleu_tokens(reference);
    int code = texts[1] ? add_words(&w, false, texts[0]) : -ENOMEM;
    if (!code)
        code = add_words(&w, true, texts[1]);
    if (!code)
        code = words_number(&w);
    if (!code)
        code = add_counts(&sum, &w);
    if (!code)
        *bleu = sum;
    words_free(&w);
    free(texts[0]);
    free(texts[1]);
    return code;
}

/* An order without a match counts as half a match, the next such order as a quarter, ... */
double zinf_bleu_score(const struct zinf_bleu *b, bool sentence)
{
    double logs = 0, smooth = 1;
    int orders = ZINF_BLEU_ORDER;
    uint64_t any = 0;
    for (int i = 0; i < ZINF_BLEU_ORDER; i++)
        any += b->matches[i];
    if (!any)
        return 0;
    for (int i = 0; i < ZINF_BLEU_ORDER; i++) {
        if (!b->totals[i]) { /* too short for it: nothing is right, unless it does not count */
            if (!sentence)
                return 0;
            break;
        }
        orders = sentence ? i + 1 : orders;
        smooth *= b->matches[i] ? 1 : 2;
        double hits = b->matches[i] ? (double)b->matches[i] : 1 / smooth;
        logs += log(100 * hits / (double)b->totals[i]);
    }
    double brevity = b->predicted_words < b->reference_words
                         ? 1 - (double)b->reference_words / (double)b->predicted_words
                         : 0;
    return exp(brevity + logs / orders);
}
