/*
 * added: finds added tokens in text, leftmost first and the longest of those. The rules, down to
 * the odd ones, are those of Hugging Face's `tokenizers`: a match that fails single_word still
 * uses up its text, and white space that rstrip took may begin the next token.
 */
#include "text/internal.h"

#include <stdio.h>
#include <stdlib.h>

int text_added_add(struct text_added_set *set, const struct text_added *token)
{
    if (set->count == set->capacity) {
        size_t capacity = set->capacity ? 2 * set->capacity : 16;
        void *grown = realloc(set->tokens, capacity * sizeof *set->tokens);
        if (!grown)
            return zinf_fail(-ENOMEM, "no memory for %zu added tokens", capacity);
        set->tokens = grown;
        set->capacity = capacity;
    }
    struct text_added *copy = &set->tokens[set->count];
    *copy = *token;
    copy->content = malloc(token->bytes + 1);
    if (!copy->content)
        return zinf_fail(-ENOMEM, "no memory for an added token of %zu bytes", token->bytes);
    memcpy(copy->content, token->content, token->bytes);
    copy->content[token->bytes] = 0;
    set->count++;
    return 0;
}

static int compare_tokens(const void *left, const void *right)
{
    const struct text_added *a = left, *b = right;
    uint8_t first_a = (uint8_t)a->content[0], first_b = (uint8_t)b->content[0];
    if (first_a != first_b)
        return first_a < first_b ? -1 : 1;
    if (a->bytes != b->bytes)
        return a->bytes > b->bytes ? -1 : 1;
    return memcmp(a->content, b->content, a->bytes);
}

/* A letter of a word as Rust's \w has it: Alphabetic, marks, decimal digits, connectors, joiners.
 * The ranges are the circled and squared letters, which are Alphabetic without being letters. */
const char text_word_members[] =
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}"
    "\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}\\x{200c}\\x{200d}";

int text_added_seal(struct text_added_set *set)
{
    bool any_single_word = false;
    if (set->count)
        qsort(set->tokens, set->count, sizeof *set->tokens, compare_tokens);
    for (size_t i = 0; i < set->count; i++) {
        const struct text_added *token = &set->tokens[i];
        set->buckets[(uint8_t)token->content[0] + 1]++;
        if (token->bytes > set->longest)
            set->longest = token->bytes;
        set->any_lstrip |= token->lstrip;
        any_single_word |= token->single_word;
    }
    for (int byte = 0; byte < 256; byte++)
        set->buckets[byte + 1] += set->buckets[byte];
    if (!any_single_word)
        return 0;
    char pattern[256];
    snprintf(pattern, sizeof pattern, "[%s]", text_word_members);
    return text_pattern_compile(&set->word, pattern, TEXT_PATTERN_EXPRESSION, "single_word");
}

void text_added_fini(struct text_added_set *set)
{
    for (size_t i = 0; i < set->count; i++)
        free(set->tokens[i].content);
    free(set->tokens);
    pcre2_code_free(set->word);
    *set = (struct text_added_set){0};
}

const struct text_added *text_added_named(const struct text_added_set *set, const char *content)
{
    for (size_t i = 0; i < set->count; i++)
        if (!strcmp(set->tokens[i].content, content))
            return &set->tokens[i];
    return NULL;
}

/* The longest token that stands at text, or NULL. */
static const struct text_added *token_at(const struct text_added_set *set, const char *text,
                                         size_t bytes)
{
    uint8_t first = (uint8_t)text[0];
    for (uint32_t i = set->buckets[first]; i < set->buckets[first + 1]; i++)
        if (set->tokens[i].bytes <= bytes &&
            !memcmp(text, set->tokens[i].content, set->tokens[i].bytes))
            return &set->tokens[i];
    return NULL;
}

static int is_word_character(const struct text_added_set *set, const char *text, size_t bytes)
{
    pcre2_match_data *match = pcre2_match_data_create(1, NULL);
    if (!match)
        return zinf_fail(-ENOMEM, "no memory to match an added token");
    int found = pcre2_match(set->word, (PCRE2_SPTR)text, bytes, 0, 0, match, NULL);
    pcre2_match_data_free(match);
    return found > 0;
}

/* 1 if the text around [begin, end) lets it be a word of its own. */
static int stands_alone(const struct text_added_set *set, const struct text_added_scan *scan,
                        size_t begin, size_t end)
{
    size_t start, used;
    if (begin > scan->sentence &&
        text_utf8_previous(scan->text, scan->sentence, begin, &start) >= 0) {
        int word = is_word_character(set, scan->text + start, begin - start);
        if (word)
            return word < 0 ? word : 0;
    }
    if (end < scan->end && text_utf8_next(scan->text + end, scan->end - end, &used) >= 0) {
        int word = is_word_character(set, scan->text + end, used);
        if (word)
            return word < 0 ? word : 0;
    }
    return 1;
}

static size_t white_space_begin(const char *text, size_t begin, size_t end)
{
    size_t start;
    while (end > begin && text_is_white_space(text_utf8_previous(text, begin, end, &start)))
        end = start;
    return end;
}

static size_t white_space_end(const char *text, size_t begin, size_t end)
{
    size_t used;
    while (begin < end && text_is_white_space(text_utf8_next(text + begin, end - begin, &used)))
        begin += used;
    return begin;
}

/* Before this a token that starts is whole in the text, with a character after it, and white space
 * that a later token might swallow is left out. */
static size_t certain_end(const struct text_added_set *set, const struct text_added_scan *scan)
{
    if (!scan->open || !set->count)
        return scan->end;
    size_t margin = set->longest - 1 + (set->word ? 4 : 0);
    size_t limit = scan->end - scan->piece > margin ? scan->end - margin : scan->piece;
    for (int back = 0; back < 3 && limit > scan->piece; back++, limit--)
        if (limit == scan->end || ((uint8_t)scan->text[limit] & 0xc0) != 0x80)
            break;
    return set->any_lstrip ? white_space_begin(scan->text, scan->piece, limit) : limit;
}

int text_added_next(const struct text_added_set *set, struct text_added_scan *scan,
                    struct text_added_match *match, size_t *limit, bool *closed)
{
    const char *text = scan->text;
    *limit = certain_end(set, scan);
    *closed = !scan->open;
    for (size_t at = scan->scan; set->count && at < *limit; at++) {
        uint8_t first = (uint8_t)text[at];
        if (set->buckets[first] == set->buckets[first + 1])
            continue;
        const struct text_added *token = token_at(set, text + at, scan->end - at);
        if (!token)
            continue;
        size_t begin = at, end = at + token->bytes;
        int alone = token->single_word ? stands_alone(set, scan, begin, end) : 1;
        if (alone < 0)
            return alone;
        if (!alone) {
            scan->scan = end;
            at = end - 1;
            continue;
        }
        if (token->lstrip)
            begin = white_space_begin(text, scan->piece, begin);
        size_t after = token->rstrip ? white_space_end(text, end, scan->end) : end;
        /* Within a character's length of an open end, more white space may follow. */
        if (scan->open && token->rstrip && (after > *limit || scan->end - after < 4)) {
            *limit = begin;
            *closed = true;
            return 0;
        }
        *match = (struct text_added_match){token, begin, after};
        scan->scan = end;
        scan->piece = after;
        return 1;
    }
    return 0;
}
