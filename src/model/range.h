/*
 * range: the stages of a model that one rank of a pipeline has. See graph.h for what a graph of
 * some stages is. Inside src/model only.
 */
#ifndef ZINF_MODEL_RANGE_H
#define ZINF_MODEL_RANGE_H

#include "model/graph.h"

/* Stages [first, end) of whole. flows [n_values]: a gradient of the value is of use. */
struct graph_range {
    const struct zinf_graph *whole;
    uint32_t first, end;
    const bool *flows;
};
/* *out lives no longer than whole; zinf_graph_destroy ends it. -ENOMEM */
int graph_take_range(struct zinf_graph **out, const struct graph_range *range);

/* Layers, as people count them: the embedding, each block, what comes behind them. first
 * [n_stages + 1]: the stage that each begins with, and n_stages behind the last. Returns how many.
 */
uint32_t graph_layers(const struct zinf_graph *graph, uint32_t *first);

#endif
