/*
 * companion: what is trained beside a frozen unit, adapters and tensors of the unit itself, is in a
 * second unit, its companion, which is on the device whenever the first one is. A stage names a
 * tensor by its old place, and frame_weight and frame_grad look where it went. So the frozen and
 * the trained part have each its own route, and no stage knows of it.
 *
 * One thread builds them; the graph is finished before, and must be finished again.
 */
#ifndef ZINF_COMPANION_H
#define ZINF_COMPANION_H

#include "model/build.h"

struct companions {
    struct zinf_graph *graph;
    const char *word; /* in front of their names: "adapter" */
    uint32_t n_base;  /* units before there were any */
    uint32_t *of;     /* [n_base]: the companion; 0: none */
    bool *swept;      /* [n_base]: visited in some stage's sweep */
    /* [n_base]: the stage whose rows choose the unit; UINT32_MAX: none. All its units have one
     * companion, which is at hand of the stage. */
    uint32_t *chooser;
    uint32_t *beside; /* [n_stages]: that one; 0: none */
};
int companions_init(struct companions *out, struct zinf_graph *graph, const char *word);
void companions_fini(struct companions *companions);
/* The unit's, which is made where there is none. Of a swept unit rows must choose it. */
uint32_t companion_of(struct companions *companions, uint32_t unit);
/* Freezes the unit but for those of its tensors that are marked: all of them make it trained as it
 * is, none frozen, some move to its companion. rename, unless NULL, gives a piece that is trained
 * its name in the file. -ENOTSUP where only some of a swept unit are marked. */
int companion_move(struct companions *companions, uint32_t unit, const bool *trained,
                   int (*rename)(void *context, struct zinf_piece *piece), void *context);
/* At hand, and units numbered in the order in which stages first need them. */
int companions_finish(struct companions *companions);

#endif
