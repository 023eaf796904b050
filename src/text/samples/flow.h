/*
 * flow: windows of rows that are read while a training needs them, so a data set may be larger
 * than any drive or have no end. Rows become *groups* of windows, each a data set of its own
 * (text.h); shuffling and packing happen within a group. A thread makes groups ahead of the
 * training, up to one step. Groups that no step needs any more are closed, so memory does not grow
 * with the rows.
 *
 * Rows are read in order. A training that is resumed skips the rows that it has used (struct
 * zinf_flow_mark) and makes the same windows of the rows behind them.
 *
 * Threads: the flow's thread asks for rows, one call at a time, from the first use of the data set
 * until it is closed. Errors: -errno and a sentence that names the row.
 */
#ifndef ZINF_FLOW_H
#define ZINF_FLOW_H

#include "text/samples/samples.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A source of rows, each the text of a JSON object. */
struct zinf_row_feed {
    /* Gives the next row. 1: a row, borrowed until the next call; 0: the rows have ended; or
     * -errno. */
    int (*next)(void *arg, const char **row);
    /* Makes the next call of next give row n + 1. -ESPIPE: that would be to go back, which the
     * source cannot. NULL: it can never skip. */
    int (*skip)(void *arg, uint64_t n);
    void *arg;
    /* Ends the source: a call that is under way fails soon. Any thread may call it. NULL: calls
     * always return soon. */
    void (*quit)(void *arg);
};

struct zinf_flow_options {
    struct zinf_row_feed rows;
    const char *name; /* name of the rows in messages; borrowed, as all options are */
    uint64_t step;    /* windows of a training step, of all ranks */
    uint64_t limit;   /* windows that are needed in all; UINT64_MAX: unknown */
    /* Windows of a group of a text stream, or rows of another group; 0: as many as a step has
     * windows. */
    uint64_t group;
    uint64_t key; /* changes whenever the same rows could give other windows */

    /* Used for a text stream: text_column, skip_bad_rows, tokenizer, seq_len, vocab, shuffle and
     * seed. */
    struct zinf_dataset_options stream;

    /* For samples; NULL: the rows are a text stream. Opens a group, whose rows were written to file
     * `path`, which is removed later. first_row: number of rows before it; equal seeds give equal
     * orders. *out NULL: no sample is left. */
    int (*open)(void *arg, const char *path, uint64_t first_row, uint64_t seed,
                struct zinf_dataset **out);
    void *arg;
    const char *path;
};
int zinf_flow_open(struct zinf_dataset **out, const struct zinf_flow_options *options);

/* ---- rows of files ---- */

/* The result of skipping to row n by reading: 0; `more`, the result of the last call of next, if it
 * is an error; or -EINVAL: there are only `taken` rows. */
int zinf_rows_skipped(int more, uint64_t taken, uint64_t n);

/* Whether a name is "-" or no regular file, so that its rows can be read only once. */
bool zinf_row_file_is_pipe(const char *name);

struct zinf_row_files;
/* Opens files with a JSON object in each line, one after the other. The names are copied. */
int zinf_row_files_open(struct zinf_row_files **out, const char *const *files, int n);
void zinf_row_files_close(struct zinf_row_files *files);
struct zinf_row_feed zinf_row_files_rows(struct zinf_row_files *files); /* borrows files */

/* ---- rows of a source that may not answer ---- */

struct zinf_row_thread;
/* Creates a thread that calls rows->next and rows->skip. release, unless NULL, is called with
 * rows->arg once that is no longer used, also if this call fails. */
int zinf_row_thread_create(struct zinf_row_thread **out, const struct zinf_row_feed *rows,
                           void (*release)(void *arg));
/* False: a call has not returned within a second. The thread and rows->arg then stay until it
 * returns, and a warning says so. */
bool zinf_row_thread_destroy(struct zinf_row_thread *thread);
/* The same rows for one caller at a time. Its waiting ends by quit or by the end of its pulse
 * (pulse.h); then there are no more rows. */
struct zinf_row_feed zinf_row_thread_rows(struct zinf_row_thread *thread); /* borrows thread */

#ifdef __cplusplus
}
#endif
#endif
