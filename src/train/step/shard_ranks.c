/*
 * shard_ranks: sums and statistics between ranks that share each matrix, in the middle of a stage:
 * the thread of the lane DEVICE meets the other ranks' there, in the order of its operations, which
 * is the same on all (agree.c). Parts are added by who receives, in the tree over the ranks.
 */
#include "train/trainer.h"

static int sum(void *context, float *x, uint64_t elems, bool sharing)
{
    const struct setup *s = &((struct zinf_trainer *)context)->setup;
    struct zinf_net *net = sharing ? s->sharing : tensor_axis(s)->net;
    if (!net)
        return 0;
    const struct zinf_net_place at = zinf_net_place(net);
    const uint64_t slice = elems / at.world;
    if (elems % at.world)
        return zinf_fail(-ENOTSUP, "zinf.mesh.tensor: %u ranks cannot share a sum of %llu numbers",
                         at.world, (unsigned long long)elems);
    float *own = x + at.rank * slice;
    int code = zinf_net_scatter_sum(net, x, own, slice);
    return code ? code : zinf_net_gather(net, own, x, slice * sizeof *x);
}

static int gather(void *context, void *whole, uint64_t bytes)
{
    const struct zinf_axis *axis = tensor_axis(&((struct zinf_trainer *)context)->setup);
    return axis->net ? zinf_net_gather(axis->net, (char *)whole + axis->rank * bytes, whole, bytes)
                     : 0;
}

void trainer_open_shards(struct zinf_trainer *t)
{
    t->shard_ranks = (struct zinf_shard_ranks){t, sum, gather};
    t->compute.ranks = tensor_axis(&t->setup)->net ? &t->shard_ranks : NULL;
}
