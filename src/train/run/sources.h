/*
 * sources: collects the source tokens for a decoding call of an encoder-decoder. A text's source
 * comes whole, in the call that takes the text's first token; the call must have room for both.
 * Inside this folder only.
 */
#ifndef ZINF_TRAIN_SOURCES_H
#define ZINF_TRAIN_SOURCES_H

#include "train/generate.h"

struct call_sources {
    int32_t *ids, *numbers; /* [most] */
    int64_t n, most;
    int64_t left; /* tokens that still fit in the call */
};
/* shape NULL: there is no room for sources. -ENOMEM */
int call_sources_init(struct call_sources *s, const struct zinf_decode_shape *shape);
void call_sources_fini(struct call_sources *s);
/* Call before a call's texts are chosen. */
void call_sources_begin(struct call_sources *s);
/* Reserves room for the source of a text that begins with the call; false: there is not enough. */
bool call_sources_take(struct call_sources *s, const struct zinf_text *text);
/* Adds the tokens of the text's source, as source `number`. */
void call_sources_add(struct call_sources *s, const struct zinf_text *text, int64_t number);
/* Sets the sources of the call; rows borrows them. */
void call_sources_show(const struct call_sources *s, struct zinf_decode_rows *rows);
/* How many texts a shape has room for, if each needs `each` sequences and one source. */
static inline int64_t places_of(const struct zinf_decode_shape *shape, int64_t each)
{
    const int64_t n = shape->sequences / each;
    return shape->sources && shape->sources < n ? shape->sources : n;
}
/* -EINVAL: the text's source is longer than the shape allows, or is missing, or the shape has no
 * sources. shape NULL: every source is accepted. */
int call_sources_check(const struct zinf_decode_shape *shape, const struct zinf_text *text,
                       int64_t number);

#endif
