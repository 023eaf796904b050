/* tokenizer_json: fills a tokenizer from the files of other programs. */
#ifndef ZINF_TEXT_TOKENIZER_JSON_H
#define ZINF_TEXT_TOKENIZER_JSON_H

#include "base/json.h"
#include "text/tokenizer/tokenizer.h"

/* From the text of a tokenizer.json. */
int text_json_read(struct zinf_tokenizer *tokenizer, const char *json, size_t bytes,
                   const char *what);
/* A file's text; what: its path, for messages. */
struct text_file {
    const char *text;
    size_t bytes;
    const char *what;
};
/* From vocab.json and merges.txt, with GPT-2's rules for what they do not say. */
int text_json_read_pair(struct zinf_tokenizer *tokenizer, const struct text_file *vocab,
                        const struct text_file *merges);

/* ---- normalizer_json.c, pretokenizer_json.c, decoder_json.c, frame_json.c ---- */

/* Each reads one part; json may be NULL or null. */
int text_json_read_normalizer(struct text_normalizers *normalizers, const cJSON *json,
                              const char *what);
int text_json_read_pre_tokenizer(struct zinf_tokenizer *tokenizer, const cJSON *json,
                                 const char *what);
int text_json_read_decoder(struct zinf_tokenizer *tokenizer, const cJSON *json, const char *what);
int text_json_read_frame(struct zinf_tokenizer *tokenizer, const cJSON *json, const char *what);
/* Whether a pre-tokenizer writes its pieces in the byte-level alphabet. */
bool text_json_has_byte_level(const cJSON *pre_tokenizer);
/* A "pattern": {"String": ...} or {"Regex": ...}. */
int text_json_read_pattern(pcre2_code **out, const cJSON *object, const char *what);
/* The first member of a Sequence's list, or the object itself. Continue with text_json_next. */
const cJSON *text_json_first(const cJSON *object, const char *list);
const cJSON *text_json_next(const cJSON *object, const cJSON *member);

/* ---- tokenizer_model.c ---- */

/* Reads a vocabulary into a table with room for the added tokens (an array or NULL). alphabet:
 * names are written in the byte-level alphabet. */
int text_json_read_vocab(struct text_vocab *vocab, const cJSON *object, bool alphabet,
                         const cJSON *added, const char *what);
/* The model's kind, and its tables. */
int text_json_read_model(struct zinf_tokenizer *tokenizer, const cJSON *model, bool alphabet,
                         const cJSON *added, const char *what);
/* merges.txt: a line "a b" for each merge. */
int text_json_read_merge_lines(struct zinf_tokenizer *tokenizer, const char *text, size_t bytes,
                               const char *what);

/* ---- sentencepiece_model.c ---- */

/* The files of a folder with tokenizer.model; config and added may be NULL. */
struct text_sentencepiece_files {
    const char *model, *what;
    size_t model_bytes;
    const cJSON *config, *added; /* tokenizer_config.json, added_tokens.json */
    const char *config_what, *added_what;
    bool pairs; /* DeBERTa's spm.model: [CLS] A [SEP], then B [SEP] */
};
int text_sentencepiece_read(struct zinf_tokenizer *tokenizer,
                            const struct text_sentencepiece_files *files);

/* ---- sentencepiece_check.c ---- */

/* -EINVAL: the model would make the library crash. */
int text_sentencepiece_check(const char *model, size_t bytes, const char *what);

#endif
