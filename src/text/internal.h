/*
 * internal: what the files of this folder share; nobody outside includes it but tests. Names carry
 * text_ instead of zinf_, so that the library does not export them.
 *
 * The way of a text: added tokens are cut out (added.c), what lies between is normalized
 * (normalize.h) and cut into pieces by regular expressions (stage.c, pretokenize.c), and the model
 * (model.h) makes ids of each piece. encode.c drives all over a window of the text, so that files
 * of any size pass through bounded memory. tokenizer.h has the tokenizer itself.
 */
#ifndef ZINF_TEXT_INTERNAL_H
#define ZINF_TEXT_INTERNAL_H

#include "base/json.h"
#include "text/lines.h"
#include "text/text.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

/* ---- utf8.c ---- */

enum {
    TEXT_UTF8_INVALID = -1,   /* *used bytes can start no character */
    TEXT_UTF8_TRUNCATED = -2, /* all bytes are the start of a character that goes on after them */
};
/* The code point at text and its length in *used, or one of the above. bytes > 0. */
int32_t text_utf8_next(const char *text, size_t bytes, size_t *used);
/* The code point that ends at text[end], or TEXT_UTF8_INVALID; *start is where it begins. */
int32_t text_utf8_previous(const char *text, size_t begin, size_t end, size_t *start);
/* Length of the longest valid prefix; *stopped_at is 0 or what text_utf8_next said there. */
size_t text_utf8_valid(const char *text, size_t bytes, int32_t *stopped_at);
size_t text_utf8_put(uint32_t code_point, char *out);
bool text_is_white_space(int32_t code_point); /* Unicode White_Space */

/* ---- buffer.c ---- */

struct text_buffer {
    char *bytes; /* heap; NULL while nothing was added */
    size_t count, capacity;
    size_t limit; /* of what is added, -E2BIG beyond; 0: none */
};
int text_buffer_reserve(struct text_buffer *buffer, size_t more);
int text_buffer_add(struct text_buffer *buffer, const char *bytes, size_t n);
/* Each malformed part becomes one U+FFFD. */
int text_buffer_repair(struct text_buffer *buffer, const char *bytes, size_t n);
void text_buffer_free(struct text_buffer *buffer);

/* ---- vocab.c ---- */

#define TEXT_MAX_ID ((1u << 22) - 1) /* 16 times the largest vocabulary in use */

/* Bytes by id, and id by bytes for those that were added as findable. */
struct text_vocab {
    uint32_t size;     /* largest id + 1 */
    uint32_t *lengths; /* [size]; UINT32_MAX: no such id */
    size_t *offsets;   /* [size] into bytes */
    char *bytes;
    size_t used, capacity;
    uint32_t *slots; /* open addressing: id + 1, 0 is free */
    size_t n_slots;  /* power of two, at most half full */
};
int text_vocab_init(struct text_vocab *vocab, uint32_t size, size_t n_findable, size_t bytes);
void text_vocab_fini(struct text_vocab *vocab);
int text_vocab_add(struct text_vocab *vocab, uint32_t id, const char *bytes, size_t n,
                   bool findable);
int64_t text_vocab_find(const struct text_vocab *vocab, const char *bytes, size_t n); /* -1: no */
bool text_vocab_has(const struct text_vocab *vocab, uint32_t id);

/* The byte-level alphabet: each byte is written as one printable character. */
size_t text_alphabet_put(uint8_t byte, char *out); /* its UTF-8, 1 or 2 bytes */
/* Bytes that text spells in the alphabet, at most n of them in out; false: another character. */
bool text_alphabet_decode(const char *text, size_t n, char *out, size_t *out_bytes);

/* ---- pretokenize.c ---- */

extern const char text_gpt2_pattern[];

enum text_pattern {
    TEXT_PATTERN_EXPRESSION, /* of a tokenizer.json, in Oniguruma's notation */
    TEXT_PATTERN_LITERAL,    /* a string */
    TEXT_PATTERN_OWN,        /* in PCRE2's notation */
};
/* what names the file in messages. pcre2_code_free. */
int text_pattern_compile(pcre2_code **out, const char *pattern, enum text_pattern kind,
                         const char *what);
