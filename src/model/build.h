/*
 * build: how a graph comes to be. A family appends values, units with their tensors and pieces,
 * and stages with their lists; lists grow as needed and live as long as the graph. An append that
 * fails is remembered: those after it do nothing, and zinf_graph_finish returns the first failure.
 * So the code of a family is a list of what there is, and forgets no check.
 *
 * Threads: one builds; after zinf_graph_finish the graph is read-only.
 */
#ifndef ZINF_BUILD_H
#define ZINF_BUILD_H

#include "model/graph.h"

int zinf_graph_create(struct zinf_graph **out);
void zinf_graph_destroy(struct zinf_graph *graph);
/* Zeroed memory of the graph; NULL when there is none, or after an earlier failure. */
void *zinf_graph_take(struct zinf_graph *graph, size_t bytes);

/* All return the new one's number, 0 after a failure. Names are cut to their field's length. */
uint32_t zinf_graph_add_value(struct zinf_graph *graph, const struct zinf_value *value);
uint32_t zinf_graph_add_unit(struct zinf_graph *graph, bool trained, const char *format, ...)
    ZINF_PRINTF(3, 4);
/* tensor->pieces, n_pieces, offset and elems are not looked at: they come by the calls below. */
uint32_t zinf_graph_add_tensor(struct zinf_graph *graph, uint32_t unit,
                               const struct zinf_tensor *tensor);
/* The vector is exact (graph.h): it has three times the rows. Before the graph is finished. */
void zinf_unit_keep_exact(struct zinf_graph *graph, uint32_t unit, uint32_t tensor);
/* Another rank counts the tensor (graph.h). */
void zinf_unit_turn(struct zinf_graph *graph, uint32_t unit, uint32_t tensor);
void zinf_unit_count_elsewhere(struct zinf_graph *graph, uint32_t unit, uint32_t tensor);
/* The unit's last tensor is this shard's, where the graph is cut. */
void zinf_unit_set_shard(struct zinf_graph *graph, uint32_t unit, uint32_t shard);
/* To the unit's last tensor. */
void zinf_graph_add_piece(struct zinf_graph *graph, uint32_t unit, const struct zinf_piece *piece);
/* spec is copied. */
uint32_t zinf_graph_add_stage(struct zinf_graph *graph, const struct zinf_stage_ops *ops,
                              const void *spec, size_t spec_bytes, const char *format, ...)
    ZINF_PRINTF(5, 6);

enum zinf_stage_list {
    ZINF_STAGE_IN,
    ZINF_STAGE_OUT,
    ZINF_STAGE_UNITS,
    ZINF_STAGE_SWEEP,
};
void zinf_stage_append(struct zinf_graph *graph, uint32_t stage, enum zinf_stage_list list,
                       uint32_t number);

/* To what the stage takes: the value whose gradient is passed on in place (graph.h). */
void zinf_stage_pass(struct zinf_graph *graph, uint32_t stage, uint32_t value);
void zinf_stage_choose(struct zinf_graph *graph, uint32_t stage, struct zinf_choice choice);

/* Gives tensors their places in their units and checks what graph.h says; -EINVAL names what is
 * wrong. graph->loss, targets, vocab and row_cols are the family's to set before. */
int zinf_graph_finish(struct zinf_graph *graph);

#endif
