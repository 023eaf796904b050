/*
 * text: from text to token ids and back, and from files of text or tokens to training windows.
 * Stands on base alone; token files come in through a reader that the caller supplies.
 *
 * Threads: a tokenizer is read-only after it was opened and may be shared, but each encode uses
 * scratch of its own. Windows of an open data set may be asked for by several threads at once.
 */
#ifndef ZINF_TEXT_H
#define ZINF_TEXT_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

struct zinf_masking; /* samples/masking.h */

/* ---- tokenizer ---- */

struct zinf_tokenizer;
/* folder: reads tokenizer.json if there, else vocab.json + merges.txt (also encoder.json +
 * vocab.bpe), else tokenizer.model (spiece.model) with added_tokens.json and tokenizer_config.json
 * where the build has SentencePiece, else the byte-level default: ids 0..255 are the bytes, 256 is
 * the end-of-text token. tokenizer.json may have the models BPE, Unigram, WordPiece and WordLevel,
 * with the normalizers, pre-tokenizers, decoders and post-processors of Hugging Face's
 * `tokenizers`; ids and texts are then the same. What is not supported is refused by name
 * (-ENOTSUP), what is damaged with -EINVAL: opening checks, among others, that every merge's parts
 * and result are in the vocabulary. */
int zinf_tokenizer_open(struct zinf_tokenizer **out, const char *folder);
/* From the text of a tokenizer.json; what names it in messages. */
int zinf_tokenizer_from_json(struct zinf_tokenizer **out, const char *json, size_t bytes,
                             const char *what);
int zinf_tokenizer_bytes(struct zinf_tokenizer **out); /* the byte-level default */
/* Writes FOLDER/tokenizer.json: ids 0..255 are the bytes, 256 is the end-of-text token. */
int zinf_tokenizer_write_bytes(const char *folder);
void zinf_tokenizer_close(struct zinf_tokenizer *tokenizer);
/* "bytes", "bpe", "unigram", "wordpiece", "wordlevel", "sentencepiece" */
const char *zinf_tokenizer_kind(const struct zinf_tokenizer *tokenizer);
uint32_t zinf_tokenizer_vocab(const struct zinf_tokenizer *tokenizer);      /* largest id + 1 */
int32_t zinf_tokenizer_end_of_text(const struct zinf_tokenizer *tokenizer); /* -1: none */
/* A number that changes whenever the token ids of some text could change (for caches). */
uint64_t zinf_tokenizer_fingerprint(const struct zinf_tokenizer *tokenizer);

struct zinf_tokens {
    int32_t *ids; /* heap */
    size_t count, capacity;
};
void zinf_tokens_free(struct zinf_tokens *tokens);
/* Appends the ids of text to tokens. Text that is not UTF-8 is encoded byte by byte where the
 * byte-level alphabet allows, else what is malformed becomes U+FFFD. Special tokens written in the
 * text become their ids, as in Hugging Face's encode(add_special_tokens=False). */
int zinf_tokenizer_encode(const struct zinf_tokenizer *tokenizer, const char *text, size_t bytes,
                          struct zinf_tokens *tokens);
/* Appends to out the ids that a model is fed: first, and second unless NULL, with the special
 * tokens that the tokenizer puts around them, as Hugging Face's encode(add_special_tokens=True).
 * types unless NULL gets as many token type ids. */
int zinf_tokenizer_frame(const struct zinf_tokenizer *tokenizer, const struct zinf_tokens *first,
                         const struct zinf_tokens *second, struct zinf_tokens *out,
                         struct zinf_tokens *types);
/* The same; texts unless NULL gets for each id the text that it is of, 0 or 1, or -1 where the
 * tokenizer put it there. */
int zinf_tokenizer_frame_told(const struct zinf_tokenizer *tokenizer,
                              const struct zinf_tokens *first, const struct zinf_tokens *second,
                              struct zinf_tokens *ids, struct zinf_tokens *types,
                              struct zinf_tokens *texts);
/* How many ids that puts in front of one text, and how many behind it. */
void zinf_tokenizer_sides(const struct zinf_tokenizer *tokenizer, uint32_t *front,
                          uint32_t *behind);
