/* family_composite: the rows of families whose folders hold other models beside the text model. */
#ifndef ZINF_FAMILY_COMPOSITE_H
#define ZINF_FAMILY_COMPOSITE_H

#include "model/families/family_described.h"

/* As of struct zinf_family; traits are the families that "text_config" may be of, the first of
 * which is meant where it does not say, and NULL. */
int composite_build(struct zinf_graph *graph, struct zinf_model_facts *facts,
                    const struct zinf_model_source *source);
int composite_make_config(cJSON *config, const struct zinf_family *family,
                          const struct zinf_model_shape *shape);

#define COMPOSITE_PREFIX "model.language_model."
#define COMPOSITE_FAMILY(name, type, class, ...)                                                   \
    static const struct zinf_family *const name##_texts[] = {__VA_ARGS__, NULL};                   \
    const struct zinf_family zinf_family_##name = {.model_type = type,                             \
                                                   .architecture = class,                          \
                                                   .prefix = COMPOSITE_PREFIX,                     \
                                                   .layers_key = DESCRIBED_LAYERS_KEY,             \
                                                   .traits = name##_texts,                         \
                                                   .no_classes = true,                             \
                                                   .build = composite_build,                       \
                                                   .make_config = composite_make_config,           \
                                                   .ignored = {DESCRIBED_IGNORED}}

#endif
