/*
 * config_hjson: Hjson, which DeepSpeed reads its files as, made plain JSON: comments, commas that
 * are missing at a line's end or trail, names and words without quotes, single quotes, texts of
 * several lines, no outermost braces. Every value stays in its line, so that messages about the
 * JSON are right for the file too. cJSON then judges numbers and strings.
 *
 * Rules: hjson.github.io/syntax.html; tests/config_hjson_test.c has what Python's hjson makes of
 * them. A word without quotes goes on to the end of its line: "GBSIZE," keeps its comma.
 */
#include "config/config_private.h"

#include <stdlib.h>
#include <string.h>

/* ---- words without quotes ---- */

/* Their length without spaces at the end. */
static size_t hjson_trimmed(const char *text, size_t n)
{
    while (n && strchr(" \t\r", text[n - 1]) && text[n - 1])
        n--;
    return n;
}

/* As JSON writes numbers: no leading zeros, no bare point. */
static bool is_number(const char *text, size_t n)
{
    static const char digits[] = "0123456789";
    char copy[64];
    if (n >= sizeof copy)
        return false;
    memcpy(copy, text, n);
    copy[n] = 0;
    const char *at = copy + (copy[0] == '-');
    size_t whole = strspn(at, digits), part;
    if (!whole || (whole > 1 && *at == '0'))
        return false;
    at += whole;
    if (*at == '.') {
        part = strspn(++at, digits);
        if (!part)
            return false;
        at += part;
    }
    if (*at == 'e' || *at == 'E') {
        at += at[1] == '+' || at[1] == '-' ? 2 : 1;
        part = strspn(at, digits);
        if (!part)
            return false;
        at += part;
    }
    return at == copy + n;
}

/* true, false, null, or a number as JSON writes one. */
static bool hjson_is_plain(const char *text, size_t n)
{
    static const char *const words[] = {"true", "false", "null"};
    for (int i = 0; i < 3; i++)
        if (n == strlen(words[i]) && !memcmp(text, words[i], n))
            return true;
    return is_number(text, n);
}

/* Whether something in it could end a value. */
static bool hjson_has_end(const char *text, size_t n)
{
    return memchr(text, ',', n) || memchr(text, '}', n) || memchr(text, ']', n);
}

#define MAX_DEPTH 64
#define END_OF_TEXT (-1)

struct reader {
    const char *text, *what;
    size_t bytes, at;
    int line, depth;
    int word_line; /* of the last word that went on over a comma or bracket; 0: none */
    char *out;     /* on the heap */
    size_t used, capacity;
};

static int fail(const struct reader *r, const char *sentence)
{
    return zinf_fail(-EINVAL, "%s: line %d: not valid JSON: %s", r->what, r->line, sentence);
}

/* Often the end was swallowed by a word without quotes. */
static int fail_open(const struct reader *r, int begin, const char *noun, char end)
{
    char hint[96] = "";
    if (r->word_line)
        snprintf(hint, sizeof hint, "; the value in line %d has no quotes and takes all of it",
                 r->word_line);
    return zinf_fail(-EINVAL,
                     "%s: line %d: not valid JSON: the %s that begins here has no end: a "
                     "'%c' is missing%s",
                     r->what, begin, noun, end, hint);
}

/* ---- writing ---- */

static int put_bytes(struct reader *r, const char *bytes, size_t n)
{
    if (r->used + n + 1 > r->capacity) {
        size_t capacity = 2 * (r->used + n) + 64;
        char *longer = realloc(r->out, capacity);
        if (!longer)
            return zinf_fail(-ENOMEM, "%s: no memory for %zu bytes", r->what, capacity);
        r->out = longer;
        r->capacity = capacity;
    }
    memcpy(r->out + r->used, bytes, n);
    r->used += n;
    r->out[r->used] = 0;
    return 0;
}

static int put(struct reader *r, char c)
{
    return put_bytes(r, &c, 1);
}

/* One byte of a string's content. */
static int put_escaped(struct reader *r, char c)
{
    char hex[8];
    if (c == '"' || c == '\\') {
        char pair[2] = {'\\', c};
        return put_bytes(r, pair, 2);
    }
    if ((unsigned char)c >= 0x20)
        return put(r, c);
    int n = snprintf(hex, sizeof hex, "\\u%04x", (unsigned char)c);
    return put_bytes(r, hex, (size_t)n);
}

