/*
 * json: a thin, strict skin over cJSON. Relaxed input is made plain JSON first by blanking comments
 * and trailing commas with spaces, so that every byte offset, and so every line number, stays.
 */
#include "base/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define MAX_DEPTH 64
#define MAX_VALUES (1 << 22) /* twice the largest tokenizer.json that is known */

static int line_at(const char *text, size_t offset)
{
    int line = 1;
    for (size_t i = 0; i < offset; i++)
        line += text[i] == '\n';
    return line;
}

/* The index after the string that starts at text[i] == '"'. */
static size_t skip_string(const char *text, size_t bytes, size_t i)
{
    for (i++; i < bytes && text[i] != '"'; i++)
        if (text[i] == '\\' && i + 1 < bytes)
            i++;
    return i < bytes ? i + 1 : bytes;
}

static size_t blank_until(char *text, size_t bytes, size_t i, const char *end)
{
    size_t end_bytes = strlen(end);
    while (i < bytes && (bytes - i < end_bytes || memcmp(text + i, end, end_bytes))) {
        if (text[i] != '\n')
            text[i] = ' ';
        i++;
    }
    for (size_t j = 0; j < end_bytes && i < bytes; j++, i++)
        if (text[i] != '\n')
            text[i] = ' ';
    return i;
}

static void blank_comments(char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes;) {
        if (text[i] == '"')
            i = skip_string(text, bytes, i);
        else if (text[i] == '#' || (text[i] == '/' && i + 1 < bytes && text[i + 1] == '/'))
            i = blank_until(text, bytes, i, "\n");
        else if (text[i] == '/' && i + 1 < bytes && text[i + 1] == '*')
            i = blank_until(text, bytes, i, "*/");
        else
            i++;
    }
}

static void blank_trailing_commas(char *text, size_t bytes)
{
    size_t comma = SIZE_MAX;
    for (size_t i = 0; i < bytes;) {
        char c = text[i];
        if (c == '"') {
            comma = SIZE_MAX;
            i = skip_string(text, bytes, i);
            continue;
        }
        if (c == ',')
            comma = i;
        else if ((c == '}' || c == ']') && comma != SIZE_MAX)
            text[comma] = ' ';
        if (c != ',' && !strchr(" \t\r\n", c))
            comma = SIZE_MAX;
        i++;
    }
}

size_t zinf_utf8_check(const char *text, size_t bytes)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t i = 0;
    while (i < bytes) {
        unsigned more = s[i] < 0x80   ? 0
                        : s[i] < 0xc2 ? 9
                        : s[i] < 0xe0 ? 1
                        : s[i] < 0xf0 ? 2
                        : s[i] < 0xf5 ? 3
                                      : 9;
        bool good = more <= 3 && i + more < bytes;
        for (unsigned j = 1; good && j <= more; j++)
            good = (s[i + j] & 0xc0) == 0x80;
        if (good && more == 2)
            good = !(s[i] == 0xe0 && s[i + 1] < 0xa0) && !(s[i] == 0xed && s[i + 1] > 0x9f);
        if (good && more == 3)
            good = !(s[i] == 0xf0 && s[i + 1] < 0x90) && !(s[i] == 0xf4 && s[i + 1] > 0x8f);
        if (!good || s[i] == 0)
            break;
        i += more + 1;
    }
    return i;
}

char *zinf_json_quote(const char *text, size_t bytes)
{
    static const char hex[] = "0123456789abcdef";
    char *out = malloc(6 * bytes + 3), *to = out;
    if (!out)
        return NULL;
    *to++ = '"';
    for (size_t i = 0; i < bytes;) {
        const size_t good = zinf_utf8_check(text + i, bytes - i);
        for (const size_t end = i + good; i < end; i++) {
            const unsigned char c = (unsigned char)text[i];
            const bool is_line_end = c == '\n';
            if (c == '"' || c == '\\' || is_line_end)
                *to++ = '\\';
            if (c >= 0x20 || is_line_end) {
                *to++ = is_line_end ? 'n' : (char)c;
                continue;
            }
            memcpy(to, "\\u00", 4);
            to[4] = hex[c >> 4];
            to[5] = hex[c & 15];
            to += 6;
        }
        if (i == bytes)
            break;
        memcpy(to, text[i] ? "\xef\xbf\xbd" : "\\u0000", text[i] ? 3 : 6);
        to += text[i] ? 3 : 6;
        i++;
    }
    memcpy(to, "\"", 2);
    return out;
}

/* cJSON does not look at encodings or at bare control characters; the rest of us must be able to
 * rely on UTF-8. */
static int check_utf8(const char *text, size_t bytes, const char *what)
{
    size_t at = zinf_utf8_check(text, bytes);
    if (at == bytes)
        return 0;
    return zinf_fail(-EINVAL, "%s: line %d: not UTF-8 text (byte 0x%02x)", what, line_at(text, at),
                     (unsigned char)text[at]);
}

