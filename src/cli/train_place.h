/*
 * train_place: a training without a configuration puts things where there is room, as `zinf
 * estimate` does. The configuration that says so lies in the output folder, for --resume and for
 * whoever wants to change it.
 */
#ifndef ZINF_CLI_TRAIN_PLACE_H
#define ZINF_CLI_TRAIN_PLACE_H

#include "api/session.h"

struct train_place {
    char *path;  /* OUTPUT/placement.json */
    char *drive; /* OUTPUT/nvme, where a placement needs a drive */
};
/* Before the session is opened: a run that is gone on from is placed as it was. */
int train_place_begin(struct train_place *p, struct zinf_job *job);
/* Once all is open. Where nobody has said where things lie and the device has no room for all, the
 * nearest tiers that have become the session's configuration. Of several processes the first one
 * chooses, and each writes the file: their hosts may have folders of their own. What does not fit
 * at all is left to the run, which says why. */
int train_place_session(struct train_place *p, struct zinf_session *session);
void train_place_end(struct train_place *p, struct zinf_job *job);

#endif
