/*
 * sources: tokens of sources on their way into a decoding call. A text's source comes whole, in the
 * call that takes the text's first token; there must be room for both. Inside this folder only.
 */
#ifndef ZINF_TRAIN_SOURCES_H
#define ZINF_TRAIN_SOURCES_H

#include "train/generate.h"

struct call_sources {
    int32_t *ids, *numbers; /* [most] */
    int64_t n, most;
    int64_t left; /* room that no text has taken */
};
/* shape NULL: no room at all. -ENOMEM */
int call_sources_init(struct call_sources *s, const struct zinf_decode_shape *shape);
void call_sources_fini(struct call_sources *s);
/* Before a call's texts are chosen. */
void call_sources_begin(struct call_sources *s);
/* A text begins with the call, if there is room for its source. */
bool call_sources_take(struct call_sources *s, const struct zinf_text *text);
/* Its tokens, as those of this number. */
void call_sources_add(struct call_sources *s, const struct zinf_text *text, int64_t number);
/* All of them, into the call. */
void call_sources_show(const struct call_sources *s, struct zinf_decode_rows *rows);
/* Texts at once, of so many sequences each: a text's source is remembered for all of them. */
static inline int64_t places_of(const struct zinf_decode_shape *shape, int64_t each)
{
    const int64_t n = shape->sequences / each;
    return shape->sources && shape->sources < n ? shape->sources : n;
}
/* -EINVAL: the text's source is longer than the shape has room for, or must or must not be there.
 * shape NULL: any will do. */
int call_sources_check(const struct zinf_decode_shape *shape, const struct zinf_text *text,
                       int64_t number);

#endif
