/*
 * preference: a finished graph whose loss is that of pairs of samples. What the head makes is then
 * a value, each token's loss, and a stage behind it makes the pairs' of it.
 */
#ifndef ZINF_MODEL_PREFERENCE_H
#define ZINF_MODEL_PREFERENCE_H

#include "model/build.h"
#include "model/model.h"
#include "model/stages/stages.h"

/* The graph must be finished again. -ENOTSUP: it has no loss of tokens, or no reference where the
 * kind asks for one: that is the model without its adapters. */
int preference_graph(struct zinf_graph *graph, const struct zinf_model_preference *spec);

#endif
