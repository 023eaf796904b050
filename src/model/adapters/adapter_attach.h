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
    uint32_t n_sites; /* of dropout so far: one for each module, however many shards have it */
};

/* ---- adapter_parts.c ---- */

/* Sites of adapters' dropout: beyond those of any family. */
#define ATTACH_FIRST_SITE ((uint32_t)1 << 24)
/* A, or zeros for B, in the unit's companion; pieces are the caller's. Returns its number. */
uint32_t attach_add_a(struct attaching *at, uint32_t unit, uint64_t rows, uint64_t cols,
                      int64_t rank);
uint32_t attach_add_b(struct attaching *at, uint32_t unit, uint64_t rows, uint64_t cols);
/* Appends it to the graph's; those of one unit follow each other. */
int attach_note(struct attaching *at, const struct zinf_adapted *adapted);

/* ---- adapter_shards.c ---- */

/* The part that a shard's tensor has of the module at path. -ENOTSUP: the module's rows are of
 * several kinds of tensors. */
int attach_shard(struct attaching *at, uint32_t unit, uint32_t tensor, uint32_t piece,
                 const char *path, const struct adapter_module *how);

/* ---- adapter_stack.c ---- */

/* The unit's share of an adapter of the tensor's stack (graph.h), where that is chosen. */
int attach_stack(struct attaching *at, uint32_t unit, uint32_t tensor, bool *chosen);
/* -ENOTSUP where the choice asks for what is not there for units of a sweep. */
int attach_check_swept(const struct attaching *at, const char *path);

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