/* Heap string, NUL-terminated, of *bytes bytes; invalid UTF-8 becomes U+FFFD. Caller frees. Tokens
 * of some kinds look at their neighbours (a space at the very beginning goes): whoever decodes a
 * growing row decodes the whole and compares. */
int zinf_tokenizer_decode(const struct zinf_tokenizer *tokenizer, const int32_t *ids, size_t count,
                          char **text, size_t *bytes);

/* ---- data set ---- */

/* Reader of a token file (formats/ has one); read returns 0 or -errno. */
struct zinf_token_source {
    uint64_t count;
    int (*read)(void *handle, uint64_t first, uint64_t n, int32_t *out);
    void (*close)(void *handle);
    void *handle;
};

struct zinf_dataset;
struct zinf_dataset_options {
    /* Each is told by its first bytes, and by its name where those leave it open: .jsonl, .ndjson,
     * .json, .csv, .tsv, token files, else text; gzip and zstd of text are unpacked. "-" is
     * standard input. */
    const char *const *files;
    int n_files;
    const char *text_column; /* field or column that is the text; NULL: "text" */
    bool skip_bad_rows;      /* documents of JSON that cannot be read are left out */
    const struct zinf_tokenizer *tokenizer;
    const char *why_no_tokenizer; /* the end of the message where there is none, or NULL */
    /* Opens token files (.bin, .npy); NULL: they are refused. */
    int (*open_token_file)(const char *path, struct zinf_token_source *out);
    const char *cache_folder; /* where token caches are kept; NULL: a private temporary file */
    uint32_t seq_len;         /* T */
    uint32_t vocab;           /* ids at or above this are an error naming file, position and id */
    bool shuffle;
    uint64_t seed;
    /* Windows have seq_len tokens of the stream within the frame that the tokenizer gives to one
     * text, and are masked; NULL: they are tokens alone, and the targets those that follow. */
    const struct zinf_masking *masking;
};
/* Tokenises text, JSON and tables once into a cache file keyed by file size, time, column and
 * tokenizer. Documents of JSON and tables are joined with the end-of-text token. Errors name the
 * file: missing, empty, shorter than one window, no text but Parquet and the like (with the command
 * that converts it), not JSON (line), no such field, id outside the vocabulary. */
int zinf_dataset_open(struct zinf_dataset **out, const struct zinf_dataset_options *options);
void zinf_dataset_close(struct zinf_dataset *dataset);
uint64_t zinf_dataset_n_tokens(const struct zinf_dataset *dataset);
uint64_t zinf_dataset_n_windows(const struct zinf_dataset *dataset); /* (n_tokens - 1) / T */
/* Tokens of a stream that a window has, without a frame. */
uint32_t zinf_dataset_window_tokens(const struct zinf_dataset *dataset);
/* Window i of the stream: inputs t[iT .. iT+T-1], targets t[iT+1 .. iT+T]. position counts windows
 * since the start of training; epoch = position / n_windows; within an epoch the windows come in
 * an order keyed by (seed, epoch), or in file order without shuffle. Any position, any time. */
int zinf_dataset_window(struct zinf_dataset *dataset, uint64_t position, int32_t *inputs,
                        int32_t *targets);
/* Whether windows are rows of a stream as they are, without a mask, so that parts of them can be
 * read. zinf_dataset_rows: n rows of such a window, from `first` on. Any thread. */
bool zinf_dataset_reads_rows(const struct zinf_dataset *dataset);
int zinf_dataset_rows(struct zinf_dataset *dataset, uint64_t position, uint64_t first, uint64_t n,
                      int32_t *inputs, int32_t *targets);
/* Where a window goes, each array of a sequence's length; NULL: not wanted. */
struct zinf_window {
    int32_t *ids, *targets; /* targets: the id after, where it counts for the loss; else -1 */
    int32_t *positions;     /* from 0 in each document */
    int32_t *segments;      /* number of the document from 1; 0: padding */
    int32_t *token_types;
    int32_t *source_ids, *source_segments; /* [source_len] */
    int32_t *label;                        /* one */
    float *reference;                      /* one: zinf_samples_set_references */
    /* Of samples: so many rows of the window are wanted, and of its source; 0: all. */
    uint32_t length, source_length;
};
/* The same for every kind of data set: a stream's window is one document without padding. */
int zinf_dataset_fill(struct zinf_dataset *dataset, uint64_t position,
                      const struct zinf_window *window);
