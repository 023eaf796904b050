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
    bool **linear;            /* [n_base][tensors of the unit]: the tensor is a linear layer */
    struct companions second; /* units of adapters */
    const struct zinf_stage *seen;
    uint32_t n_sites; /* dropout sites so far: one for each module, however many shards have it */
};

/* ---- adapter_parts.c ---- */

/* The first dropout site of adapters, above those of any family. */
#define ATTACH_FIRST_SITE ((uint32_t)1 << 24)
/* Adds a tensor for A, or for B, which begins as zeros, to the unit's companion; the caller adds
 * its pieces. Returns the tensor's number. */
uint32_t attach_add_a(struct attaching *at, uint32_t unit, uint64_t rows, uint64_t cols,
                      int64_t rank);
uint32_t attach_add_b(struct attaching *at, uint32_t unit, uint64_t rows, uint64_t cols);
/* Appends the adapter to the graph's list; those of one unit must follow each other. */
int attach_note(struct attaching *at, const struct zinf_adapted *adapted);

/* ---- adapter_shards.c ---- */

/* Adapts the part of the module at path that a shard's tensor has. -ENOTSUP: the file has
 * the module's rows for several tensors, such as queries and keys, in one matrix. */
int attach_shard(struct attaching *at, uint32_t unit, uint32_t tensor, uint32_t piece,
                 const char *path, const struct adapter_module *how);

/* ---- adapter_stack.c ---- */

/* If the parameter in which transformers stacks the tensor (graph.h) is chosen, adds the unit's
 * share of that parameter's adapter. *chosen: whether it is. */
int attach_stack(struct attaching *at, uint32_t unit, uint32_t tensor, bool *chosen);
/* -ENOTSUP: the choice asks for what units of a sweep, such as experts, cannot have. */
int attach_check_swept(const struct attaching *at, const char *path);

/* ---- adapter_names.c ---- */

/* Writes to path that of the module whose weight the piece is. false: it is no module's weight. */
bool attach_path_of(const struct attaching *at, const struct zinf_piece *piece, char path[128]);
/* -EINVAL, -ENOTSUP: a target is no linear layer of the model, or no linear layer is chosen. */
int attach_check_targets(const struct attaching *at);

/* ---- adapter_copies.c ---- */

/* Moves biases and whole modules that are trained beside low-rank adapters to the adapters' units,
 * under PEFT's names. Call it after the adapters are attached; the names of these tensors in the
 * graph change. */
int attach_copies(struct attaching *at);

#endif