/* What a thread needs to match. */
struct text_matcher {
    pcre2_match_data *data;
    pcre2_match_context *context;
};
int text_matcher_init(struct text_matcher *matcher);
void text_matcher_fini(struct text_matcher *matcher);
/* Looks for code in text from at on. Positive with the place in data's ovector;
 * PCRE2_ERROR_NOMATCH; PCRE2_ERROR_PARTIAL: what follows an open end decides;
 * PCRE2_ERROR_INTERNAL: failed, with a message. */
int text_match(struct text_matcher *matcher, const pcre2_code *code, const char *text, size_t bytes,
               size_t at, bool open);

/* What becomes of a match and of what lies between matches. */
enum text_behavior {
    TEXT_ISOLATED,
    TEXT_REMOVED,
    TEXT_MERGED_WITH_PREVIOUS,
    TEXT_MERGED_WITH_NEXT,
    TEXT_CONTIGUOUS,
};
enum text_prepend {
    TEXT_PREPEND_NEVER,
    TEXT_PREPEND_FIRST, /* only at the very beginning of the text */
    TEXT_PREPEND_ALWAYS,
};
/* A pre-tokenizer: in this order spaces become mark, mark is put before the piece unless it begins
 * so, the piece is cut, the parts are spelled in the byte-level alphabet. */
struct text_stage {
    pcre2_code *code; /* NULL: does not cut */
    enum text_behavior behavior;
    bool invert; /* what lies between matches is the match */
    bool replace_spaces;
    enum text_prepend prepend;
    char mark[8]; /* NUL-terminated: a space, or Metaspace's replacement */
    bool spell;
    bool words; /* instead of code: cut before a mark that no merge reaches across */
};
void text_stage_fini(struct text_stage *stage);

/* ---- unicode_newer.c ---- */

struct text_newer {
    uint32_t first, last;
    char category[3]; /* as in \p{Lu} */
};
extern const struct text_newer text_newer[]; /* in order */
extern const size_t text_newer_count;
uint32_t text_newer_lower(uint32_t code_point); /* itself if it is none of them */

/* ---- added.c ---- */

extern const char text_word_members[]; /* of a class: the letters of a word */

struct text_added {
    char *content;
    size_t bytes;
    int32_t id;
    bool single_word, lstrip, rstrip;
};
struct text_added_set {
    struct text_added *tokens; /* after seal by first byte, then longest first */
    size_t count, capacity;
    uint32_t buckets[257]; /* tokens that start with byte b are [buckets[b], buckets[b + 1]) */
    size_t longest;
    bool any_lstrip;
    pcre2_code *word; /* a word's letter; only with single_word tokens */
};
int text_added_add(struct text_added_set *set, const struct text_added *token);
int text_added_seal(struct text_added_set *set);
void text_added_fini(struct text_added_set *set);
const struct text_added *text_added_named(const struct text_added_set *set, const char *content);

/* A look through text[sentence, end) for added tokens, from scan on. */
struct text_added_scan {
    const char *text;
    size_t sentence; /* where the sentence begins: nothing before it is looked at */
    size_t piece;    /* end of the last token: white space before it is taken already */
    size_t scan;
    size_t end;
    bool open; /* the text goes on after end */
};
struct text_added_match {
    const struct text_added *token;
    size_t begin, end; /* with the white space that it swallows */
};
/* 1 and *match; 0: no more tokens before *limit, and beyond it nothing is certain. A match that
 * needs text after an open end gives 0 with *limit at its beginning and *closed true: a token
 * begins there. */
int text_added_next(const struct text_added_set *set, struct text_added_scan *scan,
                    struct text_added_match *match, size_t *limit, bool *closed);

/* ---- encode.c ---- */

/* Where the text that comes next stands. */
enum text_place {
    TEXT_AT_START,    /* of the whole text */
    TEXT_AFTER_FIRST, /* after a token of the first set */
    TEXT_AFTER_SECOND,
    TEXT_INSIDE, /* in the midst of a text between tokens */
};
#define TEXT_MAX_STAGES 8
struct text_encoder {
    const struct zinf_tokenizer *tokenizer;
    struct zinf_tokens *tokens;
    struct text_matcher matcher;
    struct text_scratch *scratch;                /* of the model */
    struct text_buffer dressed[TEXT_MAX_STAGES]; /* a stage's piece with mark and prefix */
    struct text_buffer spelled_parts[TEXT_MAX_STAGES], spelled;
    const char *text; /* of the present feed, or the normalized text */
    enum text_place place;
    size_t skip[2]; /* bytes after the consumed ones in which set i was looked for already */
    /* Normalized and not yet consumed, after TEXT_CONTEXT consumed bytes. */
    struct text_buffer normal, work[2];
    size_t normal_done;
    bool begun;      /* something was normalized since the start */
    bool in_stretch; /* the stretch between tokens that comes next has begun */
    bool moved;      /* its first character is not the text's */
};
int text_encoder_init(struct text_encoder *encoder, const struct zinf_tokenizer *tokenizer,
                      struct zinf_tokens *tokens);
