/* least_memory: as little device memory as a training can be planned for. */
#ifndef ZINF_TESTS_LEAST_MEMORY_H
#define ZINF_TESTS_LEAST_MEMORY_H

#include "trainings.h"

/* Whether a plan can be made for so much device memory; streams: whether groups of what chunks
 * carry come and go then. */
static inline bool can_be_planned(const struct setting *s, bool *streams)
{
    struct zinf_config *config = configure(s);
    struct zinf_trainer_options options = trainer_options(s, config);
    struct zinf_trainer *t = NULL;
    const int code = zinf_trainer_create(&t, &options);
    if (!code)
        *streams = plan_says(t, "of chunks in groups of ");
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
    return !code;
}

/* As little of it as one can, about. */
static inline uint64_t least_memory(struct setting s, uint64_t enough, bool *streams)
{
    uint64_t few = 0;
    while (enough - few > enough / 64) {
        s.device_memory = few + (enough - few) / 2;
        if (can_be_planned(&s, streams))
            enough = s.device_memory;
        else
            few = s.device_memory;
    }
    return enough;
}

/* The same model in work/windowed, whose tokens look at so many. It becomes the one that is
 * trained. */
static inline void make_windowed(int tokens)
{
    struct zinf_model_shape shape = trainings.shape;
    cJSON *config = NULL;
    shape.arch = "mistral";
    CHECKF(!zinf_model_make_config(&shape, ZINF_DTYPE_F32, &config), "%s", zinf_error());
    cJSON_DeleteItemFromObject(config, "sliding_window");
    cJSON_AddNumberToObject(config, "sliding_window", tokens);
    CHECKF(!zinf_model_write_new(config, ZINF_DTYPE_F32, 11, in_work(model, "windowed")), "%s",
           zinf_error());
    cJSON_Delete(config);
}

#endif
