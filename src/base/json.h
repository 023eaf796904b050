/*
 * json: cJSON with what untrusted input needs: errors with file, line and column, no duplicate
 * keys, limited depth, and integers written as 5e8. The caller owns a document and frees it with
 * cJSON_Delete. No shared state; any thread.
 */
#ifndef ZINF_JSON_H
#define ZINF_JSON_H

#include "base/base.h"

#include <cjson/cJSON.h>

enum zinf_json_flags {
    ZINF_JSON_STRICT = 0,
    /* allows comments (#, // and block) and trailing commas, as DeepSpeed's configuration reader
     * does */
    ZINF_JSON_RELAXED = 1,
};

/* Parses text (bytes long; need not end in NUL). what names it in messages. Refuses: text that is
 * not JSON or not UTF-8, anything after the value, duplicate keys in one object, depth above 64,
 * more than 4 Mi values. */
int zinf_json_parse(const char *text, size_t bytes, const char *what, unsigned flags, cJSON **out);
/* Makes numbers of a value that cJSON parsed from text keep their own text if they have a point or
 * an exponent. zinf_json_parse does this itself. */
int zinf_json_keep_numbers(cJSON *value, const char *text, const char *what);
/* Prints a value with its numbers' own text: 4.0 stays 4.0. The caller frees it with cJSON_free;
 * NULL: no memory. */
char *zinf_json_print(const cJSON *value);
/* Quotes bytes as a JSON string, which the caller frees. A NUL becomes \u0000, and bytes that are
 * not UTF-8 become the replacement character. NULL: no memory. */
char *zinf_json_quote(const char *text, size_t bytes);
/* Adds bytes as a member by zinf_json_quote. */
void zinf_json_add_text(cJSON *object, const char *key, const char *text, size_t bytes);
/* Adds a 64-bit number, which JSON's numbers cannot hold, as 16 hexadecimal digits. */
bool zinf_json_add_hex(cJSON *object, const char *key, uint64_t value);
/* zinf_json_seal adds a member "checksum" of all other members. zinf_json_unseal removes it and
 * returns whether it was there and right. Any changed bit of a sealed object that cJSON has printed
 * makes it invalid JSON, or fails this check, or has no effect. */
bool zinf_json_seal(cJSON *object);
bool zinf_json_unseal(cJSON *object);
/* The text of a member, or "" if it is absent or no text. */
const char *zinf_json_word(const cJSON *object, const char *key);
int zinf_json_read_file(const char *path, size_t max_bytes, unsigned flags, cJSON **out);
/* Offset of the first byte that is no UTF-8 or NUL; bytes if there is none. */
size_t zinf_utf8_check(const char *text, size_t bytes);
/* Line (1-based) of the key at path ("a.b.c") in text, or 0: for messages about a parsed file. */
int zinf_json_line_of(const char *text, size_t bytes, const char *path);

/* Member key of object: 1 if present and not null, 0 if absent or null. */
int zinf_json_has(const cJSON *object, const char *key);
/* Typed members. An absent or null member leaves *out as it is and returns 0; a member of another
 * type is -EINVAL with what, key, the value found and the type wanted. Integers accept integral
 * floats (5e8) within +-2^53. Strings are borrowed from the document. */
int zinf_json_int(const cJSON *object, const char *what, const char *key, int64_t *out);
int zinf_json_double(const cJSON *object, const char *what, const char *key, double *out);
int zinf_json_bool(const cJSON *object, const char *what, const char *key, bool *out);
int zinf_json_string(const cJSON *object, const char *what, const char *key, const char **out);

#endif
