/*
 * output: the folder that a run owns. Its results appear whole: they are made under another name,
 * flushed and renamed. Checkpoints are folders checkpoint-N, "latest" names the one to go on from,
 * and whatever begins with "tmp-" was never finished. Inside this folder only.
 */
#ifndef ZINF_TRAIN_OUTPUT_H
#define ZINF_TRAIN_OUTPUT_H

#include "base/base.h"

/* Makes the folder and locks it against a second run; the lock ends with *fd. Removes what an
 * earlier run left unfinished. */
int output_open(const char *output, int *fd);
/* Removes a folder with all that is in it; none there is fine. */
void output_remove(const char *path);
/* Removes the file `name`, which has checksums of folder's other files, before these are replaced
 * and no longer match. It may be missing. */
int output_forget(const char *folder, const char *name);
/* fresh takes name's place in one step, whether or not name exists; durable when it returns. */
int output_publish(const char *output, const char *fresh, const char *name);

/* Steps of the checkpoints in the folder, ascending, on the heap. */
int output_checkpoints(const char *output, uint64_t **steps, uint32_t *n);
/* "OUTPUT/checkpoint-STEP", on the heap; prefix "" or "tmp-". */
char *output_checkpoint_path(const char *output, const char *prefix, uint64_t step);
/* The largest step of a checkpoint there. -ENOENT: there is none. */
int output_newest(const char *output, uint64_t *step);
/* The step that "latest" names; without that file the largest. -ENOENT: there is none. */
int output_latest(const char *output, uint64_t *step);
int output_set_latest(const char *output, uint64_t step);
/* Removes checkpoints until limit are left (0: no limit), the earliest first, never that of step
 * keep. went_back: the run was told to go on from an earlier step, and checkpoints of later steps
 * go before all others. Otherwise these are left: they may be of a run that ended before it wrote
 * "latest", or lost it. */
int output_rotate(const char *output, uint64_t keep, uint64_t limit, bool went_back);

#endif
