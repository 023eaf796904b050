/*
 * json_numbers: numbers keep the text that they were written with, where it has a point or an
 * exponent. cJSON knows numbers as doubles alone and prints 4.0 as 4, which readers that tell the
 * two apart refuse. The text is the item's valuestring, which cJSON copies and frees with it.
 */
#include "base/json.h"

/* How many of the next characters are of a set. Unlike strspn() under a sanitizer, and strcspn() in
 * a long list of integers, it looks at these alone: texts have millions of numbers. */
static size_t count_of(const char *p, const char *set)
{
    size_t n = 0;
    while (p[n] && strchr(set, p[n]))
        n++;
    return n;
}

/* The next number of the text at or behind *at, outside of strings: its length, 0: none is left. */
static size_t next_number(const char **at)
{
    const char *p = *at;
    for (; *p && !strchr("-0123456789", *p); p++)
        if (*p == '"')
            for (p++; *p != '"'; p++)
                p += *p == '\\';
    *at = p;
    return count_of(p, "+-.0123456789eE");
}

/* cJSON also takes 1. and 01, which nobody else does: these are printed as cJSON prints them. */
static bool is_proper(const char *text, size_t length)
{
    static const char digits[] = "0123456789";
    const char *p = text + (*text == '-');
    size_t whole = count_of(p, digits), n;
    if (!whole || (*p == '0' && whole > 1))
        return false;
    p += whole;
    if (*p == '.') {
        if (!(n = count_of(++p, digits)))
            return false;
        p += n;
    }
    if (*p == 'e' || *p == 'E') {
        p += p[1] == '+' || p[1] == '-' ? 2 : 1;
        if (!(n = count_of(p, digits)))
            return false;
        p += n;
    }
    return p == text + length;
}

/* Numbers come in the text in the order of the tree. Depth was capped before. */
static int keep(cJSON *value, const char **at)
{
    int code = 0;
    for (cJSON *member = value->child; !code && member; member = member->next)
        code = keep(member, at);
    if (code || !cJSON_IsNumber(value))
        return code;
    size_t length = next_number(at);
    if (count_of(*at, "+-0123456789") < length && is_proper(*at, length)) {
        value->valuestring = cJSON_malloc(length + 1);
        if (!value->valuestring)
            return -ENOMEM;
        memcpy(value->valuestring, *at, length);
        value->valuestring[length] = 0;
    }
    *at += length;
    return 0;
}

int zinf_json_keep_numbers(cJSON *value, const char *text, const char *what)
{
    int code = keep(value, &text);
    return code ? zinf_fail(code, "%s: no memory for its numbers", what) : 0;
}

static void show_text(cJSON *value)
{
    for (cJSON *member = value->child; member; member = member->next)
        show_text(member);
    if (cJSON_IsNumber(value) && value->valuestring)
        value->type = cJSON_Raw;
}

char *zinf_json_print(const cJSON *value)
{
    cJSON *copy = cJSON_Duplicate(value, true);
    char *text = NULL;
    if (copy) {
        show_text(copy);
        text = cJSON_Print(copy);
    }
    cJSON_Delete(copy);
    return text;
}