/* Depth and number of values: each takes memory of its own, many times its text. */
static int check_size(const char *text, size_t bytes, const char *what)
{
    uint32_t values = 0;
    int depth = 0;
    for (size_t i = 0; i < bytes;) {
        if (text[i] == '"') {
            i = skip_string(text, bytes, i);
            continue;
        }
        if (text[i] == '{' || text[i] == '[')
            depth++;
        else if (text[i] == '}' || text[i] == ']')
            depth--;
        values += text[i] == '{' || text[i] == '[' || text[i] == ',';
        if (values > MAX_VALUES)
            return zinf_fail(-E2BIG, "%s: line %d: more than %d values", what, line_at(text, i),
                             MAX_VALUES);
        if (depth > MAX_DEPTH)
            return zinf_fail(-EINVAL, "%s: line %d: nested deeper than %d", what, line_at(text, i),
                             MAX_DEPTH);
        i++;
    }
    return 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int check_object_keys(const cJSON *object, const char *what)
{
    size_t count = 0, i = 0;
    const cJSON *member;
    cJSON_ArrayForEach(member, object) count++;
    if (count < 2)
        return 0;
    const char **names = malloc(count * sizeof *names);
    if (!names)
        return zinf_fail(-ENOMEM, "%s: no memory for %zu keys", what, count);
    cJSON_ArrayForEach(member, object) names[i++] = member->string;
    qsort(names, count, sizeof *names, compare_names);
    int code = 0;
    for (i = 1; i < count && !code; i++)
        if (!strcmp(names[i - 1], names[i]))
            code = zinf_fail(-EINVAL, "%s: the key \"%s\" is given twice in one object", what,
                             names[i]);
    free(names);
    return code;
}

/* Depth was capped before, so recursion is bounded. */
static int check_duplicates(const cJSON *value, const char *what)
{
    int code = cJSON_IsObject(value) ? check_object_keys(value, what) : 0;
    const cJSON *member;
    if (code || !(cJSON_IsObject(value) || cJSON_IsArray(value)))
        return code;
    cJSON_ArrayForEach(member, value)
    {
        if (!member->child)
            continue;
        code = check_duplicates(member, what);
        if (code)
            return code;
    }
    return 0;
}

static int parse_plain(const char *text, size_t bytes, const char *what, cJSON **out)
{
    const char *end = NULL;
    cJSON *value = cJSON_ParseWithLengthOpts(text, bytes, &end, 0);
    if (!value) {
        size_t at = end && end >= text && end <= text + bytes ? (size_t)(end - text) : 0;
        size_t shown = bytes - at < 20 ? bytes - at : 20;
        const char *line_end = memchr(text + at, '\n', shown);
        if (line_end)
            shown = (size_t)(line_end - (text + at));
        if (!shown)
            return zinf_fail(-EINVAL, "%s: line %d: not valid JSON at the end of the line", what,
                             line_at(text, at));
        return zinf_fail(-EINVAL, "%s: line %d: not valid JSON near '%.*s'", what,
                         line_at(text, at), (int)shown, text + at);
    }
    while (end < text + bytes && strchr(" \t\r\n", *end))
        end++;
    if (end < text + bytes) {
        int line = line_at(text, (size_t)(end - text));
        cJSON_Delete(value);
        return zinf_fail(-EINVAL, "%s: line %d: more text after the JSON value", what, line);
    }
    int code = check_duplicates(value, what);
    if (!code)
        code = zinf_json_keep_numbers(value, text, what);
    if (code) {
        cJSON_Delete(value);
        return code;
    }
    *out = value;
    return 0;
}

int zinf_json_parse(const char *text, size_t bytes, const char *what, unsigned flags, cJSON **out)
{
    int code = check_utf8(text, bytes, what);
    if (code)
        return code;
    char *copy = malloc(bytes + 1);
    if (!copy)
        return zinf_fail(-ENOMEM, "%s: no memory for %zu bytes", what, bytes);
    memcpy(copy, text, bytes);
    copy[bytes] = 0;
    if (flags & ZINF_JSON_RELAXED) {
        blank_comments(copy, bytes);
        blank_trailing_commas(copy, bytes);
    }
    code = check_size(copy, bytes, what);
    if (!code)
        code = parse_plain(copy, bytes, what, out);
    free(copy);
    return code;
}

int zinf_json_read_file(const char *path, size_t max_bytes, unsigned flags, cJSON **out)
{
    char *text;
    size_t bytes;
    int code = zinf_file_read(path, max_bytes, &text, &bytes);
    if (code)
        return code;
    code = zinf_json_parse(text, bytes, path, flags, out);
    free(text);
    return code;
}

/* A key's string, then a colon: walks objects along path, counting depth. */
int zinf_json_line_of(const char *text, size_t bytes, const char *path)
{
    char *copy = malloc(bytes + 1);
    if (!copy)
        return 0;
    memcpy(copy, text, bytes);
    copy[bytes] = 0;
    blank_comments(copy, bytes);
    const char *want = path;
    int depth = 0, want_depth = 1, line = 0;
    for (size_t i = 0; i < bytes && !line;) {
        char c = copy[i];
        depth += (c == '{' || c == '[') - (c == '}' || c == ']');
        if (c != '"') {
            i++;
            continue;
        }
        size_t begin = i + 1, after = skip_string(copy, bytes, i), length = after - begin - 1;
        i = after;
        while (after < bytes && strchr(" \t\r\n", copy[after]))
            after++;
        if (after >= bytes || copy[after] != ':' || depth != want_depth)
            continue;
        size_t part = strcspn(want, ".");
        if (length != part || memcmp(copy + begin, want, part))
            continue;
        if (want[part] == '.') {
            want += part + 1;
            want_depth++;
        } else {
            line = line_at(copy, begin);
        }
    }
    free(copy);
    return line;
}

static const cJSON *member_of(const cJSON *object, const char *key)
{
    const cJSON *member = cJSON_GetObjectItemCaseSensitive(object, key);
    return member && !cJSON_IsNull(member) ? member : NULL;
}

int zinf_json_has(const cJSON *object, const char *key)
{
    return member_of(object, key) != NULL;
}

static int wrong_type(const cJSON *member, const char *what, const char *key, const char *wanted)
{
    char *found = cJSON_PrintUnformatted(member);
    int code = zinf_fail(-EINVAL, "%s: \"%s\" is %.60s, but must be %s", what, key,
                         found ? found : "?", wanted);
    cJSON_free(found);
    return code;
}

int zinf_json_int(const cJSON *object, const char *what, const char *key, int64_t *out)
{
    const cJSON *member = member_of(object, key);
    if (!member)
        return 0;
    double value = member->valuedouble;
    if (!cJSON_IsNumber(member) || value != floor(value) || fabs(value) > 0x1p53)
        return wrong_type(member, what, key, "an integer");
    *out = (int64_t)value;
    return 0;
}

int zinf_json_double(const cJSON *object, const char *what, const char *key, double *out)
{
    const cJSON *member = member_of(object, key);
    if (!member)
        return 0;
    if (!cJSON_IsNumber(member) || !isfinite(member->valuedouble))
        return wrong_type(member, what, key, "a number");
    *out = member->valuedouble;
    return 0;
}

int zinf_json_bool(const cJSON *object, const char *what, const char *key, bool *out)
{
    const cJSON *member = member_of(object, key);
    if (!member)
        return 0;
    if (!cJSON_IsBool(member))
        return wrong_type(member, what, key, "true or false");
    *out = cJSON_IsTrue(member);
    return 0;
}

int zinf_json_string(const cJSON *object, const char *what, const char *key, const char **out)
{
    const cJSON *member = member_of(object, key);
    if (!member)
        return 0;
    if (!cJSON_IsString(member))
        return wrong_type(member, what, key, "a string");
    *out = member->valuestring;
    return 0;
}

void zinf_json_add_text(cJSON *object, const char *key, const char *text, size_t bytes)
{
    char *quoted = zinf_json_quote(text, bytes);
    cJSON_AddItemToObject(object, key, quoted ? cJSON_CreateRaw(quoted) : NULL);
    free(quoted);
}

bool zinf_json_add_hex(cJSON *object, const char *key, uint64_t value)
{
    char text[20];
    snprintf(text, sizeof text, "%016" PRIx64, value);
    return cJSON_AddStringToObject(object, key, text);
}

static bool sum_of(const cJSON *object, uint64_t *sum)
{
    char *text = cJSON_PrintUnformatted(object);
    *sum = text ? XXH3_64bits(text, strlen(text)) : 0;
    cJSON_free(text);
    return text;
}

bool zinf_json_seal(cJSON *object)
{
    uint64_t sum;
    return sum_of(object, &sum) && zinf_json_add_hex(object, "checksum", sum);
}

bool zinf_json_unseal(cJSON *object)
{
    char text[20];
    uint64_t sum;
    cJSON *said = cJSON_DetachItemFromObjectCaseSensitive(object, "checksum");
    const bool summed = sum_of(object, &sum);
    snprintf(text, sizeof text, "%016" PRIx64, sum);
    const bool whole = summed && cJSON_IsString(said) && !strcmp(text, said->valuestring);
    cJSON_Delete(said);
    return whole;
}

const char *zinf_json_word(const cJSON *object, const char *key)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
    return text ? text : "";
}
