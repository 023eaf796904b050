/* choices_row: one row of multiple choice as texts. Inside src/text only. */
#ifndef ZINF_TEXT_CHOICES_ROW_H
#define ZINF_TEXT_CHOICES_ROW_H

#include "base/json.h"
#include "text/samples/choices.h"

#define CHOICES_MOST 26
struct choices_row {
    char *question; /* as the model reads it, on the heap */
    char *choices[CHOICES_MOST];
    const char *subject, *group; /* the row's; NULL: it names none */
    int n_choices;
    uint32_t answer;
    bool letters; /* choices are letters, and the question lists what they mean */
    /* What the columns are called: choices "endings"; choices with labels of their own; the
     * question "question". */
    bool endings, labelled, is_question;
};
/* -EINVAL with a sentence of what the row lacks. To be freed in any case. */
int choices_row_take(struct choices_row *q, const cJSON *row,
                     const struct zinf_choices_options *options);
void choices_row_free(struct choices_row *q);
/* n texts one behind the other, on the heap; NULL: no memory. */
char *choices_join(const char *const *parts, size_t n);

#endif
