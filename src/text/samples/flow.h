/*
 * flow: windows of rows that are taken from their source as a training needs them, so that a data
 * set may be larger than any drive, or have no end. Rows become *groups* of windows, one after the
 * other, each a data set of its own (text.h): what shuffles or packs does so within a group. A
 * thread makes groups ahead of the training, up to one step; groups that no step needs again are
 * closed. So what is in memory does not grow with the rows.
 *
 * Rows are taken in their order. A training that is resumed skips the rows that it has used up
 * (struct zinf_flow_mark), and makes the same windows of those that follow.
 *
 * Threads: the rows are asked for by the flow's thread, one call at a time, from the first use of
 * the data set until it is closed. Errors: -errno and a sentence that names the row.
 */
#ifndef ZINF_FLOW_H
#define ZINF_FLOW_H

#include "text/samples/samples.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A source of rows, each the text of a JSON object. */
struct zinf_row_feed {
    /* 1 and a row, borrowed until the next call; 0 at the end; or -errno. */
    int (*next)(void *arg, const char **row);
    /* The following call of next gives row n + 1. -ESPIPE: the rows behind which it would have to
     * go back are gone. NULL: it is always so. */
    int (*skip)(void *arg, uint64_t n);
    void *arg;
    /* No more rows are wanted: a call that is under way fails soon. Any thread may call it. NULL:
     * calls come back by themselves. */
    void (*quit)(void *arg);
};

struct zinf_flow_options {
    struct zinf_row_feed rows;
    const char *name; /* of the rows, in messages, borrowed as all that is here */
    uint64_t step;    /* windows of a training's step, of all ranks */
    uint64_t limit;   /* windows that are needed in all; UINT64_MAX: it is not known */
    /* Windows of a group where rows are a stream of text, else rows of one; 0: as many as a step
     * has windows. */
    uint64_t group;
    uint64_t key; /* changes whenever the windows of the same rows could */

    /* Of a stream of text: text_column, skip_bad_rows, tokenizer, seq_len, vocab, shuffle and seed
     * are used. */
    struct zinf_dataset_options stream;

    /* Of samples; NULL: it is a stream. Opens the rows of one group, which were written to a file:
     * first_row is the number of rows before them, and of equal seeds come equal orders. *out NULL:
     * no sample is left of them. The file is named `path`, and removed at the end. */
    int (*open)(void *arg, const char *path, uint64_t first_row, uint64_t seed,
                struct zinf_dataset **out);
    void *arg;
    const char *path;
};
int zinf_flow_open(struct zinf_dataset **out, const struct zinf_flow_options *options);

/* ---- rows of files ---- */

/* How skipping to row n by reading ends: 0, more (what the last call of next returned) where that
 * is an error, or -EINVAL: there are only `taken` rows. */
int zinf_rows_skipped(int more, uint64_t taken, uint64_t n);

/* Whether it is standard input ("-"), or what else is no file on a drive: rows are read once. */
bool zinf_row_file_is_pipe(const char *name);

struct zinf_row_files;
/* Files of JSON, an object a line, one file after the other. The names are copied. */
int zinf_row_files_open(struct zinf_row_files **out, const char *const *files, int n);
void zinf_row_files_close(struct zinf_row_files *files);
struct zinf_row_feed zinf_row_files_rows(struct zinf_row_files *files); /* borrows files */

/* ---- rows of a source that may not answer ---- */

struct zinf_row_thread;
/* Makes a thread that calls rows->next and rows->skip. release, which may be NULL, is called with
 * rows->arg when that is not used any more, also where this fails. */
int zinf_row_thread_create(struct zinf_row_thread **out, const struct zinf_row_feed *rows,
                           void (*release)(void *arg));
/* false: a call has not returned within a second. It keeps its thread and rows->arg until it
 * returns, and a warning says so. */
bool zinf_row_thread_destroy(struct zinf_row_thread *thread);
/* The same rows, for one caller at a time, who is heard while it waits: by quit, and by a word to
 * end (pulse.h). After either there are no more rows. */
struct zinf_row_feed zinf_row_thread_rows(struct zinf_row_thread *thread); /* borrows thread */

#ifdef __cplusplus
}
#endif
#endif
