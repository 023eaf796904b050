/*
 * setup_deal: how the layers of a model are dealt to the ranks of a pipeline: into ranges of
 * neighbouring layers, which the ranks have in turn. Inside src/train only; of one thread.
 */
#ifndef ZINF_SETUP_DEAL_H
#define ZINF_SETUP_DEAL_H

#include "train/setup.h"

/* Of a memory, about: what a layer takes, what it takes for each micro-batch that is under way
 * [n_layers], and what a range may take; 0: any. */
struct room {
    double *bytes, *live_bytes, limit;
};
/* The device's, the host's, and both where they are one machine's RAM. */
enum { DEVICE_ROOM, HOST_ROOM, COMMON_ROOM, ROOMS };
/* Layers of the model and what each takes; where each range ends. */
struct deal {
    uint32_t *first; /* [n_layers + 1]: stages */
    double *cost;    /* [n_layers] */
    uint32_t *ends;  /* [n_ranges]: layers, then stages, one behind the last of each */
    uint32_t n_layers, n_ranges, n_ranks;
    struct room rooms[ROOMS];
    int64_t n_micro;
    bool overlaps;
};
static inline uint32_t rank_of(const struct deal *d, uint32_t range)
{
    return range % d->n_ranks;
}
static inline uint32_t first_stage(const struct deal *d, uint32_t range)
{
    return range ? d->ends[range - 1] : 0;
}

/* Sets ends, from the configuration's list or so that the slowest rank is as fast as possible and
 * each has room for what it has. -EINVAL or -ENOTSUP names the key */
int deal_layers(const struct setup *s, struct deal *d);
/* Ranks that have the unit, in the order in which contributions to its gradient come: each once,
 * but where contributions of another rank come between two of its own. The ends are stages. ranks
 * [n_ranges]; returns how many. */
uint32_t deal_ranks_of(const struct setup *s, const struct deal *d, uint32_t unit, uint32_t *ranks);
/* Whether a rank is among them twice. */
bool deal_comes_again(const uint32_t *ranks, uint32_t n);

#endif
