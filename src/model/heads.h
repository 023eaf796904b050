/*
 * heads: what config.json says a model ends in, by its architecture: "BertForMaskedLM", "BertModel"
 * (nothing at all), or what the family has of its own accord.
 */
#ifndef ZINF_HEADS_H
#define ZINF_HEADS_H

#include "model/model.h"

/* The family's own is USUAL, whatever it is called. */
enum zinf_model_head heads_in(const cJSON *config, const struct zinf_family *family);
/* The first of "architectures" becomes the family's, with this end in place of its own: "Model",
 * "ForMaskedLM", ...; NULL: its own stays. Whether the family's own end foretells tokens, *decodes
 * (NULL: not asked). */
int heads_write(cJSON *config, const struct zinf_family *family, const char *end, bool *decodes);
/* Whether text ends so. */
bool heads_ends(const char *text, const char *end);

#endif
