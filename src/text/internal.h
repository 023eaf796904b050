/*
 * internal: what the files of src/text share. Only tests include it from outside. Names begin with
 * text_ instead of zinf_, so that the library does not export them.
 *
 * The way of a text: added tokens are cut out (added.c); the text between them is normalized
 * (normalize.h) and cut into pieces by regular expressions (stage.c, pretokenize.c); the model
 * (model.h) makes ids of each piece. encode.c does all this over a window of the text, so files of
 * any size need bounded memory. tokenizer.h has the tokenizer itself.
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
    TEXT_UTF8_INVALID = -1,   /* *used bytes that cannot begin a character */
    TEXT_UTF8_TRUNCATED = -2, /* all bytes are the beginning of a character that is not complete */
};
/* Decodes the code point at text and sets *used to its length, or returns one of the above. bytes >
 * 0. */
int32_t text_utf8_next(const char *text, size_t bytes, size_t *used);
/* Decodes the code point that ends at text[end], and sets *start to its beginning, or returns
 * TEXT_UTF8_INVALID. */
int32_t text_utf8_previous(const char *text, size_t begin, size_t end, size_t *start);
/* Length of the longest valid prefix; *stopped_at is 0, or the result of text_utf8_next behind it.
 */
size_t text_utf8_valid(const char *text, size_t bytes, int32_t *stopped_at);
size_t text_utf8_put(uint32_t code_point, char *out);
bool text_is_white_space(int32_t code_point); /* Unicode White_Space */

/* ---- buffer.c ---- */

struct text_buffer {
    char *bytes; /* heap; NULL while it is empty */
    size_t count, capacity;
    size_t limit; /* most bytes; more are -E2BIG; 0: no limit */
};
int text_buffer_reserve(struct text_buffer *buffer, size_t more);
int text_buffer_add(struct text_buffer *buffer, const char *bytes, size_t n);
/* Appends bytes; each malformed part becomes one U+FFFD. */
int text_buffer_repair(struct text_buffer *buffer, const char *bytes, size_t n);
void text_buffer_free(struct text_buffer *buffer);

/* ---- vocab.c ---- */

#define TEXT_MAX_ID ((1u << 22) - 1) /* 16 times the largest vocabulary in use */

/* Maps ids to bytes, and bytes to ids for entries that were added as findable. */
struct text_vocab {
    uint32_t size;     /* largest id + 1 */
    uint32_t *lengths; /* [size]; UINT32_MAX: no such id */
    size_t *offsets;   /* [size] into bytes */
    char *bytes;
    size_t used, capacity;
    uint32_t *slots; /* open addressing: id + 1; 0: free */
    size_t n_slots;  /* a power of two, at most half full */
};
int text_vocab_init(struct text_vocab *vocab, uint32_t size, size_t n_findable, size_t bytes);
void text_vocab_fini(struct text_vocab *vocab);
int text_vocab_add(struct text_vocab *vocab, uint32_t id, const char *bytes, size_t n,
                   bool findable);
/* -1: not found */
int64_t text_vocab_find(const struct text_vocab *vocab, const char *bytes, size_t n);
bool text_vocab_has(const struct text_vocab *vocab, uint32_t id);

/* The byte-level alphabet: each byte is written as one printable character. */
/* writes the character's UTF-8, 1 or 2 bytes, and returns the length */
size_t text_alphabet_put(uint8_t byte, char *out);
/* Decodes text in the alphabet, at most n bytes to out. False: it has another character. */
bool text_alphabet_decode(const char *text, size_t n, char *out, size_t *out_bytes);

/* ---- pretokenize.c ---- */

extern const char text_gpt2_pattern[];

enum text_pattern {
    TEXT_PATTERN_EXPRESSION, /* a regular expression of a tokenizer.json, in Oniguruma's notation */
    TEXT_PATTERN_LITERAL,    /* a plain string */
    TEXT_PATTERN_OWN,        /* a regular expression in PCRE2's notation */
};
/* Compiles a pattern; free with pcre2_code_free. what: the file's name in messages. */
int text_pattern_compile(pcre2_code **out, const char *pattern, enum text_pattern kind,
                         const char *what);
