/*
 * itinerary: the order in which a step visits the model's stages, as data. A visit takes some
 * micro-batches through some stages in one direction: all of them through a stage before the next
 * one. What builds programs walks the visits; how often a gradient is added to, and how many
 * micro-batches' activations exist at once, is counted from them. Another order (one forward, one
 * backward, of a range of stages) is another way to fill the list.
 */
#ifndef ZINF_TRAIN_ITINERARY_H
#define ZINF_TRAIN_ITINERARY_H

#include "net/mesh.h"
#include "train/plan/walk.h"

/* Micro-batches [first, end). */
struct range {
    int64_t first, end;
};
enum direction {
    VISIT_FORWARD,
    /* through the stages that differentiate and do not run last (walk.h), from the last to the
       first */
    VISIT_BACKWARD,
    VISIT_LAST,   /* the backward pass of a stage that runs last */
    VISIT_BORDER, /* an exchange with the pipeline rank before this one, or with the next one */
};
struct visit {
    enum direction direction;
    uint32_t first, end; /* stages [first, end) */
    struct range micros;
    /* For VISIT_BORDER, at a border of this rank's range of stages number `range`. next: the
     * exchange is with the next rank, which is sent values and which sends gradients back; else it
     * is with the rank before, which sends values and is sent gradients. gives, takes: the
     * micro-batches that this rank sends and receives. */
    uint32_t range;
    bool next;
    struct range gives, takes;
};
struct itinerary {
    struct visit *visits;
    uint32_t n;
    int64_t together; /* the most micro-batches of one visit */
    int64_t back;     /* the most of one that goes backward */
    int64_t live;     /* the most micro-batches whose activations exist at once */
};
/* Of a step's n_micro micro-batches `together` go forward in one visit, and then backward, `back`
 * of them in each visit. */
struct grouping {
    int64_t n_micro, together, back;
};
/* `together` micro-batches at a time through all stages, forward and backward; then the stages that
 * run last, for all micro-batches. 1: micro-batch by micro-batch; n_micro: layer by layer. */
int itinerary_make(struct itinerary *out, const struct walk *walk, int64_t n_micro,
                   int64_t together);
/* The itinerary of rank pipe->rank of a pipeline: "one forward, one backward" (Narayanan et al.,
 * arXiv 2104.04473, figure 4), where each forward takes a group of micro-batches, and so do the
 * backwards that follow for it. The activations of as many such groups exist at once as there are
 * ranks from this one to the last; overlaps: of twice as many, so that nothing waits for what
 * crosses between ranks. Where ranks have several ranges of stages, it is the interleaved order of
 * that paper. */
int itinerary_make_pipe(struct itinerary *out, const struct walk *walk,
                        const struct grouping *grouping, const struct zinf_axis *pipe,
                        bool overlaps);
void itinerary_fini(struct itinerary *it);

#endif
