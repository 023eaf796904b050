/* config_hjson: what the reader of Hjson asks of words without quotes, n bytes of text each. */
#ifndef ZINF_CONFIG_HJSON_H
#define ZINF_CONFIG_HJSON_H

#include <stdbool.h>
#include <stddef.h>

/* Their length without spaces at the end. */
size_t hjson_trimmed(const char *text, size_t n);
/* true, false, null, or a number as JSON writes one. */
bool hjson_is_plain(const char *text, size_t n);
/* Whether something in it could end a value. */
bool hjson_has_end(const char *text, size_t n);

#endif
