/* choices_row: one row of multiple choice as texts. Inside src/text only. */
#ifndef ZINF_TEXT_CHOICES_ROW_H
#define ZINF_TEXT_CHOICES_ROW_H

#include "base/json.h"
#include "text/samples/choices.h"

#define CHOICES_MOST 26
struct choices_row {
    char *question; /* as the model reads it, on the heap */
    char *choices[CHOICES_MOST];
    const char *subject, *group; /* of the row; NULL: none */
    int n_choices;
    uint32_t answer;
    bool letters; /* the choices are letters, and the question lists their meaning */
    /* Forms of rows: choices are in "endings"; choices have labels of their own; the question is in
     * "question". */
    bool endings, labelled, is_question;
};
/* Reads a row. -EINVAL: the message says what the row lacks. Call choices_row_free in any case. */
int choices_row_take(struct choices_row *q, const cJSON *row,
                     const struct zinf_choices_options *options);
void choices_row_free(struct choices_row *q);
/* Joins n texts on the heap; NULL: no memory. */
char *choices_join(const char *const *parts, size_t n);

#endif