/* What a thread needs for matching. */
struct text_matcher {
    pcre2_match_data *data;
    pcre2_match_context *context;
};
int text_matcher_init(struct text_matcher *matcher);
void text_matcher_fini(struct text_matcher *matcher);
/* Searches text from `at` on. > 0: found, and the place is in data's ovector; PCRE2_ERROR_NOMATCH;
 * PCRE2_ERROR_PARTIAL: the text ends where more of it would decide; PCRE2_ERROR_INTERNAL: failed,
 * with a message. */
int text_match(struct text_matcher *matcher, const pcre2_code *code, const char *text, size_t bytes,
               size_t at, bool open);

/* What is done with matches and with the text between them. */
enum text_behavior {
    TEXT_ISOLATED,
    TEXT_REMOVED,
    TEXT_MERGED_WITH_PREVIOUS,
    TEXT_MERGED_WITH_NEXT,
    TEXT_CONTIGUOUS,
};
enum text_prepend {
    TEXT_PREPEND_NEVER,
    TEXT_PREPEND_FIRST, /* only at the beginning of the whole text */
    TEXT_PREPEND_ALWAYS,
};
/* A pre-tokenizer. In this order: spaces become mark; mark is put before a piece that does not
 * begin with it; the piece is cut; the parts are written in the byte-level alphabet. */
struct text_stage {
    pcre2_code *code; /* NULL: pieces are not cut */
    enum text_behavior behavior;
    bool invert; /* the text between matches counts as the match */
    bool replace_spaces;
    enum text_prepend prepend;
    char mark[8]; /* NUL-terminated: a space, or Metaspace's replacement */
    bool spell;
    bool words; /* instead of code: cut before each mark that no merge crosses */
};
void text_stage_fini(struct text_stage *stage);

/* ---- unicode_newer.c ---- */

struct text_newer {
    uint32_t first, last;
    char category[3]; /* category as in \p{Lu} */
};
extern const struct text_newer text_newer[]; /* sorted */
extern const size_t text_newer_count;
/* the code point itself if it is not in the table */
uint32_t text_newer_lower(uint32_t code_point);

/* ---- added.c ---- */

extern const char text_word_members[]; /* a character class: the letters of a word */

struct text_added {
    char *content;
    size_t bytes;
    int32_t id;
    bool single_word, lstrip, rstrip;
};
struct text_added_set {
    struct text_added *tokens; /* sealed: by first byte, then the longest first */
    size_t count, capacity;
    uint32_t buckets[257]; /* tokens that begin with byte b are [buckets[b], buckets[b + 1]) */
    size_t longest;
    bool any_lstrip;
    pcre2_code *word; /* matches a letter of a word; only if there are single_word tokens */
};
int text_added_add(struct text_added_set *set, const struct text_added *token);
int text_added_seal(struct text_added_set *set);
void text_added_fini(struct text_added_set *set);
const struct text_added *text_added_named(const struct text_added_set *set, const char *content);

/* A search through text[sentence, end) for added tokens, from scan on. */
struct text_added_scan {
    const char *text;
    size_t sentence; /* beginning of the sentence; text before it is not looked at */
    size_t piece;    /* end of the last token; white space before it is used up */
    size_t scan;
    size_t end;
    bool open; /* more text may follow end */
};
struct text_added_match {
    const struct text_added *token;
    size_t begin, end; /* with the white space that the token takes */
};
/* 1: *match is the next token. 0: there is none before *limit, and behind it nothing is decided
 * yet. If a match needs text behind an open end, the result is 0, *limit is its beginning, and
 * *closed is true, since a token begins there. */
int text_added_next(const struct text_added_set *set, struct text_added_scan *scan,
                    struct text_added_match *match, size_t *limit, bool *closed);

/* ---- encode.c ---- */

/* What is before the text that comes next. */
enum text_place {
    TEXT_AT_START,    /* nothing: the whole text begins */
    TEXT_AFTER_FIRST, /* a token of the first set */
    TEXT_AFTER_SECOND,
    TEXT_INSIDE, /* text of the same piece between tokens */
};
#define TEXT_MAX_STAGES 8
struct text_encoder {
    const struct zinf_tokenizer *tokenizer;
    struct zinf_tokens *tokens;
    struct text_matcher matcher;
    struct text_scratch *scratch;                /* memory of the model */
    struct text_buffer dressed[TEXT_MAX_STAGES]; /* pieces of each stage with mark and prefix */
    struct text_buffer spelled_parts[TEXT_MAX_STAGES], spelled;
    const char *text; /* the text of the present call, or the normalized text */
    enum text_place place;
    /* bytes behind the consumed ones in which tokens of set i were searched already */
    size_t skip[2];
    /* Normalized text that is not consumed, behind TEXT_CONTEXT consumed bytes. */
    struct text_buffer normal, work[2];
    size_t normal_done;
    bool begun;      /* something was normalized since the start */
    bool in_stretch; /* part of the text between two tokens was consumed */
    bool moved;      /* its first character is not the text's first */
};
int text_encoder_init(struct text_encoder *encoder, const struct zinf_tokenizer *tokenizer,
                      struct zinf_tokens *tokens);
