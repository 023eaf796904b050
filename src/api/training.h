/* training: a session made ready to train, and what the run is asked for. */
#ifndef ZINF_API_TRAINING_H
#define ZINF_API_TRAINING_H

#include "api/seats.h"
#include "api/session.h"

/* What options rule out together. -EINVAL, a wrong use. */
int job_train_check(const struct zinf_job *c);
/* --resume: the checkpoint, whose config.json and tokenizer stand in for a --model that is not
 * given; *checkpoint on the heap, or NULL. Without one yet, a plain --resume goes on from steps on
 * the drives or begins the training: what restarts it need not know. */
int job_train_find(struct zinf_job *c, char **checkpoint);
/* Model, configuration and data, and c->steps where no option says them. What is checked in no time
 * comes first: a text may take minutes. */
int job_train_open(struct zinf_session *s, struct zinf_job *c);
/* Of a trainer in the session; net, its ranks, may be NULL. */
struct zinf_trainer_options job_trainer_options(const struct zinf_session *s,
                                                const struct zinf_job *c, struct zinf_net *net);
/* Without events, scores, speeds and signals. checkpoint: that was found. */
struct zinf_run_options job_run_options(const struct zinf_session *s, const struct zinf_job *c,
                                        struct zinf_net *net, const struct job_seats *seats,
                                        const char *checkpoint);
/* So that answers need no --chat-template. The model is there without it. */
void job_train_keep_template(const struct zinf_session *s, const struct zinf_job *c);

#endif
