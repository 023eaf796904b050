/*
 * generate: how texts are made: by options, then by the model folder's generation_config.json, then
 * as usual.
 */
#ifndef ZINF_API_GENERATE_H
#define ZINF_API_GENERATE_H

#include "api/options.h"
#include "model/model.h"
#include "train/generate.h"

#include <math.h>

#define GENERATE_MAX_ENDS 64
#define GENERATE_MAX_RULES 1024 /* numbers */

/* What is negative has not been said. */
struct generate_settings {
    double temperature, top_p, repetition_penalty;
    double length_penalty; /* NAN: not said */
    int64_t top_k, max_new_tokens, num_beams, no_repeat_ngram;
    int early_stopping; /* enum zinf_early */
    int64_t max_length; /* of prompt and new tokens together; -1: none */
    int32_t ends[GENERATE_MAX_ENDS];
    int n_ends;
    struct zinf_word_rules rules; /* but for the arrays, which are these */
    int32_t suppressed[GENERATE_MAX_RULES], bad_words[GENERATE_MAX_RULES];
};
#define GENERATE_SETTINGS_UNSAID                                                                   \
    {                                                                                              \
        .temperature = -1, .top_p = -1, .repetition_penalty = -1, .length_penalty = NAN,           \
        .top_k = -1, .max_new_tokens = -1, .max_length = -1, .num_beams = -1,                      \
        .no_repeat_ngram = -1, .early_stopping = -1                                                \
    }

/* They fill generate_settings. */
extern const struct option generate_rows[], generate_least[], generate_beams[];
/* What options rule out together. -EINVAL, a wrong use. */
int generate_check(const struct generate_settings *s);
/* What has not been said, from the folder's generation_config.json, then from its config.json, then
 * the usual. */
int generate_read_config(struct generate_settings *s, const char *model,
                         const struct zinf_model *config);
/* What zinf_generate is asked for. */
struct zinf_generate_options generate_options(const struct generate_settings *s, uint64_t seed);

#endif
