/*
 * composite: folders of several models in one: towers that see images or hear, a projector, and a
 * text model, whose numbers stand in the section "text_config" of config.json. The text model is
 * one of the families and is all that is read and trained. What else a folder has is carried to
 * every folder that is written, byte for byte, and config.json keeps all of its sections.
 */
#ifndef ZINF_COMPOSITE_H
#define ZINF_COMPOSITE_H

#include "model/model.h"

/* What files of the family may have in place of its prefix; NULL: nothing else. */
const char *zinf_composite_other_prefix(const struct zinf_family *family);
/* A tensor's name without either of these; the head's stands beside both. */
const char *zinf_composite_bare_name(const struct zinf_family *family, const char *name);
/* Whether the tensor is of a part that is only carried along. */
bool zinf_composite_carries(const struct zinf_family *family, const char *name);

#endif
