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
    struct zinf_stage_size size[ZINF_PASSES]; /* of one visit; zero where there is no such pass */
    bool differentiates;                      /* its backward runs */
    bool referenced;                          /* its forward runs for a reference, too (graph.h) */
    bool runs_last;   /* backward: after all others, for all micro-batches, adding in one place */
    uint32_t kind;    /* number of its ops among those of the model */
    uint32_t ordinal; /* among the stages that recompute; WALK_NONE */
    uint64_t kept;    /* bytes, aligned; and those of all stages of its sort before it */
    uint64_t kept_before;
    bool *d_in_adds; /* [in.n] */
    /* Of a stage whose rows choose visits: its number among those, the bytes of its list, aligned,
     * and of those before it. */
    uint32_t choice; /* WALK_NONE */
    uint64_t list_bytes, lists_before;
    /* Of sequences that are continued: what it remembers of them and of their sources, where each
     * begins, the bytes of both, and of all stages before. */
    struct zinf_cache cache[ZINF_CACHES];
    uint64_t cache_at[ZINF_CACHES], cache_bytes, cache_before;
    /* Bytes that it carries of a chunk for later ones, and those of the gradient at the part of
     * each row; how far back a row looks, 0: to the first. Whether a chunk needs what the one
     * before it hands over even to carry its own. */
    uint64_t carried[2];
    int64_t carried_reach;
    bool hands_over;
    uint64_t d_handed; /* bytes of a gradient at that */
    bool keys_first;   /* its rows look ahead */
    bool in_order;     /* of sequences that ranks share: chunks are computed one behind the other */
};
struct walk_value {
    uint64_t bytes; /* of one micro-batch, aligned */
    bool flows;     /* has a gradient in backward */
    bool leaves; /* may live elsewhere between forward and backward; of chunks, so may all that no
                  * backward looks for on the device */
    uint32_t place;        /* of the gradient; WALK_NONE */
    uint32_t slot;         /* of the value in a forward pass alone */
    uint64_t bytes_before; /* of all values of its sort (inputs, leaving, staying, loss) before */
    uint32_t number;       /* among the values that leave; WALK_NONE */
    uint32_t chooser;      /* the stage whose visits are chosen by it; WALK_NONE */
};
/* Memory of gradients that pass from one to the next. */
struct walk_place {
    uint64_t bytes;
    bool idle;       /* the gradient that was in it has been read for the last time */
    bool to_the_end; /* one for every micro-batch of the step: a stage that runs last reads it */
    uint64_t end_before, turn_before; /* bytes of the places before it, of either sort */
};
struct walk_unit {
    /* Number among the layers: units that are used once in a forward, by a stage that recomputes or
     * whose rows choose. WALK_NONE: it is none. */
    uint32_t layer;
    uint32_t chooser;   /* the stage whose rows choose the unit; WALK_NONE */
    uint32_t sweep_end; /* one behind the last unit of a sweep that can run whole, from here on */
    uint32_t own_order; /* place in the order in which units get device slots of their own */
    uint32_t uses;      /* by stages and visits: contributions to its gradient a range; */
    uint32_t turns;     /* those by stages that do not run last */
    bool beside; /* at hand beside another unit, in several stages: a table that they share */
    /* Elements whose gradients are products of linear layers, which can add to a sum themselves;
     * of a device with memory of its own. */
    uint64_t added_elems;
};
struct walk {
    const struct zinf_graph *graph;
    struct walk_stage *stages;
    struct walk_value *values;
    struct walk_unit *units;
    struct walk_place *places;
    uint32_t n_places;
    const struct zinf_stage_ops **kinds; /* the different ops, in order of first use */
    uint32_t n_kinds;
    uint32_t n_recompute, n_layers; /* stages that recompute; units with a layer number */
    uint32_t *layers;               /* [n_layers]: their units */
    uint32_t *by_own_order;         /* [n_units]: units in that order */
    uint32_t n_leaving;
    bool has_reference;
    uint32_t n_choices;               /* stages whose rows choose visits */
    uint32_t whole;                   /* the stage with a whole sweep; WALK_NONE */
    uint32_t row;                     /* the stage that makes logits; WALK_NONE */
    uint32_t most_operands;           /* of one operation: units, values and gradients */
    uint32_t most_units;              /* at hand at once, the sweep's one included */
    uint32_t most_alone, most_beside; /* of these, those that are not beside others, and are */
    uint32_t most_leaving;            /* that one stage reads and writes */
    /* Sums depend on the order of micro-batches: a unit has several contributions from stages that
     * do not run last. */
    bool order_counts;
    uint32_t n_slots;       /* of values in a forward pass alone */
    uint64_t slot_bytes;    /* each */
    uint64_t leaving_bytes; /* the largest of the values that leave */
    uint64_t place_bytes;   /* and of the places of gradients */
    uint32_t most_places;   /* that one stage reads and writes */
    /* sums over one micro-batch */
    uint64_t end_bytes, turn_bytes; /* places of gradients, by sort */
    uint64_t input_bytes, loss_bytes, all_leaving_bytes, staying_bytes;
    uint64_t all_list_bytes; /* of the stages whose rows choose */
    uint64_t choice_bytes;   /* the largest of the values that are chosen by */
    uint64_t kept_always;    /* of stages that do not recompute */
    uint64_t working;        /* the most that a stage keeps: of one that recomputes; of any */
    uint64_t working_of_any;
    uint64_t scratch, scratch_whole; /* the second with the sweep whole */
    uint64_t workspace, outside;
    uint64_t shared; /* most that ranks that share tensors bring together at once */
    uint64_t cache_bytes, largest_cache; /* of all stages; of one */
    uint64_t carried[2], d_handed;       /* the most of one: as a stage's; of a gradient at that */
    bool hands_over, keys_first, in_order; /* of any stage */
    double flops;                          /* forward, of one micro-batch */
};
/* Operands of a stage's operation behind all others: what it carries, and in backward the gradient
 * at that. */
static inline uint32_t walk_n_carried(const struct walk_stage *s, bool back)
{
    return (s->carried[0] > 0) + (back && s->carried[1]);
}
/* Whether a stage's rows are those of the sequence that an encoder reads for a decoder; rows that
 * it has of a sample; and the compute of a stage: chunks of the former sequence are as many as
 * those of the decoder's, but of another length. */
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
/* graph: finished, borrowed. backward: gradients are made too. */
int walk_init(struct walk *out, const struct zinf_graph *graph, const struct zinf_compute *compute,
              bool backward);
void walk_fini(struct walk *walk);
/* flows [n_values]: which values have a gradient that is of use. */
int walk_flows(const struct zinf_graph *graph, bool *flows);
/* referred [n_values]: which values lead to one that there is a reference of. */
int walk_referred(const struct zinf_graph *graph, bool *referred);
/* walk_sizes.c, the second half of walk_init: sizes and numbers, once it is known what flows. */
int walk_measure(struct walk *walk, const struct zinf_compute *compute);

#endif
