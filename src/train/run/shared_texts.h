/*
 * shared_texts: texts that ranks make together. Each makes a part, and all get all of them, the
 * same as one rank would make: a text does not depend on which others are made with it.
 */
#ifndef ZINF_TRAIN_SHARED_TEXTS_H
#define ZINF_TRAIN_SHARED_TEXTS_H

#include "train/generate.h"

/* As zinf_generate, without `made`. Ranks that have slices of the model, and texts that are drawn,
 * which go by their number, are not dealt: every rank makes all. */
int make_shared_texts(struct zinf_trainer *trainer, const struct zinf_generate_options *options,
                      struct zinf_text *texts, int64_t n_texts);

#endif
