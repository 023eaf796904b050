/*
 * samples: a store of samples. A *row* is an object or line of a data file. A *recipe* makes a
 * *sample* of it: token ids; marks that say which of them count for the loss; and, if the task has
 * them, a source for an encoder, token types and a label. Rows are read once. Samples are kept
 * whole in a cache file with checksums and cut when they are read, so one cache serves every
 * sequence length. A *window* is what one position of a training gives (text.h): one sample with
 * padding, or several that are packed.
 *
 * Users of a store need to know no format: conversations (chat.h), pairs of source and target, and
 * labelled texts differ only in their recipe.
 *
 * Threads: several threads may read samples and windows of an open store. Errors: -errno and a
 * sentence that names file, row and line.
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
    ZINF_MARK_COUNTS = 1, /* the loss counts the prediction of this token */
    ZINF_MARK_SECOND = 2, /* token type 1: of the second text of a pair */
    ZINF_MARK_FRAME = 4,  /* special token of the tokenizer */
    ZINF_MARK_OTHER = 8,  /* of the second text, whatever its type */
};
struct zinf_sample {
    /* The ids to train on. For a decoder whose input is the target shifted right, the first id is
     * its start token: targets are always the next ids. */
    struct zinf_tokens ids;
    uint8_t *marks;            /* [ids.capacity]: enum zinf_mark */
    struct zinf_tokens source; /* for an encoder; count 0: none */
    /* Number of ids at the beginning and end of the source that stay if it is cut, besides
     * options.source_front. */
    uint32_t source_head, source_tail;
    int32_t label; /* a class, or 32 bits whose meaning recipe and model share */
    /* If the end is cut off, the last id (an end-of-text token) stays. */
    bool keeps_last, source_keeps_last;
    /* If it is too long, texts are cut, the longer one first, and ids marked FRAME stay. */
    bool keeps_frame;
    bool cut; /* set by zinf_samples_read: the sample was cut */
};
#define ZINF_SAMPLE_EMPTY                                                                          \
    {                                                                                              \
        .label = -1                                                                                \
    }
/* Append ids with these marks. Text is encoded without special tokens. */
int zinf_sample_add_ids(struct zinf_sample *sample, const int32_t *ids, size_t n, unsigned marks);
int zinf_sample_add_text(struct zinf_sample *sample, const struct zinf_tokenizer *tokenizer,
                         const char *text, size_t bytes, unsigned marks);
void zinf_sample_clear(struct zinf_sample *sample); /* keeps the memory */
void zinf_sample_free(struct zinf_sample *sample);

/* ---- recipes ---- */

struct zinf_recipe {
    const char *name; /* of the format, in messages */
    /* A hash that changes whenever a file could give other samples. It need not cover the
     * tokenizer, the file's name, size and time, or the store's options. */
    uint64_t key;
    /* Makes the sample of a row, which is a JSON object, or an object of strings by column for
     * tables. sample is empty. -EINVAL: the row is broken (the message says how), and may be
     * skipped; other errors end the reading. */
    int (*take)(void *arg, const cJSON *row, struct zinf_sample *sample);
    void *arg;
    /* Samples of a row: take makes the first, take_other those with index 1 and more. They stay
     * next to each other in any order of windows, and are dropped together. 0 means 1. */
    uint32_t n_samples;
    int (*take_other)(void *arg, const cJSON *row, uint32_t index, struct zinf_sample *sample);
    /* Windows are pairs: the second sample is the row's prompt (its ids before the first that
     * counts) with the answer of another row, the one before it in a group of `rotate` rows in the
     * order of windows; the first row gets the last one's answer. */
    bool rotates;
    bool lines; /* lines of plain text that are not blank are rows with the field "text" */
};

/* ---- store ---- */

/* What happens to a sample that is too long. */
enum zinf_cut {
    ZINF_CUT_END, /* its end is cut off */
    ZINF_CUT_BEGINNING,
    ZINF_CUT_DROP, /* it is dropped */
};
#define ZINF_SAMPLES_MOST_FRONT 8
#define ZINF_SAMPLES_OF_ROW 8 /* most samples of a row */
struct zinf_samples_options {
    /* Files: .jsonl, .ndjson, .json (objects, or an array of them), .csv, .tsv, also compressed.
     * "-" is standard input. */
    const char *const *files;
    int n_files;
    const struct zinf_recipe *recipe; /* borrowed during the call */
    const struct zinf_tokenizer *tokenizer;
    const char *cache_folder; /* NULL: a private temporary file */
    uint32_t vocab;           /* an id not below it is an error */
    uint32_t seq_len;         /* sequence length T of a window */
    uint32_t source_len;      /* length of a window's source; 0: none */
    /* Most ids of a sample; longer ones are cut. 0: T. At most T + 1, since the last one is only a
     * target. */
    uint32_t max_ids;
    uint32_t min_ids; /* samples with fewer ids after the cut are dropped and counted */
    enum zinf_cut cut;
    /* Where the beginning is cut off, the number of special tokens in front that stay, also in the
     * source; at most ZINF_SAMPLES_MOST_FRONT. */
    uint32_t front, source_front;
    bool skip_bad_rows; /* broken rows are counted; otherwise the first one is an error */
    bool may_be_empty;  /* no error if no sample is left */
    uint64_t first_row; /* number of rows before the files, for messages */
    /* What messages call the rows if a file only holds them for a while. NULL: they name the file
     * and the line. */
    const char *rows_of;
    bool unlabelled; /* keep samples without a counting token, since a label is learned */
    bool packed;     /* windows have as many samples as there is room for */
    bool shuffle;
    /* With shuffle: windows of an epoch come by length in steps of this size, as in transformers'
     * group_by_length; not with packed. 0: in any order. */
    uint64_t group;
    uint64_t seed;
    uint32_t rotate;    /* for a recipe that rotates: rows of a group; 0 means 1 */
    bool rotates_files; /* groups go by the files' order, so a window is the same in every epoch */
    /* For pairs: all ids of the first sample are targets, and its label is the number of ids before
     * those that count. */
    bool likelihood;
    int32_t pad, source_pad; /* ids where there is no sample */
    /* Masks windows: ids that count may be masked, and targets are the masked ids. */
    struct zinf_masking masking;
};

