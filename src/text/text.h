/*
 * text: from text to token ids and back, and from files of text or tokens to training windows.
 * Token files are read by a reader that the caller supplies.
 *
 * Threads: a tokenizer is read-only once opened and may be shared; each encoding has memory of its
 * own. Several threads may ask an open data set for windows at once. Errors: -errno, with a
 * sentence in zinf_error().
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
/* Opens the text of a tokenizer.json; what names it in messages. */
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
/* A hash that changes whenever the ids of some text could change, for caches. */
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
/* Appends to out the ids that a model is given: first, then second unless NULL, with special tokens
 * as by Hugging Face's encode(add_special_tokens=True). types, unless NULL, receives the token type
 * ids. */
int zinf_tokenizer_frame(const struct zinf_tokenizer *tokenizer, const struct zinf_tokens *first,
                         const struct zinf_tokens *second, struct zinf_tokens *out,
                         struct zinf_tokens *types);
/* The same; texts, unless NULL, receives for each id the text that it comes from, 0 or 1, or -1 for
 * a special token. */
int zinf_tokenizer_frame_told(const struct zinf_tokenizer *tokenizer,
                              const struct zinf_tokens *first, const struct zinf_tokens *second,
                              struct zinf_tokens *ids, struct zinf_tokens *types,
                              struct zinf_tokens *texts);
/* The number of special tokens before one text, and behind it. */
void zinf_tokenizer_sides(const struct zinf_tokenizer *tokenizer, uint32_t *front,
                          uint32_t *behind);
/* Decodes ids to a NUL-terminated string of *bytes bytes, which the caller frees; invalid UTF-8
 * becomes U+FFFD. Some tokenizers look at neighbouring tokens (a space at the very beginning is
 * dropped), so a growing text must be decoded as a whole. */
int zinf_tokenizer_decode(const struct zinf_tokenizer *tokenizer, const int32_t *ids, size_t count,
                          char **text, size_t *bytes);

/* ---- data set ---- */

/* A reader of a token file (formats/ has one); read returns 0 or -errno. */
struct zinf_token_source {
    uint64_t count;
    int (*read)(void *handle, uint64_t first, uint64_t n, int32_t *out);
    void (*close)(void *handle);
    void *handle;
};

struct zinf_dataset;
struct zinf_dataset_options {
    /* Files. Their kind is told by the first bytes, and by the name where these leave it open:
     * .jsonl, .ndjson, .json, .csv, .tsv, token files, else text. Text may be compressed by gzip or
     * zstd. "-" is standard input. */
    const char *const *files;
    int n_files;
    const char *text_column; /* field or column that is the text; NULL: "text" */
    bool skip_bad_rows;      /* leave out JSON documents that cannot be read */
    const struct zinf_tokenizer *tokenizer;
    const char *why_no_tokenizer; /* end of the message if there is no tokenizer, or NULL */
    /* Opens token files (.bin, .npy); NULL: they are refused. */
    int (*open_token_file)(const char *path, struct zinf_token_source *out);
    const char *cache_folder; /* folder of token caches; NULL: a private temporary file */
    uint32_t seq_len;         /* T */
    uint32_t vocab;           /* ids at or above this are an error naming file, position and id */
    bool shuffle;
    uint64_t seed;
    /* If set, windows have seq_len tokens of the stream with the special tokens of one text around
     * them, and are masked. NULL: windows are tokens alone, and targets the next tokens. */
    const struct zinf_masking *masking;
};
/* Opens a data set. Text, JSON and tables are tokenised once into a cache file, whose key has the
 * file's size, time and column and the tokenizer. Documents are joined with the end-of-text token.
 * Errors name the file: missing, empty, shorter than one window, a format such as Parquet (with a
 * command that converts it), not JSON (line), no such field, id outside the vocabulary. */
int zinf_dataset_open(struct zinf_dataset **out, const struct zinf_dataset_options *options);
void zinf_dataset_close(struct zinf_dataset *dataset);
uint64_t zinf_dataset_n_tokens(const struct zinf_dataset *dataset);
uint64_t zinf_dataset_n_windows(const struct zinf_dataset *dataset); /* (n_tokens - 1) / T */
/* Tokens of the stream in a window, without special tokens. */
uint32_t zinf_dataset_window_tokens(const struct zinf_dataset *dataset);
/* Window i of the stream: inputs t[iT .. iT+T-1], targets t[iT+1 .. iT+T]. position counts windows
 * since the start of training; epoch = position / n_windows; within an epoch the windows come in
 * an order keyed by (seed, epoch), or in file order without shuffle. Any position, any time. */
int zinf_dataset_window(struct zinf_dataset *dataset, uint64_t position, int32_t *inputs,
                        int32_t *targets);
/* Whether windows are consecutive rows of a stream, unmasked, so that parts of them can be read.
 * zinf_dataset_rows reads n rows of such a window from `first` on. Any thread. */
