/*
 * npy_header: the header is the source text of a Python dictionary. Only what NumPy writes for
 * such arrays is taken: three keys in any order, no nesting, nothing evaluated.
 */
#include "formats/npy_header.h"

static const char magic[6] = {'\x93', 'N', 'U', 'M', 'P', 'Y'};

#define REMEDY "save it as numpy.save(path, tokens.astype('<u4').reshape(-1))"

bool zinf_npy_has_magic(const void *first, uint64_t bytes)
{
    return bytes >= sizeof magic && !memcmp(first, magic, sizeof magic);
}

int zinf_npy_preamble(const char *what, const void *first, uint64_t file_bytes, uint64_t *offset,
                      uint64_t *bytes)
{
    const uint8_t *byte = first;
    if (file_bytes < ZINF_NPY_PREAMBLE_BYTES)
        return zinf_fail(-EINVAL, "%s is too short for a .npy file: write it again", what);
    if (byte[6] < 1 || byte[6] > 3 || byte[7] != 0)
        return zinf_fail(-EINVAL, "%s is a .npy file of version %u.%u, known are 1.0 to 3.0", what,
                         byte[6], byte[7]);
    *bytes = (uint64_t)byte[8] | (uint64_t)byte[9] << 8;
    *offset = 10;
    if (byte[6] > 1) {
        *bytes |= (uint64_t)byte[10] << 16 | (uint64_t)byte[11] << 24;
        *offset = 12;
    }
    if (*bytes > ZINF_NPY_MAX_TEXT_BYTES || *bytes > file_bytes - *offset)
        return zinf_fail(-EINVAL,
                         "%s claims a .npy header of %llu bytes in a file of %llu: it is damaged, "
                         "write it again",
                         what, (unsigned long long)*bytes, (unsigned long long)file_bytes);
    return 0;
}

/* ---- the dictionary ---- */

struct cursor {
    const char *at, *end;
};

static void skip_space(struct cursor *cursor)
{
    while (cursor->at < cursor->end && strchr(" \t\r\n", *cursor->at) && *cursor->at)
        cursor->at++;
}

/* Steps over the word if it comes next. */
static bool take(struct cursor *cursor, const char *word)
{
    size_t length = strlen(word);
    skip_space(cursor);
    if ((size_t)(cursor->end - cursor->at) < length || memcmp(cursor->at, word, length))
        return false;
    cursor->at += length;
    return true;
}

/* A quoted string without escapes into out. */
static bool take_string(struct cursor *cursor, char *out, size_t out_bytes)
{
    size_t length = 0;
    char quote;
    if (take(cursor, "'"))
        quote = '\'';
    else if (take(cursor, "\""))
        quote = '"';
    else
        return false;
    while (cursor->at < cursor->end && *cursor->at != quote && *cursor->at != '\\') {
        if (length + 1 == out_bytes)
            return false;
        out[length++] = *cursor->at++;
    }
    out[length] = 0;
    return cursor->at < cursor->end && *cursor->at++ == quote;
}

static bool take_integer(struct cursor *cursor, uint64_t *out)
{
    uint64_t value = 0;
    skip_space(cursor);
    const char *begin = cursor->at;
    for (; cursor->at < cursor->end && *cursor->at >= '0' && *cursor->at <= '9'; cursor->at++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*cursor->at - '0'), &value))
            return false;
    *out = value;
    return cursor->at > begin;
}

/* '<u2' and the like. */
static int read_descr(struct zinf_npy_header *header, const char *what, struct cursor *cursor)
{
    char descr[16];
    if (!take_string(cursor, descr, sizeof descr))
        return zinf_fail(-EINVAL, "%s does not hold plain integers: " REMEDY, what);
    bool known = strlen(descr) == 3 && strchr("ui", descr[1]) && strchr("1248", descr[2]) &&
                 (descr[0] == '<' || (descr[0] == '|' && descr[2] == '1'));
    if (!known)
        return zinf_fail(-EINVAL, "%s holds elements of type '%s', not little-endian integers: %s",
                         what, descr, REMEDY);
    header->is_signed = descr[1] == 'i';
    header->elem_bytes = (unsigned)(descr[2] - '0');
    return 0;
}

static int read_shape(struct zinf_npy_header *header, const char *what, struct cursor *cursor)
{
    if (take(cursor, "(") && take_integer(cursor, &header->count) && take(cursor, ",") &&
        take(cursor, ")"))
        return 0;
    return zinf_fail(-EINVAL, "%s is not a one-dimensional array: %s", what, REMEDY);
}

static int read_value(struct zinf_npy_header *header, const char *what, const char *key,
                      struct cursor *cursor, unsigned *seen)
{
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    unsigned i = 0;
    while (i < 3 && strcmp(keys[i], key))
        i++;
    if (i == 3 || (*seen & 1u << i))
        return zinf_fail(-EINVAL, "%s: the key '%s' of the .npy header is %s: write it again", what,
                         key, i == 3 ? "unknown" : "given twice");
    *seen |= 1u << i;
    if (i == 0)
        return read_descr(header, what, cursor);
    if (i == 2)
        return read_shape(header, what, cursor);
    if (take(cursor, "False"))
        return 0;
    return zinf_fail(-EINVAL, "%s is not an array in C order: %s", what, REMEDY);
}

int zinf_npy_header_parse(struct zinf_npy_header *out, const char *what, const char *text,
                          uint64_t bytes)
{
    struct cursor cursor = {text, text + bytes};
    struct zinf_npy_header header = {0};
    unsigned seen = 0;
    char key[24];
    bool more = take(&cursor, "{");
    while (more && take_string(&cursor, key, sizeof key) && take(&cursor, ":")) {
        int code = read_value(&header, what, key, &cursor, &seen);
        if (code)
            return code;
        more = take(&cursor, ",");
    }
    bool closed = take(&cursor, "}");
    skip_space(&cursor);
    if (!closed || cursor.at != cursor.end || seen != 7)
        return zinf_fail(-EINVAL, "%s has a .npy header that cannot be read: write it again", what);
    *out = header;
    return 0;
}
