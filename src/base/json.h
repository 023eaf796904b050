/*
 * json: cJSON with what untrusted input needs: errors with file, line and column, duplicate keys
 * refused, depth capped, integers as DeepSpeed users write them (5e8). A document is owned by the
 * caller and freed with cJSON_Delete. No shared state, any thread.
 */
#ifndef ZINF_JSON_H
#define ZINF_JSON_H

#include "base/base.h"

#include <cjson/cJSON.h>

enum zinf_json_flags {
    ZINF_JSON_STRICT = 0,
    /* #, // and block comments, trailing commas, as DeepSpeed's configuration reader takes them */
    ZINF_JSON_RELAXED = 1,
};

/* Parses text (bytes long; need not end in NUL). what names it in messages. Refuses: text that is
 * not JSON or not UTF-8, anything after the value, duplicate keys in one object, depth above 64,
 * more than 4 Mi values. */
int zinf_json_parse(const char *text, size_t bytes, const char *what, unsigned flags, cJSON **out);
/* Of a value that cJSON parsed from text: numbers with a point or an exponent keep their text, as
 * zinf_json_parse does by itself. */
int zinf_json_keep_numbers(cJSON *value, const char *text, const char *what);
/* With the numbers' own text: 4.0 stays 4.0. The caller frees with cJSON_free; NULL: no memory. */
char *zinf_json_print(const cJSON *value);
/* Bytes as a JSON string with its quotes, on the heap: a NUL becomes \u0000, bytes that are not
 * UTF-8 the replacement character. NULL: no memory. */
char *zinf_json_quote(const char *text, size_t bytes);
/* Such a text, NULs and all, as a member. */
void zinf_json_add_text(cJSON *object, const char *key, const char *text, size_t bytes);
/* 64 bits do not fit a JSON number. */
bool zinf_json_add_hex(cJSON *object, const char *key, uint64_t value);
/* Adds a member "checksum" of all others. Whether it is there and right; it is gone then. What was
 * printed by cJSON and has another bit anywhere is no JSON, not sealed or the same object. */
bool zinf_json_seal(cJSON *object);
bool zinf_json_unseal(cJSON *object);
/* A member that is a text; "": there is none. */
const char *zinf_json_word(const cJSON *object, const char *key);
int zinf_json_read_file(const char *path, size_t max_bytes, unsigned flags, cJSON **out);
/* Where text stops being UTF-8 without NUL; bytes: nowhere. */
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
