/* choices: questions with several answers of a session, and what is measured of them. */
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

/* Once a session; decides how long windows are. */
int job_choices_open(struct zinf_session *s, const struct zinf_words *files);
/* By all ranks; the first writes option predictions and keeps what was measured. */
int job_choices_measure(struct zinf_session *s, struct zinf_trainer *trainer, bool is_first,
                        struct zinf_measure *result);
/* Of what was measured: a subject, or all questions; a group of subjects, NULL: all of them. */
#define JOB_ALL_SUBJECTS (-2)
struct choice_result job_choices_result(const struct zinf_session *s, int32_t subject);
struct choice_result job_choices_group(const struct zinf_session *s, const char *group);
void job_choices_close(struct zinf_session *s);

#endif
