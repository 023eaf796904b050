/*
 * setup_deal: divides the layers of a model among the pipeline ranks: into ranges of neighbouring
 * layers, which the ranks have in turn. Inside src/train only; for one thread.
 */
#ifndef ZINF_SETUP_DEAL_H
#define ZINF_SETUP_DEAL_H

#include "train/setup.h"

/* Estimates for one memory, in bytes: what each layer takes, what it takes for each micro-batch
 * that is under way, both [n_layers], and how much a range may take; 0: any amount. */
struct room {
    double *bytes, *live_bytes, limit;
};
/* The memory of the device, that of the host, and both together if they are the same RAM. */
enum { DEVICE_ROOM, HOST_ROOM, COMMON_ROOM, ROOMS };
/* The model's layers and their costs, and where each range ends. */
struct deal {
    uint32_t *first; /* [n_layers + 1]: each layer's first stage */
    double *cost;    /* [n_layers]: estimated seconds of a step */
    uint32_t *ends;  /* [n_ranges]: one behind the last layer of each; converted to stages later */
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

/* Sets ends: from zinf.pipeline_parts, or so that the slowest rank is as fast as possible and every
 * rank has enough memory. -EINVAL, -ENOTSUP: the message names the key. */
int deal_layers(const struct setup *s, struct deal *d);
/* Lists the ranks that have the unit in ranks [n_ranges], in the order in which they contribute to
 * its gradient; returns how many. A rank is listed again if another rank's contribution comes
 * between two of its own. d->ends must be stages. */
uint32_t deal_ranks_of(const struct setup *s, const struct deal *d, uint32_t unit, uint32_t *ranks);
/* Whether a rank is listed twice. */
bool deal_comes_again(const uint32_t *ranks, uint32_t n);

#endif
