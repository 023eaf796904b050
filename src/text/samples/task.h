/*
 * task: rows of a data file as samples of a task: source and target for an encoder-decoder, or a
 * text or pair of texts with a class or number. Options say which columns they are in, what is put
 * before a source, and what classes are called. A *task recipe* makes samples (samples.h).
 *
 * Threads: read-only once opened. Errors: -errno and a sentence.
 */
#ifndef ZINF_TASK_H
#define ZINF_TASK_H

#include "text/samples/samples.h"

#ifdef __cplusplus
extern "C" {
#endif

enum zinf_task {
    ZINF_TASK_CAUSAL, /* its data are those of text.h and chat.h */
    ZINF_TASK_SEQ2SEQ,
    ZINF_TASK_CLASSIFICATION,
    ZINF_TASK_REGRESSION,
    ZINF_TASK_PREFERENCE, /* pairs of answers; chat.h has its formats */
    ZINF_TASK_REWARD,     /* the same data, to learn scores of answers */
    ZINF_TASK_MASKED,     /* masked tokens are predicted (masking.h) */
    ZINF_TASK_EMBEDDING,  /* texts whose embeddings should be alike, and others */
    ZINF_TASK_CHOICE, /* which of several texts is the most likely; only evaluations (choices.h) */
    ZINF_TASKS,
};
const char *zinf_task_name(enum zinf_task task); /* "causal-lm", "seq2seq", ... */
int zinf_task_parse(const char *name, enum zinf_task *out);

/* ---- labels ---- */

/* The classes by number. */
struct zinf_labels {
    char **names; /* [n] on the heap; NULL: labels are numbers below n */
    int32_t n;
};
/* Finds the classes in a column of the files, sorted by name; or, if all are numbers from 0 on,
 * those numbers. -EINVAL: there are none, or more than `most`, or a file is standard input. */
int zinf_labels_find(struct zinf_labels *labels, const char *const *files, int n_files,
                     const char *column, int32_t most);
/* The class of a row's field, by name or number. -EINVAL: there is no such class. */
int zinf_labels_parse(const struct zinf_labels *labels, const cJSON *field, int32_t *out);
int zinf_labels_add(struct zinf_labels *labels, const char *name); /* appends a class */
void zinf_labels_free(struct zinf_labels *labels);

/* ---- recipes ---- */

struct zinf_task_options {
    enum zinf_task task; /* SEQ2SEQ, CLASSIFICATION, REGRESSION, MASKED or EMBEDDING */
    const struct zinf_tokenizer *tokenizer;
    /* NULL: "source" for SEQ2SEQ, else "text". Two names with a comma between are a pair of texts.
     */
    const char *source_column;
    const char *target_column; /* for SEQ2SEQ; NULL: "target" */
    const char *label_column;  /* for the others; NULL: "label" */
    const char *prefix;        /* text before every source; NULL: none */
    /* Text with "{source}" once, where the source is put. Text around it stays if the source is
     * cut. For one column, instead of prefix. NULL: the source alone. */
    const char *around;
    int32_t start;                    /* for SEQ2SEQ: the decoder's first id */
    int32_t end;                      /* for SEQ2SEQ: id that ends source and target; -1: none */
    const struct zinf_labels *labels; /* of CLASSIFICATION */
};
/* Finds the columns of an EMBEDDING task in a file's first row: "anchor", "positive" and any of
 * "negative", "negative_1", ..., written as source_column. -EINVAL: it has others. */
int zinf_task_find_columns(const char *file, char *columns, size_t bytes);
struct zinf_task_recipe;
/* Opens a recipe; texts and labels of the options are borrowed. Samples of SEQ2SEQ: start and
 * target as ids, all counting, and the source. CLASSIFICATION and REGRESSION: the texts with
 * special tokens, none counting, and the label (for REGRESSION the bits of a float). MASKED: the
 * texts with special tokens, which count. EMBEDDING: a text for each column, none counting, the
 * first with label 0. */
int zinf_task_open(struct zinf_task_recipe **out, const struct zinf_task_options *options);
const struct zinf_recipe *zinf_task_recipe(const struct zinf_task_recipe *recipe);
void zinf_task_close(struct zinf_task_recipe *recipe);

#ifdef __cplusplus
}
#endif
#endif
