/*
 * choices: turns rows of multiple-choice questions into what a model is given: a context and
 * several continuations, of which one is right. Texts and tokens are made as in
 * lm-evaluation-harness, so that figures can be compared: MMLU's questions list their choices and
 * are answered by letters, ARC's and HellaSwag's by the choices themselves; few-shot examples come
 * first, with an empty line after each; the space before a choice belongs to the choice.
 *
 * Threads: read-only after opening. Errors: -errno and a sentence that names file and line.
 */
#ifndef ZINF_CHOICES_H
#define ZINF_CHOICES_H

#include "text/text.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether the answers that are compared are letters or texts. */
enum zinf_choice_style {
    ZINF_CHOICES_AS_USUAL, /* as in the benchmark that has the row's columns */
    ZINF_CHOICES_LETTERS,
    ZINF_CHOICES_TEXTS,
};
struct zinf_choices_options {
    const char *const *files; /* as samples.h has them, without standard input */
    int n_files;
    const struct zinf_tokenizer *tokenizer;
    /* Columns of the question or context, of the choices, and of the right one; NULL: one of the
     * usual names. */
    const char *question_column, *choices_column, *answer_column;
    /* Text before everything; NULL: MMLU's sentence if rows have MMLU's form and a subject. */
    const char *description;
    enum zinf_choice_style style;
    const char *few_shot; /* file of the examples; NULL: none */
    uint32_t n_shots;     /* number of rows from it; where rows have subjects, of each subject */
    int32_t begin; /* id that stands for an empty context; -1: an empty context is an error */
    bool separate; /* encode a choice by itself, as encoder-decoders need it */
};

/* A continuation of n_ids tokens. chars and bytes are the length of the choice's text. */
struct zinf_answer_text {
    uint64_t first; /* index in the ids of zinf_choices */
    uint32_t n_ids, chars, bytes;
};
struct zinf_question {
    uint64_t first; /* index of the context's ids */
    uint32_t n_ids;
    uint32_t first_choice, n_choices;
    uint32_t answer; /* number of the right choice */
    int32_t subject; /* index in subjects; -1: the row has none */
};
struct zinf_choices {
    struct zinf_question *questions;  /* [n] in the order of the files */
    struct zinf_answer_text *choices; /* [n_choices] */
    struct zinf_tokens *ids;          /* of all */
    char **subjects;                  /* [n_subjects] sorted by name */
    char **groups;                    /* [n_subjects] group of the subject, or NULL */
    uint32_t n, n_choices, n_subjects;
};
int zinf_choices_open(struct zinf_choices **out, const struct zinf_choices_options *options);
void zinf_choices_close(struct zinf_choices *choices);
static inline const int32_t *zinf_choices_ids(const struct zinf_choices *choices, uint64_t first)
{
    return choices->ids->ids + first;
}

#ifdef __cplusplus
}
#endif
#endif
