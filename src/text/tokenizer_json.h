/* tokenizer_json: fills a tokenizer from the files in which others keep theirs. */
#ifndef ZINF_TEXT_TOKENIZER_JSON_H
#define ZINF_TEXT_TOKENIZER_JSON_H

#include "base/json.h"
#include "text/internal.h"

/* From the text of a tokenizer.json. */
int text_json_read(struct zinf_tokenizer *tokenizer, const char *json, size_t bytes,
                   const char *what);
/* From vocab.json and merges.txt, with GPT-2's rules for what they do not say. */
int text_json_read_pair(struct zinf_tokenizer *tokenizer, const char *vocab, size_t vocab_bytes,
                        const char *vocab_what, const char *merges, size_t merges_bytes,
                        const char *merges_what);

/* ---- tokenizer_model.c ---- */

/* The table has room for the added tokens too, an array or NULL. */
int text_json_read_vocab(struct text_vocab *vocab, const cJSON *object, const cJSON *added,
                         const char *what);
int text_json_read_model(struct zinf_tokenizer *tokenizer, const cJSON *model, const cJSON *added,
                         const char *what);
/* merges.txt: a line "a b" for each merge. */
int text_json_read_merge_lines(struct zinf_tokenizer *tokenizer, const char *text, size_t bytes,
                               const char *what);

#endif
