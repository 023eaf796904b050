/*
 * train_place: a training without a configuration stores things where there is room, as `zinf
 * estimate` proposes. The configuration that says so is written to the output folder, for --resume
 * and for editing.
 */
#ifndef ZINF_CLI_TRAIN_PLACE_H
#define ZINF_CLI_TRAIN_PLACE_H

#include "api/session.h"

struct train_place {
    char *path;  /* OUTPUT/placement.json */
    char *drive; /* OUTPUT/nvme, where a placement needs a drive */
};
/* Before the session is opened: a run that is resumed keeps its placement. */
int train_place_begin(struct train_place *p, struct zinf_job *job);
/* After everything is open: if nothing says where things are stored and the device has no room for
 * all, chooses the nearest tiers with room and makes them the session's configuration. With several
 * processes the first one chooses and each writes the file, since hosts may have folders of their
 * own. If nothing fits, the run says why. */
int train_place_session(struct train_place *p, struct zinf_session *session);
void train_place_end(struct train_place *p, struct zinf_job *job);

#endif
