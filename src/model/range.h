/*
 * range: the graph of those stages of a model that one rank of a pipeline has. graph.h says what
 * such a graph contains. This header is included in src/model only.
 */
#ifndef ZINF_MODEL_RANGE_H
#define ZINF_MODEL_RANGE_H

#include "model/graph.h"

/* The stages of rank ranges->rank of the graph `whole`. *out borrows from `whole`, which must live
 * longer, and not from *ranges; zinf_graph_destroy frees *out. -ENOMEM */
int graph_take_ranges(struct zinf_graph **out, const struct zinf_graph *whole,
                      const struct zinf_ranges *ranges);

/* Divides the stages into layers: the embedding is a layer, each block is one, and all stages after
 * the blocks are one. first [n_stages + 1] gets the first stage of each layer, and n_stages after
 * the last layer. Returns the number of layers. */
uint32_t graph_layers(const struct zinf_graph *graph, uint32_t *first);

#endif
