/*
 * unicode: ICU's knowledge of characters: sets, normal forms, lower case. The libraries that
 * Hugging Face's `tokenizers` uses have different versions of Unicode. So sets are limited by age:
 * a character that a version did not have yet is not in its set.
 *
 * Threads: read-only once opened, except for the working memory of text_form_apply.
 */
#ifndef ZINF_TEXT_UNICODE_H
#define ZINF_TEXT_UNICODE_H

#include "text/internal.h"

#include <unicode/unorm2.h>
#include <unicode/uset.h>

/* Opens a set in ICU's notation, such as [[:Mn:]&[:age=8.0:]]; close it with uset_close. */
int text_set_open(USet **out, const char *notation);
/* Appends the set as a class of a regular expression to out: [\x{41}-\x{5a}]. */
int text_set_as_class(const char *notation, struct text_buffer *out);

/* Sets as `tokenizers` has them; comments name the source. */
extern const char text_set_punctuation[]; /* unicode_categories 0.1: Unicode 8 */
extern const char text_set_control[];     /* the same: what clean_text removes */
extern const char text_set_nonspacing[];  /* the same: what strip_accents of Bert removes */
extern const char text_set_marks[];       /* unicode-normalization-alignments 0.1: Unicode 9 */

struct text_form {
    UNormalizer2 *normalizer;
    USet *known; /* characters that it may change */
};
/* name: "NFC", "NFD", "NFKC", "NFKD"; of Unicode 9, as unicode-normalization-alignments. */
int text_form_open(struct text_form *form, const char *name);
void text_form_close(struct text_form *form);
/* Appends the normal form of text, which is UTF-8. */
int text_form_apply(const struct text_form *form, const char *text, size_t bytes,
                    struct text_buffer *out);
/* Appends the lower case of a character. */
int text_lower(uint32_t code_point, struct text_buffer *out);

#endif
