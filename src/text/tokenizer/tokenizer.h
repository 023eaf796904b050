/* tokenizer: the parts of a tokenizer. */
#ifndef ZINF_TEXT_TOKENIZER_H
#define ZINF_TEXT_TOKENIZER_H

#include "text/tokenizer/model.h"
#include "text/tokenizer/normalize.h"

/* ---- decode.c ---- */

enum text_decoder_kind {
    TEXT_DECODE_BYTE_LEVEL,
    TEXT_DECODE_METASPACE,
    TEXT_DECODE_BYTE_FALLBACK,
    TEXT_DECODE_FUSE,
    TEXT_DECODE_STRIP,
    TEXT_DECODE_REPLACE,
    TEXT_DECODE_WORDPIECE,
    TEXT_DECODE_BPE,
};
struct text_decoder {
    enum text_decoder_kind kind;
    char *text;  /* METASPACE: the mark; STRIP: what to remove; WORDPIECE: prefix; BPE: suffix */
    char *other; /* REPLACE: replacement */
    pcre2_code *code;
    int64_t start, stop; /* STRIP: most that is removed */
    bool flag; /* METASPACE: remove a mark at the very beginning; WORDPIECE: clean up spaces */
};
#define TEXT_MAX_DECODERS 8
/* The text of an added token where it differs from that in the vocabulary. */
struct text_written {
    int32_t id;
    char *text;
};

/* ---- frame.c ---- */

struct text_frame_part {
    int sequence; /* 0 or 1; -1: ids */
    int32_t *ids; /* heap */
    size_t n_ids;
    int32_t type;
};
struct text_frame {
    struct text_frame_part *parts;
    size_t count;
};
int text_frame_add(struct text_frame *frame, struct text_frame_part part); /* takes part.ids */
struct zinf_tokenizer;
/* Puts a token before every sequence and one behind it; -1: none. */
int text_frames_make(struct zinf_tokenizer *tokenizer, int32_t begin, int32_t end);
/* begin A end; for a pair begin A end B end, where B end have type 1. */
int text_frames_make_pairs(struct zinf_tokenizer *tokenizer, int32_t begin, int32_t end);
/* begin A end; for a pair begin A end end B end. */
int text_frames_make_roberta(struct zinf_tokenizer *tokenizer, int32_t begin, int32_t end);
/* Makes the fingerprint depend on the frames. */
void text_frames_mix(struct zinf_tokenizer *tokenizer);

/* ---- the tokenizer ---- */

enum text_model_kind {
    TEXT_MODEL_BYTES,
    TEXT_MODEL_BPE,
    TEXT_MODEL_UNIGRAM,
    TEXT_MODEL_WORDPIECE,
    TEXT_MODEL_WORDLEVEL,
    TEXT_MODEL_SENTENCEPIECE,
};
struct zinf_tokenizer {
    enum text_model_kind kind;
    int32_t end_of_text;
    uint64_t fingerprint;
    struct text_vocab vocab;
    struct text_bpe bpe;
    struct text_unigram unigram;
    struct text_wordpiece wordpiece; /* WORDLEVEL: only unknown and its name */
    struct text_sentencepiece *sentencepiece;
    struct text_normalizers normalizers;
    struct text_stage stages[TEXT_MAX_STAGES];
    int n_stages;
    /* Byte-level without normalizers: text goes to the stages unchanged, even if it is not UTF-8.
     */
    bool direct;
    bool respell; /* pieces arrive in the byte-level alphabet, but the model needs bytes */
    struct text_added_set added[2]; /* [0] is searched first, in the whole text */
    struct text_decoder decoders[TEXT_MAX_DECODERS];
    int n_decoders;     /* 0: tokens are joined with spaces */
    bool plain_decoder; /* the bytes of tokens are joined unchanged */
    struct text_written *written;
    size_t n_written;
    struct text_frame frames[2]; /* special tokens around one sequence, and around a pair */
    bool framed;                 /* false: no special tokens */
    bool framed_beside;          /* the frames are those of tokenizer_config.json */
};
int text_tokenizer_create(struct zinf_tokenizer **out);
/* Appends the ids of a piece. */
int text_model_encode(const struct zinf_tokenizer *tokenizer, const char *piece, size_t bytes,
                      struct text_scratch *scratch, struct zinf_tokens *tokens);
/* With SentencePiece: the ids of a text, and the text of ids. */
int text_sentencepiece_put(const struct zinf_tokenizer *tokenizer, const char *piece, size_t bytes,
                           struct zinf_tokens *tokens);
int text_sentencepiece_join(const struct zinf_tokenizer *tokenizer, const int32_t *ids,
                            size_t count, struct text_buffer *out);
void text_decoders_fini(struct zinf_tokenizer *tokenizer);
void text_frames_fini(struct zinf_tokenizer *tokenizer);

#endif
