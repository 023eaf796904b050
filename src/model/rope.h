/*
 * rope: frequencies of rotary position embeddings from config.json. Both of Hugging Face's forms
 * are read: "rope_theta" beside "rope_scaling" (version 4), and "rope_parameters" (version 5).
 */
#ifndef ZINF_ROPE_H
#define ZINF_ROPE_H

#include "model/build.h"
#include "model/model.h"
#include "model/stages/stages.h"

struct rope_source {
    int64_t head_dim;
    int64_t positions; /* max_position_embeddings */
    double theta;      /* where the configuration has none */
    double partial;    /* share of a head that is rotated, where it has none; 0: 1 */
    const char *theta_key, *partial_key; /* further keys of version 4; NULL: none */
    const char *layers; /* the object in rope_parameters of the layers that are meant, where it has
                         * one for each kind of layer; NULL: it must not */
    const char *kind;   /* where the configuration says none; NULL: "default" */
    bool unscaled;      /* kind default alone is supported */
    bool has_alpha;     /* kind dynamic with "alpha" is a fixed, larger base */
    /* Where it is not 0 kinds default and longrope alone are supported, the latter under the names
     * su and yarn, too; it is the length that longrope goes out from where no key has it. */
    int64_t original;
};
/* Kinds default, linear, dynamic, llama3, yarn, longrope and proportional. *context: how long
 * sequences may get. */
int rope_read(struct zinf_graph *graph, const struct zinf_model_source *source,
              const struct rope_source *of, struct rope_spec *out, int64_t *context);

#endif
