/*
 * utf8: stepping through text that may not be UTF-8. What is malformed is measured as Unicode's
 * "maximal subpart", so that a decoder that puts one U+FFFD for each agrees with everybody else's.
 */
#include "text/internal.h"

int32_t text_utf8_next(const char *text, size_t bytes, size_t *used)
{
    const uint8_t *s = (const uint8_t *)text;
    uint8_t lead = s[0];
    *used = 1;
    if (lead < 0x80)
        return lead;
    if (lead < 0xc2 || lead > 0xf4)
        return TEXT_UTF8_INVALID;
    size_t length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    int32_t code_point = lead & (0x7f >> length);
    /* The second byte's range keeps out long forms, surrogates and what lies above U+10FFFF. */
    uint8_t low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    uint8_t high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    for (size_t i = 1; i < length; i++) {
        if (i == bytes)
            return TEXT_UTF8_TRUNCATED;
        if (s[i] < low || s[i] > high)
            return TEXT_UTF8_INVALID;
        code_point = code_point << 6 | (s[i] & 0x3f);
        *used = i + 1;
        low = 0x80;
        high = 0xbf;
    }
    return code_point;
}

int32_t text_utf8_previous(const char *text, size_t begin, size_t end, size_t *start)
{
    for (size_t back = 1; back <= 4 && back <= end - begin; back++) {
        size_t used;
        if (((uint8_t)text[end - back] & 0xc0) == 0x80)
            continue;
        int32_t code_point = text_utf8_next(text + end - back, back, &used);
        if (code_point < 0 || used != back)
            break;
        *start = end - back;
        return code_point;
    }
    *start = end - 1;
    return TEXT_UTF8_INVALID;
}

size_t text_utf8_valid(const char *text, size_t bytes, int32_t *stopped_at)
{
    size_t at = 0;
    *stopped_at = 0;
    while (at < bytes) {
        uint64_t eight;
        size_t used;
        if (bytes - at >= 8) {
            memcpy(&eight, text + at, 8);
            if (!(eight & 0x8080808080808080u)) {
                at += 8;
                continue;
            }
        }
        int32_t code_point = text_utf8_next(text + at, bytes - at, &used);
        if (code_point < 0) {
            *stopped_at = code_point;
            break;
        }
        at += used;
    }
    return at;
}

size_t text_utf8_put(uint32_t code_point, char *out)
{
    if (code_point < 0x80) {
        out[0] = (char)code_point;
        return 1;
    }
    size_t length = code_point < 0x800 ? 2 : code_point < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i; i--) {
        out[i] = (char)(0x80 | (code_point & 0x3f));
        code_point >>= 6;
    }
    out[0] = (char)((0xf00 >> length) | code_point);
    return length;
}

bool text_is_white_space(int32_t c)
{
    return (c >= 0x09 && c <= 0x0d) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}
