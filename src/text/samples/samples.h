/*
 * samples: a store of samples, beside the stream of text.h. A *row* is an object or line of a data
 * file; a *recipe* makes a *sample* of it: token ids, marks that say which of them count for the
 * loss, and where the task has them a source that an encoder reads, token types and a label. Rows
 * are read once: samples lie in a cache file with checksums, whole, and are cut when they are
 * read, so that one cache serves every sequence length. A *window* is what one position of a
 * training gives (text.h): one sample and padding, or several that are packed.
 *
 * What takes a store needs to know no format: conversations (chat.h), pairs of source and target
 * and labelled texts differ in their recipe alone.
 *
 * Threads: samples and windows of an open store may be read by several at once. Errors: -errno and
 * a sentence that names file, row and line.
 */
#ifndef ZINF_SAMPLES_H
#define ZINF_SAMPLES_H

#include "base/json.h"
#include "text/samples/masking.h"
#include "text/text.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- a sample ---- */

enum zinf_mark {
    ZINF_MARK_COUNTS = 1, /* the loss counts how well this token is foretold */
    ZINF_MARK_SECOND = 2, /* token type 1: of the second text of a pair */
    ZINF_MARK_FRAME = 4,  /* put around texts by the tokenizer */
    ZINF_MARK_OTHER = 8,  /* of the second text, whatever its type */
};
struct zinf_sample {
    /* What is trained on. A decoder that is fed its target shifted to the right has its start token
     * here first: a target is always the id after. */
    struct zinf_tokens ids;
    uint8_t *marks;            /* [ids.capacity]: enum zinf_mark */
    struct zinf_tokens source; /* of an encoder; count 0: the task has none */
    /* So many ids at its beginning and end stay where it is cut, besides what options.source_front
     * says. */
    uint32_t source_head, source_tail;
    int32_t label; /* a class, or 32 bits that recipe and model agree on */
    /* Where the end is cut off, the last id stays the last one (an end-of-text token). */
    bool keeps_last, source_keeps_last;
    /* Texts are cut, the longer one first, and what is marked as their frame stays. */
    bool keeps_frame;
    bool cut; /* of what zinf_samples_read gives: something was cut off */
};
#define ZINF_SAMPLE_EMPTY                                                                          \
    {                                                                                              \
        .label = -1                                                                                \
    }
/* Append to ids, each with these marks. Text is encoded by itself, without a tokenizer's frame. */
int zinf_sample_add_ids(struct zinf_sample *sample, const int32_t *ids, size_t n, unsigned marks);
int zinf_sample_add_text(struct zinf_sample *sample, const struct zinf_tokenizer *tokenizer,
                         const char *text, size_t bytes, unsigned marks);
void zinf_sample_clear(struct zinf_sample *sample); /* keeps the memory */
void zinf_sample_free(struct zinf_sample *sample);

/* ---- recipes ---- */

struct zinf_recipe {
    const char *name; /* of the format, in messages */
    /* Changes whenever the samples of a file could; the tokenizer, the file, its name, size and
     * time and these options need not be in it. */
    uint64_t key;
    /* Makes the sample of a row: an object of JSON, or of strings by column for tables. sample is
     * empty. -EINVAL with a sentence of what is missing: the row is broken, which may be skipped;
     * other codes end the reading. */
    int (*take)(void *arg, const cJSON *row, struct zinf_sample *sample);
    void *arg;
    /* Samples of a row, of which take makes the first and take_other those with index 1 and more.
     * They stand one behind the other in any order of windows and are dropped together. 0: 1. */
    uint32_t n_samples;
    int (*take_other)(void *arg, const cJSON *row, uint32_t index, struct zinf_sample *sample);
    /* Windows are pairs all the same: the second is the row's prompt (what comes before its first
     * id that counts) with the answer of another row, of the same group of `rotate` rows in the
     * order of the windows: of the one before it, of the first the last one's. */
    bool rotates;
    bool lines; /* a line of plain text, unless it is blank, is a row with the field "text" */
};

/* ---- store ---- */

/* Of a sample that is too long. */
enum zinf_cut {
    ZINF_CUT_END, /* off the end */
    ZINF_CUT_BEGINNING,
    ZINF_CUT_DROP, /* the whole sample */
};
#define ZINF_SAMPLES_MOST_FRONT 8
#define ZINF_SAMPLES_OF_ROW 8 /* at most */
struct zinf_samples_options {
    /* .jsonl, .ndjson, .json (objects, or an array of them), .csv, .tsv; also packed. "-" is
     * standard input. */
    const char *const *files;
    int n_files;
    const struct zinf_recipe *recipe; /* borrowed for the call */
    const struct zinf_tokenizer *tokenizer;
    const char *cache_folder; /* NULL: a private temporary file */
    uint32_t vocab;           /* ids at or above this are an error */
    uint32_t seq_len;         /* T, of a window */
    uint32_t source_len;      /* of a window's source; 0: samples have none */
    /* Longer samples are cut to so many ids; 0: T. At most T + 1: the last is a target alone. */
    uint32_t max_ids;
    uint32_t min_ids; /* what has fewer after the cut is dropped and counted */
    enum zinf_cut cut;
    /* Where the beginning is cut off, so many ids stay in front, of the source too: tokens of the
     * frame. At most ZINF_SAMPLES_MOST_FRONT. */
    uint32_t front, source_front;
    bool skip_bad_rows; /* counted; without it the first broken row is an error */
    bool may_be_empty;  /* it is no error that no sample is left */
    uint64_t first_row; /* rows before the files, for their numbers in messages */
    bool unlabelled;    /* samples without a token that counts are kept: a label is learned */
    bool packed;        /* as many samples in a window as there is room for */
    bool shuffle;
    /* With shuffle: an epoch's windows come by length, in steps of so many, as transformers'
     * group_by_length has them; not with packed. 0: in any order. */
    uint64_t group;
    uint64_t seed;
    uint32_t rotate; /* of a recipe that rotates: rows of a group; 0: 1 */
    bool
        rotates_files; /* groups are those of the files' order: a window is the same in any epoch */
    /* Of pairs: all ids of the first one are targets, and its label says how many come before those
     * that count. */
    bool likelihood;
    int32_t pad, source_pad; /* ids where there is no sample */
    /* Windows are masked: what counts of a sample may be, and the targets are what was. */
    struct zinf_masking masking;
};

