/*
 * pretokenize: compiles the expressions that cut text into pieces. tokenizer.json writes them for
 * Oniguruma; here PCRE2 runs them. So only what both engines read alike is let through: a pattern
 * with anything else is refused, since it would give other tokens without a word.
 *
 * A pattern may not look behind. Then what it matches at a place depends on the text from there on
 * alone, which is what lets encode.c cut a stream at the end of any piece.
 */
#include "text/internal.h"

#include <stdio.h>
#include <stdlib.h>

const char text_gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

#define MAX_PATTERN 4096
#define TRANSLATED                                                                                 \
    (16 * MAX_PATTERN) /* the characters that are newer than the engine take room                  \
                        */

struct reader {
    const char *at; /* NUL-terminated */
    char *out;
    size_t out_bytes, capacity;
    bool plain_space; /* leave \s to the engine */
};

static bool copy(struct reader *r, size_t n)
{
    if (r->out_bytes + n >= r->capacity)
        return false;
    memcpy(r->out + r->out_bytes, r->at, n);
    r->out_bytes += n;
    r->at += n;
    return true;
}

static bool put(struct reader *r, const char *text)
{
    size_t n = strlen(text);
    if (r->out_bytes + n >= r->capacity)
        return false;
    memcpy(r->out + r->out_bytes, text, n);
    r->out_bytes += n;
    return true;
}

/* \s as White_Space itself: PCRE2's own also takes U+180E. Returns NULL, or what is not
 * understood, as all read_ functions here do. */
static const char *read_space(struct reader *r)
{
    bool negated = r->at[1] == 'S';
    if (r->plain_space)
        return copy(r, 2) ? NULL : "its length";
    r->at += 2;
    return put(r, negated ? "\\P{White_Space}" : "\\p{White_Space}") ? NULL : "its length";
}

/* The characters of a general category that the engine may not know yet, as ranges. */
static bool put_newer(struct reader *r, const char *category, size_t letters)
{
    bool good = true;
    for (size_t i = 0; i < text_newer_count && good; i++) {
        const struct text_newer *newer = &text_newer[i];
        char range[32];
        snprintf(range, sizeof range, "\\x{%x}-\\x{%x}", newer->first, newer->last);
        if (!strncmp(newer->category, category, letters))
            good = put(r, range);
    }
    return good;
}

/* As a class, or as members of the one that is open. */
static bool put_category(struct reader *r, const char *category, int letters, bool negated,
                         bool in_class)
{
    char positive[8];
    snprintf(positive, sizeof positive, "\\p{%.*s}", letters, category);
    bool good = in_class || put(r, negated ? "[^" : "[");
    good = good && put(r, positive) && put_newer(r, category, (size_t)letters);
    return good && (in_class || put(r, "]"));
}

/* General categories alone; names of scripts differ in meaning. */
static const char *read_property(struct reader *r, bool in_class)
{
    const char *p = r->at + 2;
    bool whole = p[0] == '{' && p[1] && p[2] == '}';
    bool known = p[0] == '{' && p[1] && strchr("LMNPSZ", p[1]) &&
                 (whole || (p[2] >= 'a' && p[2] <= 'z' && p[3] == '}'));
    bool negated = r->at[1] == 'P';
    if (!known || (negated && in_class))
        return known ? "\\P in a class" : "a property other than L, M, N, P, S, Z and their kinds";
    bool good = put_category(r, p + 1, whole ? 1 : 2, negated, in_class);
    r->at += whole ? 5 : 6;
    return good ? NULL : "its length";
}

/* \d as the decimal digits of all scripts, as \p{Nd}. */
static const char *read_digit(struct reader *r, bool in_class)
{
    bool negated = r->at[1] == 'D';
    if (negated && in_class)
        return "\\D in a class";
    r->at += 2;
    return put_category(r, "Nd", 2, negated, in_class) ? NULL : "its length";
}

