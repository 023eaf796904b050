/*
 * walk: what planning and running must know of a model's list of stages beyond the list itself:
 * where gradients flow, which of them may share a place, what every stage takes. Computed once from
 * the graph and the shape of a micro-batch; read-only afterwards, and for any thread to read.
 */
#ifndef ZINF_TRAIN_WALK_H
#define ZINF_TRAIN_WALK_H

#include "model/frame.h"

#define WALK_NONE UINT32_MAX

struct walk_stage {
    struct zinf_stage_size size[ZINF_PASSES]; /* of one visit; zeros if it has no such pass */
    bool differentiates;                      /* its backward runs */
    bool referenced;                          /* its forward also runs for a REFERENCE (graph.h) */
    /* its backward runs after all others, for all micro-batches, and adds up in one place */
    bool runs_last;
    uint32_t kind;    /* index of its ops in walk.kinds */
    uint32_t ordinal; /* index among the stages that recompute; WALK_NONE: it does not */
    /* Aligned bytes of the activations that it keeps for backward; kept_before: of those that come
     * before them in memory, of the other stages that recompute, or that do not. */
    uint64_t kept;
    uint64_t kept_before;
    uint32_t
        keeper; /* index among those that keep some and do not recompute; WALK_NONE: it is none */
    bool *d_in_adds; /* [in.n] */
    /* For a stage whose rows choose visits (experts): its index among those, the aligned bytes of
     * its list of chosen visits, and the bytes of the lists before it. */
    uint32_t choice; /* WALK_NONE */
    uint64_t list_bytes, lists_before;
    /* For decoding: its caches of keys, values and states of sequences and their sources, the
     * offset of each, the bytes of all, and the bytes of the caches of all stages before it. */
    struct zinf_cache cache[ZINF_CACHES];
    uint64_t cache_at[ZINF_CACHES], cache_bytes, cache_before;
    /* For sequences in chunks: bytes that it carries of a chunk to others, such as keys and values,
     * and bytes of the gradient with respect to those of rows. carried_reach: how many rows back a
     * row looks; 0: to the first. handed: bytes of the state that a chunk hands over to the next
     * one, handed_at bytes into what is carried of the chunk; d_handed: of its gradient. */
    uint64_t carried[2];
    int64_t carried_reach;
    uint64_t handed, handed_at, d_handed;
    bool keys_first; /* its rows look ahead: keys of all chunks are computed first */
    bool in_order;   /* context parallelism: its chunks are computed one after the other */
};
struct walk_value {
    uint64_t bytes; /* of one micro-batch, aligned */
    bool flows;     /* backward computes its gradient */
    /* may live off the device between forward and backward; with chunks, this also holds for
     * activations that the backward of their stage does not read */
    bool leaves;
    /* It leaves with chunks, and the backward of the stage that has made it reads it: the value by
     * which visits are chosen, such as experts. */
    bool returns;
    uint32_t place; /* of the gradient, in walk.places; WALK_NONE: it has none */
    uint32_t slot;  /* of the value, in a forward pass without backward */
    /* Of all values of its kind (inputs, leaving, staying, loss) before it. An input of a chunk has
     * a margin on both sides (ZINF_INPUT_MARGIN), of which the one in front counts here, too. */
    uint64_t bytes_before;
    uint32_t number;  /* index among the values that leave; WALK_NONE: it stays */
    uint32_t chooser; /* the stage whose visits are chosen by it; WALK_NONE: none is */
};
/* Device memory of one gradient of a value, used for one value after another. */
struct walk_place {
    uint64_t bytes;
    bool idle; /* the gradient that was in it has been read for the last time */
    /* a stage that runs last reads it, so every micro-batch of the step has its own */
    bool to_the_end;
    /* bytes of the places before it that are to_the_end, and of those that are not */
    uint64_t end_before, turn_before;
};
struct walk_unit {
    /* Index among the layers: units that are used once in a forward pass, by a stage that
     * recomputes or whose rows choose visits. WALK_NONE: it is not a layer. */
    uint32_t layer;
    uint32_t chooser; /* the stage whose rows choose the unit; WALK_NONE: none does */
    /* for a unit of the sweep that can run whole: one behind its last unit; else unit + 1 */
    uint32_t sweep_end;
    uint32_t own_order; /* its index in the order in which units get device slots of their own */
    /* how many stages and visits use it, each of which contributes to its gradient */
    uint32_t uses;
    uint32_t turns; /* contributions of differentiating stages that do not run last */
    bool beside;    /* several stages use it beside another unit, such as a table that they share */
    /* For a device with memory of its own: elements whose gradients are products of linear layers,
     * which can be added directly to the unit's sum. */
    uint64_t added_elems;
};
struct walk {
    const struct zinf_graph *graph;
    struct walk_stage *stages;
    struct walk_value *values;
    struct walk_unit *units;
    struct walk_place *places;
    uint32_t n_places;
    /* the different ops of all stages, in order of first use */
    const struct zinf_stage_ops **kinds;
    uint32_t n_kinds;
    uint32_t n_recompute, n_layers; /* stages that recompute; units with a layer number */
    uint32_t *layers;               /* [n_layers]: the unit of each layer */
    uint32_t *by_own_order;         /* [n_units]: units by their own_order */
    uint32_t n_leaving;
    bool has_reference;
    bool alone; /* forward without backward, on one rank: a place is free once it has been read */
    uint32_t n_choices;     /* number of stages whose rows choose visits */
    uint32_t whole;         /* the stage whose sweep can run whole; WALK_NONE: there is none */
    uint32_t row;           /* the stage that makes logits; WALK_NONE: there is none */
    uint32_t most_operands; /* the most operands of an operation: units, values and gradients */
    uint32_t most_units; /* the most units that a stage uses at once, including one of its sweep */
    uint32_t most_alone, most_beside; /* the most of these that are not `beside`, and that are */
    uint32_t most_leaving;            /* the most leaving values that one stage reads and writes */
    /* Rounding of gradient sums depends on whether micro-batches go one by one or layer by layer,
     * since a unit has several contributions from stages that do not run last. */
    bool order_counts;
    uint32_t n_slots;       /* slots for values in a forward pass without backward */
    uint64_t slot_bytes;    /* of each slot */
    uint64_t leaving_bytes; /* of the largest value that leaves */
    uint64_t place_bytes;   /* of the largest place of a gradient */
    /* the most slots for gradients that one stage needs beside most_leaving */
    uint32_t most_places;
    /* sums over one micro-batch */
    /* of the places of gradients that are to_the_end, and that are not */
    uint64_t end_bytes, turn_bytes;
    uint64_t input_bytes, loss_bytes, all_leaving_bytes, staying_bytes;
    uint64_t all_list_bytes; /* of the lists of stages whose rows choose visits */
    uint64_t choice_bytes;   /* of the largest value by which visits are chosen */
    uint64_t kept_always;    /* activations of stages that do not recompute */
    uint64_t kept_most;      /* of one of these stages */
    uint32_t n_keepers;      /* how many of them keep some */
    uint64_t working; /* the most that a recomputing stage keeps; _of_any: that any stage keeps */
    uint64_t working_of_any;
    uint64_t scratch, scratch_whole; /* scratch_whole: if the sweep runs whole */
    uint64_t workspace, outside;
    uint64_t shared; /* tensor parallelism: the most that ranks gather at once */
    uint64_t cache_bytes, largest_cache;   /* of the caches of all stages; of the largest one */
    uint64_t carried[2], handed, d_handed; /* the most of any stage; d_handed: two gradients */
    bool hands_over, keys_first, in_order; /* whether this is so for any stage */
    double flops;                          /* of the forward pass of one micro-batch */
};
/* How many operands of a stage's operation, behind all others, are for what it carries between
 * chunks: its own and, in backward, its gradient's. */