/* What became of the rows. */
struct zinf_samples_facts {
    uint64_t n_rows;                        /* in the files */
    uint64_t n_bad;                         /* skipped */
    uint64_t n_short, n_long, n_unlabelled; /* dropped */
    uint64_t n_samples;                     /* that are left */
    uint64_t n_cut, n_ids_cut;              /* of these, and the ids that it cost */
    uint64_t n_sources_cut, n_source_ids_cut;
    uint64_t n_ids, n_counted, n_source_ids; /* in all of them; n_counted: for the loss */
    uint32_t longest, longest_source;        /* before the cut */
    char first_bad[256];                     /* why the first of n_bad was skipped */
};

struct zinf_samples;
/* -EINVAL also where nothing is left, or no token counts. */
int zinf_samples_open(struct zinf_samples **out, const struct zinf_samples_options *options);
void zinf_samples_close(struct zinf_samples *samples);
const struct zinf_samples_facts *zinf_samples_facts(const struct zinf_samples *samples);
/* Sample index < n_samples in the order of the files, cut. out keeps its memory from call to call;
 * zinf_sample_free. */
int zinf_samples_read(struct zinf_samples *samples, uint64_t index, struct zinf_sample *out);
/* Ids that sample index has before the cut, and after it. */
void zinf_samples_length(const struct zinf_samples *samples, uint64_t index, uint32_t *whole,
                         uint32_t *kept);

/* The smallest lengths before the cut, of samples and of their sources, that at least so many
 * percent of them do not exceed; percent: above 0, up to 100. -ENOMEM */
int zinf_samples_percentile(const struct zinf_samples *samples, double percent, uint32_t *ids,
                            uint32_t *source);

int32_t zinf_samples_label(const struct zinf_samples *samples, uint64_t index);

/* Windows in an epoch: n_samples, or fewer that are packed. Which samples share a window depends on
 * their lengths and order in the files alone: best fit, the longest first. */
uint64_t zinf_samples_n_windows(const struct zinf_samples *samples);
/* Window `position` of the training: epoch = position / n_windows; within an epoch the windows come
 * in an order keyed by (seed, epoch), as those of a stream do. */
int zinf_samples_window(struct zinf_samples *samples, uint64_t position,
                        const struct zinf_window *window);

/* The number, in the files' order, of the window at a position. */
uint64_t zinf_samples_number(struct zinf_samples *samples, uint64_t position);
/* [n_windows] by such numbers: what windows have as their reference; the store's from then on.
 * NULL: they have none. */
void zinf_samples_set_references(struct zinf_samples *samples, float *references);
bool zinf_samples_has_references(const struct zinf_samples *samples);

/* Rows of that window that are no padding, and of its source: all from the first one on. */
struct zinf_window_rows {
    uint32_t ids, source;
};
struct zinf_window_rows zinf_samples_window_rows(struct zinf_samples *samples, uint64_t position);
/* Rows of a step's samples are a multiple of this, or as many as a window has: tensor cores take
 * 16-bit numbers eight at a time (pad_to_multiple_of of transformers' collators), and there are
 * fewer shapes of products. */
#define ZINF_ROWS_MULTIPLE 8
/* Rows of an epoch's sequences and sources together, in steps of `batch` windows: without padding;
 * each window whole; each step as long as its longest, in multiples of `multiple`; and so with
 * windows grouped by length. The order is that of the first epoch, shuffled. -ENOMEM */
struct zinf_samples_rows {
    uint64_t tokens, whole, longest, grouped;
};
int zinf_samples_count_rows(struct zinf_samples *samples, uint64_t batch, uint32_t multiple,
                            struct zinf_samples_rows *out);

/* A data set whose windows these are; it owns samples then, even where this fails. */
int zinf_dataset_of_samples(struct zinf_dataset **out, struct zinf_samples *samples);
/* NULL: the data set is a stream, or has several parts. */
struct zinf_samples *zinf_dataset_samples(const struct zinf_dataset *dataset);
/* Whether any of its parts is such a data set. */
bool zinf_dataset_has_samples(const struct zinf_dataset *dataset);
/* As zinf_samples_window_rows; a window of a stream has no padding. */
struct zinf_window_rows zinf_dataset_window_rows(struct zinf_dataset *dataset, uint64_t position);

#ifdef __cplusplus
}
#endif
#endif
