/*
 * whole: logits of a text without cached keys and values: all of its tokens, and its source if it
 * has one, are computed again. Inside this folder only.
 */
#ifndef ZINF_TRAIN_WHOLE_H
#define ZINF_TRAIN_WHOLE_H

#include "train/generate.h"

/* The logits after the last of n ids. If there are more than the trainer's length, only the last
 * ones are used; a text with a source must not be longer. -EINVAL: its source is too long. */
int whole_logits(struct zinf_trainer *trainer, const struct zinf_text *text, const int32_t *ids,
                 int64_t n, float *logits);
/* How many tokens each of these texts may have. */
int64_t whole_capacity(const struct zinf_trainer *trainer, const struct zinf_text *texts,
                       int64_t n_texts);

#endif