bool zinf_dataset_reads_rows(const struct zinf_dataset *dataset);
int zinf_dataset_rows(struct zinf_dataset *dataset, uint64_t position, uint64_t first, uint64_t n,
                      int32_t *inputs, int32_t *targets);
/* The arrays of a window, of the sequence length; NULL: not wanted. */
struct zinf_window {
    int32_t *ids, *targets; /* targets: the next id where it counts for the loss, else -1 */
    int32_t *positions;     /* from 0 on in each document */
    int32_t *segments;      /* number of the document, from 1; 0: padding */
    int32_t *token_types;
    int32_t *source_ids, *source_segments; /* [source_len] */
    int32_t *label;                        /* one number */
    float *reference;                      /* one number, see zinf_samples_set_references */
    /* Number of rows of the window that are wanted, and of its source; 0: all. For samples only. */
    uint32_t length, source_length;
};
/* Fills a window of any kind of data set. A stream's window is one document without padding. */
int zinf_dataset_fill(struct zinf_dataset *dataset, uint64_t position,
                      const struct zinf_window *window);
/* Reads ids [first, first + n) of the stream, unshuffled. -ENOTSUP: the data set is no stream. */
int zinf_dataset_read(struct zinf_dataset *dataset, uint64_t first, uint64_t n, int32_t *out);

/* Several data sets as one, each a *part* with a weight. The part of window p follows from p and
 * the weights alone: of two parts, the one further behind its share comes next. A part's windows
 * come in its own order and epochs. An epoch of the whole has as many windows as the parts
 * together. Weights are represented as integers whose sum is at most 65,536, exactly where
 * possible. */
#define ZINF_MOST_SET_NAME 64 /* bytes of a name, with its NUL */
struct zinf_dataset_part {
    const char *name;          /* name for its figures, copied; NULL: none */
    double weight;             /* above 0 */
    struct zinf_dataset *data; /* must not be a mixture */
};
/* Takes over the parts' data, even if it fails. together: number of consecutive windows of a part
 * that stay together, such as 2 for pairs. -EINVAL: a weight is not above 0, or a name is too long.
 */
int zinf_dataset_mix(struct zinf_dataset **out, const struct zinf_dataset_part *parts, uint32_t n,
                     uint32_t together);
/* Parts of a mixture. Any other data set has itself as its one part. */
uint32_t zinf_dataset_n_parts(const struct zinf_dataset *dataset);
struct zinf_dataset *zinf_dataset_part(struct zinf_dataset *dataset, uint32_t index);
const char *zinf_dataset_part_name(const struct zinf_dataset *dataset,
                                   uint32_t index); /* or NULL */
/* The part's share of all windows in the long run. */
double zinf_dataset_part_share(const struct zinf_dataset *dataset, uint32_t index);

/* ---- data that are read while they are needed ---- */

/* Whether the data set is a flow: windows of rows that are read while a training needs them
 * (samples/flow.h). It has no number of windows (UINT64_MAX). Windows must be asked for in rising
 * order; those of the last two steps are kept. */
bool zinf_dataset_flows(const struct zinf_dataset *dataset);
/* A place from which windows can be made again: window `first` begins with this row of this pass
 * over the rows, behind some tokens of it. */
struct zinf_flow_mark {
    uint64_t first;
    uint64_t pass, row, token;
    bool joined; /* there was text before that row */
};
/* Sets where the rows begin; only before the first window. Otherwise they begin with the first row.
 */
void zinf_dataset_go_on(struct zinf_dataset *dataset, const struct zinf_flow_mark *mark);
/* A place from which the window at a position, the next one of the training, can be made again.
 * Zeros: the data set is no flow. */
struct zinf_flow_mark zinf_dataset_mark(struct zinf_dataset *dataset, uint64_t position);
/* Whether the windows before position end exist. 1: yes; 0: the rows end before; -EAGAIN: the rows
 * have not arrived within about wait_ns. *sum is a hash of what the windows are made of, which is
 * the same for ranks that are given the same rows. */
int zinf_dataset_reaches(struct zinf_dataset *dataset, uint64_t end, uint64_t wait_ns,
                         uint64_t *sum);
/* Ends requests for rows. */
void zinf_dataset_stop(struct zinf_dataset *dataset);

/* What windows are made of: the files in order, each with a hash of its tokens, marks and labels,
 * and a hash of what decides how windows are made and ordered. */
struct zinf_lines;
struct zinf_data_file {
    const char *path;
    uint64_t count, sum;            /* count: how many numbers are hashed */
    const struct zinf_lines *lines; /* lines.h, borrowed; NULL: a token file */
};
uint32_t zinf_dataset_n_files(const struct zinf_dataset *dataset);
/* Reads token files whole. */
int zinf_dataset_file(const struct zinf_dataset *dataset, uint32_t index,
                      struct zinf_data_file *out);
uint64_t zinf_dataset_order(const struct zinf_dataset *dataset);

/* Reads a token cache and checks it. -EBADMSG: it is damaged; -EINVAL: it is no token cache. */
int zinf_token_cache_verify(const char *path);

#ifdef __cplusplus
}
#endif
#endif