void text_encoder_fini(struct text_encoder *encoder);
#define TEXT_CONTEXT 4 /* bytes of consumed text that the next call needs */
/* Appends the ids that text[begin, end) has whatever text follows, and sets *consumed to the end of
 * their text. last: no text follows, and all is consumed. text[0, begin) has the TEXT_CONTEXT bytes
 * before, or all if there are fewer. The ids do not depend on how a text is divided into calls. */
int text_encoder_feed(struct text_encoder *encoder, const char *text, size_t begin, size_t end,
                      bool last, size_t *consumed);
/* Prepares for another text. */
void text_encoder_restart(struct text_encoder *encoder);
int text_tokens_push(struct zinf_tokens *tokens, int32_t id);

/* ---- stage.c: cuts a text without added tokens into pieces, and makes ids of them ---- */

struct text_piece {
    const char *text; /* UTF-8 */
    size_t bytes;
    bool open;  /* more text may follow */
    bool fresh; /* begins where a prefix is put */
    bool first; /* begins where the whole text begins */
};
int text_stage_run(struct text_encoder *encoder, int index, struct text_piece piece,
                   size_t *consumed);

/* ---- source.c ---- */

enum text_kind {
    TEXT_PLAIN, /* one document; in the other kinds rows are documents */
    TEXT_JSON_LINES,
    TEXT_JSON,
    TEXT_CSV,
    TEXT_TSV,
};
struct text_source;
/* Opens an open file or pipe, which is borrowed, as path is, and reads its beginning. Compressed
 * files are decompressed. -EINVAL: it is no text; the message has a command that converts it. */
int text_source_open(struct text_source **out, int fd, const char *path);
enum text_kind text_source_kind(const struct text_source *source);
const char *text_source_path(const struct text_source *source);
/* Reads the next bytes; *done 0: the source has ended. */
int text_source_read(struct text_source *source, char *out, size_t bytes, size_t *done);
/* Reads what is left and gives the sums of all lines. Call it once, at the end. */
int text_source_lines(struct text_source *source, struct zinf_lines *out);
void text_source_close(struct text_source *source);
/* Whether a name of n bytes ends with extension, in any letter case. */
bool text_name_ends(const char *name, size_t n, const char *extension);

/* ---- documents.c ---- */

/* Takes the documents of a file in portions. */
struct text_sink {
    /* text[begin, end) continues the last call's text; *consumed as in text_encoder_feed. */
    int (*feed)(void *handle, const char *text, size_t begin, size_t end, bool last,
                size_t *consumed);
    /* Unless NULL, it takes whole rows instead of their texts: a JSON object, or of tables an
     * object of strings by column. row NULL: the row that begins in this line is no JSON;
     * zinf_error() says why. */
    int (*row)(void *handle, const cJSON *row, long line);
    bool lines; /* lines of plain text are rows, too, with the field "text" */
    void *handle;
    bool skips;      /* without row: leave out documents that cannot be read */
    uint64_t n_left; /* number of those */
    char first_left[256];
};
/* Reads a file's documents. column: the field or column with the text; NULL: "text". first: bytes
 * that are read at once, which tests make small; 0: the default. */
int text_documents_read(struct text_source *source, const char *column, size_t first,
                        struct text_sink *sink);
/* Gives the document in one line of JSON to the sink; line: its number in path. */
int text_document_read(const char *json, const char *path, const char *column, long line,
                       struct text_sink *sink);
/* Gives all rows of a file to sink->row. */
int text_rows_read(const char *path, struct text_sink *sink);

/* ---- stream.c ---- */