static int put_quoted(struct reader *r, const char *text, size_t n)
{
    int code = put(r, '"');
    for (size_t i = 0; i < n && !code; i++)
        code = put_escaped(r, text[i]);
    return code ? code : put(r, '"');
}

/* ---- reading ---- */

static int peek(const struct reader *r)
{
    return r->at < r->bytes ? (unsigned char)r->text[r->at] : END_OF_TEXT;
}

static bool looking_at(const struct reader *r, const char *word)
{
    size_t n = strlen(word);
    return r->bytes - r->at >= n && !memcmp(r->text + r->at, word, n);
}

static bool is_comment(const struct reader *r)
{
    return looking_at(r, "#") || looking_at(r, "//") || looking_at(r, "/*");
}

/* Passes one byte; the line it ends is ended in the JSON too. */
static int pass(struct reader *r)
{
    if (r->text[r->at++] != '\n')
        return 0;
    r->line++;
    return put(r, '\n');
}

static int skip_comment(struct reader *r)
{
    bool block = looking_at(r, "/*");
    int code = 0;
    if (block)
        r->at += 2;
    while (!code && r->at < r->bytes && !(block ? looking_at(r, "*/") : peek(r) == '\n'))
        code = pass(r);
    if (block && !code && r->at >= r->bytes)
        return fail(r, "the comment that began with /* has no end");
    r->at += block ? 2 : 0;
    return code;
}

/* White space and comments. */
static int skip(struct reader *r)
{
    int code = 0;
    while (!code && r->at < r->bytes) {
        if (is_comment(r))
            code = skip_comment(r);
        else if (strchr(" \t\r\n", peek(r)) && peek(r))
            code = pass(r);
        else
            break;
    }
    return code;
}

/* "..." or '...': escapes go through as they are, but for \', which JSON does not have. */
static int read_string(struct reader *r)
{
    char quote = r->text[r->at++];
    int code = put(r, '"');
    while (!code && peek(r) != quote) {
        int c = peek(r);
        if (c == END_OF_TEXT || c == '\n')
            return fail(r, "a string has no end in its line");
        r->at++;
        if (c != '\\') {
            code = put_escaped(r, (char)c);
            continue;
        }
        c = peek(r);
        if (c == END_OF_TEXT)
            return fail(r, "a string has no end in its line");
        if (c != '\'')
            code = put(r, '\\');
        if (!code)
            code = put(r, (char)c);
        r->at++;
    }
    r->at++;
    return code ? code : put(r, '"');
}

/* Columns before the opening quotes: so much is taken from the beginning of each line. */
static size_t indent_of(const struct reader *r)
{
    size_t indent = 0;
    while (indent < r->at && r->text[r->at - 1 - indent] != '\n')
        indent++;
    return indent;
}

/* '''...''': the first line end and the last are no part of it. */
static int read_lines(struct reader *r)
{
    size_t indent = indent_of(r);
    int lines = 0, code;
    r->at += 3;
    while (strchr(" \t\r", peek(r)) && peek(r) > 0)
        r->at++;
    bool first = peek(r) == '\n';
    code = put(r, '"');
    while (!code && !looking_at(r, "'''")) {
        int c = peek(r);
        if (c == END_OF_TEXT)
            return fail(r, "a text that began with ''' has no end");
        r->at++;
        if (c == '\n') {
            lines++;
            size_t left = indent;
            while (left-- && r->at < r->bytes && strchr(" \t", peek(r)))
                r->at++;
            bool closing = looking_at(r, "'''");
            if (!first && !closing)
                code = put_bytes(r, "\\n", 2);
            first = false;
        } else if (c != '\r') {
            code = put_escaped(r, (char)c);
        }
    }
    r->at += 3;
    code = code ? code : put(r, '"');
    for (; lines && !code; lines--) {
        r->line++;
        code = put(r, '\n');
    }
    return code;
}

/* true, false, null or a number ends at the first place where one may; else all of the line is a
 * string. */
