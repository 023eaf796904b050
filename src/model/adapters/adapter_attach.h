/*
 * adapter_attach: a graph while it is being adapted, by the units' numbers before. Inside
 * adapter*.c only.
 */
#ifndef ZINF_ADAPTER_ATTACH_H
#define ZINF_ADAPTER_ATTACH_H

#include "model/adapters/adapter.h"
#include "model/companion.h"

struct attaching {
    struct zinf_graph *graph;
    struct adapter_choice *choice;
    const char *prefix;
    uint32_t n_base;
    bool **linear;            /* [n_base][its tensors] */
    struct companions second; /* units of adapters */
    const struct zinf_stage *seen;
};

/* ---- adapter_names.c ---- */

/* The path of the module whose weight the piece is, into path; false: it is none's. */
bool attach_path_of(const struct attaching *at, const struct zinf_piece *piece, char path[128]);
/* -EINVAL or -ENOTSUP where a target is no linear layer, or nothing is one. */
int attach_check_targets(const struct attaching *at);

/* ---- adapter_copies.c ---- */

/* Biases and whole modules that are trained beside low-rank adapters move to their units, under
 * PEFT's names. After the adapters themselves; names of the graph are others from then on. */
int attach_copies(struct attaching *at);

#endif