/* Turns documents into one stream of ids, with an end-of-text token between them. */
struct text_stream {
    const struct zinf_tokenizer *tokenizer;
    int (*put)(void *arg, const int32_t *ids, size_t n); /* takes the ids in order */
    void *arg;
    int32_t separator; /* id between documents; -1: none */
    bool after_document, in_document;
    struct text_encoder encoder;
    struct zinf_tokens tokens;
};
int text_stream_init(struct text_stream *stream, const struct zinf_tokenizer *tokenizer);
void text_stream_fini(struct text_stream *stream);
/* A function for sinks; handle is the stream. */
int text_stream_feed(void *handle, const char *text, size_t begin, size_t end, bool last,
                     size_t *consumed);

/* ---- token_cache.c ---- */

/* Checksums of blocks of ids while they are made. */
#define TOKEN_BLOCK 16384
struct token_sums {
    uint32_t *sums;
    uint64_t n, capacity;
    uint32_t filled;
    char block[TOKEN_BLOCK];
};
int token_sums_add(struct token_sums *sums, const void *ids, size_t bytes);
int token_sums_end(struct token_sums *sums); /* ends the last block, which may be short */
bool token_sums_agree(const uint32_t *sums, uint64_t block, const void *ids, size_t bytes);
uint64_t token_sums_of(const uint32_t *sums, uint64_t n); /* checksum of the checksums */

struct text_token_cache {
    int fd;
    char *path;               /* of the text file, for messages */
    char *name;               /* of the cache file */
    uint32_t *sums;           /* [number of blocks of TOKEN_BLOCK bytes] */
    struct zinf_lines *lines; /* of the text file */
    uint64_t count;
    unsigned id_bytes; /* 2 or 4 */
    uint32_t largest;  /* the largest id, which is first at largest_at */
    uint64_t largest_at;
    bool reused;    /* the cache file existed already */
    bool documents; /* the file has rows of documents, not one text */
};
/* Opens the cache of a text file, or makes it. path "-": standard input, whose tokens are not kept.
 * column: as in text_documents_read. skips: documents that cannot be read are left out, which is
 * logged once. */
int text_token_cache_open(struct text_token_cache *cache, const char *path, const char *column,
                          bool skips, const struct zinf_tokenizer *tokenizer,
                          const char *cache_folder);
void text_token_cache_close(struct text_token_cache *cache);
int text_token_cache_read(const struct text_token_cache *cache, uint64_t first, uint64_t n,
                          int32_t *out);
/* Sets the number of ids and the checksum of all ids as they were written. */
void text_token_cache_describe(const struct text_token_cache *cache, struct zinf_data_file *out);

/* ---- mixture.c ---- */

struct text_mixture;
/* -EINVAL: a weight is not above 0, or there are too many. */
int text_mixture_create(struct text_mixture **out, const double *weights, uint32_t n,
                        uint32_t together);
void text_mixture_destroy(struct text_mixture *mixture);
double text_mixture_share(const struct text_mixture *mixture, uint32_t part);
/* The part whose window is at a position; *position becomes the position in that part. */
uint32_t text_mixture_at(const struct text_mixture *mixture, uint64_t *position);
uint64_t text_mixture_sum(const struct text_mixture *mixture); /* a hash of the order of parts */

/* ---- dataset.c ---- */

/* Makes a data set of a copy of n ids, which are at least a window and one token. options->files[0]
 * is its name. */
int text_dataset_of_ids(struct zinf_dataset **out, const struct zinf_dataset_options *options,
                        const int32_t *ids, uint64_t n);

struct zinf_window_rows; /* samples/samples.h */
/* A source of windows that are made when they are needed (flow.c). */
struct text_flow {
    void (*stop)(void *arg);  /* ends requests for rows and waits for one that is under way */
    void (*close)(void *arg); /* called after stop */
    int (*fill)(void *arg, uint64_t position, const struct zinf_window *window);
    /* Zeros if the window cannot be made; filling it tells the error. */
    struct zinf_window_rows (*rows)(void *arg, uint64_t position);
    void (*go_on)(void *arg, const struct zinf_flow_mark *mark);
    struct zinf_flow_mark (*mark)(void *arg, uint64_t position);
    int (*reaches)(void *arg, uint64_t end, uint64_t wait_ns, uint64_t *sum);
    uint64_t order;
    bool has_samples;
    void *arg; /* NULL: there is no flow */
};
/* takes over arg */
int text_dataset_of_flow(struct zinf_dataset **out, const struct text_flow *flow);

/* The window at a position of a training: epoch = position / n, and within an epoch an order that
 * (seed, epoch) determines, or file order without shuffle. */
uint64_t text_window_index(uint64_t position, uint64_t n, bool shuffle, uint64_t seed);

#endif
