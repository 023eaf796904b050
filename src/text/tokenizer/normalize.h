/*
 * normalize: applies the normalizers of a tokenizer.json, in order, to a passage of text. A
 * passage is the text between two added tokens, or a part of it up to a cut, where normalizing the
 * parts gives the same as normalizing the whole.
 */
#ifndef ZINF_TEXT_NORMALIZE_H
#define ZINF_TEXT_NORMALIZE_H

#include "text/tokenizer/unicode.h"

#define TEXT_MAX_NORMALIZERS 16

enum text_normalizer_kind {
    TEXT_NORMALIZE_FORM,
    TEXT_NORMALIZE_LOWERCASE,
    TEXT_NORMALIZE_STRIP_ACCENTS,
    TEXT_NORMALIZE_STRIP,
    TEXT_NORMALIZE_PREPEND,
    TEXT_NORMALIZE_REPLACE,
    TEXT_NORMALIZE_PRECOMPILED,
    TEXT_NORMALIZE_BERT,
    TEXT_NORMALIZE_NMT,
    TEXT_NORMALIZE_BYTE_LEVEL,
};

/* SentencePiece's table of replacements. */
struct text_charsmap {
    uint32_t *units;
    size_t n_units;
    char *texts; /* each ends with NUL */
    size_t texts_bytes;
    pcre2_code *cluster;
};
int text_charsmap_open(struct text_charsmap *map, const char *base64, const char *what);
void text_charsmap_close(struct text_charsmap *map);
int text_charsmap_apply(const struct text_charsmap *map, struct text_matcher *matcher,
                        const char *text, size_t bytes, struct text_buffer *out);

struct text_normalizer {
    enum text_normalizer_kind kind;
    bool left, right;                    /* STRIP */
    bool clean, chinese, accents, lower; /* BERT */
    char *content;                       /* PREPEND, REPLACE */
    pcre2_code *code;                    /* REPLACE */
    struct text_form form;               /* FORM; BERT: NFD */
    USet *marks, *control;               /* STRIP_ACCENTS, BERT */
    struct text_charsmap map;            /* PRECOMPILED */
};

/* Where a passage may be cut, from few places to many. */
enum text_cut {
    TEXT_CUT_NOWHERE,
    TEXT_CUT_WORDS, /* before a lone space between two printable ASCII characters */
    TEXT_CUT_LINES, /* also after a line feed */
};
struct text_normalizers {
    struct text_normalizer *items;
    int count;
    enum text_cut cut;
    bool no_spaces; /* the last normalizer leaves no spaces */
};

struct text_passage {
    const char *text; /* UTF-8 */
    size_t bytes;
    bool start; /* no text of the same passage came before */
};
/* Normalizes a passage. The two buffers are working memory, and *out is the one with the result.
 * *moved: the passage's first character was removed. */
int text_normalize(const struct text_normalizers *normalizers, const struct text_passage *passage,
                   struct text_matcher *matcher, struct text_buffer work[2],
                   struct text_buffer **out, bool *moved);
/* The last place where text may be cut; 0: none. */
size_t text_normalizers_cut(const struct text_normalizers *normalizers, const char *text,
                            size_t bytes);
void text_normalizers_fini(struct text_normalizers *normalizers);

#endif