static const char *read_escape(struct reader *r, bool in_class)
{
    char c = r->at[1];
    if (c == 's' || c == 'S')
        return read_space(r);
    if (c == 'p' || c == 'P')
        return read_property(r, in_class);
    if (c == 'd' || c == 'D')
        return read_digit(r, in_class);
    if (c == 'x') {
        size_t digits = r->at[2] == '{' ? strspn(r->at + 3, "0123456789abcdefABCDEF") : 0;
        if (!digits || r->at[3 + digits] != '}')
            return "\\x without braces";
        return copy(r, digits + 4) ? NULL : "its length";
    }
    bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!c || (uint8_t)c >= 0x80 || (letter && !strchr("rntf", c)))
        return "an escape with another meaning";
    return copy(r, 2) ? NULL : "its length";
}

static const char *read_class(struct reader *r)
{
    if (!copy(r, r->at[1] == '^' ? 2 : 1))
        return "its length";
    if (*r->at == ']')
        return "an empty class";
    int depth = 1;
    while (*r->at != ']' || depth > 1) {
        const char *trouble = NULL;
        if (!*r->at)
            return "a class without end";
        /* A class within a class is more of its members; only Oniguruma writes them so. */
        if (*r->at == ']' || (*r->at == '[' && r->at[1] != '^' && r->at[1] != ':')) {
            depth += *r->at == '[' ? 1 : -1;
            r->at++;
            continue;
        }
        if (*r->at == '[')
            return "a negated or named class within a class";
        if (r->at[0] == '&' && r->at[1] == '&')
            return "a meeting of classes (&&)";
        if (*r->at == '\\')
            trouble = read_escape(r, true);
        else if (!copy(r, 1))
            trouble = "its length";
        if (trouble)
            return trouble;
    }
    return copy(r, 1) ? NULL : "its length";
}

static const char *read_group(struct reader *r)
{
    if (r->at[1] == '*')
        return "a verb";
    if (r->at[1] == '?') {
        const char *p = r->at + 2;
        if (!strncmp(p, "i:", 2))
            return copy(r, 4) ? NULL : "its length";
        if (!*p || !strchr(":=!>", *p))
            return "a group other than (?:, (?i:, (?=, (?! and (?>";
        return copy(r, 3) ? NULL : "its length";
    }
    return copy(r, 1) ? NULL : "its length";
}

/* After a counted repeat, + and ? make it possessive or lazy in one engine, a repeat in the other.
 */
static const char *read_count(struct reader *r)
{
    size_t n = 1 + strspn(r->at + 1, "0123456789");
    bool counted = n > 1;
    if (r->at[n] == ',')
        n += 1 + strspn(r->at + n + 1, "0123456789");
    if (!counted || r->at[n] != '}')
        return "a brace that is no {n,m}";
    n++;
    if (r->at[n] == '+' || r->at[n] == '?')
        return "+ or ? after {n,m}";
    return copy(r, n) ? NULL : "its length";
}

static const char *translate(struct reader *r)
{
    while (*r->at) {
        const char *trouble = NULL;
        switch (*r->at) {
        case '\\':
            trouble = read_escape(r, false);
            break;
        case '[':
            trouble = read_class(r);
            break;
        case '(':
            trouble = read_group(r);
            break;
        case '{':
            trouble = read_count(r);
            break;
        case '^':
        case '$':
            trouble = "an anchor (^ or $)";
            break;
        default:
            trouble = copy(r, 1) ? NULL : "its length";
        }
        if (trouble)
            return trouble;
    }
    r->out[r->out_bytes] = 0;
    return NULL;
}

static pcre2_code *compile_text(const char *pattern, uint32_t options, int *error)
{
    PCRE2_SIZE offset;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!context) {
        *error = PCRE2_ERROR_NOMEMORY;
        return NULL;
    }
    pcre2_set_newline(context, PCRE2_NEWLINE_LF); /* the dot stops at \n alone */
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                     PCRE2_UTF | options, error, &offset, context);
    pcre2_compile_context_free(context);
    return code;
}

