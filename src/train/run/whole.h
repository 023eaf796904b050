/*
 * whole: logits of a text whose tokens are all computed again, with what an encoder reads for it
 * where it has that. Inside this folder only.
 */
#ifndef ZINF_TRAIN_WHOLE_H
#define ZINF_TRAIN_WHOLE_H

#include "train/generate.h"

/* After the last of n ids; those before what the trainer's length holds are left out, but for a
 * text with a source, which may not be longer. -EINVAL: its source is too long. */
int whole_logits(struct zinf_trainer *trainer, const struct zinf_text *text, const int32_t *ids,
                 int64_t n, float *logits);
/* How many tokens of such texts can be shown to the model. */
int64_t whole_capacity(const struct zinf_trainer *trainer, const struct zinf_text *texts,
                       int64_t n_texts);

#endif