static int read_word(struct reader *r)
{
    const char *begin = r->text + r->at;
    if (strchr("{}[],:", *begin) && *begin) {
        char sentence[64];
        snprintf(sentence, sizeof sentence, "'%c' where a value should be", *begin);
        return fail(r, sentence);
    }
    for (size_t n = 0;; n++, r->at++) {
        int c = peek(r);
        bool end = c == END_OF_TEXT || c == '\n';
        if (!end && !strchr(",}]", c) && !is_comment(r))
            continue;
        size_t length = hjson_trimmed(begin, n);
        if (hjson_is_plain(begin, length))
            return put_bytes(r, begin, length);
        if (end) {
            r->word_line = hjson_has_end(begin, length) ? r->line : r->word_line;
            return put_quoted(r, begin, length);
        }
    }
}

static int read_value(struct reader *r);

static int read_array(struct reader *r)
{
    int line = r->line, code = put(r, '[');
    bool first = true;
    r->at++;
    if (!code)
        code = skip(r);
    while (!code && peek(r) != ']') {
        if (peek(r) == END_OF_TEXT)
            return fail_open(r, line, "list", ']');
        if (!first)
            code = put(r, ',');
        first = false;
        if (!code)
            code = read_value(r);
        if (!code)
            code = skip(r);
        if (!code && peek(r) == ',') {
            r->at++;
            code = skip(r);
        }
    }
    r->at++;
    return code ? code : put(r, ']');
}

/* A member's name, which needs no quotes. */
static int read_name(struct reader *r)
{
    char sentence[96];
    int c = peek(r);
    if (c == '"' || c == '\'')
        return read_string(r);
    const char *begin = r->text + r->at;
    size_t n = 0;
    while (r->at + n < r->bytes && begin[n] && !strchr("{}[],: \t\r\n", begin[n]))
        n++;
    if (!n) {
        snprintf(sentence, sizeof sentence, "'%c' where a key should be", c >= 0x20 ? c : '?');
        return fail(r, sentence);
    }
    r->at += n;
    return put_quoted(r, begin, n);
}

static int read_member(struct reader *r)
{
    int code = read_name(r);
    if (!code)
        code = skip(r);
    if (!code && peek(r) != ':')
        return fail(r, "a colon should follow the key");
    r->at++;
    if (!code)
        code = put(r, ':');
    if (!code)
        code = skip(r);
    return code ? code : read_value(r);
}

/* braces: false for a file that leaves out the outermost. */
static int read_object(struct reader *r, bool braces)
{
    int line = r->line, code = put(r, '{'), last = braces ? '}' : END_OF_TEXT;
    bool first = true;
    r->at += braces;
    if (!code)
        code = skip(r);
    while (!code && peek(r) != last) {
        if (peek(r) == END_OF_TEXT)
            return fail_open(r, line, "object", '}');
        if (!first)
            code = put(r, ',');
        first = false;
        if (!code)
            code = read_member(r);
        if (!code)
            code = skip(r);
        if (!code && peek(r) == ',') {
            r->at++;
            code = skip(r);
        }
    }
    r->at += braces;
    return code ? code : put(r, '}');
}

static int read_value(struct reader *r)
{
    int c = peek(r), code;
    if (c == END_OF_TEXT)
        return fail(r, "the file ends where a value should be");
    if (c != '{' && c != '[') {
        if (looking_at(r, "'''"))
            return read_lines(r);
        return c == '"' || c == '\'' ? read_string(r) : read_word(r);
    }
    if (++r->depth > MAX_DEPTH)
        return fail(r, "nested deeper than 64");
    code = c == '{' ? read_object(r, true) : read_array(r);
    r->depth--;
    return code;
}

int zinf_config_hjson(const char *text, size_t bytes, const char *what, char **out,
                      size_t *out_bytes)
{
    struct reader r = {.text = text, .bytes = bytes, .what = what, .line = 1};
    if (looking_at(&r, "\xef\xbb\xbf")) /* a byte-order mark */
        r.at = 3;
    int code = skip(&r);
    if (!code)
        code = peek(&r) == '{' || peek(&r) == '[' ? read_value(&r) : read_object(&r, false);
    if (!code)
        code = skip(&r);
    if (!code && r.at < bytes)
        code = fail(&r, "more text after the end of the object");
    if (code) {
        free(r.out);
        return code;
    }
    *out = r.out;
    *out_bytes = r.used;
    return 0;
}
