/*
 * format_python: values of JSON as a program in Python writes them, for formats that are defined by
 * such a program. Numbers are written by the fewest digits that read back the same.
 */
#include "text/samples/format.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static int add(struct text_buffer *out, const char *text)
{
    return text_buffer_add(out, text, strlen(text));
}

/* A number that was written with a point or an exponent has kept its text (json.h): a float. */
static int add_number(struct text_buffer *out, const cJSON *value)
{
    char text[400];
    double x = value->valuedouble;
    if (!value->valuestring && x == floor(x)) {
        snprintf(text, sizeof text, "%.0f", x);
        return add(out, text);
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, x);
        if (strtod(text, NULL) == x)
            break;
    }
    /* Between 1e-4 and 1e16 Python writes no exponent. */
    if (strchr(text, 'e') && fabs(x) >= 1e-4 && fabs(x) < 1e16)
        snprintf(text, sizeof text, "%.1f", x);
    else if (!strpbrk(text, ".en"))
        strcat(text, ".0");
    return add(out, text);
}

/* The names of the escapes that both ways of writing share, and how they spell other controls. */
static int add_escaped(struct text_buffer *out, unsigned c, const char *names, const char *other)
{
    static const char letters[] = "nrtbf", escapes[] = "\n\r\t\b\f";
    char text[8];
    const char *at = c ? strchr(escapes, (int)c) : NULL;
    if (at && at - escapes < (ptrdiff_t)strlen(names))
        snprintf(text, sizeof text, "\\%c", letters[at - escapes]);
    else
        snprintf(text, sizeof text, other, c);
    return add(out, text);
}

/* ---- repr() ---- */

static int repr_string(struct text_buffer *out, const char *s)
{
    char quote = strchr(s, '\'') && !strchr(s, '"') ? '"' : '\'';
    int code = text_buffer_add(out, &quote, 1);
    for (; !code && *s; s++) {
        unsigned c = (unsigned char)*s, next = (unsigned char)s[1];
        if (c == (unsigned char)quote || c == '\\') {
            code = add(out, "\\");
            code = code ? code : text_buffer_add(out, s, 1);
        } else if (c < 0x20 || c == 0x7f) {
            code = add_escaped(out, c, "nrt", "\\x%02x");
        } else if (c == 0xc2 && (next <= 0xa0 || next == 0xad)) { /* controls, and unseen spaces */
            code = add_escaped(out, next, "", "\\x%02x");
            s++;
        } else {
            code = text_buffer_add(out, s, 1);
        }
    }
    return code ? code : text_buffer_add(out, &quote, 1);
}

static int repr_members(struct text_buffer *out, const cJSON *value)
{
    const cJSON *member;
    int code = 0;
    cJSON_ArrayForEach(member, value)
    {
        if (!code && member != value->child)
            code = add(out, ", ");
        if (!code && cJSON_IsObject(value)) {
            code = repr_string(out, member->string);
            code = code ? code : add(out, ": ");
        }
        if (!code)
            code = format_repr(out, member);
    }
    return code;
}

int format_repr(struct text_buffer *out, const cJSON *value)
{
    if (cJSON_IsString(value))
        return repr_string(out, value->valuestring);
    if (cJSON_IsNumber(value))
        return add_number(out, value);
    if (!cJSON_IsObject(value) && !cJSON_IsArray(value))
        return add(out, cJSON_IsTrue(value) ? "True" : cJSON_IsFalse(value) ? "False" : "None");
    int code = add(out, cJSON_IsObject(value) ? "{" : "[");
    if (!code)
        code = repr_members(out, value);
    return code ? code : add(out, cJSON_IsObject(value) ? "}" : "]");
}

/* ---- json.dumps() ---- */

static int dump_string(struct text_buffer *out, const char *s)
{
    int code = add(out, "\"");
    for (; !code && *s; s++) {
        if (*s == '"' || *s == '\\')
            code = add(out, "\\");
        if (!code && (unsigned char)*s < 0x20)
            code = add_escaped(out, (unsigned char)*s, "nrtbf", "\\u%04x");
        else if (!code)
            code = text_buffer_add(out, s, 1);
    }
    return code ? code : add(out, "\"");
}

static int new_line(struct text_buffer *out, int depth)
{
    int code = add(out, "\n");
    for (int i = 0; !code && i < depth; i++)
        code = add(out, "  ");
    return code;
}

static int dump_members(struct text_buffer *out, const cJSON *value, int depth)
{
    const cJSON *member;
    int code = 0;
    cJSON_ArrayForEach(member, value)
    {
        if (!code && member != value->child)
            code = add(out, ",");
        if (!code)
            code = new_line(out, depth + 1);
        if (!code && cJSON_IsObject(value)) {
            code = dump_string(out, member->string);
            code = code ? code : add(out, ": ");
        }
        if (!code)
            code = format_dump(out, member, depth + 1);
    }
    return code || !value->child ? code : new_line(out, depth);
}

int format_dump(struct text_buffer *out, const cJSON *value, int depth)
{
    if (cJSON_IsString(value))
        return dump_string(out, value->valuestring);
    if (cJSON_IsNumber(value))
        return add_number(out, value);
    if (!cJSON_IsObject(value) && !cJSON_IsArray(value))
        return add(out, cJSON_IsTrue(value) ? "true" : cJSON_IsFalse(value) ? "false" : "null");
    int code = add(out, cJSON_IsObject(value) ? "{" : "[");
    if (!code)
        code = dump_members(out, value, depth);
    return code ? code : add(out, cJSON_IsObject(value) ? "}" : "]");
}
