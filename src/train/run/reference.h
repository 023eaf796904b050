/* reference: what a model says of its pairs before it is trained on them. Inside src/train only. */
#ifndef ZINF_TRAIN_RUN_REFERENCE_H
#define ZINF_TRAIN_RUN_REFERENCE_H

#include "train/run/run.h"

/* Where trainer.references asks for it: gives the samples of data and eval_data the
 * log-probabilities of the model in trainer.model_path. All ranks call it. A resumed run
 * computes them again from the same model, with the same result. */
int run_make_references(const struct zinf_run_options *options);

#endif
