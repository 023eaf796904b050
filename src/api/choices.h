/* choices: the multiple-choice questions of a session, and their results. */
#ifndef ZINF_API_CHOICES_H
#define ZINF_API_CHOICES_H

#include "api/session.h"

enum choice_figure {
    CHOICE_ACC,      /* by the sums of log-probabilities */
    CHOICE_ACC_NORM, /* divided by the choice's characters */
    CHOICE_ACC_BYTES,
    CHOICE_FIGURES,
};
struct choice_result {
    double value[CHOICE_FIGURES], error[CHOICE_FIGURES]; /* shares and their standard errors */
    uint64_t n;                                          /* questions */
};
extern const char *const job_choice_words[]; /* enum zinf_choice_style */

/* Called once for each session; sets the length of windows. */
int job_choices_open(struct zinf_session *s, const struct zinf_words *files);
/* Called by all ranks; rank 0 writes the file of --predictions and keeps the results. */
int job_choices_measure(struct zinf_session *s, struct zinf_trainer *trainer, bool is_first,
                        struct zinf_measure *result);
void job_choices_close(struct zinf_session *s);

#endif
