/* reference: log-probabilities of preference pairs by the model before it is trained on them.
 * Inside src/train only. */
#ifndef ZINF_TRAIN_RUN_REFERENCE_H
#define ZINF_TRAIN_RUN_REFERENCE_H

#include "train/run/run.h"

/* If trainer.references asks for it, sets the references of the samples of data and eval_data to
 * the log-probabilities by the model in trainer.model_path. All ranks must call it. A resumed run
 * computes them again from the same model, with the same result. */
int run_make_references(const struct zinf_run_options *options);

#endif
