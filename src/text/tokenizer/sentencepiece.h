/*
 * sentencepiece: Google's C++ library behind C functions, so that no other file is C++. Built only
 * where the library exists; elsewhere sentencepiece_model.c says so.
 *
 * Threads: read-only once opened. Errors: a sentence in zinf_error().
 */
#ifndef ZINF_TEXT_SENTENCEPIECE_H
#define ZINF_TEXT_SENTENCEPIECE_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

struct text_sentencepiece;
/* Opens the bytes of a tokenizer.model; what names it in messages. */
int text_sentencepiece_open(struct text_sentencepiece **out, const char *model, size_t bytes,
                            const char *what);
void text_sentencepiece_close(struct text_sentencepiece *model);
int32_t text_sentencepiece_size(const struct text_sentencepiece *model);
/* The piece of an id in 0 .. size - 1; borrowed. */
const char *text_sentencepiece_piece(const struct text_sentencepiece *model, int32_t id,
                                     size_t *bytes);
int32_t text_sentencepiece_begin_id(const struct text_sentencepiece *model); /* -1: none */
int32_t text_sentencepiece_end_id(const struct text_sentencepiece *model);
/* The caller frees the arrays. ids must be in 0 .. size - 1. */
int text_sentencepiece_encode(const struct text_sentencepiece *model, const char *text,
                              size_t bytes, int32_t **ids, size_t *count);
int text_sentencepiece_decode(const struct text_sentencepiece *model, const int32_t *ids,
                              size_t count, char **text, size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
