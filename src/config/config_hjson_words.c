/* config_hjson_words: what a word without quotes is. */
#include "config/config_hjson.h"

#include <string.h>

size_t hjson_trimmed(const char *text, size_t n)
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

bool hjson_is_plain(const char *text, size_t n)
{
    static const char *const words[] = {"true", "false", "null"};
    for (int i = 0; i < 3; i++)
        if (n == strlen(words[i]) && !memcmp(text, words[i], n))
            return true;
    return is_number(text, n);
}

bool hjson_has_end(const char *text, size_t n)
{
    return memchr(text, ',', n) || memchr(text, '}', n) || memchr(text, ']', n);
}