static int compile_expression(pcre2_code **out, const char *pattern, const char *what)
{
    char *translated = malloc(TRANSLATED);
    const char *trouble = NULL;
    int error = 0, code = 0;
    if (!translated)
        return zinf_fail(-ENOMEM, "%s: no memory for a pattern", what);
    for (int attempt = 0; attempt < 2 && !*out && !trouble; attempt++) {
        struct reader r = {.at = pattern, .out = translated, .capacity = TRANSLATED};
        r.plain_space = attempt > 0; /* PCRE2 before 10.40 does not know White_Space */
        trouble = translate(&r);
        if (!trouble)
            *out = compile_text(translated, PCRE2_UCP, &error);
    }
    free(translated);
    if (trouble)
        code = zinf_fail(-ENOTSUP, "%s: the pattern '%.200s' has %s, which is not supported", what,
                         pattern, trouble);
    else if (!*out) {
        char reason[128];
        pcre2_get_error_message(error, (PCRE2_UCHAR *)reason, sizeof reason);
        code = zinf_fail(-EINVAL, "%s: the pattern '%.200s': %s", what, pattern, reason);
    }
    return code;
}

int text_pattern_compile(pcre2_code **out, const char *pattern, enum text_pattern kind,
                         const char *what)
{
    int error, code = 0;
    uint32_t behind = 0, matches_empty = 0;
    *out = NULL;
    if (kind != TEXT_PATTERN_OWN && (!*pattern || strlen(pattern) > MAX_PATTERN))
        return zinf_fail(-EINVAL, "%s: a pattern of %zu bytes; 1 to %d are taken", what,
                         strlen(pattern), MAX_PATTERN);
    if (kind == TEXT_PATTERN_EXPRESSION)
        code = compile_expression(out, pattern, what);
    else
        *out = compile_text(pattern, kind == TEXT_PATTERN_OWN ? PCRE2_UCP : PCRE2_LITERAL, &error);
    if (code)
        return code;
    if (!*out)
        return zinf_fail(-EINVAL, "%s: the pattern '%.200s' is not usable", what, pattern);
    pcre2_pattern_info(*out, PCRE2_INFO_MAXLOOKBEHIND, &behind);
    pcre2_pattern_info(*out, PCRE2_INFO_MATCHEMPTY, &matches_empty);
    if (kind != TEXT_PATTERN_OWN && (behind || matches_empty)) {
        pcre2_code_free(*out);
        *out = NULL;
        return zinf_fail(-ENOTSUP, "%s: the pattern '%.200s' %s, which is not supported", what,
                         pattern, behind ? "looks behind" : "matches the empty text");
    }
    /* Without JIT (refused, or not built in) matching is slower and otherwise the same. */
    (void)pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
    return 0;
}

/* ---- matching ---- */

int text_matcher_init(struct text_matcher *matcher)
{
    matcher->data = pcre2_match_data_create(1, NULL);
    matcher->context = pcre2_match_context_create(NULL);
    if (!matcher->data || !matcher->context) {
        text_matcher_fini(matcher);
        return zinf_fail(-ENOMEM, "no memory to tokenize");
    }
    pcre2_set_heap_limit(matcher->context, 256 * 1024); /* KiB; only without JIT */
    return 0;
}

void text_matcher_fini(struct text_matcher *matcher)
{
    pcre2_match_data_free(matcher->data);
    pcre2_match_context_free(matcher->context);
    *matcher = (struct text_matcher){0};
}

int text_match(struct text_matcher *matcher, const pcre2_code *code, const char *text, size_t bytes,
               size_t at, bool open)
{
    uint32_t options = PCRE2_NO_UTF_CHECK | (open ? PCRE2_PARTIAL_HARD : 0);
    /* Enough for any pattern that does not explode; a long run of one kind may be walked back. */
    uint64_t limit = 10000000 + 8 * (uint64_t)bytes;
    pcre2_set_match_limit(matcher->context, limit < UINT32_MAX ? (uint32_t)limit : UINT32_MAX);
    int found =
        pcre2_match(code, (PCRE2_SPTR)text, bytes, at, options, matcher->data, matcher->context);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT)
        found = pcre2_match(code, (PCRE2_SPTR)text, bytes, at, options | PCRE2_NO_JIT,
                            matcher->data, matcher->context);
    if (found >= 0 || found == PCRE2_ERROR_NOMATCH || found == PCRE2_ERROR_PARTIAL)
        return found;
    char reason[128];
    pcre2_get_error_message(found, (PCRE2_UCHAR *)reason, sizeof reason);
    zinf_fail(-EIO, "the tokenizer's pattern gives up on this text: %s", reason);
    return PCRE2_ERROR_INTERNAL;
}
