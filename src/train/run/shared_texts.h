/*
 * shared_texts: generates texts on several ranks. Each rank makes a part of the texts, and all
 * ranks get all of them. They are the same as those of one rank, since a text does not depend on
 * the others.
 */
#ifndef ZINF_TRAIN_SHARED_TEXTS_H
#define ZINF_TRAIN_SHARED_TEXTS_H

#include "train/generate.h"

/* As zinf_generate, without `made`; all ranks must call it. Every rank makes all texts if ranks
 * have only slices of the model or share sequences, or if tokens are sampled, since draws depend on
 * the number of a text. */
int make_shared_texts(struct zinf_trainer *trainer, const struct zinf_generate_options *options,
                      struct zinf_text *texts, int64_t n_texts);

#endif