/* Reads ids [first, first + n) of the whole stream, unshuffled; -ENOTSUP: it is none. */
int zinf_dataset_read(struct zinf_dataset *dataset, uint64_t first, uint64_t n, int32_t *out);

/* Several data sets as one, each a *part* with a weight. Position p of the whole is a window of one
 * part, and which one follows from p and the weights alone: of any two parts, the one that is
 * further behind its share comes next. A part's own windows come in its own order, epoch after
 * epoch of its own; an epoch of the whole has as many windows as the parts have together. Weights
 * stand to each other as integers whose sum is at most 65,536, and exactly where they can. */
#define ZINF_MOST_SET_NAME 64 /* bytes of a part's name, with its NUL */
struct zinf_dataset_part {
    const char *name;          /* what its figures are called by, copied; NULL: nothing */
    double weight;             /* above 0 */
    struct zinf_dataset *data; /* no mixture itself */
};
/* Owns the parts' data then, even where it fails. together: windows that follow each other in a
 * part and stay so, 2 where samples come in pairs. -EINVAL: a weight is none, or a name too long.
 */
int zinf_dataset_mix(struct zinf_dataset **out, const struct zinf_dataset_part *parts, uint32_t n,
                     uint32_t together);
/* A data set that was not made so is the one part of itself. */
uint32_t zinf_dataset_n_parts(const struct zinf_dataset *dataset);
struct zinf_dataset *zinf_dataset_part(struct zinf_dataset *dataset, uint32_t index);
const char *zinf_dataset_part_name(const struct zinf_dataset *dataset,
                                   uint32_t index); /* or NULL */
/* Of all windows, in the long run. */
double zinf_dataset_part_share(const struct zinf_dataset *dataset, uint32_t index);

/* ---- data that come as they are needed ---- */

/* Windows of rows that are read as a training needs them (samples/flow.h). It has no number of
 * windows (UINT64_MAX); windows are asked for in rising order, and those of the last two steps are
 * kept. */
bool zinf_dataset_flows(const struct zinf_dataset *dataset);
/* A place from which windows can be made again: `first` is the number of the first of them, which
 * begins with this row of this pass over the rows, after so many tokens of it. */
struct zinf_flow_mark {
    uint64_t first;
    uint64_t pass, row, token;
    bool joined; /* there was text in front of that row */
};
/* Before the first window is asked for. Without a call of it: from the first row on. */
void zinf_dataset_go_on(struct zinf_dataset *dataset, const struct zinf_flow_mark *mark);
/* From where the window at a position, the next one that a training takes, can be made again.
 * Zeros: all windows are there at any time. */
struct zinf_flow_mark zinf_dataset_mark(struct zinf_dataset *dataset, uint64_t position);
/* 1: there are windows up to position end; 0: there are not so many, since the rows have ended;
 * -EAGAIN: the rows have not come within about so long. *sum is of what the windows are made of:
 * ranks that are given the same rows have the same. */
int zinf_dataset_reaches(struct zinf_dataset *dataset, uint64_t end, uint64_t wait_ns,
                         uint64_t *sum);
/* No more rows are asked for. */
void zinf_dataset_stop(struct zinf_dataset *dataset);

/* What windows are made of: the files in their order, each with a sum of all its tokens, marks and
 * labels, and one of what decides how these become windows, and in which order. */
struct zinf_lines;
struct zinf_data_file {
    const char *path;
    uint64_t count, sum;            /* count: numbers that are summed */
    const struct zinf_lines *lines; /* lines.h, borrowed; NULL: a file of tokens */
};
uint32_t zinf_dataset_n_files(const struct zinf_dataset *dataset);
/* Token files are read whole for it. */
int zinf_dataset_file(const struct zinf_dataset *dataset, uint32_t index,
                      struct zinf_data_file *out);
uint64_t zinf_dataset_order(const struct zinf_dataset *dataset);

/* Reads a token cache and compares it with its checksums. -EBADMSG: it is damaged; -EINVAL: it is
 * none. */
int zinf_token_cache_verify(const char *path);

#ifdef __cplusplus
}
#endif
#endif
