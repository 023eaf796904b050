/*
 * task: rows of a data file as samples of a task: a source and a target for an encoder-decoder, or
 * a text or a pair of texts with a class or a number. Which columns they stand in, what is put
 * before a source and how classes are called is the caller's choice; a *task recipe* makes samples
 * of it (samples.h).
 *
 * Threads: read-only after opening. Errors: -errno and a sentence.
 */
#ifndef ZINF_TASK_H
#define ZINF_TASK_H

#include "text/samples/samples.h"

#ifdef __cplusplus
extern "C" {
#endif

enum zinf_task {
    ZINF_TASK_CAUSAL, /* text.h and chat.h have its data */
    ZINF_TASK_SEQ2SEQ,
    ZINF_TASK_CLASSIFICATION,
    ZINF_TASK_REGRESSION,
    ZINF_TASK_PREFERENCE, /* pairs of answers; chat.h has its data, too */
    ZINF_TASK_REWARD,     /* the same, to learn scores of answers */
    ZINF_TASK_MASKED,     /* tokens that are masked are foretold (masking.h) */
    ZINF_TASK_EMBEDDING,  /* texts whose embeddings are alike, beside others */
    ZINF_TASK_CHOICE, /* which of several texts is likeliest: of evaluations alone (choices.h) */
    ZINF_TASKS,
};
const char *zinf_task_name(enum zinf_task task); /* "causal-lm", "seq2seq", ... */
int zinf_task_parse(const char *name, enum zinf_task *out);

/* ---- labels ---- */

/* Classes by number. */
struct zinf_labels {
    char **names; /* [n] on the heap; NULL: labels are numbers below n */
    int32_t n;
};
/* Those that stand in a column of the files, in order of their names, or, where all are numbers
 * from 0 on, those numbers. -EINVAL: there are none, or more than most; standard input. */
int zinf_labels_find(struct zinf_labels *labels, const char *const *files, int n_files,
                     const char *column, int32_t most);
/* The class that a row's field says: by name, or as a number. -EINVAL: it is none of them. */
int zinf_labels_parse(const struct zinf_labels *labels, const cJSON *field, int32_t *out);
int zinf_labels_add(struct zinf_labels *labels, const char *name); /* as the last class */
void zinf_labels_free(struct zinf_labels *labels);

/* ---- recipes ---- */

struct zinf_task_options {
    enum zinf_task task; /* SEQ2SEQ, CLASSIFICATION, REGRESSION, MASKED or EMBEDDING */
    const struct zinf_tokenizer *tokenizer;
    /* NULL: "source" of SEQ2SEQ, else "text"; two names with a comma between are a pair of texts,
     * which the tokenizer frames as one. */
    const char *source_column;
    const char *target_column; /* of SEQ2SEQ; NULL: "target" */
    const char *label_column;  /* of the others; NULL: "label" */
    const char *prefix;        /* of every source; NULL: none */
    /* Text with "{source}" once, where the source goes; what is around it stays where the source is
     * cut. Of one column, and instead of prefix. NULL: the source alone. */
    const char *around;
    int32_t start;                    /* of SEQ2SEQ: what the decoder is fed first */
    int32_t end;                      /* of SEQ2SEQ: ends source and target; -1: nothing does */
    const struct zinf_labels *labels; /* of CLASSIFICATION */
};
/* The columns of rows of EMBEDDING, as source_column has them, from a file's first row: "anchor",
 * "positive" and what there is of "negative", "negative_1", ... -EINVAL: it has others. */
int zinf_task_find_columns(const char *file, char *columns, size_t bytes);
struct zinf_task_recipe;
/* Borrows the options' texts and labels. A sample of SEQ2SEQ has the start and the target, of which
 * all counts, as ids, and its source; of the others the framed texts, of which nothing counts, and
 * its label, of REGRESSION the bits of a float; of MASKED the framed texts, which count; of
 * EMBEDDING a framed text for each column, of which nothing counts, the first with the label 0. */
int zinf_task_open(struct zinf_task_recipe **out, const struct zinf_task_options *options);
const struct zinf_recipe *zinf_task_recipe(const struct zinf_task_recipe *recipe);
void zinf_task_close(struct zinf_task_recipe *recipe);

#ifdef __cplusplus
}
#endif
#endif
