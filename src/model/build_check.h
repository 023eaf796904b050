/* build_check: what zinf_graph_finish does to a graph whose lists are complete. */
#ifndef ZINF_BUILD_CHECK_H
#define ZINF_BUILD_CHECK_H

#include "model/graph.h"

/* Offsets of the unit's tensors: those with decay first, then the others, each in list order. */
void build_place_tensors(struct zinf_unit *unit, bool cut);
/* -EINVAL with what is wrong: rows of a tensor that no piece has, a value that no stage before
 * makes, a unit that no stage needs or that is numbered out of order. */
int build_check(const struct zinf_graph *graph);

#endif
