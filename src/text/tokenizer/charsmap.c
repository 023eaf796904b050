/*
 * charsmap: the normalizer "Precompiled": SentencePiece's table of replacements, a double array
 * (Aoe, "An Efficient Digital Search Algorithm by Using a Double-Array Structure", 1989, in the
 * layout of darts-clone) over bytes, and the replacements, NUL-terminated. `tokenizers` looks up
 * whole grapheme clusters that are short, else characters, and takes the first hit, which need not
 * be as long as what was looked up.
 */
#include "text/tokenizer/normalize.h"

#include <stdlib.h>

#define SHORT_CLUSTER 6 /* bytes; `tokenizers` looks up what is below it as a whole */

static int digit_of(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

static size_t decode_base64(const char *text, uint8_t *out)
{
    uint32_t bits = 0, n_bits = 0;
    size_t written = 0;
    for (; digit_of(*text) >= 0; text++) {
        bits = bits << 6 | (uint32_t)digit_of(*text);
        n_bits += 6;
        if (n_bits >= 8) {
            n_bits -= 8;
            out[written++] = (uint8_t)(bits >> n_bits);
        }
    }
    return *text && *text != '=' ? 0 : written;
}

int text_charsmap_open(struct text_charsmap *map, const char *base64, const char *what)
{
    uint8_t *bytes = malloc(strlen(base64) + 1);
    uint32_t trie_bytes = 0;
    int32_t stopped_at = 0;
    if (!bytes)
        return zinf_fail(-ENOMEM, "%s: no memory for \"precompiled_charsmap\"", what);
    size_t n = decode_base64(base64, bytes);
    if (n >= 4)
        trie_bytes = bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
                     (uint32_t)bytes[3] << 24;
    if (n < 8 || !trie_bytes || trie_bytes % 4 || trie_bytes > n - 4) {
        free(bytes);
        return zinf_fail(-EINVAL, "%s: \"precompiled_charsmap\" is not SentencePiece's table",
                         what);
    }
    map->n_units = trie_bytes / 4;
    map->units = malloc(trie_bytes);
    map->texts_bytes = n - 4 - trie_bytes;
    map->texts = malloc(map->texts_bytes + 1);
    if (map->units && map->texts) {
        for (size_t i = 0; i < map->n_units; i++) {
            const uint8_t *p = bytes + 4 + 4 * i;
            map->units[i] =
                p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
        }
        memcpy(map->texts, bytes + 4 + trie_bytes, map->texts_bytes);
        map->texts[map->texts_bytes] = 0;
        text_utf8_valid(map->texts, map->texts_bytes, &stopped_at);
    }
    free(bytes);
    if (!map->units || !map->texts)
        return zinf_fail(-ENOMEM, "%s: no memory for \"precompiled_charsmap\"", what);
    if (stopped_at)
        return zinf_fail(-EINVAL, "%s: \"precompiled_charsmap\" has text that is not UTF-8", what);
    return text_pattern_compile(&map->cluster, "\\X", TEXT_PATTERN_OWN, what);
}

void text_charsmap_close(struct text_charsmap *map)
{
    free(map->units);
    free(map->texts);
    pcre2_code_free(map->cluster);
    *map = (struct text_charsmap){0};
}

/* What a part that begins with text becomes, or NULL: itself. */
static const char *replacement_of(const struct text_charsmap *map, const char *text, size_t bytes)
{
    uint32_t at = 0, unit = map->units[0];
    at ^= (unit >> 10) << ((unit & 1u << 9) >> 6);
    for (size_t i = 0; i < bytes && text[i]; i++) {
        at ^= (uint8_t)text[i];
        if (at >= map->n_units)
            return NULL;
        unit = map->units[at];
        if ((unit & (1u << 31 | 0xff)) != (uint8_t)text[i])
            return NULL;
        at ^= (unit >> 10) << ((unit & 1u << 9) >> 6);
        if (at >= map->n_units)
            return NULL;
        uint32_t value = map->units[at] & 0x7fffffff;
        if (unit & 1u << 8) {
            /* A replacement begins where a character does, or the table is damaged. */
            bool whole = value < map->texts_bytes && ((uint8_t)map->texts[value] & 0xc0) != 0x80;
            return whole ? map->texts + value : value == map->texts_bytes ? "" : NULL;
        }
    }
    return NULL;
}

static int put(const struct text_charsmap *map, const char *part, size_t bytes,
               struct text_buffer *out, bool *found)
{
    const char *text = replacement_of(map, part, bytes);
    *found = text != NULL;
    return text ? text_buffer_add(out, text, strlen(text)) : 0;
}

static int put_characters(const struct text_charsmap *map, const char *text, size_t bytes,
                          struct text_buffer *out)
{
    int code = 0;
    bool found;
    for (size_t at = 0, used; at < bytes && !code; at += used) {
        text_utf8_next(text + at, bytes - at, &used);
        code = put(map, text + at, used, out, &found);
        if (!code && !found)
            code = text_buffer_add(out, text + at, used);
    }
    return code;
}

int text_charsmap_apply(const struct text_charsmap *map, struct text_matcher *matcher,
                        const char *text, size_t bytes, struct text_buffer *out)
{
    int code = 0;
    for (size_t at = 0, n; at < bytes && !code; at += n) {
        bool found = false, alone = (uint8_t)text[at] < 0x80 && text[at] != '\r' &&
                                    (at + 1 == bytes || (uint8_t)text[at + 1] < 0x80);
        n = 1;
        if (!alone) { /* of two ASCII characters only CR and LF are one cluster */
            int matched = text_match(matcher, map->cluster, text, bytes, at, false);
            if (matched < 0)
                return matched == PCRE2_ERROR_INTERNAL ? -EIO : zinf_fail(-EIO, "no cluster");
            n = pcre2_get_ovector_pointer(matcher->data)[1] - at;
        }
        if (n < SHORT_CLUSTER)
            code = put(map, text + at, n, out, &found);
        if (!code && !found)
            code = put_characters(map, text + at, n, out);
    }
    return code;
}
