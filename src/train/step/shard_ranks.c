/*
 * shard_ranks: sums and statistics between ranks that share matrices, in the middle of a stage.
 * The thread of the lane DEVICE meets the other ranks, in the order of its operations, which is
 * the same on all (agree.c). The receiver adds, in a tree over the ranks. Data in a GPU's memory
 * go through host memory, behind what the queue has before them, and return before what follows:
 * the next call waits for the queue before it uses that memory again. Ranks along CONTEXT hand
 * over states between computations in the same way.
 */
#include "train/trainer.h"

static struct zinf_queue *queue_of(const struct zinf_trainer *t)
{
    return t->queues[ZINF_LANE_DEVICE];
}

/* Brings device bytes from `at` on to where the CPU reaches them (memory); n are there already. */
static int bring(struct zinf_trainer *t, char *device, uint64_t at, uint64_t n, char **memory)
{
    const struct zinf_device_ops *ops = t->setup.device->ops;
    *memory = device;
    if (!device_is_far(&t->setup))
        return 0;
    *memory = host_at(&t->plan, t->plan.at.h_shared);
    int code = ops->copy_to_host(queue_of(t), *memory + at, device + at, n);
    return code ? code : ops->queue_synchronize(queue_of(t));
}

static int take_back(struct zinf_trainer *t, char *device, const char *memory, uint64_t n)
{
    return memory == device ? 0
                            : t->setup.device->ops->copy_to_device(queue_of(t), device, memory, n);
}

/* The net of so many neighbours; 0: of all. */
static struct zinf_net *net_of(const struct setup *s, uint32_t sharing)
{
    int i = 0;
    for (uint32_t ranks = 2; ranks < sharing; ranks *= 2)
        i++;
    return sharing ? s->sharing[i] : tensor_axis(s)->net;
}

static int sum(void *context, float *device, uint64_t elems, uint32_t sharing)
{
    struct zinf_trainer *t = context;
    struct zinf_net *net = net_of(&t->setup, sharing);
    char *memory;
    if (!net)
        return 0;
    const struct zinf_net_place at = zinf_net_place(net);
    const uint64_t slice = elems / at.world, bytes = elems * sizeof *device;
    if (elems % at.world)
        return zinf_fail(-ENOTSUP, "zinf.mesh.tensor: %u ranks cannot share a sum of %llu numbers",
                         at.world, (unsigned long long)elems);
    int code = bring(t, (char *)device, 0, bytes, &memory);
    float *x = (float *)(void *)memory, *own = x + at.rank * slice;
    if (!code)
        code = zinf_net_scatter_sum(net, x, own, slice);
    if (!code)
        code = zinf_net_gather(net, own, x, slice * sizeof *x);
    return code ? code : take_back(t, (char *)device, memory, bytes);
}

static int gather(void *context, void *device, uint64_t bytes)
{
    struct zinf_trainer *t = context;
    const struct zinf_axis *axis = tensor_axis(&t->setup);
    char *memory;
    if (!axis->net)
        return 0;
    int code = bring(t, device, axis->rank * bytes, bytes, &memory);
    if (!code)
        code = zinf_net_gather(axis->net, memory + axis->rank * bytes, memory, bytes);
    return code ? code : take_back(t, device, memory, axis->world * bytes);
}

int trainer_hand(struct zinf_trainer *t, const struct zinf_op *op)
{
    struct zinf_net *net = t->setup.handing[op->arg];
    const bool takes = op->visit;
    char *device = zinf_address(&op->at[0]), *memory;
    uint64_t out_bytes[2] = {0}, in_bytes[2] = {0};
    if (!net)
        return 0;
    int code = bring(t, device, 0, takes ? 0 : op->bytes, &memory);
    (takes ? in_bytes : out_bytes)[op->arg] = op->bytes; /* the later of two ranks is number 1 */
    void *const both[2] = {memory, memory};
    if (!code)
        code = zinf_net_trade(net, &(struct zinf_net_trade){both, both, out_bytes, in_bytes});
    return code || !takes ? code : take_back(t, device, memory, op->bytes);
}

void trainer_open_shards(struct zinf_trainer *t)
{
    t->shard_ranks = (struct zinf_shard_ranks){t, sum, gather};
    t->compute.ranks = tensor_axis(&t->setup)->net ? &t->shard_ranks : NULL;
}