void text_encoder_fini(struct text_encoder *encoder);
#define TEXT_CONTEXT 4 /* bytes of consumed text that the next feed must still see */
/* Appends the ids that text[begin, end) surely has, whatever text follows, and sets *consumed to
 * the end of what they stand for; last: nothing follows, all is consumed. text[0, begin) is at
 * least the TEXT_CONTEXT bytes before, or all there were. Fed in any portions, a text gets the
 * ids that it gets when fed at once. */
int text_encoder_feed(struct text_encoder *encoder, const char *text, size_t begin, size_t end,
                      bool last, size_t *consumed);
/* Ready for another text. */
void text_encoder_restart(struct text_encoder *encoder);
int text_tokens_push(struct zinf_tokens *tokens, int32_t id);

/* ---- stage.c: a text without added tokens into pieces, and these into ids ---- */

struct text_piece {
    const char *text; /* UTF-8 */
    size_t bytes;
    bool open;  /* the text goes on */
    bool fresh; /* begins where a prefix belongs */
    bool first; /* and where the whole text began */
};
int text_stage_run(struct text_encoder *encoder, int index, struct text_piece piece,
                   size_t *consumed);

/* ---- source.c ---- */

enum text_kind {
    TEXT_PLAIN, /* one document; the others are rows of them */
    TEXT_JSON_LINES,
    TEXT_JSON,
    TEXT_CSV,
    TEXT_TSV,
};
struct text_source;
/* Of an open file or pipe, which is borrowed, as path is; reads its beginning. Packed files are
 * unpacked. -EINVAL: it is no text; the message has the command that converts it. */
int text_source_open(struct text_source **out, int fd, const char *path);
enum text_kind text_source_kind(const struct text_source *source);
const char *text_source_path(const struct text_source *source);
/* The next bytes; *done 0: there are no more. */
int text_source_read(struct text_source *source, char *out, size_t bytes, size_t *done);
/* Once, after all readings: reads what is left, and gives the sums of all lines. */
int text_source_lines(struct text_source *source, struct zinf_lines *out);
void text_source_close(struct text_source *source);
/* Whether the first n bytes of a name end so, in any letter case. */
bool text_name_ends(const char *name, size_t n, const char *extension);

/* ---- documents.c ---- */

/* Gives a file's documents, in portions, to a sink. */
struct text_sink {
    /* text[begin, end) goes on from the last call; *consumed as text_encoder_feed has it. */
    int (*feed)(void *handle, const char *text, size_t begin, size_t end, bool last,
                size_t *consumed);
    /* Unless NULL, whole rows instead of the texts in them: an object of JSON or, of tables, of
     * strings by column. NULL: the row that begins in this line is no JSON, as the message says. */
    int (*row)(void *handle, const cJSON *row, long line);
    bool lines; /* of plain text too: a line is the field "text" of one */
    void *handle;
    bool skips;      /* without rows: documents that cannot be read are left out */
    uint64_t n_left; /* so many */
    char first_left[256];
};
/* column: the field or column that is the text; NULL: "text". first: how much is read at once
 * (tests make it small); 0: the default. */
int text_documents_read(struct text_source *source, const char *column, size_t first,
                        struct text_sink *sink);
/* The one document that a line of JSON is, the number `line` of path, to the sink. */
int text_document_read(const char *json, const char *path, const char *column, long line,
                       struct text_sink *sink);
/* All rows of a file to sink->row. */
int text_rows_read(const char *path, struct text_sink *sink);

/* ---- stream.c ---- */