/* What became of the rows. */
struct zinf_samples_facts {
    uint64_t n_rows;                        /* in the files */
    uint64_t n_bad;                         /* broken rows that were skipped */
    uint64_t n_short, n_long, n_unlabelled; /* dropped */
    uint64_t n_samples;                     /* that are left */
    uint64_t n_cut, n_ids_cut;              /* cut samples, and the ids cut off */
    uint64_t n_sources_cut, n_source_ids_cut;
    /* in all samples; n_counted: those that count for the loss */
    uint64_t n_ids, n_counted, n_source_ids;
    uint32_t longest, longest_source; /* before the cut */
    char first_bad[256];              /* why the first of n_bad was skipped */
};

struct zinf_samples;
/* -EINVAL also if no sample is left or no token counts. */
int zinf_samples_open(struct zinf_samples **out, const struct zinf_samples_options *options);
void zinf_samples_close(struct zinf_samples *samples);
const struct zinf_samples_facts *zinf_samples_facts(const struct zinf_samples *samples);
/* Reads sample index < n_samples, in file order, cut. out keeps its memory between calls; free it
 * with zinf_sample_free. */
int zinf_samples_read(struct zinf_samples *samples, uint64_t index, struct zinf_sample *out);
/* The number of ids of a sample before and after the cut. */
void zinf_samples_length(const struct zinf_samples *samples, uint64_t index, uint32_t *whole,
                         uint32_t *kept);

/* The lengths before the cut that `percent` (above 0, up to 100) of the samples, and of their
 * sources, do not exceed. */
int zinf_samples_percentile(const struct zinf_samples *samples, double percent, uint32_t *ids,
                            uint32_t *source);

int32_t zinf_samples_label(const struct zinf_samples *samples, uint64_t index);

/* Windows of an epoch: n_samples, or fewer if packed. Which samples share a window depends only on
 * their lengths and file order: best fit, the longest first. */
uint64_t zinf_samples_n_windows(const struct zinf_samples *samples);
/* Fills the window at a position of the training: epoch = position / n_windows, and within an epoch
 * an order that (seed, epoch) determines. */
int zinf_samples_window(struct zinf_samples *samples, uint64_t position,
                        const struct zinf_window *window);

/* The number in file order of the window at a position. */
uint64_t zinf_samples_number(struct zinf_samples *samples, uint64_t position);
/* Sets the references of all windows, [n_windows] by number in file order, which the store takes
 * over. NULL: none. */
void zinf_samples_set_references(struct zinf_samples *samples, float *references);
bool zinf_samples_has_references(const struct zinf_samples *samples);

/* Number of rows of the window that are no padding, and of its source; they come first. */
struct zinf_window_rows {
    uint32_t ids, source;
};
struct zinf_window_rows zinf_samples_window_rows(struct zinf_samples *samples, uint64_t position);
/* The rows of a step are a multiple of this, or a whole window's length: tensor cores take 16-bit
 * numbers eight at a time (transformers' pad_to_multiple_of), and there are fewer shapes of
 * products. */
#define ZINF_ROWS_MULTIPLE 8
/* Rows of an epoch's sequences and sources in steps of `batch` windows: without padding; with every
 * window at full length; with each step as long as its longest sample, in multiples of `multiple`;
 * and that with windows grouped by length. The order is that of the first epoch, shuffled. */
struct zinf_samples_rows {
    uint64_t tokens, whole, longest, grouped;
};
int zinf_samples_count_rows(struct zinf_samples *samples, uint64_t batch, uint32_t multiple,
                            struct zinf_samples_rows *out);

/* Makes a data set of the windows. It takes over samples, even if it fails. */
int zinf_dataset_of_samples(struct zinf_dataset **out, struct zinf_samples *samples);
/* NULL: the data set is a stream or a mixture. */
struct zinf_samples *zinf_dataset_samples(const struct zinf_dataset *dataset);
/* Whether any part of the data set has samples. */
bool zinf_dataset_has_samples(const struct zinf_dataset *dataset);
/* As zinf_samples_window_rows; windows of a stream have no padding. */
struct zinf_window_rows zinf_dataset_window_rows(struct zinf_dataset *dataset, uint64_t position);

#ifdef __cplusplus
}
#endif
#endif