static inline uint32_t walk_n_carried(const struct walk_stage *s, bool back)
{
    return (s->carried[0] > 0) + (back && s->carried[1]);
}
/* walk_is_of_source: whether the stage works on the sequence that an encoder reads for a decoder.
 * walk_rows: how many rows of a sample the stage has. walk_compute: the shapes that the stage
 * computes with: a source sequence has as many chunks as the decoder's, but of another length. */
static inline bool walk_is_of_source(const struct zinf_graph *graph, uint32_t stage)
{
    return graph->values[graph->stages[stage].out.at[0]].rows_of == ZINF_ROWS_OF_SOURCE;
}
static inline int64_t walk_rows(const struct zinf_graph *graph, uint32_t stage,
                                const struct zinf_compute *compute)
{
    return walk_is_of_source(graph, stage) ? compute->source_seq : compute->seq;
}
struct zinf_compute walk_compute(const struct zinf_graph *graph, uint32_t stage,
                                 const struct zinf_compute *compute);
/* Computes a walk. graph: finished; borrowed. backward: gradients are computed, too. */
int walk_init(struct walk *out, const struct zinf_graph *graph, const struct zinf_compute *compute,
              bool backward);
void walk_fini(struct walk *walk);
/* flows [n_values]: whether the gradient of each value must be computed. */
int walk_flows(const struct zinf_graph *graph, bool *flows);
/* referred [n_values]: whether a value that a REFERENCE repeats depends on each value. */
int walk_referred(const struct zinf_graph *graph, bool *referred);
/* walk_sizes.c, the second half of walk_init: sizes and numbers, once it is known what flows. */
int walk_measure(struct walk *walk, const struct zinf_compute *compute);

#endif