/* Documents as one stream of ids, with an end-of-text token between two of them. */
struct text_stream {
    const struct zinf_tokenizer *tokenizer;
    int (*put)(void *arg, const int32_t *ids, size_t n); /* takes the ids in their order */
    void *arg;
    int32_t separator; /* -1: none */
    bool after_document, in_document;
    struct text_encoder encoder;
    struct zinf_tokens tokens;
};
int text_stream_init(struct text_stream *stream, const struct zinf_tokenizer *tokenizer);
void text_stream_fini(struct text_stream *stream);
/* For sinks: handle is the stream. */
int text_stream_feed(void *handle, const char *text, size_t begin, size_t end, bool last,
                     size_t *consumed);

/* ---- token_cache.c ---- */

/* Checksums of blocks of ids, in the making. */
#define TOKEN_BLOCK 16384
struct token_sums {
    uint32_t *sums;
    uint64_t n, capacity;
    uint32_t filled;
    char block[TOKEN_BLOCK];
};
int token_sums_add(struct token_sums *sums, const void *ids, size_t bytes);
int token_sums_end(struct token_sums *sums); /* the last block may be short */
bool token_sums_agree(const uint32_t *sums, uint64_t block, const void *ids, size_t bytes);
uint64_t token_sums_of(const uint32_t *sums, uint64_t n); /* of the checksums themselves */

struct text_token_cache {
    int fd;
    char *path;               /* of the text file, for messages */
    char *name;               /* of the cache itself */
    uint32_t *sums;           /* [blocks of TOKEN_BLOCK bytes] */
    struct zinf_lines *lines; /* of the text file */
    uint64_t count;
    unsigned id_bytes; /* 2 or 4 */
    uint32_t largest;  /* id, first seen at largest_at */
    uint64_t largest_at;
    bool reused;    /* was there already */
    bool documents; /* the file is a row of documents, not one text */
};
/* path "-": standard input, whose tokens are kept by nobody. column as text_documents_read. skips:
 * documents that cannot be read are left out, which is said once. */
int text_token_cache_open(struct text_token_cache *cache, const char *path, const char *column,
                          bool skips, const struct zinf_tokenizer *tokenizer,
                          const char *cache_folder);
void text_token_cache_close(struct text_token_cache *cache);
int text_token_cache_read(const struct text_token_cache *cache, uint64_t first, uint64_t n,
                          int32_t *out);
/* Its sum is that of all its numbers, as they were when it was written. */
void text_token_cache_describe(const struct text_token_cache *cache, struct zinf_data_file *out);

/* ---- mixture.c ---- */

struct text_mixture;
/* -EINVAL: a weight is not above 0, or there are too many. */
int text_mixture_create(struct text_mixture **out, const double *weights, uint32_t n,
                        uint32_t together);
void text_mixture_destroy(struct text_mixture *mixture);
double text_mixture_share(const struct text_mixture *mixture, uint32_t part);
/* Which part's window stands at a position, and at which position of that part: *position. */
uint32_t text_mixture_at(const struct text_mixture *mixture, uint64_t *position);
uint64_t text_mixture_sum(const struct text_mixture *mixture); /* of the order of turns */

/* ---- dataset.c ---- */

/* n ids, at least one window and the token after it, are copied; options->files[0] names them. */
int text_dataset_of_ids(struct zinf_dataset **out, const struct zinf_dataset_options *options,
                        const int32_t *ids, uint64_t n);

struct zinf_window_rows; /* samples/samples.h */
/* Windows that are made as they are asked for (flow.c). */
struct text_flow {
    void (*stop)(void *arg);  /* no more rows are asked for; waits for one that was */
    void (*close)(void *arg); /* after stop */
    int (*fill)(void *arg, uint64_t position, const struct zinf_window *window);
    /* Zeros where that window cannot be had: filling it says why. */
    struct zinf_window_rows (*rows)(void *arg, uint64_t position);
    void (*go_on)(void *arg, const struct zinf_flow_mark *mark);
    struct zinf_flow_mark (*mark)(void *arg, uint64_t position);
    int (*reaches)(void *arg, uint64_t end, uint64_t wait_ns, uint64_t *sum);
    uint64_t order;
    bool has_samples;
    void *arg; /* NULL: there is no flow */
};
int text_dataset_of_flow(struct zinf_dataset **out, const struct text_flow *flow); /* owns arg */

/* Which window stands at a position of a training: epoch = position / n; within an epoch in an
 * order keyed by (seed, epoch), or in their own without shuffle. */
uint64_t text_window_index(uint64_t position, uint64_t n, bool shuffle, uint64_t seed);

#endif
