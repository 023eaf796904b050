/*
 * model_texts: models from configurations that a test writes down, and what tests ask of them.
 */
#ifndef ZINF_MODEL_TEXTS_H
#define ZINF_MODEL_TEXTS_H

#include "base/json.h"
#include "model/model.h"
#include "model/stages/stages.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>

static inline struct zinf_model *model_of(const struct zinf_model_shape *shape)
{
    struct zinf_model *model = NULL;
    cJSON *config = NULL;
    CHECKF(!zinf_model_make_config(shape, ZINF_DTYPE_F32, &config), "%s", zinf_error());
    CHECKF(!zinf_model_from_json(&model, config, "test"), "%s", zinf_error());
    cJSON_Delete(config);
    return model;
}

/* NULL where the text is refused. */
static inline struct zinf_model *model_from(const char *text)
{
    struct zinf_model *model = NULL;
    cJSON *config = cJSON_Parse(text);
    CHECKF(config != NULL, "not JSON: %s", text);
    if (zinf_model_from_json(&model, config, "test"))
        model = NULL;
    cJSON_Delete(config);
    return model;
}

#define SMALL                                                                                      \
    "\"model_type\": \"llama\", \"hidden_size\": 256, \"num_attention_heads\": 2, "                \
    "\"num_hidden_layers\": 1, \"intermediate_size\": 64, \"vocab_size\": 64, "

static inline struct attention_spec attention_of(const struct zinf_model *model)
{
    const struct zinf_graph *g = zinf_model_graph(model);
    return ((const struct block_spec *)g->stages[1].spec)->attention;
}

struct frequency {
    int i;
    double inv;
};

#endif
