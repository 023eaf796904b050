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

#endif
