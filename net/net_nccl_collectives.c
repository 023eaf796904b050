/*
 * net_nccl_collectives: a link's transfers, each a group of NCCL's calls. What NCCL can do as one
 * collective is one; sums are sends and receives, and additions behind them in the same queue.
 */
#include "net/net_nccl.h"

#define PIECE_BYTES ((uint64_t)16 << 20) /* of a part of a sum: a group takes 0.1 ms to begin */

/* ---- groups of calls ---- */

static void *begin_group(struct zinf_link *link)
{
    void *stream = link->device.stream(link->device.queue);
    link->nccl->GroupStart();
    return stream;
}

/* result: the first of the group's calls that was not fine. */
static int end_group(struct zinf_link *link, int result)
{
    int ended = link->nccl->GroupEnd();
    result = is_fine(result) ? ended : result;
    if (is_fine(result))
        return link_settle(link);
    return link_fail_call(link, result);
}

static void keep_first(int *result, int next)
{
    if (is_fine(*result))
        *result = next;
}

static int copy(struct zinf_link *link, void *to, const void *from, uint64_t bytes)
{
    int code = to != from && bytes ? link->device.copy(link->device.queue, to, from, bytes) : 0;
    return code ? link_fail_by_device(link, code) : 0;
}

/* ---- collectives ---- */

int zinf_link_gather(struct zinf_link *link, const void *slice, void *whole,
                     const uint64_t *slice_bytes)
{
    uint32_t world = world_of(link), own = link->net->place.rank;
    uint64_t total = 0, before = 0;
    bool equal = true;
    for (uint32_t r = 0; r < world; r++) {
        before = r == own ? total : before;
        equal &= slice_bytes[r] == slice_bytes[0];
        total += slice_bytes[r];
    }
    int code = link_meet(link, GATHER, total), result = NCCL_SUCCESS;
    if (code || !total)
        return code;
    void *stream = begin_group(link);
    char *at = whole;
    if (equal)
        result = link->nccl->AllGather(slice, whole, slice_bytes[0], NCCL_INT8, link->comm, stream);
    for (uint32_t r = 0; !equal && r < world; at += slice_bytes[r++])
        if (slice_bytes[r])
            keep_first(&result, link->nccl->Broadcast(r == own ? slice : at, at, slice_bytes[r],
                                                      NCCL_INT8, (int)r, link->comm, stream));
    link->sent_bytes += (world - 1) * slice_bytes[own];
    code = end_group(link, result);
    return code ? code : link_wait(link);
}

/* The i-th of the other ranks, from the next one on: not all begin with the same. */
static uint32_t other(const struct zinf_link *link, uint32_t i)
{
    return (link->net->place.rank + 1 + i) % world_of(link);
}

/* ---- sums ---- */

uint64_t zinf_link_scratch_bytes(uint32_t world, uint64_t slice_elems)
{
    uint64_t bytes = slice_elems * sizeof(float);
    return (world - 1) * (bytes < PIECE_BYTES ? bytes : PIECE_BYTES);
}

/* As zinf_tree_sum, on the GPU. */
static int add_parts(struct zinf_link *link, uint64_t elems)
{
    uint32_t n = world_of(link);
    int code = 0;
    for (uint32_t step = 1; step < n; step *= 2)
        for (uint32_t i = 0; !code && i + step < n; i += 2 * step)
            code =
                link->device.add(link->device.queue, link->parts[i], link->parts[i + step], elems);
    return code ? link_fail_by_device(link, code) : 0;
}

/* Elements [at, at + elems) of every slice: each to its rank, this rank's from all. What comes next
 * is behind this in the queue. */
static int scatter_piece(struct zinf_link *link, const float *whole, uint64_t slice_elems,
                         uint64_t at, uint64_t elems)
{
    void *stream = begin_group(link);
    uint64_t bytes = elems * sizeof(float);
    int result = NCCL_SUCCESS;
    for (uint32_t i = 0; i + 1 < world_of(link); i++) {
        uint32_t peer = other(link, i);
        keep_first(&result, link->nccl->Send(whole + peer * slice_elems + at, bytes, NCCL_INT8,
                                             (int)peer, link->comm, stream));
        keep_first(&result, link->nccl->Recv(link->parts[peer], bytes, NCCL_INT8, (int)peer,
                                             link->comm, stream));
        link->sent_bytes += bytes;
    }
    int code = end_group(link, result);
    return code ? code : add_parts(link, elems);
}

int zinf_link_scatter_sum(struct zinf_link *link, float *whole, float *slice, uint64_t slice_elems,
                          const struct zinf_link_scratch *scratch)
{
    uint32_t world = world_of(link), own = link->net->place.rank;
    uint64_t most = scratch->bytes / sizeof(float) / (world - 1), elems;
    most = most > slice_elems ? slice_elems : most;
    if (!most && slice_elems)
        return zinf_fail(-EINVAL, "no memory of the GPU for the parts of a sum");
    int code = link_meet(link, SCATTER, slice_elems);
    for (uint64_t at = 0; !code && at < slice_elems; at += elems) {
        elems = slice_elems - at < most ? slice_elems - at : most;
        for (uint32_t i = 0; i + 1 < world; i++)
            link->parts[other(link, i)] = (float *)scratch->memory + i * most;
        link->parts[own] = whole + own * slice_elems + at;
        code = scatter_piece(link, whole, slice_elems, at, elems);
        if (!code)
            code = copy(link, slice + at, link->parts[0], elems * sizeof(float));
    }
    return code || !slice_elems ? code : link_wait(link);
}
